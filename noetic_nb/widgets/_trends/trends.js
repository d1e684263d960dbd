// The regulator's trends. The kernel sends a row for each column of turns; here rows are placed, columns in percent of the
// width and values in pixels of the height (as in trends_picture.py), and thresholds are dragged.

const CROWDED = 80;
const BRACKET = 24;
const percent = (value) => `${value.toFixed(3)}%`;

/** How values are written, by their unit (as in trends_scales.py). */
const FORMATS = new Map([
  ["share", (value) => value.toFixed(2)],
  ["whole", (value) => Math.round(value).toLocaleString("en-US")],
  ["usd", (value) => (value >= 0.1 || value === 0 ? `$${value.toFixed(2)}` : `$${Number(value.toPrecision(3))}`)],
  ["ms", (value) => (value < 120e3 ? `${Number((value / 1e3).toPrecision(3))} s` : `${Number((value / 6e4).toPrecision(3))} min`)],
]);

const written = (unit, value) => FORMATS.get(unit)(value);

/** Return where a value of a picture lies, in pixels from its top, and back. */
function scaleOf(top, height, pad) {
  const room = height - 2 * pad;
  return {
    y: (value) => pad + (1 - Math.min(Math.max(value / top, 0), 1)) * room,
    value: (y) => top * (1 - (y - pad) / room),
  };
}

/** Return the stretches of columns for which `pick` gives the same, as [first, last, what]; null is passed over. */
function stretches(rows, pick) {
  const found = [];
  rows.forEach((row, at) => {
    const what = pick(row);
    const last = found.at(-1);
    if (what === null || what === undefined) return;
    if (last && last[1] === at - 1 && last[2] === what) last[1] = at;
    else found.push([at, at, what]);
  });
  return found;
}

/** Give each decision a lane in which its label fits this page; without labels where words would be covered. */
function lanesOf(rows, width, sizes) {
  let [placed, covered] = tryLanes(rows, width, true, sizes);
  if (covered) [placed, covered] = tryLanes(rows, width, false, sizes);
  return covered ? byKind(rows, sizes) : placed;
}

/** Marks that are too many for lanes of their own: small ones, a lane for each kind, breaks in the first. */
function byKind(rows, sizes) {
  const kinds = [...new Set(rows.flatMap((row) => (row.marks ?? []).map(([kind]) => kind)))];
  kinds.sort((one, other) => (other === "circuit_break") - (one === "circuit_break"));
  return rows.flatMap((row, at) => (row.marks ?? []).map(([kind, , tip]) => (
    { kind, label: "", tip, x: (100 * (at + 0.5)) / rows.length, left: false, lane: Math.min(kinds.indexOf(kind), sizes.lanes - 1), small: true })));
}

function tryLanes(rows, width, words, sizes) {
  const ends = Array(sizes.lanes).fill(-1);
  const room = 960 / width; // percent that the shape itself takes
  let covered = false;
  const placed = rows.flatMap((row, at) =>
    (row.marks ?? []).map(([kind, label, tip]) => {
      const x = (100 * (at + 0.5)) / rows.length;
      const wide = (100 * (label.length * sizes.letter + sizes.shape)) / width;
      const left = x > 55;
      let [begin, end] = left ? [x - wide, x + room] : [x - room, x + wide];
      const inside = words && begin + room >= 0 && end <= 100 + room;
      let lane = inside ? ends.findIndex((last) => last <= begin) : -1;
      let text = label;
      if (lane < 0) {
        [text, end] = ["", x + room];
        lane = ends.findIndex((last) => last <= x - room);
        covered ||= lane < 0;
      }
      lane = Math.max(lane, 0);
      ends[lane] = Math.max(ends[lane], end);
      return { kind, label: text, tip, x, left, lane };
    }),
  );
  return [placed, covered];
}

const texts = (parent, rows) =>
  patch(parent, rows, () => make("text", { "font-size": 11, fill: "currentColor" }), (node, row) => {
    put(node, { x: row.x, y: row.y, "text-anchor": row.anchor });
    setText(node, row.text);
  });

/** Draw rectangles: each has x and wide in columns, and its own attributes. */
const boxes = (parent, rows, columns) =>
  patch(parent, rows, () => make("rect"), (node, { from, to, ...looks }) =>
    put(node, { x: percent((100 * from) / columns), width: percent((100 * (to - from)) / columns), y: 0, height: "100%", ...looks }));

