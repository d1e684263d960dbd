"""The context over time: its bands are the tokens of each request, and its lane the items that left."""

from __future__ import annotations

import random
import time
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from noetic_nb import plots
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ContextCompacted, ItemFate, ItemsAppended, ModelCalled, RunEvent, ViewAssembled, Where
from noetic_nb.items import Item, input_message, item_tokens
from noetic_nb.lab import datasets
from noetic_nb.plots._context_scene import BANDS, COLUMNS, call_ticks, columns_of, folded
from noetic_nb.plots._scene.scene import Mark, Scene, Series
from noetic_nb.runs import Run
from noetic_nb.runs._requests.context_parts import HISTORY, ContextCall, ContextParts, divided, kind_of
from noetic_nb.runs._requests.item_lives import sent_changes
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runs._requests.sent_request import sent_positions
from noetic_nb.widgets import TokenAllocation
from tests.matrix import several
from tests.widgets.scenes import demo_run, hostile_run, layer, long_run, many_layers_run, planned_run, turn

SCENES: list[Any] = [demo_run, planned_run, hostile_run, many_layers_run, long_run]


def scene_of(run: Run) -> Scene:
    with TokenAllocation(run) as view:
        scene: Scene = view.reading.scene()  # type: ignore[attr-defined]
        return scene


def columns(scene: Scene) -> dict[float, list[Mark]]:
    found: dict[float, list[Mark]] = {}
    for mark in scene.marks:
        if mark.series.startswith("band-"):
            found.setdefault(mark.points[0], []).append(mark)
    return found


def random_run(rng: random.Random) -> Run:
    run, start = Run(), 0
    for number in range(1, rng.randrange(2, 30)):
        start = min(start + rng.choice([0, 0, 1, 3]), 3 * number)
        window = start, 3 * number + 1
        fates = tuple(
            [
                ItemFate("history", at, 5, rng.choice(["over_budget", "outside_window"]))
                for at in range(*window)
                if rng.random() < 0.1
            ]
        )
        layers = tuple([layer(f"l{at}", 100, rng.randrange(100)) for at in range(rng.randrange(20))])
        for event in turn(number, history=rng.randrange(2_000), window=window, fates=fates, layers=layers):
            run.append(event)
    return run


@pytest.mark.matrix
def test_every_column_stacks_the_tokens_of_its_request_in_random_runs() -> None:
    rng = random.Random(3)
    for run in [make() for make in SCENES] + [random_run(rng) for _ in range(several(15, 300))]:
        views = run.select(ViewAssembled)
        stacked = columns(scene_of(run))
        assert [sum([m.points[3] - m.points[1] for m in stacked.get(at, [])]) for at in range(len(views))] == [
            view.system + view.tools + view.framing + view.history + sum([each.used for each in view.layers])
            for view in views
        ]
        for marks in stacked.values():
            assert len(marks) <= BANDS
            assert [mark.points[1] for mark in marks] == [0, *[mark.points[3] for mark in marks[:-1]]]
        planned = run.to_frame("tokens").query("part == 'request'")["planned"].dropna()
        assert {*planned.astype(int)} <= {max(m.points[3] for m in marks) for marks in stacked.values()} | {0}


def test_the_lane_counts_the_items_that_were_sent_before_and_are_no_more() -> None:
    rng = random.Random(5)
    for run in [planned_run(), *[random_run(rng) for _ in range(60)]]:
        index = RequestIndex()
        for event in run.events:
            index.take(event)
        views = [request.view for request in index.requests if request.view is not None]
        left = ContextParts().left(index.requests)

        expected = [
            0,
            *[len({*sent_positions(a)} - {*sent_positions(b)}) for a, b in pairwise(views)],
        ]
        assert [sum(each.values()) for each in left] == expected


