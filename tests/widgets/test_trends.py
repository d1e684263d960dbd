"""The trends: the values of each turn, their picture, and decisions with other thresholds."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.lab import datasets, first_stop, replay_regulator
from noetic_nb.plots._trends.trends_chart import ThreadChart
from noetic_nb.plots._trends.trends_panels import handles_of, lines_of
from noetic_nb.regulator import Regulator
from noetic_nb.regulator import events as seen_by
from noetic_nb.regulator.predicates.explanation import names_of
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_decisions import with_thresholds
from noetic_nb.runs._regulation.thread_signals import ThreadSignals, TurnSignals
from noetic_nb.widgets import RegulatorTrends
from tests.matrix import several
from tests.runs.factories import signals_of as read
from tests.widgets.scenes import HOSTILE, demo_run, long_run, watched_run, watched_turn

STOP = {
    "kind": "circuit_break",
    "reason": {"kind": "repeated_tool_call_loop", "tool_name": "find", "consecutive_count": 5},
}


def where(number: int, thread: str = "t1") -> Where:
    return Where(thread, f"e{number}", number)


def decided(number: int, decision: dict[str, Any] | None = None, **fields: Any) -> RegulatorDecided:
    return RegulatorDecided(
        where(number), 0.0, "regulation", fields.pop("at", "turn_complete"), decision or {"kind": "continue"}, **fields
    )


def cost(number: int, **fields: Any) -> RegulatorSaw:
    return RegulatorSaw(where(number), 0.0, "regulation", {"kind": "cost", "tokens_in": 5, "tokens_out": 10, **fields})


def shown(view: RegulatorTrends) -> list[str]:
    return list(view.snapshot["threads"][0]["shown"])


def drawn(view: RegulatorTrends, series: str) -> list[list[Any]]:
    """Return the positions of a series's marks."""
    return [list(mark.points) for mark in view.reading.scene().marks if mark.series == series]


def test_a_break_that_holds_is_one_mark_and_a_band_until_the_task_is_reset() -> None:
    thread = read(
        decided(1, tokens_out=10),
        decided(2, STOP, tokens_out=20, stops=True),
        *(decided(number, STOP, at="turn_start", tokens_out=20, stops=True) for number in (3, 4)),
        decided(5, at="turn_start", tokens_out=0),
        decided(5, STOP, tokens_out=10, stops=True),
    )

    assert [(turn.turn, len(turn.marks), turn.broken) for turn in thread.turns] == [
        (1, 0, False), (2, 1, True), (3, 0, True), (4, 0, True), (5, 1, True),
    ]  # fmt: skip
    with RegulatorTrends(Run(events=[decided(1), decided(2, STOP, stops=True), decided(3, STOP, stops=True)])) as view:
        assert view.to_html().count("circuit break: tool loop, turn stopped") == 2  # the mark and the list
        assert view.to_text().count("Turn 2, circuit break") == 1
        assert "Turn 3, circuit break" not in view.to_text()
        assert drawn(view, "broken") == [[1, None, 2, None], [2, None, 3, None]]
        assert drawn(view, "held") == [[1.5, "tool loop", 3]]


def test_a_reset_begins_windows_and_counts_anew() -> None:
    rule = {"quality_decline": {"window": 2, "min_delta": 0.1, "poor_mean": 0.5}}
    events: list[Any] = []
    for number, tokens in ((1, 10), (2, 20), (3, 10)):
        events += [
            decided(number, at="turn_start", tokens_out=tokens - 10, thresholds=rule),
            cost(number, usd=0.5),
            QualityGiven(where(number), 0.0, 0.1 * number, "user"),
            decided(number, tokens_out=tokens, thresholds=rule, cost_cap=100.0),
        ]

    turns = read(*events).turns

    assert [turn.mean for turn in turns] == [None, pytest.approx(0.15), None]
    assert [(turn.tokens, turn.spent, turn.totals["usd"]) for turn in turns] == [
        (10, 10, 0.5),
        (10, 20, 1.0),
        (10, 10, 0.5),
    ]


