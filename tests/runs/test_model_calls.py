"""The reading behind the token allocation: consistent sums, separate turns and threads, merged fates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import ItemFate, LayerTokens
from noetic_nb.runs._palette import CATEGORY, LAYER_COLOURS, _luminance, ink_on
from noetic_nb.runs._plain_text import clip, plain
from noetic_nb.runs._requests.model_calls import Calls, CallShare
from noetic_nb.widgets._allocation.call_bars import LEAST_WIDTH, widths
from tests.widgets.scenes import demo_run, layer, many_layers_run, view

counts = st.integers(0, 5000)


def only_call(**given_: object) -> CallShare:
    share = Calls().take(view(**given_))  # type: ignore[arg-type]  # passed through to the scene
    assert share is not None
    return share


@given(
    layers=st.lists(st.tuples(counts, counts), max_size=12),
    history=counts,
    total=st.integers(1000, 40_000),
)
def test_sent_parts_fill_the_budget_exactly_or_exceed_it_by_over(
    layers: list[tuple[int, int]], history: int, total: int
) -> None:
    shares = tuple(layer(f"l{n}", allocated, used) for n, (allocated, used) in enumerate(layers))
    calls = Calls()
    share = calls.take(view(layers=shares, history=history, total=total))
    assert share is not None

    drawn = sum(part.tokens for part in share.sent_parts(calls.order))

    assert drawn == pytest.approx(total + share.over)
    assert share.free == 0 or share.over == 0


@given(layers=st.lists(st.tuples(counts, counts), min_size=1, max_size=12))
def test_planned_parts_hold_each_allocation_as_used_plus_yielded(layers: list[tuple[int, int]]) -> None:
    shares = tuple(layer(f"l{n}", allocated, used) for n, (allocated, used) in enumerate(layers))
    calls = Calls()
    share = calls.take(view(layers=shares))
    assert share is not None

    for n, (allocated, _) in enumerate(layers):
        drawn = sum(part.tokens for part in share.planned_parts(calls.order) if part.label == f"l{n}")
        assert drawn == allocated


@given(tokens=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60))
def test_bar_segments_are_seen_and_stay_inside_the_bar(tokens: list[float]) -> None:
    drawn = widths(tokens, sum(tokens))

    assert all(width >= LEAST_WIDTH - 1e-9 for width in drawn)
    assert sum(drawn) == pytest.approx(100, abs=1e-6)


def test_the_plan_splits_the_whole_budget() -> None:
    calls = Calls()
    share = calls.take(view(layers=(layer("a", 600, 240), layer("b", 1500, 1500)), history=4000))
    assert share is not None

    assert sum(part.tokens for part in share.planned_parts(calls.order)) == share.total == share.scale(calls.order)


def test_an_infinite_budget_reads_as_no_limit() -> None:
    share = only_call(total=math.inf, layers=(LayerTokens("a", math.inf, 10, math.inf),))

    assert (share.total, share.free, share.over, share.layers[0].allocated) == (None, 0.0, 0.0, None)
    assert share.scale({"a": 0}) < math.inf


def test_neighbouring_items_with_one_fate_are_listed_once() -> None:
    fates = (
        ItemFate("history", 4, 10, "over_budget"),
        ItemFate("history", 3, 5, "over_budget"),
        ItemFate("history", 9, 7, "over_budget"),
        ItemFate("layer:rag", 0, 2, "trimmed"),
    )

    left_out = only_call(fates=fates).left_out

    assert [(e.origin, e.first, e.last, e.count, e.tokens) for e in left_out] == [
        ("history", 3, 4, 2, 15),
        ("history", 9, 9, 1, 7),
        ("layer rag", 0, 0, 1, 2),
    ]


def test_items_before_the_window_are_listed_although_the_event_does_not_list_them() -> None:
    share = only_call(window=(40, 50))

    assert [(e.reason, e.first, e.last, e.count) for e in share.left_out] == [("over_budget", 0, 39, 40)]
    assert share.dropped == (40, 0)


def test_a_forced_item_is_named_but_not_counted_as_left_out() -> None:
    share = only_call(fates=(ItemFate("history", 5, 9000, "forced"),))

    assert [entry.reason for entry in share.left_out] == ["forced"]
    assert share.dropped == (0, 0)


def test_turn_and_thread_select_calls() -> None:
    events = [view(turn=1), view(turn=2), view(turn=2, step=1), view(turn=2, thread="t2")]
    of_turn, of_thread = Calls(turn=2), Calls(thread_id="t2")
    for event in events:
        of_turn.take(event)
        of_thread.take(event)

    assert [(share.thread, share.call) for share in of_turn.all] == [("t1", 1), ("t1", 2), ("t2", 1)]
    assert [share.thread for share in of_thread.all] == ["t2"]


def test_layers_that_look_alike_once_cut_stay_apart() -> None:
    calls = Calls()
    calls.take(view(layers=(layer("a" * 200 + "x" + "b" * 200, 1, 1), layer("a" * 200 + "y" + "b" * 200, 1, 1))))

    assert len(calls.order) == 2


def test_reading_a_run_finds_every_call() -> None:
    calls = Calls()
    for event in demo_run().events:
        calls.take(event)

    assert [(share.turn, share.call) for share in calls.all][:3] == [(1, 1), (1, 2), (2, 1)]
    assert len(calls.all) == 9


def test_up_to_seventeen_layers_have_colours_of_their_own() -> None:
    assert len(set(LAYER_COLOURS) | set(CATEGORY.values())) == len(LAYER_COLOURS) + len(CATEGORY) == 22
    assert sum(1 for event in many_layers_run().events if Calls().take(event)) == 1


@pytest.mark.parametrize("fill", [*LAYER_COLOURS, *CATEGORY.values()])
def test_ink_on_every_fill_reaches_the_contrast_of_readable_text(fill: str) -> None:
    light, dark = sorted((_luminance(fill), _luminance(ink_on(fill))), reverse=True)

    assert (light + 0.05) / (dark + 0.05) >= 4.5


@given(st.text(max_size=300), st.integers(3, 80))
def test_clipped_text_never_exceeds_its_length(text: str, length: int) -> None:
    assert len(clip(text, length)) <= length
    assert len(plain(text, length)) <= length


def test_shown_text_holds_no_credential_even_where_one_is_cut() -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwx"

    assert plain(f"key {key}") == "key [redacted]"
    assert "sk-" not in plain(f"{'a' * 9} {key} {'b' * 60}", 30)
