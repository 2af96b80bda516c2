// SPDX-License-Identifier: GPL-3.0-or-later
// The API: requests, and the socket of the analysis. A token comes with the link (#token=…), or is asked for once.

const KEY = "wavefront-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

export const token = () => sessionStorage.getItem(KEY) ?? "";

/** Send a request and return the answer's JSON. Throws an Error with the server's reason. */
export async function ask(method, path, body) {
  const headers = {"Content-Type": "application/json"};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let reply;
  try {
    reply = await fetch(path, {method, headers, body: body && JSON.stringify(body)});
  } catch {
    throw new Error("The server does not answer.");
  }
  if ((reply.status === 401 || reply.status === 403) && askForToken()) return ask(method, path, body);
  const text = await reply.text();
  const answer = text ? JSON.parse(text) : {};
  if (!reply.ok) throw new Error(answer.error ?? `status ${reply.status}`);
  return answer;
}

export const post = (name, body) => ask("POST", `/api/v1/${name}`, body);

function askForToken() {
  const said = prompt("This server needs a token:");
  if (said) sessionStorage.setItem(KEY, said.trim());
  return Boolean(said);
}

/** The analysis of one position at a time, over a WebSocket that reconnects. */
export class Analysis {
  #socket = null; #number = 0; #running = ""; #wanted = null; #onAnswer; #pause = 500;

  /** onAnswer: called with each answer to the newest query. onState: with whether the server can be reached. */
  constructor(onAnswer, onState) {
    this.#onAnswer = onAnswer;
    this.onState = onState;
    this.#connect();
  }

  /** Analyse another position, or none. */
  show(query) {
    this.#wanted = query;
    if (this.#running) this.#send({id: "stop", action: "terminate", terminate_id: this.#running});
    else this.#next();
  }

  #connect() {
    const names = ["wavefront-analysis", ...(token() ? [`wavefront-token.${token()}`] : [])];
    const socket = this.#socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/analysis`, names);
    socket.addEventListener("open", () => { this.#pause = 500; this.onState(true); this.#running = ""; this.#next(); });
    socket.addEventListener("close", () => {
      this.#running = "";
      this.onState(false);
      setTimeout(() => this.#connect(), this.#pause);
      this.#pause = Math.min(30000, 2 * this.#pause);
    });
    socket.addEventListener("message", event => this.#hear(JSON.parse(event.data)));
  }

  #send(message) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  // The tree is kept from one position to the next, so a search begins when the last one has ended.
  #next() {
    if (!this.#wanted || this.#socket.readyState !== WebSocket.OPEN) return;
    this.#running = String(++this.#number);
    this.#send({id: this.#running, infinite: true, keep_tree: true, report_every: 0.25, pv_length: 10, include_san: true, include_policy: true,
                point_of_view: "white", ...this.#wanted.query});
    this.#current = this.#wanted;
    this.#wanted = null;
  }
  #current = null;

  #hear(answer) {
    if (answer.id !== this.#running || answer.warning) return;
    if (!this.#wanted) this.#onAnswer(answer, this.#current.node);
    if (!answer.during_search) { this.#running = ""; this.#next(); }
  }
}
