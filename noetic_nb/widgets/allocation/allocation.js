// The bars of one model call, moved through with a slider, two buttons or the arrow keys.
const LEAST = 0.45; // percent; a part that exists is seen (as in bars.py)

function widthsOf(tokens, scale) {
  const exact = tokens.map((value) => (100 * value) / scale);
  const wide = exact.map((value) => Math.max(value, LEAST));
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const excess = sum(wide) - sum(exact);
  const slack = sum(wide) - LEAST * wide.length;
  return excess <= 0 || slack <= excess ? wide : wide.map((value) => value - (excess * (value - LEAST)) / slack);
}

function partsOf(call, data) {
  const [system, tools, framing, history, free, reserve] = call.sums;
  const fixed = (kind, label, tokens) => ({ kind, label, tokens, fill: data.fills[kind] });
  const layers = call.layers.map(([at, used, allocated, yielded, items]) => {
    const [label, fill, ink] = data.layers[at];
    return { kind: "layer", label, tokens: used, allocated, yielded, items, fill: [fill, ink] };
  });
  const start = [fixed("system", "System", system), fixed("tools", "Tools", tools)];
  const frame = fixed("framing", "Framing", framing);
  const keep = fixed("reserve", "Reserve", reserve);
  const told = { ...fixed("history", "History", history), allocated: call.historyBudget, items: call.historyItems };
  const open = { ...fixed("free", "Free", free), endless: call.total === null };
  const planned = layers.flatMap((layer) => {
    if (layer.allocated === null) return [layer];
    const inside = Math.min(layer.tokens, layer.allocated);
    return [{ ...layer, tokens: inside }, { ...layer, kind: "yielded", tokens: layer.allocated - inside }];
  });
  const promised = { ...told, tokens: call.historyBudget ?? history };
  return {
    all: [...start, ...layers, frame, told, open, keep],
    sent: [...start, ...layers, frame, told, open, keep].filter((part) => part.tokens > 0),
    // Tools and framing are not planned for; they come off history when the request is made.
    planned: [start[0], ...planned, promised, keep].filter((part) => part.tokens > 0),
  };
}

function look(rect, part) {
  const pale = part.kind === "yielded";
  const plain = !part.fill;
  put(rect, {
    "data-kind": part.kind,
    fill: plain ? "currentColor" : part.fill[0],
    "fill-opacity": plain ? (part.kind === "reserve" ? 0.16 : 0) : pale ? 0.22 : 1,
    stroke: plain ? "currentColor" : pale ? part.fill[0] : null,
    "stroke-opacity": plain ? 0.55 : null,
    "stroke-dasharray": part.kind === "free" ? "3 3" : pale ? "3 2" : null,
  });
}

function segment(height) {
  const box = make("svg", { height });
  box.append(make("title"), make("rect", { class: "nn-mark", width: "100%", height }));
  if (height >= 20) box.append(make("text", { x: 6, y: height / 2 + 4.5, "font-size": 12 }));
  return box;
}

function drawBar(svg, parts, scale, label, limit) {
  const height = Number(svg.getAttribute("height"));
  const widths = widthsOf(parts.map((part) => part.tokens), scale);
  let left = 0;
  put(svg, { "aria-label": label });
  const rows = parts.map((part, at) => {
    const row = { part, left, width: widths[at] };
    left += widths[at];
    return row;
  });
  patch(svg.firstElementChild, rows, () => segment(height), (box, { part, left: x, width }) => {
    put(box, { x: `${x.toFixed(3)}%`, width: `${width.toFixed(3)}%` });
    const [title, rect, text] = box.children;
    say(title, `${part.label}${part.kind === "yielded" ? " (yielded)" : ""}: ${number(part.tokens)} tokens`);
    look(rect, part);
    if (!text) return;
    say(text, part.kind === "yielded" ? "" : part.label);
    put(text, { fill: part.fill ? part.fill[1] : "currentColor" });
  });
  const mark = svg.lastElementChild;
  const over = limit !== null && limit < scale;
  put(mark, { x: `${over ? (100 * limit) / scale : 0}%`, width: 3, height, visibility: over ? null : "hidden" });
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
  const swatch = make("svg", { class: "nn-swatch", width: 12, height: 12, "aria-hidden": "true" });
  swatch.append(make("rect", { x: 0.5, y: 0.5, width: 11, height: 11 }));
  entry.append(swatch, make("span", { class: "nn-name" }), make("span", { class: "nn-number" }));
  return entry;
}

