// SPDX-License-Identifier: GPL-3.0-or-later
// The page of one reviewed game. Its script is this file after board.js and page.js. A page that
// `wavefront web` serves links to the board, grows while the game is reviewed, and has tried moves searched.

const SIGNS = {"only move": "!", inaccuracy: "?!", mistake: "?", blunder: "??", unclear: "∞"};
const GLYPHS = {1: "!", 2: "?", 3: "!!", 4: "??", 5: "!?", 6: "?!", 7: "□", 10: "=", 13: "∞", 14: "⩲", 15: "⩱", 16: "±", 17: "∓", 18: "+−", 19: "−+"};
const GOOD = "#208040", BAD = "#d02020";
const sides = ["white", "black"];

let fens = [];
let ply = 0, goal = 0;  // moves made in the game, and those to show once the review has come so far
let line = null;   // {fens, moves, at, chips} of a line that is looked at
let trying = null; // the moves that are to be bettered
const board = new Board(get("board"), {bottom: DATA.bottom, onMove: answer, onStep: forwards => step(forwards ? 1 : -1)});

const white = index => DATA.white === (index % 2 === 0);
const sign = move => SIGNS[move.m] ?? "";
const number = index => `${DATA.number + Math.floor((index + (DATA.white ? 0 : 1)) / 2)}${white(index) ? "." : "…"}`;
const percent = value => `${Math.round(value / 10)} %`;
const pawns = value => `${value > 0 ? "+" : value < 0 ? "−" : ""}${(Math.abs(value) / 100).toFixed(2)}`;
const clock = seconds => `${seconds >= 3600 ? `${Math.floor(seconds / 3600)}:` : ""}${String(Math.floor(seconds / 60) % 60).padStart(seconds >= 3600 ? 2 : 1, "0")}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const arrow = (uci, color) => ({from: uci.slice(0, 2), to: uci.slice(2, 4), color});

function show(to, {keep = false} = {}) {
  ply = Math.max(0, Math.min(DATA.moves.length, to));
  if (!keep) goal = ply;
  line = null;
  const move = DATA.moves[ply - 1];
  board.show(fens[ply], {last: move?.u, arrows: move?.b && move.b !== move.u ? [arrow(move.b, GOOD)] : []});
  for (const button of document.querySelectorAll(".moves button")) {
    const current = Number(button.dataset.ply) === ply;
    button.toggleAttribute("aria-current", current);
    if (current) {
      const list = get("moves");  // Not scrollIntoView: that would move the page, too.
      if (button.offsetTop < list.scrollTop || button.offsetTop > list.scrollTop + list.clientHeight - 30) list.scrollTop = button.offsetTop - list.clientHeight / 2;
    }
  }
  get("now").setAttribute("x", String(1000 * ply / Math.max(1, DATA.moves.length) - 1.5));
  get("score").textContent = `White ${percent(DATA.expected[ply])} · ${pawns(DATA.pawns[ply])}`;
  if (!keep) history.replaceState(null, "", `#m${ply}`);
  get("on-board").href = `${DATA.board}&ply=${ply}`;
  detail();
}

function detail() {
  const box = get("detail"), move = DATA.moves[ply - 1], note = DATA.notes[ply];
  box.replaceChildren();
  if (move) {
    const time = [move.c === undefined ? "" : `clock ${clock(move.c)}`, move.t === undefined ? "" : `took ${clock(move.t)}`].filter(Boolean).join(", ");
    box.append(element("p", {}, element("b", {class: move.m ?? ""}, `${number(ply - 1)} ${move.s}${sign(move)}`), time ? element("span", {class: "soft"}, ` ${time}`) : ""));
    if (move.r) box.append(element("p", {}, move.r));
  } else box.append(element("p", {class: "soft"}, "Keys: ← → Home End step, F flips. Swipe on a phone."));
  if (note) {
    const glyphs = note.glyphs.map(each => GLYPHS[each] ?? `$${each}`).join(" ");
    if (glyphs || note.text) box.append(element("p", {class: "note"}, `${glyphs} ${note.text}`.trim()));
  }
  const before = DATA.notes[ply - 1]?.lines ?? [];
  for (const each of [...(move?.l ?? []), ...before.map(found => ({...found, name: "author", from: ply - 1}))]) box.append(chips(each));
}

// A line whose moves can be clicked.
function chips({name, from, u, s}) {
  const ucis = u.split(" "), all = [fens[from], ...ucis.map((_, index) => afterMoves(fens[from], ucis.slice(0, index + 1)))];
  const buttons = s.split(" ").map((san, index) => {
    const label = index === 0 || white(from + index) ? `${number(from + index)} ${san}` : san;
    const button = element("button", {type: "button"}, label);
    button.addEventListener("click", () => follow({fens: all, moves: ucis, at: index + 1, chips: buttons}));
    return button;
  });
  return element("p", {class: "line"}, element("span", {class: "soft"}, `${name}: `), ...buttons);
}