def test_what_nobody_knows_is_not_nothing() -> None:
    unpriced = [ModelCalled(where(1), 0.0, 0, "m", "agent", None, "ok", input_tokens=3, output_tokens=4)]
    priced = [replace(unpriced[0], where=where(2), cost=0.25, duration_ms=1500.0)]

    one, two = read(*unpriced, *priced).turns
    with RegulatorTrends(Run(events=unpriced)) as bare, RegulatorTrends(Run(events=[*unpriced, *priced])) as view:
        frame = view.to_frame()

        assert (one.used, two.used) == ({"tokens_in": 3}, {"tokens_in": 3, "usd": 0.25, "wallclock_ms": 1500.0})
        assert shown(bare) == ["quality", "spent", "tokens"]
        assert shown(view) == ["quality", "spent", "tokens", "usd", "wallclock_ms"]
        assert frame["usd"].isna().tolist() == [True, False]
        assert frame["drift"].isna().all()


def test_a_fall_of_quality_is_written_where_it_broke() -> None:
    run = watched_run(50)
    broke = next(event for event in run.events if isinstance(event, RegulatorDecided) and event.stops)
    grades = [event.quality for event in run.events if isinstance(event, QualityGiven)][: broke.where.turn]

    with RegulatorTrends(run) as view:
        (left, _, _, _, _, _, right, _), *_ = [line for line in drawn(view, "fell") if line]
        text = f"{grades[-3]:.2f} → {grades[-1]:.2f}"

        assert broke.decision["reason"]["kind"] == "quality_decline_no_recovery"
        assert (right - left, right) == (2, broke.where.turn - 0.5)
        assert text in view.to_html()
        assert f"quality {text.replace('→', '->')}" in view.to_text()


def test_thresholds_are_drawn_as_steps_from_the_decisions_own_data() -> None:
    numbers = (0.5, 0.5, 0.7)
    events = [
        event
        for number, poor in enumerate(numbers, start=1)
        for event in (
            QualityGiven(where(number), 0.0, 0.6, "user"),
            decided(number, thresholds={"quality_decline": {"window": 2, "min_delta": 0.1, "poor_mean": poor}}),
        )
    ]

    with RegulatorTrends(Run(events=events)) as view:
        assert drawn(view, "rule-quality") == [[at, poor, at + 1] for at, poor in enumerate(numbers)]
        assert drawn(view, "poor") == [[at, None, at + 1, poor] for at, poor in enumerate(numbers)]
        assert "poor 0.7" in view.to_html()


def test_a_run_without_a_regulator_has_no_threshold_and_says_so() -> None:
    run = datasets.airline_run(26)
    with RegulatorTrends(run) as bare, RegulatorTrends(run, regulator=Regulator.for_user("airline")) as given:
        assert "nn-rule" not in bare.to_html()
        assert "No regulator watched this run" in bare.to_html()
        assert not bare.snapshot["threads"][0]["handles"]
        with pytest.raises(NoeticConfigError) as caught:
            bare.what_if({})
        assert caught.value.code == "NO_REGULATOR"

        with_one = bare.what_if({"tool_loop": {"threshold": 3}}, regulator=Regulator.for_user("airline"))
        assert with_one["stops"].any()
        assert with_one["seq"].isna().all()
        assert with_one["was"].isna().all()
        assert with_one.equals(given.what_if({"tool_loop": {"threshold": 3}}))
        assert given.snapshot["threads"][0]["handles"]
        assert "decided nothing" in given.to_html()
        answer = given.reading.answer({"what": "what_if", "thread": 0, "thresholds": {"tool_loop": {"threshold": 3}}})
        assert answer["text"].startswith("Would break at turn")


def test_what_if_is_a_frame_of_decisions_against_what_was() -> None:
    run = watched_run(50)
    with RegulatorTrends(run) as view:
        same, other = view.what_if({}), view.what_if({"quality_decline": {"poor_mean": 0.0}})

        assert same["decision"].tolist() == same["was"].tolist()
        assert same["reason"].tolist() == same["was_reason"].tolist()
        assert [run.events[seq].where.turn for seq in same["seq"]] == same["turn"].tolist()
        assert not (other["reason"] == "quality_decline_no_recovery").any()
        assert other["was_stops"].tolist() == same["was_stops"].tolist()
    with RegulatorTrends(run, until=10) as early, RegulatorTrends(run, turn=7) as one:
        assert early.what_if({})["turn"].max() == 10
        assert set(one.what_if({})["turn"]) == {7}
        assert one.what_if({})["decision"].tolist() == same[same["turn"] == 7]["decision"].tolist()


