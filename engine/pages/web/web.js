// SPDX-License-Identifier: GPL-3.0-or-later
// The page: a board with a tree of moves, and the panels Analyse, Play and Review.

import { Analysis, Refusal, ask, base64, post, server } from "./api.js";
import { Board, afterMoves, boardOf, lettersOf } from "./board.js";
import { made } from "./dom.js";
import { showLines, showPeople } from "./lines.js";
import { Play } from "./play.js";
import { startReviews } from "./review.js";
import { Tree, drawMoves } from "./tree.js";

const get = id => document.getElementById(id);

let tree = new Tree(), searching = true, panel = "analyse", shown = 0, previewing = false, edited = null;
const board = new Board(get("board"), {onMove: uci => attempt(() => moved(uci)), onStep: forwards => get(forwards ? "next" : "back").click()});
const analysis = new Analysis(heard);
const play = new Play({
  get, board, show, go, known, fail,
  game: () => tree,
  begin: started => { tree = started; get("choose").hidden = true; },
});
server.hear = text => say("state", text);

function say(id, text) {
  const element = get(id);
  if (element.textContent !== text) element.textContent = text;
}

function fail(error) {
  if (!(error instanceof Refusal)) console.error(error);
  say("problem", error instanceof Refusal ? error.message : "Something went wrong on this page: please reload it.");
}

async function attempt(work) {
  say("problem", "");
  try { await work(); } catch (error) { fail(error); }
}

// -- positions -----------------------------------------------------------------------------------------------

/** Ask the server for what it knows of a node: its FEN, legal moves and end. */
async function known(node, from = tree) {
  if (!node.position) {
    node.asked ??= post("position", from.position(node)).finally(() => { node.asked = null; });
    const {line, ...position} = await node.asked;
    node.position = position;
    node.fen = position.fen;
    if (!node.parent) [node.side, node.number] = [position.turn, Number(position.fen.split(" ").pop())];
  }
  return node.position;
}

/** Show the current node, and analyse it if that is on. */
async function show() {
  const node = tree.now, number = ++shown;
  const position = await known(node);
  if (number !== shown) return;  // Another node is shown by now.
  if (edited) edit(false);
  draw(node);
  drawMoves(get("moves"), tree, go);
  course();
  play.names();
  const {Result: result = "*"} = tree.headers, path = tree.path(), off = path.findIndex(each => each !== each.parent.children[0]), {review} = tree;
  say("about", [result === "*" ? "" : result, position.opening].filter(Boolean).join(" · "));
  get("review-this").hidden = play.running || !tree.root.children.length;
  get("to-review").hidden = !review;
  if (review) get("to-review").href = `/review/${review.id}/game-${review.number}.html#m${off < 0 ? path.length : off}`;
  get("delete").disabled = play.running || !path.length;
  get("promote").disabled = play.running || off < 0;
  get("fen").value = position.fen;
  say("spoken", node.san ? `${node.san}${position.end ? `, ${position.end.result}: ${position.end.reason}` : ""}` : "");
  showLines(get("pvs"), node, preview, play1);
  figures(node);
  play.changed(node);
  keep();
  if (position.end) get("people").replaceChildren();
  const query = {...tree.position(), multipv: Number(get("lines").value), network: get("network").value};
  analysis.show(searching && panel === "analyse" && !position.end ? {node, query} : null).catch(fail);
  if (panel === "analyse" && !position.end) people(node);
}

/** Draw a node on the board. arrows: those of the best lines, unless a game is played. */
function draw(node) {
  const {position} = node;
  previewing = false;
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
  const made = tree.add(node, {uci, san, fen: ""});
  await Promise.all([go(made), play.answered(made)]);
}

const play1 = line => attempt(() => moved(line.move));

function go(node) {
  tree.now = node;
  return attempt(show);
}

/** Show a position of a line for as long as it is pointed at. */
function preview(node, moves) {
  if (!moves) { draw(tree.now); return; }
  previewing = true;
  board.show(afterMoves(node.fen, moves), {last: moves.at(-1)});
}

// -- analysis ------------------------------------------------------------------------------------------------