const paths = (parent, rows) =>
  patch(parent, rows, () => make("path"), (node, row) => put(node, { fill: null, stroke: null, "stroke-width": null, ...row }));

const joined = (points) => points.map(([x, y]) => `${x},${y.toFixed(1)}`).join("L");

function layers(svg, count) {
  for (let at = 0; at < count; at += 1) svg.append(make("g"));
  return [...svg.children].slice(-count);
}

function markShape() {
  const box = make("svg", { overflow: "visible" });
  box.append(make("title"), make("path", { class: "nn-mark" }), make("text", { y: 4, "font-size": 11.5, fill: "currentColor" }));
  return box;
}

/** The band of decisions; returns what draws it. */
function decisionsIn(svg, { sizes, looks }) {
  const known = new Map(Object.entries(looks));
  const [held, shapes] = layers(svg, 2);
  return (rows, placed) => {
    const used = placed.length ? 1 + Math.max(...placed.map(({ lane }) => lane)) : 0;
    put(svg, { height: used * sizes.lane || 1, visibility: used ? null : "hidden" });
    boxes(held, stretches(rows, (row) => row.broken ?? null).map(([from, to]) => ({
      from: from + 0.5, to: to + 1, y: used * sizes.lane - 2, height: 2, class: "nn-mark nn-held" })), rows.length);
    patch(shapes, placed, markShape, (box, spot) => {
      const [colour, path] = known.get(spot.kind) ?? known.get("");
      const [title, shape, text] = box.children;
      put(box, { x: percent(spot.x), y: (spot.lane + 0.5) * sizes.lane });
      put(shape, { d: path, fill: colour, class: spot.small ? "nn-mark nn-small" : "nn-mark" });
      put(text, { x: spot.left ? -11 : 11, "text-anchor": spot.left ? "end" : "start" });
      setText(title, spot.tip);
      setText(text, spot.label);
    });
  };
}

/** The band of what would have been decided instead; returns what draws it. */
function insteadIn(svg, { sizes, looks }) {
  const known = new Map(Object.entries(looks));
  return (columns, marks) =>
    patch(svg, marks, markShape, (box, [column, kind, tip]) => {
      const [, path] = known.get(kind) ?? known.get("");
      const [title, shape] = box.children;
      put(box, { x: percent((100 * (column + 0.5)) / columns), y: 0.5 * sizes.lane });
      put(shape, { d: path, class: "nn-mark nn-would" });
      setText(title, `Would be: ${tip}`);
    });
}

