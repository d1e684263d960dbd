// The states of layers over time: the writes of one layer as a list, and beside it the changes of the chosen one. The
// kernel compares; a page has one page of writes and one difference.
export default () => {
  const waiting = new Map(); // edits started by the kernel, by the id from this page
  let asks = 0;
  const page = Math.random().toString(36).slice(2);

  const store = storeOf((data, message) => {
    if (message.type === "edited") {
      waiting.get(message.asked)?.(message);
      waiting.delete(message.asked);
      return true;
    }
    if (message.type !== "layers") return true;
    if (message.at > data.layers.length || message.count > data.threads.length + message.threads.length) return false;
    if (message.count > data.threads.length) data.threads.push(...message.threads);
    for (const [at, row] of message.rows) data.layers[at] = row;
    data.first = message.first;
    return true;
  });

  function render({ model, el }) {
    const { root, body, isEmpty } = frameIn(el, "Memory", "nn-memory-view");
    const bar = body.appendChild(make("div", { class: "nn-toolbar" }));
    const threads = choiceIn(bar, "Thread", (thread) => choose(inThread(Number(thread))));
    const chips = body.appendChild(make("div", { class: "nn-chips", role: "group", "aria-label": "Layer" }));
    const status = body.appendChild(make("p", { class: "nn-sub", role: "status" }));
    const plot = body.appendChild(make("div", { class: "nn-grid", role: "group", "aria-label": "Changes by layer and turn" }));
    const isPressed = ({ bar }) => bar.key === `${at} ${detail?.turn}`;
    const picture = sceneIn(plot, { series: store.data.series, pad: 0, axis: "turn", use: (node) => useBar(node), isPressed });
    const line = body.appendChild(readout(plot, "A row for each layer, a column for each turn; the numbers are changes."));
    const columns = body.appendChild(make("div", { class: "nn-columns" }));
    const left = columns.appendChild(make("div", { class: "nn-left" }));
    const rows = tableIn(left, "Writes, newest first", store.data.writes, { kind: "nn-table nn-writes", scroll: "nn-scroll nn-tall" });
    const pager = pagerIn(left, ["Newer", "Older"], (by) => {
      start = Math.max(0, start + by * store.data.page);
      focused = null;
      refetch();
    });
    const all = tickIn(left, "also writes that changed nothing", () => {
      [start, focused] = [0, null];
      refetch();
    });
    const about = columns.appendChild(make("section", { class: "nn-detail", "aria-label": "The chosen write", "aria-live": "polite" }));
    const children = body.appendChild(store.fold("children", make("details")));
    children.append(make("summary", {}, ""));
    const flows = tableIn(children, "Children", store.data.flows, { kind: "nn-table nn-memory" });

    let at = -2; // the shown layer
    let listed = null; // the page of its writes
    let start = 0;
    let focused = null; // the index of the write whose difference is shown; null follows the newest
    let detail = null;
    let against = "write";
    let scene = null; // the picture of the thread
    let flow = null;
    let flowsOf = ""; // the layer and moment of the flows
    let pictured = ""; // the writes in the picture
    let seen = null; // how many writes, changes and flows of the layer the page has
    let known = store.selection;

    const show = store.asker(model, (answer, request) => {
      if (request.layer === at) detail = answer;
    });
    const ask = () => {
      const place = focused ?? listed?.rows[0]?.key;
      if (place === undefined) detail = null;
      else show({ what: "change", layer: at, at: place, against });
    };
    const list = store.asker(model, (answer, request) => {
      if (request.layer !== at) return;
      listed = answer;
      start = answer.start;
      if (request.turn !== null) [focused, picking] = [answer.picked, null];
      ask();
    });
    let picking = null; // the selected turn until its write is known: news must not replace the question
    const refetch = (turn = picking) => {
      picking = turn;
      list({ what: "writes", layer: at, start, all: all.checked, turn });
    };
    const tellFlows = store.asker(model, (answer, request) => {
      if (request.layer === at) flow = answer;
    });
    const tellPicture = store.asker(model, (answer, request) => {
      if (request.layer === at) scene = sceneOf(answer);
    });
    const useBar = ({ bar }) => {
      const [layer, turn] = bar.key.split(" ").map(Number);
      choose(layer);
      select(layer, turn);
    };

    const open = (place, turn = null) => {
      at = place;
      [listed, detail, focused, flow, start, seen] = [null, null, null, null, 0, null];
      closeEditor();
      if (at < 0) return;
      refetch(turn);
    };
    const choose = (position) => store.set(model, { position });
    const focusRow = (row) => {
      if (focused === row.key) return;
      focused = row.key;
      ask();
      store.changed();
    };
    const pick = (row) => {
      focusRow(row);
      select(at, row.turn);
      known = store.selection;
    };
    const select = (layer, turn) => {
      const thread = store.data.threads[store.data.layers[layer][1]];
      store.select(model, { thread_id: thread[1], turn, call: null, item: null, decision: null });
    };
    chosenRows(rows, (row) => pick(row.row), pager);
    rows.addEventListener("focusin", (event) => {
      const row = event.target.closest("tr")?.row;
      if (row) focusRow(row);
    });

    /** The thread's layer with the name of the shown one; otherwise the first with a state. */
    function inThread(thread) {
      const layers = store.data.layers;
      const name = layers[at]?.[0];
      const here = layers.map((row, place) => [row, place]).filter(([row]) => row[1] === thread);
      const same = here.find(([row]) => row[0] === name) ?? here.find(([row]) => row[2] > 0) ?? here[0];
      return same ? same[1] : -1;
    }

    // The selected write, and its comparison

    const head = about.appendChild(make("p", { class: "nn-detail-head" }));
    const compare = about.appendChild(make("div", { class: "nn-toolbar" }));
    const base = choiceIn(compare, "Compared with", () => rebase());
    offer(base, [["write", "the write before"], ["turn", "the end of the turn before"], ["other", "the end of turn"]]);
    const other = compare.appendChild(make("input", { type: "number", min: 0, value: 1, class: "nn-turn-input", "aria-label": "Turn to compare with" }));
    const rebase = () => {
      other.hidden = base.value !== "other";
      const turn = Number(other.value);
      against = base.value === "other" ? (Number.isInteger(turn) ? turn : 0) : base.value;
      ask();
    };
    other.addEventListener("input", rebase);
    other.hidden = true;
    const differs = about.appendChild(make("div"));
    const tools = about.appendChild(make("div", { class: "nn-toolbar" }));
    const edit = button(tools, "Edit the state now", () => begin({ what: "edit" }, (message) => {
      token = message.token;
      field.value = message.text;
      form.hidden = false;
      field.focus();
      field.setSelectionRange(0, 0);
    }));
    const back = button(tools, "Go back", () => begin({ what: "rewind", turn: detail.turn }, () => {}));
    const locked = tools.appendChild(make("span", { class: "nn-note" }, "A recording cannot be edited. To edit the state of an agent, pass harness=."));
    const form = about.appendChild(make("div", { class: "nn-edit", hidden: true }));
    const field = form.appendChild(make("textarea", { "aria-label": "The state as JSON", spellcheck: "false", rows: 10, "data-lm-suppress-shortcuts": "true" }));
    const buttons = form.appendChild(make("div", { class: "nn-toolbar" }));
    const save = button(buttons, "Save", () => begin({ what: "save", token, text: field.value }, () => {
      token = null;
      form.hidden = true;
      [start, focused] = [0, null];
      edit.focus();
    }));
    const cancel = button(buttons, "Cancel", () => {
      closeEditor();
      edit.focus();
    });
    const outcome = about.appendChild(make("p", { class: "nn-note", role: "status" }));
    let token = null;

    /** Request an operation that takes the harness some time; the result is a separate message. */
    const begin = async (request, use) => {
      const asked = `${page}-${(asks += 1)}`;
      const answer = new Promise((resolve) => waiting.set(asked, resolve));
      setText(outcome, "…");
      try {
        await store.get(model, { ...request, layer: at, asked });
      } catch (error) {
        waiting.delete(asked);
        setText(outcome, error.message);
        return;
      }
      const message = await answer;
      setText(outcome, message.fault ?? message.done ?? "");
      put(outcome, { "data-mood": message.fault ? "bad" : null });
      if (message.fault === undefined) use(message);
    };
    function closeEditor() {
      token = null;
      form.hidden = true;
      setText(outcome, "");
    }
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") cancel.click();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save.click();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });

    function drawDetail(data) {
      about.hidden = detail === null;
      if (detail === null) return;
      setText(head, detail.title);
      edit.hidden = !data.editable;
      back.hidden = !data.editable || detail.turn < 1;
      locked.hidden = data.editable;
      setText(back, `Go on from the end of turn ${detail.turn} in a fork`);
      patchRows(differs, detail.rows);
    }

    let writes = ""; // of all layers of the thread
    const pictureSoon = soon(() => {
      pictured = writes;
      tellPicture({ what: "picture", layer: at });
    });
    const refetchSoon = soon(() => refetch());
    function drawPicture(data) {
      const thread = data.layers[at][1];
      writes = `${thread} ${data.layers.filter((row) => row[1] === thread).map((row) => row[2])}`;
      if (pictured !== writes) pictureSoon(pictured ? 200 : 0);
      plot.hidden = line.hidden = !scene?.legend.length;
      if (!plot.hidden) picture.draw(scene);
    }

    function drawLayers(data) {
      const thread = data.layers[at][1];
      threads.parentElement.hidden = data.threads.length < 2;
      offer(threads, data.threads.map(([name], place) => [place, name]));
      if (threads.value !== String(thread)) threads.value = String(thread);
      const here = data.layers.map((row, place) => [row, place]).filter(([row]) => row[1] === thread);
      patch(chips, here, () => {
        const chip = make("button", { type: "button", class: "nn-chip" });
        chip.append(make("span"), make("span", { class: "nn-count" }));
        chip.addEventListener("click", () => choose(Number(chip.dataset.place)));
        return chip;
      }, (chip, [row, place]) => {
        put(chip, { "data-place": place, "aria-pressed": place === at });
        setText(chip.firstChild, row[0]);
        setText(chip.lastChild, row[2] ? row[3].toLocaleString("en") : "no state recorded");
      });
      arrowKeys(chips, "button");
      const [, , writes, changed, last] = data.layers[at];
      const times = (count, name) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
      setText(status, writes ? `${times(changed, "change")} in ${times(writes, "write")}${last === null ? "" : `, the last in turn ${last}`}` : "No state of this layer is recorded.");
    }

    function drawRows(data) {
      const now = listed ?? { rows: [], start: 0, count: 0 };
      columns.hidden = data.layers[at][2] === 0;
      const shown = focused ?? now.rows[0]?.key;
      patchRows(rows, now.rows, (node, { key, turn }) => {
        put(node, { "aria-selected": store.selection.turn === turn && key === shown });
        node.classList.toggle("nn-focused", key === shown);
      });
      arrowKeys(rows, "tr");
      pager.draw(now.start, now.start + now.rows.length, now.count);
    }

    function drawFlows(data) {
      const count = data.layers[at][5];
      children.hidden = count === 0;
      setText(children.firstChild, `Children: ${count.toLocaleString("en")}`);
      patchRows(flows, flow?.rows ?? []);
    }

    /** Another view selected a turn: show the state at its end. */
    function follow(data, wanted) {
      if (known === store.selection) return wanted;
      known = store.selection;
      const { thread_id: id, turn } = known;
      if (turn === null || turn === undefined) return wanted;
      const thread = data.threads.findIndex((each) => each[1] === id);
      const place = thread >= 0 && thread !== data.layers[wanted][1] ? inThread(thread) : wanted;
      if (place !== at) open(place, turn);
      else refetch(turn);
      if (place !== wanted) choose(place);
      return place;
    }

    function draw(data) {
      if (isEmpty(data, data.layers.length === 0)) return;
      const position = model.get("position");
      const wanted = follow(data, position >= 0 && position < data.layers.length ? position : data.first);
      if (wanted !== at) open(wanted);
      const row = data.layers[at];
      const now = `${row[2]} ${row[3]}`;
      if (seen !== null && seen !== now && start === 0) refetchSoon(200);
      seen = now;
      const given = `${at} ${row[5]} ${now}`;
      if (row[5] && flowsOf !== given) {
        flowsOf = given;
        tellFlows({ what: "flows", layer: at, start: 0 });
      }
      drawPicture(data);
      drawLayers(data);
      drawRows(data);
      drawDetail(data);
      drawFlows(data);
    }

    return store.show({ model, el, root, draw, traits: ["position"] });
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
