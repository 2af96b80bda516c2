// SPDX-License-Identifier: GPL-3.0-or-later
// Analyses a position over WebSocket and shows the best moves while the search goes on.
//
//     wavefront analysis --listen 127.0.0.1:8765
//     node docs/examples/live_analysis.mjs ws://127.0.0.1:8765 [FEN] [NODES]
//
// `Analysis` also works in a page (Node has WebSocket from version 22 on, before that with the package ws). A
// service with a token takes it from the environment variable WAVEFRONT_TOKEN here.

export class Analysis {
  // socket: an open WebSocket. Use `Analysis.connect`.
  constructor(socket) {
    this.socket = socket;
    this.asked = new Map(); // id -> what becomes of its answers
    this.count = 0;
    socket.onmessage = (event) => this.#hear(JSON.parse(event.data));
    socket.onclose = () => {
      for (const { reject } of this.asked.values()) reject(new Error("the connection has ended"));
      this.asked.clear();
    };
  }

  static connect(url, token = "", Socket = globalThis.WebSocket) {
    const protocols = token ? ["wavefront-analysis", `wavefront-token.${token}`] : ["wavefront-analysis"];
    const socket = new Socket(url, protocols);
    return new Promise((resolve, reject) => {
      socket.onopen = () => resolve(new Analysis(socket));
      socket.onerror = () => reject(new Error(`no connection to ${url}`));
    });
  }

  // Asks for one position; the promise gets its final answer. onReport gets those before it.
  analyse(query, onReport = () => {}) {
    const id = String(++this.count);
    const answer = new Promise((resolve, reject) => this.asked.set(id, { resolve, reject, onReport }));
    this.socket.send(JSON.stringify({ ...query, id }));
    return answer;
  }

  // Ends all that was asked for; the promises get what has been found.
  terminate() {
    this.socket.send(JSON.stringify({ id: "terminate", action: "terminate_all" }));
  }

  close() {
    this.socket.close();
  }

  #hear(answer) {
    const asked = this.asked.get(answer.id);
    if (!asked || answer.warning) {
      if (answer.warning || answer.error) console.warn(answer.warning ?? answer.error);
    } else if (answer.error) {
      this.asked.delete(answer.id);
      asked.reject(new Error(answer.error));
    } else if (answer.during_search) {
      asked.onReport(answer);
    } else {
      this.asked.delete(answer.id);
      asked.resolve(answer);
    }
  }
}

function show({ root, moves }) {
  const best = moves.map(({ move, score }) => `${move} ${score > 0 ? "+" : ""}${(score / 100).toFixed(2)}`);
  console.log(`${root?.visits ?? 0} visits: ${best.join("  ")}`);
}

if (globalThis.process?.argv[1]?.endsWith("live_analysis.mjs")) {
  const [url = "ws://127.0.0.1:8765", fen = "startpos", nodes = "2000"] = process.argv.slice(2);
  const { createRequire } = await import("node:module");
  const Socket = globalThis.WebSocket ?? createRequire(import.meta.url)("ws");
  const analysis = await Analysis.connect(url, process.env.WAVEFRONT_TOKEN, Socket);
  const query = { fen, nodes: Number(nodes), multipv: 3, report_every: 0.5, point_of_view: "white" };
  try {
    const answer = await analysis.analyse(query, show);
    show(answer);
    console.log(`best move ${answer.moves[0]?.move ?? "none"}`);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
  analysis.close();
}
