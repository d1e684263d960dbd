"""Views of a run without anything to show: data may still come, or the recording has none."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb import AgentConfig, AgentHarness, ScriptedModel, react, record
from noetic_nb.events import ModelCalled, SteeringDecided, TurnCompleted, WarningRaised, Where
from noetic_nb.lab import datasets
from noetic_nb.runs import Run, load_run
from noetic_nb.widgets import Ledger, RegulatorTrends, TokenAllocation, Transcript

WHERE = Where("t1", "e1", 1)
ENDED = TurnCompleted(WHERE, 9.0, "turn1", "success", None, "fine", None, None, None, 0, 0)
SAID = [
    (TokenAllocation, "No model call yet.", "This recording has no model calls."),
    (Transcript, "No model call yet.", "This recording has no model calls."),
    (Ledger, "No steering decision yet.", "No rules decided in this recording."),
]


def texts(view: Any) -> tuple[str, ...]:
    return view.to_text(), view.to_html(), view.snapshot["empty"]


@pytest.mark.parametrize(("view_type", "yet", "none"), SAID)
def test_a_recording_that_has_ended_promises_nothing(view_type: Any, yet: str, none: str, tmp_path: Any) -> None:
    path = tmp_path / "run.json.gz"
    Run(events=[ENDED]).save(path)

    with view_type(load_run(path)) as view, view_type(load_run(path), turn=1) as part:
        assert all(none in text and yet not in text for text in texts(view))
        assert all("this part of the recording" in text.lower() for text in texts(part))


@pytest.mark.parametrize(("view_type", "yet", "none"), SAID)
async def test_a_run_that_is_being_recorded_may_still_have_some(view_type: Any, yet: str, none: str) -> None:
    harness = AgentHarness(AgentConfig(name="desk", step=react(model="m")), model=ScriptedModel([]))
    run = record(harness)
    run.append(ENDED)
    with view_type(run) as view, view_type(Run()) as empty:
        assert all(yet in text and none not in text for text in (*texts(view), *texts(empty)))
    run.stop_recording()
    with view_type(run) as view:
        assert all(none in text for text in texts(view))


def test_trends_of_a_recording_without_turns_say_so() -> None:
    run = Run(events=[WarningRaised(Where("", "", 0), 0.0, "code", "text")])
    with RegulatorTrends(run) as view:
        assert all("This recording has no turns." in text for text in texts(view))


def test_an_imported_recording_says_what_it_lacks() -> None:
    run = datasets.airline_run(26)
    with Ledger(run) as ledger, TokenAllocation(run) as allocation:
        assert "No rules decided in this recording." in ledger.to_text()
        assert "This recording has no plans" in allocation.to_text()


def test_what_comes_after_all_is_shown() -> None:
    run = Run(events=[ENDED])
    with Ledger(run) as ledger, Transcript(run) as transcript:
        run.append(SteeringDecided(WHERE, 9.0, "steering", "before_tool_call", "find", {}, "allow", None, (), 0.1))
        run.append(ModelCalled(WHERE, 9.0, 0, "m", "agent", None, "ok"))

        assert "1 decision" in ledger.to_text()
        assert "This recording has no" not in transcript.to_text()
