// SPDX-License-Identifier: GPL-3.0-or-later
// Reviews: games in, the kept reviews, and the progress of the chosen one. The pages are those of `wavefront review`.

import { ask, base64, post } from "./api.js";
import { made } from "./dom.js";

const PAUSE_MS = 500;
const active = job => ["waiting", "running"].includes(job.state);

/** page: {get, say, attempt}. Return what lists the reviews and follows the chosen one. */
export function startReviews({get, say, attempt}) {
  let job = null;

  get("games-file").addEventListener("change", event => attempt(async () => {
    const {text} = await post("pgn/read", {data: await base64(event.target.files[0])});
    get("games").value = text;
  }));
  get("start-review").addEventListener("submit", event => {
    event.preventDefault();
    attempt(async () => list((await post("review", {pgn: get("games").value, nodes: Number(get("depth").value)})).id));
  });
  get("reviews").addEventListener("change", () => attempt(() => follow(get("reviews").value)));
  get("run").addEventListener("click", () => attempt(async () => {
    await ask("PUT", `/api/v1/review/${job.id}`, {running: !active(job)});
    await list();
  }));
  get("forget").addEventListener("click", () => attempt(async () => {
    await ask("DELETE", `/api/v1/review/${job.id}`);
    await list();
  }));

  async function list(id = job?.id) {
    const {reviews} = await ask("GET", "/api/v1/review");
    get("reviews").replaceChildren(...reviews.map(each => new Option(`${each.title}: ${each.state}`, each.id, false, each.id === id)));
    get("job").hidden = !reviews.length;
    job = null;
    if (reviews.length) await follow(get("reviews").value);
  }

  async function follow(id) {
    for (job = {id}; job?.id === id; await new Promise(done => setTimeout(done, PAUSE_MS))) {
      const found = await ask("GET", `/api/v1/review/${id}`);
      if (job?.id !== id) return;
      show(job = found);
      if (!active(job)) return;
    }
  }

  function show({id, state, reason, done, total, games, skipped}) {
    const growing = games.filter(game => game.accuracy.every(each => each === null));
    const searched = growing.reduce((sum, game) => sum + game.searched, 0), asked = growing.reduce((sum, game) => sum + game.asked, 0);
    Object.assign(get("progress"), {max: total, value: done + growing.reduce((sum, game) => sum + game.searched / Math.max(1, game.asked), 0)});
    const more = [asked ? `${searched} of ${asked} positions` : "", skipped.length ? `${skipped.length} skipped: ${skipped[0].reason}` : "", reason];
    say("job-state", [`${state}: ${done} of ${total} games`, ...more].filter(Boolean).join(", "));
    get("reviews").selectedOptions[0].textContent = get("reviews").selectedOptions[0].textContent.replace(/[^ ]+$/, state);
    get("job-index").href = `/review/${id}/`;
    get("job-pgn").href = `/review/${id}/games.pgn`;
    get("run").hidden = state === "done";
    get("run").textContent = active({state}) ? "Stop" : "Go on";
    get("reviewed").replaceChildren(...games.map(({number, white, black, result, accuracy}) => made("tr", {},
      made("td", {}, made("a", {href: `/review/${id}/game-${number}.html`}, `${white} – ${black}`)), made("td", {}, result),
      made("td", {}, accuracy.map(each => each === null ? "–" : each.toFixed(1)).join(" · ")))));
  }

  return list;
}