const amounts = (part) => {
  if (part.kind === "free") return [part.endless ? "no limit" : number(part.tokens), "", "", ""];
  if (part.kind === "reserve") return ["", number(part.tokens), "", ""];
  const given = part.allocated === undefined ? "" : number(part.allocated);
  const back = part.kind !== "layer" || part.yielded === null ? "" : number(part.yielded);
  return [number(part.tokens), given, back, part.items === undefined ? "" : String(part.items)];
};

function inWords(part) {
  const [used, given, back] = amounts(part);
  if (part.kind === "history") return given === used ? used : `${used}, ${given} planned`;
  const of = used && given ? `${used} of ${given}` : used || given;
  return back && back !== "0" ? `${of}, ${back} yielded` : of;
}

export default () => {
  const store = storeOf((data, message) => {
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

    const controls = body.appendChild(make("div", { class: "nn-bar-controls" }));
    const back = controls.appendChild(make("button", { type: "button", "aria-label": "Previous call" }, "◀"));
    const slider = controls.appendChild(make("input", { type: "range", min: 0, "aria-label": "Model call" }));
    const on = controls.appendChild(make("button", { type: "button", "aria-label": "Next call" }, "▶"));
    const place = controls.appendChild(make("span", { class: "nn-number" }));
    const label = controls.appendChild(make("label"));
    const follow = label.appendChild(make("input", { type: "checkbox" }));
    label.append("Follow latest");

    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const grid = body.appendChild(make("div", { class: "nn-rows" }));
    const bar = (name, height) => {
      grid.append(make("span", { class: "nn-row-name" }, name));
      const svg = grid.appendChild(make("svg", { class: "nn-bar", role: "img", width: "100%", height }));
      svg.append(make("g"), make("rect", { class: "nn-limit" }));
      return svg;
    };
    const sent = bar("Sent", 34);
    const planned = bar("Planned", 16);
    const legend = body.appendChild(make("ul", { class: "nn-legend", "aria-label": "Tokens by part" }));
    const note = body.appendChild(make("p", { class: "nn-note" }));
    const out = body.appendChild(store.fold("out", make("details")));
    const outHead = out.appendChild(make("summary"));
    const outList = out.appendChild(make("ul", { class: "nn-list" }));
    const behind = body.appendChild(store.fold("table", make("details")));
    behind.append(make("summary", {}, "Table"));
    const scroll = behind.appendChild(make("div", { class: "nn-scroll", tabindex: 0, role: "region", "aria-label": "Table" }));
    const table = scroll.appendChild(make("table", { class: "nn-table" }));
    const headRow = table.appendChild(make("thead")).appendChild(make("tr"));
    for (const name of ["Part", "Used", "Allocated", "Yielded", "Items"]) {
      headRow.append(make("th", { scope: "col" }, name));
    }
    const rows = table.appendChild(make("tbody"));

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
      say(empty, data.empty);
      if (none) return;
      const at = shown();
      const call = data.calls[at];
      const parts = partsOf(call, data);
      put(slider, { max: data.calls.length - 1, "aria-valuetext": call.title });
      slider.value = at;
      back.disabled = at === 0;
      on.disabled = at === data.calls.length - 1;
      follow.checked = model.get("follow");
      say(note, data.note);
      say(place, `${at + 1} of ${data.calls.length}`);
      say(sub, `${call.title}: ${call.head}`);
      drawBar(sent, parts.sent, call.scale, `Sent: ${call.head}`, call.total);
      drawBar(planned, parts.planned, call.scale, "Planned before the call", call.total);
      fitLabels(sent);
      patch(legend, parts.all, legendEntry, (entry, part) => {
        const [swatch, name, amount] = entry.children;
        look(swatch.firstElementChild, part);
        say(name, part.label);
        put(name, { title: part.label });
        say(amount, inWords(part));
      });
      const [items, tokens] = call.dropped;
      out.hidden = call.out.length === 0;
      say(outHead, `Left out: ${items} item${items === 1 ? "" : "s"}${tokens ? `, ${number(tokens)} tokens` : ""}`);
      const told = call.more ? [...call.out, `and ${call.more} more; the table "items" of the run has all`] : call.out;
      patch(outList, told, () => make("li"), say);
      patch(rows, parts.all, () => make("tr"), (row, part) => {
        if (!row.firstElementChild) row.append(make("th", { scope: "row" }), ...[1, 2, 3, 4].map(() => make("td")));
        [part.label, ...amounts(part)].forEach((text, column) => say(row.children[column], text));
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

  return { initialize: store.initialize, render };
};
