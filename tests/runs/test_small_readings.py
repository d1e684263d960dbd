"""Small helpers for runs: words, colours, numbers and parts shared by views and figures."""

from __future__ import annotations

import gzip
from math import inf, isnan

import pytest

import noetic_nb as nn
from noetic_nb.events import (
    LayerStateChanged,
    MemoryTraceSpan,
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    WarningRaised,
    Where,
)
from noetic_nb.items import input_message
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._events.event_json import from_wire, parse_json, to_wire
from noetic_nb.runs._events.run_log import Numbering, call_at, place_of
from noetic_nb.runs._layer_states import StateIndex
from noetic_nb.runs._palette import LAYER_COLOURS, ink_on, layer_colour
from noetic_nb.runs._plain_text import count, sendable
from noetic_nb.runs._recording.retained_turns import KeptTurn, KeptTurns, with_dropped
from noetic_nb.runs._regulation.decision_words import DecisionRedaction, decision_label
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape
from noetic_nb.runs._regulation.regulator_signals import DriftScores
from noetic_nb.runs._requests.billing_differences import CallUsage, UsageIndex, usage_words
from noetic_nb.runs._requests.recorded_requests import CallBook
from noetic_nb.runs._requests.sent_request import counter_named
from noetic_nb.runs._requests.shared_requests import RequestPart, shared_prefix
from noetic_nb.runs._save import packed
from noetic_nb.runs._tables import UNKNOWN_TARGET, is_faulty, ledger_line
from noetic_nb.runs._timeline.span import duration_text
from noetic_nb.runs._timeline.turn_parts import parts_of_turns

WHERE = Where("t1", "e1", 1)


def test_a_rule_that_ran_out_of_time_is_a_fault_and_a_decision_is_none() -> None:
    decided = SteeringDecided(WHERE, 0.0, "s", "before_tool_call", "pay", {}, "deny", None, (), 1.0, "timeout")

    assert is_faulty(decided)
    assert not is_faulty(SteeringDecided(WHERE, 0.0, "s", "before_tool_call", "pay", {}, "deny", None, ("r",), 1.0))


def test_a_warning_about_a_rule_is_a_line_of_the_ledger_and_others_are_not() -> None:
    line = ledger_line(WarningRaised(WHERE, 0.0, UNKNOWN_TARGET, "Rule 'r': There is no tool 'serach'.", "steering"))

    assert line is not None
    assert (line.action, line.outcome) == ("warn", "unknown_rule_target")
    assert ledger_line(WarningRaised(WHERE, 0.0, "other", "Something else.")) is None


def test_events_that_stay_keep_their_numbers() -> None:
    numbers = Numbering([QualityGiven(Where("t1", "e1", turn), 0.0, 0.5, "user") for turn in (1, 2, 3)])

    numbers.keep([False, True, True])

    assert (numbers.seqs, numbers.place_of(0), numbers.place_of(2)) == ([1, 2], None, 1)


def test_an_event_is_found_by_its_number_and_belongs_to_the_last_call_before_it() -> None:
    called, given = ModelCalled(WHERE, 0.0, 0, "m", "agent", 1.0, "ok"), QualityGiven(WHERE, 0.0, 0.5, "user")
    run = nn.Run(events=[called, called, given])

    assert (place_of(run, 2, given), place_of(run, 3, given), call_at(run, 2)) == (2, None, 1)


def test_numbers_that_json_lacks_survive_a_file_and_are_refused_as_plain_json() -> None:
    wire = to_wire({"cap": inf, "ids": (1, 2)})

    assert wire == {"cap": {"$float": "Infinity"}, "ids": [1, 2]}
    assert from_wire(wire) == {"cap": inf, "ids": (1, 2)}
    with pytest.raises(ValueError, match="1e400 is larger than any number here"):
        parse_json(b"[1e400]")


def test_packed_members_are_one_gzip_file() -> None:
    assert gzip.decompress(packed(b"one") + packed(b"two")) == b"onetwo"


def test_a_write_of_the_same_state_is_no_change() -> None:
    index = StateIndex()
    for turn, state in enumerate(({"n": 1}, {"n": 1}, {"n": 2}), 1):
        track = index.take(LayerStateChanged(Where("t1", "e1", turn), 0.0, "notes", "store", state))

    assert track is not None
    assert [write.changed for write in track.writes] == [True, False, True]
    last = track.at_end_of(2)
    assert last is not None
    assert last.event.state == {"n": 1}


def test_colours_of_layers_repeat_only_after_all_of_them_and_are_written_on_in_the_ink_that_reads_better() -> None:
    assert len(set(LAYER_COLOURS)) == len(LAYER_COLOURS)
    assert layer_colour(len(LAYER_COLOURS)) == layer_colour(0)
    assert (ink_on("#0072B2"), ink_on("#F0E442")) == ("#FFFFFF", "#000000")


def test_names_and_counts_are_put_so_that_a_page_takes_them() -> None:
    assert (sendable("t1"), sendable(chr(0xD800))) == ("t1", "\\ud800")
    assert (count(1234.4), count(None)) == ("1,234", "no limit")