function heard(answer, node) {
  if (answer.error) { fail(new Refusal(answer.error)); return; }
  if (!answer.moves) return;
  node.lines = answer.moves;
  node.root = answer.root;
  node.search = answer.search;
  node.policy = answer.policy;
  if (node !== tree.now) return;
  showLines(get("pvs"), node, preview, play1);
  figures(node);
  drawPeople(node);
  course();
  if (!previewing && !edited) draw(node);
}

/** White's expected score in a position that was analysed or reviewed, or undefined. */
function expected({root, comment}) {
  const [win, draws] = root?.wdl ?? /\[%wdl (\d+),(\d+),/.exec(comment ?? "")?.slice(1).map(each => each / 1000) ?? [];
  return win === undefined ? win : win + draws / 2;
}

/** The graph of the game, as far as it was analysed or reviewed; none while a game is played. */
function course() {
  const nodes = [tree.root, ...tree.path(tree.end(tree.now))], place = index => 1000 * index / Math.max(1, nodes.length - 1);
  const points = nodes.flatMap((node, index) => expected(node) === undefined ? [] : [[place(index), 200 * (1 - expected(node))]]);
  const [line, now] = get("course").children;
  get("course").toggleAttribute("hidden", play.running || points.length < 2);
  line.setAttribute("points", points.join(" "));
  now.setAttribute("x", String(place(nodes.indexOf(tree.now)) - 2));
}

const RESULTS = {"1-0": [1, 0, 0], "0-1": [0, 0, 1], "1/2-1/2": [0, 1, 0]};

/** The evaluation bar, depth and speed. The bar is empty for a position without evaluation, and while a game is played. */
function figures(node) {
  const {search, root} = node, playing = panel === "play" && play.running;
  const wdl = node.position?.end ? RESULTS[node.position.end.result] : playing ? null : root?.wdl;
  const [win, draws, loss] = wdl ?? [0, 0, 0];
  const shares = board.bottom === "white" ? [["black", loss], ["draw", draws], ["white", win]] : [["white", win], ["draw", draws], ["black", loss]];
  shares.forEach(([name, share], index) => {
    const part = get("bar").children[index];
    part.className = name;
    part.style.flexBasis = `${100 * share}%`;
  });
  const percent = share => `${Math.round(100 * share)} %`;
  get("bar").setAttribute("aria-valuenow", String(wdl ? Math.round(100 * (win + draws / 2)) : 50));
  get("bar").setAttribute("aria-valuetext", wdl ? `White wins ${percent(win)}, draw ${percent(draws)}, Black wins ${percent(loss)}` : "not evaluated");
  const speed = search && search.seconds > 0.05 ? `, ${Math.round(search.playouts / search.seconds).toLocaleString("en")} nodes/s` : "";
  if (node.position?.end) say("figures", `${node.position.end.result}, by ${node.position.end.reason}`);
  else say("figures", search && root && !playing ? `depth ${search.depth}, ${root.visits.toLocaleString("en")} nodes${speed}; W ${percent(win)} D ${percent(draws)} L ${percent(loss)}` : "");
}

function toggleSearch(on) {
  searching = on;
  get("search").setAttribute("aria-pressed", String(on));
  get("search").textContent = on ? "Stop" : "Start";
  attempt(show);
}

async function people(node) {
  const elo = Number(get("human").value);
  say("human-elo", String(elo));
  if (node.position.end) return;
  const found = await post("human", {...tree.position(node), elo});
  node.people = found;
  if (node === tree.now && elo === Number(get("human").value)) drawPeople(node);
}

/** The moves of people: by a network that imitates them, or an estimate. */
function drawPeople(node) {
  if (!node.people) return;
  const {network, elo} = node.people, asked = get("human").value;
  say("human-label", network === "estimate" ? "Players of (estimate; networks: wavefront get maia-1500)" : "Players of");
  say("human-elo", String(elo) === asked ? asked : `${asked} (nearest: ${elo})`);
  showPeople(get("people"), node.people, node.policy, move => attempt(() => moved(move)));
}

// -- the game is kept by the server ----------------------------------------------------------------------------

let kept = "", keeping = null;
const last = localStorage.getItem("wavefront-game");
const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
let identity = wanted.game ?? last ?? crypto.randomUUID();

/** Keep the game a moment later: several changes make one request. The address names it and the node on the board. */
function keep() {
  const place = tree.path().map(node => node.parent.children.indexOf(node)).join(".");
  history.replaceState(null, "", `#game=${identity}${place && `&at=${place}`}`);
  localStorage.setItem("wavefront-game", identity);
  clearTimeout(keeping);
  keeping = setTimeout(() => save().catch(fail), 300);
}

async function save() {
  const {start, headers, root, review} = tree;
  if (!root.children.length && !play.tip && start.fen === "startpos") return;
  const state = JSON.stringify({start, headers, review, comment: root.comment, nodes: tree.nodes(true), play: play.state(), panel, bottom: board.bottom});
  if (state === kept) return;
  const title = `${headers.White ?? "?"} – ${headers.Black ?? "?"}, ${headers.Date ?? new Date().toISOString().slice(0, 10)}, ${root.children.length ? tree.path(tree.end()).length : 0} plies`;
  await ask("PUT", `/api/v1/games/${identity}`, {state, title});
  kept = state;
}

/** Show the stored game of this identity. place: the indexes of the moves to the node on the board. */
async function restore(place = "") {
  const {state} = await ask("GET", `/api/v1/games/${identity}`);
  if (!state) return;
  const {start, headers, comment, nodes, review, play: game, panel: shownPanel, bottom} = JSON.parse(state);
  tree = Tree.of({start, headers, comment, nodes});
  tree.review = review;
  for (const index of place.split(".").filter(Boolean)) tree.now = tree.now.children[index] ?? tree.now;
  board.bottom = bottom;
  choosePanel(shownPanel);
  await known(tree.root);
  if (game) play.resume(game).catch(fail);
}

/** Add what a review says to the game on the board, and show the position after some of its moves. */
async function mergeReview(id, number, ply) {
  const pgn = await ask("GET", `/review/${id}/game-${number}.pgn`, undefined, {read: reply => reply.text(), accept: "*/*"});
  const {game} = await post("pgn/read", {pgn}), made = Tree.of({...game, start: {fen: game.fen, chess960: game.chess960}});
  if (tree.root.children.length) tree.merge(made);
  else tree = made;
  tree.review = {id, number};
  tree.now = tree.root;
  for (let left = ply; left && tree.now.children.length; left--) tree.now = tree.now.children[0];
  choosePanel("analyse");
}

/** Leave the game for another one: both are kept. */
function another(made) {
  tree = made;
  identity = crypto.randomUUID();
  play.stop();
  get("choose").hidden = true;
}

// -- games as text -------------------------------------------------------------------------------------------

async function load(source, game = 0) {
  const {games, game: read, text} = await post("pgn/read", typeof source === "string" ? {pgn: source, game} : {data: await base64(source), game});
  if (text !== undefined) get("pgn").value = text;
  another(Tree.of({...read, start: {fen: read.fen, chess960: read.chess960}}));
  if (!game) get("game").replaceChildren(...games.map(({number, players}) => new Option(`${number}. ${players}`, number)));
  get("choose").hidden = get("game").options.length < 2;
  get("chess960").checked = read.chess960;
  say("problem", read.faults.length ? `Read with faults: ${read.faults[0]}` : "");
  await show();
}

async function setUp(fen) {
  const made = new Tree({fen: fen.trim() || "startpos", chess960: get("chess960").checked});
  await post("position", made.position());  // Throws for a FEN that is not one.
  another(made);
  await show();
}

/** The game as PGN. */
async function written() {
  const {fen, chess960} = tree.start;
  return (await post("pgn/write", {fen, chess960, nodes: tree.nodes(), headers: tree.headers, comment: tree.root.comment ?? ""})).pgn;
}

async function download() {
  const pgn = get("pgn").value = await written();
  const link = made("a", {download: "game.pgn", href: URL.createObjectURL(new Blob([pgn], {type: "application/x-chess-pgn"}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Begin or end editing: pressed squares get the chosen piece, and the FEN follows. */
function edit(on) {
  edited = on ? lettersOf(tree.now.fen) : null;
  get("edit").setAttribute("aria-pressed", String(on));
  get("edit").textContent = on ? "Use this position" : "Edit the board";
  for (const each of document.querySelectorAll(".editing")) each.hidden = !on;
  if (on) place("");
}

/** Put the chosen piece on a square, or remove it from there. */
function place(square) {
  const piece = get("piece").value, {a1, e1, h1, a8, e8, h8} = edited;
  if (square && (!piece || edited[square] === piece)) delete edited[square];
  else if (square) edited[square] = piece;
  const rights = [[e1, h1, "KRK"], [e1, a1, "KRQ"], [e8, h8, "krk"], [e8, a8, "krq"]].filter(([king, rook, [k, r]]) => king === k && rook === r).map(each => each[2][2]).join("");
  get("fen").value = `${boardOf(edited)} ${get("mover").value} ${rights || "-"} - 0 1`;
  board.show(get("fen").value, {onSquare: place});
}

/** List the stored games, to open or delete one. */
async function listStored() {
  const {games} = await ask("GET", "/api/v1/games");
  get("stored").replaceChildren(...games.map(({identity: name, title}) => new Option(title, name, false, name === identity)));
  for (const id of ["stored", "open-stored", "delete-stored"]) get(id).disabled = !games.length;
}

async function openStored(name) {
  another(new Tree());
  identity = name;
  await restore();
  await show();
}

async function deleteStored(name) {
  await ask("DELETE", `/api/v1/games/${name}`);
  if (name === identity) { another(new Tree()); await show(); }
  await listStored();
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
  if (name === "review") attempt(listReviews);
  attempt(show);
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

// A browser may keep a page that is left, with its requests, and show it again.
addEventListener("pagehide", () => { analysis.show(null); save().catch(() => {}); });
addEventListener("pageshow", event => event.persisted && attempt(show));

get("flip").addEventListener("click", flip);
get("search").addEventListener("click", () => toggleSearch(!searching));
get("pvs").addEventListener("pointerleave", () => previewing && draw(tree.now));
get("course").addEventListener("click", event => {
  const nodes = [tree.root, ...tree.path(tree.end(tree.now))], box = get("course").getBoundingClientRect();
  go(nodes[Math.round((nodes.length - 1) * (event.clientX - box.left) / box.width)]);
});
get("promote").addEventListener("click", () => { tree.promote(tree.now); attempt(show); });
get("delete").addEventListener("click", () => { const {now} = tree; tree.now = now.parent; tree.remove(now); attempt(show); });
get("edit").addEventListener("click", () => edited ? attempt(() => setUp(get("fen").value)) : edit(true));
get("mover").addEventListener("change", () => place(""));
get("lines").addEventListener("change", () => attempt(show));
get("network").addEventListener("change", () => attempt(show));
get("human").addEventListener("input", () => attempt(() => people(tree.now)));
get("fen").addEventListener("change", event => attempt(() => setUp(event.target.value)));
get("clear").addEventListener("click", () => attempt(() => setUp("")));
get("load").addEventListener("click", () => attempt(() => load(get("pgn").value)));
get("game").addEventListener("change", event => attempt(() => load(get("pgn").value, Number(event.target.value))));
get("setup").addEventListener("toggle", () => get("setup").open && attempt(listStored));
get("open-stored").addEventListener("click", () => attempt(() => openStored(get("stored").value)));
get("delete-stored").addEventListener("click", () => attempt(() => deleteStored(get("stored").value)));
get("save").addEventListener("click", () => attempt(download));
get("pgn-file").addEventListener("change", event => attempt(async () => {
  await load(event.target.files[0]);
}));
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, textarea, select")) return;
  const key = {ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last", f: "flip", F: "flip", s: "search", S: "search"}[event.key];
  if (!key || (key === "search" && panel !== "analyse")) return;
  event.preventDefault();
  get(key).click();
});

const listReviews = startReviews({get, say, attempt});

get("review-this").addEventListener("click", () => attempt(async () => {
  const {id} = await post("review", {pgn: await written(), nodes: Number(get("depth").value), board: identity});
  tree.review = {id, number: 1};
  await save();
  location.href = `/review/${id}/game-1.html`;
}));

attempt(async () => {
  const waiting = ask("GET", "/api/v1/networks"), {review, number, ply, at} = wanted;
  await restore(at);
  toggleSearch(true);
  if (review) await mergeReview(review, Number(number), Number(ply));
  const {networks} = await waiting;
  for (const {name} of networks) get("network").append(new Option(name, name));
});