def random_view(rng: random.Random, size: int) -> ViewAssembled:
    """Return a request for a log of some items: with a window, left-out items, hidden stretches, forced and kept items."""
    start = rng.randrange(size)
    end = rng.randrange(start, size + 1)
    fates = [
        ItemFate("history", at, 5, rng.choice(["over_budget", "hidden", "forced"]))
        for at in rng.sample(range(size), rng.randrange(min(4, size)))
    ]
    fates = [fate for fate in fates if fate.reason == "forced" or fate.position >= start]
    forced = {fate.position for fate in fates if fate.reason == "forced"}
    kept = tuple([at for at in range(start) if rng.random() < 0.1 and at not in forced])
    edges = sorted(rng.sample(range(start, size + 1), min(2, size + 1 - start)))
    hidden = ((edges[0], edges[1], 7),) if len(edges) == 2 and rng.random() < 0.4 else ()
    (view,) = (event for event in turn(1, window=(start, end), fates=tuple(fates)) if isinstance(event, ViewAssembled))
    return structs.replace(view, kept=kept, hidden=hidden)


def sent_in(view: ViewAssembled, size: int) -> set[int]:
    """Return the positions in a request, looked up one by one."""
    gone = {fate.position for fate in view.fates}
    gone |= {at for start, stop, _ in view.hidden for at in range(start, stop)}
    forced = {fate.position for fate in view.fates if fate.reason == "forced"}
    return {
        at for at in range(size) if (at in range(*view.window) and at not in gone) or at in forced or at in view.kept
    }


def test_stretches_of_random_requests_are_the_places_that_they_have_each_once() -> None:
    rng = random.Random(7)
    for _ in range(3_000):
        size = rng.randrange(1, 14)
        was, view = random_view(rng, size), random_view(rng, size)
        before, now = sent_in(was, size), sent_in(view, size)

        assert sent_positions(view) == sorted(now)
        gone, come = sent_changes(was, view)
        assert (sorted(gone), come) == (sorted(before - now), sorted(now - before))


def test_the_kinds_of_random_requests_are_those_of_their_items() -> None:
    rng = random.Random(9)
    for _ in range(150):
        size, run, where = rng.randrange(1, 14), Run(), Where("t1", "e1", 1)
        makers: list[Any] = [input_message, lambda text: input_message(text, "assistant")]
        makers.append(lambda text: Item(type="function_call_output", callId="c", output=text))
        makers.append(lambda text: input_message(text, "system"))
        items = tuple([rng.choice(makers)("word " * rng.randrange(1, 30)) for _ in range(size)])
        run.append(ItemsAppended(where, 0.0, 0, items, "user"))
        view = structs.replace(random_view(rng, size), history=10_000)
        run.append(view)
        index = RequestIndex()
        for event in run.events:
            index.take(event)
        (request,) = index.requests

        parts = ContextParts().planned(request, view, request.stretches)

        expected: dict[str, int] = {}
        for at in sent_in(view, size):
            if (kind := kind_of(items[at], is_imported=False)) in HISTORY:
                expected[kind] = expected.get(kind, 0) + item_tokens(items[at], request.counter)
        assert {kind: parts[kind] for kind in HISTORY if kind in parts} == expected
        assert sum([parts[kind] for kind in (*HISTORY, "rest") if kind in parts]) == 10_000


def test_items_leave_for_the_budget_and_for_the_window() -> None:
    run = Run()
    gone = ItemFate("history", 0, 5, "outside_window"), ItemFate("history", 1, 5, "over_budget")
    for event in [*turn(1), *turn(2, fates=gone)]:
        run.append(event)

    lane = [mark for mark in scene_of(run).marks if mark.series == "number"]

    assert [(mark.points, mark.text) for mark in lane] == [([1.5, "budget"], "1"), ([1.5, "window"], "1")]


