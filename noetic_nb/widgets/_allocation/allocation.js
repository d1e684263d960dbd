// The context over time for navigation, one call as bars on a token axis, and sliders that plan it again.
const HISTORY = ["user", "assistant", "tool results", "rest"]; // the bands that form the history part of the bars
const LATE_MS = 250;
const BRUSHED = 40; // with fewer calls, columns are wide enough without a brush

export default () => {
  const store = storeOf((data, message) => {
    if (message.type === "plain") Object.assign(data, { plain: message.count, empty: message.text });
    data.changes = (data.changes ?? 0) + 1;
    if (message.type !== "calls") return true;
    if (message.at > data.first + data.calls.length || message.layersAt > data.layers.length) return false;
    data.layers.splice(message.layersAt, data.layers.length, ...message.layers);
    data.calls.splice(Math.max(0, message.at - data.first), data.calls.length, ...message.calls);
    data.first = Math.min(data.first, message.at);
    if (data.plain) fetched.clear();
    data.plain = 0;
    return true;
  });
  const fetched = new Map(); // calls older than those of the snapshot, by index

  function render({ model, el }) {
    const root = el.appendChild(make("div", { class: "noetic-nb", role: "group", "aria-label": "Token allocation" }));
    root.append(make("p", HEADING, "Token allocation"));
    const body = root.appendChild(make("div"));
    const empty = root.appendChild(make("p"));
    const get = (request) => store.get(model, request);
    const tell = (request) => get(request).catch((error) => ({ fault: error.message }));

    const keys = body.appendChild(make("ul", { class: "nn-keys" }));
    const chart = body.appendChild(make("div", { class: "nn-grid" }));
    const hits = chart.appendChild(make("div", { class: "nn-hits", tabindex: 0, role: "slider", "aria-label": "Model call", "aria-valuemin": 1 }));
    const cursor = hits.appendChild(make("div", { class: "nn-cursor nn-chosen" }));
    const brush = brushIn(body, { count: () => count(), ends: (at) => [at + 1, at + 1], choose: (first, last) => showPart(first, last), word: "call" });
    const said = body.appendChild(readout(root, "Click a band of a call to read it; Up and Down go through the bands, Enter opens one."));
    const drag = dragIn(body, {
      tell, now: () => now(), span: () => spanOf(now()), panel: () => scene.panels.get("context"),
      layer: () => (picked?.parts.length === 1 && typeof picked.parts[0] === "number" ? picked.parts[0] : null),
      leave: () => hits.focus({ preventScroll: true }), changed: store.changed,
    });
    const steps = callSteps(body, {
      step: (by) => go(shown() + by), follow: (follows) => show(shown(), follows), kind: "nn-toolbar nn-bar-controls",
    });
    const sub = body.appendChild(make("p", { class: "nn-sub", "aria-live": "polite" }));
    const items = body.appendChild(make("div", { class: "nn-part-items", hidden: "" }));
    const itemsHead = items.appendChild(make("p", { class: "nn-change" }));
    const itemsList = items.appendChild(make("ol", { class: "nn-t-items nn-tall", "aria-label": "Items of a part of the request" }));
    const detail = body.appendChild(make("div"));
    const plot = detail.appendChild(make("div", { class: "nn-grid nn-call", role: "group" }));
    const caching = detail.appendChild(make("p", { class: "nn-caching" }));
    const legend = detail.appendChild(make("ul", { class: "nn-legend", "aria-label": "Tokens by part" }));
    const counted = detail.appendChild(make("p", { class: "nn-note nn-counted" }));
    const note = detail.appendChild(make("p", { class: "nn-note" }));
    const out = detail.appendChild(store.fold("out", make("details")));
    const outHead = out.appendChild(make("summary"));
    const outList = out.appendChild(make("ul", { class: "nn-list" }));

    let range = null; // the first and last call of the visible part; null is all
    let picture = null; // as last fetched
    let picked = null; // the part whose items are shown: its keys and its name
    let listed = null; // its items in the last shown call
    const count = () => store.data.plain || store.data.first + store.data.calls.length;
    const shown = () => {
      const wanted = model.get("position");
      return model.get("follow") || wanted < 0 ? count() - 1 : Math.min(wanted, count() - 1);
    };
    const callOf = (at) => store.data.calls[at - store.data.first] ?? fetched.get(at);
    const whatIf = whatIfIn(detail, { tell, shown, drawPicture, choose });
    store.fold("what-if", whatIf.fold);
    const tableSoon = store.table(model, detail, () => ({ what: "table", at: shown() }));

    async function fetchCall(at) {
      fetched.set(at, await tell({ what: "call", at }));
      store.changed();
    }

    /** Select a call, and an item of its log, in every view that shares the selection. */
    async function select(at, item = null) {
      if (callOf(at) === undefined) await fetchCall(at);
      const call = callOf(at);
      if (call.fault === undefined) store.select(model, { thread_id: call.thread, turn: call.turn, call: call.place, item, decision: null });
    }
    const show = (position, follow) => store.set(model, { position, follow });
    function go(to) {
      const at = Math.max(0, Math.min(to, count() - 1));
      show(at, false);
      select(at);
    }
    function choose(event) {
      const button = event.target.closest("[data-item]");
      if (button) select(shown(), Number(button.dataset.item));
    }

    // The context over time: a click selects a call, the brush a part.
    const now = () => picture ?? store.data.picture;
    const spanOf = (one) => [one.start, Math.min(one.start + one.last * one.size, count()) - 1];
    const fetchPicture = store.asker(model, (answer) => (picture = answer));
    const refetch = () => fetchPicture({ what: "picture", first: range?.[0] ?? 0, last: range?.[1] ?? count() - 1 });
    function showPart(first, last) {
      range = first <= 0 && last >= count() - 1 ? null : [first, last];
      refetch();
      store.changed();
    }
    const callAt = (event) => {
      const box = hits.getBoundingClientRect();
      const share = Math.max(0, Math.min(0.9999, (event.clientX - box.left) / box.width));
      return now().start + Math.floor(share * now().last) * now().size;
    };
    const wordsAt = (at) => (now().stops[Math.floor((at - now().start) / now().size)]?.[2] ?? "").replaceAll("\n", " · ");
    hits.addEventListener("pointermove", (event) => setText(said, wordsAt(callAt(event))));
    /** Return the bands of a call from the bottom up: index, and both ends in tokens. */
    const bandsAt = (at) => {
      const { start, size, bands, series, drawn } = now();
      const column = Math.floor((at - start) / size);
      return bands.flatMap((_, band) => {
        const points = drawn?.marks.get(series[band].name)?.find(([[left]]) => left === column)?.[0];
        return points ? [[band, points[1], points[3]]] : [];
      });
    };
    hits.addEventListener("click", (event) => {
      const at = callAt(event);
      const { box, scale } = scene.panels.get("context");
      const tokens = scale.value(event.clientY - box.getBoundingClientRect().top);
      const found = bandsAt(at).find(([, low, high]) => low <= tokens && tokens < high);
      if (found) pick(bandPart(found[0]), at);
      go(at);
    });
    const bandPart = (band) => [now().bands[band], now().legend.find(([name]) => name === `band-${band}`)[1]];
    /** Open the next band of the shown call, otherwise its largest one. */
    function pickBand(by) {
      const found = bandsAt(shown());
      const largest = found.reduce((one, other) => (other[2] - other[1] > one[2] - one[1] ? other : one), found[0]);
      const at = found.findIndex(([band]) => isPicked(now().bands[band]));
      const next = at < 0 ? largest : found[Math.max(0, Math.min(at + by, found.length - 1))];
      if (next) pick(bandPart(next[0]));
    }
    hits.addEventListener("keydown", (event) => {
      const by = { ArrowUp: 1, ArrowDown: -1, Enter: 0, " ": 0 }[event.key];
      const to = { Home: 0, End: count() - 1 }[event.key] ?? shown() + STEPS.get(event.key);
      if (event.key === "Escape" && picked) pick(null);
      else if (by === 0 && picked) pick(null);
      else if (by !== undefined) pickBand(by);
      else if (!Number.isNaN(to)) go(to);
      else return;
      event.preventDefault();
    });
    keys.addEventListener("click", (event) => {
      const at = [...keys.children].indexOf(event.target.closest("li[tabindex]"));
      if (at >= 0) pick(bandPart(at));
    });
    usedByKey(keys, (event) => event.target.click());

    let looks = ""; // of the series in the picture
    let scene = null;
    function drawScene(at) {
      const one = now();
      chart.hidden = !one?.panels.length;
      if (chart.hidden) return;
      const wanted = JSON.stringify(one.series);
      if (looks !== wanted) {
        looks = wanted;
        while (hits.nextSibling) hits.nextSibling.remove();
        const itemOf = ({ bar }) => Number.parseInt(bar.key, 10);
        const isPressed = (node) => itemOf(node) === store.selection.item;
        scene = sceneIn(chart, { series: one.series, pad: one.pad, axis: "call", use: (node) => select(shown(), itemOf(node)), isPressed });
      }
      one.drawn ??= sceneOf(one);
      drawRibbons(one, at);
      const below = ribbons?.panels ?? [];
      const over = new Map([...drag.marks(), ...(below.length ? [...ribbons.marks].filter(([, marks]) => marks.length) : [])]);
      const captions = { ...one.captions, ...ribbons?.captions };
      scene.draw({ ...one.drawn, panels: [...drag.panels(), ...below], captions, over, stops: [] }); // the line below has their words
      drag.draw();
      legendIn(keys, one.series, one.legend);
      drawBands(one);
      const column = Math.floor((at - one.start) / one.size);
      cursor.hidden = column < 0 || column >= one.last;
      cursor.style.left = `${(100 * column) / one.last}%`;
      cursor.style.width = `${100 / one.last}%`;
      brush(count() > BRUSHED ? (range ?? [0, count() - 1]) : null);
    }
    let ribbons = null; // of single items, as last fetched
    let ribbonsAsked = "";
    const fetchRibbons = newest((request) => get(request).catch(() => ({ panels: [], marks: {} })), (answer) => {
      ribbons = sceneOf(answer);
      store.changed();
    });
    /** Request the ribbons of the open band, or of the selected item. */
    function drawRibbons(one, at) {
      const item = store.selection.item ?? null;
      if (!picked && item === null) return void (ribbons = ribbonsAsked = null);
      const [first, last] = spanOf(one);
      const request = { what: "ribbons", at, first, last, parts: picked?.parts ?? null, item };
      const wanted = JSON.stringify([request, store.data.changes]);
      if (wanted === ribbonsAsked) return;
      ribbonsAsked = wanted;
      fetchRibbons(request);
    }
    /** Mark the band whose items are shown, and make each selectable in the legend. */
    function drawBands(one) {
      one.bands.forEach((parts, band) => {
        chart.querySelector(`.nn-lines .nn-band-${band}`)?.classList.toggle("nn-quiet", picked !== null && !isPicked(parts));
        put(keys.children[band], { tabindex: keys.children[band].tabIndex === 0 ? 0 : -1, role: "button", "aria-pressed": String(isPicked(parts)) });
      });
      for (const rest of [...keys.children].slice(one.bands.length)) for (const name of ["tabindex", "role", "aria-pressed"]) rest.removeAttribute(name);
      arrowKeys(keys, "li[role]");
    }
    const changes = () => `${count()} ${store.data.changes}`;
    let drawnChanges = null;
    const refetchSoon = soon(() => {
      drawnChanges = changes();
      refetch();
    });

    // Parts and their items
    const isPicked = (parts) => picked !== null && String(picked.parts) === String(parts);
    /** Open or close the items of a part in the shown call. */
    function pick(part, at = shown()) {
      picked = part && !(isPicked(part[0]) && at === shown()) ? { parts: part[0], name: part[1], isNew: true, open: [] } : null;
      store.changed();
    }
    const list = newest((request) => get(request).catch((error) => ({ head: error.message, rows: [] })), (answer, request) => {
      listed = { ...answer, request };
      store.changed();
      if (!picked?.isNew) return;
      picked.isNew = false;
      const first = answer.rows.find(({ item, sent }) => item != null && sent);
      select(request.at, first?.item ?? null);
    });
    const partsOf = (key) => (key === "history" ? HISTORY : [/^\d+$/.test(key) ? Number(key) : key]);
    const pickPart = (key) => pick([partsOf(key), named.get(key)]);
    legend.addEventListener("click", (event) => {
      const key = event.target.closest("[data-part]")?.dataset.part;
      if (key !== undefined) pickPart(key);
    });
    let bars = null; // the scene of one call, with the looks that it was made for
    let named = new Map(); // the names of its parts
    choosable(itemsList, ({ row }) => row.item != null && select(shown(), row.item));
    itemsList.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const { fold } = button.dataset;
      if (fold === undefined) return void toggleText(button, (key) => get({ ...listed.request, what: "text", key }).catch((error) => error.message));
      picked.open.push(Number(fold));
      store.changed();
    });

    function drawItems(at) {
      items.hidden = !picked;
      if (!picked) return;
      if (picked.at !== at) Object.assign(picked, { at, open: [] });
      const request = { what: "items", at, parts: picked.parts, open: picked.open };
      const wanted = JSON.stringify(request);
      if (wanted !== picked.asked) {
        picked.asked = wanted;
        list({ ...request, open: [...picked.open] });
      }
      if (listed === null || listed.request.at !== at || String(listed.request.parts) !== String(picked.parts)) return setText(itemsHead, `${picked.name}: …`);
      setText(itemsHead, `${picked.name}: ${listed.head}`);
      const { item, call } = store.selection;
      patchRows(itemsList, listed.rows, (node, row) => {
        put(node, { "aria-current": row.item != null && row.item === item && call === callOf(at)?.place ? "true" : null });
      });
      arrowKeys(itemsList, ":scope > li");
    }

    /** Draw the bars: of the call as it was sent, or as it would be with other budgets. */
    function drawPicture(other) {
      const call = callOf(shown());
      if (call === undefined || call.fault !== undefined) return;
      const picture = other ?? call;
      root.classList.toggle("nn-other", Boolean(other));
      if (bars?.count !== store.data.layers.length) {
        plot.replaceChildren();
        const looks = looksOf(store.data);
        const use = ({ bar }) => bar.look.name !== "limit" && pickPart(ownerOf(bar.look.name));
        bars = { looks, count: store.data.layers.length, ...sceneIn(plot, { series: looks, pad: 0, axis: "tokens", use }) };
      }
      put(plot, { "aria-label": picture.head });
      bars.draw((bars.scene = sceneOfCall(picture, store.data.call)));
      setText(caching, picture.caching);
      named = new Map(picture.rows);
      patch(legend, picture.rows, legendEntry, (entry, [key, name, words]) => {
        const button = entry.firstElementChild;
        const [swatch, label, amount] = button.children;
        put(swatch.firstElementChild, { style: bars.looks.find((look) => look.name === key).style });
        setText(label, name);
        setText(amount, words);
        put(button, { "data-part": key, "data-readout": `${name}: ${words}`, "aria-expanded": String(isPicked(partsOf(key))) });
      });
    }

    let drawn = null; // the call whose bars are shown
    let opened = null; // the part that was open then
    function draw(data) {
      const none = count() === 0;
      put(empty, { class: none ? "nn-empty" : "nn-note" });
      empty.hidden = !none && !data.plain;
      body.hidden = none;
      setText(empty, data.empty);
      if (none) return;
      const at = shown();
      if (data.is_new && !data.changes) drawnChanges ??= changes();
      // After new calls; the first time immediately, if the picture in the snapshot is outdated.
      if (changes() !== drawnChanges) refetchSoon(drawnChanges === null ? 0 : LATE_MS);
      drawScene(at);
      detail.hidden = data.plain > 0;
      steps.draw(at, count(), model.get("follow"));
      setText(note, data.note);
      const call = callOf(at);
      put(hits, { "aria-valuemax": count(), "aria-valuenow": at + 1, "aria-valuetext": call?.title ?? `Call ${at + 1}`, "data-readout": now() ? wordsAt(at) : null });
      drawItems(at);
      if (call === undefined) return void fetchCall(at);
      if (call.fault !== undefined) return setText(sub, call.fault);
      if (call.plain) return setText(sub, call.plain.replaceAll("\n", " · "));
      setText(sub, `${call.title}: ${call.head}`);
      setText(counted, call.counted);
      // Moving sliders draw the picture themselves. During a drag of a handle the bars stay, because fitting labels measures them.
      if (drawn !== call || (opened !== picked && !root.classList.contains("nn-other"))) drawPicture(null);
      if (drawn !== call) tableSoon();
      [drawn, opened] = [call, picked];
      whatIf.look();
      out.hidden = call.out.length === 0;
      setText(outHead, call.dropped);
      patch(outList, call.out, () => make("li"), setText);
    }

    const hide = store.show({ model, el, root, draw, traits: ["position", "follow"] });
    const resized = new ResizeObserver(() => {
      if (bars === null || bars.width === plot.clientWidth) return;
      bars.width = plot.clientWidth; // other words fit
      bars.draw(bars.scene);
    });
    resized.observe(plot);
    return () => {
      resized.disconnect();
      hide();
    };
  }

  return { initialize: store.initialize, render: store.guard(render) };
};

