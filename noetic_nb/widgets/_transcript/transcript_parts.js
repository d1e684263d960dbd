// The elements of the transcript: rows, lines and controls, made once and filled again.
function toneMark() {
  const svg = make("svg", { class: "nn-t-tone", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" });
  svg.append(make("path", { fill: "none", "stroke-width": 2 }));
  return svg;
}

function paintTone(svg, { marks, otherMark }, tone) {
  const [colour, path] = Object.hasOwn(marks, tone) ? marks[tone] : otherMark;
  put(svg.firstElementChild, { d: path, stroke: colour });
}

const PARTS = ["nn-t-why", "nn-t-long", "nn-t-was"];

/** Return a part of a row where it is wanted, made when it is first; a list has many rows, and most have few parts. */
function partIn(row, kind, isWanted, create = () => make("div", { class: kind })) {
  row.parts ??= new Map();
  let part = row.parts.get(kind);
  if (!part && isWanted) {
    row.parts.set(kind, (part = create()));
    const behind = PARTS.slice(PARTS.indexOf(kind) + 1).find((other) => row.parts.has(other));
    row.insertBefore(part, row.parts.get(behind) ?? null);
  }
  if (part) part.hidden = !isWanted;
  return isWanted ? part : null;
}

/** Make a text that can be opened: its beginning, and a button that fetches all of it. */
function longText() {
  const box = make("div", { class: "nn-t-long" });
  box.append(make("div", { class: "nn-t-words" }));
  return box;
}

/** Write a text behind the head of a row, where there is one. */
function writeText(row, text, more, state) {
  const box = partIn(row, "nn-t-long", text !== "" || Boolean(more), longText);
  if (box) fillText(box, text, more, state);
}

function fillText(box, text, more, state) {
  const whole = state.whole.get(state.key);
  setText(box.firstElementChild, whole ?? text);
  box.hidden = text === "" && !more;
  let button = box.children[1];
  if (!button && !more) return;
  button ??= box.appendChild(make("button", { type: "button", class: "nn-t-more", tabindex: -1 }));
  button.hidden = !more;
  put(button, { "aria-expanded": whole !== undefined, "data-key": String(state.key) });
  setText(button, whole === undefined ? `Show all ${more}` : "Show less");
}

function itemRow() {
  const row = make("li", { class: "nn-t-item", tabindex: -1 });
  const head = row.appendChild(make("div", { class: "nn-t-item-head" }));
  head.append(
    make("span", { class: "nn-t-change" }),
    make("span", { class: "nn-t-origin-swatch", "aria-hidden": "true" }),
    make("span", { class: "nn-t-origin" }),
    make("span", { class: "nn-t-facts" }),
    make("span", { class: "nn-number" }),
  );
  return row;
}

function wasPart() {
  const was = make("div", { class: "nn-t-was" });
  was.append(make("span", { class: "nn-t-change" }, "before"), longText());
  return was;
}

function outcomeRow() {
  const row = make("li", { class: "nn-t-line", tabindex: -1 });
  const head = row.appendChild(make("div", { class: "nn-t-line-head" }));
  head.append(toneMark(), make("span"));
  return row;
}

/** Let rows of a list be chosen: with a click, the space bar, or Enter, which opens what is folded as well. */
function choosable(list, choose) {
  list.addEventListener("keydown", (event) => {
    const row = event.target;
    if (row.parentElement !== list || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") [...row.querySelectorAll("button")].find((button) => button.offsetParent)?.click();
    choose(row);
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("li");
    // Who marks text to copy it chooses nothing.
    if (row?.parentElement === list && !event.target.closest("button") && String(getSelection()) === "") choose(row);
  });
}

function callControls(parent) {
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

function compareControls(parent) {
  const controls = parent.appendChild(make("div", { class: "nn-bar-controls" }));
  const label = controls.appendChild(make("label", {}, "Compare with"));
  const choice = label.appendChild(make("select", { "aria-label": "Compare with" }));
  for (const [value, text] of [["", "nothing"], ["previous", "the call before"], ["call", "call no."]]) {
    choice.append(make("option", { value }, text));
  }
  const number = controls.appendChild(make("input", { type: "number", min: 1, class: "nn-t-call-number", "aria-label": "Number of the call to compare with" }));
  const onlyLabel = controls.appendChild(make("label"));
  const only = onlyLabel.appendChild(make("input", { type: "checkbox" }));
  only.checked = true;
  onlyLabel.append("Changes only");
  return { choice, number, only, onlyLabel };
}

function pager(parent) {
  const bar = parent.appendChild(make("div", { class: "nn-bar-controls nn-t-pager" }));
  const names = [["first", "First"], ["back", "Earlier"], ["on", "Later"], ["last", "Last"]];
  const text = make("span", { class: "nn-number" });
  for (const [to, name] of names) {
    bar.append(make("button", { type: "button", "data-to": to, "aria-label": `${name} items` }, name));
    if (to === "back") bar.append(text);
  }
  return { bar, text };
}
