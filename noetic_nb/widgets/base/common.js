// What all views use: elements whose text is only ever text, lists patched in place, and the store behind a model.
const SVG = "http://www.w3.org/2000/svg";

/** Make an element; `text` becomes text, never markup. */
function make(tag, attributes = {}, text = undefined) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  put(node, attributes);
  // In a notebook arrow keys move between cells and "d d" deletes one; on these elements keys belong to the element.
  if (KEYS.has(tag) || "tabindex" in attributes) node.setAttribute("data-lm-suppress-shortcuts", "true");
  if (text !== undefined) node.textContent = text;
  return node;
}

const SVG_TAGS = new Set(["svg", "rect", "text", "line", "circle", "path", "g", "title"]);

const KEYS = new Set(["button", "input", "select", "summary"]);

/** Set attributes that differ; null removes one. */
function put(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Set text where it differs, so that a screen reader announces changes only. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make the children of `parent` match `rows`: existing nodes are patched, missing ones made, extra ones removed. */
function patch(parent, rows, create, update) {
  while (parent.childElementCount > rows.length) parent.lastElementChild.remove();
  rows.forEach((row, at) => {
    const node = parent.children[at] ?? parent.appendChild(create());
    update(node, row, at);
  });
}

/** Make a table in a part that scrolls by itself; returns its rows. */
function tableIn(parent, label, columns, { kind = "nn-table", scroll = "nn-scroll", wordy = () => false } = {}) {
  const region = parent.appendChild(make("div", { class: scroll, tabindex: 0, role: "region", "aria-label": label }));
  const table = region.appendChild(make("table", { class: kind }));
  const head = table.appendChild(make("thead")).appendChild(make("tr"));
  for (const name of columns) head.append(make("th", { scope: "col", class: wordy(name) ? "nn-text" : null }, name));
  return table.appendChild(make("tbody"));
}

/** Make a row with a name and `count` cells after it. */
function namedRow(count) {
  const row = make("tr");
  row.append(make("th", { scope: "row" }), ...Array.from({ length: count }, () => make("td")));
  return row;
}

/** Make a coloured square for a legend. */
function swatchOf(attributes) {
  const swatch = make("svg", { class: "nn-swatch", width: 12, height: 12, "aria-hidden": "true" });
  swatch.append(make("rect", attributes));
  return swatch;
}

/**
 * Keep everything a model received: its snapshot and the messages since. Custom messages are not replayed to views that
 * open later, so they are gathered once per model and views draw from here, at most once per animation frame.
 */
function storeOf(take) {
  const store = { data: null, views: new Set(), frame: 0, open: new Map(), selection: {} };
  const asked = new Map();
  const page = Math.random().toString(36).slice(2); // several pages may show one model
  let count = 0;
  let chosen = null;
  const fresh = () => `${page}-${(count += 1)}`;
  store.changed = () => {
    if (store.frame) return;
    store.frame = requestAnimationFrame(() => {
      store.frame = 0;
      for (const draw of store.views) draw();
    });
  };
  const replace = (snapshot) => {
    store.data = snapshot;
    store.selection = snapshot.selection ?? {};
  };
  const got = ({ id, data, fault }) => {
    const waiting = asked.get(id);
    asked.delete(id);
    if (fault === undefined) waiting?.resolve(data);
    else waiting?.reject(new Error(fault));
  };
  const selected = ({ id, fields }) => {
    // While a choice of this page is under way, older ones that come back would make the picture jump.
    if (chosen !== null && id !== chosen) return;
    chosen = null;
    store.selection = store.data.selection = fields;
  };
  store.initialize = ({ model }) => {
    replace(structuredClone(model.get("snapshot")));
    const receive = (message) => {
      if (message.type === "got") return got(message);
      if (message.type === "all") replace(message.snapshot);
      else if (message.type === "selected") selected(message);
      else if (!take(store.data, message)) model.send({ type: "again" });
      store.changed();
    };
    model.on("msg:custom", receive);
    return () => {
      model.off("msg:custom", receive);
      cancelAnimationFrame(store.frame);
    };
  };
  /** Ask the kernel for what the snapshot does not hold; fails with the kernel's words. */
  store.get = (model, request) => {
    const id = fresh();
    return new Promise((resolve, reject) => {
      asked.set(id, { resolve, reject });
      model.send({ type: "get", id, request });
    });
  };
  /** Choose a call, turn, item or decision for every view that shares the selection. */
  store.select = (model, fields) => {
    store.selection = store.data.selection = fields;
    model.send({ type: "select", id: (chosen = fresh()), ...fields });
    store.changed();
  };
  /** Show a view: draws now, on every change of the store, and on every change of the named traits. */
  store.show = ({ model, root, draw, traits = [] }) => {
    const fault = root.appendChild(make("p", { class: "nn-fault", role: "alert" }));
    const names = ["fault", ...traits].map((name) => `change:${name}`);
    let placed = false;
    const hide = () => {
      store.views.delete(all);
      names.forEach((name) => model.off(name, store.changed));
    };
    const all = () => {
      // A notebook may drop an output without a word to its view.
      if (placed && !root.isConnected) return hide();
      placed = root.isConnected;
      setText(fault, model.get("fault"));
      draw(store.data);
    };
    store.views.add(all);
    names.forEach((name) => model.on(name, store.changed));
    reportBusy(model, root);
    all();
    return hide;
  };
  /** Let a part that folds open and close as it did before the view was drawn anew. */
  store.fold = (key, details) => {
    details.open = store.open.get(key) ?? false;
    details.addEventListener("toggle", () => store.open.set(key, details.open));
    return details;
  };
  return store;
}

/** Return a function that keeps one question under way: of those asked meanwhile only the newest is put. */
function newest(ask, use) {
  let waiting = null;
  let busy = false;
  return async function put(request) {
    waiting = request;
    if (busy) return;
    busy = true;
    try {
      while (waiting !== null) {
        const next = waiting;
        waiting = null;
        const answer = await ask(next);
        if (waiting === null) use(answer, next);
      }
    } finally {
      busy = false;
    }
  };
}

/** Report to the kernel when someone works in a view: it then leaves the output alone. */
function reportBusy(model, root) {
  model.send({ type: "page" });
  let busy = false;
  const look = () => {
    const now = root.matches(":hover") || root.contains(document.activeElement);
    if (now !== busy) model.send({ type: "busy", busy: (busy = now) });
  };
  for (const name of ["pointerenter", "pointerleave", "focusin"]) root.addEventListener(name, look);
  root.addEventListener("focusout", () => setTimeout(look)); // the next element has the focus only then
}
