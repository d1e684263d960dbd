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

/** Set text where it differs, so that readers of the screen are told of changes only. */
function say(node, text) {
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

/** Write cells into a table row, each as text. */
function fillRow(tr, cells) {
  patch(tr, cells, () => make("td"), (cell, text) => say(cell, text));
}

/**
 * Keep everything a model was told: its snapshot and the messages since. Custom messages are not replayed to views that
 * open later, so they are gathered once per model and views draw from here, at most once per animation frame.
 */
function storeOf(take) {
  const store = { data: null, views: new Set(), frame: 0 };
  store.changed = () => {
    if (store.frame) return;
    store.frame = requestAnimationFrame(() => {
      store.frame = 0;
      for (const draw of store.views) draw();
    });
  };
  store.initialize = ({ model }) => {
    store.data = structuredClone(model.get("snapshot"));
    const hear = (message) => {
      if (message.type === "all") store.data = message.snapshot;
      else if (!take(store.data, message)) model.send({ type: "again" });
      store.changed();
    };
    model.on("msg:custom", hear);
    return () => {
      model.off("msg:custom", hear);
      cancelAnimationFrame(store.frame);
    };
  };
  /** Show a view: draws now, on every change of the store, and on every change of the named traits. */
  store.show = ({ model, root, draw, traits = [] }) => {
    const fault = root.appendChild(make("p", { class: "nn-fault", role: "alert" }));
    const all = () => {
      say(fault, model.get("fault"));
      draw(store.data);
    };
    store.views.add(all);
    const names = ["fault", ...traits].map((name) => `change:${name}`);
    names.forEach((name) => model.on(name, store.changed));
    model.send({ type: "page", open: true });
    all();
    return () => {
      store.views.delete(all);
      names.forEach((name) => model.off(name, store.changed));
      try {
        model.send({ type: "page", open: false });
      } catch {
        // The kernel closed the widget first: there is nobody left to tell.
      }
    };
  };
  return store;
}

const number = (value) => (value === null ? "no limit" : Math.round(value).toLocaleString("en-US"));