/** One picture: its caption, its axis and its plot; returns what draws it and where its threshold is. */
function panelIn(grid, panel, { sizes, colours }) {
  const caption = make("span", { class: "nn-caption" }, panel.title);
  const brackets = panel.key === "quality" ? make("svg", { class: "nn-plot", width: "100%", height: BRACKET, role: "img", "aria-label": "Windows of grades" }) : null;
  const axis = make("svg", { class: "nn-plot nn-axis", width: "100%", height: panel.height, "aria-hidden": "true" });
  const box = make("div", { class: "nn-plotbox" });
  const plot = box.appendChild(make("svg", { class: "nn-plot", width: "100%", height: panel.height, role: "img" }));
  const [under, steps, bars] = layers(plot, 3);
  const wide = plot.appendChild(make("svg", { class: "nn-lines", width: "100%", height: panel.height, preserveAspectRatio: "none" }));
  const [dots, would] = layers(plot, 2);
  const bracketLines = brackets?.appendChild(make("svg", { class: "nn-lines", width: "100%", height: BRACKET, preserveAspectRatio: "none" }));
  const bracketTexts = brackets ? layers(brackets, 1)[0] : null;
  const axisTexts = layers(axis, 1)[0];
  const spans = [make("span"), make("span")];
  grid.append(spans[0], caption);
  if (brackets) grid.append(spans[1], brackets);
  grid.append(axis, box);
  const parts = [spans[0], caption, axis, box, ...(brackets ? [spans[1], brackets] : [])];
  let scale = scaleOf(1, panel.height, sizes.pad);

  const range = (rows, key, colour, width, kind) => {
    const found = rows.map((row, at) => [at + 0.5, row.values[key]]).filter(([, values]) => values);
    if (found.length < 2) return [];
    const line = { class: `nn-line ${kind}`, d: `M${joined(found.map(([x, values]) => [x, scale.y(values.at(-1))]))}`, stroke: colour, "stroke-width": width };
    if (key === "mean" || !found.some(([, values]) => values.length > 1)) return [line];
    const upper = found.map(([x, values]) => [x, scale.y(values[1] ?? values[0])]);
    const lower = found.map(([x, values]) => [x, scale.y(values[0])]).reverse();
    const area = { class: `nn-range ${kind}-range`, d: `M${joined([...upper, ...lower])}Z`, fill: colour, stroke: colour };
    // The last of many values is any of them; where values only grow it is where they are.
    return panel.look === "dots" ? [area] : [area, line];
  };

  function draw(thread, rows, moved, answer) {
    const shown = thread.shown.includes(panel.key);
    for (const part of parts) part.hidden = !shown;
    for (const part of [plot, axis, brackets]) if (part) part.style.display = shown ? "" : "none";
    if (!shown) return null;
    const { y } = (scale = scaleOf(thread.tops[panel.key], panel.height, sizes.pad));
    const columns = rows.length;
    const broken = stretches(rows, (row) => row.broken ?? null).map(([from, to]) => ({ from, to: to + 1, class: "nn-mark nn-broken" }));
    const instead = (answer?.bands ?? []).map(([from, to]) => ({ from, to: to + 1, y: 0.75, height: panel.height - 1.5, class: "nn-mark nn-would" }));
    boxes(under, [...broken, ...instead], columns);

    const rules = stretches(rows, (row) => row.rule[panel.key]);
    boxes(steps, rules.flatMap(([from, to, number]) => [
      ...(panel.key === "quality" ? [{ from, to: to + 1, y: y(number), height: Math.max(0, panel.height - y(number)), class: "nn-poor" }] : []),
      { from, to: to + 1, y: y(number) - 0.75, height: 1.5, class: "nn-rule" },
    ]), columns);

    put(wide, { viewBox: `0 0 ${columns} ${panel.height}` });
    const tip = (row, value) => `Turn ${row.cells[0]}: ${panel.title} ${written(panel.unit, value)}`;
    if (panel.look === "bars") {
      const inset = columns <= CROWDED ? 0.18 : 0;
      const foot = y(0);
      const bar = (at, value, kind) => {
        const height = Math.max(1, foot - y(value));
        return { from: at + inset, to: at + 1 - inset, y: foot - height, height, fill: panel.colour, class: `nn-mark ${kind}` };
      };
      boxes(bars, rows.flatMap((row, at) => {
        const values = row.values[panel.key];
        if (!values || !Math.max(...values)) return [];
        return values.length > 1 ? [bar(at, values[1], "nn-most"), bar(at, values[0], "")] : [bar(at, values[0], "")];
      }), columns);
    } else {
      const width = panel.key === "quality" ? 1.25 : panel.key === "spent" ? 2.5 : 1.5;
      paths(wide, [
        ...range(rows, panel.key, panel.colour, width, `nn-${panel.key}`),
        ...(panel.key === "quality" ? range(rows, "mean", colours.mean, 3, "nn-mean") : []),
      ]);
      const spotted = columns <= CROWDED && (panel.look === "dots" || columns === 1);
      const spots = !spotted ? [] : rows.flatMap((row, at) =>
        (panel.key === "quality" && row.dots ? row.dots : (row.values[panel.key] ?? []).slice(-1)).map((value) => ({ at, value, row })));
      patch(dots, spots, () => {
        const dot = make("circle", { class: `nn-mark nn-${panel.key}`, fill: panel.colour, r: panel.key === "quality" ? 4 : 2.5 });
        dot.append(make("title"));
        return dot;
      }, (node, { at, value, row }) => {
        put(node, { cx: percent((100 * (at + 0.5)) / columns), cy: y(value).toFixed(1) });
        setText(node.firstElementChild, tip(row, value));
      });
    }
    boxes(would, moved === undefined ? [] : [{ from: 0, to: columns, y: y(moved) - 0.75, height: 1.5, class: "nn-rule nn-would-line" }], columns);

    const now = rows.at(-1).rule[panel.key];
    const limit = now === undefined ? [] : [[y(now), `${panel.limit} ${panel.unit === "share" ? Number(now.toPrecision(3)) : written(panel.unit, now)}`]];
    const ends = (panel.fixed ? [0, 1] : [0]).map((end) => [y(end), String(end)]).filter(([at]) => limit.every(([other]) => Math.abs(other - at) >= 12));
    texts(axisTexts, [...limit, ...ends].map(([at, text]) => ({ x: "100%", y: Math.min(Math.max(at + 4, 9), panel.height - 1), anchor: "end", text })));
    const known = rows.findLast((row) => row.values[panel.key]);
    const last = known ? written(panel.unit, known.values[panel.key].at(-1)) : "";
    setText(caption, last ? `${panel.title} · ${last}` : panel.title);
    put(plot, { "aria-label": `${panel.title}, last ${last || "unknown"}` });
    if (brackets) drawBrackets(thread, rows);
    return now;
  }

  function drawBrackets(thread, rows) {
    const place = (turn) => Math.max(0, rows.findLastIndex((row) => row.turns[0] <= turn)) + 0.5;
    const found = thread.brackets.map(([first, last, , , text, broke]) => {
      let [left, right] = [place(first), place(last)];
      if (right <= left) [left, right] = [left - 0.3, right + 0.3];
      return { left, right, text: text.replace("->", "→"), broke };
    });
    for (const part of [spans[1], brackets]) part.style.display = found.length ? "" : "none";
    put(bracketLines, { viewBox: `0 0 ${rows.length} ${BRACKET}` });
    paths(bracketLines, found.map(({ left, right, broke }) => ({ class: `nn-line ${broke ? "nn-fell" : "nn-window"}`, d: `M${left},23L${left},17L${right},17L${right},23` })));
    texts(bracketTexts, found.map(({ left, right, text }) => {
      const x = (50 * (left + right)) / rows.length;
      return { x: percent(x), y: 12, anchor: x < 12 ? "start" : x > 88 ? "end" : "middle", text };
    }));
  }

  return { box, draw, y: (value) => scale.y(value), value: (y) => scale.value(y) };
}

