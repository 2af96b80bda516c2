// SPDX-License-Identifier: GPL-3.0-or-later

/** Make an element with properties and content. */
export function made(name, more = {}, ...content) {
  const element = Object.assign(document.createElement(name), more);
  element.append(...content);
  return element;
}
