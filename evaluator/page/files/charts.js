// SPDX-License-Identifier: GPL-3.0-or-later
// SVG charts: scales, axes, lines, dots and bars, redrawn at the available size.

import { draw, make, say } from "./elements.js";

const LEFT = 46; // room for the labels of the vertical axis
const RIGHT = 16;
const TOP = 30; // space for a panel's title
const BOTTOM = 20; // space for the labels of the horizontal axis

const WORD = 50; // and between two of these
const KEY = 12; // step of an arrow key, in pixels

/** A scale from values to pixels. */
export function linear([low, high], [from, to]) {
  const slope = (to - from) / (high - low || 1);
  const scale = (value) => from + (value - low) * slope;
  scale.back = (pixel) => low + (pixel - from) / slope;
  return scale;
}

/** A logarithmic scale for values above zero. */
export function logarithmic([low, high], range) {
  const scale = linear([Math.log(low), Math.log(high)], range);
  const log = (value) => scale(Math.log(value));
  log.back = (pixel) => Math.exp(scale.back(pixel));
  return log;
}

/** Round numbers from 0 to at least `high`, in about `count` steps. */
export function steps(high, count) {
  const rough = (high || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 || 2 }, (_, index) => index * step);
}

/** Round numbers between two values on a logarithmic scale. */
export function decades(low, high) {
  const found = [];
  const wide = high / low > 300;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of wide ? [1] : high / low > 30 ? [1, 3] : [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

/** A path through points, interrupted at points without a value. */
export function path(points) {
  let pen = "M";
  let text = "";
  for (const [x, y] of points) {
    if (Number.isFinite(y)) {
      text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    } else pen = "M";
  }
  return text;
}

/**
 * Panels stacked above one common horizontal axis, in an SVG as wide as its parent.
 *
 * label: accessible description. ticks: [value, text] of the horizontal axis. scale: makes its scale from a pixel
 * range. panels: each with a height, title, ticks [value, text], scale (made from a pixel range), and
 * paint(x, y, put, [top, bottom]), which draws with put(element). read: returns [value, text] for the value under
 * the pointer, or null. Without a mouse, touch or arrow keys select the value.
 */
export function chart(parent, { label, ticks, scale, panels, read }) {
  const frame = parent.firstElementChild ?? parent.appendChild(frameWithPointer());
  const [svg, tip] = frame.children;
  const width = Math.max(240, Math.round(parent.clientWidth));
  const height = panels.reduce((sum, panel) => sum + TOP + panel.height, 0) + BOTTOM;
  const x = scale([LEFT, width - RIGHT]);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const drawn = [];
  const put = (element) => drawn.push(element);
  let top = 0;
  for (const panel of panels) {
    top += TOP;
    const bottom = top + panel.height;
    const y = panel.scale([bottom, top]);
    put(draw("text", { x: 0, y: top - 10, class: "title" }, panel.title));
    for (const [value, text] of panel.ticks) {
      put(draw("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
      put(draw("text", { x: LEFT - 6, y: y(value) + 3.5, class: "left" }, text));
    }
    panel.paint(x, y, put, [top, bottom]);
    top = bottom;
  }
  let free = -Infinity;
  for (const [value, text] of [...ticks].reverse()) {
    if (Math.abs(free - x(value)) < WORD) continue;
    free = x(value);
    put(draw("text", { x: free, y: height - 4, class: "below" }, text));
  }
  const hair = draw("line", { y1: TOP, y2: height - BOTTOM, class: "hair" });
  put(hair);
  svg.replaceChildren(...drawn);
  frame.show = () => {
    const found = frame.pointer === null ? null : read(x.back(frame.pointer));
    tip.hidden = found === null;
    hair.setAttribute("visibility", found === null ? "hidden" : "visible");
    if (found === null) return;
    const at = x(found[0]);
    hair.setAttribute("x1", at);
    hair.setAttribute("x2", at);
    say(tip, found[1]);
    tip.style.left = `${Math.max(0, Math.min(at - tip.offsetWidth / 2, width - tip.offsetWidth))}px`;
  };
  frame.show();
}

function frameWithPointer() {
  const frame = make("div", "chart", draw("svg"), make("p", "tip"));
  const point = (at) => {
    frame.pointer = at;
    frame.show();
  };
  const follow = (event) => point(event.clientX - frame.getBoundingClientRect().left);
  frame.pointer = null;
  frame.tabIndex = 0;
  frame.addEventListener("pointermove", follow);
  frame.addEventListener("pointerdown", follow);
  // Lifting a finger also fires pointerleave; its value stays until the next touch.
  frame.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && point(null));
  frame.addEventListener("blur", () => point(null));
  frame.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -KEY, ArrowRight: KEY }[event.key];
    if (!by) return;
    event.preventDefault();
    const width = frame.clientWidth;
    point(Math.max(LEFT, Math.min(width - RIGHT, (frame.pointer ?? width) + by)));
  });
  return frame;
}
