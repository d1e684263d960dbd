// The lanes of the timeline: bars of one window, worked by keys, and a part that is marked by dragging.
const MOST_LABEL_PX = 34;
const SIGN_PX = 14;

/** Return what a bar says: one span, or several that are too narrow to be told apart. */
function barWords(bar, names, data) {
  const [, , , count, kind, severity, name, status, took] = bar;
  if (count > 1) {
    const worst = severity ? `, the worst: ${data.words[severity]} ${data.signs[severity]}` : "";
    return `${count.toLocaleString("en")} spans close together, most time in ${data.kinds[kind][1]}${worst}. Enter zooms in.`;
  }
  const sign = severity ? `${data.signs[severity]} ` : "";
  const what = data.kinds[kind][0] === "turn" ? "" : `${data.kinds[kind][0]} `;
  return `${sign}${what}${names[name]}: ${took ? `${took}, ` : ""}${names[status]}`;
}

function laneNode() {
  const lane = make("div", { class: "nn-tl-lane" });
  lane.append(make("p", { class: "nn-tl-thread" }), make("div", { class: "nn-tl-bars", role: "group" }));
  return lane;
}

function drawLane(lane, [thread, depth, level, bars], at, view, data) {
  const [head, box] = lane.children;
  head.hidden = thread === "";
  setText(head, thread === "" ? "" : `thread ${thread}`);
  put(lane, { "data-depth": depth, "data-level": level });
  put(box, { "aria-label": `Row ${at + 1}` });
  const px = view.width;
  let free = 0; // pixels from where no sign stands yet: signs over signs say nothing
  patch(box, bars, () => make("div", { class: "nn-mark nn-tl-bar", role: "button" }), (node, bar) => {
    const [left, width, span, count, kind, severity, name] = bar;
    const [, , colour, ink] = data.kinds[kind];
    const wide = (width / 100) * px >= MOST_LABEL_PX;
    const sign = severity ? data.signs[severity] : "";
    const words = count === 1 && wide ? `${sign}${sign ? " " : ""}${view.names[name]}` : sign;
    const text = barWords(bar, view.names, data);
    put(node, {
      style: `left:${left}%;width:${width}%;background-color:${colour};color:${ink}`,
      "data-at": span,
      "data-many": count > 1 ? count : null,
      "data-kind": data.kinds[kind][0],
      "data-severity": severity || null,
      "data-readout": text,
      "aria-label": text,
      "aria-pressed": String(count === 1 && span === view.chosen),
      "data-wide": wide ? "true" : null,
    });
    node.bar = bar;
    // A bar may be narrower than its sign, which then has a ground of its own.
    const start = (left / 100) * px;
    const stands = sign !== "" && !(count === 1 && wide) && start >= free;
    put(node, { "data-sign": stands ? "true" : null });
    if (stands) {
      free = start + SIGN_PX;
      if (!node.firstElementChild) node.replaceChildren(make("span", { class: "nn-tl-sign" }));
      put(node.firstElementChild, { "data-last": left > 96 ? "true" : null });
      setText(node.firstElementChild, sign);
    } else {
      if (node.firstElementChild) node.replaceChildren();
      setText(node, wide ? words : "");
    }
  });
}

/** Move between bars: along a lane, to the nearest bar of the next one, to either end. One stop of the Tab key for all. */
function laneKeys(lanes, moved) {
  const barsOf = (lane) => [...lane.querySelectorAll(".nn-tl-bar")];
  const middle = (node) => node.bar[0] + node.bar[1] / 2;
  const nearest = (bars, place) => bars.reduce((best, node) => (Math.abs(middle(node) - place) < Math.abs(middle(best) - place) ? node : best), bars[0]);
  lanes.addEventListener("keydown", (event) => {
    const from = event.target.closest(".nn-tl-bar");
    if (!from || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const all = [...lanes.children];
    const row = all.indexOf(from.closest(".nn-tl-lane"));
    const bars = barsOf(all[row]);
    const at = bars.indexOf(from);
    const beside = (step) => {
      for (let next = row + step; next >= 0 && next < all.length; next += step) {
        const found = barsOf(all[next]);
        if (found.length) return nearest(found, middle(from));
      }
      return from;
    };
    const to = {
      ArrowRight: () => bars[Math.min(at + 1, bars.length - 1)],
      ArrowLeft: () => bars[Math.max(at - 1, 0)],
      ArrowDown: () => beside(1),
      ArrowUp: () => beside(-1),
      Home: () => bars[0],
      End: () => bars[bars.length - 1],
    }[event.key]?.();
    if (to === undefined) return;
    event.preventDefault();
    put(from, { tabindex: -1 });
    put(to, { tabindex: 0 });
    to.focus();
    moved(to);
  });
}

/**
 * Give one bar the stop of the Tab key: the wanted one, else the chosen one, else the first. Where a bar had the focus, the
 * focus stays with its span: bars are used anew for others, or are gone.
 */
function oneStop(lanes, wanted, hadFocus) {
  const bars = [...lanes.querySelectorAll(".nn-tl-bar")];
  const stop = bars.find((node) => Number(node.dataset.at) === wanted) ?? bars.find((node) => node.getAttribute("aria-pressed") === "true") ?? bars[0];
  if (hadFocus && stop && stop !== document.activeElement) {
    stop.setAttribute("tabindex", 0);
    stop.focus({ preventScroll: true });
  }
  for (const node of bars) put(node, { tabindex: node === stop ? 0 : -1, "data-lm-suppress-shortcuts": "true" });
}

/** Mark a part by dragging: calls `done` with its ends as shares of the width. A press that does not move is a click. */
function dragRange(plot, mark, done) {
  let from = null;
  let now = null;
  const share = (event) => {
    const box = plot.getBoundingClientRect();
    return Math.max(0, Math.min((event.clientX - box.left) / Math.max(1, box.width), 1));
  };
  const show = () => {
    const open = from !== null && now !== null;
    mark.hidden = !open;
    if (open) put(mark, { style: `left:${100 * Math.min(from, now)}%;width:${100 * Math.abs(now - from)}%` });
  };
  const end = () => {
    const span = now === null ? null : [Math.min(from, now), Math.max(from, now)];
    from = now = null;
    show();
    return span;
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch") from = share(event);
  });
  plot.addEventListener("pointermove", (event) => {
    if (from === null || !event.buttons) return;
    if (now === null && Math.abs(share(event) - from) * plot.clientWidth < 5) return;
    // Only now: a pointer that is captured earlier would not click on a bar.
    if (now === null) plot.setPointerCapture(event.pointerId);
    now = share(event);
    show();
  });
  plot.addEventListener("pointerup", () => {
    const span = end();
    if (span) done(...span);
  });
  plot.addEventListener("pointercancel", end);
  return end;
}
