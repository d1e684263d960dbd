// Sliders that plan a call again.
/** Let Enter and space use what is no button. */
function usedByKey(node, use) {
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") (event.preventDefault(), use(event));
  });
}

function sliderRow() {
  const row = make("div", { class: "nn-knob" });
  row.append(make("span", { class: "nn-knob-name" }), make("input", { type: "range", min: 0 }), make("output", { class: "nn-number" }));
  return row;
}

/** Sliders for the minimum and maximum tokens of each layer, the total and the reserve of the call at `at`. */
function whatIfIn(parent, { tell, shown, drawPicture, choose }) {
  const fold = parent.appendChild(make("details", { class: "nn-what-if" }));
  fold.append(make("summary", {}, "What if"));
  const knobs = fold.appendChild(make("div", { class: "nn-knobs" }));
  const bar = fold.appendChild(make("div", { class: "nn-toolbar" }));
  const reset = bar.appendChild(make("button", { type: "button" }, "Reset"));
  const sum = bar.appendChild(make("span", { class: "nn-number", role: "status" }));
  const wrong = fold.appendChild(make("p", { class: "nn-fault", role: "alert" }));
  const changes = fold.appendChild(make("div"));
  let state = null; // of the sliders' call
  let awaited = null; // the call whose settings were requested

  const words = (number) => (number === null ? "no limit" : number.toLocaleString("en-US"));
  // The right end of a layer's maximum means no limit.
  const valueOf = (knob) => (knob.endless && knob.now >= state.most ? null : knob.now);
  const knobOf = (name, number, more) => ({ name, from: number, now: number === null ? state.most : number, ...more });

  function setUp(at, settings) {
    state = { at, most: settings.most, knobs: [] };
    state.knobs.push(knobOf("Total", settings.total, { field: "total", endless: settings.total === null }));
    state.knobs.push(knobOf("Reserve for the answer", settings.reserve, { field: "reserve" }));
    settings.layers.forEach(([place, name, low, high]) => {
      state.knobs.push(knobOf(`${name}, least`, low, { place, end: 0 }), knobOf(`${name}, most`, high, { place, end: 1, endless: true }));
    });
    setText(wrong, "");
    draw();
  }

  function draw() {
    patch(knobs, state.knobs, sliderRow, (row, knob, at) => {
      const [name, input, value] = row.children;
      setText(name, knob.name);
      put(input, { max: state.most, step: 1, "aria-label": knob.name, "data-at": at, "aria-valuetext": `${words(valueOf(knob))} tokens` });
      if (Number(input.value) !== knob.now) input.value = knob.now;
      const changed = valueOf(knob) !== knob.from;
      setText(value, changed ? `${words(knob.from)} → ${words(valueOf(knob))}` : words(knob.from));
      row.classList.toggle("nn-changed", changed);
    });
    reset.disabled = state.knobs.every((knob) => valueOf(knob) === knob.from);
    if (reset.disabled) show(null);
  }

  function show(answer) {
    drawPicture(answer && answer.picture);
    setText(sum, answer ? `What if: ${answer.picture.head}` : "Move a slider: the call is planned again, and the layers are not asked again.");
    patchRows(changes, answer?.changes ?? []);
  }

  const ask = newest(tell, (answer, request) => {
    if (state?.at !== request.at || reset.disabled) return;
    setText(wrong, answer.fault ?? "");
    if (!answer.fault) show(answer);
  });

  function put_question() {
    const request = { what: "what_if", at: state.at, budgets: {} };
    for (const knob of state.knobs.filter((one) => valueOf(one) !== one.from)) {
      if (knob.field) request[knob.field] = valueOf(knob);
      else request.budgets[knob.place] = state.knobs.filter(({ place }) => place === knob.place).map(valueOf);
    }
    draw();
    if (!reset.disabled) ask(request);
  }

  knobs.addEventListener("input", (event) => {
    const knob = state.knobs[Number(event.target.dataset.at)];
    knob.now = Number(event.target.value);
    // Move the layer's other slider along, so that the minimum never exceeds the maximum.
    const other = state.knobs.find((one) => one !== knob && one.place !== undefined && one.place === knob.place);
    if (other && (knob.end ? other.now > knob.now : other.now < knob.now)) other.now = knob.now;
    put_question();
  });
  reset.addEventListener("click", () => {
    for (const knob of state.knobs) knob.now = knob.from === null ? state.most : knob.from;
    setText(wrong, "");
    draw();
  });
  changes.addEventListener("click", choose);

  async function look() {
    const at = shown();
    if (!fold.open || state?.at === at || awaited === at) return;
    awaited = at;
    state = null;
    show(null);
    knobs.replaceChildren();
    reset.disabled = true;
    const settings = await tell({ what: "settings", at });
    // A second answer would undo later changes by the user.
    if (awaited !== at) return;
    awaited = null;
    if (at !== shown()) return;
    if (!settings.fault) return setUp(at, settings);
    setText(wrong, settings.fault);
    setText(sum, "");
    state = { at, knobs: [] };
  }
  fold.addEventListener("toggle", look);
  return { fold, look };
}