function follow(next) {
  line = next;
  board.show(line.fens[line.at], {last: line.moves[line.at - 1]});
  line.chips.forEach((button, index) => button.toggleAttribute("aria-current", index === line.at - 1));
}

function step(by) {
  if (trying) return;
  if (line && line.at + by >= 1 && line.at + by <= line.moves.length) follow({...line, at: line.at + by});
  else if (line && by < 0) show(ply);
  else if (!line) show(ply + by);
}

// The quiz: find a better move in the positions of one side's mistakes.
const mistakes = side => DATA.moves.map((move, index) => ({move, index})).filter(each => each.move.q && sides[white(each.index) ? 0 : 1] === side);

function start() {
  trying = mistakes(board.bottom);
  document.body.classList.add("trying");
  get("try").textContent = "back to the game";
  ask();
}

function ask() {
  const found = trying[0];
  if (!found) { stop(true); return; }
  show(found.index, {keep: true});
  retry();
  const skip = element("button", {type: "button"}, "show the answer");
  skip.addEventListener("click", () => answer(""));
  get("detail").replaceChildren(element("p", {}, element("b", {}, `${number(found.index)} ${white(found.index) ? "White" : "Black"} to move: `), `${found.move.s} was a ${found.move.m}. Find a better move.`), element("p", {id: "why"}), skip);
}

const retry = () => board.show(fens[trying[0].index], {legal: trying[0].move.q.split(" "), last: DATA.moves[trying[0].index - 1]?.u});

async function answer(uci) {
  if (!trying) return;
  const [found] = trying, {move, index} = found;
  let why = "";
  if (uci && uci !== move.b) {
    board.show(afterMoves(fens[index], [uci]), {last: uci});
    get("why").textContent = "Looking for the reply…";
    const {loss, words} = await refuted(index, uci);
    if (trying?.[0] !== found) return;
    if (loss === null || loss >= DATA.least) {
      get("why").textContent = words;
      retry();
      return;
    }
    why = "This is good, too. ";
  }
  trying.shift();
  ply = index + 1;
  board.show(afterMoves(fens[index], [move.b]), {last: move.b});
  detail();
  const next = element("button", {type: "button"}, trying.length ? "next" : "done");
  next.addEventListener("click", ask);
  get("detail").prepend(element("p", {}, element("b", {}, why || (uci ? "Right. " : "The best move. ")), next));
}

// What a tried move loses, in thousandths, and the reply that shows it; null where no search can tell.
async function refuted(index, uci) {
  const {moves, expected} = DATA, side = each => white(index) ? each : 1000 - each, before = side(expected[index]);
  const told = (after, reply) => ({loss: before - after, words: `Not good enough: ${reply ? `${reply} answers, and ` : ""}the expected score falls from ${percent(before)} to ${percent(after)}. Try again.`});
  if (uci === moves[index].u) return told(side(expected[index + 1]), moves[index].l?.[1]?.s.split(" ")[0]);
  if (!DATA.board) return {loss: null, words: "Not that one; try again. Pages of wavefront web say why."};
  try {
    const position = {fen: DATA.fen, chess960: DATA.chess960, moves: [...moves.slice(0, index).map(each => each.u), uci]};
    const {end} = await request("POST", "/api/v1/position", position);
    if (end) return told(side({"1-0": 1000, "0-1": 0}[end.result] ?? 500), "");
    const {answers: [{moves: lines, root}]} = await request("POST", "/api/v1/analyse", {...position, nodes: DATA.nodes, include_san: true, point_of_view: "white"});
    const share = Math.min(1 - 1e-6, Math.max(1e-6, root.wdl[0] + root.wdl[1] / 2)), strength = Math.log(share / (1 - share));
    const chance = value => 1 / (1 + Math.exp((DATA.scale[0] - value) / DATA.scale[1]));  // As in scale.py.
    return told(side(500 * (1 + chance(strength) - chance(-strength))), lines[0]?.san[0]);
  } catch (error) { return {loss: null, words: `Not that one; try again. ${error.message}`}; }
}