def test_turns_that_were_dropped_are_named_as_stretches() -> None:
    turns = KeptTurns(max_turns=2)
    for turn in range(1, 4):
        turns.owners.append(turns.turn_of(QualityGiven(Where("t1", "e1", turn), 0.0, 0.5, "user")))

    assert [turn.turn for turn in turns.overflow()] == [1, 2]
    assert with_dropped([{"thread_id": "t1", "first": 1, "last": 3}], [KeptTurn("t1", 4), KeptTurn("t2", 1)]) == [
        {"thread_id": "t1", "first": 1, "last": 4},
        {"thread_id": "t2", "first": 1, "last": 1},
    ]


def test_a_decision_is_put_in_words_without_the_secret_that_the_user_wrote() -> None:
    words = DecisionRedaction()
    words.take(TurnStarted(WHERE, 0.0, "turn-1", 0, 1, "PASSWORD=hunter2secret fails"))

    redacted = words.decision({"kind": "scope_drift_warn", "drift_tokens": ["hunter2secret"]})

    assert redacted["drift_tokens"] == ["[redacted]"]
    label = decision_label({"kind": "circuit_break", "reason": {"kind": "cost_cap_reached"}})
    assert label == "circuit break: cost cap"


def test_recorded_grades_are_decided_again_under_other_thresholds() -> None:
    grades = [QualityGiven(WHERE, 0.0, quality, "user") for quality in (0.9, 0.5, 0.05)]
    tape = DecisionTape.of_unwatched(grades, Regulator.for_user("ann"))

    assert [each.decision.kind for each in tape.decide({})] == ["continue", "continue", "circuit_break"]
    assert {each.decision.kind for each in tape.decide({"quality_decline": {"poor_mean": 0.4}})} == {"continue"}


def test_the_drift_of_a_reply_is_the_share_of_its_words_that_the_task_lacks() -> None:
    scores = DriftScores(lambda decided: Regulator.for_user("ann"))
    scores.take(RegulatorSaw(WHERE, 0.0, "regulation", {"kind": "turn_start", "user_message": "move the flight"}))
    scores.take(RegulatorDecided(WHERE, 0.0, "regulation", "turn_start", {"kind": "continue"}))
    reply = {"kind": "turn_complete", "full_response": "The flight and the hotel."}

    score = scores.take(RegulatorSaw(WHERE, 0.0, "regulation", reply))

    assert score is not None
    assert score() == 0.5


def test_tokens_that_were_billed_and_not_counted_are_unexplained() -> None:
    index = UsageIndex()
    index.take(ViewAssembled(WHERE, 0.0, 0, (0, 1), (), (), (), 1000, 0, 20, 0, 0, 30, 900, 1))

    usage = index.take(ModelCalled(WHERE, 0.0, 0, "m", "agent", 1.0, "ok", input_tokens=60))

    assert usage is not None
    assert usage.unexplained == 10
    called = ModelCalled(WHERE, 0.0, 0, "m", "agent", 1.0, "ok", input_tokens=110)
    assert usage_words(CallUsage(called, "o200k_base", 0.01, 100, 110, 10, -0.09, None)) == (
        "Counted by o200k_base (known error 1 %). Billed 110 input tokens, 10 of them unexplained (9.1 %)."
    )


def test_a_call_is_listed_with_the_tools_that_ran_after_it() -> None:
    book = CallBook()
    book.take(ModelCalled(WHERE, 0.0, 0, "m", "agent", 1.0, "ok"), 0, 0)
    book.take(ToolCalled(WHERE, 1.0, "lookup", "c1", {}, "42", 3.0, "ok"), 1)

    assert [event.name for _, event in book.shown(0).after if isinstance(event, ToolCalled)] == ["lookup"]


def test_the_shared_prefix_ends_where_a_layer_comes_between() -> None:
    hello, note = input_message("hello", item_id="1"), input_message("note", "developer", item_id="2")
    system, history = RequestPart("system", "Be brief.", 3), RequestPart("history", (hello,), 29)

    shared = shared_prefix((system, history), (system, RequestPart("layer:notes", (note,), 30), history))

    assert (shared.tokens, shared.by_origin, shared.whole, shared.ends_at) == (3, {"system": 3}, 1, "layer:notes")


def test_a_counter_of_nobody_is_none() -> None:
    assert counter_named("mine") is None


def test_durations_are_short() -> None:
    given = (None, 0.0, 0.024, 3.26, 840.0, 1_240.0, 125_000.0, 9_000_000.0, 200_000_000.0)

    shown = [duration_text(ms) for ms in given]

    assert shown == ["", "0 ms", "0.02 ms", "3.3 ms", "840 ms", "1.24 s", "2:05 min", "2:30 h", "2 d 7 h"]


def test_time_of_a_turn_without_a_recorded_plan_is_not_split_further() -> None:
    events = [
        MemoryTraceSpan(WHERE, 3.0, "notes", "recall", 1.0, "ok"),
        ModelCalled(WHERE, 9.0, 1, "fast", "agent", 5.0, "ok"),
        TurnCompleted(WHERE, 10.0, "u1", "success", 10.0, "Hello", 9, 2, 0.0, 1, 0, storage_ms=1.0),
    ]

    [found] = parts_of_turns(Run(events=events))

    assert (found.ms["model", "fast"], found.ms["hook", "notes"], found.ms["storage", ""]) == (5.0, 1.0, 1.0)
    assert isnan(found.ms["planning", ""])
    assert isnan(found.ms["own", ""])
    assert found.ms["unsplit", ""] == 3.0
