// SPDX-License-Identifier: GPL-3.0-or-later
// The page: polls /status each second while it is visible, and shows the result.

import { keep, make, say } from "./elements.js";
import { clock, duration, short } from "./format.js";
import { showNetworks } from "./networks.js";
import { showPast } from "./past.js";
import { showClasses, showClients, showDevices, showKeys, showWarnings } from "./tables.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000; // time limit for an answer

const get = (id) => document.getElementById(id);

let answered = null; // time of the last answer, in seconds of the Unix epoch
let shown = null; // the last answer
let timer = 0;
let asking = false;

async function ask() {
  clearTimeout(timer);
  if (asking || document.visibilityState === "hidden") return;
  asking = true;
  let status = null;
  try {
    const reply = await fetch("/status", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!reply.ok) throw new Error(`the service says ${reply.status}`);
    status = await reply.json();
  } catch (error) {
    lose(error);
  } finally {
    asking = false;
    timer = setTimeout(ask, EVERY_MS);
  }
  if (status === null) return;
  if (shown !== null && shown.version !== status.version) location.reload(); // the service has a new version
  answered = Date.now() / 1000;
  shown = status;
  show(status);
}

function lose(error) {
  console.warn(error);
  const since = answered === null ? "No answer yet." : `No answer since ${clock(answered)}, which is what is shown.`;
  say(get("lost"), `${since} Asking again every second.`);
  get("lost").hidden = false;
  say(get("word"), "no answer");
  say(get("since"), "");
  document.documentElement.dataset.state = "lost";
  document.title = "no answer · Wavefront evaluator";
}

function show(status) {
  get("lost").hidden = true;
  showState(status);
  showCharts(status);
  showClasses(get("classes"), status);
  showWarnings(get("warnings"), status);
  showDevices(get("devices"), status);
  showClients(get("clients"), status);
  get("keys-section").hidden = !showKeys(get("keys"), status);
  const [listed, all] = [status.clients.length, status.metrics.clients];
  say(get("clients-count"), listed < all ? `the ${listed} busiest of ${all}` : "");
}

/** Draw the parts whose size depends on the window. */
function showCharts(status) {
  showPast(get("past"), status.history);
  showNetworks(get("networks"), status.networks, status.devices);
}

const MEANINGS = {
  loading: "Clients wait until the first network is there.",
  degraded: "What is left out is tried again; meanwhile other devices take its work, or the CPU does.",
  draining: "Nothing new is taken, what is queued is finished, and then the service ends.",
};

function showState(status) {
  document.documentElement.dataset.state = status.state;
  document.title = `${status.state} · Wavefront evaluator`;
  say(get("word"), status.state);
  const { since, state } = status;
  say(get("since"), since ? `for ${duration(status.time - since)}, since ${clock(since)}` : "");
  say(get("reason"), status.reason);
  say(get("meaning"), MEANINGS[state] ?? "");
  get("why").hidden = !status.reason && !MEANINGS[state];
  const { metrics } = status;
  const about = [`version ${status.version}`, `up ${duration(metrics.uptime_s)}`, ...status.addresses];
  say(get("about"), about.join(" · "));
  const queued = status.classes.reduce((sum, each) => sum + each.queued, 0);
  const figures = [
    ["positions/s", short(metrics.positions_per_second)],
    ["mean batch", short(status.history.mean_batch.at(-1) ?? 0)],
    ["queued", short(queued)],
    ["clients", short(metrics.clients)],
  ];
  const create = ([what]) => make("div", "", make("dt", "", what), make("dd"));
  keep(get("figures"), figures, ([what]) => what, create, (row, [, value]) => {
    say(row.lastElementChild, value);
  });
}

document.addEventListener("visibilitychange", ask);
window.addEventListener("resize", () => shown && showCharts(shown));
ask();