// over: whether all mistakes were tried, so that the other side's are offered.
function stop(over = false) {
  trying = null;
  document.body.classList.remove("trying");
  get("try").textContent = "try your mistakes";
  show(ply);
  if (!over) return;
  const other = board.bottom === "white" ? "black" : "white", name = side => side === "white" ? "White" : "Black";
  const turn = element("button", {type: "button"}, `try ${name(other)}'s`);
  turn.addEventListener("click", () => { board.flip(); start(); });
  get("detail").prepend(element("p", {}, `No more mistakes of ${name(board.bottom)}. `, mistakes(other).length ? turn : ""));
}

// -- a review that grows -------------------------------------------------------------------------------------

async function request(method, path, body) {
  const token = sessionStorage.getItem("wavefront-token"), headers = {"Content-Type": "application/json", ...(token && {Authorization: `Bearer ${token}`})};
  const reply = await fetch(path, {method, headers, body: body && JSON.stringify(body)}).catch(() => null);
  if (!reply || reply.status === 503 || reply.status === 429) throw new Error("The server is busy or away.");
  const found = await reply.json();
  if (!reply.ok) throw Object.assign(new Error(found.error), {refused: true});
  return found;
}

async function grow() {
  const begun = performance.now();
  try {
    Object.assign(DATA, await request("GET", location.pathname.replace(/html$/, "json")));
    draw();
  } catch (error) {
    get("state").textContent = error.refused ? error.message : "The server does not answer; trying again.";
    if (error.refused) return;
  }
  if (DATA.live) setTimeout(grow, Math.max(500, 5 * (performance.now() - begun)));
}

async function run() {
  await request("PUT", `/api/v1/review/${DATA.id}`, {running: !DATA.live}).catch(error => { DATA.state = error.message; });
  if (!DATA.live) grow();
}

/** Draw the game's data, which may have changed. What somebody looks at stays. */
function draw() {
  fens = [DATA.fen];
  for (const move of DATA.moves) fens.push(afterMoves(fens.at(-1), [move.u]));
  course();
  list();
  if (DATA.verdict !== undefined) {
    const marked = DATA.moves.some(move => move.m);
    for (const id of ["verdict", "summary", "people"]) get(id).innerHTML = id === "verdict" && DATA.state && !marked ? "" : DATA[id];
  }
  get("state").textContent = DATA.state ?? "";
  get("run").hidden = !DATA.state;
  get("run").textContent = DATA.live ? "stop" : "go on";
  get("on-board").hidden = !DATA.board;
  if (!line && !trying) show(goal, {keep: true});
}

function course() {
  const last = Math.max(1, DATA.moves.length), place = index => [1000 * index / last, 200 - DATA.expected[index] / 5];
  const points = DATA.expected.map((_, index) => place(index).map(each => each.toFixed(1)).join()).join(" ");
  const dots = DATA.moves.map((move, index) => !move.m || move.m === "unclear" ? "" : `<circle class="${move.m.split(" ")[0]}" cx="${place(index + 1)[0]}" cy="${place(index + 1)[1]}" r="${index === DATA.lost ? 9 : 6}"/>`).join("");
  get("course").innerHTML = `<rect class="ground" width="1000" height="200"/><polygon points="0,200 ${points} 1000,200"/><line x1="0" y1="100" x2="1000" y2="100"/><rect id="now" width="3" height="200"/>${dots}`;
}

function list() {
  const rows = [];
  DATA.moves.forEach((move, index) => {
    if (white(index) || !rows.length) rows.push(element("li", {value: DATA.number + rows.length}, ...(white(index) ? [] : [element("span", {}, "…")])));
    const button = element("button", {type: "button", "data-ply": index + 1, class: move.m ?? ""}, move.s + sign(move));
    button.addEventListener("click", () => { if (trying) stop(); show(index + 1); });
    rows[rows.length - 1].append(button);
  });
  get("moves").replaceChildren(...rows);
}

function keys(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const act = {ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => trying || show(0), End: () => trying || show(DATA.moves.length), f: () => board.flip()}[event.key];
  if (act) { act(); event.preventDefault(); }
}

get("course").addEventListener("click", event => {
  const box = get("course").getBoundingClientRect();
  if (!trying) show(Math.round(Math.max(1, DATA.moves.length) * (event.clientX - box.left) / box.width));
});
for (const [id, act] of Object.entries({run, first: () => trying || show(0), back: () => step(-1), next: () => step(1), last: () => trying || show(DATA.moves.length), flip: () => board.flip(), try: () => trying ? stop() : start()}))
  get(id).addEventListener("click", act);
document.addEventListener("keydown", keys);
const wanted = () => Number(/^#m(\d+)$/.exec(location.hash)?.[1] ?? 0);
addEventListener("hashchange", () => show(goal = wanted(), {keep: true}));
goal = wanted();
draw();
if (DATA.id && (DATA.live || DATA.state)) grow();
