// SPDX-License-Identifier: GPL-3.0-or-later
// Networks: description, measured curve, and recent batches drawn over it.

import { chart, decades, linear, logarithmic, path, steps } from "./charts.js";
import { draw, keep, make, say } from "./elements.js";
import { milliseconds, percent, short } from "./format.js";

/** Draw all networks into an element. */
export function showNetworks(element, networks, devices) {
  const shown = networks.length ? networks : [null];
  keep(element, shown, (network) => network?.name ?? "", create, (card, network) => {
    if (network) update(card, network, devices);
  });
}

function create(network) {
  if (!network) return make("p", "nothing quiet", "None is loaded yet.");
  const title = make("h3", "", make("span"), make("span", "tags"));
  const about = make("div", "", title, make("dl", "facts"));
  return make("article", "network", about, make("div", "curve", legend(), make("div")));
}

function legend() {
  return make("p", "legend quiet", make("span", "", "measured"), make("span", "each", "each device"),
    make("span", "dots", "batches that ran"), make("span", "knees", "knee: the smallest batch within 5 % of the best rate"));
}

function update(card, network, devices) {
  const [about, curve] = card.children;
  const [title, facts] = about.children;
  say(title.firstElementChild, network.name);
  const aliases = network.aliases.filter((alias) => alias !== "default");
  const tags = network.default ? ["default", ...aliases] : aliases;
  keep(title.lastElementChild, tags, (tag) => tag, () => make("span", "tag"), say);
  const fact = ([what]) => make("div", what, make("dt", "", what), make("dd"));
  keep(facts, factsOf(network, devices), ([what]) => what, fact, (row, [, value]) => say(row.lastElementChild, value));
  const runs = network.runs.filter((run) => run.in_use);
  curve.querySelector(".each").hidden = runs.length < 2;
  if (network.curve.length) showCurve(curve.lastElementChild, network, runs);
}

function factsOf(network, devices) {
  const used = new Set(network.runs.filter((run) => run.in_use).map((run) => run.device));
  const memory = devices.filter((device) => used.has(device.name) && device.memory)
    .map((device) => percent(device.memory.used / device.memory.total));
  const heads = [...network.policy_heads, ...network.value_heads];
  const outputs = [network.has_wdl ? "W D L" : "value", network.has_moves_left ? "moves left" : ""];
  const best = Math.max(...network.curve.map(perSecond));
  const used_heads = [network.policy_head, network.value_head].filter(Boolean).join(", ") || "its own";
  return [
    ["hash", network.content_hash],
    ["heads", heads.length > 2 ? `${used_heads}, of ${heads.join(", ")}` : used_heads],
    ["outputs", outputs.filter(Boolean).join(", ")],
    ["input format", String(network.input_format)],
    ["backend", network.backend],
    ["runs on", network.device],
    ...(network.precision ? [["precision", network.precision]] : []),
    ...(memory.length ? [["memory", memory.join(", ")]] : []),
    ["knee", `${network.recommended_batch.toLocaleString("en")} positions`],
    ["at best", `${short(best)} positions/s`],
    ["measured", network.runs.filter((run) => run.in_use).map(extent).join(", ")],
  ];
}

/** How far the curve is measured. */
function extent({ measured, largest, known }) {
  const [most, all] = [measured, largest].map((positions) => positions.toLocaleString("en"));
  return `up to ${most} of ${all} positions${known ? "" : ", knee not known yet"}`;
}

// -- the chart: a batch is [positions, milliseconds] -------------------------------------------------------

const inMilliseconds = ([, ms]) => ms;
const perSecond = ([positions, ms]) => (1000 * positions) / ms;
const told = ([positions, ms]) => `${positions} in ${milliseconds(ms)}`;

