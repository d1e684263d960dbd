// Sliders that plan a call again.
function sliderRow() {
  const row = make("div", { class: "nn-knob" });
  row.append(make("span", { class: "nn-knob-name" }), make("input", { type: "range", min: 0 }), make("output", { class: "nn-number" }));
  return row;
}

/** Sliders for the least and the most tokens of each layer, the total and the reserve of the call at `at`. */
function whatIfIn(parent, { get, shown, drawPicture, choose }) {
  const fold = parent.appendChild(make("details", { class: "nn-what-if" }));
  fold.append(make("summary", {}, "What if"));
  const knobs = fold.appendChild(make("div", { class: "nn-knobs" }));
  const bar = fold.appendChild(make("div", { class: "nn-toolbar" }));
  const reset = bar.appendChild(make("button", { type: "button" }, "Reset"));
  const sum = bar.appendChild(make("span", { class: "nn-number", role: "status" }));
  const wrong = fold.appendChild(make("p", { class: "nn-fault", role: "alert" }));
  const lists = ["dropped", "returned"].map((name) => {
    const box = fold.appendChild(make("div", { class: `nn-${name}` }));
    box.append(make("p", { class: "nn-change" }), make("ul", { class: "nn-list nn-items" }), make("p", { class: "nn-note" }));
    return [name, box];
  });
  let state = null; // of the call that the sliders are for
  let awaited = null; // the call whose settings were asked for

  const words = (number) => (number === null ? "no limit" : number.toLocaleString("en-US"));
  // The right end of a layer's maximum is no limit.
  const valueOf = (knob) => (knob.endless && knob.now >= state.most ? null : knob.now);
  const knobOf = (name, number, more) => ({ name, from: number, now: number === null ? state.most : number, ...more });

  function setUp(at, settings) {
    state = { at, most: settings.most, knobs: [] };
    state.knobs.push(knobOf("Total", settings.total, { field: "total", endless: settings.total === null }));
    state.knobs.push(knobOf("Reserve for the answer", settings.reserve, { field: "reserve" }));
    settings.layers.forEach(([, name, low, high], place) => {
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
    for (const [name, box] of lists) {
      const change = answer?.[name] ?? { head: answer && name === "dropped" && !answer.returned.head ? "The same items would be sent." : "", items: [], more: 0 };
      const [head, list, more] = box.children;
      setText(head, change.head);
      patch(list, change.items, itemEntry, (entry, [part, text, tokens, position]) => drawItem(entry, [`${part} · ${text}`, tokens, position, ""]));
      setText(more, change.more ? `and ${change.more} more` : "");
      box.hidden = !change.head;
    }
  }

  const ask = newest(async (request) => {
    try {
      return await get(request);
    } catch (error) {
      return { fault: error.message };
    }
  }, (answer, request) => {
    if (state?.at !== request.at || reset.disabled) return;
    setText(wrong, answer.fault ?? "");
    if (!answer.fault) show(answer);
  });

  function put_question() {
    const request = { what: "what_if", at: state.at, budgets: {} };
    const ends = new Map();
    for (const knob of state.knobs) {
      if (knob.field) {
        if (valueOf(knob) !== knob.from) request[knob.field] = valueOf(knob);
      } else {
        ends.set(knob.place, [...(ends.get(knob.place) ?? []), knob]);
      }
    }
    for (const [place, pair] of ends) {
      if (pair.some((knob) => valueOf(knob) !== knob.from)) request.budgets[place] = pair.map(valueOf);
    }
    draw();
    if (!reset.disabled) ask(request);
  }

  knobs.addEventListener("input", (event) => {
    const knob = state.knobs[Number(event.target.dataset.at)];
    knob.now = Number(event.target.value);
    // The other end of a layer moves along, so that the least is never above the most.
    const other = state.knobs.find((one) => one !== knob && one.place !== undefined && one.place === knob.place);
    if (other && (knob.end ? other.now > knob.now : other.now < knob.now)) other.now = knob.now;
    put_question();
  });
  reset.addEventListener("click", () => {
    for (const knob of state.knobs) knob.now = knob.from === null ? state.most : knob.from;
    setText(wrong, "");
    draw();
  });
  for (const [, box] of lists) box.addEventListener("click", (event) => choose(event));

  async function look() {
    const at = shown();
    if (!fold.open || state?.at === at || awaited === at) return;
    awaited = at;
    state = null;
    show(null);
    knobs.replaceChildren();
    reset.disabled = true;
    let settings, fault;
    try {
      settings = await get({ what: "settings", at });
    } catch (error) {
      fault = error;
    }
    // A second answer would undo what someone has moved since the first.
    if (awaited !== at) return;
    awaited = null;
    if (at !== shown()) return;
    if (!fault) return setUp(at, settings);
    setText(wrong, fault.message);
    setText(sum, "");
    state = { at, knobs: [] };
  }
  fold.addEventListener("toggle", look);
  return { fold, look };
}
