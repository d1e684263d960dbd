"""A long run is opened by work that grows with its turns only, and what nobody looks at is not worked out."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest

from noetic_nb.events import SteeringDecided, Where
from noetic_nb.garbage import FEW
from noetic_nb.runs import Run
from noetic_nb.runs.requests.recorded_requests import RequestIndex
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import Compare, RuleEditor
from noetic_nb.widgets.base.feed import LONG_RUN, no_collecting
from noetic_nb.widgets.rules.rule_table import RuleHits
from tests.widgets.scenes import planned_run

READ = """
import gc
from noetic_nb.garbage import FEW
from noetic_nb.widgets.base.feed import LONG_RUN, no_collecting

class Kept:
    pass  # something that the collector knows

for events in (LONG_RUN, LONG_RUN - 1):
    gc.collect()
    with no_collecting(events):
        kept, beside = Kept(), [[number] for number in range(2 * FEW)]
        was_off = not gc.isenabled()
    found = any(each is kept for each in gc.get_objects(generation=2))
    del beside
    print(events - LONG_RUN, was_off, gc.isenabled(), found)
"""


def test_what_was_read_of_a_long_run_is_old_for_the_collector() -> None:
    # In a program of its own, which has frozen nothing: the suite has.
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["0 True True True", "-1 True True False"]


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()  # as the suite has already, where there is one
    with no_collecting(LONG_RUN):
        [[number] for number in range(2 * FEW)]

    assert gc.get_freeze_count()


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
    assert [row["what"] for row in last["rows"]].count("request") == 1


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
    assert sum(row["bars"]) == 200
    assert 0 < len(drawn) <= 3
