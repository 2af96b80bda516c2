// SPDX-License-Identifier: GPL-3.0-or-later
// A chess board: draws a position, and lets a person make one of the legal moves that it is given.
//
//   const board = new Board(element, {bottom: "white", onMove: uci => …, onStep: forwards => …});
//   board.show(fen, {legal: ["e2e4", …], last: "e7e5", arrows: [{from: "e2", to: "e4", color: "#208040"}]});
//   board.flip();                       // board.bottom is "white" or "black", and can be set
//
// Without `legal` the board only shows. Moves are made by drag, by two taps, or by keys while the board has the
// focus: Shift and an arrow move a cursor, Enter or Space chooses, Escape gives up. Castling is made by either gesture,
// to the king's target or onto the rook, and has the notation of `legal`. The wheel and a swipe step through the game.
// The page has the SVG definitions of `pieces()`.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 45;  // of a square: that of the pieces
const NAMES = {p: "pawn", n: "knight", b: "bishop", r: "rook", q: "queen", k: "king"};
const SQUARES = Array.from({length: 64}, (_, index) => "abcdefgh"[index % 8] + (1 + Math.floor(index / 8)));

/** Return the letters of a FEN's pieces by square, such as {e1: "K"}. */
export function lettersOf(fen) {
  const letters = {};
  fen.split(" ")[0].split("/").forEach((row, down) => {
    let file = 0;
    for (const letter of row) {
      if (letter >= "1" && letter <= "8") file += Number(letter);
      else letters["abcdefgh"[file++] + (8 - down)] = letter;
    }
  });
  return letters;
}

/** Return the board part of a FEN with these letters. */
export const boardOf = letters => [8, 7, 6, 5, 4, 3, 2, 1].map(rank =>
  [..."abcdefgh"].map(file => letters[file + rank] ?? "1").join("").replace(/1+/g, ones => ones.length)).join("/");

/** Return the board part of a FEN after legal moves, for previews. */
export function afterMoves(fen, moves) {
  const squares = lettersOf(fen);
  for (const uci of moves) {
    const from = uci.slice(0, 2), to = uci.slice(2, 4), piece = squares[from] ?? "P", other = squares[to];
    const isKing = piece.toLowerCase() === "k", ownRook = other === (piece === "K" ? "R" : "r");
    const [file, target] = [from, to].map(each => each.charCodeAt(0) - 97);
    if (piece.toLowerCase() === "p" && file !== target && !other) delete squares[to[0] + from[1]];  // en passant
    delete squares[from];
    if (isKing && (ownRook || Math.abs(file - target) === 2)) {  // castling, to a king's or a rook's square
      const short = target > file, rank = from[1], rook = ownRook ? to : (short ? "h" : "a") + rank;
      const letter = squares[rook] ?? (piece === "K" ? "R" : "r");
      delete squares[rook];
      squares[(short ? "g" : "c") + rank] = piece;
      squares[(short ? "f" : "d") + rank] = letter;
    } else squares[to] = uci[4] ? (piece === "P" ? uci[4].toUpperCase() : uci[4]) : piece;
  }
  return boardOf(squares);
}

