"""The work of a page beside an agent: the time until an event is seen, long tasks, late ticks, drags, and runs of a cell.

    python -m benchmarks.live_page [--seconds 20]

JupyterLab in headless Chromium. Five views are open on one run, to which a task of the kernel adds 20 events each second. An
event counts as seen when the number that it changes in a view (calls, turns, decisions, spans) stands in a painted frame, on
the clock of the machine. A tick of the kernel's loop is late when the next event was due before it began. The longest task is
that of the page's main thread; browsers tell of those from 50 ms on. A threshold is dragged by keys over 1 000 turns, and the
budget and the most tokens of a layer over 1 000 calls, one key after the other: its line until the next painted frame, and the
answer of the kernel (the decisions of the regulator, the tokens of the bands) until its own. A cell with six views runs once and
50 times more.

`make bench` does without this one: it needs a Chromium. Other work on the machine makes every figure but processor times worse,
so its load is printed.
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, sync_playwright

from benchmarks.comparing import Lines, parser
from benchmarks.first_render import opened, processor
from benchmarks.widgets import SCENES
from tests.browser.conftest import FLAGS, chromium_path
from tests.browser.lab import Lab, wait_for
from tests.browser.test_reruns_in_lab import COUNTS, RUN_AGAIN
from tests.browser.window import LATE_PROBLEMS, LIVE

RATE: Final = 20
KEYS: Final = 30
AGAIN: Final = 50
VIEWS: Final = "TokenAllocation", "Transcript", "RegulatorTrends", "Ledger", "RunTimeline"
# By the words for a drag: the view, the band that is opened first, and the handle.
DRAGGED: Final = {
    "a dragged threshold over 1 000 turns": ("RegulatorTrends(scene(1_000))", "", ".nn-grip"),
    "a dragged budget over 1 000 calls": ("TokenAllocation(planned_run(1_000))", "", ".nn-grip[data-of='total']"),
    "a dragged layer over 1 000 calls": ("TokenAllocation(planned_run(1_000))", "notes", ".nn-grip[data-of='layer']"),
}
KNOWN: Final[dict[str, float | None]] = {
    "an event until it is seen, median": None,
    "an event until it is seen, p95": 150,
    **{f"an event until it is seen, {name}, p95": None for name in VIEWS},
    "late ticks of the loop": 0,
    "longest task of the page": 100,
    "processor time of the page's main thread for an event": None,
    **{
        f"{what}, {part}": goal
        for what in DRAGGED
        for part, goal in {"its line, p95": 60, "the answer, median": None, "the answer, p95": 60}.items()
    },
    **{f"{what} after {AGAIN} runs more of a cell with six views": 0 for what in ("comms", "widgets", "listeners")},
    f"nodes of the page after {AGAIN} runs more of a cell with six views / after one": 1.2,
}

SET_UP: Final = (
    SCENES
    + COUNTS
    + """
from tests.widgets.scenes import planned_run

WATCHED = TokenAllocation, Transcript, RegulatorTrends, Ledger, RunTimeline

def number(view):
    # What the page shows of a view: calls, the last turn, decisions, spans.
    view.catch_up()
    data = view.snapshot
    match view:
        case RegulatorTrends():
            return data["threads"][0]["turns"][-1]["turns"][1] if data["threads"] else 0
        case Ledger() | RunTimeline():
            return data["total"]
        case TokenAllocation():
            return data.get("plain") or data["first"] + len(data["calls"])
    return len(data["calls"])

def rises(events, meta):
    # By view and number, the place of the event that brings it.
    found, known = {}, Run(meta=meta)
    views = {make.__name__: make(known) for make in WATCHED}
    before = dict.fromkeys(views, 0)
    for at, event in enumerate(events):
        known.append(event)
        for name, view in views.items():
            for n in range(before[name] + 1, (now := number(view)) + 1):
                found[f"{name} {n}"] = at
            before[name] = max(before[name], now)
    for view in views.values():
        view.close()
    return found

