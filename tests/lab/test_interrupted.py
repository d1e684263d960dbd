"""Slow lab functions: their progress, and their results when they are interrupted."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb._core.long_work import Interrupted
from noetic_nb.errors import NoeticConfigError


@cache
def bank() -> tuple[nn.Run, ...]:
    return tuple(lab.datasets.agentdojo("banking"))


class Interrupting:
    """Raises the exception of the stop button at the n-th call."""

    def __init__(self, at: int | None) -> None:
        self.at, self.calls = at, 0

    def __call__(self, *_: Any) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


def guarded(stop: Interrupting, *, is_async: bool = False, is_late: bool = False) -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.only_from_user("send_money", "recipient")

    if is_async:

        @rules.rule(on="before_tool_call", id="looks")
        async def looks(call: Any) -> None:
            await asyncio.sleep(0)
            stop()
    else:

        @rules.rule(on="before_tool_call", id="looks")
        def looks_now(call: Any) -> Any:
            stop()
            return asyncio.sleep(0) if is_late else None

    return rules


@pytest.mark.parametrize("kind", ["plain", "async", "late"])
def test_an_evaluation_is_that_of_the_runs_that_were_finished(kind: str) -> None:
    def rules(at: int | None) -> nn.RuleBook:
        return guarded(Interrupting(at), is_async=kind == "async", is_late=kind == "late")

    with pytest.warns(Interrupted, match="evaluate was interrupted"):
        part = lab.evaluate(rules(301), bank())

    done = len(part.stops())
    assert 20 < done < len(bank())
    whole = lab.evaluate(rules(None), bank()[:done])
    assert part.stops() == whole.stops()
    assert (part.caught, part.blocked, part.false_rejections) == (whole.caught, whole.blocked, whole.false_rejections)


def test_an_interrupt_before_the_first_run_is_finished_goes_on() -> None:
    with pytest.warns(Interrupted), pytest.raises(KeyboardInterrupt):
        lab.evaluate(guarded(Interrupting(1)), bank())


def test_suggestions_are_those_that_were_scored_and_no_surer_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from noetic_nb.lab._rule_scores import rule_suggestions

    whole = lab.suggest(bank())
    stop, score = Interrupting(2), rule_suggestions.Evaluator.evaluate

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        stop()
        return score(*args, **kwargs)

    monkeypatch.setattr(rule_suggestions.Evaluator, "evaluate", interrupted)
    with pytest.warns(Interrupted, match="rules scored"):
        part = lab.suggest(bank())

    scored = [*part, *part.refuted]
    assert len(scored) == 1 < len([*whole, *whole.refuted])
    same = {each.rule.id: each for each in [*whole, *whole.refuted]}[scored[0].rule.id]
    assert scored[0].caught == same.caught
    assert scored[0].p >= same.p


def test_an_interrupt_of_the_search_for_suggestions_goes_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        lab.suggest(bank(), progress=Interrupting(50))


def _length(run: nn.Run) -> float:
    return float(len(run.events))


def test_a_calibration_is_that_of_the_runs_that_were_scored() -> None:
    runs = lab.datasets.airline()
    stop = Interrupting(17)

    def scorer(run: nn.Run) -> float:
        stop()
        return _length(run)

    with pytest.warns(Interrupted, match=f"the first 16 of {len(runs)} runs"):
        part = lab.calibrate({"events": scorer}, runs, samples=50)

    whole = lab.calibrate({"events": _length}, runs[:16], samples=50)
    assert part.made_of == whole.made_of
    assert part.table.equals(whole.table)


def test_a_calibration_of_too_few_runs_is_no_calibration() -> None:
    stop = Interrupting(2)

    def scorer(run: nn.Run) -> float:
        stop()
        return 1.0

    with pytest.warns(Interrupted), pytest.raises(KeyboardInterrupt):
        lab.calibrate({"one": scorer}, lab.datasets.airline(), samples=50)


def test_sets_of_layers_are_compared_on_the_dialogues_that_all_of_them_played() -> None:
    dialogues = lab.made_dialogues(6)
    stop = Interrupting(10)  # two calls make previews; then the second one of the fourth dialogue

    def window() -> Any:
        stop()
        return nn.history_window(4)

    sets: dict[str, Any] = {"plain": [], "window": window, "again": window}
    with pytest.warns(Interrupted, match="the first 3 of 6 dialogues"):
        part = lab.memory_bench(sets, dialogues, budgets=[300])

    whole = lab.memory_bench(
        {name: [] if name == "plain" else nn.history_window(4) for name in sets}, dialogues[:3], budgets=[300]
    )
    assert part.equals(whole)
    assert part.attrs["dialogues"] == 3
    assert "interrupted" in part.attrs["stopped"]
    assert whole.attrs["stopped"] is None


def test_every_long_call_says_how_far_it_is_and_refuses_what_is_no_progress() -> None:
    from noetic_nb.regulator import ToolLoop

    calls = {
        "evaluate": lambda progress: lab.evaluate(guarded(Interrupting(None)), bank()[:40], progress=progress),
        "suggest": lambda progress: lab.suggest(bank(), progress=progress),
        "calibrate": lambda progress: lab.calibrate(ToolLoop(), lab.datasets.airline(), samples=20, progress=progress),
        "memory_bench": lambda progress: lab.memory_bench(
            {"plain": []}, lab.made_dialogues(2), budgets=[300], progress=progress
        ),
        "sweep": lambda progress: lab.sweep(
            {"call_budget.total": [5, 20]},
            lab.datasets.airline(3),
            metrics={"turns": lambda run: len(run.turns)},
            regulator=nn.Regulator.recommended("ann"),
            n_jobs=1,
            progress=progress,
        ),
    }
    for name, call in calls.items():
        told: list[tuple[int, int | None]] = []
        call(lambda done, of, told=told: told.append((done, of)))
        assert told, name
        assert told[-1][0] == told[-1][1], name
        call(False)
        with pytest.raises(NoeticConfigError) as caught:
            call(3)
        assert caught.value.code == "INVALID_PROGRESS", name
