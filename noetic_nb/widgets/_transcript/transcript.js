// One model call: its request item by item, and its outcome. The page has an index of the calls and requests what it shows.
const SCROLL_MARGIN = 30; // pixels kept free above a row after scrolling to it
const FOLLOW_MS = 250; // between two updates of a growing run
const REMEDY_MS = 30;

export default () => {
  const store = storeOf((data, message) => {
    if (message.type === "show") data.at = message.at;
    if (message.type === "more") data.changed = message.changed;
    if (message.type !== "call") return true;
    if (message.at < data.calls.length) return true; // already in the snapshot of this page
    if (message.at > data.calls.length || message.threadsAt > data.threads.length) return false;
    data.threads.splice(message.threadsAt, message.threads.length, ...message.threads);
    data.calls.push(message.call);
    return true;
  });

  function render({ model, el }) {
    const { root, body, isEmpty } = frameIn(el, "Transcript", "nn-transcript");
    const steps = callSteps(body, {
      step: (by) => go(shown() + by),
      follow: (follow) => (follow ? store.set(model, { follow }) : go(shown())),
    });
    const slider = make("input", { type: "range", min: 0, "aria-label": "Model call" });
    steps.back.after(slider);
    const { choice, number, only } = compareControls(body, () => {
      Object.assign(local, { first: 0, open: [] });
      store.changed();
    });
    const labels = labelControls(body, {
      label: (name, value) => {
        const at = shown();
        store.get(model, { what: "label", at, name, value }).then((found) => {
          if (local.call?.at === at) local.call.labels = found;
          store.changed();
        }).catch(store.refused);
        if (value !== null && at < last()) go(at + 1);
      },
      move: (by) => go(shown() + by),
      look: async () => {
        try {
          const { text, fields } = await store.get(model, { what: "first" });
          labels.say(text);
          if (fields === null) return;
          leave();
          store.select(model, fields);
        } catch (error) {
          store.refused(error);
        }
      },
    });
    root.addEventListener("keydown", labels.key);
    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const settings = body.appendChild(make("p", { class: "nn-note" }));
    const unknown = body.appendChild(make("p", { class: "nn-note nn-t-unknown" }));
    const beforePart = body.appendChild(make("p", { class: "nn-t-part" }, "Before the call"));
    const before = body.appendChild(make("ol", { class: "nn-t-lines", "aria-label": "Before the call" }));
    const requestPart = body.appendChild(make("p", { class: "nn-t-part" }, "Request"));
    const difference = requestPart.appendChild(make("span", { class: "nn-t-difference" }));
    const pages = pager(body);
    const items = body.appendChild(make("ol", { class: "nn-t-items", "aria-label": "Items of the request" }));
    body.append(make("p", { class: "nn-t-part" }, "Answer"));
    const answer = body.appendChild(make("p", { class: "nn-sub" }));
    const after = body.appendChild(make("ol", { class: "nn-t-lines", "aria-label": "Outcome of the call" }));
    const quiet = body.appendChild(make("button", { type: "button", class: "nn-t-more", "aria-expanded": "false" }));

    // The state of this page; the shown call is shared with the model's other views.
    const local = {
      ...{ at: -1, call: null, data: null, asked: "", asking: false, times: 0, time: 0 },
      ...{ first: null, open: [], quiet: false },
      ...{ picked: null, known: null, scroll: null, ahead: null },
    };

    const last = () => store.data.calls.length - 1;
    const placeOf = (number) => store.data.calls.findIndex(([known]) => known === number);
    const shown = () => {
      const data = store.data;
      if (local.known !== store.selection) {
        // Each selection is handled once. A selection from before the page opened is already included: the kernel says
        // what is shown.
        const { call, item, decision } = store.selection;
        const found = local.known === null || call == null ? -1 : placeOf(call);
        local.known = store.selection;
        if (found >= 0) data.at = found;
        if (item != null || decision != null) local.scroll = "selection";
      }
      return model.get("follow") || data.at < 0 || data.at > last() ? last() : data.at;
    };
    const leave = () => model.get("follow") && store.set(model, { follow: false });
    const go = (to) => {
      const at = Math.max(0, Math.min(to, last()));
      leave();
      store.data.at = at;
      const [call, turn, thread] = store.data.calls[at];
      store.select(model, { thread_id: store.data.threads[thread], turn, call, item: null, decision: null });
    };
    const compared = () => {
      const value = model.get("compare_with");
      return typeof value === "number" || value === "previous" ? value : null;
    };
    const compare = () => {
      const at = Math.max(1, Math.min(Number(number.value) || 1, last() + 1)) - 1;
      store.set(model, { compare_with: choice.value === "call" ? store.data.calls[at][0] : choice.value || null });
    };

    // The request for a call; an item is searched for only once, on the page that has it.
    const keyOf = (request) => JSON.stringify({ ...request, item: undefined });
    const take = (call, request) => {
      if (local.call?.at !== call.at || local.call?.difference !== call.difference) {
        for (const button of body.querySelectorAll("li [data-key][aria-expanded=true]")) toggleText(button);
      }
      local.call = call;
      if (call.at === local.at) Object.assign(local, { first: call.first, open: call.open });
      local.asked = keyOf({ ...request, first: call.first, open: call.open });
      if (request.item !== undefined && call.wanted !== null) local.scroll = call.wanted;
      store.refusal = "";
      remedy();
      fetchAhead(call.at + 1);
    };
    const receive = (call, request) => {
      take(call, request);
      store.changed();
    };
    const query = newest(async (request) => {
      // If calls come quickly, some are skipped.
      const rest = model.get("follow") ? local.time + FOLLOW_MS - performance.now() : 0;
      if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
      local.time = performance.now();
      return store.get(model, request);
    }, receive);

    /** Request the next call ahead of time: a rater goes from one call to the next. */
    const fetchAhead = (at) => {
      const request = { what: "call", at, against: compared(), only: only.checked, open: [], first: null };
      const ahead = { key: keyOf(request), call: undefined };
      if (!store.data.labels.names || at > last() || local.ahead?.key === ahead.key) return;
      local.ahead = ahead;
      // A failed prefetch is repeated when the call is needed, and then the error is shown.
      store.get(model, request).then((call) => (ahead.call = call), () => (local.ahead = null));
    };
    const takeAhead = (request) => {
      const { key, call } = local.ahead ?? {};
      if (request.item !== undefined || key !== keyOf(request) || call === undefined) return undefined;
      store.get(model, { what: "labels", at: call.at }).then((found) => {
        call.labels = found;
        store.changed();
      }).catch(store.refused);
      return call;
    };

    /** Request the shown call, if it or the request has changed. */
    const refresh = (at) => {
      if (at !== local.at) Object.assign(local, { at, first: null, open: [], picked: null });
      const { item } = store.selection;
      const request = { what: "call", at, against: compared(), only: only.checked, open: local.open, first: local.first };
      if (local.scroll === "selection" && item != null) {
        Object.assign(request, { item, first: null });
        local.scroll = null;
      } else if (keyOf(request) === local.asked) return;
      // Draw an answer brought by the host now, without waiting for a frame.
      const call = model.ahead?.(request) ?? takeAhead(request);
      if (call !== undefined) return take(call, request);
      local.asked = keyOf({ ...request, first: local.first });
      query(request).catch(store.refused);
    };

    /** The outcome of a call grows over time. */
    const extend = store.asker(model, (outcome, { at }) => {
      if (local.call?.at === at) Object.assign(local.call, outcome);
    });
    const refreshOutcome = () => {
      const { changed } = store.data;
      if (changed === undefined || changed.times === local.times) return;
      Object.assign(local, { times: changed.times, ahead: null });
      if (local.call !== null && changed.at === local.call.at) extend({ what: "outcome", at: changed.at });
    };

    /** Request the smallest budgets of unsent items one after the other, because each takes the kernel some time. */
    const remedy = async () => {
      if (local.asking) return;
      local.asking = true;
      try {
        for (;;) {
          await new Promise((resolve) => setTimeout(resolve, REMEDY_MS));
          const { call } = local;
          const row = root.isConnected && call.rows.find((one) => one.remedy);
          if (!row) return;
          Object.assign(row, await store.get(model, { what: "budget", at: call.at, key: row.key, against: compared() }));
          store.changed();
        }
      } catch (error) {
        store.refused(error);
      } finally {
        local.asking = false;
      }
    };
    const turnPage = (to) => {
      const { first, page, total } = local.call;
      const ends = { first: 0, back: first - page, on: first + page, last: Math.floor((total - 1) / page) * page };
      local.first = Math.max(0, Math.min(ends[to], Math.floor((total - 1) / page) * page));
      local.scroll = "first";
      store.changed();
    };
    const textOf = async (key) => {
      const { at } = local.call;
      const text = await store.get(model, { what: "text", at, key, against: compared() });
      return local.call.at === at ? text : undefined;
    };

    slider.addEventListener("input", () => go(Number(slider.value)));
    choice.addEventListener("change", () => {
      if (choice.value === "call" && number.value === "") number.value = 1;
      compare();
    });
    number.addEventListener("change", compare);
    pages.bar.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) turnPage(button.dataset.to);
    });
    quiet.addEventListener("click", () => {
      local.quiet = !local.quiet;
      store.changed();
    });
    body.addEventListener("click", (event) => {
      const button = event.target.closest("li button");
      if (!button) return;
      if (button.dataset.fold === undefined) return void toggleText(button, textOf).catch(store.refused);
      local.open = [...local.open, Number(button.dataset.fold)];
      store.changed();
    });
    const choose = (row, fields) => {
      const call = local.call;
      leave();
      store.data.at = call.at;
      store.select(model, { thread_id: call.where[0], turn: call.where[1], call: call.number, item: null, decision: null, ...fields });
      // A selection made here does not scroll.
      Object.assign(local, { picked: row.row.key, known: store.selection });
    };
    choosable(items, (row) => row.row.fold === undefined && choose(row, { item: row.row.item }));
    for (const list of [before, after]) choosable(list, (row) => choose(row, { decision: row.row.seq }));

    const isChosen = (call, { key, item, seq }) => {
      const chosen = store.selection;
      if (chosen.call != null && chosen.call !== call.number) return false;
      if (chosen.thread_id != null && chosen.thread_id !== call.where[0]) return false;
      if (item != null && item === chosen.item) return true;
      if (seq != null && seq === chosen.decision) return true;
      return chosen.item == null && chosen.decision == null && local.picked === key;
    };

    const drawRows = (list, rows, call) => patchRows(list, rows, (node, row) => put(node, { "aria-current": isChosen(call, row) ? "true" : null }));
    const drawLines = (list, lines, call) => drawRows(list, lines.filter((line) => !line.quiet || local.quiet || isChosen(call, line)), call);

    function scrollTo(call) {
      const wanted = local.scroll;
      if (wanted === null) return;
      const isWanted = ({ row, ariaCurrent }) => (wanted === "selection" ? ariaCurrent === "true" : wanted === "first" || row.key === wanted);
      const row = [...(wanted === "selection" ? body : items).querySelectorAll("li")].find(isWanted);
      if (!row || call.at !== local.at) return;
      local.scroll = null;
      row.style.scrollMarginTop = `${SCROLL_MARGIN}px`;
      row.scrollIntoView({ block: "nearest" });
    }

    function draw(data) {
      // After a missed message, earlier answers may be incomplete.
      if (local.data !== data) Object.assign(local, { data, asked: "", ahead: null });
      if (isEmpty(data, data.calls.length === 0)) return;
      const at = shown();
      const title = local.call?.at === at ? local.call.title : `Call ${at + 1}`;
      const against = compared();
      put(slider, { max: last(), "aria-valuetext": title });
      slider.value = at;
      steps.draw(at, data.calls.length, model.get("follow"));
      if (document.activeElement !== number) number.value = typeof against === "number" ? placeOf(against) + 1 : number.value;
      put(number, { max: data.calls.length });
      if (document.activeElement !== choice) choice.value = typeof against === "number" ? "call" : against ?? "";
      number.hidden = choice.value !== "call";
      only.parentElement.hidden = against === null;
      refresh(at);
      refreshOutcome();

      const call = local.call;
      put(body, { "aria-busy": call?.at === at ? null : "true" });
      if (call === null) return;
      labels.draw(data.labels, call, store.changed);
      setText(sub, `${call.title}: ${call.headline}`);
      setText(settings, call.settings);
      setText(unknown, call.unknown);
      setText(difference, call.difference && ` ${call.difference}`);
      pages.bar.hidden = call.total <= call.page;
      setText(pages.text, `${(call.first + 1).toLocaleString("en")} to ${Math.min(call.first + call.page, call.total).toLocaleString("en")} of ${call.total.toLocaleString("en")}`);
      for (const button of pages.bar.querySelectorAll("button")) {
        const isBack = ["first", "back"].includes(button.dataset.to);
        button.disabled = isBack ? call.first === 0 : call.first + call.page >= call.total;
      }
      drawRows(items, call.rows, call);
      setText(answer, call.answer);
      drawLines(before, call.before, call);
      beforePart.hidden = before.hidden = before.childElementCount === 0;
      drawLines(after, call.after, call);
      quiet.hidden = !call.quiet;
      put(quiet, { "aria-expanded": local.quiet });
      setText(quiet, `${local.quiet ? "Hide" : "Show"} ${call.quiet}`);
      for (const list of [before, items, after]) arrowKeys(list, ":scope > li");
      scrollTo(call);
    }

    return store.show({ model, el, root, draw, traits: ["follow", "compare_with"] });
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
