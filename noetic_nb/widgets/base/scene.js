// Draws scenes as described in plots/_scene/scene.py: panels with scales, and marks in their units. Independent of views.

/** Map a value or lane of a panel to pixels from its top, and back. */
function scaleOf(panel, pad) {
  if (panel.lanes) {
    const half = panel.height / panel.lanes.length / 2;
    const y = (lane) => (2 * panel.lanes.indexOf(lane) + 1) * half;
    return { y, span: (lane) => (lane === null ? [0, panel.height] : [y(lane) - half + 1, y(lane) + half - 1]) };
  }
  const [room, reach] = [panel.height - 2 * pad, panel.high - panel.low];
  const y = (value) => pad + (1 - Math.min(Math.max((value - panel.low) / reach, 0), 1)) * room;
  return {
    y,
    span: (low, high) => [high === null ? 0 : y(high), low === null ? panel.height : y(low)],
    value: (at) => panel.low + reach * (1 - (at - pad) / room),
  };
}

/** Sort marks by series: marks of parts by index, and marks with their own positions. */
function marksOf(series, parts, whole) {
  const found = new Map(series.map(({ name }) => [name, []]));
  parts.forEach((row, at) => {
    for (const [place, ...given] of row) {
      const { name, kind, left, right } = series[place];
      const [x, end] = [at + left, at + right];
      if (kind === "box") found.get(name).push([[x, given[0], end, given[1]]]);
      else if (kind === "step") found.get(name).push([[x, given[0], end]]);
      else if (kind === "shape") found.get(name).push([[x, given[0]], given[1]]);
      else found.get(name).push([given.length ? [x, ...given] : []]);
    }
  });
  for (const [name, ...mark] of whole) found.get(name)?.push(mark);
  return found;
}

const pixels = (value) => Number(value.toFixed(2));

/** Return the path of the marks of one series. */
function pathOf(kind, { y, span }, marks) {
  const area = [];
  let joined = false;
  let end = null; // of the previous step
  const path = marks.map(([points]) => {
    if (kind === "box") {
      const [top, foot] = span(points[1], points[3]);
      return `M${points[0]},${pixels(top)}H${points[2]}V${pixels(foot)}H${points[0]}Z`;
    }
    if (kind === "step") { // draw equal steps as one line, because each new line would restart its dashes
      const height = pixels(y(points[1]));
      const start = end?.[0] === points[0] && end[1] === height ? "" : `M${points[0]},${height}`;
      end = [points[2], height];
      return `${start}H${points[2]}`;
    }
    if (kind === "dot") return `M${points[0]},${pixels(y(points[1]))}h0`;
    if (kind === "area") {
      area.push([points[0], pixels(y(points[1])), pixels(y(points[2]))]);
      return "";
    }
    let line = "";
    for (let at = 0; at < points.length; at += 2) {
      line += `${joined ? "L" : "M"}${points[at]},${pixels(y(points[at + 1]))}${joined ? "" : "h0"}`;
      joined = true;
    }
    joined &&= points.length > 0;
    return line;
  }).join("");
  if (!area.length) return path;
  return `M${[...area.map(([x, , high]) => `${x},${high}`), ...area.reverse().map(([x, low]) => `${x},${low}`)].join("L")}Z`;
}

/** Return a scene from the kernel with the data that `draw` needs: its marks by series, each with its words. */
function sceneOf({ marks, texts, ...data }) {
  const whole = ([points, text = 0, words = 0, sign = 0, tone = "", key = ""]) => [points, texts[text], texts[words], texts[sign], tone, key];
  return { ...data, marks: new Map(Object.entries(marks).map(([name, found]) => [name, found.map(whole)])), over: new Map() };
}

const WORDS_PX = 34;
const SIGN_PX = 14;
const LEAST_HIGH = 2;

