// SPDX-License-Identifier: GPL-3.0-or-later
// The lines of an analysis, and what people play.

import { made } from "./dom.js";

const percent = share => `${Math.round(100 * share)} %`;

/** The score of a line for people, from White's view. */
function score({mate, score: centipawns}) {
  if (mate !== undefined) return `#${mate}`;
  return `${centipawns > 0 ? "+" : ""}${(centipawns / 100).toFixed(2)}`;
}

/** Show the best lines of a node. preview: called with a node and moves, or without moves at the end. play: called
 * with the line whose first move is chosen. Lines are reused, so that a pointer stays where it is. */
export function showLines(list, node, preview, play) {
  const lines = node.lines ?? [];
  while (list.children.length > lines.length) list.lastChild.remove();
  lines.forEach((line, index) => {
    const item = list.children[index] ?? list.appendChild(made("li", {}, made("b"), made("div")));
    const words = line.san.join(" ");
    if (item.words === words && item.node === node) {
      item.firstChild.textContent = score(line);
      return;
    }
    Object.assign(item, {words, node});
    const [win, draw, loss] = line.wdl;
    item.firstChild.textContent = score(line);
    item.firstChild.title = `White wins ${percent(win)}, draw ${percent(draw)}, Black wins ${percent(loss)}`;
    item.lastChild.replaceChildren(...line.san.map((san, ply) => {
      const button = made("button", {tabIndex: ply ? -1 : 0}, san);
      const moves = line.pv.slice(0, ply + 1);
      for (const begin of ["pointerenter", "focus"]) button.addEventListener(begin, () => preview(node, moves));
      for (const end of ["pointerleave", "blur"]) button.addEventListener(end, () => preview(node, null));
      button.addEventListener("click", () => play(line));
      return button;
    }));
  });
}

/** Show what people of a rating play, and the probabilities of the engine's network, if known: by move. play: called
 * with a chosen move. Buttons are reused, so that a pointer stays where it is. */
export function showPeople(element, {network, elo, moves}, policy, play) {
  const shown = moves.slice(0, 6);
  element.title = `${network} ${elo}; in brackets the engine's network`;
  while (element.children.length > shown.length) element.lastChild.remove();
  shown.forEach(({move, san, share}, index) => {
    const button = element.children[index] ?? element.appendChild(made("button"));
    const own = policy?.[move] === undefined ? "" : ` (${percent(policy[move])})`;
    button.textContent = `${san} ${percent(share)}${own}`;
    button.onclick = () => play(move);
  });
}
