// Steering decisions, newest first: consecutive allows share one line that can be opened, everything else is a row. The
// kernel searches and filters; a page has one page of lines at a time.
export default () => {
  const FILTERS = [["outcome", "Outcome"], ["point", "Where"], ["tool", "Tool"], ["rule", "Rule"], ["thread", "Thread"]];
  const ORDER = ["deny", "ask", "guide", "a rule failed", "not decided", "not enforced"];
  const OPENED = 100; // rows of a fold at a time
  const GROWN_MS = 300;

  const store = storeOf((data, message) => {
    if (message.type !== "line" || message.total <= data.total) return true;
    if (message.total > data.total + 1) return false;
    if (message.count === data.count) data.lines[data.lines.length - 1] = message.line;
    else data.lines.push(message.line);
    data.lines.splice(0, data.lines.length - data.page);
    data.total = message.total;
    data.count = message.count;
    for (const [kind, at, pair] of message.facets) data.facets[kind][1][at] = pair;
    return true;
  });

  function namesOf(data, kind) {
    return data.facets.find((pair) => pair[0] === kind)[1];
  }

  function render({ model, el }) {
    const { root, body, isEmpty } = frameIn(el, "Ledger");
    const note = make("p", { class: "nn-note" });
    root.firstElementChild.after(note);

    const chosen = { chips: new Set(), text: "", turn: "", named: new Map() };
    let asked = { start: 0, decision: null };
    let page = null; // the kernel's answer; null is the newest page without a filter
    const opened = new Map(); // by the first index of a fold, its rows
    let focused = null; // the index of the row whose detail is shown
    let detail = null;
    let shownTotal = -1;

    const chips = body.appendChild(make("div", { class: "nn-chips", role: "group", "aria-label": "Show decisions that are" }));
    const bar = body.appendChild(make("div", { class: "nn-filters", role: "search" }));
    const search = bar.appendChild(make("input", { type: "search", class: "nn-search", placeholder: "Search all decisions", "aria-label": "Search all decisions" }));
    const selects = new Map();
    for (const [kind, label] of FILTERS) {
      selects.set(kind, choiceIn(bar, label, (value) => {
        if (value) chosen.named.set(kind, value);
        else chosen.named.delete(kind);
        refilter();
      }));
    }
    const turnBox = bar.appendChild(make("label", { class: "nn-choice" }, "Turn "));
    const turn = turnBox.appendChild(make("input", { type: "number", min: 0, class: "nn-turn-input", "aria-label": "Turn" }));
    const clear = button(bar, "Clear", () => {
      chosen.chips.clear();
      chosen.named.clear();
      chosen.text = search.value = "";
      chosen.turn = turn.value = "";
      tellOnly();
      refilter();
    });
    const status = body.appendChild(make("p", { class: "nn-sub", role: "status" }));
    const rows = tableIn(body, "Decisions, newest first", store.data.columns, { kind: "nn-table nn-ledger", scroll: "nn-scroll nn-tall" });
    const pager = pagerIn(body, ["Newer", "Older"], (by) => {
      asked = { start: Math.max(0, asked.start + by * store.data.page), decision: null };
      refetch();
    }, "lines");
    const about = body.appendChild(make("section", { class: "nn-detail", "aria-label": "The chosen decision", "aria-live": "polite" }));

    const request = () => ({
      what: "lines",
      chips: [...chosen.chips],
      text: chosen.text,
      turn: chosen.turn === "" ? null : Number(chosen.turn),
      ...Object.fromEntries(chosen.named),
    });
    const isFiltered = () => chosen.chips.size > 0 || chosen.text.trim() !== "" || chosen.turn !== "" || chosen.named.size > 0;
    const fetchPage = store.asker(model, (answer) => {
      page = answer;
      asked = { start: answer.start, decision: null };
    });
    /** Get the requested lines; without a filter, the newest page is already here. */
    const refetch = () => {
      if (!isFiltered() && asked.start === 0 && asked.decision === null) {
        page = null;
        store.changed();
        return;
      }
      fetchPage({ ...request(), start: asked.start, count: store.data.page, decision: asked.decision });
    };
    const refilter = () => {
      asked = { start: 0, decision: null };
      opened.clear();
      refetch();
    };
    /** Get the rows of a fold, or more of them: `fold` is the element with the rest. */
    const openFold = async (fold) => {
      const known = fold.rest ? opened.get(fold.first).filter((row) => !row.rest) : [];
      try {
        const { lines, rest } = await store.get(model, { ...request(), within: [fold.first, fold.last], start: 0, count: OPENED });
        opened.set(fold.first, [...known, ...lines.reverse().map((row) => ({ ...row, inFold: true })), ...(rest ? [rest] : [])]);
      } catch (error) {
        return store.refused(error);
      }
      store.changed();
    };
    const show = store.asker(model, (answer, { what, at }) => {
      if (at !== focused) return;
      detail = answer;
      if (what === "detail") show({ what: "origins", at });
    });
    const focusRow = (line) => {
      if (focused === line.at) return;
      focused = line.at;
      show({ what: "detail", at: line.at });
      store.changed();
    };

    search.addEventListener("input", () => {
      chosen.text = search.value;
      refilter();
    });
    turn.addEventListener("input", () => {
      chosen.turn = turn.value;
      refilter();
    });
    const tellOnly = () => {
      const only = chosen.chips.size === 1 ? [...chosen.chips][0] : "";
      if (model.get("only") !== only) store.set(model, { only });
    };
    let only = "";
    const followOnly = () => {
      if (model.get("only") === only) return;
      only = model.get("only");
      const same = chosen.chips.size === 1 ? [...chosen.chips][0] : "";
      if (only === same) return;
      chosen.chips = new Set(only ? [only] : []);
      refilter();
    };

    function drawChips(data) {
      // Unknown decisions come before the allows, which are the majority.
      const rank = (name) => (name === "allow" ? ORDER.length + 1 : ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
      const names = [...namesOf(data, "chip")].sort(([a], [b]) => rank(a) - rank(b));
      patch(chips, names, () => {
        const chip = make("button", { type: "button", class: "nn-chip" });
        chip.append(make("span", { class: "nn-badge" }), make("span", { class: "nn-count" }));
        chip.addEventListener("click", () => {
          const name = chip.dataset.action;
          if (!chosen.chips.delete(name)) chosen.chips.add(name);
          tellOnly();
          refilter();
        });
        return chip;
      }, (chip, [name, count]) => {
        put(chip, { "data-action": name, "aria-pressed": chosen.chips.has(name) });
        put(chip.firstChild, { "data-action": name });
        setText(chip.firstChild, name);
        setText(chip.lastChild, count.toLocaleString("en"));
      });
    }

    function drawFilters(data) {
      for (const [kind, select] of selects) {
        const names = namesOf(data, kind);
        select.parentElement.hidden = names.length < (kind === "outcome" || kind === "rule" ? 1 : 2);
        offer(select, [["", "any"], ...names.map(([name, count]) => [name, `${name} (${count.toLocaleString("en")})`])]);
        const value = chosen.named.get(kind) ?? "";
        if (select.value !== value) select.value = value;
      }
      clear.hidden = !isFiltered();
    }

    let grown = null; // an open fold that has more rows by now
    const openGrown = soon(() => opened.has(grown.first) && openFold(grown));
    /** The lines of the page, with the rows of open folds, for drawing. */
    const linesOf = (lines) => lines.flatMap((line) => {
      const inside = line.fold ? opened.get(line.first) : undefined;
      if (!inside) return [line];
      if (inside[0].at < line.last) [grown] = [line, openGrown(GROWN_MS)];
      return [line, ...inside];
    });

    function fill(row, line) {
      const { decision, call } = store.selection;
      const isChosen = line.go && (decision === line.go.decision || (decision == null && call != null && call === line.go.call));
      put(row, { "aria-expanded": line.fold ? opened.has(line.first) : null, "aria-selected": line.go ? Boolean(isChosen) : null });
      row.classList.toggle("nn-infold", line.inFold === true);
      row.classList.toggle("nn-focused", line.at !== undefined && line.at === focused);
    }

    const act = (line) => {
      if (line.fold && opened.delete(line.first)) return store.changed();
      if (line.fold || line.rest) return openFold(line);
      focusRow(line);
      store.select(model, line.go);
    };
    chosenRows(rows, ({ row }) => act(row), pager);
    rows.addEventListener("focusin", (event) => {
      const line = event.target.closest("tr")?.row;
      if (line?.at !== undefined) focusRow(line);
    });

    const refetchSoon = soon(refetch);
    function draw(data) {
      followOnly();
      setText(note, data.note);
      if (isEmpty(data, data.total === 0)) return;
      if (shownTotal !== data.total && shownTotal >= 0 && page !== null) refetchSoon(GROWN_MS);
      shownTotal = data.total;
      findSelected();
      drawChips(data);
      drawFilters(data);
      const now = page ?? { start: 0, count: data.count, matched: data.total, total: data.total, lines: data.lines };
      const lines = linesOf([...now.lines].reverse());
      patchRows(rows, lines, fill);
      arrowKeys(rows, "tr");
      const total = data.total.toLocaleString("en");
      setText(status, now.matched === data.total ? `${total} decisions` : `${now.matched.toLocaleString("en")} of ${total} decisions`);
      pager.draw(now.start, Math.min(now.start + now.lines.length, now.count), now.count);
      about.hidden = detail === null;
      if (detail !== null) patchRows(about, detail);
    }

    /** Another view selected a decision: show the page with it. */
    let followed = store.selection.decision ?? null;
    function findSelected() {
      const decision = store.selection.decision ?? null;
      if (decision === followed) return;
      followed = decision;
      if (decision === null) return;
      const here = [...rows.children].some(({ row }) => row.go?.decision === decision);
      if (here) return;
      asked = { start: asked.start, decision };
      refetch();
    }

    return store.show({ model, el, root, draw, traits: ["only"] });
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
