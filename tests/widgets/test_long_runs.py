"""Opening a long run takes work proportional to its turns, and values that are not viewed are not computed."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.events import SteeringDecided, Where
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import Compare, RuleEditor
from noetic_nb.widgets._rules.rule_table import RuleHits
from tests.widgets.scenes import planned_run


def test_two_runs_are_compared_without_the_requests_of_turns_that_nobody_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Any] = []
    take = RequestIndex.take
    monkeypatch.setattr(
        RequestIndex, "take", lambda self, event, **at: (taken.append(event), take(self, event, **at))[1]
    )
    runs = planned_run(300), planned_run(300)
    all_of_both = sum(type(event) in RequestIndex.reads for run in runs for event in run.events)
    with Compare(*runs) as view:
        view.reading.answer({"what": "pairs", "start": 0})
        first = len(taken)
        last = view.reading.answer({"what": "pairs", "start": 299})["pairs"][0]

    assert 0 < first < all_of_both / 10
    assert len(taken) == all_of_both
    assert sum(">request</td>" in row["html"] for row in last["rows"]) == 1


def test_the_hits_of_a_long_run_are_drawn_once_for_each_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    bars = RuleHits.bars
    monkeypatch.setattr(RuleHits, "bars", lambda self, rule_id: (drawn.append(rule_id), bars(self, rule_id))[1])
    rules = RuleBook()
    rules.when('tool.name == "pay"', id="no-pay", guidance="Ask a person.")
    denied = [
        SteeringDecided(
            Where("t1", f"e{n}", n), 0.0, "steering", "before_tool_call", "pay", {}, "deny", "No.", ("no-pay",), 0.1
        )
        for n in range(1, 201)
    ]
    with RuleEditor(rules, run=Run(events=denied)) as editor:
        row = editor.reading.snapshot["rows"][0]

    assert row["words"] == "200 denied"
    assert 0 < len(drawn) <= 3
