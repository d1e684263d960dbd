// The regulator's trends: the scene of a thread, its thresholds as handles, the selected turn, and the visible part.

const NESTED = new Set(["panels", "captions", "handles", "stops"]); // these are sent entry by entry; null removes an entry
const handlesOf = (thread) => Object.values(thread.handles);
const keyOf = (handle) => JSON.stringify([handle.predicate, handle.name]);

export default () => {
  const store = storeOf((data, message) => {
    for (const { thread: at, id, about, rows } of message.threads) {
      // The first message about a thread describes it completely; a page that missed it requests everything.
      if (at > data.threads.length || !("handles" in { ...data.threads[at], ...about })) return false;
      const thread = (data.threads[at] ??= { turns: [], id });
      for (const [name, value] of Object.entries(about)) {
        if (!NESTED.has(name)) thread[name] = value;
        else for (const [key, entry] of Object.entries(value)) entry === null ? delete thread[name][key] : ((thread[name] ??= {})[key] = entry);
      }
      thread.marks = null;
      data.latest = at;
      for (const [column, row] of thread.turns ? rows : []) { // null: its columns were not requested yet
        if (column > thread.turns.length) return false;
        thread.turns[column] = row;
      }
    }
    return true;
  });
  // Dragged values by thread and threshold, with their results: shared by all of the model's views in this browser.
  const moved = new Map();
  const REST_MS = 250; // longer than between two keys or answers during a drag
  const NOTHING = { values: new Map(), answer: null, conditions: [], over: new Map() };

  function render({ model, el }) {
    const { columns: names, series, pad, brushed, listed } = store.data;
    const { root, body, isEmpty } = frameIn(el, "Regulator trends");
    const select = choiceIn(body, "Thread", (thread) => store.set(model, { thread_at: Number(thread) }));
    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const legend = body.appendChild(make("ul", { class: "nn-keys" }));
    const grid = body.appendChild(make("div", { class: "nn-grid" }));

    // First in the document, so that Tab reaches grips after the turns; positioned over all panels.
    const hits = grid.appendChild(make("div", { class: "nn-hits", tabindex: 0, role: "slider", "aria-label": "Turn", "aria-orientation": "horizontal" }));
    const cursor = hits.appendChild(make("div", { class: "nn-cursor" }));
    const chosenMark = hits.appendChild(make("div", { class: "nn-cursor nn-chosen" }));
    const scene = sceneIn(grid, { series, pad, axis: "turn" });
    const brush = brushIn(body, {
      count: () => wholeNow().turns.length, ends: (row) => wholeNow().turns[row].turns, choose: (first, last) => showPart(first, last),
    });

    const readout = body.appendChild(make("p", { class: "nn-readout", role: "status" }));
    const outcome = body.appendChild(make("p", { class: "nn-outcome", role: "status", "aria-live": "polite" }));
    const outcomeText = outcome.appendChild(make("span"));
    const bankText = outcome.appendChild(make("span", { class: "nn-bank" }));
    const back = outcome.appendChild(make("button", { type: "button" }, "As recorded"));
    const others = body.appendChild(store.fold("thresholds", make("details"), () => drawNumbers(threadNow())));
    others.append(make("summary", {}, "Thresholds"));
    const numbers = others.appendChild(make("div"));
    const note = body.appendChild(make("p", { class: "nn-note" }));
    const inside = body.appendChild(store.fold("inside", make("details")));
    const insideHead = inside.appendChild(make("summary"));
    const turns = inside.appendChild(make("div"));
    const decided = body.appendChild(make("details"));
    const decidedHead = decided.appendChild(make("summary"));
    const list = decided.appendChild(make("ul", { class: "nn-list" }));
    // The list opens or closes with its length, until the user chooses.
    decidedHead.addEventListener("click", () => store.open.set("decided", !decided.open));
    decided.addEventListener("toggle", store.changed);
    const tableSoon = store.table(model, body, () => request("table"));
    inside.hidden = outcome.hidden = true;

    let at = -1; // the shown thread
    let tabled = null; // the chart whose table is shown
    let column = null; // the column under the cursor
    let asked = null;
    let opened = null; // the column whose turns are listed
    let part = null; // the visible part of the thread: first and last column, and its chart
    const wholeNow = () => store.data.threads[at];
    const threadNow = () => part?.chart ?? wholeNow();
    const movedNow = () => moved.get(at) ?? NOTHING;
    const reach = () => (part && !part.chart ? [part.first, part.last + 1] : [0, Math.max(1, threadNow()?.turns?.length ?? 1)]);
    const request = (what, more = {}) => ({ what, thread: at, part: part?.chart ? [part.first, part.last] : null, ...more });

    // Decisions with other thresholds: only the newest question is sent, and conditions are requested after its answer.
    const thresholdsOf = (values) => {
      const found = Object.create(null);
      for (const [key, value] of values) {
        const [predicate, name] = JSON.parse(key);
        (found[predicate] ??= Object.create(null))[name] = value;
      }
      return found;
    };
    const ask = (wanted) => store.get(model, wanted).catch((error) => ({ fault: error.message }));
    const recall = () => {
      const known = moved.get(at) ?? { values: new Map(), answer: null, conditions: [], over: new Map() };
      moved.set(at, known);
      return known;
    };
    const tellOver = (known) => {
      known.over = marksOf(series, [], [...(known.answer?.over ?? []), ...known.conditions]);
      store.changed();
    };
    const judge = newest(ask, () => {}, (answer, wanted) => {
      const known = moved.get(wanted.thread);
      if (!known || answer.fault) return;
      known.conditions = answer;
      tellOver(known);
    });
    let resting = 0;
    const tryOnBank = newest(ask, (answer, wanted) => {
      const known = moved.get(wanted.thread);
      if (!known?.values.size) return;
      known.bank = answer.fault ?? answer.text;
      store.changed();
    });
    const decideAgain = newest(ask, (_, wanted) => {
      // Slower questions would delay the next decisions, so they wait until the drag rests.
      clearTimeout(resting);
      resting = setTimeout(() => {
        if (!moved.get(wanted.thread)?.values.size) return;
        judge({ ...wanted, what: "conditions" });
        if (store.data.bank) tryOnBank({ ...wanted, what: "bank" });
      }, REST_MS);
    }, (answer, wanted) => {
      const known = moved.get(wanted.thread);
      if (!known?.values.size) return;
      Object.assign(known, { answer, conditions: [] });
      tellOver(known);
    });
    let hasAsked = false;
    const prepare = () => {
      // The first answer takes longest, so request it when the pointer or focus approaches.
      if (hasAsked || at < 0) return;
      hasAsked = true;
      const thread = wholeNow();
      ask(request("what_if", { thresholds: {} })).then((answer) => {
        thread.doubt = answer.fault ?? answer.note;
        if (!answer.fault) judge(request("conditions", { thresholds: {} }));
        recall();
        store.changed();
      });
    };
    const valueOf = (handle) => movedNow().values.get(keyOf(handle));
    const placeOf = (handle) => {
      const value = valueOf(handle);
      if (value === undefined) return handle.at;
      const place = handle.stops.values.findIndex((each) => each >= value);
      return place < 0 ? handle.stops.values.length - 1 : place;
    };
    function move(handle, to) {
      const known = recall();
      const place = Math.min(Math.max(to, 0), handle.stops.values.length - 1);
      if (place === handle.at) known.values.delete(keyOf(handle));
      else known.values.set(keyOf(handle), handle.stops.values[place]);
      clearTimeout(resting);
      if (!known.values.size) return asRecorded();
      decideAgain(request("what_if", { thresholds: thresholdsOf(known.values) }));
      store.changed();
    }
    function asRecorded() {
      const known = recall();
      Object.assign(known, { values: new Map(), answer: null, bank: null });
      tellOver(known);
      judge(request("conditions", { thresholds: {} }));
    }
    back.addEventListener("click", () => {
      asRecorded();
      hits.focus({ preventScroll: true });
    });
    const grips = new Map();
    function drawGrips() {
      for (const [key, { box, scale }] of scene.panels) {
        const handle = () => handlesOf(threadNow()).find(({ panel }) => panel === key);
        if (handle() && !grips.has(box)) grips.set(box, gripIn(box, { handle, at: placeOf, scale: () => scene.panels.get(key).scale, move, prepare }));
        grips.get(box)?.();
        const value = handle() && valueOf(handle());
        let line = box.querySelector(".nn-would-line");
        if (value === undefined) line?.remove();
        else {
          line ??= box.appendChild(make("div", { class: "nn-would-line nn-would" }));
          line.style.top = `${scale.y(value).toFixed(1)}px`;
        }
      }
    }

    function said(thread, place) {
      const row = thread.turns[place];
      const told = row.cells.map((cell, which) => (cell && thread.cells.includes(names[which][0]) ? `${names[which][2]} ${cell}`.trim() : "")).filter(Boolean);
      const states = [...movedNow().over.values()].flat().filter(([points, text]) => text && points.length > 3 && points[0] <= place && place < points[2]);
      return [told.join(" · "), ...states.map(([, text]) => text)].join("\n");
    }
    function go(to) {
      const [first, last] = reach();
      column = Math.min(Math.max(to, first), last - 1);
      store.changed();
    }
    const columnAt = (event) => {
      const frame = hits.getBoundingClientRect();
      const [first, last] = reach();
      return Math.floor(first + ((event.clientX - frame.left) / frame.width) * (last - first));
    };
    hits.addEventListener("pointermove", (event) => go(columnAt(event)));
    hits.addEventListener("pointerenter", prepare);
    hits.addEventListener("click", (event) => {
      go(columnAt(event));
      choose();
    });
    hits.addEventListener("keydown", (event) => {
      const [first, last] = reach();
      const now = column ?? last - 1;
      const to = new Map([["ArrowLeft", now - 1], ["ArrowRight", now + 1], ["Home", first], ["End", last - 1], ["PageUp", now - 10], ["PageDown", now + 10]]).get(event.key);
      if (to !== undefined) go(to);
      else if (event.key === "Enter" || event.key === " ") choose();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    hits.addEventListener("focus", () => go(column ?? reach()[1] - 1));
    function choose() {
      const row = threadNow()?.turns?.[column];
      if (!row) return;
      if (row.turns[0] !== row.turns[1]) return listTurns(column);
      store.select(model, { thread_id: wholeNow().id, turn: row.turns[0] });
    }
    /** List the turns that share a column, each selectable. */
    async function listTurns(which) {
      const thread = at;
      const found = await store.get(model, request("turns", { at: which }));
      opened = { thread, which, found };
      store.open.set("inside", (inside.open = true));
      store.changed();
    }
    /** Show only some columns: first as they are, then finer ones when the kernel has answered. */
    const refine = newest(ask, (chart, wanted) => {
      if (chart.fault || part?.first !== wanted.first || part.last !== wanted.last) return;
      part.chart = chart;
      column = null;
      tellOver(Object.assign(recall(), { conditions: [] }));
      judge(request("conditions", { thresholds: thresholdsOf(movedNow().values) }));
    });
    function showPart(first, last) {
      column = null;
      const isAll = first <= 0 && last >= wholeNow().turns.length - 1;
      part = isAll ? null : { first, last, chart: null };
      if (!isAll) refine({ what: "part", thread: at, first, last });
      else if (hasAsked) judge(request("conditions", { thresholds: thresholdsOf(movedNow().values) }));
      store.changed();
    }

    function draw(data) {
      const chosen = model.get("thread_at");
      const shown = chosen >= 0 && chosen < data.threads.length ? chosen : data.latest;
      if (shown !== at) [at, column, opened, part, hasAsked] = [shown, null, null, null, false];
      const whole = data.threads[at];
      if (whole && !whole.turns && asked !== at) {
        asked = at;
        store.get(model, { what: "thread", thread: at }).then((found) => {
          Object.assign(whole, found);
          store.changed();
        });
      }
      if (isEmpty(data, !whole?.turns?.length)) return;
      const thread = threadNow();
      for (const handle of handlesOf(thread)) handle.stops = thread.stops[handle.of];
      select.parentElement.hidden = data.threads.length < 2;
      offer(select, [[-1, "latest"], ...data.threads.map((one, place) => [place, one.name])]);
      select.value = String(chosen);
      setText(sub, whole.head);
      legendIn(legend, series, thread.legend);

      const [first, last] = reach();
      if (tabled !== thread || !thread.marks) tableSoon();
      tabled = thread;
      if (!thread.marks) {
        thread.marks = marksOf(series, thread.turns.map(({ marks }) => marks), thread.whole);
        // Request what the regulator saw when the page is idle; for long threads when the pointer or focus approaches.
        if (thread.size > 1 || !handlesOf(thread).length) hasAsked ||= !handlesOf(thread).length;
        else if (hasAsked) judge(request("conditions", { thresholds: thresholdsOf(movedNow().values) }));
        else requestIdleCallback(prepare, { timeout: 2000 });
      }
      scene.draw({ panels: thread.order.map((key) => thread.panels[key]), captions: thread.captions, marks: thread.marks, over: movedNow().over, first, last, ticks: thread.ticks });
      drawGrips();
      brush(whole.turns.length * whole.size > brushed ? [part?.first ?? 0, part?.last ?? whole.turns.length - 1] : null);
      drawCursor(thread);

      const known = movedNow();
      outcome.hidden = !known.values.size;
      setText(outcomeText, known.answer?.fault ?? known.answer?.text ?? (known.values.size ? "Deciding again…" : ""));
      setText(bankText, known.bank ?? (store.data.bank ? "Trying it on the bank…" : ""));
      others.hidden = handlesOf(thread).length === 0;
      if (others.open) drawNumbers(thread);
      const columns = thread.size > 1 ? `Each column is ${thread.size} turns: the least and the greatest of their values.` : "";
      const decisions = thread.turns.flatMap(({ marks }) => marks.map((mark) => mark[2])).filter((text) => typeof text === "string");
      setText(note, [columns, decisions.length ? "" : "No decision to warn, change or stop.", thread.note, whole.doubt].filter(Boolean).join(" "));
      decided.hidden = decisions.length === 0;
      decided.open = store.open.get("decided") ?? decisions.length <= listed;
      setText(decidedHead, `Decisions: ${decisions.length}`);
      if (decided.open) patch(list, decisions, () => make("li"), (item, text) => setText(item, text.replace("->", "→")));
      drawInside();
    }

    function drawCursor(thread) {
      const [first, last] = reach();
      const now = Math.min(Math.max(column ?? last - 1, first), last - 1);
      const span = (node, place) => {
        node.hidden = place < first || place >= last;
        node.style.left = `${(100 * (place - first)) / (last - first)}%`;
        node.style.width = `${100 / (last - first)}%`;
      };
      span(cursor, column === null ? -1 : now);
      const { thread_id: id, turn } = store.selection;
      const isHere = turn !== null && turn !== undefined && (id === null || id === undefined || id === wholeNow().id);
      const place = isHere ? thread.turns.findIndex((row) => row.turns[0] <= turn && turn <= row.turns[1]) : -1;
      span(chosenMark, place);
      put(chosenMark, { "data-turn": place < 0 ? null : turn });
      const text = said(thread, now);
      setText(readout, text);
      put(hits, { "aria-valuemin": thread.turns[first].turns[0], "aria-valuemax": thread.turns[last - 1].turns[1], "aria-valuenow": thread.turns[now].turns[0], "aria-valuetext": text });
    }

    /** Every threshold of the regulator as a slider; those with a panel also have a grip. */
    function drawNumbers(thread) {
      patch(numbers, handlesOf(thread), () => {
        const row = make("div", { class: "nn-numbers" });
        const slider = make("input", { type: "range", min: 0, step: 1 });
        slider.addEventListener("focus", prepare);
        slider.addEventListener("input", () => move(row.handle, Number(slider.value)));
        row.append(make("span"), slider, make("output"));
        return row;
      }, (row, handle) => {
        row.handle = handle;
        const [name, slider, output] = row.children;
        setText(name, handle.apart ? `${handle.label} · ${handle.apart}` : handle.label);
        put(slider, { max: handle.stops.values.length - 1 });
        slider.value = String(placeOf(handle));
        sliderState(slider, handle, placeOf(handle));
        setText(output, handle.stops.texts[placeOf(handle)]);
      });
    }

    function drawInside() {
      inside.hidden = !opened || opened.thread !== at;
      if (inside.hidden) return;
      setText(insideHead, opened.found.head);
      patchRows(turns, opened.found.parts);
    }
    turns.addEventListener("click", (event) => {
      const { turn } = event.target.closest("[data-turn]")?.dataset ?? {};
      if (turn) store.select(model, { thread_id: wholeNow().id, turn: Number(turn) });
    });

    return store.show({ model, root, draw, traits: ["thread_at"] });
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
