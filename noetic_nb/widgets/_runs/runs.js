// A collection of runs as a table. The kernel searches, filters and sorts; each answer brings the 50 rows of a page.
export default () => {
  const store = storeOf((data, message) => {
    if (message.type === "page") Object.assign(data, message.page);
    return true;
  });
  function render({ model, el }) {
    const columns = store.data.columns;
    const { root, body, isEmpty } = frameIn(el, "Runs");
    const bar = body.appendChild(make("div", { class: "nn-toolbar", role: "search" }));
    const field = (label) => bar.appendChild(make("input", { type: "search", class: "nn-runs-search", placeholder: label, "aria-label": label, spellcheck: "false" }));
    const search = field("Search the texts of all runs");
    const where = field("Where, such as outcome == false && tokens > 2000");
    const status = body.appendChild(make("p", { class: "nn-sub", role: "status" }));
    const keys = body.appendChild(make("div", { class: "nn-toolbar", role: "group", "aria-label": "Labels by keys" }));
    const named = keys.appendChild(make("select", { "aria-label": "Label" }));
    const meaning = keys.appendChild(make("span"));
    const rows = tableIn(body, "Runs", ["", ...columns.map(([, name]) => name)], { kind: "nn-table nn-runs", scroll: "nn-scroll nn-tall" });
    const heads = [...rows.parentElement.querySelectorAll("thead th")];
    heads[0].append(make("span", { class: "nn-hidden" }, "Selected"));
    const pager = pagerIn(body, ["Previous page", "Next page"], (by) => turnTo(store.data.start + by * store.data.count), "rows");
    const choices = body.appendChild(make("div", { class: "nn-toolbar" }));
    const all = button(choices, "", () => act({ do: "select", rows: "all", on: true }));
    const none = button(choices, "Clear selection", () => act({ do: "select", rows: "all", on: false }));
    const close = button(choices, "Close run", () => act({ do: "open", at: null }));
    const place = body.appendChild(make("div", { class: "nn-runs-bench" }));

    const got = (answer) => {
      store.refusal = "";
      Object.assign(store.data, answer);
      store.changed();
    };
    const fetchPage = store.asker(model, got);
    const turnTo = (start, { sort, descending } = store.data) =>
      fetchPage({ what: "page", text: search.value, where: where.value, sort, descending, start });
    const act = (request) => store.get(model, request).then(got, store.refused);
    const toggle = (row) => act({ do: "select", rows: [row.row.at], on: !row.row.chosen });

    search.addEventListener("input", () => turnTo(0));
    where.addEventListener("change", () => turnTo(0));
    where.addEventListener("keydown", (event) => event.key === "Enter" && turnTo(0)); // Jupyter does not fire a change event for it
    columns.forEach(([fact, name, look], at) => {
      const head = heads[at + 1];
      put(head, { class: look || null });
      if (!fact) return;
      const sorts = make("button", { type: "button", title: `Sort by ${name.toLowerCase()}` }, name);
      sorts.addEventListener("click", () => turnTo(0, { sort: fact, descending: store.data.sort === fact && !store.data.descending }));
      head.replaceChildren(sorts);
    });
    // Register before the row's own handlers: clicking the checkbox and pressing space select.
    rows.addEventListener("click", (event) => {
      if (event.target.tagName !== "INPUT") return;
      event.stopImmediatePropagation();
      toggle(event.target.closest("tr"));
    });
    rows.addEventListener("keydown", (event) => {
      if (event.key !== " " || event.target.tagName !== "TR") return;
      event.preventDefault();
      event.stopImmediatePropagation();
      toggle(event.target);
    });
    // A digit labels the run in the row and moves to the next one; 0 removes the label.
    rows.addEventListener("keydown", (event) => {
      const name = Math.max(0, named.selectedIndex);
      const values = store.data.names[name]?.values;
      if (!values || event.target.tagName !== "TR" || !/^[0-9]$/.test(event.key) || Number(event.key) > values.length) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      const value = event.key === "0" ? null : Number(event.key) - 1;
      act({ do: "label", at: event.target.row.at, name, value });
      event.target.nextElementSibling?.focus();
    });
    named.addEventListener("change", store.changed);
    chosenRows(rows, (row) => act({ do: "open", at: row.row.at }), pager);

    function fill(row, { at, chosen }) {
      put(row, { "aria-selected": chosen, "aria-current": at === store.data.opened || null });
      row.querySelector("input").checked = chosen;
    }

    let bench = "";
    let shown = null;
    /** Show the workbench created by the kernel as a view on this page. */
    async function showBench(id) {
      bench = id;
      shown?.remove();
      shown = null;
      place.replaceChildren();
      if (!id) return;
      const { widget_manager: manager } = model; // some front ends have none
      if (!manager) throw new Error("This page shows no view inside another: run `view.bench` in a cell.");
      const view = await manager.create_view(await manager.get_model(id));
      if (bench !== id) return view.remove(); // another one was opened meanwhile
      shown = view;
      place.append(view.el);
    }

    function draw(data) {
      if (isEmpty(data, data.total === 0)) return;
      keys.hidden = data.names.length === 0;
      offer(named, data.names.map(({ name }) => [name, name]));
      const values = data.names[Math.max(0, named.selectedIndex)]?.values ?? [];
      setText(meaning, [...values.map((value, at) => `${at + 1} ${value}`), "0 none"].join(", "));
      const text = (count) => count.toLocaleString("en");
      const total = `${text(data.total)} run${data.total === 1 ? "" : "s"}`;
      const chosen = data.selected ? `, ${text(data.selected)} selected` : "";
      setText(status, `${data.matched === data.total ? total : `${text(data.matched)} of ${total}`}${chosen}`);
      patchRows(rows, data.rows, fill);
      arrowKeys(rows, "tr");
      columns.forEach(([fact], at) => put(heads[at + 1], { "aria-sort": fact && fact === data.sort ? (data.descending ? "descending" : "ascending") : null }));
      pager.draw(data.start, data.start + data.rows.length, data.matched);
      all.hidden = data.matched === 0;
      setText(all, `Select all ${text(data.matched)}`);
      none.hidden = data.selected === 0;
      close.hidden = !data.bench;
      if (bench !== data.bench) showBench(data.bench).catch(store.refused);
    }

    search.value = store.data.text;
    where.value = store.data.where;
    const hide = store.show({ model, el, root, draw });
    return () => {
      hide();
      shown?.remove();
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