/** Draw the bars of a panel: one node each, found by key, so that the focus stays on the same thing. */
function drawBars(layer, { panel, scale }, found, first, last) {
  const px = (layer.clientWidth || 600) / (last - first);
  const lanes = new Map(panel.lanes?.map((lane, at) => [lane, at]));
  const bars = found.flatMap(({ look, marks }) => marks.map(([[left, lane, right, end], text, words, sign, tone, key]) => ({ key, look, lane, end, row: lanes.get(lane), left, right, text, words, sign, tone })));
  const seen = bars.filter(({ left, right }) => right >= first && left <= last).sort((a, b) => a.row - b.row || a.left - b.left);
  const free = new Map(); // by row, the first pixel without a sign, because overlapping signs are unreadable
  keyed(layer, seen, () => make("div", { class: "nn-mark nn-box", role: "button", tabindex: -1 }), (node, bar) => {
    const [left, right] = [Math.max(bar.left, first), Math.min(bar.right, last)];
    const [top, foot] = scale.span(bar.lane, bar.end);
    const high = Math.max(foot - top, LEAST_HIGH);
    const at = (left - first) * px;
    const wide = (right - left) * px >= WORDS_PX;
    const stands = bar.sign !== "" && !(wide && bar.words) && at >= (free.get(bar.row) ?? 0);
    node.bar = bar;
    put(node, {
      style: `left:${pixels((100 * (left - first)) / (last - first))}%;width:${pixels((100 * (right - left)) / (last - first))}%;top:${top}px;height:${high}px;line-height:${high}px;${bar.look.box}`,
      "data-kind": bar.look.name, "data-tone": bar.tone || null, "data-wide": wide || null, "data-sign": stands || null,
      "data-readout": bar.text, "aria-label": bar.text,
    });
    if (!stands) return setText(node, wide ? [bar.sign, bar.words].filter(Boolean).join(" ") : "");
    free.set(bar.row, at + SIGN_PX);
    if (!node.firstElementChild) node.replaceChildren(make("span", { class: "nn-sign" }));
    put(node.firstElementChild, { "data-last": at > 0.96 * px * (last - first) || null });
    setText(node.firstElementChild, bar.sign);
  });
}

/** Move between bars by keys: along a row, to the nearest bar of the next row, to either end; click, Enter and space `use` one. */
function barKeys(parent, moved, use) {
  const middle = ({ bar }) => bar.left + bar.right;
  parent.addEventListener("click", (event) => {
    const bar = event.target.closest(".nn-box");
    if (bar) use?.(bar);
  });
  parent.addEventListener("keydown", (event) => {
    const from = event.target.closest(".nn-box");
    if (!from || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (use && (event.key === "Enter" || event.key === " ")) return (event.preventDefault(), use(from));
    const all = [...parent.querySelectorAll(".nn-box")];
    const bars = all.filter(({ bar }) => bar.row === from.bar.row);
    const at = bars.indexOf(from);
    const beside = (step) => {
      const rows = all.map(({ bar }) => bar.row).filter((row) => step * (row - from.bar.row) > 0);
      const next = step > 0 ? Math.min(...rows) : Math.max(...rows);
      const near = (one, other) => (Math.abs(middle(other) - middle(from)) < Math.abs(middle(one) - middle(from)) ? other : one);
      return rows.length ? all.filter(({ bar }) => bar.row === next).reduce(near) : from;
    };
    const to = {
      ArrowRight: () => bars[Math.min(at + 1, bars.length - 1)],
      ArrowLeft: () => bars[Math.max(at - 1, 0)],
      ArrowDown: () => beside(1),
      ArrowUp: () => beside(-1),
      Home: () => bars[0],
      End: () => bars.at(-1),
    }[event.key]?.();
    if (to === undefined) return;
    event.preventDefault();
    put(from, { tabindex: -1 });
    put(to, { tabindex: 0 });
    to.focus();
    moved(to);
  });
}

/** Give one bar the tab stop: the focused or wanted one, otherwise the chosen one, otherwise the first. */
function oneStop(parent, isWanted, hadFocus) {
  const bars = [...parent.querySelectorAll(".nn-box")];
  const stop = bars.find(isWanted) ?? bars.find((node) => node.getAttribute("aria-pressed") === "true") ?? bars[0];
  if (hadFocus && stop && stop !== document.activeElement) {
    put(stop, { tabindex: 0 });
    stop.focus({ preventScroll: true });
  }
  for (const node of bars) put(node, { tabindex: node === stop ? 0 : -1 });
}

/** Mark a part of a box by dragging: calls `done` with its ends as fractions of the width. A press without a move is a click. */
function dragRange(parent, boxOf, done) {
  const mark = make("div", { class: "nn-range", hidden: "" });
  let from = null;
  let now = null;
  const share = (event) => {
    const box = boxOf().getBoundingClientRect();
    return Math.max(0, Math.min((event.clientX - box.left) / Math.max(1, box.width), 1));
  };
  const show = () => {
    const isOpen = from !== null && now !== null;
    mark.hidden = !isOpen;
    if (!isOpen) return;
    boxOf().append(mark);
    put(mark, { style: `left:${100 * Math.min(from, now)}%;width:${100 * Math.abs(now - from)}%` });
  };
  const end = () => {
    const part = now === null ? null : [Math.min(from, now), Math.max(from, now)];
    from = now = null;
    show();
    return part;
  };
  parent.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch") from = share(event);
  });
  parent.addEventListener("pointermove", (event) => {
    if (from === null || !event.buttons) return;
    if (now === null && Math.abs(share(event) - from) * boxOf().clientWidth < 5) return;
    // Capture the pointer only now: captured earlier, it could not click on a bar.
    if (now === null) parent.setPointerCapture(event.pointerId);
    now = share(event);
    show();
  });
  parent.addEventListener("pointerup", () => {
    const part = end();
    if (part) done(...part);
  });
  parent.addEventListener("pointercancel", end);
  return end;
}