@pytest.mark.parametrize(
    ("thresholds", "code"),
    [
        ({"cost": {"tokens_out": 1}}, "UNKNOWN_PREDICATE"),
        ({"constructor": {"tokens_out": 1}}, "UNKNOWN_PREDICATE"),
        ({"cost_cap": {"__proto__": 1}}, "UNKNOWN_THRESHOLD"),
        ({"cost_cap": {"tokens_out": -5}}, "INVALID_THRESHOLD"),
        ({"scope_drift": {"threshold": float("nan")}}, "INVALID_THRESHOLD"),
    ],
    ids=str,
)
def test_thresholds_that_cannot_be_are_refused_by_method_and_page(thresholds: Any, code: str) -> None:
    with RegulatorTrends(watched_run(5)) as view:
        with pytest.raises(NoeticConfigError) as caught:
            view.what_if(thresholds)
        answer = view._answer({"what": "what_if", "thread": 0, "thresholds": thresholds})

    assert caught.value.code == code
    assert code in answer["fault"]


@pytest.mark.parametrize(
    "request_of_page",
    [{}, {"what": "what_if"}, {"what": "turns", "thread": 9, "at": 0}, {"what": "thread", "thread": -1}, {"what": "x"}],
    ids=str,
)
def test_a_question_that_makes_no_sense_is_a_fault_of_the_page(request_of_page: dict[str, Any]) -> None:
    with RegulatorTrends(watched_run(3)) as view:
        assert "UNKNOWN_REQUEST" in view._answer(request_of_page)["fault"]


def bands(answer: dict[str, Any]) -> list[Any]:
    return [points for series, points, _ in answer["over"] if series == "would-break"]


def test_a_drag_names_the_turns_that_would_break_instead() -> None:
    with RegulatorTrends(watched_run(50)) as view:
        was = view.what_if({})
        broke = int(was[was["stops"]].iloc[0]["turn"])
        answer = view.reading.answer({"what": "what_if", "thread": 0, "thresholds": {"tool_loop": {"threshold": 4}}})
        none = view.reading.answer(
            {
                "what": "what_if",
                "thread": 0,
                "thresholds": {"quality_decline": {"poor_mean": 0.0}, "tool_loop": {"threshold": 9}},
            }
        )

    assert answer["text"].startswith(f"Would break at turn 3 (tool loop) instead of turn {broke} (quality decline).")
    assert bands(answer) == [[2, None, 50, None]]
    assert none["text"].startswith(f"Would not break; it broke at turn {broke} (quality decline).")
    assert bands(none) == []


def test_decisions_of_thresholds_are_set_against_all_that_was_decided_so_far() -> None:
    whole = watched_run(50)
    broke = next(event.where.turn for event in whole.select(RegulatorDecided) if event.stops)
    run = Run(meta=whole.meta, events=[event for event in whole.events if event.where.turn < broke])
    request = {"what": "what_if", "thread": 0, "thresholds": {"quality_decline": {"poor_mean": 0.0}}}
    with RegulatorTrends(run) as view:
        before = view.reading.answer(request)["text"]
        run.extend(list(whole.events)[len(run.events) :])
        view.catch_up()

        assert before.startswith("Would not break, as it did not.")
        assert view.reading.answer(request)["text"].startswith(f"Would not break; it broke at turn {broke} ")


def test_a_recording_that_lacks_something_says_that_it_is_decided_otherwise() -> None:
    run = watched_run(10)
    bare = Run(
        events=[replace(event, decision=STOP) if isinstance(event, RegulatorDecided) else event for event in run.events]
    )
    with RegulatorTrends(run) as whole, RegulatorTrends(bare) as view:
        request = {"what": "what_if", "thread": 0, "thresholds": {}}

        assert whole.reading.answer(request)["note"] == ""
        assert "decisions differ" in view.reading.answer(request)["note"]


