// SPDX-License-Identifier: GPL-3.0-or-later
// The page of one reviewed game. Its script is this file after board.js, its data a JSON element (pages.py).

const DATA = JSON.parse(document.getElementById("data").textContent);
const SIGNS = {"only move": "!", inaccuracy: "?!", mistake: "?", blunder: "??", unclear: "∞"};
const GLYPHS = {1: "!", 2: "?", 3: "!!", 4: "??", 5: "!?", 6: "?!", 7: "□", 10: "=", 13: "∞", 14: "⩲", 15: "⩱", 16: "±", 17: "∓", 18: "+−", 19: "−+"};
const GOOD = "#208040", BAD = "#d02020";
const get = id => document.getElementById(id);
const sides = ["white", "black"];

function element(name, attributes = {}, ...content) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
}

// Return the FEN after a move. Only the pieces are kept right: the moves are known to be legal.
function after(fen, uci) {
  const pieces = piecesOf(fen), [from, to] = [uci.slice(0, 2), uci.slice(2, 4)];
  const piece = pieces[from], [side, kind] = piece.split("-"), rank = from[1];
  const castles = kind === "king" && (pieces[to] === `${side}-rook` || Math.abs(from.charCodeAt(0) - to.charCodeAt(0)) > 1);
  if (kind === "pawn" && from[0] !== to[0] && !pieces[to]) delete pieces[to[0] + rank];
  delete pieces[from];
  if (castles) {
    const short = to > from;
    const rook = pieces[to] === `${side}-rook` ? to : (short ? "h" : "a") + rank;
    delete pieces[rook];
    pieces[(short ? "g" : "c") + rank] = piece;
    pieces[(short ? "f" : "d") + rank] = `${side}-rook`;
  } else {
    const promoted = {q: "queen", r: "rook", b: "bishop", n: "knight"}[uci[4]];
    pieces[to] = promoted ? `${side}-${promoted}` : piece;
  }
  const letter = each => {
    const [color, name] = each.split("-"), short = name === "knight" ? "n" : name[0];
    return color === "white" ? short.toUpperCase() : short;
  };
  return "87654321".split("").map(row => "abcdefgh".split("").map(file => pieces[file + row] ? letter(pieces[file + row]) : "1").join("")).join("/");
}

const fens = [DATA.fen];
for (const move of DATA.moves) fens.push(after(fens[fens.length - 1], move.u));

let ply = 0;       // moves made in the game
let line = null;   // {fens, moves, at, chips} of a line that is looked at
let trying = null; // the moves that are to be bettered
const board = new Board(get("board"), {bottom: DATA.bottom, onMove: answer});

const white = index => DATA.white === (index % 2 === 0);
const sign = move => SIGNS[move.m] ?? "";
const number = index => `${DATA.number + Math.floor((index + (DATA.white ? 0 : 1)) / 2)}${white(index) ? "." : "…"}`;
const percent = value => `${Math.round(value / 10)} %`;
const pawns = value => `${value > 0 ? "+" : value < 0 ? "−" : ""}${(Math.abs(value) / 100).toFixed(2)}`;
const clock = seconds => `${seconds >= 3600 ? `${Math.floor(seconds / 3600)}:` : ""}${String(Math.floor(seconds / 60) % 60).padStart(seconds >= 3600 ? 2 : 1, "0")}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const arrow = (uci, color) => ({from: uci.slice(0, 2), to: uci.slice(2, 4), color});

function show(to, {keep = false} = {}) {
  ply = Math.max(0, Math.min(DATA.moves.length, to));
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
  const ucis = u.split(" "), all = [fens[from]];
  for (const uci of ucis) all.push(after(all[all.length - 1], uci));
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
function start() {
  trying = DATA.moves.map((move, index) => ({move, index})).filter(each => each.move.q && sides[white(each.index) ? 0 : 1] === board.bottom);
  get("try").textContent = "back to the game";
  ask();
}

function ask() {
  const found = trying[0];
  if (!found) { stop("No more mistakes of this side."); return; }
  board.show(fens[found.index], {legal: found.move.q.split(" "), last: DATA.moves[found.index - 1]?.u});
  const skip = element("button", {type: "button"}, "show the answer");
  skip.addEventListener("click", () => answer(""));
  get("detail").replaceChildren(element("p", {}, element("b", {}, `${number(found.index)} ${white(found.index) ? "White" : "Black"} to move: `), `${found.move.s} was a ${found.move.m}. Find a better move.`), skip);
}

function answer(uci) {
  if (!trying) return;
  const {move, index} = trying[0], right = uci === move.b;
  if (uci && !right) {
    get("detail").querySelector("p").append(uci === move.u ? " That was played." : " Not that one; try again.");
    board.show(fens[index], {legal: move.q.split(" "), last: DATA.moves[index - 1]?.u});
    return;
  }
  trying.shift();
  ply = index + 1;
  board.show(after(fens[index], move.b), {last: move.b});
  detail();
  const next = element("button", {type: "button"}, trying.length ? "next" : "done");
  next.addEventListener("click", ask);
  get("detail").prepend(element("p", {}, element("b", {}, right ? "Right. " : "The best move. "), next));
}

function stop(text) {
  trying = null;
  get("try").textContent = "try your mistakes";
  show(ply);
  if (text) get("detail").prepend(element("p", {}, text));
}

function course() {
  const last = Math.max(1, DATA.moves.length), place = index => [1000 * index / last, 200 - DATA.expected[index] / 5];
  const points = DATA.expected.map((_, index) => place(index).map(each => each.toFixed(1)).join()).join(" ");
  const dots = DATA.moves.map((move, index) => !move.m || move.m === "unclear" ? "" : `<circle class="${move.m.split(" ")[0]}" cx="${place(index + 1)[0]}" cy="${place(index + 1)[1]}" r="${index === DATA.lost ? 9 : 6}"/>`).join("");
  get("course").innerHTML = `<rect class="ground" width="1000" height="200"/><polygon points="0,200 ${points} 1000,200"/><line x1="0" y1="100" x2="1000" y2="100"/><rect id="now" width="3" height="200"/>${dots}`;
  get("course").addEventListener("click", event => {
    const box = get("course").getBoundingClientRect();
    if (!trying) show(Math.round(last * (event.clientX - box.left) / box.width));
  });
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

for (const [id, act] of Object.entries({first: () => trying || show(0), back: () => step(-1), next: () => step(1), last: () => trying || show(DATA.moves.length), flip: () => board.flip(), try: () => trying ? stop() : start()}))
  get(id).addEventListener("click", act);
document.addEventListener("keydown", keys);
let touch = null;
get("board").addEventListener("touchstart", event => { touch = trying || event.touches.length > 1 ? null : event.touches[0]; }, {passive: true});
get("board").addEventListener("touchend", event => {
  if (!touch) return;
  const [x, y] = [event.changedTouches[0].clientX - touch.clientX, event.changedTouches[0].clientY - touch.clientY];
  if (Math.abs(x) > 40 && Math.abs(x) > 2 * Math.abs(y)) step(x < 0 ? 1 : -1);
});
const wanted = () => Number(/^#m(\d+)$/.exec(location.hash)?.[1] ?? 0);
addEventListener("hashchange", () => show(wanted(), {keep: true}));
course();
list();
show(wanted(), {keep: true});
