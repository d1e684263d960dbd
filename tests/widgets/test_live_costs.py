"""The cost of an event for a page while a run grows: one message, whose size does not grow with the run."""

from __future__ import annotations

import json
from typing import Any

import ipywidgets
import pytest

from noetic_nb.events import TurnStarted, Where
from noetic_nb.runs import Run
from noetic_nb.widgets import Workbench
from noetic_nb.widgets._workbench.workbench import SHORT_RUN
from tests.widgets.scenes import turn

TURNS = 300
# The limit for 20 events a second on a slow connection.
MOST_BYTES = 2_048


def events_of(number: int) -> list[Any]:
    where = Where("t1", f"e-t1-{number}", number)
    began = TurnStarted(where, 0.0, f"turn-{number}", 0, 1, f"Where is order {number}?")
    return [began, *turn(number, quality=0.5, spent=number)]


def test_an_event_is_at_most_one_message_of_two_kilobytes_however_long_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(
        ipywidgets.Widget,
        "send",
        lambda self, content, buffers=None: sent.append(len(json.dumps(content, separators=(",", ":")).encode())),
    )
    run = Run("r")
    with Workbench(run) as bench:
        for name in bench.panels:
            bench._answer({"do": "panel", "panel": name})
        sent.clear()
        of_turn = []
        for number in range(1, TURNS + 1):
            before = len(sent)
            for event in events_of(number):
                known = len(sent)
                run.append(event)
                assert len(sent) - known <= 1
            of_turn.append(sum(sent[before:]))
            if number == 1:
                first = len(sent)

    # Once, the first turn brings the handles of all thresholds with their stops.
    assert max(sent[:first]) <= 3 * MOST_BYTES
    assert max(sent[first:]) <= MOST_BYTES
    assert max(of_turn[TURNS // 2 :]) <= 1.1 * max(of_turn[10 : TURNS // 2])


def run_of(turns: int) -> Run:
    return Run("r", events=[event for number in range(1, turns + 1) for event in events_of(number)])


def test_of_a_long_run_no_panel_is_made_that_a_page_has_not_asked_for() -> None:
    run = run_of(turns=3)
    while len(run.events) <= SHORT_RUN:
        run.append(run.events[-1])
    with Workbench(run) as bench:
        bench._repr_mimebundle_()

        assert bench.reading.views == bench.snapshot["panels"] == {}


def test_of_a_short_run_the_open_panels_are_sent_with_the_rest_and_stay_as_the_kernel_has_them() -> None:
    run = run_of(turns=3)
    with Workbench(run, panels=["ledger", "transcript", "allocation", "trends"]) as bench:
        sent = bench.snapshot["panels"]
        assert {name: each["snapshot"] for name, each in sent.items()} == {
            name: view.reading.snapshot for name, view in bench.reading.views.items()
        }
        for request, answer in sent["transcript"]["ahead"]:
            assert answer == bench.transcript._answer(request)
        assert sent["transcript"]["ahead"]

        bench.ledger.only = "deny"
        for event in events_of(4):
            run.append(event)
        assert sent["ledger"]["traits"]["only"] == "deny"
        assert len(sent["transcript"]["snapshot"]["calls"]) == len(bench.transcript.snapshot["calls"])
        assert sent["transcript"]["ahead"] == [], "there is a newer call now"

        bench.panels = ["ledger"]
        assert set(bench.snapshot["panels"]) == {"ledger"}