function made(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

export class Board {
  #bottom; #onMove; #onStep; #svg; #layers = {}; #drawn = {}; #fen = ""; #options = {}; #chosen = ""; #cursor = ""; #held = null; #swipe = null; #wheel = 0;

  /** Put a board into an element. onMove: called with a legal move in UCI notation that a person makes. onStep: called
   * with whether to go forwards. */
  constructor(element, {bottom = "white", onMove = () => {}, onStep = () => {}, label = "Chess board"} = {}) {
    this.#bottom = bottom;
    this.#onMove = onMove;
    this.#onStep = onStep;
    this.#svg = made("svg", {viewBox: `0 0 ${8 * SIZE} ${8 * SIZE}`, class: "board", role: "img", "aria-label": label});
    for (const name of ["squares", "marks", "pieces", "arrows", "choices"]) this.#layers[name] = made("g", {}, this.#svg);
    element.replaceChildren(this.#svg);
    for (const kind of ["down", "move", "up", "cancel"])
      this.#svg.addEventListener(`pointer${kind}`, event => this[`_${kind}`](event));
    this.#svg.addEventListener("keydown", event => this.#key(event));
    this.#svg.addEventListener("wheel", event => this.#turned(event), {passive: false});
    this.#squares();
  }

  get fen() { return this.#fen; }
  get bottom() { return this.#bottom; }
  set bottom(side) {
    this.#bottom = side;
    this.#squares();
    for (const [square, {node}] of Object.entries(this.#drawn)) this.#place(node, square);
    this.show(this.#fen, this.#options);
  }
  flip() { this.bottom = this.#bottom === "white" ? "black" : "white"; }

  /** Draw a position. legal: moves that a person may make. last: the move before it. check: square of a king. onSquare: called
   * with a pressed square.
   * Showing the same position again changes marks and arrows, and leaves a piece in the person's hand. */
  show(fen, options = {}) {
    if (fen !== this.#fen) {
      this.#fen = fen;
      this.#chosen = "";
      this._cancel();
      this.#layers.choices.replaceChildren();
      this.#pieces(options);
    }
    this.#options = options;
    const playable = Boolean(options.legal?.length);
    this.#svg.classList.toggle("playable", playable);
    this.#svg.setAttribute("role", playable ? "application" : "img");
    this.#svg.setAttribute("tabindex", playable ? "0" : "-1");
    if (!playable) this.#cursor = "";
    this.#marks();
    this.#arrows(options.arrows ?? []);
  }

  // Draw the pieces of another position.
  #pieces(options) {
    const wanted = {}, free = {};
    for (const [square, letter] of Object.entries(lettersOf(this.#fen)))
      if (NAMES[letter.toLowerCase()]) wanted[square] = `${letter < "a" ? "white" : "black"}-${NAMES[letter.toLowerCase()]}`;
    for (const [square, piece] of Object.entries(this.#drawn)) {
      if (wanted[square] !== piece.kind) { (free[piece.kind] ??= []).push({...piece, square}); delete this.#drawn[square]; }
    }
    const source = options.last?.slice(0, 2), target = options.last?.slice(2, 4);
    for (const [square, kind] of Object.entries(wanted)) {
      if (this.#drawn[square]) continue;
      const same = free[kind] ?? [];  // A piece that moved is moved, so that the move can be seen.
      const at = Math.max(0, same.findIndex(each => each.square === (square === target ? source : square)));
      const [piece] = same.splice(at, 1);
      this.#drawn[square] = {kind, node: piece?.node ?? made("use", {href: `#${kind}`, class: "piece"}, this.#layers.pieces)};
    }
    for (const piece of Object.values(free).flat()) piece.node.remove();
    for (const [square, {node}] of Object.entries(this.#drawn)) this.#place(node, square);
  }

  #corner(square) {
    const file = square.charCodeAt(0) - 97, rank = Number(square[1]) - 1;
    return this.#bottom === "white" ? [file * SIZE, (7 - rank) * SIZE] : [(7 - file) * SIZE, rank * SIZE];
  }

  #place(node, square) {
    const [x, y] = this.#corner(square);
    node.style.transform = `translate(${x}px, ${y}px)`;
  }

  #square(square, name, layer, more = {}) {
    const [x, y] = this.#corner(square);
    return made("rect", {x, y, width: SIZE, height: SIZE, class: name, ...more}, this.#layers[layer]);
  }

  #squares() {
    this.#layers.squares.replaceChildren();
    SQUARES.forEach((square, index) => {
      this.#square(square, (index + Math.floor(index / 8)) % 2 ? "light" : "dark", "squares");
      const [x, y] = this.#corner(square);
      const text = (left, top, letter) => {
        made("text", {x: x + left, y: y + top, class: "coordinate"}, this.#layers.squares).textContent = letter;
      };
      if (x === 0) text(1.5, 8.5, square[1]);
      if (y === 7 * SIZE) text(SIZE - 6.5, SIZE - 2, square[0]);
    });
  }

  #marks() {
    const {last, check, legal = []} = this.#options;
    this.#layers.marks.replaceChildren();
    for (const square of last ? [last.slice(0, 2), last.slice(2, 4)] : []) this.#square(square, "last", "marks");
    if (check) this.#square(check, "check", "marks");
    if (this.#chosen) this.#square(this.#chosen, "chosen", "marks");
    for (const target of new Set(legal.filter(uci => this.#chosen && uci.startsWith(this.#chosen)).map(uci => uci.slice(2, 4)))) {
      const [x, y] = this.#corner(target);
      made("circle", {cx: x + SIZE / 2, cy: y + SIZE / 2, r: this.#drawn[target] ? 19 : 7, class: "target"}, this.#layers.marks);
    }
    if (this.#cursor) this.#square(this.#cursor, "cursor", "marks", {x: this.#corner(this.#cursor)[0] + 1.5, y: this.#corner(this.#cursor)[1] + 1.5, width: SIZE - 3, height: SIZE - 3});
  }

  #arrows(arrows) {
    this.#layers.arrows.replaceChildren();
    for (const {from, to, color} of arrows) {
      const [x1, y1] = this.#corner(from).map(each => each + SIZE / 2), [x2, y2] = this.#corner(to).map(each => each + SIZE / 2);
      const long = Math.hypot(x2 - x1, y2 - y1), [dx, dy] = [(x2 - x1) / long, (y2 - y1) / long];
      made("path", {d: `M${x1 + 8 * dx} ${y1 + 8 * dy}L${x2 - 18 * dx} ${y2 - 18 * dy}`, stroke: color, class: "arrow"}, this.#layers.arrows);
      const [bx, by] = [x2 - 20 * dx, y2 - 20 * dy];
      made("path", {d: `M${x2 - 2 * dx} ${y2 - 2 * dy}L${bx - 10 * dy} ${by + 10 * dx}L${bx + 10 * dy} ${by - 10 * dx}Z`, class: "arrow head", stroke: "none", fill: color}, this.#layers.arrows);
    }
  }

  #at(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.#svg.getScreenCTM().inverse());
    const [file, row] = [Math.floor(point.x / SIZE), Math.floor(point.y / SIZE)];
    const square = file >= 0 && file < 8 && row >= 0 && row < 8
      ? this.#bottom === "white" ? "abcdefgh"[file] + (8 - row) : "abcdefgh"[7 - file] + (row + 1) : "";
    return {point, square};
  }

  #moves(from, to = "") {
    const legal = this.#options.legal ?? [], found = legal.filter(uci => uci.startsWith(from + to));
    return found.length || !to ? found : legal.filter(uci => uci === this.#castling(from, to));
  }

  // The other notation of castling: onto the rook for the king's target, and the reverse.
  #castling(from, to) {
    const king = this.#drawn[from]?.kind, onto = this.#drawn[to]?.kind, rook = king?.replace("king", "rook");
    if (!king?.endsWith("king") || from[1] !== to[1]) return "";
    if (onto === rook) return from + (to > from ? "g" : "c") + to[1];
    const beyond = SQUARES.filter(each => each[1] === to[1] && this.#drawn[each]?.kind === rook && (to > from ? each > from : each < from));
    return "cg".includes(to[0]) && Math.abs(to.charCodeAt(0) - from.charCodeAt(0)) > 1 ? from + (to > from ? beyond.at(-1) : beyond[0]) : "";
  }

  // Choose a square: the piece to move, or the target of the chosen piece.
  #choose(square) {
    const moves = this.#chosen && square ? this.#moves(this.#chosen, square) : [];
    if (moves.length) { this.#play(moves, square); return; }
    this.#chosen = square && square !== this.#chosen && this.#moves(square).length ? square : "";
    this.#marks();
  }

  #play(moves, target) {
    if (moves.length === 1) { this.#chosen = ""; this.#marks(); this.#onMove(moves[0]); return; }
    const [x, y] = this.#corner(target), down = y === 0 ? SIZE : -SIZE;  // One of the promotions is to be chosen.
    const side = this.#drawn[this.#chosen].kind.split("-")[0];
    ["q", "r", "b", "n"].forEach((letter, index) => {
      const uci = moves.find(each => each.endsWith(letter));
      if (!uci) return;
      const choice = made("g", {transform: `translate(${x},${y + index * down})`, role: "button", tabindex: "0", "aria-label": NAMES[letter]}, this.#layers.choices);
      made("rect", {width: SIZE, height: SIZE, class: "choice"}, choice);
      made("use", {href: `#${side}-${NAMES[letter]}`}, choice);
      const take = event => { event.stopPropagation(); this.#layers.choices.replaceChildren(); this.#play([uci], target); };
      choice.addEventListener("pointerdown", take);
      choice.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") take(event); });
      if (!index) choice.focus();
    });
  }

  _down(event) {
    if (this.#held) { this._cancel(); this.#choose(""); return; }  // A second finger: the piece returns.
    this.#swipe = event.pointerType === "touch" ? {x: event.clientX, y: event.clientY} : null;
    if (this.#options.onSquare) this.#options.onSquare(this.#at(event).square);
    if (!this.#options.legal?.length || event.button > 0) return;
    this.#layers.choices.replaceChildren();
    this.#cursor = "";
    const {square} = this.#at(event), again = square === this.#chosen;
    if (!again || !square) this.#choose(square);
    if (this.#chosen === square && square) {
      this.#held = {square, node: this.#drawn[square].node, again, moved: false, x: event.clientX, y: event.clientY, pointer: event.pointerId};
      this.#swipe = null;
      this.#svg.setPointerCapture(event.pointerId);
      event.preventDefault();
      this.#svg.focus({preventScroll: true});
    }
  }

  _move(event) {
    const held = this.#held;
    if (held?.pointer !== event.pointerId || (!held.moved && Math.hypot(event.clientX - held.x, event.clientY - held.y) < 4)) return;
    if (!held.moved) { held.moved = true; held.node.classList.add("held"); this.#layers.pieces.append(held.node); }
    const {point} = this.#at(event);
    held.node.style.transform = `translate(${point.x - SIZE / 2}px, ${point.y - SIZE / 2}px)`;
  }

  _up(event) {
    const held = this.#held, swipe = this.#swipe;
    this.#swipe = null;
    if (swipe) {
      const [dx, dy] = [event.clientX - swipe.x, event.clientY - swipe.y];
      if (Math.abs(dx) > 40 && Math.abs(dx) > 2 * Math.abs(dy)) this.#onStep(dx < 0);
    }
    if (held?.pointer !== event.pointerId) return;
    this._cancel();
    const {square} = this.#at(event);
    if (held.moved && square !== held.square) this.#choose(square);
    else if (!held.moved && held.again) this.#choose("");
  }

  _cancel() {
    if (!this.#held) return;
    const {node, square} = this.#held;
    this.#held = null;
    node.classList.remove("held");
    this.#place(node, square);
  }

  // A mouse's wheel makes large steps, a touch pad many small ones.
  #turned(event) {
    if (event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    if (event.deltaY * this.#wheel < 0) this.#wheel = 0;
    this.#wheel += event.deltaY;
    if (Math.abs(this.#wheel) < 40) return;
    this.#onStep(this.#wheel > 0);
    this.#wheel = 0;
  }

  #key(event) {
    if (!this.#options.legal?.length || event.ctrlKey || event.altKey || event.metaKey) return;
    const step = event.shiftKey && {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
    if (step) {
      const sign = this.#bottom === "white" ? 1 : -1;
      const from = this.#cursor || (this.#bottom === "white" ? "e1" : "e8");
      const within = each => Math.max(0, Math.min(7, each));
      const file = within(from.charCodeAt(0) - 97 + sign * step[0]), rank = within(Number(from[1]) - 1 + sign * step[1]);
      this.#cursor = "abcdefgh"[file] + (rank + 1);
      this.#marks();
      this.#svg.setAttribute("aria-label", `${this.#cursor} ${this.#drawn[this.#cursor]?.kind.replace("-", " ") ?? "empty"}`);
    } else if ((event.key === "Enter" || event.key === " ") && this.#cursor) this.#choose(this.#cursor);
    else if (event.key === "Escape") this.#choose("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
