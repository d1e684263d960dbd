// The strip of all calls: grown as the kernel grows it, and drawn.
const MOST_BARS = 200;
const STRIP_PX = 56;
const BARS_PX = STRIP_PX - 8;

function joined(one, other) {
  const parts = new Map(one[3]);
  for (const [key, tokens] of other[3]) parts.set(key, (parts.get(key) ?? 0) + tokens);
  return [one[0] + other[0], Math.max(one[1], other[1]), one[2] + other[2], [...parts]];
}

/** Add a call, as the kernel does: where there would be too many bars, each two become one. */
function addBar(strip, bar) {
  const { bars } = strip;
  if (bars.length === MOST_BARS && bars[MOST_BARS - 1][0] === strip.size) {
    strip.bars = bars.filter((_, at) => at % 2 === 0).map((one, at) => joined(one, bars[2 * at + 1]));
    strip.size *= 2;
    return addBar(strip, bar);
  }
  const last = bars[bars.length - 1];
  if (last && last[0] < strip.size) bars[bars.length - 1] = joined(last, [1, ...bar]);
  else bars.push([1, ...bar]);
}

const RANK = { system: 0, tools: 1, framing: 1e6, history: 1e6 + 1 };
const rankOf = ([key]) => (typeof key === "number" ? key + 2 : RANK[key]);

function stripIn(parent) {
  const box = parent.appendChild(make("div", { class: "nn-strip-box", tabindex: 0, role: "slider", "aria-label": "Model call", "aria-valuemin": 1 }));
  const svg = box.appendChild(make("svg", { class: "nn-calls", width: "100%", height: STRIP_PX, "aria-hidden": "true" }));
  const bars = svg.appendChild(make("svg", { width: "100%", height: STRIP_PX, preserveAspectRatio: "none" }));
  const range = svg.appendChild(make("rect", { class: "nn-calls-range", y: 0, height: STRIP_PX, visibility: "hidden" }));
  const mark = svg.appendChild(make("rect", { class: "nn-here", y: 0.5, height: STRIP_PX - 1 }));
  const peak = box.appendChild(make("span", { class: "nn-peak" }));
  return { box, bars, range, mark, peak, drawn: [] };
}

/** Draw the bars, one path for each part, where they are others than before: a strip may have hundreds. */
function drawCallBars(view, strip, most, data) {
  const { bars } = strip;
  const now = [strip, bars, bars.length, bars[bars.length - 1]];
  if (now.every((each, at) => each === view.drawn[at])) return;
  view.drawn = now;
  const paths = new Map(); // by part, in the order of the parts
  let dropped = "";
  const dot = Math.min(0.8, bars.length / 200); // about five pixels
  bars.forEach(([calls, , out, parts], place) => {
    let top = BARS_PX;
    for (const [key, tokens] of [...parts].sort((one, other) => rankOf(one) - rankOf(other))) {
      const high = (tokens / calls / most) * BARS_PX;
      top -= high;
      paths.set(key, `${paths.get(key) ?? ""}M${(place + 0.08).toFixed(2)} ${top.toFixed(2)}h.84v${high.toFixed(2)}h-.84z`);
    }
    if (out > 0) dropped += `M${(place + (1 - dot) / 2).toFixed(2)} ${STRIP_PX - 5}h${dot.toFixed(2)}v4h-${dot.toFixed(2)}z`;
  });
  const shown = [...paths].sort((one, other) => rankOf(one) - rankOf(other)).map(([key, d]) => ({ d, fill: partOf(key, data)[2] }));
  if (dropped) shown.push({ d: dropped, fill: "#D55E00" });
  put(view.bars, { viewBox: `0 0 ${Math.max(1, bars.length)} ${STRIP_PX}` });
  patch(view.bars, shown, () => make("path"), put);
}

function drawStrip(view, strip, at, data) {
  const most = Math.max(1, ...strip.bars.map((bar) => bar[1]));
  const wide = 100 / Math.max(1, strip.bars.length);
  drawCallBars(view, strip, most, data);
  const place = Math.floor((at - strip.first) / strip.size);
  const inside = place >= 0 && place < strip.bars.length;
  put(view.mark, { x: `${(place * wide).toFixed(3)}%`, width: `${wide.toFixed(3)}%`, visibility: inside ? null : "hidden" });
  setText(view.peak, many(most, "token"));
}
