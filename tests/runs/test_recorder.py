"""Recording: a stream of events becomes a run, and errors of the recorder do not reach the agent."""

from __future__ import annotations

import logging
import threading

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, QualityGiven
from noetic_nb.runs import Recorder, Run, record
from tests.runs.factories import Desk, where


def grade(desk: Desk, quality: float) -> None:
    desk.emit(QualityGiven(where(), 1.0, quality, "person"))


def test_a_recorded_run_grows_with_the_harness_and_knows_its_set_up() -> None:
    desk = Desk()

    run = record(desk)
    grade(desk, 0.5)

    assert [event.kind for event in run.events] == ["quality_given"]
    assert run.meta["config"] == {"name": "desk"}
    assert run.meta["models"] == ["scripted"]
    assert (run.run_id, run.meta["created_ms"]) == ("run_1_1", 7_000)


def test_attaching_the_same_harness_twice_does_not_double_events() -> None:
    desk = Desk()
    run = record(desk)

    assert record(desk, run=run) is run
    grade(desk, 0.5)

    assert len(run.events) == 1


def test_two_harnesses_may_fill_one_run() -> None:
    one, other = Desk(), Desk()
    run = record(other, run=record(one))

    grade(one, 0.1)
    grade(other, 0.2)

    assert [event.quality for event in run.select(QualityGiven)] == [0.1, 0.2]


def test_stop_recording_detaches_and_recording_may_begin_again() -> None:
    desk = Desk()
    run = record(desk)

    run.stop_recording()
    run.stop_recording()
    grade(desk, 0.1)
    record(desk, run=run)
    grade(desk, 0.2)

    assert [event.quality for event in run.select(QualityGiven)] == [0.2]


def test_something_without_subscribe_cannot_be_recorded() -> None:
    with pytest.raises(NoeticConfigError, match="subscribe"):
        record(object())  # type: ignore[arg-type]


def test_a_description_that_is_no_mapping_is_refused() -> None:
    desk = Desk()
    desk.describe = lambda: "desk"  # type: ignore[assignment, method-assign, return-value]

    with pytest.raises(NoeticConfigError, match="mapping"):
        record(desk)


def test_a_recorder_never_raises_and_reports_what_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()

    with caplog.at_level(logging.ERROR):
        recorder.emit("no event")  # type: ignore[arg-type]

    assert len(recorder.run.events) == 0
    assert "not recorded" in caplog.text


def test_threads_lose_no_event() -> None:
    recorder, received = Recorder(Run("r1")), list[object]()
    recorder.run.subscribe(received.append)

    def emit() -> None:
        for _ in range(200):
            recorder.emit(QualityGiven(where(), 1.0, 0.5, "person"))

    workers = [threading.Thread(target=emit) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(recorder.run.events) == len(received) == 800


def test_what_a_child_is_given_is_recorded_and_told_to_who_listens(caplog: pytest.LogCaptureFixture) -> None:
    inner = nn.react(model="scripted")
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=nn.spawn("child", inner)), model=nn.ScriptedModel(["Hello."])
    )
    run = nn.record(harness)
    heard: list[object] = []
    run.subscribe(heard.append)
    nn.run_sync(harness.execute("Hi"))
    given = [
        event for event in heard if isinstance(event, ItemsAppended) and event.where.depth and event.origin == "user"
    ]
    assert "not recorded" not in caplog.text
    assert [nn.items.item_text(item) for event in given for item in event.items] == ["Hi"]
