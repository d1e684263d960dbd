// One call as bars on a token axis, its legend, and its items, one per line.
/** Return kind, label, fill and text colour of a part: its key is its kind, or n for a layer and -1 - n for its yielded part. */
function partOf(key, data) {
  if (typeof key === "string") return [key, ...data.fixed[key]];
  return key < 0 ? ["yielded", ...data.layers[-1 - key]] : ["layer", ...data.layers[key]];
}

/** Return the part of a segment: the yielded part of a layer belongs to the layer. */
const ownerOf = (key) => (key < 0 ? -1 - key : key);

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
  box.append(make("rect", { class: "nn-mark", width: "100%", height }));
  if (height >= 20) box.append(make("text", { x: 6, y: height / 2 + 4.5, "font-size": 12 }), make("path", { class: "nn-broke", visibility: "hidden" }));
  return box;
}

function drawBar(svg, segments, data, label, limit, broke = null) {
  const height = Number(svg.getAttribute("height"));
  let left = 0;
  put(svg, { "aria-label": label });
  patch(svg.firstElementChild, segments, () => segment(height), (box, [key, tokens, width]) => {
    const part = partOf(key, data);
    const [kind, name, , ink] = part;
    put(box, { x: `${left.toFixed(3)}%`, width: `${width}%` });
    left += width;
    const [rect, text, wedge] = box.children;
    const breaks = broke !== null && key === broke;
    const words = `${name}${kind === "yielded" ? " (yielded)" : ""}: ${tokens} tokens${breaks ? "; broke the prefix here" : ""}`;
    put(rect, { "data-readout": words, "aria-label": words, "data-part": ownerOf(key), tabindex: -1, role: "button" });
    paint(rect, part, data);
    if (!text) return;
    put(wedge, { d: data.broke, visibility: breaks ? null : "hidden" });
    put(text, { x: breaks ? 14 : 6 });
    text.dataset.name = kind === "yielded" ? "" : name;
    text.dataset.value = kind === "yielded" ? "" : `${name} ${tokens}`;
    put(text, { fill: ink });
  });
  put(svg.lastElementChild, { x: `${limit ?? 0}%`, width: 3, height, visibility: limit === null ? "hidden" : null });
}

/** Write name and value in a segment if both fit, otherwise the name if it fits, otherwise nothing. */
function fitLabels(svg) {
  const boxes = [...svg.firstElementChild.children].filter((box) => box.children[1]);
  const room = boxes.map((box) => box.children[0].getBoundingClientRect().width - 10);
  for (const name of ["value", "name"]) {
    boxes.forEach((box) => box.children[1].dataset.done || setText(box.children[1], box.children[1].dataset[name] ?? ""));
    const fits = boxes.map((box, at) => box.children[1].getComputedTextLength() < room[at]);
    boxes.forEach((box, at) => { if (fits[at]) box.children[1].dataset.done = name; });
  }
  for (const box of boxes) {
    put(box.children[1], { visibility: box.children[1].dataset.done ? null : "hidden" });
    delete box.children[1].dataset.done;
  }
}

function drawAxis(svg, ticks) {
  patch(svg, ticks, () => {
    const group = make("g");
    group.append(make("line", { y1: 0, y2: 5, stroke: "currentColor" }), make("text", { y: 18, "font-size": 11, fill: "currentColor" }));
    return group;
  }, (group, [place, number], at) => {
    put(group.children[0], { x1: `${place}%`, x2: `${place}%` });
    const anchor = place < 4 ? "start" : place > 96 ? "end" : "middle";
    put(group.children[1], { x: `${place}%`, "text-anchor": anchor, class: ticks.length > 4 && at % 2 ? "nn-roomy" : null });
    setText(group.children[1], number);
  });
}

function barIn(grid, name, height) {
  const label = grid.appendChild(make("span", { class: "nn-row-name" }, name));
  const svg = grid.appendChild(make("svg", { class: "nn-bar", role: "group", width: "100%", height }));
  svg.append(make("g"), make("rect", { class: "nn-limit" }));
  return Object.assign(svg, { row: [label, svg] });
}

function legendEntry() {
  const entry = make("li");
  const button = entry.appendChild(make("button", { type: "button", class: "nn-part" }));
  button.append(swatchOf({ x: 0.5, y: 0.5, width: 11, height: 11 }), make("span", { class: "nn-name" }), make("span", { class: "nn-number" }));
  return entry;
}

/** An item: its beginning, its tokens, and why it is absent; an item of the log can be selected. */
function itemEntry() {
  const entry = make("li");
  const button = entry.appendChild(make("button", { type: "button", class: "nn-item" }));
  button.append(make("span", { class: "nn-words" }), make("span", { class: "nn-why" }), make("span", { class: "nn-number" }));
  return entry;
}

function drawItem(entry, [words, tokens, position, why]) {
  const button = entry.firstElementChild;
  setText(button.children[0], words);
  setText(button.children[1], why);
  setText(button.children[2], tokens);
  button.disabled = position === null;
  put(button, { "data-item": position, class: why ? "nn-item nn-absent" : "nn-item" });
}

/** Let Enter and space activate an element that is not a button. */
function usedByKey(node, use) {
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") (event.preventDefault(), use(event));
  });
}
