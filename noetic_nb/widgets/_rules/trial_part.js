/** What a draft would have changed: outcomes of runs before and after, then the decisions that differ. */
function trialPart(parent, select) {
  const root = parent.appendChild(make("div", { class: "nn-trial", role: "group", "aria-label": "What the draft would have changed" }));
  const title = root.appendChild(make("p", { class: "nn-title", role: "status", "aria-live": "polite" }));
  const outcomes = root.appendChild(make("div", { class: "nn-outcomes", role: "list" }));
  const key = root.appendChild(make("p", { class: "nn-key" }));
  for (const [kind, text] of [["before", "in force"], ["after", "with the draft"]]) {
    const part = key.appendChild(make("span"));
    part.append(dotOf(kind), make("span", {}, text));
  }
  const counts = root.appendChild(make("ul", { class: "nn-counts" }));
  const rows = root.appendChild(make("div", { class: "nn-changes nn-scroll nn-tall", role: "group", "aria-label": "Decisions that differ" }));
  const note = root.appendChild(make("p", { class: "nn-note" }));
  const line = make("p", { class: "nn-note nn-fault" });
  root.append(line);
  const share = (number) => `${(100 * number).toFixed(1)} %`;
  const words = ([n, of, rate, low, high]) => `${n}/${of} · ${share(rate)}${low === null ? "" : ` [${(100 * low).toFixed(1)}, ${(100 * high).toFixed(1)}]`}`;

  const newOutcome = () => {
    const item = make("div", { class: "nn-outcome", role: "listitem" });
    const picture = make("svg", { class: "nn-interval", viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" });
    picture.append(make("path", { class: "nn-axis", d: "M0,21H100" }));
    for (const kind of ["before", "after"]) {
      picture.append(make("line", { class: `nn-whisker nn-${kind}` }), make("line", { class: `nn-dot nn-${kind}` }));
    }
    item.append(make("span", { class: "nn-outcome-name" }), picture, make("span", { class: "nn-number" }), make("span", { class: "nn-was" }));
    return item;
  };
  const drawOutcome = (item, { words: name, wanted, before, after }) => {
    const [label, picture, now, was] = item.children;
    const better = after[0] === before[0] ? "same" : wanted === null ? "more" : after[0] > before[0] === wanted ? "better" : "worse";
    put(item, { "data-change": better, "data-wanted": wanted ? "yes" : "no" });
    setText(label, name);
    [before, after].forEach(([, , rate, low, high], at) => {
      const y = at === 0 ? 6 : 14;
      put(picture.children[1 + 2 * at], { x1: 100 * (low ?? rate), x2: 100 * (high ?? rate), y1: y, y2: y });
      put(picture.children[2 + 2 * at], { x1: 100 * rate, x2: 100 * rate, y1: y - 4, y2: y + 4 });
    });
    const by = after[0] - before[0];
    const changed = { same: "as now", better: `${Math.abs(by)} ${by < 0 ? "fewer" : "more"}, better`, worse: `${Math.abs(by)} ${by < 0 ? "fewer" : "more"}, worse`, more: `${Math.abs(by)} ${by < 0 ? "fewer" : "more"}` };
    setText(now, words(after));
    setText(was, `${changed[better]}${by ? ` · in force ${words(before)}` : ""}`);
  };
  const newRow = () => {
    const row = make("button", { type: "button", class: "nn-change" });
    for (const name of ["nn-verdict", "nn-where", "nn-what", "nn-why"]) row.append(make("span", { class: name }));
    row.addEventListener("click", () => row.nnPlace && select(row.nnPlace));
    return row;
  };

  return (data, waits) => {
    root.hidden = data === null;
    if (data === null) return;
    put(root, { "data-of": data.of });
    put(root, { "data-waits": waits ? "yes" : null, "aria-busy": waits ? "true" : "false" });
    setText(title, data.title);
    outcomes.hidden = data.lines.length === 0;
    key.hidden = outcomes.hidden || data.of !== "draft";
    patch(outcomes, data.lines, newOutcome, drawOutcome);
    patch(counts, data.counts, () => make("li"), (item, [change, name, count]) => {
      put(item, { "data-change": change });
      setText(item, `${count} ${name}`);
    });
    rows.hidden = data.rows.length === 0;
    patch(rows, data.rows, newRow, (row, change) => {
      row.nnPlace = change.place;
      put(row, { "data-change": change.change, "aria-disabled": change.place ? null : true });
      [change.verdict, change.where, change.what, change.why].forEach((text, at) => setText(row.children[at], text));
    });
    arrowKeys(rows, ".nn-change");
    setText(note, data.note);
    setText(line, data.faults.length ? `Faults: ${data.faults.join("; ")}` : "");
  };
}

function dotOf(kind) {
  const dot = make("svg", { class: "nn-swatch", width: 22, height: 12, viewBox: "0 0 22 12", "aria-hidden": "true" });
  dot.append(make("line", { class: `nn-whisker nn-${kind}`, x1: 1, x2: 21, y1: 6, y2: 6 }), make("line", { class: `nn-dot nn-${kind}`, x1: 11, x2: 11, y1: 2, y2: 10 }));
  return dot;
}
