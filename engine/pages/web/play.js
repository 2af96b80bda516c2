// SPDX-License-Identifier: GPL-3.0-or-later
// A game against a level of the engine. The server finds the engine's moves and judges the game; the clock runs here.
//
// The game is a line of the page's tree, from its root to `tip`. The page may show any other node: answers go to the tip.

import { Refusal, post, server } from "./api.js";
import { made } from "./dom.js";
import { Tree } from "./tree.js";

const other = side => side === "white" ? "black" : "white";
const shown = ms => `${Math.floor(ms / 60000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, "0")}`;
const won = side => side === "white" ? "1-0" : "0-1";

const WARNING_NODES = 200, WARNING_LOSS = 0.15;

export class Play {
  running = false; arrows = []; tip = null;
  #warned = () => {}; #page; #person = "white"; #elo = 1500; #clock = null; #thinking = 0; #hinted = null;

  /** page: {get, board, show, go, known, fail, game, begin}. game: returns the tree. begin: takes a new one. known: asks
   * for a node's position. */
  constructor(page) {
    this.#page = page;
    const {get} = page, click = (id, work) => get(id).addEventListener("click", () => work.call(this).catch(page.fail));
    get("elo").addEventListener("input", event => { get("elo-text").textContent = event.target.value; });
    get("new-game").addEventListener("submit", event => { event.preventDefault(); this.#begin().catch(page.fail); });
    click("take-back", this.#takeBack);
    click("hint", this.#hint);
    click("resign", async () => this.#end(won(other(this.#person)), "resignation"));
    click("take-it-back", async () => this.#warned(true));
    click("play-it", async () => this.#warned(false));
    click("claim", async () => this.#end("1/2-1/2", this.tip.position.claim));
    setInterval(() => this.#tick(), 200);
  }

  get #turn() { return this.tip.position.turn; }

  /** Whether a person may not move in a position. */
  blocks(node) { return this.running && (node !== this.tip || node.position.turn !== this.#person); }

  /** Another position is shown, or the game has changed. */
  changed(node) {
    const {get} = this.#page, own = this.running && !this.blocks(node);
    get("take-back").disabled = !this.running || !this.#backTo();
    get("hint").disabled = !own;
    get("resign").disabled = !this.running;
    get("claim").hidden = !own || !node.position.claim;
    if (this.#hinted && this.#hinted !== node) this.#forgetHint();
  }

  names() {
    const {get, board, game} = this.#page, {headers} = game();
    for (const [id, side] of [["below", board.bottom], ["above", other(board.bottom)]]) {
      const name = side === "white" ? "White" : "Black", time = made("b", {}, this.#clock ? shown(this.#clock[side]) : "");
      const known = [headers[name] === "?" ? "" : headers[name], headers[`${name}Elo`]].filter(Boolean).join(", ");
      get(id).replaceChildren(this.running && side === this.#person ? "You" : known, time);
    }
  }

  /** Leave the game as it is. */
  stop() {
    this.running = false;
    this.tip = null;
    this.#thinking++;
    this.#clock = null;
    this.#warned(true);
    this.#forgetHint();
    this.#page.get("verdict").textContent = "";
  }

  /** What of the game is to be kept beside its tree; null without one. */
  state() {
    const {game} = this.#page;
    return this.tip && {person: this.#person, elo: this.#elo, running: this.running, clock: this.#clock && {...this.#clock, at: 0},
                        tip: game().path(this.tip).map(node => node.uci), verdict: this.#page.get("verdict").textContent};
  }

  /** Go on with a game whose tree is the page's. */
  async resume({person, elo, running, clock, tip, verdict}) {
    const {get, board, game, known} = this.#page;
    [this.#person, this.#elo, this.#clock, this.running] = [person, elo, clock, running];
    this.tip = tip.reduce((node, uci) => node?.children.find(each => each.uci === uci), game().root) ?? game().end();
    get("verdict").textContent = verdict;
    board.bottom = person;
    await known(this.tip);
    if (this.#clock && this.tip.parent) this.#clock.at = performance.now();  // The first move starts it.
    if (this.running && !this.#ended() && this.#turn !== person) await this.#answer();
  }

  /** The person has moved: let the engine move. */
  async answered(node) {
    if (!this.running || node.parent !== this.tip) return;
    if (this.#page.get("warn").checked && await this.#isTakenBack(node)) return;
    this.#press();
    this.tip = node;
    this.#forgetHint();
    await this.#page.known(node);
    if (!this.#ended()) await this.#answer();
  }

  /** Warn of a move that loses much. Return whether it is taken back, or the game was left. */
  async #isTakenBack(node) {
    const {get, game, show} = this.#page, tree = game(), before = this.tip, sign = this.#person === "white" ? 1 : -1, left = () => !this.running || this.tip !== before;
    const queries = [before, node].map(each => ({...tree.position(each), nodes: WARNING_NODES, point_of_view: "white"}));
    const {answers} = await post("analyse", {queries});
    if (left()) return true;
    const [one, other] = ["1", "2"].map(id => answers.find(each => each.id === id)?.root?.wdl).map(wdl => wdl && wdl[0] + wdl[1] / 2);
    if (one === undefined || other === undefined || sign * (one - other) < WARNING_LOSS) return false;
    get("warning").firstChild.textContent = `${node.san} loses ${Math.round(100 * sign * (one - other))} % of the expected score.`;
    get("warning").hidden = false;
    const back = await new Promise(done => { this.#warned = done; });
    get("warning").hidden = true;
    if (!back || left()) return back;
    tree.now = before;
    tree.remove(node);
    await show();
    return true;
  }

  async #answer() {
    const {game, go, show, known} = this.#page, tree = game(), before = this.tip, thinking = ++this.#thinking;
    const {move, san, position} = await post("move", {...tree.position(before), elo: this.#elo});
    if (thinking !== this.#thinking || !this.running) return;  // The game was left, or a move taken back.
    this.#press();
    this.tip = tree.add(before, {uci: move, san, fen: position.fen});
    await known(this.tip);
    if (tree.now === before) await go(this.tip);
    else await show();
    this.#ended();
  }

  async #begin() {
    const {get, game, begin, board, show, known} = this.#page, before = game();
    this.stop();
    this.#elo = Number(get("elo").value);
    this.#person = get("side-of").value || (Math.random() < 0.5 ? "white" : "black");
    const chess960 = get("chess960").checked, here = get("from-here").checked;
    const fen = here ? before.now.fen : chess960 ? chess960Start(get("number").value) : "startpos";
    const tree = new Tree({fen, chess960: here ? before.start.chess960 : chess960});
    const names = {[this.#person]: "Person", [other(this.#person)]: `Wavefront, Elo ${this.#elo}`};
    tree.headers = {Event: "Game in a browser", Date: new Date().toISOString().slice(0, 10).replaceAll("-", "."), White: names.white, Black: names.black, Result: "*"};
    const {end} = await known(tree.root, tree);  // Throws for a position that is not one.
    if (end) throw new Refusal(`The game would be over at once: ${end.reason}.`);
    begin(tree);
    const [seconds, increment] = get("clock").value.split(" ").map(Number);
    this.#clock = seconds ? {white: 1000 * seconds, black: 1000 * seconds, increment: 1000 * increment, at: 0} : null;
    this.tip = tree.root;
    this.running = true;
    board.bottom = this.#person;
    await show();
    if (!this.#ended() && this.#turn !== this.#person) await this.#answer();
  }

  /** Press the clock of the side to move. */
  #press() {
    const clock = this.#clock;
    if (clock?.at) clock[this.#turn] += clock.increment;
    if (clock) clock.at = performance.now();
  }

  // Nobody's time runs while the server is away.
  #tick() {
    const clock = this.#clock;
    if (!this.running || !clock?.at || !this.tip.position) return;
    const now = performance.now(), side = this.#turn;
    if (!server.away) clock[side] = Math.max(0, clock[side] - (now - clock.at));
    clock.at = now;
    this.names();
    if (!clock[side]) this.#end(this.tip.position.flag, "time");
  }

  #ended() {
    const {end} = this.tip.position;
    if (end && this.running) this.#end(end.result, end.reason);
    return Boolean(end);
  }

  #end(result, reason) {
    const {get, game, show} = this.#page;
    this.running = false;
    this.#thinking++;
    if (this.#clock) this.#clock.at = 0;
    game().headers.Result = result;
    this.tip.comment = reason;
    this.#warned(true);
    get("verdict").textContent = `${result}, by ${reason}.`;
    return show();
  }

  /** The first move that a person takes back, or none. */
  #backTo() {
    const path = this.#page.game().path(this.tip);
    return path.at(this.#turn === this.#person ? -2 : -1);
  }

  async #takeBack() {
    const tree = this.#page.game(), node = this.#backTo();
    if (!node) return;
    this.#thinking++;
    this.#forgetHint();
    this.tip = node.parent;
    tree.now = node.parent;
    tree.remove(node);
    await this.#page.show();
  }

  async #hint() {
    const tree = this.#page.game(), node = tree.now, {move, san} = await post("move", {...tree.position(), nodes: 200});
    if (tree.now !== node || !this.running) return;
    this.arrows = [{from: move.slice(0, 2), to: move.slice(2, 4), color: "#208040"}];
    this.#hinted = node;
    this.#page.get("verdict").textContent = `Hint: ${san}`;
    await this.#page.show();
  }

  #forgetHint() {
    this.arrows = [];
    if (this.#hinted) this.#page.get("verdict").textContent = "";
    this.#hinted = null;
  }
}

/** The FEN of a start of Chess960 by its number, or of any. The numbers are Scharnagl's
 * (https://en.wikipedia.org/wiki/Fischer_random_chess_numbering_scheme). */
function chess960Start(text) {
  let number = text === "" ? Math.floor(960 * Math.random()) : Math.max(0, Math.min(959, Math.floor(Number(text) || 0)));
  const row = Array(8).fill(""), divided = by => { const rest = number % by; number = Math.floor(number / by); return rest; };
  const put = (piece, free) => { row[row.map((each, file) => each ? -1 : file).filter(file => file >= 0)[free]] = piece; };
  row[2 * divided(4) + 1] = "b";
  row[2 * divided(4)] = "b";
  put("q", divided(6));
  const knights = [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4], [2, 3], [2, 4], [3, 4]][number];
  put("n", knights[0]);
  put("n", knights[1] - 1);
  for (const piece of ["r", "k", "r"]) put(piece, 0);
  const pieces = row.join("");
  return `${pieces}/pppppppp/8/8/8/8/PPPPPPPP/${pieces.toUpperCase()} w KQkq - 0 1`;
}
