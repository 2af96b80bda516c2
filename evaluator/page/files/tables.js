// SPDX-License-Identifier: GPL-3.0-or-later
// The tables: classes against their targets, devices, clients, warnings.

import { make, say, table } from "./elements.js";
import { bytes, clock, duration, milliseconds, percent, rate, short } from "./format.js";

/** Classes, with the times of the last minute's requests. */
export function showClasses(element, status) {
  table(element, CLASSES, status.classes, (each) => each.name, "");
}

/** Devices, with the reason for excluded ones. */
export function showDevices(element, status) {
  table(element, DEVICES, status.devices, (each) => each.name, "None is open.");
}

/** Clients, busiest first. */
export function showClients(element, status) {
  const clients = status.clients.map((each) => ({ ...each, age: status.time - each.since }));
  const key = (each) => `${each.since} ${each.address} ${each.name}`;
  table(element, CLIENTS, clients, key, "Nobody is connected.");
}

/** Keys with the counts of all their clients. Returns their number. */
export function showKeys(element, status) {
  const keys = Object.entries(status.metrics.keys).map(([name, counts]) => ({ name, ...counts }));
  table(element, KEYS, keys, (each) => each.name, "");
  return keys.length;
}

/** The last warnings of the log, newest first. */
export function showWarnings(element, status) {
  table(element, WARNINGS, status.warnings, (each) => `${each.time} ${each.message}`, "None in the log.");
}

// -- contents of cells -----------------------------------------------------------------------------------

const text = (value) => (cell, item) => say(cell, value(item));

/** A value with a secondary text. */
function both(cell, what, more, tag = "span") {
  if (!cell.firstElementChild) cell.replaceChildren(make(tag), " ", make("span", "quiet"));
  say(cell.firstElementChild, what);
  say(cell.lastElementChild, more);
}

const named = (cell, name, more) => both(cell, name, more, "b");

/** A bar from 0 to 1 with its value. */
function meter(cell, share, label, mark = "") {
  if (!cell.firstElementChild) cell.replaceChildren(make("i", "bar", make("i")), make("span"));
  const [bar, words] = cell.children;
  bar.firstElementChild.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  bar.className = `bar ${mark}`;
  say(words, label);
}

/** Two percentiles, with a common unit only once. */
function percentiles({ p50, p99 }) {
  if (p99 === null) return "–";
  const [half, most] = [milliseconds(p50), milliseconds(p99)];
  const unit = most.slice(most.lastIndexOf(" "));
  return `${half.endsWith(unit) ? half.slice(0, -unit.length) : half} · ${most}`;
}

/** The 99th percentile, on a bar that is full at twice the target. */
function target(cell, { whole_ms: { p50, p99 }, target_ms: wanted }) {
  const late = (p99 ?? 0) / wanted;
  meter(cell, late / 2, percentiles({ p50, p99 }), `target ${late > 1 ? "late" : ""}`);
}

function condition(cell, each) {
  const again = each.tried_again_in_s;
  const when = again === null ? "until it comes back" :
    again > 0 ? `tried again in ${duration(Math.ceil(again))}` : "tried again now";
  both(cell, each.in_use ? (each.standby ? "stands in" : "in use") : `left out, ${when}`, each.reason);
  cell.className = `state ${each.in_use ? "" : "bad"}`;
}

function lastBatch(cell, { last_batch: last }) {
  const ago = last && (last.ago_s < 1 ? "just now" : `${duration(last.ago_s)} ago`);
  both(cell, last ? `${last.positions} in ${milliseconds(last.ms)}` : "–", ago ?? "");
}

function memory(cell, each) {
  if (!each.memory) {
    cell.replaceChildren("–");
    return;
  }
  const { used, total } = each.memory;
  meter(cell, used / total, `${bytes(used)} of ${bytes(total)}`);
}

/** Power and temperature, either of which may be unknown. */
function sensors({ watts, celsius }) {
  const known = [watts === null ? "" : `${Math.round(watts)} W`, celsius === null ? "" : `${Math.round(celsius)} °C`];
  return known.filter(Boolean).join(" · ") || "–";
}

const sensed = ({ watts, celsius }) => watts !== null || celsius !== null;

/** A client's origin: an address, or localhost:USER:GROUP:PROCESS for a local socket. */
function origin(address) {
  const [, user, , process] = address.startsWith("localhost:") ? address.split(":") : [];
  return process === undefined ? address : `this machine, process ${process} of user ${user}`;
}

function inFlight(cell, each) {
  const positions = Object.values(each.positions_in_flight).reduce((sum, count) => sum + count, 0);
  say(cell, each.requests_in_flight ? `${short(positions)} in ${each.requests_in_flight}` : "–");
}

function errors(cell, each) {
  say(cell, String(each.errors));
  cell.classList.toggle("bad", each.errors > 0);
}

function connected(cell, each) {
  both(cell, duration(each.age), `since ${clock(each.since)}`);
}

function level(cell, each) {
  say(cell, each.level);
  cell.className = `level ${each.level}`;
}

// -- columns: heading, fill function, class, and a test for a value -----------------------------------------

const CLASSES = [
  ["class", text((each) => each.name), "name"],
  ["target", text((each) => milliseconds(each.target_ms)), "number"],
  ["queued", (cell, each) => both(cell, short(each.queued), `of ${short(each.limit)}`), "number"],
  ["requests/s", text((each) => rate(each.requests_per_second)), "number"],
  ["positions/s", text((each) => rate(each.positions_per_second)), "number"],
  ["queue p50 · p99", text((each) => percentiles(each.queue_ms)), "number"],
  ["whole p50 · p99", target, "wide"],
];

const DEVICES = [
  ["device", (cell, each) => named(cell, each.name, each.hardware), "name"],
  ["state", condition, "state"],
  ["busy", (cell, each) => meter(cell, each.busy, percent(each.busy)), "wide"],
  ["in flight", text((each) => String(each.running)), "number"],
  ["last batch", lastBatch, "number roomy"],
  ["failures", text((each) => `${each.failures}${each.hangs ? `, ${each.hangs} hung` : ""}`), "number"],
  ["memory", memory, "wide", (each) => each.memory],
  ["power", text(sensors), "number", sensed],
];

const CLIENTS = [
  ["client", (cell, each) => named(cell, each.name || "no name", origin(each.address)), "name"],
  ["class", text((each) => each.class || "–"), ""],
  ["in flight", inFlight, "number"],
  ["positions/s", text((each) => rate(each.positions_per_second)), "number"],
  ["positions", text((each) => short(each.positions)), "number"],
  ["unread", text((each) => bytes(each.unread_bytes)), "number", (each) => each.unread_bytes !== undefined],
  ["errors", errors, "number"],
  ["connected", connected, "number"],
];

const KEYS = [
  ["key", text((each) => each.name), "name"],
  ["in flight", text((each) => short(each.in_flight)), "number"],
  ["requests", text((each) => short(each.requests)), "number"],
  ["positions", text((each) => short(each.positions)), "number"],
  ["refused", text((each) => short(each.refused)), "number"],
];

const WARNINGS = [
  ["time", text((each) => clock(each.time)), "time"],
  ["level", level, "level"],
  ["message", text((each) => each.message), "message"],
];
