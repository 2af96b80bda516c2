// SPDX-License-Identifier: GPL-3.0-or-later
// The page: a board with a tree of moves, and the panels Analyse, Play and Review.

import { Analysis, ask, post } from "./api.js";
import { Board } from "./board.js";
import { showLines, showPeople } from "./lines.js";
import { Play } from "./play.js";
import { startReviews } from "./review.js";
import { Tree, afterMoves, drawMoves } from "./tree.js";

const get = id => document.getElementById(id);

let tree = new Tree(), searching = false, panel = "analyse", shown = 0;
const board = new Board(get("board"), {onMove: uci => attempt(() => moved(uci))});
const analysis = new Analysis(heard, alive => say("state", alive ? "" : "The server does not answer; trying again."));
const play = new Play({
  get, board, show, fail,
  game: () => tree,
  begin: started => { tree = started; },
  move: made => go(tree.add(tree.now, made)),
});

function say(id, text) {
  const element = get(id);
  if (element.textContent !== text) element.textContent = text;
}

function fail(error) { say("problem", error.message); }

async function attempt(work) {
  say("problem", "");
  try { await work(); } catch (error) { fail(error); }
}

// -- positions -----------------------------------------------------------------------------------------------

/** Ask the server for what it knows of a node: its FEN, legal moves and end. */
async function known(node) {
  if (!node.position) {
    const {line, ...position} = await post("position", tree.position(node));
    node.position = position;
    node.fen = position.fen;
    if (node === tree.root) [tree.root.side, tree.root.number] = [position.turn, Number(position.fen.split(" ").pop())];
  }
  return node.position;
}

/** Show the current node, and analyse it if that is on. */
async function show() {
  const node = tree.now, number = ++shown;
  const position = await known(node);
  if (number !== shown) return;  // Another node is shown by now.
  draw(node);
  drawMoves(get("moves"), tree, go);
  get("fen").value = position.fen;
  say("spoken", node.san ? `${node.san}${position.end ? `, ${position.end.result}: ${position.end.reason}` : ""}` : "");
  showLines(get("pvs"), node, preview, play1);
  figures(node);
  play.changed(node);
  if (searching && !position.end) analysis.show({node, query: {...tree.position(), multipv: Number(get("lines").value), network: get("network").value}});
  else analysis.show(null);
  if (panel === "analyse" && !position.end) people(node);
}

/** Draw a node on the board. arrows: those of the best lines, unless a game is played. */
function draw(node) {
  const {position} = node;
  const arrows = panel === "play" && play.running ? play.arrows : (node.lines ?? []).slice(0, 3).map(({move}, index) => ({
    from: move.slice(0, 2), to: target(move, node), color: ["#2080d0", "#6aa7d8", "#a9c4da"][index],
  }));
  const legal = play.blocks(node) ? [] : Object.keys(position.legal);
  board.show(position.fen, {legal, last: node.uci || undefined, check: position.check ?? undefined, arrows});
}

const target = move => move.slice(2, 4);

async function moved(uci) {
  const node = tree.now, san = node.position.legal[uci];
  if (!san) return;
  await go(tree.add(node, {uci, san, fen: ""}));
  await play.answered(tree.now);
}

const play1 = line => attempt(() => moved(line.move));

function go(node) {
  tree.now = node;
  return attempt(show);
}

/** Show a position of a line for as long as it is pointed at. */
function preview(node, moves) {
  if (!moves) { draw(tree.now); return; }
  board.show(afterMoves(node.fen, moves), {last: moves.at(-1)});
}

// -- analysis ------------------------------------------------------------------------------------------------

function heard(answer, node) {
  if (answer.error) { fail(new Error(answer.error)); return; }
  if (!answer.moves) return;
  node.lines = answer.moves;
  node.root = answer.root;
  node.search = answer.search;
  node.policy = answer.policy;
  if (node !== tree.now) return;
  showLines(get("pvs"), node, preview, play1);
  figures(node);
  drawPeople(node);
  draw(node);
}

/** The evaluation bar, depth and speed. */
function figures(node) {
  const {search, root} = node, [win, draws, loss] = root?.wdl ?? [1 / 3, 1 / 3, 1 / 3];
  const shares = board.bottom === "white" ? [["black", loss], ["draw", draws], ["white", win]] : [["white", win], ["draw", draws], ["black", loss]];
  shares.forEach(([name, share], index) => {
    const part = get("bar").children[index];
    part.className = name;
    part.style.flexBasis = `${100 * share}%`;
  });
  const percent = share => `${Math.round(100 * share)} %`;
  get("bar").setAttribute("aria-valuenow", String(Math.round(100 * (win + draws / 2))));
  get("bar").setAttribute("aria-valuetext", `White wins ${percent(win)}, draw ${percent(draws)}, Black wins ${percent(loss)}`);
  const speed = search && search.seconds > 0.05 ? `, ${Math.round(search.playouts / search.seconds).toLocaleString("en")} nodes/s` : "";
  say("figures", search ? `depth ${search.depth}, ${root.visits.toLocaleString("en")} nodes${speed}; W ${percent(win)} D ${percent(draws)} L ${percent(loss)}` : "");
}

