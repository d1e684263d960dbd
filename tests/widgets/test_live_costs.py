"""What an event costs a page while a run grows: one message, of a size that does not grow with the run."""

from __future__ import annotations

import json
from typing import Any

import ipywidgets
import pytest

from noetic_nb.events import TurnStarted, Where
from noetic_nb.runs import Run
from noetic_nb.widgets import Workbench
from tests.widgets.scenes import turn

TURNS = 300
# What 20 events a second may cost a page on a slow line.
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

    assert max(sent) <= MOST_BYTES
    assert max(of_turn[TURNS // 2 :]) <= 1.1 * max(of_turn[10 : TURNS // 2])


def test_showing_a_workbench_makes_no_panel_that_its_page_has_not_asked_for() -> None:
    run = Run("r", events=[event for number in range(1, 4) for event in events_of(number)])
    with Workbench(run) as bench:
        bench._repr_mimebundle_()

        assert bench.reading.views == {}
