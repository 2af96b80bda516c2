// SPDX-License-Identifier: GPL-3.0-or-later
// Formatting of numbers, times and sizes. Every function returns text.

/** A count or a rate with three or four digits: 0, 7.5, 981, 12.4k, 3.1M. */
export function short(value) {
  for (const [size, suffix] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (value >= size) {
      const scaled = value / (suffix === "k" ? 1e3 : size);
      return `${scaled.toFixed(scaled < 99.95 ? 1 : 0)}${suffix}`;
    }
  }
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

/** A rate with three or four digits; a dash for zero. */
export function rate(value) {
  return value > 0 ? short(value) : "–";
}

/** Milliseconds with their unit, or seconds from one second on: "0.42 ms", "37 ms", "1.3 s". */
export function milliseconds(value) {
  if (value === null) return "–";
  if (value >= 9950) return `${Math.round(value / 1000)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value.toFixed(value < 0.995 ? 2 : value < 9.95 ? 1 : 0)} ms`;
}

/** A duration in its two largest units: "12 s", "3 min 20 s", "4 h 5 min", "2 d 3 h". */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [name, size] = units[first];
  const rest = units[first + 1];
  const more = rest && Math.floor((whole % size) / rest[1]);
  return `${Math.floor(whole / size)} ${name}${more ? ` ${more} ${rest[0]}` : ""}`;
}

/** Bytes: "812 MB", "24.1 GB". */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(unit > 2 && value < 99.95 ? 1 : 0)} ${units[unit]}`;
}

/** A fraction as a percentage. */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** A Unix time as local time of day, with the date unless it is today. */
export function clock(seconds) {
  const then = new Date(1000 * seconds);
  const time = then.toLocaleTimeString("en-GB");
  const today = new Date().toDateString() === then.toDateString();
  return today ? time : `${then.toLocaleDateString("en-CA")} ${time}`;
}
