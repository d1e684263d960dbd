"""Views of a replayed run say how far it is known, and how much of their content is."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import SteeringDecided
from noetic_nb.lab import datasets, replay
from noetic_nb.runs import Run
from noetic_nb.widgets import Ledger, MemoryView, RegulatorTrends, RunTimeline, TokenAllocation, Transcript

VIEWS: tuple[Any, ...] = (Ledger, MemoryView, RegulatorTrends, RunTimeline, TokenAllocation, Transcript)


@pytest.fixture(scope="module")
def replayed() -> Run:
    rules = nn.RuleBook()
    rules.when('tool.name == "update_reservation_flights"', id="no_changes", guidance="Do not change flights.")
    return replay(datasets.airline_run(26), rules=rules)


def test_the_ledger_counts_the_decisions_in_front_of_the_first_change(replayed: Run) -> None:
    (point,) = replayed.known_until.values()
    decisions = [seq for seq, event in enumerate(replayed.events) if isinstance(event, SteeringDecided)]
    known = [seq for seq in decisions if seq < point.seq]
    view = Ledger(replayed)

    said = view.snapshot["known"]
    assert f"{len(known)} of {len(decisions)} decisions are known." in said
    assert 0 < len(known) < len(decisions)
    assert f"turn {point.turn} of" in said


@pytest.mark.parametrize("kind", VIEWS)
def test_every_view_says_it_in_each_of_its_forms(replayed: Run, kind: Any) -> None:
    view = kind(replayed)

    assert "Known up to turn" in view.snapshot["known"]
    assert view.to_text().endswith(view.snapshot["known"])
    assert '<p class="nn-note">Known up to turn' in view.to_html()


@pytest.mark.parametrize("kind", VIEWS)
def test_a_recording_says_nothing_of_it(kind: Any) -> None:
    view = kind(datasets.airline_run(26))

    assert "known" not in view.snapshot
    assert "Known up to" not in view.to_text()