const labels = (parent, rows) =>
  patch(parent, rows, () => make("text", { "font-size": 11, fill: "currentColor" }), (node, { text, ...place }) => {
    put(node, place);
    setText(node, text);
  });

/** One panel: its caption, its axis and its plot. */
function panelNodes(panel) {
  const caption = make("span", { class: "nn-caption" });
  const axis = make("svg", { class: "nn-plot nn-axis", width: "100%", "aria-hidden": "true" });
  const box = make("div", { class: "nn-plotbox" });
  const plot = box.appendChild(make("svg", { class: "nn-plot", width: "100%", role: "img" }));
  const lines = plot.appendChild(make("svg", { class: "nn-lines", width: "100%", preserveAspectRatio: "none" }));
  const bars = make("div", { class: "nn-bars" });
  return { key: panel.key, blank: make("span"), caption, axis, box, plot, lines, single: plot.appendChild(make("g")), bars };
}

/**
 * Draw a scene into a grid; returns the drawing function and the panels by key. A scene has `panels`, `captions`, `marks` (by
 * series), `over` (marks in front, which change while the others stay), `first`, `last` and `ticks`. Bars are left to `use` by
 * click and keys; `isPressed` tells those that are chosen, `isStop` the one with the tab stop: that reached last by keys.
 */
