"""The costs of live views: processor time and bytes in a real Jupyter kernel, beside a widget that does nothing.

    python -m benchmarks.widgets [--seconds 60]

One kernel has the workbench and all views open on one run that grows by 20 events each second for 20 seconds, then the workbench
alone. Views read beside what happens, several events at a time; what they read in all counts, by the events there were. A tick is
late when the next one was due before it began; on a machine that others keep busy that happens without any view, so those are
counted by themselves in which this kernel had work for half a tick. The workbench is made beside a tree of 50 ipywidgets, 10 000
turns are opened in each view, thresholds are dragged over 1 000 turns, budgets are moved, 10 000 decisions are filtered, and a
timeline is zoomed. Figures stand beside their limits and are never asserted: a shared machine moves them by a factor of two.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from benchmarks.comparing import Lines, parser

VIEWS: Final = ("TokenAllocation", "Transcript", "RegulatorTrends", "Ledger", "RunTimeline", "MemoryView")
OPENED: Final = (
    *VIEWS, "Workbench", "Workbench with the panels it opens", "Workbench with all panels", "Compare, two of them",
)  # fmt: skip
SCENES_LIVE: Final = {"workbench and all views": (*VIEWS, "Workbench"), "workbench alone": ("Workbench",)}
# What a page asks, and the most milliseconds that the median of its answers takes.
ASKED: Final[dict[str, tuple[str, float]]] = {
    "drag": ("threshold drag over 1 000 turns", 60),
    "filter": ("ledger filter over 10 000 decisions, without painting", 100),
    "zoom": ("timeline zoom over 70 000 spans, without painting", 50),
    "slider": ("allocation slider", 5),
    "compared": ("the first 100 pairs of 10 000 compared", 200),
}
LINES: Final[dict[str, float | None]] = {
    **{
        f"live, {scene}, {name}: {what}": goal
        for scene, names in SCENES_LIVE.items()
        for name in names
        for what, goal in {
            "an event, mean / a message of an empty anywidget": None,
            "an event, mean": None,
            "one reading, p95": None,
            "sent for an event, mean": None,
            "largest message": None,
        }.items()
    },
    **{
        f"live, {scene}: {what}": goal
        for scene in SCENES_LIVE
        for what, goal in {
            "an event, mean": 1.5,
            "what an event waits for": None,
            "late ticks": 0,
            "late ticks with work of this kernel": 0,
        }.items()
    },
    "first render of the workbench over 20 turns, the kernel's part / a tree of ipywidgets": 0.5,
    **{
        f"open 10 000 turns, {name}{what}": goal
        for name in OPENED
        for what, goal in {"": 2, ": first sent": 1_000_000}.items()
    },
    **{
        f"{name}, {what}": goal
        for name, most in ASKED.values()
        for what, goal in {"median": most, "the first": None}.items()
    },
}

SCENES: Final = """
import asyncio, json, statistics, time
import anywidget
from IPython.display import display
from noetic_nb import AgentConfig, AgentHarness, RuleBook, ScriptedModel, react, record, working_memory
from noetic_nb.events import (
    LayerStateChanged, LayerTokens,
    ModelCalled, QualityGiven, SteeringDecided, ToolCalled, TurnCompleted, TurnStarted, ViewAssembled, Where)
from noetic_nb.lab import replay_regulator
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.widgets import (
    Compare, Ledger, MemoryView, RegulatorTrends, RuleEditor, RunTimeline, TokenAllocation, Transcript, Workbench)

VIEWS = TokenAllocation, Transcript, RegulatorTrends, Ledger, RunTimeline, MemoryView

def turn(n):
    w, t = Where("t1", f"e{n}", n), 1_000.0 * n
    layers = tuple(LayerTokens(name, 500.0, 40 + n % 300, 160.0, 1) for name in ("policy", "notes", "facts"))
    yield TurnStarted(w, t, f"turn{n}", 2 * n - 2, 2 * n - 1, f"And where is order {n} now?")
    for step in (1, 2):
        yield ViewAssembled(
            w, t, step, (0, 2 * n), (), layers, (), 8000.0, 1000.0, 40, 300, 60, 20 * n, 2700.0, 2 * n)
        yield ModelCalled(w, t, step, "m", "agent", 5.0, "ok", (), 500, 2)
        if step == 1:
            yield SteeringDecided(
                w, t, "steering", "before_tool_call", "lookup", {"order": n}, "deny" if n % 9 == 0 else "allow", None,
                ("limit",) if n % 9 == 0 else (), 0.1)
            yield ToolCalled(w, t, "lookup", f"c{n}", {"order": n}, "packed", 3.0, "ok")
    yield LayerStateChanged(w, t, "notes", "store", {"orders": list(range(n, n + 20)), "last": f"Order {n} is packed."})
    yield TurnCompleted(w, t, f"turn{n}", "success", 5.0, f"Order {n} is packed and leaves today.", 1000, 4, 0.0, 2, 1)
    yield QualityGiven(w, t, 0.5 + 0.4 * ((n * 7) % 11) / 11, "grader")