def test_ten_thousand_turns_are_columns_of_ranges_in_less_than_a_megabyte() -> None:
    run = long_run(10_000)
    with RegulatorTrends(run) as view:
        thread = view.snapshot["threads"][0]
        grades = [event.quality for event in run.events if isinstance(event, QualityGiven)]

        assert len(json.dumps(view.snapshot)) < 1_000_000
        assert (thread["size"], len(thread["turns"])) == (64, 157)
        assert drawn(view, "quality-range")[3] == pytest.approx([3.5, min(grades[192:256]), max(grades[192:256])])
        assert thread["turns"][-1]["turns"] == [156 * 64 + 1, 10_000]
        inside = view.reading.answer({"what": "turns", "thread": 0, "at": 3})
        assert inside["turns"] == list(range(193, 257))
        assert inside["head"] == "Turns 193 to 256"
        assert re.findall(r'data-turn="(\d+)"', inside["parts"][0]["html"]) == [f"{turn}" for turn in inside["turns"]]
        assert len(view.to_frame()) == 10_000
        assert len(view.to_html()) < 600_000


def test_updates_stay_small_while_columns_are_shared_anew(sent: list[dict[str, Any]]) -> None:
    live = Regulator.recommended("ann")
    run = Run()
    with RegulatorTrends(run) as view:
        for number in range(1, 330):
            for event in watched_turn(live, number, 0.7, tokens=50):
                run.append(event)

        assert sum(message["type"] == "stale" for message in sent) == 2  # dots no longer fit, then turns share columns
        # The first messages of a thread include its thresholds.
        assert max(len(json.dumps(message)) for message in sent[10:]) < 2_048
        with RegulatorTrends(run) as whole:
            assert whole.snapshot == view.snapshot


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 30), st.sampled_from([0, 10])), max_size=12))
def test_a_scale_ends_at_the_greatest_that_is_there_however_it_came_and_went(
    steps: list[tuple[int, int | None, int]],
) -> None:
    thread = ThreadSignals("t1", [], [])
    live = ThreadChart(thread)
    for place, calls, limit in steps:
        if place >= len(thread.turns):
            thread.turns.append(TurnSignals(len(thread.turns) + 1))
        turn = thread.turns[min(place, len(thread.turns) - 1)]
        turn.calls_in_a_row, turn.thresholds = calls, {"tool_loop": {"threshold": limit}} if limit else {}
        live.take(turn)
        live.changes()

        whole = ThreadChart(thread)
        for each in thread.turns:
            whole.take(each)
        whole.changes()
        assert live.about == whole.about
        assert live.rows() == whole.rows()


def test_drift_is_scored_of_replies_that_nobody_was_warned_of() -> None:
    with RegulatorTrends(watched_run(3)) as view:
        drift = view.to_frame()["drift"]

    live = Regulator.for_user("ann")
    expected = []
    for event in watched_run(3).events:
        if isinstance(event, RegulatorSaw):
            from noetic_nb.regulator import events

            live.on_event(events.from_dict(event.event))
            if event.event["kind"] == "turn_complete":
                score = live.evidence.drift(live.predicates[3].scorer)  # type: ignore[attr-defined]
                expected.append(score.score)  # type: ignore[union-attr]
    assert drift.tolist() == expected
    assert len(set(expected)) > 1


def test_handles_have_the_range_of_their_predicate() -> None:
    thresholds = Regulator.recommended("ann").thresholds
    handles = handles_of(thresholds, lines_of(thresholds))

    assert {handle["panel"] for handle in handles} == {"quality", "spent", "drift", "confidence", "calls", None}
    assert not [handle for handle in handles if handle["name"] == "period"]
    for handle in handles:
        assert handle["values"][handle["at"]] == thresholds[handle["predicate"]][handle["name"]]
        assert len(handle["texts"]) == len(handle["values"]) == len(set(handle["values"]))
        for value in (handle["values"][0], handle["values"][-1]):
            Regulator.recommended("ann").settings.with_thresholds({handle["predicate"]: {handle["name"]: value}})


