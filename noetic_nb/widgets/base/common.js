// Shared by all views: elements whose text is never markup, lists patched in place, and the store behind a model.
const SVG = "http://www.w3.org/2000/svg";

/** Create an element; `text` becomes text, never markup. */
function make(tag, attributes = {}, text = undefined) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  put(node, attributes);
  // In a notebook, arrow keys move between cells and "d d" deletes one; these elements keep their keys for themselves.
  if (KEYS.has(tag) || "tabindex" in attributes) node.setAttribute("data-lm-suppress-shortcuts", "true");
  if (text !== undefined) node.textContent = text;
  return node;
}

// Attributes that make a title a heading; an h3 would appear in a notebook's table of contents.
const HEADING = { class: "nn-title", role: "heading", "aria-level": 3 };

const SVG_TAGS = new Set(["svg", "rect", "text", "line", "circle", "path", "g", "title"]);

const KEYS = new Set(["button", "input", "select", "summary"]);

/** Set attributes that differ; null removes one. */
function put(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Set text that differs, so that a screen reader announces only changes. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Match the children of `parent` to `rows`: existing nodes are patched, missing ones created, extra ones removed. */
function patch(parent, rows, create, update) {
  while (parent.childElementCount > rows.length) parent.lastElementChild.remove();
  rows.forEach((row, at) => {
    const node = parent.children[at] ?? parent.appendChild(create());
    update(node, row, at);
  });
}

/** Create a table in a scrollable region; returns its rows. */
function tableIn(parent, label, columns, { kind = "nn-table", scroll = "nn-scroll", wordy = () => false } = {}) {
  const region = parent.appendChild(make("div", { class: scroll, tabindex: 0, role: "region", "aria-label": label }));
  const table = region.appendChild(make("table", { class: kind }));
  const head = table.appendChild(make("thead")).appendChild(make("tr"));
  for (const name of columns) head.append(make("th", { scope: "col", class: wordy(name) ? "nn-text" : null }, name));
  return table.appendChild(make("tbody"));
}

/** Create a button with text. */
function button(parent, text, click, attributes = {}) {
  const made = parent.appendChild(make("button", { type: "button", ...attributes }, text));
  made.addEventListener("click", click);
  return made;
}

/** Create a checkbox with a label. */
function tickIn(parent, text, changed, attributes = {}) {
  const label = parent.appendChild(make("label", attributes));
  const box = label.appendChild(make("input", { type: "checkbox" }));
  label.append(make("span", {}, text));
  box.addEventListener("change", changed);
  return box;
}

/** Create a select element with a label; `changed` gets the new value. */
function choiceIn(parent, text, changed) {
  const select = parent.appendChild(make("label", { class: "nn-choice" }, `${text} `)).appendChild(make("select", { "aria-label": text }));
  select.addEventListener("change", () => changed(select.value));
  return select;
}

/** Match the options of a select element to values and their names. */
function offer(select, rows) {
  patch(select, rows, () => make("option"), (option, [value, name]) => {
    if (option.getAttribute("value") !== String(value)) option.value = value;
    setText(option, name);
  });
}

/**
 * Create the frame of a view: its title, and a body, or a sentence if there is nothing to show. `isEmpty` switches between the
 * two.
 */
function frameIn(el, title, kind = "") {
  const root = el.appendChild(make("div", { class: `noetic-nb ${kind}`.trim(), role: "group", "aria-label": title }));
  root.append(make("p", HEADING, title));
  const empty = root.appendChild(make("p", { class: "nn-empty" }));
  const body = root.appendChild(make("div"));
  const isEmpty = (data, isSo) => {
    [empty.hidden, body.hidden] = [!isSo, isSo];
    setText(empty, data.empty);
    return isSo;
  };
  return { root, body, isEmpty };
}

/** Create the buttons for the pages of a list. Returns a function that draws them: which rows are shown, and the total. */
function pagerIn(parent, [before, after], turn, word = "") {
  const bar = parent.appendChild(make("div", { class: "nn-pager" }));
  const up = button(bar, before, () => turn(-1));
  const where = bar.appendChild(make("span"));
  const down = button(bar, after, () => turn(1));
  const draw = (start, stop, count) => {
    bar.hidden = start === 0 && stop >= count;
    [up.disabled, down.disabled] = [start === 0, stop >= count];
    const [first, last, of] = [start + 1, stop, count].map((number) => number.toLocaleString("en"));
    setText(where, `${word} ${first} to ${last} of ${of}`.trim());
  };
  return { bar, up, down, draw };
}

/** Create the buttons for stepping through calls, and the checkbox for following the newest; `step` gets -1 or 1. */
function callSteps(parent, { step, follow, kind = "nn-bar-controls" }) {
  const bar = parent.appendChild(make("div", { class: kind }));
  const back = button(bar, "◀", () => step(-1), { "aria-label": "Previous call" });
  const on = button(bar, "▶", () => step(1), { "aria-label": "Next call" });
  const place = bar.appendChild(make("span", { class: "nn-number" }));
  const box = tickIn(bar, "Follow latest", () => follow(box.checked));
  const draw = (at, count, follows) => {
    [back.disabled, on.disabled, box.checked] = [at === 0, at === count - 1, follows];
    setText(place, `${(at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`);
  };
  return { back, draw };
}

const faultLine = () => make("p", { class: "nn-fault", role: "alert" });
const TABLE_MS = 300;
const PICTURES = new Set(["picture", "window"]);

/** Apply the kernel's description of changes to data; returns the new data. */
function grown(before, change) {
  if (change === null) return before;
  const { of, keep, then, is } = change;
  if (of) return Object.fromEntries(Object.entries(of).map(([key, each]) => [key, grown(before?.[key], each)]));
  return then ? [...before.slice(0, keep), ...then] : is;
}

/**
 * Keep everything a model received: its snapshot and the later messages. Custom messages are not replayed to views that open
 * later, so they are collected once per model; views draw from here, at most once per animation frame.
 */
function storeOf(take) {
  const store = { data: null, views: new Set(), frame: 0, open: new Map(), selection: {}, fault: "", refusal: "" };
  const [asked, answers] = [new Map(), new Map()];
  const page = Math.random().toString(36).slice(2); // several pages may show one model
  let count = 0;
  let chosen = null;
  let isTold = false;
  let logged = false; // an error may recur at every drawing
  const fresh = () => `${page}-${(count += 1)}`;
  store.changed = () => {
    if (store.frame) return;
    store.frame = requestAnimationFrame(() => {
      store.frame = 0;
      for (const draw of store.views) draw();
    });
  };
  const replace = (snapshot) => {
    store.fault = ""; // incomplete data may have caused it
    store.data = snapshot;
    store.selection = snapshot.selection ?? {};
  };
  const got = ({ id, data, changed, fault }) => {
    const waiting = asked.get(id);
    asked.delete(id);
    if (fault === undefined) waiting?.resolve(changed === undefined ? data : grown(waiting.before, changed));
    else waiting?.reject(new Error(fault));
  };
  const selected = ({ id, fields }) => {
    // While a selection of this page is pending, older replies would make the picture jump.
    if (chosen !== null && id !== chosen) return;
    const isOwn = chosen !== null;
    chosen = null;
    // The reply to an own selection is not a new selection: views would scroll to it again.
    if (isOwn && Object.entries(fields).every(([name, value]) => (store.selection[name] ?? null) === value)) return;
    store.selection = store.data.selection = fields;
  };
  /** Tell the kernel when the view is visible: it waits before sending the static form, a whole page. */
  const tell = (model) => {
    if (isTold || !model.get("static_name")) return; // the host shows its panels
    isTold = true;
    requestAnimationFrame(() => setTimeout(() => model.send({ type: "drawn" })));
  };
  store.took = selected;
  store.replace = replace;
  store.initialize = ({ model }) => {
    store.replace(structuredClone(model.get("snapshot")));
    const receive = (message) => {
      if (message.type === "got") return got(message);
      if (message.type === "stale") return model.send({ type: "again" });
      if (message.type === "all") store.replace(message.snapshot);
      else if (message.type === "selected") selected(message);
      else {
        try {
          if (!take(store.data, message)) model.send({ type: "again" });
        } catch (error) {
          store.failed(model, error);
        }
      }
      store.changed();
    };
    model.on("msg:custom", receive);
    // Messages sent while this script was loading were lost.
    const sent = model.get("sent"); // undefined in a host, which requests missed messages itself
    if (sent) model.send({ type: "here", messages: sent.messages });
    return () => {
      model.off("msg:custom", receive);
      cancelAnimationFrame(store.frame);
    };
  };
  /** Request data beyond the snapshot; rejects with the kernel's message. For a picture, only the changes are sent. */
  store.get = async (model, request) => {
    const id = fresh();
    const since = PICTURES.has(request.what) && (answers.get(request.what) ?? { id: null });
    const data = await new Promise((resolve, reject) => {
      asked.set(id, { resolve, reject, before: since.data });
      model.send({ type: "get", id, request, ...(since && { since: since.id }) });
    });
    if (since) answers.set(request.what, { id, data });
    return data;
  };
  /** Make a function that asks the kernel and uses only the newest answer; a refusal is shown until the next answer. */
  store.asker = (model, use) => {
    const put = newest((request) => store.get(model, request), (answer, request) => {
      store.refusal = "";
      use(answer, request);
      store.changed();
    });
    return (request) => put(request).catch(store.refused);
  };
  store.refused = (error) => {
    store.refusal = error.message;
    store.changed();
  };
  /** Set synced traits of a model, and draw. */
  store.set = (model, values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
    store.changed();
  };
  /** Select a call, turn, item or decision in every view that shares the selection. */
  store.select = (model, fields) => {
    store.selection = store.data.selection = fields;
    model.send({ type: "select", id: (chosen = fresh()), ...fields });
    store.changed();
  };
  /** Show an error in every view, and log it in the kernel once. */
  store.failed = (model, error) => {
    const text = `This view failed in the page: ${error}`;
    if (!logged) model.send({ type: "fault", text: `${text}\n${error?.stack ?? ""}` });
    logged = true;
    store.fault = text;
    console.warn(error);
  };
  /** Create buttons that save the files of a view, created by the kernel, and one that copies its picture. */
  const files = (model) => {
    const line = make("p", { class: "nn-files", role: "group", "aria-label": "Save as or copy" });
    const status = line.appendChild(make("span", { class: "nn-label", "aria-live": "polite" }));
    const ask = (kind) => store.get(model, { what: "file", kind });
    let own = "";
    const add = (attributes, text, act, failed) => {
      const button = line.appendChild(make("button", { type: "button", ...attributes }, text));
      button.addEventListener("click", async () => {
        if (button.ariaDisabled === "true") return;
        button.ariaDisabled = "true"; // a disabled button would lose the focus
        if (store.fault === own) store.fault = "";
        try {
          setText(status, (await act()) ?? "");
        } catch (error) {
          setText(status, "");
          store.fault = own = `${failed}: ${error.message ?? error}`;
        }
        store.changed();
        button.ariaDisabled = "false";
      });
    };
    for (const kind of store.data.files) {
      const name = kind.toUpperCase();
      add({ title: `Save as ${name}` }, name, async () => save(await ask(kind)), "This could not be saved");
    }
    const label = { "aria-label": "Copy picture to the clipboard" };
    if (store.data.files.includes("png")) add(label, "Copy picture", () => copyPicture(ask), "The picture could not be copied");
    return line;
  };
  /** Show a view: draw now, at every change of the store, and at every change of the named traits. */
  store.show = ({ model, el, root, draw, traits = [], fault = root.appendChild(faultLine()) }) => {
    root.classList.add("tex2jax_ignore", "mathjax_ignore");
    if (store.data?.known) root.prepend(make("p", { class: "nn-label nn-known" }, store.data.known));
    if (store.data?.files) root.append(files(model));
    const names = ["fault", ...traits].map((name) => `change:${name}`);
    const leave = hideStatic(model, el ?? root.parentElement, root);
    let placed = false;
    const hide = () => {
      store.views.delete(all);
      names.forEach((name) => model.off(name, store.changed));
      leave();
    };
    const all = () => {
      // A notebook may remove an output without notifying its view.
      if (placed && !root.isConnected) return hide();
      placed = root.isConnected;
      try {
        draw(store.data);
      } catch (error) {
        store.failed(model, error);
      }
      setText(fault, model.get("fault") || store.fault || store.refusal);
    };
    store.views.add(all);
    names.forEach((name) => model.on(name, store.changed));
    all();
    tell(model);
    return hide;
  };
  /** Wrap the `render` function of a view, so that an error is shown instead of an empty box. */
  store.guard = (render) => (parts) => {
    try {
      let end = render(parts);
      // Front ends keep this function after the view is gone, so it must not reference what was drawn.
      return () => {
        end?.();
        end = null;
        parts.el.replaceChildren();
      };
    } catch (error) {
      store.failed(parts.model, error);
      parts.el.replaceChildren();
      const root = parts.el.appendChild(make("div", { class: "noetic-nb" }));
      return store.show({ model: parts.model, el: parts.el, root, draw: () => {} });
    }
  };
  /** Keep a foldable part open or closed across redraws; `fill` draws its content when it opens. */
  store.fold = (key, details, fill = () => {}) => {
    details.open = store.open.get(key) ?? false;
    details.addEventListener("toggle", () => {
      store.open.set(key, details.open);
      if (details.open) fill();
    });
    return details;
  };
  /** Create the fold of a table that the kernel writes while it is open; returns a function that asks for it again. */
  store.table = (model, parent, request) => {
    const put = store.asker(model, (rows) => patchRows(place, rows));
    const fold = parent.appendChild(store.fold("table", make("details"), () => put(request())));
    fold.append(make("summary", {}, "Table"));
    const place = fold.appendChild(make("div"));
    const later = soon(() => fold.open && put(request()));
    return () => later(TABLE_MS);
  };
  return store;
}

/** Make a blob of a file from the kernel: its type, and its bytes as base64. */
function blobOf({ type, base64 }) {
  return new Blob([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], { type });
}

/** Let the user save a file under its name. */
function save(file) {
  const link = make("a", { href: URL.createObjectURL(blobOf(file)), download: file.name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Copy a picture to the clipboard, as SVG text if PNG is refused; returns the sentence to show. */
async function copyPicture(ask) {
  const { clipboard } = navigator;
  const instead = "Save it as PNG instead.";
  if (!clipboard) throw new Error(`a browser lets a page use the clipboard only over https or on localhost. ${instead}`);
  const png = ask("png").then(blobOf);
  try {
    // Some browsers allow this only while handling the click, before the kernel has made the picture.
    await clipboard.write([new ClipboardItem({ "image/png": png })]);
    return "Copied as PNG.";
  } catch {
    await png; // a kernel error is not a refusal by the browser
  }
  const svg = await blobOf(await ask("svg")).text();
  try {
    await clipboard.writeText(svg);
  } catch {
    throw new Error(`the browser does not allow this page to use the clipboard. ${instead}`);
  }
  return "Copied as the text of an SVG: this browser does not copy a PNG.";
}

/**
 * Return a function that sends one question at a time; of those asked meanwhile, only the newest is sent. `use` gets the answer
 * to the last one, `each` every answer, because there is always a newer question while a handle moves.
 */
function newest(ask, use, each = () => {}) {
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
        try {
          const answer = await ask(next);
          each(answer, next);
          if (waiting === null) use(answer, next);
        } catch (error) {
          if (waiting === null) throw error; // otherwise a newer question has replaced it
        }
      }
    } finally {
      busy = false;
    }
  };
}

/**
 * Mark a view as live. While the mark is on the page, the style sheet of its static form hides that form; it reappears when the
 * view or its kernel is gone. A page of saved widgets has no static form: there the view stays visible.
 */
function hideStatic(model, el, root) {
  const name = model.get("static_name");
  const mark = (live) => {
    root.hidden = !live && document.getElementById(`nn-${name}`) !== null;
    if (name) root.classList.toggle(`nn-live-${name}`, live);
  };
  function changed() {
    mark(this?.model?.comm_live ?? false); // called on the widget's view
  }
  model.on("comm_live_update", changed);
  mark(!el.classList.contains("jupyter-widgets-disconnected"));
  return () => model.off("comm_live_update", changed);
}

/**
 * Create a line that shows the `data-readout` of the hovered or focused mark: tooltips are not enough, because keyboards and
 * touch screens do not show them. The caller places the line.
 */
function readout(root, hint = "") {
  // Screen readers read the label of the mark itself.
  const line = make("p", { class: "nn-readout", "aria-hidden": "true" }, hint);
  const markOf = (node) => node?.closest?.("[data-readout]");
  const show = (mark) => setText(line, mark?.dataset.readout ?? hint);
  const focused = () => (root.contains(document.activeElement) ? markOf(document.activeElement) : undefined);
  root.addEventListener("focusin", (event) => show(markOf(event.target) ?? focused()));
  let place = "";
  root.addEventListener("pointerover", (event) => {
    // A layout change fires pointer events at the resting pointer; they must not override the focus.
    const before = place;
    place = `${event.screenX} ${event.screenY}`;
    show((place === before && focused()) || (markOf(event.target) ?? focused()));
  });
  root.addEventListener("pointerleave", () => show(focused()));
  root.addEventListener("focusout", () => show());
  return line;
}

/** Give many marks one tab stop; arrow keys, Home and End move among those that match `stops`. Call it in `draw`. */
function arrowKeys(parent, stops) {
  const all = () => [...parent.querySelectorAll(stops)];
  const marks = all();
  const current = marks.find((mark) => mark === document.activeElement) ?? marks.find((mark) => mark.tabIndex === 0) ?? marks[0];
  for (const mark of marks) put(mark, { tabindex: mark === current ? 0 : -1, "data-lm-suppress-shortcuts": "true" });
  if (parent.dataset.keys) return;
  parent.dataset.keys = "true";
  parent.addEventListener("keydown", (event) => {
    const now = all();
    const at = now.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: now.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = now[Math.max(0, Math.min(to, now.length - 1))];
    put(now[at], { tabindex: -1 });
    put(next, { tabindex: 0 });
    next.focus();
  });
}

/** Follow a pointer pressed on a node: `begin` returns the handler of its moves, `done` is called at the end. */
function dragged(node, begin, done = () => {}) {
  node.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    const over = new AbortController();
    const end = () => (over.abort(), done());
    node.addEventListener("pointermove", begin(event), { signal: over.signal });
    for (const name of ["pointerup", "pointercancel"]) node.addEventListener(name, end, { signal: over.signal });
  });
}

/** Return a debounced function: it acts once after a while, however often it is called, because a growing run has many events. */
function soon(act) {
  let waits = 0;
  return (ms) => {
    waits ||= setTimeout(() => {
      waits = 0;
      act();
    }, ms);
  };
}
