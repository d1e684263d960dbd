// Two runs side by side, one pair of turns after the other, or two lists of runs as a table with intervals. The kernel
// compares only what is viewed, one page of pairs at a time.
export default () => {
  const KINDS = ["prompt", "request", "decision", "tool call", "tool result", "regulator", "tokens", "sent tokens", "drops", "cost", "model calls", "reply", "outcome"];
  const LOOKED = 1000; // pairs that are compared without a request

  const store = storeOf((data, message) => {
    if (message.type !== "grown" || message.news <= data.news) return true;
    if (message.news > data.news + 1) return false;
    Object.assign(data, message);
    return true;
  });

  function renderPaired({ model, el }) {
    const { root, isEmpty } = frameIn(el, "Compare");
    isEmpty({ empty: "" }, false);
    root.append(make("p", { class: "nn-sub" }, store.data.title));
    const plot = root.appendChild(make("div", { class: "nn-grid", role: "group", "aria-label": "Mean differences" }));
    const picture = sceneIn(plot, { series: store.data.series, pad: 0, axis: "b − a" });
    root.append(readout(plot, "A row for each metric, on a scale of its own, with its interval; zero is in the middle."));
    root.append(written(store.data.table));
    return store.show({ model, el, root, draw: (data) => picture.draw(sceneOf(data.scene)) });
  }

  function render({ model, el }) {
    if (store.data.paired) return renderPaired({ model, el });
    const { root, body, isEmpty } = frameIn(el, "Compare");
    const legend = body.appendChild(make("ul", { class: "nn-keys" }));
    const plot = body.appendChild(make("div", { class: "nn-grid", role: "group", "aria-label": "Pairs of turns as a picture" }));
    const picture = sceneIn(plot, { series: store.data.series, pad: store.data.pad, axis: "turn", use: ({ bar }) => goTo(Number(bar.key)) });
    const line = body.appendChild(readout(plot, "Each bar of differences leads to its pairs of turns."));
    const sums = body.appendChild(make("div"));
    const bar = body.appendChild(make("div", { class: "nn-toolbar" }));
    const only = tickIn(bar, "only differences", () => again());
    only.checked = true;
    const kind = choiceIn(bar, "Part", () => again());
    offer(kind, ["", ...KINDS].map((name) => [name, name || "everything"]));
    const rest = button(bar, "Look at the rest", () => {
      most = scene.looked + LOOKED;
      look();
    });
    const status = body.appendChild(make("p", { class: "nn-sub", role: "status" }));
    const rows = tableIn(body, "Pairs of turns", ["Turn", "Part", ...store.data.names], { kind: "nn-table nn-compared", scroll: "nn-scroll nn-tall" });
    const pager = pagerIn(body, ["Earlier", "Later"], (by) => {
      if (by > 0) before.push(start);
      start = by > 0 ? page.next : before.pop() ?? Math.max(0, start - store.data.page);
      refetch();
    }, "pairs");

    let scene = null;
    let page = null;
    let start = 0;
    let before = []; // the starts of the previous pages
    let most = LOOKED;
    let news = -1;
    let known = store.selection;
    let looking = false;

    const list = store.asker(model, (answer, request) => {
      page = answer;
      start = answer.start;
      if (request.turn !== null) before = [];
    });
    const refetch = (fields = {}) => list({ what: "pairs", start, only: only.checked, kind: kind.value, turn: null, thread: null, ...fields });
    /** Compare one pair after the other, in steps that leave the kernel free in between. */
    const look = async () => {
      if (looking) return;
      looking = true;
      try {
        do {
          scene = sceneOf(await store.get(model, { what: "picture", start: scene?.looked ?? 0 }));
          store.changed();
        } while (scene.looked < Math.min(scene.of, most));
      } catch (error) {
        store.refused(error);
      } finally {
        looking = false;
        store.changed();
      }
    };
    const again = () => {
      [start, before] = [0, []];
      refetch();
    };
    const pick = ({ go }) => {
      if (!go) return;
      store.select(model, { ...go, call: null, item: null, decision: null });
      known = store.selection;
    };
    chosenRows(rows, (row) => pick(row.row), pager);
    const goTo = (pair) => {
      before = start > 0 ? [...before, start] : before;
      start = pair;
      refetch();
    };

    function drawRows() {
      const { thread_id: id, turn } = store.selection;
      const lines = (page?.pairs ?? []).flatMap(({ go, rows: own }) => own.map((row) => ({ ...row, go })));
      patchRows(rows, lines, (node, { go }) => put(node, { "aria-selected": Boolean(go && turn === go.turn && (id ?? go.thread_id) === go.thread_id) }));
      arrowKeys(rows, "tr");
    }

    const lookSoon = soon(() => {
      news = store.data.news;
      refetch();
      look();
    });
    function draw(data) {
      if (isEmpty(data, !data.hasAny)) return;
      if (news !== data.news) lookSoon(news < 0 ? 0 : 300);
      if (known !== store.selection) {
        known = store.selection;
        const { turn, thread_id: id } = known;
        const here = page?.pairs.some((pair) => pair.go?.turn === turn && (id ?? pair.go.thread_id) === pair.go.thread_id);
        if (turn !== null && turn !== undefined && !here) refetch({ turn, thread: id ?? null });
      }
      patchRows(sums, data.totals);
      plot.hidden = legend.hidden = line.hidden = !scene?.panels.length;
      if (!plot.hidden) {
        legendIn(legend, data.series, scene.legend);
        picture.draw(scene);
      }
      drawRows();
      rest.hidden = !scene || scene.looked >= scene.of || looking;
      setText(status, scene?.said ?? "");
      pager.draw(start, page?.next ?? page?.of ?? 0, page?.of ?? 0);
    }

    return store.show({ model, el, root, draw });
  }

  return { initialize: store.initialize, render: store.guard(render) };
};