@pytest.mark.parametrize(
    "run", [datasets.airline_run(26), datasets.agentdojo("banking", 1)[0]], ids=["tau", "agentdojo"]
)
def test_parts_of_imported_runs_are_estimated_and_add_up_to_the_call(run: Run) -> None:
    with TokenAllocation(run) as view:
        frame, html, text = view.to_frame(), view.to_html(), view.to_text()

    last = frame[frame["call"] == frame["call"].max()]
    assert [f"{row.part} {row.tokens:,}" for row in last.itertuples()] == text.splitlines()[-1].split(" · ")
    for row in last.itertuples():
        assert f'<th scope="row">{row.part}</th><td>{row.tokens:,}</td>' in html
    assert list(frame) == ["call", "part", "tokens", "estimated"]
    assert frame["estimated"].all()
    calls = [event.input_tokens for event in run.select(ModelCalled) if event.purpose == "agent"]
    assert frame.groupby("call")["tokens"].sum().tolist() == calls
    assert "parts estimated from the texts" in html
    assert not [mark for mark in scene_of(run).marks if mark.series == "billed"]


def test_tokens_of_a_call_that_no_text_explains_are_the_rest_where_the_system_text_is_not_recorded() -> None:
    where, texts = Where("t", "e", 1), ["How far is it? " * 20, "Two hours. " * 60, "And back?"]
    run = Run()
    for number, text in enumerate(texts):
        run.append(ItemsAppended(where, 0.0, number, (input_message(text),), "input"))
        run.append(ModelCalled(where, 1.0, number, "m", "agent", 1.0, "ok", (), 9_000 + number, 3))
    with TokenAllocation(run) as view:
        frame = view.to_frame()

    user = frame[frame["part"] == "user"]["tokens"].tolist()
    assert user == sorted(user)
    assert 0 < user[-1] < 1_000  # a few words, not the unknown system text
    assert frame.groupby("call")["tokens"].sum().tolist() == [9_000, 9_001, 9_002]


def test_a_page_knows_every_colour_that_is_another_on_a_dark_ground() -> None:
    css = (files("noetic_nb.widgets.base") / "scene.css").read_text()
    with TokenAllocation(planned_run()) as view:
        scene: Scene = view.reading.scene()  # type: ignore[attr-defined]
    looks = [look for look in [*scene.series.values(), *plotted_series()] if look.night]

    assert {look.colour for look in looks} > {scene.series["billed"].colour}
    for look in looks:
        name = look.paint().removeprefix("var(").partition(",")[0]
        assert (css.count(f"{name}: {look.colour};"), css.count(f"{name}: {look.night};")) == (2, 2)


def plotted_series() -> list[Series]:
    from noetic_nb.plots import _compare_scene

    return [*_compare_scene.SERIES.values()]


def test_items_of_a_log_that_was_replaced_do_not_count_as_left() -> None:
    run, at = Run(), Where("t1", "e1", 1)
    for number, texts in enumerate([("one", "two", "three"), ("other",)]):
        run.append(ItemsAppended(at, 0.0, 0, tuple(map(input_message, texts)), "seed"))
        for event in turn(number + 1, window=(0, len(texts))):
            run.append(event)

    assert not [mark for mark in scene_of(run).marks if mark.series.startswith("left-")]
    assert run.to_frame("items")["fate"].isna().all()


SHORT = (input_message("short"),)


def compacted(by: str, items: tuple[Item, ...] = SHORT, replaced: Any = ((0, 3),), **counts: Any) -> Run:
    where = Where("t", "e", 1)
    events: list[RunEvent] = [
        ItemsAppended(where, 0.0, 0, tuple([input_message(f"question {at} " * 40) for at in range(4)]), "input"),
        ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 0, 3),
        ContextCompacted(where, 2.0, by, items=items, replaced=replaced, **counts),
        ModelCalled(where, 3.0, 1, "m", "agent", 1.0, "ok", (), 0, 3),
    ]
    return Run(events=events)


