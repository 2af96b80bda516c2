// SPDX-License-Identifier: GPL-3.0-or-later
// Analyses a position over HTTP and shows the best moves during the search.
//
//     wavefront web
//     node docs/examples/live_analysis.mjs http://127.0.0.1:8766 [FEN] [NODES]
//
// `analyse` also works in a page. A service with a token takes it from the environment variable WAVEFRONT_TOKEN here.

// Yields the answers to a query: reports, if it has report_every, and the final one. The search ends when the loop is left.
export async function* analyse(url, query, token = "") {
  const headers = { "Content-Type": "application/json", Accept: "application/x-ndjson" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const stopping = new AbortController();
  const request = { method: "POST", headers, body: JSON.stringify(query), signal: stopping.signal };
  try {
    const reply = await fetch(new URL("/api/v1/analyse", url), request);
    if (!reply.ok) throw new Error((await reply.json()).error);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const answer of lines.map((line) => JSON.parse(line))) {
        if (answer.error) throw new Error(answer.error);
        if (answer.warning) console.warn(answer.warning);
        else yield answer;
      }
    }
  } finally {
    stopping.abort();
  }
}

if (globalThis.process?.argv[1]?.endsWith("live_analysis.mjs")) {
  const [url = "http://127.0.0.1:8766", fen = "startpos", nodes = "2000"] = process.argv.slice(2);
  const query = { fen, nodes: Number(nodes), multipv: 3, report_every: 0.5, point_of_view: "white" };
  try {
    let best;
    for await (const { root, moves } of analyse(url, query, process.env.WAVEFRONT_TOKEN)) {
      const scores = moves.map(({ move, score }) => `${move} ${score > 0 ? "+" : ""}${(score / 100).toFixed(2)}`);
      console.log(`${root?.visits ?? 0} visits: ${scores.join("  ")}`);
      best = moves[0]?.move;
    }
    console.log(`best move ${best ?? "none"}`);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
