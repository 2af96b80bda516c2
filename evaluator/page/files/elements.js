// SPDX-License-Identifier: GPL-3.0-or-later
// Creating and updating elements. Text is added only as text nodes, so names are never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with a class, and children: elements or texts. */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** An SVG element with attributes and children. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Set an element's text only if it differs, so that a selection by the user stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Update a parent's children to represent items, in their order, and reuse the elements of remaining items.
 * key: of an item; items with equal keys are distinguished by order. create: makes an element for a new item.
 * update: called with each element and its item.
 */
export function keep(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((element) => [element.dataset.key, element]));
  let next = parent.firstElementChild;
  const times = new Map();
  for (const item of items) {
    const plain = String(key(item));
    times.set(plain, (times.get(plain) ?? 0) + 1);
    const name = `${times.get(plain)} ${plain}`;
    let element = known.get(name);
    known.delete(name);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
    update(element, item);
  }
  for (const gone of known.values()) gone.remove();
}

/**
 * A table with one row per item, shown on narrow screens as blocks of names and values.
 * columns: [heading, fill, class, known]. fill(cell, item) writes the item's value; a column is hidden if
 * known(item) is false for all items. nothing: text shown instead of an empty table.
 */
export function table(parent, columns, items, key, nothing) {
  const shown = columns.filter(([, , , known]) => !known || items.some(known));
  const headings = shown.map(([heading]) => heading).join();
  if (parent.dataset.headings !== headings) {
    parent.dataset.headings = headings;
    parent.replaceChildren(emptyTable(shown), make("p", "nothing quiet", nothing));
  }
  const [whole, empty] = parent.children;
  const create = () => as("row", make("tr", "", ...shown.map(([heading, , className]) => {
    const cell = as("cell", make("td", className));
    cell.dataset.label = heading;
    return cell;
  })));
  keep(whole.tBodies[0], items, key, create, (row, item) => {
    shown.forEach(([, fill], index) => fill(row.cells[index], item));
  });
  whole.hidden = items.length === 0;
  empty.hidden = items.length > 0;
}

function emptyTable(columns) {
  const headings = columns.map(([heading, , className]) => as("columnheader", make("th", className, heading)));
  const head = as("rowgroup", make("thead", "", as("row", make("tr", "", ...headings))));
  return as("table", make("table", "", head, as("rowgroup", make("tbody"))));
}

/** Set a table role explicitly, so that screen readers see a table in any layout. */
function as(role, element) {
  element.setAttribute("role", role);
  return element;
}
