// The elements of the transcript: lines and controls, made once and filled again.
function toneMark() {
  const svg = make("svg", { class: "nn-t-tone", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" });
  svg.append(make("path", { fill: "none", "stroke-width": 2 }));
  return svg;
}

function paintTone(svg, { marks, otherMark }, tone) {
  const [colour, path] = Object.hasOwn(marks, tone) ? marks[tone] : otherMark;
  put(svg.firstElementChild, { d: path, stroke: colour });
}

function outcomeRow() {
  const row = make("li", { class: "nn-t-line", tabindex: -1 });
  const head = row.appendChild(make("div", { class: "nn-t-line-head" }));
  head.append(toneMark(), make("span"));
  return row;
}

function compareControls(parent, changed) {
  const controls = parent.appendChild(make("div", { class: "nn-bar-controls" }));
  const label = controls.appendChild(make("label", {}, "Compare with"));
  const choice = label.appendChild(make("select", { "aria-label": "Compare with" }));
  offer(choice, [["", "nothing"], ["previous", "the call before"], ["call", "call no."]]);
  const number = controls.appendChild(make("input", { type: "number", min: 1, class: "nn-t-call-number", "aria-label": "Number of the call to compare with" }));
  const only = tickIn(controls, "Changes only", changed);
  only.checked = true;
  return { choice, number, only };
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