def scene(turns):
    made = Run(events=[event for n in range(1, turns + 1) for event in turn(n)])
    return replay_regulator(made, Regulator.for_user("ann"), stop=False)

def report(name, found):
    print("RESULT " + json.dumps([name, found]))
"""

LIVE: Final = """
class Empty(anywidget.AnyWidget):
    _esm = "export default { render() {} }"

async def live(kinds, report_as):
    events = list(scene(1 + SECONDS * 20 // 10).events)[: SECONDS * 20]
    run, costs = Run(meta=scene(1).meta), {}
    views = [make(run) for make in kinds]
    if len(kinds) > 1:
        rules = RuleBook()
        rules.when('tool.name == "refund"', id="no-refunds", guidance="Ask a person.")
        views.append(RuleEditor(rules, run=run))
    for view in views:
        display(view)
        if isinstance(view, RuleEditor):
            continue
        if isinstance(view, Workbench):
            for panel in view.panels:
                view._answer({"do": "panel", "panel": panel})
        name, sent, read = type(view).__name__, view.send, view.read_some
        times, sizes = costs[name] = [], []
        def weigh(content, buffers=None, sent=sent, sizes=sizes):
            sizes.append(len(json.dumps(content)))
            sent(content, buffers)
        view.send = weigh
        def timed(until, read=read, times=times):
            start = time.thread_time()
            done = read(until)
            times.append(time.thread_time() - start)
            return done
        view.read_some = timed
    empty = Empty()
    display(empty)
    floor, waits, late, own = [], [], 0, 0
    begin, used = time.monotonic(), time.process_time()
    for n, event in enumerate(events):
        due = begin + n / 20
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        is_late, before, used = time.monotonic() - due > 1 / 20, used, time.process_time()
        late += is_late
        own += is_late and used - before > 1 / 40
        start = time.thread_time()
        run.append(event)
        waits.append(time.thread_time() - start)
        start = time.process_time()
        for _ in range(len(kinds)):
            empty.send({"at": n})
        floor.append((time.process_time() - start) / len(kinds))
    for view in views:
        view.catch_up()
    for view in (*views, empty):
        view.close()
    read = {name: [1e3 * seconds for seconds in times] for name, (times, _) in costs.items()}
    report("live", {
        "what": report_as, "events": len(events), "late": late, "own": own, "floor_ms": 1e3 * statistics.mean(floor),
        "waits_ms": 1e3 * statistics.mean(waits), "all_ms": sum(map(sum, read.values())) / len(events),
        "views": {name: [sum(times) / len(events), sorted(times)[int(0.95 * len(times))],
                         sum(costs[name][1]) / len(events), max(costs[name][1], default=0)]
                  for name, times in read.items()}})

await live((*VIEWS, Workbench), "workbench and all views")
await live([Workbench], "workbench alone")
"""

# What a page is sent is part of the price: the kernel makes the state and its message, whoever shows it.
TREE: Final = """
import ipywidgets

def tree():
    rows = [ipywidgets.HBox([ipywidgets.Label(f"row {n}"), ipywidgets.IntSlider(value=n), ipywidgets.Text(value=str(n)),
                             ipywidgets.Button(description="go")]) for n in range(9)]
    whole = ipywidgets.VBox([*rows, *[ipywidgets.Label(word) for word in ("all", "of", "it", "ends")]])
    made = [whole, *rows, *[child for row in rows for child in row.children], *whole.children[9:]]
    return whole, made

def bench():
    made = Workbench(SMALL)
    return made, made

def shown(made):
    if isinstance(made, Workbench):
        # What the page draws; the static form for readers who come later is made when that is under way.
        display(made._repr_mimebundle_()[0], raw=True)
        for name in made.panels:
            made._message_received(made, {"type": "get", "id": name, "request": {"do": "panel", "panel": name}}, [])
    else:
        display(made)

def first_render(make):
    times = []
    for _ in range(9):
        start = time.process_time()
        made, parts = make()
        shown(made)
        times.append(time.process_time() - start)
        for widget in parts if isinstance(parts, list) else [parts]:
            widget.close()
    return min(times)

SMALL = scene(20)
first_render(bench)
a, b = first_render(tree), first_render(bench)
report("tree", [a, b, len(tree()[1])])
"""

OPEN: Final = """
TEN = scene(10_000)
for make in (*VIEWS, Workbench):
    start = time.process_time()
    view = make(TEN)
    took = time.process_time() - start
    report("open", [make.__name__, took, len(json.dumps(view.snapshot)), len(TEN.events)])
    if make is Workbench:
        for name in view.panels:
            view._answer({"do": "panel", "panel": name})
        report("open", ["Workbench with the panels it opens", time.process_time() - start, len(json.dumps(view.snapshot)),
                        len(TEN.events)])
        for name in {"ledger", "transcript", "trends", "memory"} - set(view.panels):
            view._answer({"do": "panel", "panel": name})
        took = time.process_time() - start
        report("open", ["Workbench with all panels", took, len(json.dumps(view.snapshot)), len(TEN.events)])
    view.close()
other = Run("other", events=TEN.events)
start = time.process_time()
view = Compare(TEN, other)
took = time.process_time() - start
report("open", ["Compare, two of them", took, len(json.dumps(view.snapshot)), 2 * len(TEN.events)])
start = time.process_time()
view.reading.answer({"what": "pairs", "start": 0, "only": True})
report("compared", [1e3 * (time.process_time() - start)] * 2)
view.close()
"""

ASK: Final = """
def median_ms(ask, times):
    found = []
    for n in range(times):
        start = time.process_time()
        ask(n)
        found.append(1e3 * (time.process_time() - start))
    return statistics.median(found), found[0]

view = RegulatorTrends(scene(1_000))
report("drag", median_ms(lambda n: view.reading.answer(
    {"what": "what_if", "thread": 0, "thresholds": {"tool_loop": {"threshold": 3 + n % 7}}}), 15))
view.close()

view = Ledger(TEN)
words = "lookup", "deny", "order", "limit", "999", "nothing"
report("filter", median_ms(lambda n: view.reading.answer({"what": "lines", "text": words[n % len(words)] + str(n)}), 12))
view.close()

view = RunTimeline(TEN)
end = view.reading.answer({"what": "window"})["end"]
report("zoom", median_ms(lambda n: view.reading.answer(
    {"what": "window", "from": 0.03 * n * end, "to": end, "bins": 300}), 30))
view.close()

async def agent():
    config = AgentConfig(name="desk", step=react(model="m", instructions="Help."), memory=[working_memory()])
    harness = AgentHarness(config, model=ScriptedModel(["It is packed and leaves today."] * 40))
    made = record(harness)
    for n in range(40):
        await harness.execute(f"Where is order {n}?", thread_id="t1")
    return made

view = TokenAllocation(await agent())
report("slider", median_ms(lambda n: view.reading.answer(
    {"what": "what_if", "at": 39, "total": 300 + 10 * n, "reserve": 100}), 30))
view.close()
"""


def measured(sources: list[str]) -> list[Any]:
    """Run cells in a kernel of their own and return what they report."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=900, kernel_name="python3", store_widget_state=False).execute()
    texts = [output.get("text", "") for cell in notebook.cells for output in cell.outputs]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line.removeprefix("RESULT ")) for line in lines]


