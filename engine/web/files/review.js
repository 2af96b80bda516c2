// SPDX-License-Identifier: GPL-3.0-or-later
// Reviews: games in, progress, and the list of reviewed games. The pages are those of `wavefront review`.

import { ask, base64, post } from "./api.js";

const PAUSE_MS = 500;

/** page: {get, say, attempt, open}. open: shows a game of a PGN on the board. */
export function startReviews({get, say, attempt, open}) {
  let running = "";

  get("games-file").addEventListener("change", event => attempt(async () => {
    const {text} = await post("pgn/read", {data: await base64(event.target.files[0])});
    get("games").value = text;
  }));
  get("start-review").addEventListener("submit", event => {
    event.preventDefault();
    attempt(async () => {
      const job = await post("review", {pgn: get("games").value, nodes: Number(get("depth").value)});
      running = job.id;
      get("job").hidden = false;
      await follow(job);
    });
  });
  get("cancel").addEventListener("click", () => attempt(async () => {
    const id = running;
    running = "";
    get("job").hidden = true;
    await ask("DELETE", `/api/v1/review/${id}`);
  }));

  async function follow(job) {
    while (job.id === running) {
      show(job);
      if (!["waiting", "running"].includes(job.state)) return;
      await new Promise(done => setTimeout(done, PAUSE_MS));
      if (job.id === running) job = await ask("GET", `/api/v1/review/${job.id}`);
    }
  }

  function show(job) {
    const over = !["waiting", "running"].includes(job.state);
    Object.assign(get("progress"), {max: job.total, value: job.done});
    const skipped = job.skipped.length ? `, ${job.skipped.length} skipped: ${job.skipped[0].reason}` : "";
    say("job-state", `${job.state}: ${job.done} of ${job.total} games${skipped} ${job.reason}`);
    get("job-index").href = `/review/${job.id}/`;
    get("job-pgn").href = `/review/${job.id}/games.pgn`;
    get("cancel").textContent = over ? "Forget" : "Cancel";
    get("reviewed").replaceChildren(...job.games.map(game => row(job.id, game)));
  }

  function row(id, {number, white, black, result, accuracy}) {
    const line = document.createElement("tr");
    const link = document.createElement("a");
    link.href = `/review/${id}/game-${number}.html`;
    link.textContent = `${white} – ${black}`;
    const button = document.createElement("button");
    button.textContent = "On the board";
    button.addEventListener("click", () => attempt(async () => {
      const reply = await fetch(`/review/${id}/game-${number}.pgn`);
      if (!reply.ok) throw new Error(`status ${reply.status}`);
      await open(await reply.text(), 1);
    }));
    const shares = accuracy.map(each => each === null ? "–" : each.toFixed(1)).join(" · ");
    for (const content of [link, result, shares, button]) {
      const cell = document.createElement("td");
      cell.append(content);
      line.append(cell);
    }
    return line;
  }
}
