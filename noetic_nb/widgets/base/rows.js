// Lists matched by key, and rows written as HTML by the kernel, with all texts escaped.
/** Match the children of `parent` to rows by key, in order: nodes are kept, moved, created and removed. */
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
 * Match the children of `list` to the kernel's rows, each with its `key` and `html`. An existing row is kept, with its focus,
 * its text selection, its scroll and open state, and all attributes set by scripts. `update` gets each node and its row.
 */
function patchRows(list, rows, update = () => {}) {
  const focused = [...list.children].indexOf(document.activeElement);
  keyed(list, rows, ({ html }) => written(html), (node, row) => {
    if (node.row && node.html !== row.html) become(node, written(row.html));
    [node.row, node.html] = [row, row.html]; // a row may be rewritten in place
    update(node, row);
  });
  if (focused < 0 || list.contains(document.activeElement) || !rows.length) return;
  const next = list.children[Math.min(focused, rows.length - 1)]; // another page of rows: keep the keyboard position
  put(next, { tabindex: 0 });
  next.focus({ preventScroll: true });
}

/** Create the element written by the kernel. */
function written(html) {
  const place = make("template");
  place.innerHTML = html;
  for (const node of place.content.querySelectorAll("[tabindex], button, summary")) put(node, { "data-lm-suppress-shortcuts": "true" });
  return place.content.firstElementChild;
}

/** Update an element to its new HTML in place if possible; `data-` attributes are the kernel's, others stay unless it sets them. */
function become(node, next) {
  if (node.nodeName !== next.nodeName) return node.replaceWith(next);
  if (node.nodeType === Node.TEXT_NODE) return setText(node, next.data);
  for (const name of node.getAttributeNames()) if (name.startsWith("data-") && !next.hasAttribute(name)) node.removeAttribute(name);
  for (const name of next.getAttributeNames()) put(node, { [name]: next.getAttribute(name) });
  while (node.childNodes.length > next.childNodes.length) node.lastChild.remove();
  const old = [...node.childNodes];
  [...next.childNodes].forEach((child, at) => (old[at] ? become(old[at], child) : node.append(child)));
}

/** Make the rows of a table selectable by pointer and keys; PageDown and PageUp press its page buttons. */
function chosenRows(rows, choose, { down, up }) {
  rows.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) choose(row); // otherwise the user is selecting its text
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

/** Make the rows of a list selectable by click, space bar, or Enter, which also opens folded content. */
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
    // Marking text for copying does not select the row.
    if (row?.parentElement === list && !event.target.closest("button") && String(getSelection()) === "") choose(row);
  });
}

/** Show the whole text of a row, found by key with `get`, or only its beginning again; `get` finds nothing if the row is gone. */
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