const keyOf = (handle) => JSON.stringify([handle.predicate, handle.name]);

/** A value within its range and on its step. */
function fitted(handle, value, top) {
  const high = Math.max(handle.high, handle.panel && handle.unit !== "share" ? top : 0);
  const stepped = Math.round(value / handle.step) * handle.step;
  return Number(Math.min(Math.max(stepped, handle.low), handle.step === 1 ? Math.round(high) : high).toFixed(4));
}

export default () => {
  const store = storeOf((data, message) => {
    if (message.type !== "turn") return false; // every column is another: all is asked for again
    if (message.thread > data.threads.length) return false;
    const thread = (data.threads[message.thread] ??= { turns: [], id: message.id });
    Object.assign(thread, message.about);
    data.latest = message.thread;
    if (!thread.turns) return true; // its columns were not asked for yet
    if (message.at > thread.turns.length) return false;
    thread.turns[message.at] = message.row;
    return true;
  });
  // What was dragged, by thread and threshold, and what came of it: shared by all pages of the model in this browser.
  const moved = new Map();

  function render({ model, el }) {
    const { sizes, panels: specs, columns: names } = store.data;
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "Regulator trends" }));
    root.append(make("p", HEADING, "Regulator trends"));
    const empty = root.appendChild(make("p", { class: "nn-empty" }));
    const body = root.appendChild(make("div"));
    const choice = body.appendChild(make("label", { class: "nn-choice" }, "Thread "));
    const select = choice.appendChild(make("select"));
    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const keys = body.appendChild(make("ul", { class: "nn-keys" }));
    const grid = body.appendChild(make("div", { class: "nn-grid" }));

    // Below the pictures in order, so that grips are reached after the turns; its place is over all of them.
    const cursor = make("div", { class: "nn-cursor" });
    const chosenMark = make("div", { class: "nn-cursor nn-chosen" });
    const hits = grid.appendChild(make("div", { class: "nn-hits", tabindex: 0, role: "slider", "aria-label": "Turn", "aria-orientation": "horizontal" }));
    hits.append(cursor, chosenMark);
    grid.append(make("span"));
    const band = grid.appendChild(make("svg", { class: "nn-plot nn-axis", width: "100%", height: sizes.lane, role: "img", "aria-label": "Decisions" }));
    const panels = new Map(specs.map((spec) => [spec.key, panelIn(grid, spec, store.data)]));
    grid.append(make("span", { class: "nn-axis-name" }, "turn"));
    const turnAxis = grid.appendChild(make("svg", { class: "nn-plot nn-axis", width: "100%", height: 18, "aria-hidden": "true" }));
    const drawDecisions = decisionsIn(band, store.data);
    // Last, so that nothing moves under a pointer that drags.
    const insteadName = grid.appendChild(make("span", { class: "nn-axis-name" }, "instead"));
    const instead = grid.appendChild(make("svg", { class: "nn-plot nn-axis", width: "100%", height: sizes.lane, role: "img", "aria-label": "Decisions instead" }));
    const drawInstead = insteadIn(instead, store.data);

    const readout = body.appendChild(make("p", { class: "nn-readout", role: "status" }));
    const outcome = body.appendChild(make("p", { class: "nn-outcome", role: "status", "aria-live": "polite" }));
    const outcomeText = outcome.appendChild(make("span"));
    const back = outcome.appendChild(make("button", { type: "button" }, "As recorded"));
    const others = body.appendChild(store.fold("thresholds", make("details"), () => drawNumbers(threadNow())));
    others.append(make("summary", {}, "Thresholds"));
    const numbers = others.appendChild(make("div"));
    const note = body.appendChild(make("p", { class: "nn-note" }));
    const inside = body.appendChild(store.fold("inside", make("details")));
    const insideHead = inside.appendChild(make("summary"));
    let insideRows = null;
    const decided = body.appendChild(make("details"));
    const decidedHead = decided.appendChild(make("summary"));
    const list = decided.appendChild(make("ul", { class: "nn-list" }));
    // What is open follows the length of the list until someone has chosen.
    decidedHead.addEventListener("click", () => store.open.set("decided", !decided.open));
    decided.addEventListener("toggle", store.changed);
    const behind = body.appendChild(store.fold("table", make("details"), () => drawTable(threadNow())));
    behind.append(make("summary", {}, "Table"));
    let table = null;
    let tableKeys = "";
    inside.hidden = true;
    outcome.hidden = true;

    let wide = -1; // pixels of the band when it was drawn
    let at = -1; // which thread is shown
    let column = null; // which column is read
    let asked = null;
    let opened = null; // the column whose turns are listed
    const threadNow = () => store.data.threads[at];
    const movedNow = () => moved.get(at) ?? { values: new Map(), answer: null };

    select.addEventListener("change", () => {
      model.set("thread_at", Number(select.value));
      model.save_changes();
      store.changed();
    });

    // What other thresholds would have decided: the kernel is asked for the newest only.
    const decideAgain = newest(
      (request) => store.get(model, request).catch((error) => ({ fault: error.message })),
      (answer, request) => {
        const known = moved.get(request.thread);
        if (known && known.values.size) known.answer = answer;
        store.changed();
      },
    );
    let hasAsked = false;
    const prepare = () => {
      // The first answer takes longest, so it is fetched when someone comes near.
      if (hasAsked || at < 0) return;
      hasAsked = true;
      store.get(model, { what: "what_if", thread: at, thresholds: {} }).then(
        (answer) => { threadNow().doubt = answer.note; store.changed(); },
        (error) => { threadNow().doubt = error.message; store.changed(); },
      );
    };
    function move(handle, value) {
      const known = moved.get(at) ?? { values: new Map(), answer: null };
      moved.set(at, known);
      const fit = fitted(handle, value, threadNow().tops[handle.panel] ?? 0);
      if (fit === handle.value) known.values.delete(keyOf(handle));
      else known.values.set(keyOf(handle), fit);
      if (!known.values.size) return asRecorded();
      decideAgain({ what: "what_if", thread: at, thresholds: thresholdsOf(known.values) });
      store.changed();
    }
    function thresholdsOf(values) {
      const found = Object.create(null);
      for (const [key, value] of values) {
        const [predicate, name] = JSON.parse(key);
        (found[predicate] ??= Object.create(null))[name] = value;
      }
      return found;
    }
    function asRecorded() {
      moved.delete(at);
      store.changed();
    }
    back.addEventListener("click", () => {
      asRecorded();
      hits.focus({ preventScroll: true });
    });
    const valueOf = (handle) => movedNow().values.get(keyOf(handle)) ?? handle.value;
    const STEPS = new Map([["ArrowUp", 1], ["ArrowRight", 1], ["ArrowDown", -1], ["ArrowLeft", -1], ["PageUp", 10], ["PageDown", -10]]);

    /** Make a threshold draggable, by pointer and by keys. */
    function gripOf() {
      const grip = make("div", { class: "nn-grip", tabindex: 0, role: "slider", "aria-orientation": "vertical" });
      const own = () => grip.handle;
      grip.addEventListener("focus", prepare);
      grip.addEventListener("keydown", (event) => {
        const handle = own();
        const by = STEPS.get(event.key);
        if (event.key === "Escape") move(handle, handle.value);
        else if (event.key === "Home") move(handle, handle.low);
        else if (event.key === "End") move(handle, topOf(handle));
        else if (by !== undefined) move(handle, valueOf(handle) + by * stepOf(handle));
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
      grip.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        grip.focus({ preventScroll: true });
        grip.setPointerCapture(event.pointerId);
        prepare();
        const handle = own();
        const panel = panels.get(handle.panel);
        const drag = (next) => move(handle, panel.value(next.clientY - panel.box.getBoundingClientRect().top));
        const end = () => ["pointermove", "pointerup", "pointercancel"].forEach((name) => grip.removeEventListener(name, name === "pointermove" ? drag : end));
        grip.addEventListener("pointermove", drag);
        grip.addEventListener("pointerup", end);
        grip.addEventListener("pointercancel", end);
      });
      return grip;
    }
    const topOf = (handle) => fitted(handle, Infinity, threadNow().tops[handle.panel] ?? 0);
    // A hundredth of the range where the value counts in thousands: one token more changes nothing.
    const stepOf = (handle) => (handle.step === 1 ? Math.max(1, Math.round(topOf(handle) / 100)) : Math.max(handle.step, handle.unit === "usd" ? topOf(handle) / 100 : 0));
    const grips = new Map();
    for (const [key, panel] of panels) {
      const grip = panel.box.appendChild(gripOf());
      grip.hidden = true;
      grips.set(key, grip);
    }
    const sliderState = (node, handle) => {
      const value = valueOf(handle);
      put(node, { "aria-label": handle.label, "aria-valuemin": handle.low, "aria-valuemax": topOf(handle), "aria-valuenow": value,
        "aria-valuetext": `${written(handle.unit, value)}${value === handle.value ? ", as recorded" : `, recorded ${written(handle.unit, handle.value)}`}` });
    };

    function readColumn(rows, thread) {
      const row = rows[column ?? rows.length - 1] ?? rows.at(-1);
      const order = Object.keys(names);
      return thread.cells.map((key) => [key, row.cells[order.indexOf(key)]])
        .filter(([, text]) => text)
        .map(([key, text]) => (key === "decisions" ? text : `${names[key].toLowerCase()} ${text}`).replace(/^turn (.*–.*)$/, "turns $1"))
        .join(" · ").replace(/^t/, "T");
    }
    function go(to) {
      const rows = threadNow()?.turns ?? [];
      column = Math.min(Math.max(to, 0), rows.length - 1);
      store.changed();
    }
    const columnAt = (event) => {
      const frame = hits.getBoundingClientRect();
      return Math.floor(((event.clientX - frame.left) / frame.width) * (threadNow()?.turns?.length ?? 1));
    };
    hits.addEventListener("pointermove", (event) => go(columnAt(event)));
    hits.addEventListener("click", (event) => {
      go(columnAt(event));
      choose();
    });
    hits.addEventListener("keydown", (event) => {
      const last = (threadNow()?.turns?.length ?? 1) - 1;
      const now = column ?? last;
      const to = new Map([["ArrowLeft", now - 1], ["ArrowRight", now + 1], ["Home", 0], ["End", last], ["PageUp", now - 10], ["PageDown", now + 10]]).get(event.key);
      if (to !== undefined) go(to);
      else if (event.key === "Enter" || event.key === " ") choose();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    hits.addEventListener("focus", () => go(column ?? (threadNow()?.turns?.length ?? 1) - 1));
    function choose() {
      const thread = threadNow();
      const row = thread?.turns?.[column];
      if (!row) return;
      if (row.turns[0] !== row.turns[1]) return list_turns(column);
      store.select(model, { thread_id: thread.id, turn: row.turns[0] });
    }
    /** List the turns that share a column: each of them can be chosen. */
    async function list_turns(which) {
      const thread = at;
      const found = await store.get(model, { what: "turns", thread, at: which });
      opened = { thread, which, found };
      store.open.set("inside", (inside.open = true));
      store.changed();
    }

    function draw(data) {
      const chosen = model.get("thread_at");
      const shown = chosen >= 0 && chosen < data.threads.length ? chosen : data.latest;
      if (shown !== at) {
        [at, column, opened, hasAsked] = [shown, null, null, false];
      }
      const thread = data.threads[at];
      if (thread && !thread.turns && asked !== at) {
        asked = at;
        store.get(model, { what: "thread", thread: at }).then((whole) => {
          Object.assign(thread, whole);
          store.changed();
        });
      }
      const rows = thread?.turns ?? [];
      const none = rows.length === 0;
      empty.hidden = !none;
      body.hidden = none;
      setText(empty, data.empty);
      if (none) return;

      choice.hidden = data.threads.length < 2;
      const options = [[-1, "latest"], ...data.threads.map((one, place) => [place, one.name])];
      patch(select, options, () => make("option"), (option, [value, name]) => {
        option.value = value;
        setText(option, name);
      });
      select.value = String(chosen);
      setText(sub, thread.head);
      const legend = [[data.colours.quality, "nn-quality", "quality of a turn"]];
      if (thread.window) legend.push([data.colours.mean, null, `mean of the last ${thread.window}`]);
      if (rows.some((row) => row.broken)) legend.push([data.colours.mean, "nn-broken-key", "broken"]);
      patch(keys, legend, () => {
        const entry = make("li");
        entry.append(swatchOf({ width: 12, height: 12 }), make("span"));
        return entry;
      }, (entry, [colour, kind, name]) => {
        put(entry.firstElementChild.firstElementChild, { fill: colour, class: kind });
        setText(entry.lastElementChild, name);
      });

      const known = movedNow();
      const answer = known.answer && !known.answer.fault ? known.answer : null;
      wide = band.clientWidth;
      const placed = lanesOf(rows, Math.max(wide, sizes.narrow), sizes);
      drawDecisions(rows, placed);
      for (const part of [insteadName, instead]) part.style.display = answer ? "" : "none";
      drawInstead(rows.length, answer?.marks ?? []);
      const byPanel = new Map(thread.handles.filter(({ panel }) => panel).map((handle) => [handle.panel, handle]));
      for (const [key, panel] of panels) {
        const handle = byPanel.get(key);
        const value = handle ? known.values.get(keyOf(handle)) : undefined;
        const drawn = panel.draw(thread, rows, value, answer);
        const grip = grips.get(key);
        grip.hidden = drawn === null || !handle;
        if (grip.hidden) continue;
        grip.handle = handle;
        grip.style.top = `${panel.y(value ?? handle.value).toFixed(1)}px`;
        sliderState(grip, handle);
        grip.title = `${handle.label}: ${written(handle.unit, value ?? handle.value)}`;
      }
      const every = Math.ceil(rows.length / 10);
      texts(turnAxis, rows.map((row, place) => ({ x: percent((100 * (place + 0.5)) / rows.length), y: 13, anchor: place === 0 && every > 1 ? "start" : "middle", text: String(row.turns[0]) })).filter((_, place) => place % every === 0));

      drawCursor(data, thread, rows);
      outcome.hidden = !known.values.size;
      setText(outcomeText, known.answer?.fault ?? known.answer?.text ?? (known.values.size ? "Deciding again…" : ""));
      others.hidden = thread.handles.length === 0;
      if (others.open) drawNumbers(thread);
      const columns = thread.size > 1 ? `Each column is ${thread.size} turns: the least and the greatest of their values.` : "";
      const decisions = rows.flatMap((row) => (row.marks ?? []).map(([, , text]) => text.replace("->", "→")));
      setText(note, [columns, decisions.length ? "" : "No decision to warn, change or stop.", thread.note, thread.doubt].filter(Boolean).join(" "));
      note.hidden = !note.textContent;
      decided.hidden = decisions.length === 0;
      decided.open = store.open.get("decided") ?? decisions.length <= sizes.listed;
      setText(decidedHead, `Decisions: ${decisions.length}`);
      if (decided.open) patch(list, decisions, () => make("li"), setText);
      if (behind.open) drawTable(thread);
      drawInside(thread);
    }

    function drawCursor(data, thread, rows) {
      const last = rows.length - 1;
      const now = Math.min(column ?? last, last);
      const width = 100 / rows.length;
      const span = (node, place) => {
        node.hidden = place < 0;
        node.style.left = percent(place * width);
        node.style.width = percent(width);
      };
      span(cursor, column === null ? -1 : now);
      const { thread_id: id, turn } = store.selection;
      const isHere = turn !== null && turn !== undefined && (id === null || id === undefined || id === thread.id);
      const place = isHere ? rows.findIndex((row) => row.turns[0] <= turn && turn <= row.turns[1]) : -1;
      span(chosenMark, place);
      put(chosenMark, { "data-turn": place < 0 ? null : turn });
      const text = readColumn(rows, thread);
      setText(readout, text);
      put(hits, { "aria-valuemin": rows[0].turns[0], "aria-valuemax": rows[last].turns[1], "aria-valuenow": rows[now].turns[0], "aria-valuetext": text || `Turn ${rows[now].cells[0]}` });
    }

    /** Every number of the regulator as a slider; those that have a picture are there as grips too. */
    function drawNumbers(thread) {
      patch(numbers, thread.handles, () => {
        const row = make("div", { class: "nn-numbers" });
        const slider = make("input", { type: "range" });
        slider.addEventListener("focus", prepare);
        slider.addEventListener("input", () => move(row.handle, Number(slider.value)));
        row.append(make("span"), slider, make("output"));
        return row;
      }, (row, handle) => {
        row.handle = handle;
        const [name, slider, output] = row.children;
        const apart = handle.predicate.includes("(") || handle.predicate.includes("#") ? ` · ${handle.predicate}` : "";
        setText(name, `${handle.label}${apart}`);
        put(slider, { min: handle.low, max: topOf(handle), step: handle.step });
        slider.value = String(valueOf(handle));
        sliderState(slider, handle);
        setText(output, written(handle.unit, valueOf(handle)));
      });
    }

    function drawTable(thread) {
      if (tableKeys !== thread.cells.join()) {
        tableKeys = thread.cells.join();
        behind.querySelector(".nn-scroll")?.remove();
        table = tableIn(behind, "Table", thread.cells.map((key) => names[key]), { scroll: "nn-scroll nn-tall", wordy: (name) => name === names.decisions });
      }
      fillTable(table, thread.cells, thread.turns);
    }
    function fillTable(target, shownKeys, rows) {
      const order = Object.keys(names);
      patch(target, rows, () => {
        const row = namedRow(shownKeys.length - 1);
        row.lastElementChild.className = "nn-text";
        return row;
      }, (row, { cells }) => shownKeys.forEach((key, place) => setText(row.children[place], cells[order.indexOf(key)])));
    }

    function drawInside(thread) {
      inside.hidden = !opened || opened.thread !== at;
      if (inside.hidden) return;
      const { found } = opened;
      setText(insideHead, `Turns ${found[0].turn} to ${found.at(-1).turn}`);
      if (!insideRows) insideRows = tableIn(inside, "Turns of a column", ["Turn", ...thread.cells.slice(1).map((key) => names[key])], { scroll: "nn-scroll nn-tall", wordy: (name) => name === names.decisions });
      fillTable(insideRows, thread.cells, found);
      found.forEach(({ turn }, place) => {
        const name = insideRows.children[place].firstElementChild;
        if (name.firstElementChild?.tagName === "BUTTON") return setText(name.firstElementChild, String(turn));
        const button = make("button", { type: "button" }, String(turn));
        button.addEventListener("click", () => store.select(model, { thread_id: thread.id, turn: Number(button.textContent) }));
        name.replaceChildren(button);
      });
    }

    const hide = store.show({ model, root, draw, traits: ["thread_at"] });
    const resized = new ResizeObserver(() => band.clientWidth !== wide && store.changed());
    resized.observe(root);
    return () => {
      resized.disconnect();
      hide();
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
