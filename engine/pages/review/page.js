// SPDX-License-Identifier: GPL-3.0-or-later
// What both pages have before their own scripts: their data, a JSON element (pages.py), and the making of elements.

const DATA = JSON.parse(document.getElementById("data").textContent);
const get = id => document.getElementById(id);

function element(name, attributes = {}, ...content) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
}