def live(lines: Lines, found: dict[str, Any]) -> None:
    """Print what an event costs with all views open, beside a message to an empty widget that nobody makes anything of."""
    floor = found["floor_ms"] / 1e3
    for name, (mean, p95, size, largest) in found["views"].items():
        what = f"live, {found['what']}, {name}"
        lines.ratio(f"{what}: an event, mean / a message of an empty anywidget", mean / 1e3, floor, unit="ms")
        lines.value(f"{what}: an event, mean", mean)
        lines.value(f"{what}: one reading, p95", p95)
        lines.value(f"{what}: sent for an event, mean", size, unit="B")
        lines.value(f"{what}: largest message", largest, unit="B")
    what = f"live, {found['what']}"
    lines.value(f"{what}: an event, mean", found["all_ms"])
    lines.value(f"{what}: what an event waits for", found["waits_ms"])
    for which, late in (("late ticks", found["late"]), ("late ticks with work of this kernel", found["own"])):
        lines.value(f"{what}: {which}", late, about=f"of {found['events']}", unit="")


def tree(lines: Lines, found: list[float]) -> None:
    """Print what it costs to make a workbench and send it to a page, beside a tree of ipywidgets."""
    widgets, bench, count = found
    what = "first render of the workbench over 20 turns, the kernel's part / a tree of ipywidgets"
    lines.ratio(what, bench, widgets, about=f"{count:.0f} of them", unit="ms")


def opened(lines: Lines, found: list[Any]) -> None:
    """Print what it costs to open 10 000 turns."""
    name, seconds, size, events = found
    what = f"open 10 000 turns, {name}"
    lines.value(what, seconds, about=f"{events:,} events", unit="s")
    lines.value(f"{what}: first sent", size, unit="B")


PRINT: Final[dict[str, Any]] = {"live": live, "tree": tree, "open": opened}


def main() -> int:
    """Run everything in one kernel and print a line for each figure."""
    given = parser(__doc__)
    given.add_argument("--seconds", type=int, default=20, help="of live views")
    options = given.parse_args()
    before = os.getloadavg()[0]
    found = measured([f"SECONDS = {options.seconds}\n{SCENES}", LIVE, TREE, OPEN, ASK])
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} processors")
    lines = Lines(LINES)
    for name, figures in found:
        if name in PRINT:
            PRINT[name](lines, figures)
            continue
        for what, took in zip(("median", "the first"), figures, strict=True):
            lines.value(f"{ASKED[name][0]}, {what}", took)
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
