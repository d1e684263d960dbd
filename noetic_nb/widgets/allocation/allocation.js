// The bars of one model call, moved through with a slider, two buttons or the arrow keys.
/** Return kind, label, fill and ink of a part: its key is its kind, or n for a layer and -1 - n for what the layer yielded. */
function partOf(key, data) {
  if (typeof key === "string") return [key, ...data.fixed[key]];
  return key < 0 ? ["yielded", ...data.layers[-1 - key]] : ["layer", ...data.layers[key]];
}

function paint(rect, [kind, , fill], data) {
  const look = data.looks[kind];
  for (const name of ["fill-opacity", "stroke", "stroke-opacity", "stroke-dasharray"]) {
    if (!(name in look)) rect.removeAttribute(name);
  }
  for (const [name, value] of Object.entries(look)) put(rect, { [name]: value.replace("$", fill) });
  put(rect, { "data-kind": kind });
}

function segment(height) {
  const box = make("svg", { height });
  box.append(make("title"), make("rect", { class: "nn-mark", width: "100%", height }));
  if (height >= 20) box.append(make("text", { x: 6, y: height / 2 + 4.5, "font-size": 12 }));
  return box;
}

function drawBar(svg, segments, data, label, limit) {
  const height = Number(svg.getAttribute("height"));
  let left = 0;
  put(svg, { "aria-label": label });
  patch(svg.firstElementChild, segments, () => segment(height), (box, [key, tokens, width]) => {
    const part = partOf(key, data);
    const [kind, name, , ink] = part;
    put(box, { x: `${left.toFixed(3)}%`, width: `${width}%` });
    left += width;
    const [title, rect, text] = box.children;
    setText(title, `${name}${kind === "yielded" ? " (yielded)" : ""}: ${tokens} tokens`);
    paint(rect, part, data);
    if (!text) return;
    setText(text, kind === "yielded" ? "" : name);
    put(text, { fill: ink });
  });
  put(svg.lastElementChild, { x: `${limit ?? 0}%`, width: 3, height, visibility: limit === null ? "hidden" : null });
}

/** Hide labels that do not fit their segment: half a word says less than the legend. */
function fitLabels(svg) {
  const boxes = [...svg.firstElementChild.children];
  const fits = boxes.map((box) => {
    const [, rect, text] = box.children;
    return !text || text.getComputedTextLength() + 10 < rect.getBoundingClientRect().width;
  });
  boxes.forEach((box, at) => box.children[2] && put(box.children[2], { visibility: fits[at] ? null : "hidden" }));
}

function legendEntry() {
  const entry = make("li");
  entry.append(swatchOf({ x: 0.5, y: 0.5, width: 11, height: 11 }), make("span", { class: "nn-name" }), make("span", { class: "nn-number" }));
  return entry;
}

function barIn(grid, name, height) {
  grid.append(make("span", { class: "nn-row-name" }, name));
  const svg = grid.appendChild(make("svg", { class: "nn-bar", role: "img", width: "100%", height }));
  svg.append(make("g"), make("rect", { class: "nn-limit" }));
  return svg;
}

function controlsIn(parent) {
  const controls = parent.appendChild(make("div", { class: "nn-bar-controls" }));
  const back = controls.appendChild(make("button", { type: "button", "aria-label": "Previous call" }, "◀"));
  const slider = controls.appendChild(make("input", { type: "range", min: 0, "aria-label": "Model call" }));
  const on = controls.appendChild(make("button", { type: "button", "aria-label": "Next call" }, "▶"));
  const place = controls.appendChild(make("span", { class: "nn-number" }));
  const label = controls.appendChild(make("label"));
  const follow = label.appendChild(make("input", { type: "checkbox" }));
  label.append("Follow latest");
  return { back, slider, on, place, follow };
}

export default () => {
  const store = storeOf((data, message) => {
    if (message.type === "empty") data.empty = message.text;
    if (message.type !== "call") return true;
    if (message.at < data.calls.length) return true; // already in the snapshot this page began with
    if (message.at > data.calls.length || message.layersAt > data.layers.length) return false;
    data.layers.splice(message.layersAt, data.layers.length, ...message.layers);
    data.calls.push(message.call);
    return true;
  });

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "Token allocation" }));
    root.append(make("p", { class: "nn-title" }, "Token allocation"));
    const empty = root.appendChild(make("p", { class: "nn-empty" }));
    const body = root.appendChild(make("div"));

    const { back, slider, on, place, follow } = controlsIn(body);
    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const grid = body.appendChild(make("div", { class: "nn-rows" }));
    const sent = barIn(grid, "Sent", 34);
    const planned = barIn(grid, "Planned", 16);
    const legend = body.appendChild(make("ul", { class: "nn-legend", "aria-label": "Tokens by part" }));
    const note = body.appendChild(make("p", { class: "nn-note" }));
    const out = body.appendChild(store.fold("out", make("details")));
    const outHead = out.appendChild(make("summary"));
    const outList = out.appendChild(make("ul", { class: "nn-list" }));
    const behind = body.appendChild(store.fold("table", make("details")));
    behind.append(make("summary", {}, "Table"));
    const rows = tableIn(behind, "Table", store.data.columns);

    const shown = () => {
      const last = store.data.calls.length - 1;
      const wanted = model.get("position");
      return model.get("follow") || wanted < 0 ? last : Math.min(wanted, last);
    };
    const go = (to) => {
      model.set({ position: Math.max(0, Math.min(to, store.data.calls.length - 1)), follow: false });
      model.save_changes();
      store.changed();
    };
    back.addEventListener("click", () => go(shown() - 1));
    on.addEventListener("click", () => go(shown() + 1));
    slider.addEventListener("input", () => go(Number(slider.value)));
    follow.addEventListener("change", () => {
      model.set({ position: shown(), follow: follow.checked });
      model.save_changes();
      store.changed();
    });

    function draw(data) {
      const none = data.calls.length === 0;
      empty.hidden = !none;
      body.hidden = none;
      setText(empty, data.empty);
      if (none) return;
      const at = shown();
      const call = data.calls[at];
      put(slider, { max: data.calls.length - 1, "aria-valuetext": call.title });
      slider.value = at;
      back.disabled = at === 0;
      on.disabled = at === data.calls.length - 1;
      follow.checked = model.get("follow");
      setText(note, data.note);
      setText(place, `${at + 1} of ${data.calls.length}`);
      setText(sub, `${call.title}: ${call.head}`);
      drawBar(sent, call.sent, data, `Sent: ${call.head}`, call.limit);
      drawBar(planned, call.planned, data, "Planned before the call", call.limit);
      fitLabels(sent);
      patch(legend, call.rows, legendEntry, (entry, row) => {
        const [swatch, name, amount] = entry.children;
        const part = partOf(row[0], data);
        const label = part[1];
        paint(swatch.firstElementChild, part, data);
        setText(name, label);
        put(name, { title: label });
        setText(amount, row[1]);
      });
      out.hidden = call.out.length === 0;
      setText(outHead, call.dropped);
      patch(outList, call.out, () => make("li"), setText);
      patch(rows, call.rows, () => namedRow(4), (line, row) => {
        [partOf(row[0], data)[1], ...row.slice(2)].forEach((text, column) => setText(line.children[column], text));
      });
    }

    const hide = store.show({ model, root, draw, traits: ["position", "follow"] });
    const resized = new ResizeObserver(() => fitLabels(sent));
    resized.observe(root);
    return () => {
      resized.disconnect();
      hide();
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
