// SPDX-License-Identifier: GPL-3.0-or-later
// Making and keeping elements. Text goes in as text nodes only: no name of a client or network is read as HTML.

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

/** Set an element's text, unless it is that already: what somebody has selected stays selected. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Have a parent's children stand for items, in their order, and those of items that are still there stay.
 * key: of an item; items of the same key are distinguished by their order. create: the element of a new one.
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
 * A table whose rows stand for items, and on a narrow screen are blocks of names and values.
 * columns: [heading, fill, class, known]; fill(cell, item) puts the item's value into its cell, and a column is
 * left out while no item is known(item). nothing: what to say in place of a table without rows.
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

/** A table's part stays one for those who listen to it, however it is laid out. */
function as(role, element) {
  element.setAttribute("role", role);
  return element;
}
