// SPDX-License-Identifier: GPL-3.0-or-later
// The API: requests, and the stream of the analysis. A token comes with the link (#token=…), or is asked for once.

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

const wait = (ms, signal) => new Promise(done => { setTimeout(done, ms); signal?.addEventListener("abort", done); });

/** Send a request and return what `read` makes of the reply, by default its JSON. Repeats it while the server is busy, restarts or
 * is out of reach, or `read` returns null. Throws a Refusal. signal: ends this without a result. */
export async function ask(method, path, body, {read = whole, accept = "application/json", signal} = {}) {
  for (let pause = 500; ; pause = Math.min(10000, 2 * pause)) {
    const headers = {"Content-Type": "application/json", Accept: accept};
    if (token()) headers.Authorization = `Bearer ${token()}`;
    const text = body && JSON.stringify(body), keepalive = method === "PUT" && text.length < 60000;  // Also if the page is left.
    const reply = await fetch(path, {method, headers, body: text, keepalive, signal}).catch(() => null);
    if (reply?.ok) {
      server.say("");
      const found = await read(reply);
      if (found !== null) return found;
      pause = 500;
    }
    if (signal?.aborted) return null;
    if ((reply?.status === 401 || reply?.status === 403) && askForToken()) continue;
    if (!reply || reply.ok || reply.status === 429 || reply.status === 503) {
      server.say(!reply || reply.ok ? "The server does not answer; trying again." : reply.status === 429 ? "The server limits requests; trying again." : "The server is busy or starting; trying again.");
      await wait(1000 * Number(reply?.headers.get("Retry-After")) || pause, signal);
      continue;
    }
    server.say("");
    throw new Refusal(reasonOf(await reply.text().catch(() => "")) ?? `The server refused it (status ${reply.status}).`);
  }
}

async function whole(reply) {
  const text = await reply.text().catch(() => null);
  return text === null ? null : text ? JSON.parse(text) : {};
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

/** The analysis of one position at a time: a request whose answers are lines. It ends when it is aborted or the page closes. */
export class Analysis {
  #running = new AbortController(); #onAnswer;

  /** onAnswer: called with each answer for the newest position. */
  constructor(onAnswer) { this.#onAnswer = onAnswer; }

  /** Analyse another position, or none. Throws a Refusal. */
  async show(wanted) {
    this.#running.abort();
    const {signal} = this.#running = new AbortController();
    if (!wanted) return;
    const query = {infinite: true, keep_tree: true, report_every: 0.25, pv_length: 10, include_san: true, include_policy: true,
                   point_of_view: "white", ...wanted.query};
    await ask("POST", "/api/v1/analyse", query, {signal, accept: "application/x-ndjson", read: async reply => {
      const stream = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const {done, value} = await stream.read().catch(() => ({done: true}));
        if (done || signal.aborted) return null;  // The server ends no search by itself.
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const answer of lines.map(line => JSON.parse(line))) if (!answer.warning) this.#onAnswer(answer, wanted.node);
      }
    }});
  }
}
