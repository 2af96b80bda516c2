// SPDX-License-Identifier: GPL-3.0-or-later
// A game against a level of the engine. The server finds the engine's moves and judges the game; the clock runs here.

import { post } from "./api.js";
import { Tree } from "./tree.js";

const other = side => side === "white" ? "black" : "white";
const shown = ms => `${Math.floor(ms / 60000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, "0")}`;

export class Play {
  running = false; arrows = [];
  #page; #person = "white"; #elo = 1500; #clock = null; #thinking = 0; #turn = "white";

  /** page: {get, board, show, fail, game, begin, move}. game: returns the tree. begin: takes a new one. move: plays
   * a move of the engine. */
  constructor(page) {
    this.#page = page;
    const {get} = page, click = (id, work) => get(id).addEventListener("click", () => work.call(this).catch(page.fail));
    get("elo").addEventListener("input", event => { get("elo-text").textContent = event.target.value; });
    get("new-game").addEventListener("submit", event => { event.preventDefault(); this.#begin().catch(page.fail); });
    click("take-back", this.#takeBack);
    click("hint", this.#hint);
    click("resign", async () => this.#end(this.#person === "white" ? "0-1" : "1-0", "resignation"));
    click("claim", async () => this.#end("1/2-1/2", this.#page.game().now.position.claim));
    setInterval(() => this.#tick(), 200);
  }

  /** Whether a person may not move in a position. */
  blocks(node) { return this.running && (node.position.turn !== this.#person || node !== this.#page.game().end()); }

  /** Another position is shown. */
  changed(node) {
    const {get} = this.#page, own = this.running && node.position.turn === this.#person;
    get("take-back").disabled = !this.running || this.#page.game().path().length < 2;
    get("hint").disabled = !own;
    get("resign").disabled = !this.running;
    get("claim").hidden = !own || !node.position.claim;
  }

  names() {
    const {get, board} = this.#page, names = {[this.#person]: "You", [other(this.#person)]: `Wavefront ${this.#elo}`};
    for (const [id, side] of [["below", board.bottom], ["above", other(board.bottom)]]) {
      const time = document.createElement("b");
      time.textContent = this.#clock ? shown(this.#clock[side]) : "";
      get(id).replaceChildren(this.running ? names[side] : "", time);
    }
  }

  /** End the game without a result. */
  stop() {
    this.running = false;
    this.#thinking++;
    this.#clock = null;
    this.arrows = [];
    this.#page.get("verdict").textContent = "";
    this.names();
  }

  /** The person has moved: let the engine move. */
  async answered(node) {
    if (!this.running) return;
    this.arrows = [];
    this.#press();
    if (this.#ended(node.position)) return;
    const thinking = ++this.#thinking;
    const {move, san, position} = await post("move", {...this.#page.game().position(node), elo: this.#elo});
    if (thinking !== this.#thinking || !this.running) return;  // The game was left, or a move taken back.
    this.#press();
    await this.#page.move({uci: move, san, fen: position.fen});
    this.#ended(this.#page.game().now.position);
  }

  async #begin() {
    const {get, game, begin, board, show} = this.#page, before = game();
    this.stop();
    this.#elo = Number(get("elo").value);
    this.#person = get("side-of").value || (Math.random() < 0.5 ? "white" : "black");
    const start = get("from-here").checked ? {fen: before.now.fen, chess960: before.start.chess960} : {fen: "startpos", chess960: get("chess960").checked};
    const tree = new Tree(start), names = {[this.#person]: "Person", [other(this.#person)]: `Wavefront, Elo ${this.#elo}`};
    tree.headers = {Event: "Game in a browser", Date: new Date().toISOString().slice(0, 10).replaceAll("-", "."), White: names.white, Black: names.black, Result: "*"};
    begin(tree);
    const [seconds, increment] = get("clock").value.split(" ").map(Number);
    this.#clock = seconds ? {white: 1000 * seconds, black: 1000 * seconds, increment: 1000 * increment, at: 0} : null;
    this.running = true;
    board.bottom = this.#person;
    await show();
    this.#turn = tree.root.position.turn;
    this.names();
    if (this.#turn !== this.#person) {
      this.#turn = other(this.#turn);  // `answered` gives it back.
      await this.answered(tree.root);
    }
  }

  /** Press the clock. */
  #press() {
    const clock = this.#clock;
    if (clock?.at) clock[this.#turn] += clock.increment;
    this.#turn = other(this.#turn);
    if (clock) clock.at = performance.now();
  }

  #tick() {
    const clock = this.#clock;
    if (!this.running || !clock?.at) return;
    const now = performance.now();
    clock[this.#turn] = Math.max(0, clock[this.#turn] - (now - clock.at));
    clock.at = now;
    this.names();
    if (!clock[this.#turn]) this.#end(this.#turn === "white" ? "0-1" : "1-0", "time");
  }

  #ended(position) {
    if (position.end) this.#end(position.end.result, position.end.reason);
    return Boolean(position.end);
  }

  #end(result, reason) {
    const {get, game, show} = this.#page;
    this.running = false;
    this.#thinking++;
    if (this.#clock) this.#clock.at = 0;
    game().headers.Result = result;
    game().end().comment = reason;
    get("verdict").textContent = `${result}, by ${reason}.`;
    return show();
  }

  async #takeBack() {
    const tree = this.#page.game(), path = tree.path(tree.end());
    this.#thinking++;
    const mine = path.at(-1)?.parent.position?.turn === this.#person ? 1 : 2;
    const node = path.at(-mine);
    if (!node) return;
    tree.now = node.parent;
    tree.remove(node);
    this.#turn = this.#person;
    await this.#page.show();
  }

  async #hint() {
    const tree = this.#page.game(), node = tree.now, {move, san} = await post("move", {...tree.position(), nodes: 200});
    if (tree.now !== node) return;
    this.arrows = [{from: move.slice(0, 2), to: move.slice(2, 4), color: "#208040"}];
    this.#page.get("verdict").textContent = `Hint: ${san}`;
    await this.#page.show();
  }
}