@pytest.mark.parametrize("text", [*HOSTILE, "constructor", "__proto__", "toString"])
def test_hostile_predicates_and_numbers_are_text(text: str) -> None:
    thresholds = {text: {text: 0.5}, "cost_cap": {"tokens_out": 5, text: "<b>"}}
    events = [
        TurnStarted(where(1, text), 0.0, "turn-1", 0, 1, text),
        RegulatorDecided(where(1, text), 0.0, text, text, {"kind": text}, thresholds=thresholds),  # type: ignore[dict-item]
    ]
    with RegulatorTrends(Run(events=events)) as view:
        page, snapshot = view.to_html(), json.dumps(view.snapshot)
        page = re.sub(r'<img alt="[^"<>]*" src="data:image/svg\+xml;base64,[^"]*">', "", page)  # its own picture

        assert not re.search(r"<(script|b|img|iframe)\b", page)
        assert len(snapshot) < 500_000
        assert view.to_frame()["thread_id"].tolist() == [text]


def test_the_static_form_names_the_last_values_and_has_a_table() -> None:
    with RegulatorTrends(demo_run()) as view:
        html = view.to_html()

    for words in (
        "quality · 0.28",
        "output tokens so far · 2,220",
        "tokens a turn · 480",
        "cap 2,000",
        "last 3",
        "<td>0.67</td>",
    ):
        assert words in html
    assert "money so far" not in html


def ended(number: int, output_tokens: int | None, *, calls: int = 0) -> TurnCompleted:
    return TurnCompleted(
        where(number), 9.0, f"turn{number}", "success", None, "fine", None, output_tokens, None, calls, 0
    )


@pytest.mark.parametrize(("tokens", "estimated"), [(None, []), (0, ["output_tokens"])])
def test_tokens_that_nobody_measured_are_not_drawn_as_none(tokens: int | None, estimated: list[str]) -> None:
    run = Run(meta={"estimated": estimated}, events=[ended(1, tokens), ended(2, tokens)])

    with RegulatorTrends(run) as view:
        frame = view.to_frame()

        assert frame["tokens"].isna().all()
        assert frame["spent"].isna().all()
        for picture in (view.to_text(), view.to_html()):
            assert "output tokens not measured" in picture
            assert "0 output tokens" not in picture
        assert view.snapshot["threads"][0]["turns"][0]["cells"][3:5] == ["not measured", "not measured"]
        assert shown(view) == ["quality"]
        run.append(ModelCalled(where(3), 10.0, 0, "m", "agent", None, "ok", output_tokens=7))
        run.append(ended(3, 7, calls=1))

        assert view.to_frame()["tokens"].tolist()[2:] == [7]
        assert "7 output tokens" in view.to_text()
        assert shown(view) == ["quality", "spent", "tokens"]


def test_a_measured_turn_without_a_call_has_no_tokens() -> None:
    with RegulatorTrends(Run(events=[ended(1, 0)])) as view:
        assert view.to_frame()["tokens"].tolist() == [0]
        assert "0 output tokens" in view.to_text()


def test_what_was_spent_before_stays_where_a_turn_was_not_measured() -> None:
    called = ModelCalled(where(1), 0.0, 0, "m", "agent", None, "ok", output_tokens=7)
    with RegulatorTrends(Run(events=[called, ended(1, 7, calls=1), ended(2, None)])) as view:
        frame = view.to_frame()

        assert frame["tokens"].isna().tolist() == [False, True]
        assert frame["spent"].tolist() == [7, 7]


def graded(number: int, quality: float) -> QualityGiven:
    return QualityGiven(where(number), 0.0, quality, "user")


def test_the_headline_says_of_which_turn_the_last_grade_is() -> None:
    events = [graded(1, 0.4), *(cost(number) for number in (2, 3))]
    whole = QualityGiven(where(3), 0.0, 1.0, "reward")
    with RegulatorTrends(Run(events=events)) as view, RegulatorTrends(Run(events=[*events, whole])) as judged:
        assert "Turn 3 · thread t1: not graded, turn 1 was 0.40" in view.to_text()
        assert "the whole conversation was graded 1.00" in judged.to_text()
        assert drawn(judged, "quality-dot") == [[0.5, 0.4]]


def test_the_grade_of_a_conversation_is_none_of_its_last_turn_where_a_regulator_was_told_of_it() -> None:
    run = replay_regulator(datasets.airline()[3], Regulator.recommended("ann"))
    with RegulatorTrends(run) as view:
        assert drawn(view, "quality-dot") == []
        assert "the whole conversation was graded 0.00" in view.to_text()
        assert "quality 0.00" not in view.to_text()


