// What a rule that is being written would change: counts first, then what differs.
export default {
  render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "What it would change" }));
    const title = root.appendChild(make("p", { class: "nn-title", role: "status", "aria-live": "polite" }));
    const counts = root.appendChild(make("ul", { class: "nn-counts" }));
    const rows = tableIn(root, "What differs", ["Where", "What", "Verdict", "Guidance"], {
      kind: "nn-table nn-diff",
      scroll: "nn-scroll nn-tall",
    });
    const scroll = root.querySelector(".nn-scroll");
    const note = root.appendChild(make("p", { class: "nn-note" }));

    function draw() {
      const data = model.get("snapshot");
      setText(title, data.title);
      title.hidden = !data.title;
      patch(counts, data.counts, () => make("li"), (item, [change, name, count]) => {
        put(item, { "data-change": change });
        setText(item, `${count} ${name}`);
      });
      scroll.hidden = data.rows.length === 0;
      patch(rows, data.rows, () => make("tr"), (line, row) => patch(line, row, () => make("td"), setText));
      setText(note, data.note);
      note.hidden = !data.note;
    }

    model.on("change:snapshot", draw);
    draw();
    return () => model.off("change:snapshot", draw);
  },
};
