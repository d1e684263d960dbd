// Lists of things by their keys, and rows that the kernel wrote as HTML, with every text in them escaped.
/** Make the children of `parent` match rows by their keys, in order: nodes are kept, moved, made and removed. */
function keyed(parent, rows, create, update) {
  const known = (parent.known ??= new Map());
  const wanted = new Set(rows.map(({ key }) => key));
  for (const [key, node] of known) if (!wanted.has(key)) (node.remove(), known.delete(key));
  let next = parent.firstElementChild;
  for (const row of rows) {
    let node = known.get(row.key);
    if (!node) known.set(row.key, (node = create(row)));
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
    update(node, row);
  }
}

/**
 * Make the children of `list` the rows of the kernel, each with its `key` and its `html`. A row of a key that is there stays: with
 * its focus, with what is marked, scrolled or opened in it, and with all that a script sets. `update` gets each node and its row.
 */
function patchRows(list, rows, update = () => {}) {
  const focused = [...list.children].indexOf(document.activeElement);
  keyed(list, rows, ({ html }) => written(html), (node, row) => {
    if (node.row && node.html !== row.html) become(node, written(row.html));
    [node.row, node.html] = [row, row.html]; // a row may be written anew in place
    update(node, row);
  });
  if (focused < 0 || list.contains(document.activeElement) || !rows.length) return;
  const next = list.children[Math.min(focused, rows.length - 1)]; // another page of them: keys stay where they are
  put(next, { tabindex: 0 });
  next.focus({ preventScroll: true });
}

/** Make the element that the kernel wrote. */
function written(html) {
  const place = make("template");
  place.innerHTML = html;
  for (const node of place.content.querySelectorAll("[tabindex], button, summary")) put(node, { "data-lm-suppress-shortcuts": "true" });
  return place.content.firstElementChild;
}

/** Let an element become as it is written now, where it can be the same; `data-` names are the kernel's, others stay where it gives none. */
function become(node, next) {
  if (node.nodeName !== next.nodeName) return node.replaceWith(next);
  if (node.nodeType === Node.TEXT_NODE) return setText(node, next.data);
  for (const name of node.getAttributeNames()) if (name.startsWith("data-") && !next.hasAttribute(name)) node.removeAttribute(name);
  for (const name of next.getAttributeNames()) put(node, { [name]: next.getAttribute(name) });
  while (node.childNodes.length > next.childNodes.length) node.lastChild.remove();
  const old = [...node.childNodes];
  [...next.childNodes].forEach((child, at) => (old[at] ? become(old[at], child) : node.append(child)));
}

/** Let the rows of a table be chosen by pointer and by key; PageDown and PageUp press the buttons that turn its pages. */
function chosenRows(rows, choose, { down, up }) {
  rows.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) choose(row); // else its text is being selected
  });
  rows.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    if (!row || row !== event.target) return;
    if (event.key === "Enter" || event.key === " ") choose(row);
    else if (event.key === "PageDown" && !down.disabled) down.click();
    else if (event.key === "PageUp" && !up.disabled) up.click();
    else return;
    event.preventDefault();
  });
}

/** Let rows of a list be chosen: with a click, the space bar, or Enter, which opens what is folded as well. */
function choosable(list, choose) {
  list.addEventListener("keydown", (event) => {
    const row = event.target;
    if (row.parentElement !== list || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") [...row.querySelectorAll("button")].find((button) => button.offsetParent)?.click();
    choose(row);
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("li");
    // Who marks text to copy it chooses nothing.
    if (row?.parentElement === list && !event.target.closest("button") && String(getSelection()) === "") choose(row);
  });
}

/** Show all of a text of a row, which `get` finds by its key, or its beginning again; `get` finds none where the row is gone meanwhile. */
async function toggleText(button, get) {
  const isOpen = button.ariaExpanded === "true";
  const { key } = button.dataset;
  const [text, label] = isOpen ? button.before : [await get(/^\d+$/.test(key) ? Number(key) : key), "Show less"];
  if (text === undefined) return;
  const words = button.previousElementSibling;
  if (!isOpen) button.before = [words.textContent, button.textContent];
  put(button, { "aria-expanded": !isOpen });
  setText(words, text);
  setText(button, label);
}
