// The spans of a run over time. The kernel sends one window at a time; the page draws and moves it, and reports selections.
export default () => {
  const store = storeOf((data, message) => {
    if (message.type === "grown") data.total = message.total;
    else if (message.type === "chosen") data.chosen = message.at;
    else return false;
    return true;
  });
  const PX_A_BIN = 4;

  function render({ model, el }) {
    const { root, body, isEmpty } = frameIn(el, "Run timeline", "nn-tl");
    const head = body.appendChild(make("p", { class: "nn-sub" }));
    const note = body.appendChild(make("p", { class: "nn-note" }));

    const chips = body.appendChild(make("div", { class: "nn-toolbar", role: "group", "aria-label": "Show only" }));
    const tools = body.appendChild(make("div", { class: "nn-toolbar" }));
    const tool = (text, label, act) => button(tools, text, act, { "aria-label": label, title: label });
    const out = tool("−", "Zoom out", () => zoom(2));
    tool("+", "Zoom in", () => zoom(0.5));
    const left = tool("◂", "Earlier", () => pan(-0.5));
    const right = tool("▸", "Later", () => pan(0.5));
    const whole = tool("Whole run", "Whole run", () => all());
    const before = tool("◂ problem", "Previous problem", () => toProblem(true));
    const after = tool("problem ▸", "Next problem", () => toProblem(false));
    const scale = tools.appendChild(make("label", {}, "By"));
    const scales = scale.appendChild(make("select", { "aria-label": "Width" }));
    offer(scales, ["time", "order"].map((name) => [name, name]));
    const search = tools.appendChild(make("input", { type: "search", class: "nn-tl-search", placeholder: "Name or error", "aria-label": "Name or error" }));
    const hooks = tickIn(tools, "Hooks", () => changedFilter(), { title: "Hooks that went well and decided nothing" });
    const status = tools.appendChild(make("span", { role: "status", class: "nn-number" }));

    const plot = body.appendChild(make("div", { class: "nn-tl-plot" }));
    const picture = sceneIn(plot.appendChild(make("div", { class: "nn-grid", style: "--nn-axis: 0px" })), {
      series: store.data.series, pad: 0, axis: "", use: (bar) => use(bar),
      isPressed: (bar) => bar.bar.key === String(store.data.chosen), isStop: (bar) => atOf(bar)[0] === focused,
    });
    body.append(readout(root, "Arrow keys move between spans, Enter chooses, + and − zoom, 0 shows the whole run. Drag to zoom in."));
    const paused = body.appendChild(make("p", { class: "nn-note" }));
    const pager = pagerIn(body, ["Rows above", "Rows below"], (by) => {
      first = Math.max(0, Math.min(first + 20 * by, now().rows - 1));
      refetch();
    }, "rows");

    const about = body.appendChild(make("div", { class: "nn-tl-about", hidden: "" }));
    const trouble = body.appendChild(make("div"));
    const table = body.appendChild(make("details"));
    table.append(make("summary", {}, "Spans as a table"));
    table.open = store.data.listed; // inside a workbench, it is the list of events
    const rows = tableIn(table, "Spans", store.data.columns, { wordy: (name) => !["Turn", "Began", "Took"].includes(name) });
    const paging = pagerIn(table, ["Earlier", "Later"], (by) => {
      listStart = Math.max(0, listed.start + 50 * by);
      relist();
    });

    let range = null; // null: the whole run, as it grows
    let first = 0;
    let shown = null;
    let drawn = null; // an answer may have come since
    let drawnTotal = -1;
    let detail = null;
    let focused = null;
    let listed = null;
    let listStart = null; // null: the newest page
    let listAt = null; // the span whose page is shown
    const kinds = new Set();
    let only = "";

    const byTime = () => store.data.timed && model.get("scale") === "time";
    const wanted = () => ({ kinds: [...kinds], only, text: search.value, by_time: byTime(), hooks: hooks.checked });
    const get = (request) => store.get(model, request);
    const box = () => plot.querySelector(".nn-plotbox") ?? plot;
    const width = () => Math.max(120, box().clientWidth || 600);
    const fetchWindow = store.asker(model, (answer) => (shown = answer));
    const refetch = () => {
      const bins = Math.max(40, Math.round(width() / PX_A_BIN));
      const request = { what: "window", ...wanted(), bins, first };
      if (range) Object.assign(request, { from: range[0], to: range[1] });
      return fetchWindow(request);
    };
    const fetchList = store.asker(model, (answer) => {
      listed = answer;
      listStart = answer.start + answer.rows.length >= answer.count ? null : answer.start;
      listAt = null;
    });
    const relist = () =>
      table.open && fetchList({ what: "list", ...wanted(), ...(listAt === null ? { start: listStart } : { at: listAt }) });
    const changedFilter = () => {
      first = 0;
      listStart = null;
      refetch();
      relist();
    };

    // Zoom
    const now = () => shown ?? store.data.window;
    const reach = () => range ?? [0, now().end || now().to]; // the last request, whose picture may not have arrived yet
    const view = (start, stop) => {
      const end = now().end;
      const least = byTime() ? 0.01 : 1;
      const wide = Math.min(end, Math.max(stop - start, least));
      const begin = Math.max(0, Math.min(start, end - wide));
      range = wide >= end ? null : [begin, begin + wide];
      refetch();
      store.changed();
    };
    /** Show the part between two fractions of the width. */
    const part = (begin, stop) => {
      const [from, to] = reach();
      view(from + begin * (to - from), from + stop * (to - from));
    };
    const zoom = (factor, at = 0.5) => part(at - at * factor, at - at * factor + factor);
    const pan = (share) => part(share, 1 + share);
    const all = () => {
      range = null;
      refetch();
      store.changed();
    };
    const endDrag = dragRange(plot, box, part);
    const placesOf = ({ bar }) => [bar.left, bar.right].map((place) => place + drawn.from);
    const middleOf = (node) => {
      if (!node) return 0.5;
      const [[from, to], [left, right]] = [reach(), placesOf(node)];
      return Math.max(0, Math.min(((left + right) / 2 - from) / (to - from), 1));
    };
    const atOf = ({ bar }) => bar.key.split("+").map(Number);
    plot.addEventListener("keydown", (event) => {
      const bar = event.target.closest(".nn-box");
      const act = {
        "+": () => zoom(0.5, middleOf(bar)),
        "=": () => zoom(0.5, middleOf(bar)),
        "-": () => zoom(2, middleOf(bar)),
        "−": () => zoom(2, middleOf(bar)),
        0: all,
        Escape: () => (endDrag(), all()),
        n: () => toProblem(false),
        p: () => toProblem(true),
        PageDown: () => pager.down.click(),
        PageUp: () => pager.up.click(),
      }[event.key];
      const shifted = { ArrowRight: 0.25, ArrowLeft: -0.25 }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey || (!act && !(event.shiftKey && shifted))) return;
      event.preventDefault();
      if (event.shiftKey && shifted) pan(shifted);
      else act();
    });
    plot.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // without Ctrl, the wheel scrolls the page
        event.preventDefault();
        const frame = box().getBoundingClientRect();
        zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - frame.left) / frame.width);
      },
      { passive: false },
    );

    // One span
    let looks = 0;
    let isTelling = false; // until then, selections that arrive are older
    const look = async (request, tell) => {
      const mine = (looks += 1);
      isTelling = tell;
      try {
        const found = await get({ ...request, ...wanted() });
        if (mine !== looks) return;
        isTelling = false;
        detail = found;
        focused = found.at;
        if (tell) {
          store.data.chosen = found.at;
          store.select(model, found.go);
        }
        bringIn(found);
        store.changed();
      } catch (error) {
        if (mine === looks) isTelling = false;
        store.refused(error);
      }
    };
    const bringIn = ({ from, to, lane }) => {
      const view_ = now();
      const [start, stop] = reach();
      const isBeside = to < start || from > stop;
      const isThin = to - from < (stop - start) / (width() / PX_A_BIN);
      const isAbove = lane !== null && (lane < view_.first || lane >= view_.first + view_.shown);
      if (isAbove) first = Math.max(0, lane - 5);
      if (isBeside) {
        const wide = Math.max(to - from, isThin ? 0 : stop - start) * 1.5 || (stop - start) / 8;
        view((from + to) / 2 - wide / 2, (from + to) / 2 + wide / 2);
      } else if (isAbove) refetch();
    };
    const zoomTo = ({ from, to }) => {
      const pad = (to - from) * 0.1 || (byTime() ? 0.05 : 1);
      view(from - pad, to + pad);
    };
    const use = (node) => {
      const [at, more] = atOf(node);
      focused = at;
      if (!more) return look({ what: "span", at }, true);
      const [[from, to], [left, right]] = [reach(), placesOf(node)];
      const wide = Math.max(right - left, (to - from) / 500);
      return view(left - wide * 0.15, left + wide * 1.15);
    };
    const toProblem = (back) => look({ what: "problem", at: focused ?? (back ? store.data.total : -1), back }, true);
    plot.addEventListener("dblclick", () => detail && zoomTo(detail));
    plot.addEventListener("focusin", (event) => {
      const bar = event.target.closest(".nn-box");
      if (bar) [focused] = atOf(bar);
    });
    trouble.addEventListener("click", (event) => {
      const line = event.target.closest("button");
      if (line) look({ what: "span", at: Number(line.dataset.at) }, true);
    });
    about.addEventListener("click", (event) => {
      const { zoom, at } = event.target.closest("button")?.dataset ?? {};
      if (zoom) zoomTo(detail);
      else if (at) look({ what: "span", at: Number(at) }, true);
    });
    chosenRows(rows, (row) => look({ what: "span", at: Number(row.dataset.at) }, true), paging);
    table.addEventListener("toggle", relist);

    // Filters
    scales.addEventListener("change", () => {
      range = detail = null;
      store.set(model, { scale: scales.value });
      refetch();
    });
    search.addEventListener("input", changedFilter);
    chips.addEventListener("click", (event) => {
      const chip = event.target.closest("button");
      if (!chip) return;
      const { kind, only: list } = chip.dataset;
      if (list) only = only === list ? "" : list;
      else if (!kinds.delete(kind)) kinds.add(kind);
      changedFilter();
      store.changed();
    });

    function drawPicture(window_) {
      drawn = window_;
      window_.drawn ??= sceneOf(window_.scene);
      const [from, to] = reach().map((place) => place - window_.from);
      picture.draw({ ...window_.drawn, first: from, last: to });
      for (const node of plot.querySelectorAll(".nn-box")) if (atOf(node)[1]) put(node, { "aria-label": `${node.bar.text} Enter zooms in.` });
    }

    function drawTable() {
      if (!listed) return;
      patchRows(rows, listed.rows, (row, { key }) => put(row, { "data-at": key, "aria-selected": key === store.data.chosen }));
      arrowKeys(rows, "tr");
      paging.draw(listed.start, listed.start + listed.rows.length, listed.count);
    }

    let followed = store.data.chosen;
    let asked = false;
    /** Request the newest spans, and again after each answer, so that a run is drawn even if it outpaces the kernel. */
    async function ask() {
      while (drawnTotal !== store.data.total && !asked) {
        const isFirst = drawnTotal < 0;
        if (!isFirst && (document.hidden || !root.isConnected)) return; // not visible
        asked = true;
        drawnTotal = store.data.total;
        await Promise.all([refetch(), isFirst || listStart === null ? relist() : null]);
        asked = false;
      }
    }
    function draw(data) {
      if (isEmpty(data, data.total === 0)) return;
      ask();
      if (data.chosen !== followed && !isTelling) {
        followed = data.chosen;
        if (followed !== null && followed !== detail?.at) look({ what: "span", at: followed }, false);
        if (followed !== null && listed && !listed.rows.some(({ key }) => key === followed)) {
          listAt = followed;
          relist();
        }
      }
      const window_ = now();
      if (!window_) return;
      scale.hidden = !data.timed;
      scales.value = model.get("scale");
      setText(note, data.note);
      setText(head, window_.head);
      patchRows(chips, window_.chips, (chip, { key }) => put(chip, { "aria-pressed": String(only === key || kinds.has(key)) }));
      hooks.disabled = kinds.size > 0 || search.value !== "";
      setText(paused, window_.paused);
      drawPicture(window_);
      whole.disabled = range === null;
      out.disabled = range === null;
      left.disabled = range === null || range[0] <= 0;
      right.disabled = range === null || range[1] >= window_.end;
      before.hidden = after.hidden = !window_.lists.length;
      setText(status, window_.said);
      pager.draw(window_.first, window_.first + window_.shown, window_.rows);
      trouble.hidden = data.listed; // they are in the table
      patchRows(trouble, window_.lists);
      for (const line of trouble.querySelectorAll("button")) put(line, { "aria-pressed": String(Number(line.dataset.at) === detail?.at) });
      about.hidden = detail === null;
      patchRows(about, detail?.parts ?? []);
      drawTable();
    }

    const hide = store.show({ model, el, root, draw, traits: ["scale"] });
    const grown = () => drawnTotal >= 0 && ask(); // do not wait for the next frame: the kernel can start now
    model.on("msg:custom", grown);
    let wide = 0;
    const resized = new ResizeObserver(() => {
      if (drawnTotal < 0 || Math.abs(plot.clientWidth - wide) < 2) return;
      wide = plot.clientWidth;
      refetch();
    });
    resized.observe(plot);
    return () => {
      resized.disconnect();
      model.off("msg:custom", grown);
      hide();
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