// Handles in the context over time: the budget, and the maximum of the layer whose band is open. Recorded values stay dashed.

/** Create the handles; `now` is the picture, `panel` its plot, `layer` the number of the open layer. Returns the drawing function and the marks. */
function dragIn(parent, { tell, now, span, panel, layer, leave, changed }) {
  const outcome = parent.appendChild(make("p", { class: "nn-outcome", role: "status", hidden: "" }));
  const text = outcome.appendChild(make("span"));
  const back = outcome.appendChild(make("button", { type: "button" }, "As recorded"));
  const moved = new Map(); // index of the stop, by handle
  let state = { answer: null, known: null, of: null };
  let marks = new Map();
  let tall = null; // the panel with room for the hypothetical marks

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
    return { what, first, last, budgets, ...(moved.has("total") && { total: valueOf("total") }) };
  }
  const look = newest(tell, (known) => {
    state.known = known;
    changed();
  });
  const plan = newest(tell, (_, wanted) => {
    if (moved.size) look({ ...wanted, what: "known_until" });
  }, (answer) => {
    if (!moved.size) return;
    state = { ...state, answer, known: null };
    redraw();
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
    for (const { name } of series) if (found.get(name)?.length === 0) found.set(name, [[[0, 0, 0, 0]]]); // empty, which differs from the recording
    return found;
  }

  let grips = new Map();
  let box = null; // of the panel; a new scene creates a new one
  const keyOf = (which) => (which === "total" ? which : String(layer() ?? ""));
  /** Return the scale of a handle: for a layer it starts at the bottom of its band in the last column. */
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
      state.of = one; // the calls have changed: request the hypothetical marks again
      marks = would();
      plan(request("drag"));
    }
    if (box !== panel().box) {
      [box, grips] = [panel().box, new Map()];
      box.addEventListener("pointerup", () => setTimeout(changed)); // the scale may grow after the drag
    }
    for (const which of ["total", "layer"]) {
      const handle = () => handleOf(keyOf(which));
      if (handle() && !grips.has(which)) {
        grips.set(which, gripIn(box, {
          handle,
          at: () => placeOf(keyOf(which)),
          scale: () => scaleOf(which),
          move: (_, to) => move(keyOf(which), to),
          prepare: () => tell({ ...request("drag"), prepare: true }), // the first plan takes longest
        }));
        box.lastElementChild.dataset.of = which;
      }
      grips.get(which)?.();
    }
    outcome.hidden = !moved.size;
    const { answer, known } = state;
    setText(text, ["Dashed: as recorded.", answer?.fault ?? answer?.text ?? "…", known?.fault ?? known?.text ?? ""].join(" "));
  }
  /** Return the panels with room for the hypothetical marks; the scale is fixed during a drag. */
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
  /** Return the hypothetical marks, including those of calls for which they are unknown. */
  function marksNow() {
    const { start, size, last, drawn } = now();
    const column = state.known?.at == null ? last : Math.max(0, Math.floor((state.known.at - start) / size));
    if (!moved.size || column >= last) return marks;
    return new Map([...marks, ...["unknown", "until"].map((name) => [name, [...(drawn.marks.get(name) ?? []), [[column, null, last, null]]]])]);
  }
  return { draw, panels, marks: marksNow };
}