@pytest.mark.parametrize(("by", "reason"), [("claude-code", "compaction"), ("clear_tool_uses", "cleared")])
def test_a_compaction_takes_its_items_out_of_the_context_of_later_calls(by: str, reason: str) -> None:
    run = compacted(by)
    with TokenAllocation(run) as view:
        frame = view.to_frame()

    whole = frame.groupby("call")["tokens"].sum()
    assert whole[1] < whole[0] / 2
    assert "rest" in {*frame[frame["call"] == 1]["part"]} - {*frame[frame["call"] == 0]["part"]}
    lane = [(mark.points, mark.text) for mark in scene_of(run).marks if mark.series == "number"]
    assert lane == [([1.5, reason], "3")]


def test_a_new_context_replaces_the_log_but_for_system_texts_and_earlier_contexts() -> None:
    where = Where("t", "e", 1)
    texts = (input_message("rules " * 9, "system"), *[input_message(f"question {at} " * 40) for at in range(3)])
    events: list[RunEvent] = [
        ItemsAppended(where, 0.0, 0, texts, "input"),
        ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 0, 3),
        ContextCompacted(where, 2.0, "claude-code", items=(input_message("in short " * 99),)),
        ItemsAppended(where, 2.0, 4, (input_message("and now?"),), "input"),
        ModelCalled(where, 3.0, 1, "m", "agent", 1.0, "ok", (), 0, 3),
        ContextCompacted(where, 4.0, "claude-code", items=(input_message("in short"),)),
        ModelCalled(where, 5.0, 2, "m", "agent", 1.0, "ok", (), 0, 3),
    ]
    run = Run(events=events)
    with TokenAllocation(run) as view:
        parts = view.to_frame().pivot(index="call", columns="part", values="tokens").fillna(0).astype(int)

    assert parts["system"].nunique() == 1
    table = run.to_frame("items")
    assert parts["user"].tolist() == [table["tokens"][1:4].sum(), table["tokens"][4], 0]
    assert parts["rest"][0] == 0 < parts["rest"][2] < parts["rest"][1] / 9
    assert table["fate"].tolist() == [None, *["compaction"] * 4]
    numbers = [(mark.points, mark.text) for mark in scene_of(run).marks if mark.series == "number"]
    assert numbers == [([1.5, "compaction"], "3"), ([2.5, "compaction"], "1")]


def test_a_compaction_that_does_not_say_what_it_cleared_counts_nothing() -> None:
    scene = scene_of(compacted("anthropic", (), (), trigger="clear_tool_uses_20250919"))

    assert [(mark.points, mark.text) for mark in scene.marks if mark.series == "number"] == [([1.5, "cleared"], "?")]
    assert scene.stops[1][2].endswith("left an unknown number: cleared ?")


def test_parts_are_divided_without_a_token_lost() -> None:
    rng = random.Random(1)
    for _ in range(1_000):
        sizes = {str(at): rng.randrange(500) for at in range(rng.randrange(8))}
        total = rng.randrange(5_000)
        found = divided(sizes, total)
        assert sum(found.values()) == total
        assert min(found.values(), default=0) >= 0


def test_many_layers_fold_into_the_rest_without_a_token_lost() -> None:
    calls: list[Any] = [ContextCall(None, {f"layer:{at}": at for at in range(1, 40)} | {"user": 7}, False)]  # type: ignore[arg-type]
    bands, rows = folded(calls)

    assert (len(bands), bands[-1]) == (BANDS, "rest")
    assert sum(rows[0].values()) == sum(calls[0].parts.values())


@pytest.mark.parametrize("calls", [1, 9, 14, 99, 400, 3_000, 99_999])
def test_the_numbers_of_calls_have_room_on_a_narrow_page(calls: int) -> None:
    places = columns_of(range(calls))
    ticks = call_ticks(places)

    widths = [7 * len(text) for _, text in ticks]  # in pixels, at 11 px
    gaps = [(right[0] - left[0]) * 300 / len(places) for left, right in pairwise(ticks)]
    assert ticks[0] == (0.5, "1")
    assert all(gap > max(pair) for gap, pair in zip(gaps, pairwise(widths), strict=True))