function sceneIn(grid, { series, pad, axis: name, use, isPressed, isStop }) {
  const panels = new Map();
  const body = grid.appendChild(make("div", { class: "nn-plot-rows" }));
  let pointed = "";
  barKeys(body, ({ bar }) => (pointed = bar.key), use);
  grid.append(make("span", { class: "nn-axis-name" }, name));
  const tips = make("svg", { class: "nn-tips", width: "100%", height: "100%", "aria-hidden": "true" });
  const foot = grid.appendChild(make("svg", { class: "nn-plot nn-axis", width: "100%", height: 18, "aria-hidden": "true" }));

  function drawPanel(row, scene) {
    const { panel, nodes, scale } = row;
    const { first, last } = scene;
    const percent = (x) => `${((100 * (x - first)) / (last - first)).toFixed(3)}%`;
    const title = scene.captions[panel.key] ?? "";
    nodes.caption.hidden = nodes.blank.hidden = !title;
    setText(nodes.caption, title);
    put(nodes.plot, { height: panel.height, "aria-label": title || panel.key });
    put(nodes.axis, { height: panel.height });
    put(nodes.lines, { height: panel.height, viewBox: `${first} 0 ${last - first} ${panel.height}` });
    labels(nodes.axis, panel.ticks.map(([value, text]) => ({ x: "100%", y: Math.min(Math.max(scale.y(value) + 4, 9), panel.height - 1), "text-anchor": "end", text })));
    const here = series.filter((look) => look.panel === panel.key || (look.panel === "*" && !panel.lanes && panel.ticks.length));
    const found = here.map((look) => ({ key: look.name, look, marks: scene.over.get(look.name)?.length ? scene.over.get(look.name) : scene.marks.get(look.name) ?? [] })).filter(({ marks }) => marks.length);
    const isBar = ({ look }) => look.kind === "bar";
    const isSingle = ({ look }) => look.kind === "shape" || look.kind === "text";
    keyed(nodes.lines, found.filter((each) => !isSingle(each) && !isBar(each)), ({ look }) => make("path", { class: `nn-mark nn-${look.name}`, style: look.style }), (node, { look, marks }) => {
      if (node.marks === marks && node.scale === scale) return; // most panels stay unchanged while a handle moves
      [node.marks, node.scale] = [marks, scale];
      put(node, { d: pathOf(look.kind, scale, marks) });
    });
    const single = found.filter(isSingle).flatMap(({ look, marks }) => marks
      .filter(([[x, y]]) => x >= first && x <= last && (!panel.lanes || panel.lanes.includes(y)))
      .map(([[x, y], text], at) => ({ key: `${look.name} ${at}`, look, x, y, text })));
    keyed(nodes.single, single, ({ look }) => {
      if (look.kind === "text") return make("text", { "font-size": 11, fill: "currentColor", class: panel.lanes ? "nn-ground" : null });
      const box = make("svg", { overflow: "visible" });
      box.append(make("title"), make("path", { class: `nn-mark nn-${look.name}`, style: look.style, d: look.path }));
      return box;
    }, (node, { look, x, y, text }) => {
      const share = (x - first) / (last - first);
      put(node, { x: percent(x), y: scale.y(y) + (look.kind === "text" && panel.lanes ? 4 : 0), "text-anchor": look.kind === "text" ? (share < 0.12 ? "start" : share > 0.88 ? "end" : "middle") : null });
      setText(look.kind === "text" ? node : node.firstElementChild, text);
    });
    const bars = found.filter(isBar);
    if (bars.length && !nodes.bars.isConnected) nodes.box.append(nodes.bars);
    drawBars(nodes.bars, row, bars, first, last);
  }

  function draw(scene) {
    const hadFocus = body.contains(document.activeElement);
    keyed(body, scene.panels, (panel) => {
      const nodes = panelNodes(panel);
      const row = make("div", { class: "nn-plot-row" });
      row.append(nodes.blank, nodes.caption, nodes.axis, nodes.box);
      panels.set(panel.key, (row.nodes = nodes));
      return row;
    }, (row, panel) => {
      if (row.panel !== panel) row.nodes.scale = scaleOf((row.panel = panel), pad);
      drawPanel({ panel, nodes: row.nodes, scale: row.nodes.scale }, scene);
    });
    if (isPressed) for (const node of body.querySelectorAll(".nn-box")) put(node, { "aria-pressed": String(isPressed(node)) });
    oneStop(body, isStop ?? (({ bar }) => bar.key === pointed), hadFocus);
    const { first, last, stops = [] } = scene;
    if (stops.length) grid.append(tips);
    patch(tips, stops, () => {
      const stop = make("rect", { height: "100%" });
      stop.append(make("title"));
      return stop;
    }, (stop, [left, right, text]) => {
      put(stop, { x: `${(100 * (left - first)) / (last - first)}%`, width: `${(100 * (right - left)) / (last - first)}%` });
      setText(stop.firstElementChild, text);
    });
    const shown = scene.ticks.filter(([x]) => x >= first && x <= last);
    labels(foot, shown.map(([x, text], at) => {
      const share = (x - first) / (last - first);
      const anchor = share < 0.01 || (at === 0 && shown.length > 5) ? "start" : share > 0.985 ? "end" : "middle";
      return { x: `${(100 * share).toFixed(3)}%`, y: 13, "text-anchor": anchor, text };
    }));
  }
  return { draw, panels };
}

const STEPS = new Map([["ArrowUp", 1], ["ArrowRight", 1], ["ArrowDown", -1], ["ArrowLeft", -1], ["PageUp", 10], ["PageDown", -10]]);

/** Describe the position of a handle for a screen reader; its values and their texts come with it. */
function sliderState(node, handle, at) {
  const { values, texts } = handle.stops;
  put(node, {
    "aria-label": handle.label, "aria-valuemin": values[0], "aria-valuemax": values.at(-1), "aria-valuenow": values[at],
    "aria-valuetext": `${texts[at]}${at === handle.at ? ", as recorded" : `, recorded ${texts[handle.at]}`}`,
  });
}

/**
 * Create a grip in the plot of a panel, dragged by pointer or keys; `handle` (none hides the grip) and `scale` are functions,
 * `at` returns the index of a handle's value, `move` gets a handle and its new index. It shows a value that was not recorded.
 */
