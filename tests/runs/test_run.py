"""A run grows, can be read in several ways, and never changes its content."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from msgspec.structs import replace

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven, TurnCompleted, TurnStarted
from noetic_nb.runs import Run
from noetic_nb.testing import FakeClock, SeededIds
from tests.runs.factories import conversation, where


def made(turns: int = 2) -> Run:
    return Run("r1", meta={"created_ms": 0.0}, events=conversation(turns))


def test_events_grow_with_the_run_and_slice_to_tuples() -> None:
    run = Run("r1")
    events = run.events

    run.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert len(events) == 1
    assert events[:1] == (run.events[0],)
    assert events == [run.events[0]]
    assert events != []


def test_meta_says_when_by_what_and_in_which_version() -> None:
    run = Run(clock=FakeClock(5_000), ids=SeededIds(3), meta={"source": "test", "config": {"names": ("a",)}})

    assert run.run_id == "run_3_1"
    assert run.meta["created_ms"] == 5_000
    assert run.meta["schema_version"] == 2
    assert run.meta["library_version"]
    assert run.meta["source"] == "test"
    assert run.meta["config"] == {"names": ["a"]}
    assert run.meta["models"] is None


def test_select_keeps_order_and_takes_several_types() -> None:
    run = made(2)

    found = run.select(TurnStarted, TurnCompleted)

    assert [event.kind for event in found] == ["turn_started", "turn_completed"] * 2
    assert run.select() == tuple(run.events)


def test_select_refuses_what_is_no_event_type() -> None:
    with pytest.raises(NoeticConfigError, match="TurnStarted"):
        made().select(str)


def test_runs_are_equal_by_content() -> None:
    run = made()
    changed = run.copy()
    changed.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert run == made()
    assert run.copy() == run
    assert changed != run
    assert run != Run("r2", meta=run.meta, events=run.events)
    assert run != "r1"


def test_a_copy_shares_nothing_that_changes() -> None:
    run = made()
    twin = run.copy()

    twin.meta["note"] = "mine"
    twin.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert "note" not in run.meta
    assert len(run.events) == 30


def test_a_run_can_be_sent_to_another_process() -> None:
    run = made()
    run.subscribe(lambda event: None)

    assert pickle.loads(pickle.dumps(run)) == run


def test_repr_is_short() -> None:
    assert repr(made()) == "<Run 'r1': 30 events, 2 turns, 1 thread>"


def test_html_escapes_what_people_and_models_said_and_holds_no_script() -> None:
    events = conversation(1)
    events[0] = replace(events[0], query="<script>alert(1)</script>")  # type: ignore[type-var]
    page = Run("<b>", events=events)._repr_html_()

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>" not in page


def test_html_names_the_reason_of_a_stop_and_hides_secrets() -> None:
    events = conversation(1)
    stopped = {"kind": "circuit_break", "reason": {"kind": "cost_cap_reached"}, "suggestion": "narrow it"}
    events[0] = replace(events[0], query="my key is sk-abcdefghijklmnopqrstuvwx")  # type: ignore[type-var]
    events[-2] = replace(events[-2], outcome="aborted", stopped=stopped)  # type: ignore[type-var]
    page = Run("r1", events=events)._repr_html_()

    assert "stopped: cost_cap_reached" in page
    assert "sk-abc" not in page


def test_html_of_a_long_run_shows_the_first_hundred_turns_and_says_so() -> None:
    page = made(101)._repr_html_()

    assert page.count("<tr>") == 101
    assert "101 turns, the first 100 of them below" in page


def test_importing_runs_loads_nothing_heavy() -> None:
    code = "import sys, noetic_nb.runs; print(sorted({'pandas', 'numpy', 'matplotlib', 'IPython'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
