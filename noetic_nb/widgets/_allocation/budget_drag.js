// Handles in the context over time: the budget, and the most tokens of the layer whose band is open. What was recorded stays dashed.

/** Make them; `now` is the picture, `panel` its plot, `layer` the number of the open layer. Returns what draws them, and the marks of what would be. */
function dragIn(parent, { get, now, span, panel, layer, leave, changed }) {
  const outcome = parent.appendChild(make("p", { class: "nn-outcome", role: "status", hidden: "" }));
  const text = outcome.appendChild(make("span"));
  const back = outcome.appendChild(make("button", { type: "button" }, "As recorded"));
  const horizon = make("div", { class: "nn-horizon", hidden: "" });
  const moved = new Map(); // places among the stops, by handle
  let state = { answer: null, known: null, of: null };
  let marks = new Map();
  let tall = null; // the panel with room for what would be

  function handleOf(key) {
    const handle = now()?.handles[key];
    if (!handle) return null;
    handle.stops ??= {
      values: handle.values,
      texts: handle.values.map((value, at) => (handle.endless && at === handle.values.length - 1 ? "no limit" : `${value.toLocaleString("en-US")} tokens`)),
    };
    return handle;
  }
  const placeOf = (key) => moved.get(key) ?? handleOf(key).at;
  const valueOf = (key) => handleOf(key).values[placeOf(key)];
  function request(what) {
    const [first, last] = span();
    const budgets = {};
    for (const key of moved.keys()) {
      const { low, endless, values } = handleOf(key) ?? { values: [] };
      const high = values[moved.get(key)];
      if (key !== "total" && high !== undefined) budgets[key] = [Math.min(low, high), endless && high === values.at(-1) ? null : high];
    }
    return { what, first, last, total: moved.has("total") ? valueOf("total") : null, budgets };
  }
  const tell = (wanted) => get(wanted).catch((error) => ({ fault: error.message }));
  const look = newest(tell, (known) => {
    state.known = known;
    changed();
  });
  const plan = newest(tell, (answer, wanted) => {
    if (!moved.size) return;
    state = { ...state, answer, known: null };
    redraw();
    look({ ...wanted, what: "known_until" });
  });
  function move(key, to) {
    const { at, values } = handleOf(key);
    const place = Math.min(Math.max(to, 0), values.length - 1);
    if (place === at) moved.delete(key);
    else moved.set(key, place);
    if (moved.size) plan(request("drag"));
    else state = { answer: null, known: null, of: now() };
    redraw();
  }
  back.addEventListener("click", () => {
    moved.clear();
    state = { answer: null, known: null, of: now() };
    redraw();
    leave();
  });
  function redraw() {
    marks = moved.size ? would() : new Map();
    changed();
  }

  /** Return the marks of the calls as they would be sent, and dashed as they were. */
  function would() {
    const { drawn, bands, series } = now();
    const found = new Map();
    const recorded = (name) => drawn.marks.get(name) ?? [];
    const tops = [];
    for (let band = 0; band < bands.length; band += 1) for (const [[at, , , high]] of recorded(`band-${band}`)) tops[at] = Math.max(tops[at] ?? 0, high);
    found.set("was", tops.map((top, at) => [[at, top, at + 1]]).filter(Boolean));
    if (moved.has("total")) {
      const total = valueOf("total");
      found.get("was").push(...recorded("ceiling"));
      found.set("ceiling", recorded("ceiling").map(([[left, , right]]) => [[left, total, right]]));
      found.set("reserve", recorded("reserve").map(([[left, low, right, high]]) => [[left, Math.max(0, total - high + low), right, total]]));
    }
    const { rows } = state.answer ?? {};
    if (!rows) return found;
    const names = [...bands.keys()].map((band) => `band-${band}`).concat("more");
    for (const name of names) found.set(name, recorded(name).filter(([[at]]) => !rows[at]));
    rows.forEach((row, at) => {
      let low = 0;
      row?.forEach((tokens, band) => {
        if (tokens) found.get(names[band]).push([[at, low, at + 1, low + tokens]]);
        low += tokens;
      });
    });
    for (const { name } of series) if (found.get(name)?.length === 0) found.set(name, [[[0, 0, 0, 0]]]); // none, and not as recorded
    return found;
  }

  let grips = new Map();
  let box = null; // of the panel; another scene has another one
  const keyOf = (which) => (which === "total" ? which : String(layer() ?? ""));
  /** Return the scale of a handle: that of a layer begins where its band does in the last column. */
  function scaleOf(which) {
    const { scale } = panel();
    if (which === "total") return scale;
    const band = now().bands.findIndex(([key]) => String(key) === keyOf(which));
    const points = (marks.get(`band-${band}`) ?? now().drawn.marks.get(`band-${band}`) ?? []).at(-1)?.[0] ?? [0, 0];
    return { y: (value) => scale.y(points[1] + value), value: (at) => scale.value(at) - points[1] };
  }
  function draw() {
    const one = now();
    if (moved.size && state.of !== one) {
      state.of = one; // other calls: what would be is asked for again
      marks = would();
      plan(request("drag"));
    }
    if (box !== panel().box) {
      [box, grips] = [panel().box, new Map()];
      box.append(horizon); // the items that left below stay as recorded
      box.addEventListener("pointerup", () => setTimeout(changed)); // then the scale may grow
    }
    for (const which of ["total", "layer"]) {
      const isThere = handleOf(keyOf(which)) !== null;
      if (isThere && !grips.has(which)) {
        grips.set(which, gripIn(box, {
          handle: () => handleOf(keyOf(which)),
          at: () => placeOf(keyOf(which)),
          scale: () => scaleOf(which),
          move: (to) => move(keyOf(which), to),
          prepare: () => tell({ ...request("drag"), prepare: true }), // the first plan takes longest
        }));
        box.lastElementChild.dataset.of = which;
      }
      const grip = box.querySelector(`.nn-grip[data-of="${which}"]`);
      if (grip) grip.hidden = !isThere;
      if (isThere) grips.get(which)();
    }
    outcome.hidden = !moved.size;
    const { answer, known } = state;
    setText(text, ["Dashed: as recorded.", answer?.fault ?? answer?.text ?? "…", known?.fault ?? known?.text ?? ""].join(" "));
    const column = known?.at == null ? one.last : (known.at - one.start) / one.size;
    horizon.hidden = !moved.size || column >= one.last;
    horizon.style.left = `${(100 * Math.max(0, Math.floor(column))) / one.last}%`;
  }
  /** Return the panels with room for what would be; under a pointer that drags the scale stays. */
  function panels() {
    const [first, ...rest] = now().panels;
    if (!moved.size) tall = null;
    else if (!box?.querySelector(".nn-grip:active")) {
      const tops = [...marks.values()].flat().map(([points]) => points[3] ?? points[1]);
      const high = Math.max(first.high, 1.06 * Math.max(...tops));
      if (tall?.high !== high) tall = { ...first, high };
    }
    return [tall ?? first, ...rest];
  }
  return { draw, panels, marks: () => marks };
}