def events_of(seconds, rate):
    made = scene(2 + seconds * rate // 10)
    return list(made.events)[: seconds * rate], made.meta

sent, late = [], 0

async def feed(events, rate):
    global late
    begin = time.monotonic()
    for n, event in enumerate(events):
        due = begin + n / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        late += time.monotonic() - due > 1 / rate
        sent.append(1e3 * time.time())
        run.append(event)
"""
)
# Notes when a number of a view first stands in a painted frame, and how long the longest task took.
WATCH: Final = """([live, numbers]) => {
  window.seen = [];
  window.longest = [0, 0];
  const start = performance.now();
  new PerformanceObserver((list) => {
    for (const { duration, startTime } of list.getEntries()) {
      if (duration > window.longest[0]) window.longest = [duration, startTime - start];
    }
  }).observe({ type: "longtask" });
  const roots = document.querySelectorAll(live);
  for (const [at, [name, [selector, words]]] of Object.entries(numbers).entries()) {
    const root = roots[at];
    let known = 0;
    const look = () => {
      const now = [...root.querySelectorAll(selector)]
        .map((node) => (words ? node.textContent : node.getAttribute("aria-valuemax") ?? "").match(words || "[0-9,]+"))
        .find((found) => found);
      const number = now ? Number(now.at(-1).replaceAll(",", "")) : 0;
      if (number <= known) return;
      const from = known + 1;
      known = number;
      requestAnimationFrame(() => {
        const painted = new MessageChannel();
        painted.port1.onmessage = () => {
          for (let n = from; n <= number; n++) window.seen.push([`${name} ${n}`, performance.timeOrigin + performance.now()]);
        };
        painted.port2.postMessage(null);
      });
    };
    new MutationObserver(look).observe(root, { childList: true, subtree: true, attributes: true, characterData: true });
    look();
  }
}"""
# Of each view in its place on the page: where its number stands, and the words around it; none for the most that a slider has.
NUMBERS: Final = {
    "TokenAllocation": (".nn-number", "of ([0-9,]+)$"),
    "Transcript": (".nn-number", "of ([0-9,]+)$"),
    "RegulatorTrends": (".nn-hits", ""),
    "Ledger": ("[role=status]", "([0-9,]+) decisions?$"),
    "RunTimeline": ("[role=status]", "([0-9,]+) spans?$"),
}
# Presses a key at a handle; gives the milliseconds until its line is painted, and until the answer is, a frame after it came.
DRAG: Final = """([grips, key]) => new Promise((resolve) => {
  const grip = [...document.querySelectorAll(grips)].find((node) => node.checkVisibility());
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const painted = new MessageChannel();
    painted.port1.onmessage = () => done(performance.now() - begun);
    painted.port2.postMessage(null);
  }));
  const heard = async (_, { direction, msg }) => {
    const answer = msg.content?.data?.content?.data;
    if (direction !== "recv" || !(answer?.over || answer?.rows)) return;
    kernel.anyMessage.disconnect(heard);
    await frame();
    resolve([await line, await frame()]);
  };
  kernel.anyMessage.connect(heard);
  grip.focus({ preventScroll: true });
  const begun = performance.now();
  grip.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const line = frame();
  setTimeout(() => resolve(null), 10_000);
})"""


def p95(times: list[float]) -> float:
    """Return the value that 95 % of them do not exceed."""
    return sorted(times)[max(0, -(-len(times) * 95 // 100) - 1)]


def seen(lab: Lab, browser: Browser, lines: Lines, seconds: int) -> None:
    """Print how long events take to the page, and what they hold up."""
    views = [f"{name}(run)" for name in VIEWS]
    made = (
        f"events, meta = events_of({seconds}, {RATE})\nplaces = rises(events, meta)\n"
        "run = Run(meta=meta)\nrun.append(events[0])"
    )
    with opened(lab, browser, "live_page", [SET_UP, made, *views]) as notebook:
        notebook.run_all()
        notebook.page.wait_for_function(
            "([live, count]) => document.querySelectorAll(live).length === count", arg=[LIVE, len(views)]
        )
        notebook.page.evaluate(WATCH, [LIVE, NUMBERS])
        busy = processor(notebook)
        notebook.kernel.run(f"sent.append(0)\nfeeding = asyncio.ensure_future(feed(events[1:], {RATE}))")
        before = busy()
        notebook.page.wait_for_timeout(1e3 * seconds)
        wait_for(lambda: notebook.kernel.value("feeding.done()") == "True", "the events are sent")
        notebook.page.wait_for_timeout(3_000)
        used = busy() - before
        sent = ast.literal_eval(notebook.kernel.value("sent"))
        places: dict[str, int] = ast.literal_eval(notebook.kernel.value("places"))
        moments = dict(notebook.page.evaluate("() => window.seen"))
        longest, moment = notebook.page.evaluate("() => window.longest")
        late = int(notebook.kernel.value("late"))
    wanted = {key: at for key, at in places.items() if at > 0}
    missing = wanted.keys() - moments.keys()
    if missing:
        raise SystemExit(f"Never seen in the page: {', '.join(sorted(missing)[:10])}")
    times = {key: moments[key] - sent[at] for key, at in wanted.items()}
    about = f"{len(times):,} of {RATE} events/s"
    lines.value("an event until it is seen, median", statistics.median(times.values()), about=about)
    lines.value("an event until it is seen, p95", p95(list(times.values())), about=about)
    for name in VIEWS:
        own = [took for key, took in times.items() if key.startswith(f"{name} ")]
        lines.value(f"an event until it is seen, {name}, p95", p95(own), about=f"{len(own):,}")
    lines.value("late ticks of the loop", late, about=f"of {len(sent):,}", unit="")
    lines.value(
        "longest task of the page", longest, about=f"after {moment / 1e3:.1f} s" if longest else "none of 50 ms"
    )
    lines.value("processor time of the page's main thread for an event", 1e3 * used / len(sent))


def dragged(lab: Lab, browser: Browser, lines: Lines) -> None:
    """Print how long what can be dragged takes."""
    for at, (what, (view, band, handle)) in enumerate(DRAGGED.items()):
        with opened(lab, browser, f"drag{at}", [SET_UP, view]) as notebook:
            notebook.run_all()
            notebook.page.locator(f"{LIVE} .nn-grip:visible").first.wait_for()
            if band:
                notebook.page.get_by_role("button", name=band, exact=True).first.press("Enter")
            grips = f"{LIVE} {handle}"
            notebook.page.locator(f"{grips}:visible").first.wait_for()
            keys = ["Home", *["ArrowUp" if n % 10 < 5 else "ArrowDown" for n in range(KEYS)]]
            # The first answer makes what the others need; as it was recorded nothing is asked.
            found = [took for key in keys if (took := notebook.page.evaluate(DRAG, [grips, key]))][1:]
        lines.value(f"{what}, its line, p95", p95([line for line, _ in found]))
        lines.value(f"{what}, the answer, median", statistics.median([answer for _, answer in found]))
        lines.value(f"{what}, the answer, p95", p95([answer for _, answer in found]))


def run_again(lab: Lab, browser: Browser, lines: Lines) -> None:
    """Print what runs of a cell leave behind in the kernel and on the page."""
    shown = "".join(f"display({name}(run))\n" for name in (*VIEWS, "Workbench"))
    with opened(lab, browser, "again", [f"{SET_UP}\nrun = scene(20)", shown]) as notebook:
        notebook.tolerated = LATE_PROBLEMS
        notebook.run_all()
        tools = notebook.page.context.new_cdp_session(notebook.page)
        tools.send("Performance.enable")

        def state() -> list[float]:
            notebook.page.wait_for_timeout(3_000)
            tools.send("HeapProfiler.collectGarbage")
            metrics = tools.send("Performance.getMetrics")["metrics"]
            nodes = next(float(each["value"]) for each in metrics if each["name"] == "Nodes")
            return [*ast.literal_eval(notebook.kernel.value("counts()")), nodes]

        notebook.page.evaluate(RUN_AGAIN, 1)
        before = state()
        notebook.page.evaluate(RUN_AGAIN, AGAIN)
        after = state()
    for what, one, all_ in zip(("comms", "widgets", "listeners"), before, after, strict=False):
        more = f"{what} after {AGAIN} runs more of a cell with six views"
        lines.value(more, all_ - one, about=f"{one:.0f} before", unit="")
    what = f"nodes of the page after {AGAIN} runs more of a cell with six views / after one"
    lines.ratio(what, after[-1], before[-1], unit="")


def main() -> int:
    """Print all figures, and the load of the machine."""
    given: Any = parser(__doc__)
    given.add_argument("--seconds", type=int, default=20, help="of events")
    options = given.parse_args()
    lines = Lines(KNOWN)
    before = os.getloadavg()[0]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        lab = Lab(Path(folder))
        try:
            seen(lab, browser, lines, options.seconds)
            dragged(lab, browser, lines)
            run_again(lab, browser, lines)
        finally:
            lab.close()
            browser.close()
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} processors")
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