function showCurve(element, network, runs) {
  const { curve, recommended_batch: knee, batch_sizes: sizes } = network;
  const recent = runs.flatMap((run) => run.recent).filter(([, ms]) => ms > 0);
  const all = [...curve, ...recent];
  const most = Math.max(2, ...all.map(([positions]) => positions));
  const powers = Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, index) => 2 ** index);
  // A few dots far above the curve must not compress its range.
  const rates = recent.map(perSecond).sort((a, b) => a - b);
  const high = Math.max(...curve.map(perSecond), rates[Math.floor(0.95 * rates.length)] ?? 0);
  const times = all.map(inMilliseconds);
  const [least, longest] = [Math.min(...times), Math.max(...times, 4 * Math.min(...times))];
  const shown = { curve, knee, recent, curves: runs.length > 1 ? runs.map((run) => run.curve) : [] };
  chart(element, {
    label: `Measured curve of ${network.name}: ${told(curve[0])} to ${told(curve.at(-1))}, knee at ${knee}; ` +
      `${sizes.count} batches in the last minute`,
    scale: (range) => logarithmic([0.75, 1.25 * most], range),
    ticks: powers.map((positions) => [positions, short(positions)]),
    panels: [
      {
        title: "positions per second, by batch",
        height: 104,
        ticks: steps(high, 3).map((value) => [value, short(value)]),
        scale: (range) => linear([0, steps(high, 3).at(-1)], range),
        paint: (...place) => paint(shown, perSecond, ...place),
      },
      {
        title: "milliseconds, by batch",
        height: 84,
        ticks: decades(least, longest).map((ms) => [ms, String(Number(ms.toPrecision(2)))]),
        scale: (range) => logarithmic([least / 1.25, 1.25 * longest], range),
        paint: (...place) => paint(shown, inMilliseconds, ...place),
      },
      {
        title: `batches of the last minute: ${sizes.count ? short(sizes.count) : "none"}`,
        height: 40,
        ticks: steps(1, 2).map((share) => [share, percent(share)]),
        scale: (range) => linear([0, 1], range),
        paint: (...place) => bars(sizes, most, ...place),
      },
    ],
    read: (value) => nearest(curve, value),
  });
}

/** The knee, the recent batches, and the curves. value: of a batch, on the vertical axis. */
function paint({ curve, knee, recent, curves }, value, x, y, put, [top, bottom]) {
  const place = (batch) => [x(batch[0]), y(value(batch))];
  const spot = (batch, r, className) => {
    const [cx, cy] = place(batch);
    if (cy >= top - r) put(draw("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r, class: className }));
  };
  put(draw("line", { x1: x(knee), x2: x(knee), y1: top, y2: bottom, class: "knee" }));
  for (const batch of recent) spot(batch, 2.2, "dot");
  for (const each of curves) put(draw("path", { d: path(each.map(place)), class: "faint" }));
  put(draw("path", { d: path(curve.map(place)), class: "line" }));
  for (const batch of curve) spot(batch, 2.5, "point");
}

/** The share of batches of each size, whose upper edges are powers of two. */
function bars({ sum, count, ...sizes }, most, x, y, put) {
  let below = 0.75;
  for (const [edge, number] of Object.entries(sizes)) {
    // A bin includes its upper edge, so bars end slightly beyond it.
    const above = Math.min(edge === "inf" ? Infinity : 1.19 * Number(edge), 1.25 * most);
    if (number && above > below) {
      const height = Math.max(1, y(0) - y(number / count));
      const width = Math.max(1, x(above) - x(below) - 1);
      put(draw("rect", { x: x(below) + 0.5, y: y(0) - height, width, height, class: "share" }));
    }
    below = above;
  }
}

/** The measured batch nearest to a size, and its text. */
function nearest(curve, value) {
  const distance = ([positions]) => Math.abs(Math.log(positions / value));
  const batch = curve.reduce((best, each) => (distance(each) < distance(best) ? each : best));
  return [batch[0], `${told(batch)}: ${short(perSecond(batch))} positions/s`];
}
