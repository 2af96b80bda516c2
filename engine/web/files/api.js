// SPDX-License-Identifier: GPL-3.0-or-later
// The API: requests, and the socket of the analysis. A token comes with the link (#token=…), or is asked for once.

const KEY = "wavefront-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

export const token = () => sessionStorage.getItem(KEY) ?? "";

/** What the server said to a request that it refuses. */
export class Refusal extends Error {}

/** Why requests wait; empty while the server answers. hear: called with each change. */
export const server = {
  away: "", hear: () => {},
  say(text) { if (text !== this.away) { this.away = text; this.hear(text); } },
};

const wait = ms => new Promise(done => setTimeout(done, ms));

/** Send a request and return the answer's JSON. Repeats it while the server is busy, restarts or is out of reach.
 * Throws a Refusal. */
export async function ask(method, path, body) {
  for (let pause = 500; ; pause = Math.min(10000, 2 * pause)) {
    const headers = {"Content-Type": "application/json"};
    if (token()) headers.Authorization = `Bearer ${token()}`;
    const reply = await fetch(path, {method, headers, body: body && JSON.stringify(body)}).catch(() => null);
    const text = await reply?.text().catch(() => null);
    if ((reply?.status === 401 || reply?.status === 403) && askForToken()) continue;
    if (typeof text !== "string" || reply.status === 429 || reply.status === 503) {
      server.say(!reply ? "The server does not answer; trying again." : reply.status === 429 ? "The server limits requests; trying again." : "The server is busy or starting; trying again.");
      await wait(1000 * Number(reply?.headers.get("Retry-After")) || pause);
      continue;
    }
    server.say("");
    if (reply.ok) return text ? JSON.parse(text) : {};
    throw new Refusal(reasonOf(text) ?? `The server refused it (status ${reply.status}).`);
  }
}

function reasonOf(text) {
  try { return JSON.parse(text).error; } catch { return null; }
}

/** The bytes of a file, for requests: the server knows more encodings than the browser. */
export const base64 = async file => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => done(reader.result.split(",")[1] ?? ""));
  reader.addEventListener("error", () => fail(new Refusal("The browser cannot read this file.")));
  reader.readAsDataURL(file);
});

export const post = (name, body) => ask("POST", `/api/v1/${name}`, body);

function askForToken() {
  const said = prompt("This server needs a token:");
  if (said) sessionStorage.setItem(KEY, said.trim());
  return Boolean(said);
}

/** The analysis of one position at a time, over a WebSocket that reconnects. */
export class Analysis {
  #socket = null; #number = 0; #running = ""; #wanted = null; #onAnswer; #pause = 500;

  /** onAnswer: called with each answer to the newest query. */
  constructor(onAnswer) {
    this.#onAnswer = onAnswer;
    this.#connect();
  }

  /** Analyse another position, or none. */
  show(query) {
    this.#wanted = query;
    if (!query) this.#current = null;
    if (this.#running) this.#send({id: "stop", action: "terminate", terminate_id: this.#running});
    else this.#next();
  }

  #connect() {
    const names = ["wavefront-analysis", ...(token() ? [`wavefront-token.${token()}`] : [])];
    const socket = this.#socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/analysis`, names);
    socket.addEventListener("open", () => { this.#pause = 500; server.say(""); this.#running = ""; this.#next(); });
    socket.addEventListener("close", () => {
      if (this.#running) this.#wanted ??= this.#current;
      this.#running = "";
      server.say("The server does not answer; trying again.");
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
    if (!this.#wanted && this.#current) this.#onAnswer(answer, this.#current.node);
    if (!answer.during_search) { this.#running = ""; this.#next(); }
  }
}