function gripIn(box, { handle, at, scale, move, prepare }) {
  const grip = box.appendChild(make("div", { class: "nn-grip", tabindex: 0, role: "slider", "aria-orientation": "vertical" }));
  const printed = grip.appendChild(make("span", { class: "nn-grip-value", "aria-hidden": "true" }));
  grip.addEventListener("focus", prepare);
  grip.addEventListener("keydown", (event) => {
    const by = STEPS.get(event.key);
    const now = handle();
    if (event.key === "Escape") move(now, now.at);
    else if (event.key === "Home") move(now, 0);
    else if (event.key === "End") move(now, now.stops.values.length - 1);
    else if (by !== undefined) move(now, at(now) + by);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  dragged(grip, () => {
    grip.focus({ preventScroll: true });
    prepare();
    return (next) => {
      const wanted = scale().value(next.clientY - box.getBoundingClientRect().top);
      const { values } = handle().stops;
      let nearest = 0;
      values.forEach((value, place) => {
        if (Math.abs(value - wanted) < Math.abs(values[nearest] - wanted)) nearest = place;
      });
      move(handle(), nearest);
    };
  });
  return function draw() {
    const now = handle();
    grip.hidden = !now;
    if (!now) return;
    const place = at(now);
    grip.style.top = `${scale().y(now.stops.values[place]).toFixed(1)}px`;
    grip.title = `${now.label}: ${now.stops.texts[place]}`;
    setText(printed, place === now.at ? "" : now.stops.texts[place]);
    sliderState(grip, now, place);
  };
}

/** Fill a list with the names of series, each with a small sample. */
function legendIn(list, series, rows) {
  patch(list, rows, () => {
    const entry = make("li");
    const swatch = make("svg", { class: "nn-swatch", width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" });
    swatch.append(make("path", { "stroke-linecap": "round" }));
    entry.append(swatch, make("span"));
    return entry;
  }, (entry, [name, text]) => {
    const { style, path, swatch } = series.find((look) => look.name === name);
    put(entry.querySelector("path"), { class: `nn-mark nn-${name}`, style, d: path || swatch });
    setText(entry.lastElementChild, text);
  });
}

/**
 * Create a strip below a scene for selecting a part, by dragging or in two fields; `count` returns the number of rows, `ends` the
 * turns (or what `word` names) of a row, `choose` gets the first and last row. Returns the drawing function; null hides it.
 */
function brushIn(parent, { count, ends, choose, word = "turn" }) {
  const grid = parent.appendChild(make("div", { class: "nn-grid" })); // aligned with the columns of the scene
  grid.append(make("span", { class: "nn-axis-name" }, "part"));
  const row = grid.appendChild(make("div", { class: "nn-brush" }));
  const strip = row.appendChild(make("div", { class: "nn-strip" }));
  const view = strip.appendChild(make("div", { class: "nn-window" }));
  const fields = [`First ${word}`, `Last ${word}`].map((label) => row.appendChild(make("input", { type: "number", min: 1, "aria-label": label })));
  const all = row.appendChild(make("button", { type: "button" }, "All"));
  let chosen = [0, 0];
  const rowAt = (event) => {
    const frame = strip.getBoundingClientRect();
    return Math.min(Math.max(Math.floor(((event.clientX - frame.left) / frame.width) * count()), 0), count() - 1);
  };
  dragged(strip, (event) => {
    const begin = rowAt(event);
    return (next) => {
      const end = rowAt(next);
      if (end !== begin) choose(Math.min(begin, end), Math.max(begin, end));
    };
  });
  fields.forEach((field, which) => field.addEventListener("change", () => {
    const next = [...chosen];
    next[which] = count() - 1;
    while (next[which] > 0 && ends(next[which])[0] > Number(field.value)) next[which] -= 1;
    choose(Math.min(...next), Math.max(...next));
  }));
  all.addEventListener("click", () => choose(0, count() - 1));
  return function draw(part) {
    grid.hidden = part === null;
    if (part === null) return;
    chosen = part;
    const [first, last] = part;
    view.style.left = `${(100 * first) / count()}%`;
    view.style.width = `${(100 * (last + 1 - first)) / count()}%`;
    [ends(first)[0], ends(last)[1]].forEach((turn, which) => {
      if (document.activeElement !== fields[which]) fields[which].value = String(turn);
    });
    all.disabled = first === 0 && last === count() - 1;
  };
}
