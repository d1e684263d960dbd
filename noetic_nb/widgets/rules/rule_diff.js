// What a rule that is being written would change: counts first, then what differs.
export default {
  render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "What it would change" }));
    const title = root.appendChild(make("p", { class: "nn-title", role: "status", "aria-live": "polite" }));
    const counts = root.appendChild(make("ul", { class: "nn-counts" }));
    const scroll = root.appendChild(
      make("div", { class: "nn-scroll nn-tall", tabindex: 0, role: "region", "aria-label": "What differs" }),
    );
    const table = scroll.appendChild(make("table", { class: "nn-table nn-diff" }));
    const head = table.appendChild(make("thead")).appendChild(make("tr"));
    patch(head, ["Where", "What", "Verdict", "Guidance"], () => make("th", { scope: "col" }), say);
    const rows = table.appendChild(make("tbody"));
    const note = root.appendChild(make("p", { class: "nn-note" }));

    function draw() {
      const data = model.get("snapshot");
      say(title, data.title);
      title.hidden = !data.title;
      patch(counts, data.counts, () => make("li"), (item, [change, name, count]) => {
        put(item, { "data-change": change });
        say(item, `${count} ${name}`);
      });
      scroll.hidden = data.rows.length === 0;
      patch(rows, data.rows, () => make("tr"), (line, row) => fillRow(line, row));
      say(note, data.note);
      note.hidden = !data.note;
    }

    model.on("change:snapshot", draw);
    draw();
    return () => model.off("change:snapshot", draw);
  },
};