def test_ten_thousand_calls_are_four_hundred_columns_below_a_megabyte() -> None:
    run = Run()
    for number in range(1, 10_001):
        for event in turn(number, history=number % 97):
            run.append(event)
    began = time.process_time()
    with TokenAllocation(run) as view:
        scene, html = view.reading.scene(), view.to_html()  # type: ignore[attr-defined]
    print(f"10 000 calls drawn in {time.process_time() - began:.2f} s, {len(html):,} characters")

    assert len(columns(scene)) <= COLUMNS
    assert len(html) < 1_000_000
    assert max(mark.points[3] for mark in columns(scene)[0]) == max(
        sum([view.system, view.tools, view.framing, view.history, *[each.used for each in view.layers]])
        for view in run.select(ViewAssembled)[:25]
    )


def test_the_figure_has_the_bands_of_one_thread() -> None:
    run = Run()
    for thread in ("a", "b"):
        for event in turn(1, thread=thread, layers=(layer(f"of-{thread}", 100, 50),)):
            run.append(event)

    names = [text.get_text() for text in plots.context(run, thread_id="b").get_legend().get_texts()]  # type: ignore[union-attr]
    with pytest.raises(NoeticConfigError, match="thread"):
        plots.context(run, thread_id="nobody")

    assert "of-b" in names
    assert "of-a" not in names


def test_the_parts_of_a_log_that_went_on_another_way_are_those_of_its_items() -> None:
    run, at = Run(), Where("t1", "e1", 1)
    texts = [
        ("Where is my parcel?", 0),
        ("On its way. " * 9, 1),
        ("And the other?", 2),
        ("Rewound: hello.", 1),
        ("Hi. " * 5, 2),
    ]
    for number, (text, start) in enumerate(texts):
        item = input_message(text, item_id=f"i{number}")
        run.append(ItemsAppended(at, 0.0, start, (item,), "user"))
        for event in turn(number + 1, window=(max(0, start - 1), start + 1)):
            run.append(event)
    index = RequestIndex()
    for event in run.events:
        index.take(event)
    parts = ContextParts()

    for request in [*index.requests, *reversed(index.requests)]:  # in any order
        view = request.view
        assert view is not None
        found = parts.call(request).parts
        items = [request.log_item(place) for place in range(*view.window)]
        size = sum([item_tokens(item, request.counter) for item in items if item is not None])
        assert found["user"] == min(size, view.history)


@pytest.mark.matrix
def test_calls_behind_the_point_of_a_replay_are_marked_and_said_to_be_of_the_old_way() -> None:
    rng = random.Random(11)
    for _ in range(several(12, 200)):
        events = [event for number in range(1, 13) for event in turn(number, thread=rng.choice(["t1", "t2"]))]
        seq = rng.randrange(len(events))
        run = Run(meta={"replay": {"known_until": {events[seq].where.thread_id: {"turn": 1, "seq": seq}}}})
        for event in events:
            run.append(event)
        old = {
            at
            for at, (place, event) in enumerate(
                [(place, event) for place, event in enumerate(run.events) if isinstance(event, ViewAssembled)]
            )
            if event.where.thread_id in run.known_until and place >= seq
        }

        scene = scene_of(run)

        for name in ("unknown", "until"):
            boxes = [mark.points for mark in scene.marks if mark.series == name]
            assert {at for left, _, right, _ in boxes for at in range(left, right)} == old
            assert all(stop < start for (_, _, stop, _), (start, *_) in pairwise(boxes))
        assert {at for at, _, words in scene.stops if "(of the old way)" in words.partition("\n")[0]} == old
        assert (("until", "not known") in scene.legend) == bool(old)
    assert not {mark.series for mark in scene_of(planned_run()).marks} & {"unknown", "until"}
