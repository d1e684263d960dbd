"""Views of a run that drops its oldest turns: the numbers of decisions and calls do not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from noetic_nb.events import (
    ItemsAppended,
    ModelCalled,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.items import function_call, input_message
from noetic_nb.runs import Run
from noetic_nb.runs._cause import places_of_decisions
from noetic_nb.widgets import Ledger, Selection, Transcript, Workbench
from noetic_nb.widgets._rules.draft_trial import place_of as trial_place


class DropsFirst:
    """Drops the events of the first turns when there are more than a limit."""

    problem = None

    def __init__(self, run: Run, most: int) -> None:
        self.run, self.most = run, most
        self.events: list[RunEvent] = []

    def begin(self, events: Sequence[RunEvent]) -> Sequence[bool] | None:
        self.events = list(events)
        return None

    def is_due(self, event: RunEvent, count: int) -> bool:
        return True

    def take(self) -> Sequence[bool] | None:
        self.events += self.run.events[len(self.events) :]
        turns = sorted({event.where.turn for event in self.events})
        if len(turns) <= self.most:
            return None
        stays = [event.where.turn > turns[0] for event in self.events]
        self.events = [event for event, kept in zip(self.events, stays, strict=True) if kept]
        return stays

    def close(self) -> None:
        pass


def turn(number: int) -> list[RunEvent]:
    where = Where("t1", f"e{number}", number)
    args = {"order": f"A{number}B"}
    call = function_call("pay", f'{{"order": "A{number}B"}}', f"c{number}")
    said = input_message(f"Pay order A{number}B", item_id=f"u{number}")
    return [
        TurnStarted(where, 0.0, f"u{number}", 2 * number, 2 * number + 1, f"Pay order A{number}B"),
        ItemsAppended(where, 0.0, 2 * number, (said,), "input"),
        ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (call,)),
        SteeringDecided(where, 2.0, "steering", "before_tool_call", "pay", args, "deny", "No.", ("few",), 0.1),
        TurnCompleted(where, 3.0, f"u{number}", "success", 5.0, "Done.", 5, 2, None, 1, 0),
    ]


@pytest.fixture
def run() -> Run:
    run = Run("bounded")
    run._keep_with(DropsFirst(run, 3))
    return run


def grow(run: Run, *numbers: int) -> None:
    for number in numbers:
        for event in turn(number):
            run.append(event)


def seqs(view: Any) -> list[int]:
    return [entry.seq for entry in view.reading.index.entries]


def test_views_that_were_opened_before_and_after_turns_were_dropped_name_decisions_and_calls_alike(run: Run) -> None:
    with Ledger(run) as ledger, Transcript(run) as transcript:
        grow(run, 1, 2, 3, 4, 5)
        with Ledger(run) as late, Transcript(run) as late_transcript:
            grow(run, 6, 7)

            assert len(run.events) == 3 * len(turn(1))
            assert seqs(ledger)[-3:] == [23, 28, 33]
            assert seqs(late) == [13, 18, 23, 28, 33]
            numbers = [record.number for record in transcript.reading.book.calls]
            assert [record.number for record in late_transcript.reading.book.calls] == numbers[2:] == [2, 3, 4, 5, 6]


def test_a_decision_is_found_where_it_stands_now(run: Run) -> None:
    with Ledger(run) as ledger, Workbench(run) as bench:
        grow(run, 1, 2, 3)
        assert "user</td>" in str(ledger.reading.answer({"what": "origins", "at": 2}))
        grow(run, 4, 5, 6, 7)

        assert "user</td>" in str(ledger.reading.answer({"what": "origins", "at": 6}))
        assert "Written by" not in str(ledger.reading.answer({"what": "origins", "at": 0}))
        cause = bench.reading.causes.of(33)
        assert (cause["request"]["call"], cause["arguments"][0]["origin"]) == (6, "the user")
        gone = bench.reading.causes.of(3)
        assert gone["request"] is None
        assert gone["note"] == "The run has let the call go that this is about."


def test_a_row_of_a_rule_trial_names_the_call_and_the_decision_by_their_numbers(run: Run) -> None:
    grow(run, 1, 2, 3, 4, 5)
    run.append(ToolCalled(Where("t1", "e5", 5), 4.0, "pay", "c5", {"order": "A5B"}, "", 1.0, "denied"))

    fields = trial_place(run, len(run.events) - 1, places_of_decisions(run.events))

    assert (fields["turn"], fields["call"], fields["decision"]) == (5, 4, 23)


def test_a_panel_that_is_opened_late_knows_the_selection_of_the_others(run: Run) -> None:
    selection = Selection()
    with Workbench(run, panels=["ledger"], selection=selection) as bench:
        grow(run, 1, 2, 3, 4, 5)
        chosen = bench.reading.talk.fields(4, decision=True)
        assert chosen["decision"] == 23

        transcript = bench.transcript

        assert transcript.reading.book.calls[transcript.reading.place_of({**selection.fields, **chosen})].number == 4


def test_what_is_sent_before_a_page_listens_is_sent_again_to_it() -> None:
    run = Run("r")
    with Ledger(run) as view:
        sent: list[dict[str, Any]] = []
        view.comm.send = lambda data=None, *_args, **_more: sent.append(data["content"])
        opened_with = view.sent["messages"]
        grow(run, 1)
        assert [message["type"] for message in sent] == ["line"]
        sent.clear()

        view._message_received(view, {"type": "here", "messages": opened_with}, [])
        view._message_received(view, {"type": "here", "messages": view.sent["messages"]}, [])

        assert [message["type"] for message in sent] == ["all"]
        assert sent[0]["snapshot"]["total"] == 1
