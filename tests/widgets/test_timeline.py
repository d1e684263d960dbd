"""The timeline view: small messages, windows on request, the linked selection, a table, and a word for every sign."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas
import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, TurnCompleted, TurnStarted, Where
from noetic_nb.runs import Run
from noetic_nb.runs._timeline.span import SIGNS
from noetic_nb.widgets import RunTimeline, Selection
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS, hostile_run
from tests.widgets.rows import words
from tests.widgets.timeline_scenes import branches_run, many_turns, out_of_time_run, ten_thousand_spans, untimed_run


def named(view: RunTimeline, name: str) -> int:
    """Return the number of a span."""
    return next(span.at for span in view._timeline.timeline.spans if span.name == name)


def bars_of(scene: dict[str, Any]) -> dict[str, int]:
    """Return how many spans each bar represents, by key."""
    keys = [mark[5] for marks in scene["marks"].values() for mark in marks if len(mark) == 6]
    return {key: 1 + int(key.partition("+")[2] or 0) for key in keys}


def test_the_table_has_a_row_a_span_and_nothing_unknown_is_zero() -> None:
    with RunTimeline(branches_run()) as view, RunTimeline(untimed_run()) as untimed:
        table, order = view.to_frame(), untimed.to_frame()

    assert list(table.columns) == [
        "run_id", "thread_id", "execution_id", "turn", "seq", "kind", "name", "start_ms", "duration_ms", "status", "depth",
        "parent", "call", "item", "decision", "error",
    ]  # fmt: skip
    refund = table[table["name"] == "refund"].iloc[0]
    assert tuple(refund[["kind", "start_ms", "duration_ms", "status", "depth", "call", "item"]]) == (
        "tool", 2_730.0, 70.0, "error", 2, 0, 1,
    )  # fmt: skip
    assert table.loc[refund["parent"], "name"] == "agent"
    assert table.loc[table["name"] == "judge (judge)", "call"].isna().all()
    assert order["start_ms"].isna().all()
    assert order["duration_ms"].isna().all()
    assert not (table["duration_ms"] == 0).any()


def test_a_table_without_spans_has_its_columns() -> None:
    with RunTimeline(Run()) as view, RunTimeline(branches_run()) as other:
        assert pandas.concat([view.to_frame(), other.to_frame()]).dtypes.to_dict() == other.to_frame().dtypes.to_dict()


def test_a_part_of_the_run_is_drawn_and_tabled() -> None:
    with RunTimeline(many_turns(9), turn=3) as one, RunTimeline(many_turns(9), until=2) as first:
        assert set(one.to_frame()["turn"]) == {3}
        assert set(first.to_frame()["turn"]) == {1, 2}
        assert one.snapshot["total"] == 5


def test_an_event_is_one_small_message_however_long_the_run_is(sent: list[dict[str, Any]]) -> None:
    events = list(many_turns(300).events)
    run = Run()
    with RunTimeline(run) as view:
        for event in events:
            run.append(event)

        assert len(sent) <= len(events)
        assert {message["type"] for message in sent} == {"grown"}
        assert max(len(json.dumps(message)) for message in sent) < 100
        assert sent[-1]["total"] == view.snapshot["total"] == 1_500


def test_ten_thousand_spans_are_sent_as_a_small_picture_with_every_problem_in_it() -> None:
    with RunTimeline(ten_thousand_spans()) as view:
        text = json.dumps(view.snapshot, allow_nan=False)
        scene = view.snapshot["window"]["scene"]
        bars = bars_of(scene)

        assert view.snapshot["total"] == 10_000
        assert len(text) < 100_000
        assert len(view.to_html()) < 300_000
        hooks = view.reading.timeline.counts["hook"]  # hidden by default
        assert sum(bars.values()) == 10_000 - hooks < 10_000
        everything = view.reading.answer({"what": "window", "hooks": True})
        assert sum(bars_of(everything["scene"]).values()) == 10_000
        signs = [scene["texts"][mark[3]] for marks in scene["marks"].values() for mark in marks if len(mark) > 3]
        assert signs.count(SIGNS[3]) == 20


def test_a_page_sees_a_part_closer_and_filtered() -> None:
    with RunTimeline(ten_thousand_spans()) as view:
        whole = view.reading.answer({"what": "window"})
        part = view.reading.answer(
            {"what": "window", "from": 0, "to": whole["end"] / 1_000, "bins": 400, "hooks": True}
        )
        only = view.reading.answer({"what": "window", "kinds": ["tool"], "only": "problems", "text": "LOOK"})
        none = view.reading.answer({"what": "window", "text": "nothing has this name"})

    assert set(bars_of(part["scene"]).values()) == {1}
    assert {"turn 1", "notes.recall", "fast", "look"} < set(part["scene"]["texts"])
    assert (only["said"], only["shown"]) == ("20 of 10,000 spans", 1)
    assert (none["said"], none["shown"], bars_of(none["scene"])) == ("0 of 10,000 spans", 0, {})


@pytest.mark.parametrize("request_", [{"kinds": ["turtle"]}, {"kinds": 3}, {"text": {"a": 1}}, {"only": "sad"}])
def test_a_part_that_cannot_be_is_refused(request_: dict[str, Any]) -> None:
    with RunTimeline(branches_run()) as view, pytest.raises(NoeticConfigError) as caught:
        view.reading.answer({"what": "window", **request_})

    assert caught.value.code == "INVALID_WINDOW"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -5, "x", True, None, 1e300])
@pytest.mark.parametrize("name", ["from", "to", "bins", "first"])
def test_numbers_of_a_page_never_break_a_window(name: str, number: Any) -> None:
    with RunTimeline(branches_run()) as view:
        json.dumps(view.reading.answer({"what": "window", name: number}), allow_nan=False)


def test_what_others_choose_is_found_and_what_is_chosen_here_names_it() -> None:
    selection = Selection()
    with RunTimeline(branches_run(), selection=selection) as view:
        for fields, name in (
            ({"turn": 1}, "turn 1"),
            ({"thread_id": "t1", "turn": 1, "call": 0}, "fast"),
            ({"thread_id": "t1", "turn": 1, "call": 0, "item": 1}, "refund"),
            ({"decision": 10}, "steering.before_tool_call"),
            ({"decision": 11}, "approval of refund"),
        ):
            selection.select(**fields)
            assert view.snapshot["chosen"] == named(view, name), fields
        selection.select(thread_id="t1", turn=9)
        assert view.snapshot["chosen"] is None

        go = view.reading.answer({"what": "span", "at": named(view, "refund")})["go"]
        assert go == {"thread_id": "t1", "turn": 1, "call": 0, "item": 1, "decision": 11}


def test_a_span_that_only_its_turn_names_stays_chosen() -> None:
    selection = Selection()
    with RunTimeline(branches_run(), selection=selection) as view:
        at = named(view, "facts.recall")
        selection.select(**view.reading.answer({"what": "span", "at": at})["go"])

        assert view.snapshot["chosen"] == at


def test_the_detail_says_where_a_span_is_and_why_it_failed() -> None:
    with RunTimeline(branches_run()) as view:
        detail = view.reading.answer({"what": "span", "at": named(view, "refund")})

    parts = {part["key"]: words(part) for part in detail["parts"]}
    assert parts["head"] == "✕ tool refund: 70 ms, error"
    assert parts["error"] == "The bank is closed."
    assert parts["buttons"] == "Zoom to itInside of:turn 1agent"
    assert "Began: 1.73 s after the start" in parts["facts"]


def test_problems_are_walked_through_in_a_circle() -> None:
    with RunTimeline(branches_run()) as view:
        at, found = -1, []
        for _ in range(4):
            at = view.reading.answer({"what": "problem", "at": at})["at"]
            found.append(at)
        back = view.reading.answer({"what": "problem", "at": found[1], "back": True})["at"]

    assert len(set(found)) == 3
    assert found[3] == found[0] == back


def test_a_time_out_and_a_wait_are_said_in_words_in_every_form() -> None:
    with RunTimeline(out_of_time_run()) as failed, RunTimeline(branches_run()) as waited:
        for shown in (failed.to_text(), failed.to_html()):
            assert f"{SIGNS[2]} tool book: 30 s, timeout" in shown
            assert "in 31 s; 1 out of time" in shown
        assert "1.2 s spent waiting for a person" in waited.to_text()
        assert "approval of refund" in waited.to_html()


def test_a_recording_without_a_clock_says_so_and_shows_the_order() -> None:
    with RunTimeline(untimed_run()) as view:
        assert view.scale == "order"
        assert "no clock times" in view.to_text()
        assert "no clock times" in view.to_html()
        assert view.snapshot["note"]
        window = view.reading.answer({"what": "window", "by_time": True})
        assert [text for _, text in window["scene"]["ticks"]] == ["0", "1", "2", "3", "4", "5"][
            : len(window["scene"]["ticks"])
        ]


def test_the_static_form_follows_the_scale() -> None:
    with RunTimeline(branches_run()) as view:
        by_time = view.to_html()
        view.scale = "order"

        assert view.to_html() != by_time


def test_a_growing_run_ends_up_as_the_whole_one() -> None:
    run = Run("branches")
    with RunTimeline(run) as growing:
        for event in branches_run().events:
            run.append(event)
        with RunTimeline(run) as whole:
            assert growing.to_html() == whole.to_html()
            assert growing.to_frame().equals(whole.to_frame())
            request = {"what": "window", "bins": 100}
            assert growing.reading.answer(request) == whole.reading.answer(request)


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=6)
def test_answers_with_hostile_text_are_data(name: str) -> None:
    text = HOSTILE_TEXTS[name]
    with RunTimeline(hostile_run(text)) as view:
        requests: list[dict[str, Any]] = [{"what": "window"}, {"what": "window", "text": text}, {"what": "list"}]
        requests += [{"what": "span", "at": at} for at in range(view.snapshot["total"])]
        for request in requests:
            answer = view.reading.answer(request)
            wire = json.dumps(answer, allow_nan=False, ensure_ascii=False).encode("utf-8")
            assert json.loads(wire) == answer
            assert len(wire) < 200_000


def test_a_turn_that_is_pointed_at_says_where_its_time_went() -> None:
    where = Where("t1", "e1", 1)
    events = [
        TurnStarted(where, 100.0, "u1", 0, 1, "Hi"),
        ModelCalled(where, 180.0, 1, "<b>fast</b>", "agent", 60.0, "ok"),
        TurnCompleted(where, 200.0, "u1", "success", 100.0, "Hello", 9, 2, 0.0, 1, 0, storage_ms=10.0),
    ]
    with RunTimeline(Run(events=events)) as view, RunTimeline(Run(events=events[:2])) as running:
        turn = view._timeline.answer({"what": "span", "at": named(view, "turn 1")})
        call = view._timeline.answer({"what": "span", "at": named(view, "<b>fast</b>")})
        open_turn = running._timeline.answer({"what": "span", "at": named(running, "turn 1")})

    shown, *others = [{part["key"]: part["html"] for part in found["parts"]} for found in (turn, call, open_turn)]
    said = ["models 60%, 60 ms", "not recorded what for 30%, 30 ms", "storage 10%, 10 ms"]
    assert re.findall(r"<span>(.*?)</span>", shown["parts"]) == said
    assert re.findall(r"h([0-9.]+)V", shown["time"]) == ["60.0", "30.0", "10.0"]
    assert len({*re.findall(r'fill="([^"]+)"', shown["time"])}) == 3
    assert not [parts for parts in others if "time" in parts]
