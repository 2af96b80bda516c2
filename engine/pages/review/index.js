// SPDX-License-Identifier: GPL-3.0-or-later
// The page of all reviewed games: a table to filter and sort, and the trends of the chosen player.

const PAGE = 50;  // games shown at first
const PHASES = ["opening", "middlegame", "endgame"];
const COLUMNS = [
  ["game", game => `${game.w} – ${game.b}`.toLowerCase()], ["date", game => game.d], ["event", game => game.e.toLowerCase()],
  ["result", game => game.r], ["lost with", game => game.l], ["White", game => game.a[0] ?? -1], ["Black", game => game.a[1] ?? -1],
  ["opening", game => game.o.toLowerCase()],
];
let sorted = 1, rising = true, all = false;

const figure = value => value === null || value === undefined ? "–" : value.toFixed(1);

function chosen() {
  const player = get("player").value, words = get("words").value.toLowerCase();
  const games = DATA.games.filter(game => (!player || game.w === player || game.b === player)
    && (!words || `${game.w} ${game.b} ${game.e} ${game.d} ${game.r} ${game.o}`.toLowerCase().includes(words)));
  const key = COLUMNS[sorted][1];
  return games.sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : one.n - other.n) * (rising ? 1 : -1));
}

function row(game) {
  const link = hash => `game-${game.n}.html${hash}`;
  const cell = (name, text, kind = "") => element("td", {class: kind, ...(name && text ? {"data-name": name} : {})}, text);
  return element("tr", {},
    element("td", {class: "names"}, element("a", {href: link("")}, `${game.w} – ${game.b}`)),
    cell("", game.d.replaceAll("?", "").replace(/\.+$/, "")), cell("", game.e), cell("", game.r),
    element("td", game.l ? {"data-name": "lost with"} : {}, ...(game.l ? [element("a", {href: link(`#m${game.p + 1}`)}, game.l)] : [])),
    cell("White", figure(game.a[0]), "n"), cell("Black", figure(game.a[1]), "n"), cell("", game.o));
}

// Add numbers of moves, lost expected score and marks.
function add(groups, label, figures, game) {
  const group = groups[label] ??= {games: new Set(), sums: [0, 0, 0, 0, 0]};
  if (!figures[0]) return;
  group.games.add(game.n);
  figures.forEach((each, index) => { group.sums[index] += each; });
}

const total = parts => parts.reduce((sums, part) => sums.map((each, index) => each + part[index]), [0, 0, 0, 0, 0]);

function trends(games) {
  const player = get("player").value, tables = {month: {}, color: {}, opening: {}, phase: {}, "time left": {}};
  for (const game of games) for (const side of [0, 1]) {
    if (player && (side ? game.b : game.w) !== player) continue;
    const parts = game.s[side], whole = total(parts.slice(0, 3));
    add(tables.month, /^\d{4}\.\d\d/.test(game.d) ? game.d.slice(0, 7) : "unknown", whole, game);
    add(tables.color, side ? "Black" : "White", whole, game);
    add(tables.opening, game.o.split(":")[0] || "other", whole, game);
    PHASES.forEach((phase, index) => add(tables.phase, phase, parts[index], game));
    if (game.t) {
      add(tables["time left"], "time trouble", parts[3], game);
      add(tables["time left"], "enough", whole.map((each, index) => each - parts[3][index]), game);
    }
  }
  return Object.entries(tables).filter(([, groups]) => Object.keys(groups).length).flatMap(([name, groups]) => {
    const rows = Object.entries(groups).filter(([, group]) => group.sums[0]);
    rows.sort(([one, a], [other, b]) => name === "month" ? (one < other ? -1 : 1) : b.games.size - a.games.size);
    const body = rows.slice(0, 24).map(([label, {games: found, sums}]) => element("tr", {},
      ...[label, found.size, sums[0], `${(sums[1] / 10 / sums[0]).toFixed(1)} %`, sums[2], sums[3], sums[4]].map((text, index) => element("td", index ? {class: "n"} : {}, String(text)))));
    const head = element("tr", {}, ...["", "games", "moves", "loss", "?!", "?", "??"].map((text, index) => element("th", index ? {class: "n"} : {}, text)));
    return [element("h2", {}, `By ${name}`), element("table", {}, head, ...body)];
  });
}

function draw() {
  const games = chosen(), shown = all ? games : games.slice(0, PAGE);
  const heads = COLUMNS.map(([name], index) => {
    const button = element("button", {type: "button"}, name + (index === sorted ? rising ? " ▲" : " ▼" : ""));
    button.addEventListener("click", () => { rising = index === sorted ? !rising : true; sorted = index; draw(); });
    return element("th", index === 5 || index === 6 ? {class: "n"} : {}, button);
  });
  get("games").replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...shown.map(row)));
  get("count").textContent = `${games.length} of ${DATA.games.length} games`;
  get("sort").value = String(sorted);
  get("more").hidden = shown.length === games.length;
  get("trends").replaceChildren(...trends(games));
}

const players = [...new Set(DATA.games.flatMap(game => [game.w, game.b]))].sort();
get("player").append(...players.map(name => element("option", {value: name}, name)));
if (players.includes(DATA.player)) get("player").value = DATA.player;
get("sort").append(...COLUMNS.map(([name], index) => element("option", {value: index}, `by ${name}`)));
get("sort").value = String(sorted);
get("sort").addEventListener("change", event => { sorted = Number(event.target.value); draw(); });
for (const id of ["player", "words"]) get(id).addEventListener("input", draw);
get("more").addEventListener("click", () => { all = true; draw(); });
draw();