def test_a_cap_that_is_reached_while_answers_are_good_is_half_met_and_says_the_missing_part() -> None:
    run = watched_run(50)
    with RegulatorTrends(run) as view:
        spent = view.to_frame().set_index("turn")["spent"]
        reached = int(spent[spent >= 3_000].index[0])
        thresholds = {"cost_cap": {"tokens_out": 3_000}}
        found = view.reading.answer({"what": "conditions", "thread": 0, "thresholds": thresholds})
        answer = view.reading.answer({"what": "what_if", "thread": 0, "thresholds": thresholds})
        rows = view.conditions()

    lane = [(series, points, text) for series, points, text in found if points[1] == "cost cap"]
    series, points, text = lane[0]
    assert (series, points[0], text) == (
        "half", reached - 1, "cost cap half met: output tokens at least 3,000; missing: mean quality below 0.5",
    )  # fmt: skip
    met = next(points for series, points, _ in lane if series == "met")
    fired = next(points for series, points, _ in answer["over"] if series == "would-circuit_break")
    assert met[0] == points[2] > points[0]
    assert fired in ([met[0] + 0.5, "cost cap"], [met[0] + 0.5, "quality decline"])
    caps = rows[(rows["predicate"] == "cost_cap") & (rows["condition"] == "tokens_out")]
    assert caps["value"].tolist() == spent.tolist()
    assert not caps["met"].any()


def test_conditions_are_those_that_the_regulator_decided_by() -> None:
    run = watched_run(50)
    with RegulatorTrends(run) as view:
        rows, decisions = view.conditions(), view.what_if({})

    turns = decisions[decisions["decision"] != "continue"]
    fired = rows[rows["fired"]]
    assert set(fired["turn"]) == set(turns["turn"])
    assert rows.loc[fired.index, "met"].groupby([fired["turn"], fired["predicate"]]).any().all()


RUNS = several(15, 1_000)
PREDICATE_OF = {
    "repeated_tool_call_loop": "tool_loop",
    "cost_cap_reached": "cost_cap",
    "quality_decline_no_recovery": "quality_decline",
    "scope_drift_warn": "scope_drift",
    "procedural_warning": "procedural_warning",
}


def random_run(draw: random.Random) -> tuple[Run, Regulator]:
    """Return a few turns with a regulator that has other thresholds."""
    live = Regulator.for_user("ann")
    numbers = {
        "cost_cap": {"tokens_out": draw.choice([100, 500]), "window": draw.randint(2, 3), "poor_mean": draw.random()},
        "quality_decline": {"min_delta": draw.random() / 4, "window": draw.randint(2, 3), "poor_mean": draw.random()},
        "tool_loop": {"threshold": draw.randint(2, 6)},
        "scope_drift": {"threshold": draw.random()},
        "procedural_warning": {"min_corrections": draw.randint(1, 3)},
    }
    live = Regulator(live.person, with_thresholds(live.settings, numbers))
    run = Run(run_id="random", meta={"regulator": {"settings": live.settings.to_dict()}})
    for number in range(1, draw.randint(2, 7)):
        quality = draw.choice([None, 0.1, 0.4, 0.9])
        for event in watched_turn(live, number, quality, tokens=draw.choice([20, 200]), calls=draw.randint(0, 6)):
            run.append(event)
    return run, live


def decided_turns(run: Run, regulator: Regulator) -> set[int]:
    """Return the turns in which a regulator decides when it sees the events of a run."""
    found = set()
    for event in run.select(RegulatorSaw, RegulatorDecided):
        if isinstance(event, RegulatorSaw):
            regulator.on_event(seen_by.from_dict(event.event))
        elif regulator.decide().kind != "continue":
            found.add(event.where.turn)
    return found