function toggleSearch(on = !searching) {
  searching = on;
  get("search").setAttribute("aria-pressed", String(on));
  get("search").textContent = on ? "Stop" : "Start";
  attempt(show);
}

async function people(node) {
  const elo = Number(get("human").value);
  say("human-elo", String(elo));
  const found = await post("human", {...tree.position(node), elo});
  node.people = found;
  if (node === tree.now && elo === Number(get("human").value)) drawPeople(node);
}

function drawPeople(node) {
  if (node.people) showPeople(get("people"), node.people, node.policy, move => attempt(() => moved(move)));
}

// -- games as text -------------------------------------------------------------------------------------------

async function load(pgn, game = 0) {
  const {games, game: read} = await post("pgn/read", {pgn, game});
  const made = new Tree({fen: read.fen, chess960: read.chess960});
  made.headers = read.headers;
  const nodes = [];
  for (const {parent, ...move} of read.nodes) nodes.push(made.add(parent < 0 ? made.root : nodes[parent], move));
  if (!game) {
    get("game").replaceChildren(...games.map(({number, players}) => new Option(`${number}. ${players}`, number)));
    get("choose").hidden = games.length < 2;
  }
  tree = made;
  play.stop();
  get("chess960").checked = read.chess960;
  say("problem", read.faults.length ? `Read with faults: ${read.faults[0]}` : "");
  await show();
}

async function setUp(fen) {
  const made = new Tree({fen: fen.trim() || "startpos", chess960: get("chess960").checked});
  await post("position", made.position());  // Throws for a FEN that is not one.
  tree = made;
  play.stop();
  await show();
}

async function save() {
  const {fen, chess960} = tree.start;
  const {pgn} = await post("pgn/write", {fen, chess960, nodes: tree.nodes(), headers: tree.headers});
  get("pgn").value = pgn;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([pgn], {type: "application/x-chess-pgn"}));
  link.download = "game.pgn";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// -- controls ------------------------------------------------------------------------------------------------

const steps = {
  first: () => tree.root,
  back: () => tree.now.parent,
  next: () => tree.now.children[0],
  last: () => tree.end(tree.now),
};
for (const [id, step] of Object.entries(steps)) get(id).addEventListener("click", () => step() && go(step()));

function flip() {
  board.flip();
  figures(tree.now);
  play.names();
}

function choosePanel(name) {
  panel = name;
  for (const tab of get("tabs").children) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    get(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (name === "play" && searching) toggleSearch(false);
  else if (name === "analyse") attempt(show);
}

get("tabs").addEventListener("click", event => event.target.closest("[role=tab]") && choosePanel(event.target.id.slice(4)));
get("tabs").addEventListener("keydown", event => {
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!step) return;
  const tabs = [...get("tabs").children], at = tabs.findIndex(tab => tab.id === `tab-${panel}`);
  const tab = tabs[(at + step + tabs.length) % tabs.length];
  choosePanel(tab.id.slice(4));
  tab.focus();
  event.stopPropagation();
  event.preventDefault();
});

get("flip").addEventListener("click", flip);
get("search").addEventListener("click", () => toggleSearch());
get("lines").addEventListener("change", () => attempt(show));
get("network").addEventListener("change", () => attempt(show));
get("human").addEventListener("input", () => attempt(() => people(tree.now)));
get("fen").addEventListener("change", event => attempt(() => setUp(event.target.value)));
get("clear").addEventListener("click", () => attempt(() => setUp("")));
get("load").addEventListener("click", () => attempt(() => load(get("pgn").value)));
get("game").addEventListener("change", event => attempt(() => load(get("pgn").value, Number(event.target.value))));
get("save").addEventListener("click", () => attempt(save));
get("pgn-file").addEventListener("change", event => attempt(async () => {
  get("pgn").value = await event.target.files[0].text();
  await load(get("pgn").value);
}));
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, textarea, select, .board.playable")) {
    if (!event.target.closest?.(".board") || event.key.startsWith("Arrow")) return;
  }
  const key = {ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last", f: "flip", F: "flip", s: "search", S: "search"}[event.key];
  if (!key || (key === "search" && panel !== "analyse")) return;
  event.preventDefault();
  get(key).click();
});

startReviews({get, say, attempt, open: async (pgn, number) => {
  get("pgn").value = pgn;
  choosePanel("analyse");
  await load(pgn);
  if (number > 1) await load(pgn, number);
}});

attempt(async () => {
  const waiting = ask("GET", "/api/v1/networks");
  toggleSearch(true);
  const {networks} = await waiting;
  for (const {name} of networks) get("network").append(new Option(name, name));
});
