// Quality and output tokens per turn. The kernel sends what a turn is drawn as; here it is placed, turns in percent of the
// width and values in pixels of the height (as in trends_picture.py).

const percent = (value) => `${value.toFixed(3)}%`;

/** Give each decision a lane in which its label fits this page; without labels where words would be covered. */
function lanesOf(turns, width, sizes) {
  const [placed, covered] = tryLanes(turns, width, true, sizes);
  return covered ? tryLanes(turns, width, false, sizes)[0] : placed;
}

function tryLanes(turns, width, words, sizes) {
  const ends = Array(sizes.lanes).fill(-1);
  const room = 960 / width; // percent that the shape itself takes
  let covered = false;
  const placed = turns.flatMap((turn, at) =>
    turn.marks.map(([kind, label, tip]) => {
      const x = (100 * (at + 0.5)) / turns.length;
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

const lines = (parent, points, colour, width, kind = "") =>
  patch(
    parent,
    points.slice(1).map((point, at) => [points[at], point]),
    () => make("line", { class: kind, stroke: colour, "stroke-width": width, "stroke-linecap": "round" }),
    (node, [from, to]) => put(node, { x1: percent(from[0]), y1: from[1].toFixed(1), x2: percent(to[0]), y2: to[1].toFixed(1) }),
  );

const dots = (parent, rows, colour, r, kind = "") =>
  patch(parent, rows, () => make("circle", { class: `nn-mark ${kind}`, fill: colour }).appendChild(make("title")).parentNode, (node, row) => {
    put(node, { r, cx: percent(row.x), cy: row.y.toFixed(1) });
    setText(node.firstElementChild, row.text);
  });

const guides = (parent, placed) =>
  patch(parent, placed, () => make("rect", { class: "nn-guide", width: 1, height: "100%" }), (node, { x }) => put(node, { x: percent(x) }));

function markShape() {
  const box = make("svg", { overflow: "visible" });
  box.append(make("title"), make("path", { class: "nn-mark" }), make("text", { y: 4, "font-size": 11.5, fill: "currentColor" }));
  return box;
}

/** The band of decisions; returns what draws it. */
function decisionsIn(svg, { sizes, looks }) {
  return (placed) => {
    const used = placed.length ? 1 + Math.max(...placed.map(({ lane }) => lane)) : 0;
    put(svg, { height: used * sizes.lane, visibility: used ? null : "hidden" });
    patch(svg, placed, markShape, (box, spot) => {
      const [colour, path] = looks[spot.kind] ?? looks[""];
      const [title, shape, text] = box.children;
      put(box, { x: percent(spot.x), y: (spot.lane + 0.5) * sizes.lane });
      put(shape, { d: path, fill: colour });
      put(text, { x: spot.left ? -11 : 11, "text-anchor": spot.left ? "end" : "start" });
      setText(title, spot.tip);
      setText(text, spot.label);
    });
  };
}

function layers(svg, count) {
  for (let at = 0; at < count; at += 1) svg.append(make("g"));
  return [...svg.children].slice(-count);
}

/** The upper picture; returns what draws it. */
function qualityIn(svg, axis, { sizes, colours: [blue, red] }) {
  const band = svg.appendChild(make("rect", { class: "nn-mark", width: "100%", fill: red, "fill-opacity": 0.12 }));
  const rule = svg.appendChild(make("rect", { class: "nn-rule", width: "100%", height: 1.5 }));
  const [guide, thin, thick, meanDots, qualityDots] = layers(svg, 5);
  return (thread, turns, xs, marked) => {
    const visibility = thread.poor === null ? "hidden" : null; // a recording without thresholds
    const poorAt = thread.poor ?? 0;
    put(band, { y: poorAt, height: sizes.quality - sizes.pad - poorAt, visibility });
    put(rule, { y: poorAt - 0.75, visibility });
    texts(axis, thread.ticks.map(([y, text]) => ({ x: "100%", y: y + 4, anchor: "end", text })));
    const graded = turns.map((turn, at) => ({ turn, x: xs[at] })).filter(({ turn }) => turn.dots.length);
    const means = graded.filter(({ turn }) => turn.mean).map(({ turn, x }) => ({ x, y: turn.mean[0], text: turn.mean[1] }));
    put(svg, { "aria-label": `Quality. ${thread.head}` });
    guides(guide, marked);
    lines(thin, graded.map(({ turn, x }) => [x, turn.dots.at(-1)[0]]), blue, 1.25, "nn-quality-line");
    lines(thick, means.map(({ x, y }) => [x, y]), red, 3.5);
    dots(meanDots, means, red, 2.5);
    const grades = graded.flatMap(({ turn, x }) => turn.dots.map(([y, text]) => ({ x, y, text })));
    dots(qualityDots, grades, blue, turns.length <= sizes.crowded ? 4 : 2, "nn-quality");
  };
}

/** The lower picture; returns what draws it. */
function tokensIn(svg, axis, { sizes, colours: [, red, green] }) {
  const [guide, columns, total] = layers(svg, 3);
  const capLine = svg.appendChild(make("rect", { class: "nn-rule", width: "100%", height: 1.5 }));
  return (thread, turns, marked) => {
    const { cap } = thread;
    const top = sizes.headroom * Math.max(1, cap ?? 0, ...turns.map((turn) => turn.spent));
    const step = 100 / turns.length;
    put(svg, { "aria-label": `Output tokens. ${thread.head}` });
    guides(guide, marked);
    const spending = turns.map((turn, at) => ({ turn, at })).filter(({ turn }) => turn.spent > 0);
    patch(columns, spending, () => make("rect", { class: "nn-mark" }).appendChild(make("title")).parentNode, (node, { turn, at }) => {
      const height = Math.max(1, (sizes.tokens * turn.spent) / top);
      const over = cap !== null && turn.spent >= cap;
      put(node, { x: percent((at + 0.18) * step), width: percent(0.64 * step), y: (sizes.tokens - height).toFixed(1), height: height.toFixed(1), fill: over ? red : green });
      setText(node.firstElementChild, turn.tip);
    });
    const last = turns.at(-1);
    texts(total, [{ x: percent(100 - step / 2), y: sizes.tokens * (1 - last.spent / top) - 4, anchor: turns.length <= 8 ? "middle" : "end", text: last.cells[3] }]);
    const capAt = sizes.tokens * (1 - (cap ?? 0) / top);
    put(capLine, { y: capAt - 0.75, visibility: cap === null ? "hidden" : null });
    const labels = cap === null ? [] : [{ x: "100%", y: capAt + 4, anchor: "end", text: thread.capLabel }];
    texts(axis, [...labels, { x: "100%", y: sizes.tokens - 1, anchor: "end", text: "0" }]);
  };
}

export default () => {
  const store = storeOf((data, message) => {
    if (message.type !== "turn") return true;
    if (message.thread > data.threads.length) return false;
    const thread = (data.threads[message.thread] ??= { turns: [] });
    if (message.at > thread.turns.length) return false;
    Object.assign(thread, message.about);
    thread.turns[message.at] = message.row;
    data.latest = message.thread;
    return true;
  });

  function render({ model, el }) {
    const { sizes, columns: names } = store.data;
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "Regulator trends" }));
    root.append(make("p", { class: "nn-title" }, "Regulator trends"));
    const empty = root.appendChild(make("p", { class: "nn-empty" }));
    const body = root.appendChild(make("div"));
    const choice = body.appendChild(make("label", { class: "nn-choice" }, "Thread "));
    const select = choice.appendChild(make("select"));
    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const keys = body.appendChild(make("ul", { class: "nn-keys" }));
    const grid = body.appendChild(make("div", { class: "nn-grid" }));
    const plot = (height, label) =>
      grid.appendChild(make("svg", { width: "100%", height, ...(label ? { class: "nn-plot", role: "img" } : { class: "nn-plot nn-axis", "aria-hidden": "true" }) }));

    grid.append(make("span"));
    const band = plot(sizes.lane, true);
    put(band, { "aria-label": "Decisions", class: "nn-plot nn-axis" });
    const qualityAxis = plot(sizes.quality, false);
    const quality = plot(sizes.quality, true);
    const tokensAxis = plot(sizes.tokens, false);
    const tokens = plot(sizes.tokens, true);
    grid.append(make("span", { class: "nn-axis-name" }, "turn"));
    const turnAxis = plot(18, false);

    const drawDecisions = decisionsIn(band, store.data);
    const drawQuality = qualityIn(quality, qualityAxis, store.data);
    const drawTokens = tokensIn(tokens, tokensAxis, store.data);

    const note = body.appendChild(make("p", { class: "nn-note" }));
    const decided = body.appendChild(make("details"));
    const decidedHead = decided.appendChild(make("summary"));
    const list = decided.appendChild(make("ul", { class: "nn-list" }));
    // What is open follows the length of the list until someone has chosen.
    decidedHead.addEventListener("click", () => (store.open.decided = !decided.open));
    const behind = body.appendChild(store.fold("table", make("details")));
    behind.append(make("summary", {}, "Table"));
    const rows = tableIn(behind, "Table", names, { wordy: (name) => name === names.at(-1) });

    select.addEventListener("change", () => {
      model.set("thread_at", Number(select.value));
      model.save_changes();
      store.changed();
    });

    function draw(data) {
      const chosen = model.get("thread_at");
      const thread = data.threads[chosen >= 0 && chosen < data.threads.length ? chosen : data.latest];
      const none = !thread || thread.turns.length === 0;
      empty.hidden = !none;
      body.hidden = none;
      setText(empty, data.empty);
      if (none) return;

      choice.hidden = data.threads.length < 2;
      const options = [[-1, "latest"], ...data.threads.map((one, at) => [at, one.name])];
      patch(select, options, () => make("option"), (option, [value, name]) => {
        option.value = value;
        setText(option, name);
      });
      select.value = String(chosen);
      setText(sub, thread.head);
      patch(keys, thread.keys, () => {
        const entry = make("li");
        entry.append(swatchOf({ width: 12, height: 12 }), make("span"));
        return entry;
      }, (entry, [colour, name], at) => {
        put(entry.firstElementChild.firstElementChild, { fill: colour, class: at === 0 ? "nn-quality" : null });
        setText(entry.lastElementChild, name);
      });

      const turns = thread.turns.slice(-sizes.most);
      const earlier = thread.turns.length - turns.length;
      const placed = lanesOf(turns, Math.max(band.clientWidth, sizes.narrow), sizes);
      const at = [...new Map(placed.map((spot) => [spot.x, spot])).values()]; // one line for several decisions of a turn
      const xs = turns.map((_, at) => (100 * (at + 0.5)) / turns.length);
      drawDecisions(placed);
      drawQuality(thread, turns, xs, at);
      drawTokens(thread, turns, at);
      const every = Math.ceil(turns.length / 10);
      texts(turnAxis, turns.map((turn, at) => ({ x: percent(xs[at]), y: 13, anchor: at === 0 && every > 1 ? "start" : "middle", text: turn.cells[0] })).filter((_, at) => at % every === 0));

      const decisions = turns.flatMap((turn) => turn.marks.map(([, , text]) => text));
      const shown = earlier ? `${earlier} earlier turns are not shown.` : decisions.length ? "" : "No decision to warn, change or stop.";
      setText(note, [shown, thread.note].filter(Boolean).join(" "));
      note.hidden = !note.textContent;
      decided.hidden = decisions.length === 0;
      decided.open = store.open.decided ?? decisions.length <= sizes.listed;
      setText(decidedHead, `Decisions: ${decisions.length}`);
      patch(list, decisions, () => make("li"), setText);
      patch(rows, turns, () => {
        const row = namedRow(4);
        row.lastElementChild.className = "nn-text";
        return row;
      }, (row, turn) => {
        turn.cells.forEach((text, at) => setText(row.children[at], text));
      });
    }

    const hide = store.show({ model, root, draw, traits: ["thread_at"] });
    const resized = new ResizeObserver(store.changed);
    resized.observe(root);
    return () => {
      resized.disconnect();
      hide();
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
