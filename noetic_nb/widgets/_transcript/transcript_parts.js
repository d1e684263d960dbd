// The elements of the transcript: lines and controls, created once and refilled.
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

// Labels of the shown call: a button and digit key for each value of the codebook, and a button for the first step to inspect.

/** Create the controls; `label(name, value)` gives a label, `move(by)` shows another call, `look()` requests the step to inspect. */
function labelControls(parent, { label, move, look }) {
  const bar = parent.appendChild(make("div", { class: "nn-bar-controls nn-t-labels", role: "group" }));
  const choice = bar.appendChild(make("select", { "aria-label": "Name of the label" }));
  const values = bar.appendChild(make("span", { class: "nn-t-values" }));
  const done = bar.appendChild(make("span", { class: "nn-number", "aria-live": "polite" }));
  const others = bar.appendChild(make("span", { class: "nn-note" }));
  const firstLine = parent.appendChild(make("div", { class: "nn-bar-controls nn-t-look" }));
  const button = firstLine.appendChild(make("button", { type: "button" }, "Look here first"));
  const said = firstLine.appendChild(make("span", { class: "nn-note", role: "status" }));
  let known = null;

  const name = () => Math.max(0, choice.selectedIndex);
  const give = (value) => {
    if (value < known.names[name()].values.length) label(name(), value);
  };
  values.addEventListener("click", (event) => {
    const pressed = event.target.closest("button");
    if (pressed) give(Number(pressed.dataset.value));
  });
  button.addEventListener("click", look);

  /** Handle a key: a digit gives a value, 0 removes it, n and p show the next and the previous call. */
  const key = (event) => {
    if (!known?.names || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches('select, textarea, input:not([type="range"], [type="checkbox"])')) return;
    if (/^[1-9]$/.test(event.key)) give(Number(event.key) - 1);
    else if (event.key === "0") label(name(), null);
    else if (event.key === "n") move(1);
    else if (event.key === "p") move(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  /** Draw the labels of a call: `known` is from the run, `own` was given since the last answer. */
  const draw = (data, call, redraw) => {
    known = data;
    firstLine.hidden = !data.looks;
    bar.hidden = !data.names;
    if (!data.names) return;
    if (choice.childElementCount === 0) {
      for (const each of data.names) choice.append(make("option", {}, each.name));
      choice.addEventListener("change", redraw);
      put(bar, { "aria-label": `Labels by ${data.by}: digit keys give a value, n and p move` });
    }
    const { values: all, meanings, description } = data.names[name()];
    const found = call.labels[name()];
    put(choice, { title: description });
    patch(values, all, () => make("button", { type: "button" }), (node, value, at) => {
      put(node, { "data-value": at, "aria-pressed": found.own === at, title: meanings[at] });
      setText(node, `${at + 1} ${value}`);
    });
    setText(done, `${found.done} labelled by ${data.by}`);
    setText(others, found.others.join(", "));
  };
  return { draw, key, say: (text) => setText(said, text) };
}
