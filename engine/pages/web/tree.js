// SPDX-License-Identifier: GPL-3.0-or-later
// A game with variations, and its list of moves.

import { made } from "./dom.js";

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

  /** Add what a game says of moves that this game has, and its other moves. */
  merge({root, headers}) {
    Object.assign(this.headers, headers);
    for (const waiting = [[root, this.root]]; waiting.length;) {
      const [from, to] = waiting.pop();
      Object.assign(to, from.comment && {comment: from.comment}, from.nags && {nags: from.nags});
      for (const child of from.children) waiting.push([child, this.add(to, child)]);
    }
  }

  /** Make the variation of a node the first one. */
  promote(node) {
    for (let each = node; each.parent; each = each.parent) {
      const siblings = each.parent.children, at = siblings.indexOf(each);
      if (at) { siblings.unshift(...siblings.splice(at, 1)); return; }
    }
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

/** Draw the moves of a tree into an element: the game in two columns, comments and variations between its rows. go: called
 * with the node of a pressed move. */
export function drawMoves(element, tree, go) {
  const white = tree.root.side !== "black", first = tree.root.number ?? 1;
  const number = node => {
    const ply = tree.path(node).length - 1 + (white ? 0 : 1);
    return [first + Math.floor(ply / 2), ply % 2 === 0];
  };
  const button = node => {
    const pressed = made("button", {className: node === tree.now ? "now" : ""}, node.san + (node.nags ?? []).map(nag => SIGNS[nag] ?? "").join(""));
    if (node === tree.now) pressed.setAttribute("aria-current", "step");
    pressed.addEventListener("click", () => go(node));
    return pressed;
  };
  const comment = node => {
    const text = (node.comment ?? "").replace(/\[%[^\]]*\]/g, "").trim();  // Clocks and evaluations.
    return text ? [made("span", {className: "comment"}, ` ${text} `)] : [];
  };
  const label = (node, always) => {
    const [count, isWhite] = number(node);
    return isWhite || always ? [`${count}${isWhite ? "." : "…"} `] : [];
  };
  const variation = node => {
    const place = made("span", {className: "variation"}, "( ", ...label(node, true), button(node), " ", ...comment(node));
    for (let fresh = comment(node).length > 0; node.children.length; node = node.children[0]) {
      const [main, ...others] = node.children, notes = [...comment(main), ...others.map(variation)];
      place.append(...label(main, fresh), button(main), " ", ...notes);
      fresh = notes.length > 0;
    }
    place.append(" )");
    return place;
  };
  element.replaceChildren(...comment(tree.root));
  for (let node = tree.root, fresh = true; node.children.length; node = node.children[0]) {
    const [main, ...others] = node.children, [count, isWhite] = number(main), notes = [...comment(main), ...others.map(variation)];
    if (isWhite || fresh) element.append(...[`${count}.`, ...(isWhite ? [] : ["…"])].map(text => made("span", {className: "quiet"}, text)));
    element.append(button(main), ...notes);
    fresh = notes.length > 0;
  }
  element.querySelector(".now")?.scrollIntoView({block: "nearest"});
}
