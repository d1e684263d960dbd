// The panels of a run: each is an ordinary view, with its own model inside that of the workbench.
export default () => {
  const LEAST = 3; // columns of 12
  const STEP = 40; // pixels of height per key press
  const panels = new Map(); // by name: { view, model, end }, or { fault }
  const fetching = new Set();
  let host;

  function panelOf(name, data) {
    if (data.fault) return { fault: data.fault };
    const view = PANEL_SCRIPTS[name]();
    const model = panelModel(host, name, data);
    return { view, model, end: view.initialize({ model }) };
  }

  /** Request an opened panel: the kernel creates its view for the first page that needs it. */
  async function fetchPanel(name) {
    if (fetching.has(name)) return;
    fetching.add(name);
    const { shown } = store.data.parts;
    let panel;
    try {
      panel = panelOf(name, await store.get(host, { do: "panel", panel: name }));
    } catch (error) {
      panel = { fault: `This panel could not be opened: ${error.message ?? error}` };
    }
    fetching.delete(name);
    // After a change of thread, the panel is requested again.
    if (store.data.parts.shown === shown) panels.set(name, panel);
    else panel.end?.();
    store.changed();
  }

  /** Apply the workbench's own messages. */
  function takeOwn(data, content) {
    if (content.type === "selected") {
      store.took(content);
    } else if (content.type === "all") {
      for (const panel of panels.values()) panel.end?.();
      panels.clear();
      store.replace(content.snapshot);
    } else {
      const { type, row, newThread, ...parts } = content;
      Object.assign(data.parts, parts);
      if (newThread && !data.parts.threads.some(([at]) => at === newThread[0])) data.parts.threads.push(newThread);
      if (!row) return;
      const rows = data.parts.talk;
      const at = rows.findIndex((other) => other.key === row.key);
      if (at >= 0) rows[at] = row;
      else if (!rows.length || row.key > rows.at(-1).key) rows.push(row);
    }
  }

  const store = storeOf((_data, message) => {
    if (message.type !== "panels") return true;
    for (const [name, content] of message.news) {
      if (name === "") takeOwn(store.data, content);
      else panels.get(name)?.model?.receive(content);
    }
    return true;
  });

  const { replace } = store;
  store.replace = (snapshot) => {
    replace(snapshot);
    for (const [name, sent] of Object.entries(snapshot.panels)) {
      panels.get(name)?.end?.();
      panels.set(name, panelOf(name, sent));
    }
  };

  function initialize({ model }) {
    host = model;
    const end = store.initialize({ model });
    return () => {
      end();
      for (const panel of panels.values()) panel.end?.();
    };
  }

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb nn-workbench", role: "group", "aria-label": "Workbench" }));
    const get = (request) => store.get(model, request);
    let wanted = null;
    const tools = {
      get: (request) => {
        store.refusal = "";
        return get(request);
      },
      select: (fields) => store.select(model, { thread_id: null, turn: null, call: null, item: null, decision: null, ...fields }),
      failed: store.refused,
      redraw: store.changed,
      /** Open a panel, and scroll it into view. */
      show: (name) => {
        wanted = name;
        if (!open().includes(name)) choose(name);
      },
    };
    const head = root.appendChild(make("div", { class: "nn-bench-head" }));
    head.append(make("p", HEADING, "Workbench"));
    const thread = choiceIn(head, "Thread", (at) => get({ do: "thread", at: Number(at) }).catch(store.refused));
    const threads = thread.parentElement;
    threads.classList.add("nn-threads");
    const progress = head.appendChild(make("p", { class: "nn-sub nn-progress", role: "status" }));
    const bar = root.appendChild(make("div", { class: "nn-toolbar", role: "group", "aria-label": "Panels" }));
    const drawQuestions = questionsPart(root, tools);
    const fault = root.appendChild(faultLine());
    const body = root.appendChild(make("div", { class: "nn-bench-body" }));
    const side = body.appendChild(make("div", { class: "nn-bench-side" }));
    const main = body.appendChild(make("div", { class: "nn-bench-main" }));
    const drawTalk = talkPart(side, tools);
    const drawCause = causePart(main, tools);
    const grid = main.appendChild(make("div", { class: "nn-panels" }));
    const boxes = new Map(); // by name: the box of an open panel, and the function that ends its view

    const open = () => model.get("panels") ?? [];
    const choose = (name) => {
      const now = open();
      store.set(model, { panels: now.includes(name) ? now.filter((other) => other !== name) : [...now, name] });
    };
    const sizeOf = (name) => (model.get("sizes") ?? {})[name] ?? store.data.sizes[name];
    const resize = (name, columns, height) => {
      const size = [Math.max(LEAST, Math.min(12, Math.round(columns))), Math.max(160, Math.min(1600, Math.round(height)))];
      model.set("sizes", { ...model.get("sizes"), [name]: size });
      store.changed();
    };

    for (const [name, title] of store.data.parts.titles) button(bar, title, () => choose(name), { class: "nn-panel-chip", "data-opens": name });

    function gripOf(name, title) {
      const grip = make("button", { type: "button", class: "nn-resize", "aria-label": `Resize ${title}` });
      put(grip, { title: "Drag, or use the arrow keys; double-click resets" });
      grip.addEventListener("keydown", (event) => {
        const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, STEP], ArrowUp: [0, -STEP] }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const [columns, height] = sizeOf(name);
        resize(name, columns + step[0], height + step[1]);
        model.save_changes();
      });
      grip.addEventListener("dblclick", () => {
        resize(name, ...store.data.sizes[name]);
        model.save_changes();
      });
      dragged(grip, (event) => {
        grip.focus();
        const [columns, height] = sizeOf(name);
        const width = grid.clientWidth / 12;
        return (now) => resize(name, columns + (now.clientX - event.clientX) / width, height + now.clientY - event.clientY);
      }, () => model.save_changes());
      return grip;
    }

    /** Show a panel; an existing one stays unchanged. */
    function boxOf(name, title) {
      const panel = panels.get(name);
      const known = boxes.get(name);
      if (known && known.panel === panel) return known.box;
      known?.end?.();
      known?.box.remove();
      const box = make("section", { class: "nn-panel", "aria-label": title, "data-panel": name });
      const top = box.appendChild(make("div", { class: "nn-panel-head" }));
      top.append(make("span", { role: "heading", "aria-level": 4 }, title));
      button(top, "×", () => choose(name), { class: "nn-close", "aria-label": `Close ${title}`, title: "Close this panel" });
      const inside = box.appendChild(make("div", { class: "nn-panel-view" }));
      box.append(gripOf(name, title));
      let end;
      if (!panel) {
        inside.append(make("p", { class: "nn-note", role: "status" }, `Opening ${title} …`));
        fetchPanel(name);
      }
      if (panel?.fault) inside.append(make("p", { class: "nn-fault", role: "alert" }, panel.fault));
      else if (panel) end = panel.view.render({ model: panel.model, el: inside });
      boxes.set(name, { panel, box, end });
      return box;
    }

    function drawPanels(data) {
      const now = data.parts.titles.filter(([name]) => open().includes(name));
      for (const [name, { box, end }] of boxes) {
        if (now.some(([other]) => other === name)) continue;
        end?.();
        box.remove();
        boxes.delete(name);
        // The view is updated when the panel is opened again.
        panels.get(name)?.end?.();
        panels.delete(name);
      }
      now.forEach(([name, title], at) => {
        const box = boxOf(name, title);
        if (grid.children[at] !== box) grid.insertBefore(box, grid.children[at] ?? null);
        const [columns, height] = sizeOf(name);
        box.style.gridColumn = `span ${columns}`;
        box.style.height = `${height}px`;
        if (wanted === name && panels.has(name)) {
          wanted = null;
          setTimeout(() => {
            box.scrollIntoView({ block: "nearest" });
            box.querySelector(".nn-fields :is(textarea, input), [aria-current='true']")?.focus({ preventScroll: true });
          }, 100);
        }
        put(box.lastElementChild, { "aria-description": `${columns} of 12 columns, ${height} pixels` });
      });
      data.parts.titles.forEach(([name, title, lacks], at) => {
        bar.children[at].disabled = lacks !== "";
        put(bar.children[at], { "aria-pressed": open().includes(name), title: lacks || `Show or hide: ${title}` });
      });
    }

    /** Scroll inside a panel, never the page, until the selected element is visible. */
    function reveal(box) {
      const chosen = box.querySelector("[aria-selected='true']");
      if (!chosen) return;
      for (let part = chosen.parentElement; part && part !== box; part = part.parentElement) {
        if (part.scrollHeight <= part.clientHeight + 1) continue;
        const [inner, outer] = [chosen.getBoundingClientRect(), part.getBoundingClientRect()];
        const room = Math.max(0, outer.height - inner.height);
        if (inner.top < outer.top || inner.bottom > outer.bottom) part.scrollTop += inner.top - outer.top - room / 2;
      }
    }

    let revealed = store.selection;
    function revealChosen() {
      if (revealed === store.selection) return;
      revealed = store.selection;
      // Lists may have to request another page first.
      for (const name of ["ledger", "timeline"]) {
        const box = boxes.get(name)?.box;
        if (box && !box.contains(document.activeElement)) for (const wait of [60, 300, 900]) setTimeout(() => reveal(box), wait);
      }
    }

    /** Offer the threads of the run, if there are several. */
    function drawThreads({ threads: known, threadCount, thread: at }) {
      threads.hidden = threadCount < 2;
      offer(thread, [[-1, `all ${threadCount.toLocaleString("en")}`], ...known]);
      const missing = threadCount - known.length;
      put(threads, { title: missing > 0 ? `${missing.toLocaleString("en")} older threads are not listed: set bench.thread_id in a cell` : null });
      // Until the kernel has answered, keep the user's choice.
      if (thread.dataset.at !== String(at) || thread.selectedIndex < 0) thread.value = at ?? -1;
      thread.dataset.at = String(at);
    }

    function draw(data) {
      setText(head.firstChild, `Workbench: ${data.name}`);
      drawThreads(data.parts);
      setText(progress, data.parts.progress);
      put(progress, { "data-busy": data.parts.busy ? true : null });
      drawQuestions(data.parts.questions);
      drawTalk(data.parts);
      drawCause(data.parts.cause);
      drawPanels(data);
      revealChosen();
    }

    const hide = store.show({ model, el, root, draw, traits: ["panels", "sizes"], fault });
    return () => {
      hide();
      for (const { end } of boxes.values()) end?.();
    };
  }

  return { initialize, render: store.guard(render) };
};