@pytest.mark.matrix
def test_every_cell_is_what_decide_says() -> None:
    draw, fired = random.Random(5), Counter[str]()
    for _ in range(RUNS):
        run, live = random_run(draw)
        with RegulatorTrends(run) as view:
            rows = view.conditions()
        expected = set()
        for event in run.select(RegulatorDecided):
            kind = (event.decision.get("reason") or event.decision)["kind"]
            if kind != "continue":
                expected.add((event.where.turn, PREDICATE_OF.get(kind, kind)))
        assert set(rows.loc[rows["fired"], ["turn", "predicate"]].itertuples(index=False, name=None)) == expected
        fired.update(name for _, name in expected)
        for predicate, name in zip(live.settings.predicates, names_of(live.settings.predicates), strict=True):
            alone = Regulator(
                Regulator.for_user("ann").person, dataclasses.replace(live.settings, predicates=(predicate,))
            )
            cells = rows[rows["predicate"] == name].groupby("turn")["met"].all()
            assert set(cells[cells].index) == decided_turns(run, alone), name
    assert set(fired) >= {"tool_loop", "quality_decline", "cost_cap", "scope_drift"}


def test_dragged_thresholds_say_what_they_stop_on_a_bank() -> None:
    regulator = Regulator.for_user("ann")
    bank = datasets.airline()
    run = replay_regulator(datasets.airline_run(26), regulator)
    seen = set()
    with RegulatorTrends(run, bank=bank) as view:
        for threshold in (3, 6, 8, 50):
            thresholds = {"tool_loop": {"threshold": threshold}}
            found = view.what_if(thresholds).attrs["bank"]
            other = Regulator(regulator.person, with_thresholds(regulator.settings, thresholds))
            for name, label in (("failed", False), ("good", True)):
                runs = [each for each in bank if each.meta["outcome"] is label]
                stopped = sum(first_stop(replay_regulator(each, other)) is not None for each in runs)
                count = found[name]
                assert (count.n, count.of) == (stopped, len(runs))
                assert count.low <= count.rate <= count.high
                seen.add((threshold, name, stopped))
            answer = view.reading.answer({"what": "bank", "thread": 0, "thresholds": thresholds})
            assert answer["text"].startswith(
                f"Of the 20 runs of the bank it would stop {found['failed'].n} of 10 failed ones ("
            )
        assert len({stopped for *_, stopped in seen}) > 2
        said = "As it was set: Of the 20 runs of the bank it would stop 5 of 10 failed ones"
        assert said in view.to_text()
        assert said in view.to_html()
        assert view.snapshot["bank"] is True
    with RegulatorTrends(run) as bare:
        assert "bank" not in bare.what_if().attrs
        assert "of the bank" not in bare.to_text()
        assert bare.snapshot["bank"] is False


def test_a_bank_has_runs_with_an_outcome() -> None:
    run = watched_run(3)
    for bank, code in (([], "NO_RUNS"), ([run], "NO_LABELS"), (["no run"], "INVALID_RUN")):
        with pytest.raises(NoeticConfigError) as caught:
            RegulatorTrends(run, bank=bank)
        assert caught.value.code == code
    unwatched = datasets.airline_run(26)
    with RegulatorTrends(unwatched, bank=datasets.airline()) as view:
        assert "of the bank" not in view.to_text()  # its thresholds are unknown
    with RegulatorTrends(unwatched, bank=datasets.airline(), regulator=Regulator.for_user("ann")) as view:
        assert "it would stop 5 of 10 failed ones" in view.to_text()


def test_every_axis_has_a_threshold_or_a_number_at_its_end() -> None:
    with RegulatorTrends(watched_run(5)) as view:
        panels = view.reading.scene().panels

    for panel in panels:
        if panel.ticks and not panel.lanes:
            highest, text = max(panel.ticks)
            assert highest == panel.high or text.startswith(("limit", "cap"))
            assert len({text for _, text in panel.ticks}) == len(panel.ticks)


def test_a_part_of_a_long_thread_has_finer_columns() -> None:
    with RegulatorTrends(watched_run(400)) as view:
        whole = view.snapshot["threads"][0]
        part = view.reading.answer({"what": "part", "thread": 0, "first": 10, "last": 19})
        found = view.reading.answer({"what": "turns", "thread": 0, "part": [10, 19], "at": 3})

    assert (whole["size"], part["size"], len(part["turns"])) == (2, 1, 20)
    assert part["turns"][0]["turns"][0] == whole["turns"][10]["turns"][0]
    assert found["turns"] == [part["turns"][3]["turns"][0]]
