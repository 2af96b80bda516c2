// SPDX-License-Identifier: GPL-3.0-or-later
// The last ten minutes: positions per second, and the mean batch size.

import { chart, linear, path, steps } from "./charts.js";
import { draw } from "./elements.js";
import { short } from "./format.js";

const STEPS = 300; // number of steps kept by the service
const MINUTES = [10, 8, 6, 4, 2, 0];

/** Draw the history into an element. */
export function showPast(element, history) {
  const rates = history.positions_per_second;
  const sizes = history.mean_batch;
  const age = (index) => (rates.length - 1 - index) * history.step_s;
  const longest = (STEPS - 1) * history.step_s;
  const minutes = (value) => (value ? `−${value} min` : "now");
  const last = rates.at(-1) ?? 0;
  chart(element, {
    label: `Positions per second over the last ten minutes, at last ${short(last)}; mean batch, at last ` +
      `${short(sizes.at(-1) ?? 0)}`,
    scale: (range) => linear([-longest, 0], range),
    ticks: MINUTES.map((value) => [Math.max(-60 * value, -longest), minutes(value)]),
    panels: [
      panel("positions per second", 156, rates, age, 100, true),
      panel("mean batch", 56, sizes, age, 4, false),
    ],
    read: (value) => {
      const index = rates.length - 1 + Math.round(value / history.step_s);
      if (!(index in rates)) return null;
      return [-age(index), `${short(rates[index])} positions/s in batches of ${short(sizes[index])}`];
    },
  });
}

/** least: minimum upper end of the scale, so that tiny values do not look large. */
function panel(title, height, values, age, least, filled) {
  const ticks = steps(Math.max(least, ...values), filled ? 4 : 2);
  return {
    title,
    height,
    ticks: ticks.map((value) => [value, short(value)]),
    scale: (range) => linear([0, ticks.at(-1)], range),
    paint: (x, y, put) => {
      const points = values.map((value, index) => [x(-age(index)), y(value)]);
      if (!points.length) return;
      if (filled) {
        const area = `${path(points)}L${x(0)} ${y(0)}L${points[0][0].toFixed(1)} ${y(0)}Z`;
        put(draw("path", { class: "area", d: area }));
      }
      put(draw("path", { class: "line", d: path(points) }));
    },
  };
}