/** Return the looks of all parts: those of layers are one with their colours. */
function looksOf({ looks, layer, layers }) {
  const painted = (look, [fill, ink], name) => ({ ...JSON.parse(JSON.stringify(look).replaceAll("$", fill).replaceAll("currentColor", ink)), name });
  return [...looks, ...layers.flatMap((colours, at) => [painted(layer[0], colours, `${at}`), painted(layer[1], colours, `${-1 - at}`)])];
}

/** Return a call as a scene, of its bars one behind the other. */
function sceneOfCall({ bars, limit, lanes, ticks, rows }, panel) {
  const names = new Map(rows);
  const marks = new Map();
  lanes.forEach((lane, at) => {
    let left = 0;
    const add = (key, right, text, words = "", sign = "") => marks.set(key, [...(marks.get(key) ?? []), [[left, lane, right], text, words, sign, "", `${lane} ${key}`]]);
    for (const [key, right, tokens, room, broke] of bars[at]) {
      const name = names.get(ownerOf(key));
      add(key, right, `${name}${key < 0 ? " (yielded)" : ""}: ${tokens} tokens${broke ? "; broke the prefix here" : ""}`, ["", name, `${name} ${tokens}`][room], broke ? "▼" : "");
      left = right;
    }
    if (limit !== null) add("limit", (left = limit), "Budget");
  });
  return { panels: [{ ...panel, lanes, ticks: lanes.map((lane) => [lane, lane]) }], captions: {}, marks, over: new Map(), first: 0, last: 100, ticks };
}

/** Return the key of the part that a bar belongs to: what a layer yielded is the layer's. */
function ownerOf(key) {
  return key < 0 ? `${-1 - key}` : key;
}

function legendEntry() {
  const entry = make("li");
  const button = entry.appendChild(make("button", { type: "button", class: "nn-part" }));
  const swatch = button.appendChild(make("svg", { class: "nn-swatch", width: 12, height: 12, "aria-hidden": "true" }));
  swatch.append(make("rect", { x: 0.5, y: 0.5, width: 11, height: 11 }));
  button.append(make("span", { class: "nn-name" }), make("span", { class: "nn-number" }));
  return entry;
}
