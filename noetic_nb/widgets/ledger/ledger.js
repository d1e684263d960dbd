// The decisions of steering, newest first, all of them or those of one action.
export default () => {
  const store = storeOf((data, message) => {
    if (message.type !== "row" || message.total <= data.total) return true;
    if (message.total > data.total + 1) return false;
    data.rows.push(message.row);
    data.rows.splice(0, data.rows.length - data.most);
    data.total = message.total;
    const action = message.row[4];
    data.counts[action] = (data.counts[action] ?? 0) + 1;
    return true;
  });

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "Ledger" }));
    root.append(make("p", { class: "nn-title" }, "Ledger"));
    const empty = root.appendChild(make("p", { class: "nn-empty" }));
    const body = root.appendChild(make("div"));
    const choice = body.appendChild(make("label", { class: "nn-choice" }, "Show "));
    const select = choice.appendChild(make("select"));
    const rows = tableIn(body, "Decisions, newest first", store.data.columns, {
      kind: "nn-table nn-ledger",
      scroll: "nn-scroll nn-tall",
    });
    const note = body.appendChild(make("p", { class: "nn-note" }));

    select.addEventListener("change", () => {
      model.set("only", select.value);
      model.save_changes();
      store.changed();
    });

    function draw(data) {
      empty.hidden = data.rows.length > 0;
      body.hidden = data.rows.length === 0;
      setText(empty, data.empty);
      const only = model.get("only");
      const actions = Object.keys(data.counts).sort();
      const options = [["", `all ${data.total} decisions`], ...actions.map((name) => [name, `${data.counts[name]} ${name}`])];
      patch(select, options, () => make("option"), (option, [value, text]) => {
        option.value = value;
        setText(option, text);
      });
      select.value = only;
      const shown = data.rows.filter((row) => !only || row[4] === only).reverse();
      patch(rows, shown, () => {
        const line = make("tr");
        data.columns.forEach((name, at) =>
          line.append(make(at ? "td" : "th", { "data-name": name, class: data.classes[at], scope: at ? null : "row" })),
        );
        return line;
      }, (line, row) => {
        row.forEach((text, at) => setText(line.children[at], text));
        put(line.children[4], { "data-action": row[4] });
      });
      const earlier = data.total - data.rows.length;
      note.hidden = earlier === 0;
      setText(note, `${earlier} earlier decisions are in run.to_frame("ledger").`);
    }

    return store.show({ model, root, draw, traits: ["only"] });
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
