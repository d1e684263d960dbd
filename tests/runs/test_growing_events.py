"""Events are added completely or not at all, are immutable, and reach every subscriber."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven, RunEvent, ToolCalled
from noetic_nb.runs import Run
from tests.runs.factories import conversation, where


def test_append_returns_the_position_of_the_event() -> None:
    run = Run(events=conversation(1))

    seq = run.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert seq == 15
    assert run.events[seq].quality == 0.5  # type: ignore[union-attr]


def test_append_refuses_what_is_no_event() -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_RUN_EVENT"):
        Run("r1").append({"kind": "turn_started"})  # type: ignore[arg-type]


def test_several_events_are_added_as_one_after_the_other() -> None:
    run, heard, seen = Run("r1"), Run("r1"), list[int]()
    heard.subscribe(lambda _: seen.append(len(heard.events)))

    run.extend(conversation(2))
    heard.extend(conversation(2))

    assert run.events == heard.events == Run(events=conversation(2)).events
    assert seen == list(range(1, len(heard.events) + 1))


@pytest.mark.parametrize("is_heard", [False, True], ids=["alone", "heard"])
def test_of_several_events_none_is_added_where_one_is_none(is_heard: bool) -> None:
    run = Run("r1")
    if is_heard:
        run.subscribe(lambda _: None)

    with pytest.raises(NoeticConfigError, match="INVALID_RUN_EVENT"):
        run.extend([*conversation(1), {"kind": "turn_started"}])  # type: ignore[list-item]

    assert run.events == []


def test_later_changes_of_arguments_do_not_reach_the_run() -> None:
    args: dict[str, Any] = {"ids": [1]}
    run = Run("r1", events=[ToolCalled(where(), 0.0, "lookup", "c1", args, "", 1.0, "ok")])

    args["ids"].append(2)

    assert run.select(ToolCalled)[0].args == {"ids": (1,)}


def test_an_argument_that_is_not_json_is_kept_as_a_description() -> None:
    run = Run("r1", events=[ToolCalled(where(), 0.0, "lookup", "c1", {"ids": {1}}, "", 1.0, "ok")])

    assert run.select(ToolCalled)[0].args["ids"] == {"$unserializable": "set", "text": "{1}"}


def test_a_listener_hears_every_event_until_it_unsubscribes() -> None:
    run, received = Run("r1"), list[RunEvent]()
    unsubscribe = run.subscribe(received.append)
    run.append(QualityGiven(where(), 1.0, 0.1, "person"))

    unsubscribe()
    unsubscribe()
    run.append(QualityGiven(where(), 2.0, 0.2, "person"))

    assert received == [run.events[0]]


def test_a_listener_may_read_the_run_it_listens_to() -> None:
    run, seen = Run("r1"), list[int]()
    run.subscribe(lambda event: seen.append(len(run.turns)))

    for event in conversation(2):
        run.append(event)

    assert seen == [1] * 15 + [2] * 15


def test_a_failing_listener_is_reported_and_removed_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    run, received = Run("r1"), list[RunEvent]()

    def broken(event: RunEvent) -> None:
        raise RuntimeError("the widget is gone")

    run.subscribe(broken)
    run.subscribe(received.append)
    with caplog.at_level(logging.ERROR):
        run.append(QualityGiven(where(), 1.0, 0.1, "person"))
        run.append(QualityGiven(where(), 2.0, 0.2, "person"))

    assert len(received) == 2
    assert [record.exc_text is not None for record in caplog.records] == [True]
