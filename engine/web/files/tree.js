// SPDX-License-Identifier: GPL-3.0-or-later
// A game with variations, and its list of moves.

export class Tree {
  /** start: {fen, chess960}. */
  constructor(start = {fen: "startpos", chess960: false}) {
    this.start = start;
    this.headers = {};
    this.root = {parent: null, children: [], fen: start.fen, uci: "", san: ""};
    this.now = this.root;
  }

  /** Make a tree of nodes that name their parents by index, -1 for the root. */
  static of({start, headers, comment, nodes}) {
    const tree = new Tree(start), made = [];
    tree.headers = headers;
    tree.root.comment = comment;
    for (const {parent, ...move} of nodes) made.push(tree.add(parent < 0 ? tree.root : made[parent], move));
    return tree;
  }

  /** Return the child of a node by this move, added if it is new. */
  add(node, {uci, san, fen, comment, nags}) {
    let child = node.children.find(each => each.uci === uci);
    if (!child) {
      child = {parent: node, children: [], uci, san, fen, comment, nags};
      node.children.push(child);
    }
    return child;
  }

  path(node = this.now) {
    const found = [];
    for (let each = node; each.parent; each = each.parent) found.unshift(each);
    return found;
  }

  /** The request's fields of a node's position. */
  position(node = this.now) {
    return {fen: this.start.fen, chess960: this.start.chess960, moves: this.path(node).map(each => each.uci)};
  }

  end(node = this.root) {
    while (node.children.length) node = node.children[0];
    return node;
  }

  /** Delete a node with what follows. */
  remove(node) {
    const siblings = node.parent.children;
    siblings.splice(siblings.indexOf(node), 1);
    if (this.path().includes(node)) this.now = node.parent;
  }

  /** The nodes as the API writes them. all: with SAN and FEN. */
  nodes(all = false) {
    const found = [], places = new Map([[this.root, -1]]);
    const visit = node => node.children.forEach(child => {
      places.set(child, found.length);
      found.push({parent: places.get(node), uci: child.uci, ...(all && {san: child.san, fen: child.fen}), ...(child.comment && {comment: child.comment}), ...(child.nags && {nags: child.nags})});
      visit(child);
    });
    visit(this.root);
    return found;
  }
}

const SIGNS = {1: "!", 2: "?", 3: "!!", 4: "??", 5: "!?", 6: "?!"};

/** Draw the moves of a tree into an element. go: called with the node of a pressed move. */
export function drawMoves(element, tree, go) {
  const white = tree.root.side !== "black", first = tree.root.number ?? 1;
  const number = node => {
    const ply = tree.path(node).length - 1 + (white ? 0 : 1);
    return [first + Math.floor(ply / 2), ply % 2 === 0];
  };
  const line = (parent, place, fresh) => {
    let node = parent, numbered = fresh;
    while (node.children.length) {
      const [main, ...others] = node.children, [count, isWhite] = number(main);
      if (isWhite || numbered) place.append(` ${count}${isWhite ? "." : "…"} `);
      place.append(button(main), " ");
      numbered = comment(main, place);
      for (const other of others) {
        const variation = document.createElement("span");
        variation.className = "variation";
        place.append(variation);
        const [at, whites] = number(other);
        variation.append(`( ${at}${whites ? "." : "…"} `, button(other), " ");
        comment(other, variation);
        line(other, variation, false);
        variation.append(" )");
        numbered = true;
      }
      node = main;
    }
  };
  const button = node => {
    const made = document.createElement("button");
    made.textContent = node.san + (node.nags ?? []).map(nag => SIGNS[nag] ?? "").join("");
    if (node === tree.now) { made.className = "now"; made.setAttribute("aria-current", "step"); }
    made.addEventListener("click", () => go(node));
    return made;
  };
  const comment = (node, place) => {
    const text = (node.comment ?? "").replace(/\[%[^\]]*\]/g, "").trim();  // Clocks and evaluations.
    if (!text) return false;
    const said = document.createElement("span");
    said.className = "comment";
    said.textContent = ` ${text} `;
    place.append(said);
    return true;
  };
  element.replaceChildren();
  line(tree.root, element, true);
  element.querySelector(".now")?.scrollIntoView({block: "nearest"});
}

/** Return the board part of a FEN after legal moves, for previews. */
export function afterMoves(fen, moves) {
  const squares = {};
  fen.split(" ")[0].split("/").forEach((row, down) => {
    let file = 0;
    for (const letter of row) {
      if (letter >= "1" && letter <= "8") file += Number(letter);
      else squares["abcdefgh"[file++] + (8 - down)] = letter;
    }
  });
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
  return [8, 7, 6, 5, 4, 3, 2, 1].map(rank =>
    [..."abcdefgh"].map(file => squares[file + rank] ?? "1").join("").replace(/1+/g, ones => ones.length)).join("/");
}
