"""Ribbons of items: from the call that first sent an item to the one that dropped it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ContextCompacted,
    ItemFate,
    ItemsAppended,
    LogStretch,
    ModelCalled,
    RunEvent,
    ViewAssembled,
    Where,
)
from noetic_nb.items import Item, function_call_output, input_message
from noetic_nb.plots._item_ribbons import RIBBONS
from noetic_nb.plots._scene.scene import Mark, Scene
from noetic_nb.runs import Run
from noetic_nb.runs._requests.sent_request import sent_positions
from noetic_nb.widgets import Selection, TokenAllocation
from tests.matrix import several
from tests.widgets.scenes import planned_run

RUNS = several(15, 1_000)
WHY = {"over_budget": "budget", "unresolved_call": "budget", "outside_window": "window"}


def random_view(draw: random.Random, where: Where, count: int) -> ViewAssembled:
    start = draw.randrange(count + 1) if draw.random() < 0.5 else 0
    places = range(start, count)
    reasons = [*WHY, "hidden", "forced"]
    fates = [ItemFate("history", at, 3, draw.choice(reasons)) for at in places if draw.random() < 0.15]  # type: ignore[arg-type]
    low = draw.randrange(count + 1)
    hidden = ((low, min(count, low + 2), 6),) if draw.random() < 0.2 else ()
    kept = tuple([at for at in range(start) if draw.random() < 0.1])
    written = draw.choice([None, (LogStretch(0, 1),), (LogStretch(0, 0, (input_message("in short"),)),)])
    return ViewAssembled(
        where, 0.0, 0, (start, count), tuple(fates), (), (), 900, 90, 5, 0, 0, 40, 500, count, draw.randrange(start + 1),
        hidden, projection=written, kept=kept,
    )  # fmt: skip


def random_run(draw: random.Random) -> Run:
    """Return two threads with alternating calls, some unanswered, and logs that are sometimes rewritten."""
    run, counts = Run(), {"a": 0, "b": 0}
    for number in range(1, draw.randrange(2, 14)):
        thread = draw.choice("ab")
        where = Where(thread, f"e{number}", number)
        start = draw.randrange(counts[thread] + 1) if draw.random() < 0.1 else counts[thread]
        new = [
            draw.choice([input_message, lambda text: function_call_output("c", text)])(f"{number}.{at}")
            for at in range(draw.randrange(4))
        ]
        run.append(ItemsAppended(where, 0.0, start, tuple(new), "user"))
        counts[thread] = start + len(new)
        run.append(random_view(draw, where, counts[thread]))
        if draw.random() < 0.9:
            run.append(ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 9, 3))
    return run


def answered(run: Run) -> Iterator[tuple[int, ViewAssembled, list[Item]]]:
    """Yield the index among all requests, the view and the log of each answered request."""
    logs: dict[str, list[Item]] = {}
    at, views = -1, dict[str, tuple[int, ViewAssembled, list[Item]]]()
    for event in run.events:
        thread = event.where.thread_id
        if isinstance(event, ItemsAppended):
            logs[thread] = [*logs.get(thread, [])[: event.start], *event.items]
        elif isinstance(event, ViewAssembled):
            at += 1
            views[event.where.execution_id] = at, event, logs[thread]
        elif isinstance(event, ModelCalled):
            yield views[event.where.execution_id]


def why_missing(view: ViewAssembled, at: int) -> str:
    fate = {one.position: str(one.reason) for one in view.fates}.get(at)
    if fate == "hidden" or any(start <= at < stop for start, stop, _ in view.hidden):
        return "summary" if view.projection and view.projection[0].written else "window"
    return WHY.get(fate or "", "window" if at < view.floor else "budget")


def expected_ends(run: Run) -> dict[int, dict[str, Any]]:
    """Return, for each item known to a call, the first and last call that sent it, and from when and why it is missing."""
    found: dict[int, dict[str, Any]] = {}
    for call, (at, view, log) in enumerate(answered(run)):
        sent = {*sent_positions(view)}
        for position, item in enumerate(log):
            life = found.setdefault(id(item), {"calls": [], "places": [], "fate": None, "since": None})
            if position in sent:
                life["calls"].append(call)
                life["places"].append(at)
                life["fate"] = life["since"] = None
            elif life["fate"] is None:
                life["fate"], life["since"] = why_missing(view, position), at
    return found


def drawn_ends(scene: Scene) -> list[tuple[Any, ...]]:
    """Return, for each ribbon, its item, the first and last call that sent it, and where and why it ends."""
    lanes: dict[str, dict[str, list[Mark]]] = {}
    for mark in scene.marks:
        lanes.setdefault(mark.points[1], {}).setdefault(mark.series.split("-")[0], []).append(mark)
    found = []
    for marks in lanes.values():
        sent = marks.get("item", [])
        first, last = min([m.points[0] for m in sent], default=None), max([m.points[2] - 1 for m in sent], default=None)
        ends = {mark.points[0]: mark.series.removeprefix("end-") for mark in marks.get("end", [])}
        since = max(ends, default=None)
        is_over = since is not None and (last is None or since > last)
        found.append(
            (int(marks["life"][0].key.split()[0]), first, last, *((since, ends[since]) if is_over else (None, None)))
        )
    return sorted(found, key=str)


@pytest.mark.matrix
def test_every_end_of_a_ribbon_is_the_fate_in_the_table_of_items_and_in_the_requests() -> None:
    draw, fates = random.Random(11), set[Any]()
    for _ in range(RUNS):
        run = random_run(draw)
        expected, table = expected_ends(run), run.to_frame("items")
        items = [item for event in run.select(ItemsAppended) for item in event.items]
        ends = table[["sent_from", "sent_until", "fate"]].astype(object)
        wanted: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": []}
        told = zip(items, table["thread_id"], table["position"], ends.where(ends.notna(), None).to_numpy(), strict=True)
        for item, thread, position, row in told:
            life = expected.get(id(item), {"calls": [None], "places": [None], "fate": None, "since": None})
            calls, places = life["calls"] or [None], life["places"] or [None]
            assert row.tolist() == [calls[0], calls[-1], life["fate"]]
            fates.add(life["fate"])
            if id(item) in expected:
                wanted[thread].append((position, places[0], places[-1], life["since"], life["fate"]))
        with TokenAllocation(run) as view:
            reading: Any = view.reading
            for thread, known in wanted.items():
                of = [at for at, request in enumerate(reading.requests()) if request.where.thread_id == thread]
                scene = reading.ribbons(of[-1], range(reading.total)) if of else Scene()
                assert drawn_ends(scene) == sorted(known, key=str)
    assert fates >= {None, "budget", "window", "summary"}


def test_a_ribbon_of_a_part_of_the_calls_is_cut_and_many_items_are_the_last_known() -> None:
    run = planned_run(60)
    with TokenAllocation(run) as view:
        reading: Any = view.reading
        early = reading.ribbons(20, range(10, 20), ["user", "assistant"])
        late = reading.ribbons(59, range(60), ["user", "assistant"])
        one = reading.ribbons(59, range(60), None, 3)
        none = reading.ribbons(59, range(60), [0])
        recent = reading.ribbons(59)

    assert (early.first, early.last) == (0, 10)
    assert all(0 <= mark.points[0] < mark.points[2] <= 10 for mark in early.marks)
    assert len(late.panels[0].lanes) == RIBBONS
    assert "the last 80 of" not in one.panels[0].caption
    assert [mark.key for mark in one.marks if mark.series == "life"] == ["3 0"]
    assert list(none.panels) == []
    # Of 80 items, the first one is an answer, known from there on.
    assert (recent.last, recent.ticks[0]) == (40, (0.5, "21"))


def test_pointing_at_a_fact_that_was_lost_tells_the_calls_that_knew_sent_and_missed_it() -> None:
    run, selection = planned_run(), Selection()
    (fact, *_) = [loss for loss in lab.lost(run, -1) if loss.position == 0] or lab.lost(run, -1)
    with TokenAllocation(run, selection=selection) as view:
        frame = view.point(fact)
        again = view.point(fact.position, thread_id="ann")
        with pytest.raises(NoeticConfigError, match="no such item"):
            view.point(999)
        reading: Any = view.reading
        (tip,) = [mark.text for mark in reading.ribbons(5, range(6), None, 0).marks if mark.series == "life"]

    views = run.select(ViewAssembled)
    assert frame["sent"].tolist() == [fact.position in sent_positions(view) for view in views]
    assert frame.equals(again)
    missing = frame.loc[~frame["sent"], "call"].iloc[0]
    assert (selection.item, selection.call, selection.thread_id) == (fact.position, missing, "ann")
    assert {*frame.loc[~frame["sent"], "reason"]} == {"budget"}
    assert f"sent with calls 1 to {missing} · missing from call {missing + 1} (budget)" in tip


def test_items_of_others_end_where_a_compaction_replaced_them() -> None:
    where = Where("t", "e", 1)
    events: list[RunEvent] = [
        ItemsAppended(where, 0.0, 0, tuple([input_message(f"question {at}") for at in range(4)]), "input"),
        ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 0, 3),
        ContextCompacted(where, 2.0, "claude-code", items=(input_message("short"),), replaced=((0, 3),)),
        ModelCalled(where, 3.0, 1, "m", "agent", 1.0, "ok", (), 0, 3),
    ]
    run = Run(events=events)
    with TokenAllocation(run) as view:
        scene = view.reading.ribbons(1, range(2))  # type: ignore[attr-defined]

    assert drawn_ends(scene) == [*[(at, 0, 0, 1, "compaction") for at in range(3)], (3, 0, 1, None, None)]
    assert run.to_frame("items")["fate"].tolist() == ["compaction"] * 3 + [None]


def test_ribbons_of_ten_thousand_calls_are_small_and_soon_there() -> None:
    run = Run()
    for number in range(10_000):
        where = Where("t", f"e{number}", number + 1)
        run.append(ItemsAppended(where, 0.0, 2 * number, (input_message("question"), input_message("more")), "user"))
        window = max(0, 2 * number - 18), 2 * number + 2
        run.append(ViewAssembled(where, 0.0, 0, window, (), (), (), 900, 90, 5, 0, 0, 40, 500, 20, window[0]))
        run.append(ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 9, 3))
    with TokenAllocation(run) as view:
        began = time.process_time()
        scene = view.reading.ribbons(9_999, range(10_000))  # type: ignore[attr-defined]
        spent = time.process_time() - began
        html = view.to_html()
    print(f"ribbons of 10 000 calls in {spent:.2f} s, {len(json.dumps(scene.data())):,} characters, page {len(html):,}")
    assert len(scene.panels[0].lanes) == RIBBONS
    assert len(json.dumps(scene.data())) < 100_000
    assert len(html) < 1_000_000
