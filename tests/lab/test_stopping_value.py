"""Savings of stopping, counted by hand, and unknown values."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, ToolCalled, TurnCompleted, TurnStarted, Where
from noetic_nb.lab import datasets, economics
from noetic_nb.models import Usage
from noetic_nb.models._pricing import cost_of
from noetic_nb.regulator import CallBudget, CostCap, Regulator
from noetic_nb.runs import Run

WHERE = Where("t", "e", 1)
STEP_MS = 1_000.0


def made(name: str, steps: int, *, tokens: int = 100, cost: float | None = 0.5, **meta: Any) -> Run:
    """Return a run of one turn with the given number of model calls, each but the last followed by a tool call."""
    events: list[Any] = [TurnStarted(WHERE, 0.0, "u", 0, 1, "Go.")]
    for number in range(steps):
        now = STEP_MS * (number + 1)
        events.append(ModelCalled(WHERE, now, number, "m", "agent", 5.0, "ok", (), tokens, 2 * tokens, 0, cost))
        if number < steps - 1:
            events.append(ToolCalled(WHERE, now, "search", f"c{number}", {"n": number}, "out", 1.0, "ok", None))
    events.append(TurnCompleted(WHERE, STEP_MS * steps, "u", "success", 1.0, "Done.", 0, 0, None, steps, steps - 1))
    return Run(name, meta={"domain": "shop", **meta}, events=events)


def some() -> list[Run]:
    return [
        made("bad-6", 6, task_id=1, outcome=False),
        made("bad-3", 3, task_id=2, outcome=False),
        made("good-4", 4, task_id=3, outcome=True),
        made("good-2", 2, task_id=4, outcome=True),
        made("unknown", 9, task_id=5, outcome=None),
    ]


def rows(frame: Any, policy: str, domain: str = "all") -> dict[float, Any]:
    part = frame[(frame.policy == policy) & (frame.domain == domain)]
    return {row.threshold: row for row in part.itertuples()}


def test_what_failed_runs_spend_after_the_stop_is_saved() -> None:
    found = rows(economics(CallBudget(), some(), samples=50), "detector")

    assert list(found) == [1, 2, 3, 4, 5]
    # The third tool call comes after the third of six model calls, of 300 tokens each.
    assert found[3].tokens_saved == 3 * 300
    assert found[3].cost_saved == pytest.approx(3 * 0.5)
    assert found[3].time_saved_s == pytest.approx(3.0)
    assert (found[3].failed_stopped, found[3].good_lost) == (0.5, 0.5)
    assert found[2].tokens_saved == 4 * 300 + 1 * 300
    assert (found[2].failed_stopped, found[2].good_lost) == (1.0, 0.5)
    assert (found[4].failed_stopped, found[4].good_lost, found[4].tokens_saved) == (0.5, 0.0, 2 * 300)
    assert (found[1].good, found[1].failed) == (2, 2)


def test_a_cap_on_steps_stops_after_so_many_calls_of_the_model() -> None:
    found = rows(economics(CallBudget(), some(), samples=50), "cap on steps")

    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert found[3].tokens_saved == 3 * 300
    assert (found[3].failed_stopped, found[3].good_lost) == (0.5, 0.5)
    assert (found[6].failed_stopped, found[6].good_lost, found[6].tokens_saved) == (0.0, 0.0, 0.0)


def test_more_is_saved_and_lost_the_lower_the_threshold() -> None:
    frame = economics(CallBudget(), datasets.telecom(), samples=50)

    for _, part in frame.groupby(["policy", "domain"]):
        ordered = part.sort_values("threshold")
        for name in ("tokens_saved", "cost_saved", "time_saved_s", "good_lost", "failed_stopped"):
            assert ordered[name].is_monotonic_decreasing
            assert (ordered[f"{name}_low"] <= ordered[name] + 1e-9).all()
            assert (ordered[f"{name}_high"] >= ordered[name] - 1e-9).all()
    assert frame.attrs["unknown"] == {"tokens": {}, "cost": {}, "time": {}}
    assert (frame.cost_saved > 0).any()


def test_each_domain_has_rows_of_its_own_and_all_have_their_sum() -> None:
    runs = [*some(), *[made(f"b{n}", n, task_id=n, domain="bank", outcome=n % 2 == 0) for n in range(2, 8)]]

    frame = economics(CallBudget(), runs, samples=20)

    parts = [rows(frame, "detector", domain) for domain in ("all", "bank", "shop")]
    for threshold in parts[0]:
        both, bank, shop = (part[threshold] for part in parts)
        assert both.tokens_saved == bank.tokens_saved + shop.tokens_saved
        assert both.good == bank.good + shop.good


def test_costs_that_nobody_knows_are_missing_and_counted() -> None:
    runs = [*some(), made("free?", 4, cost=None, task_id=6, outcome=False, domain="bank")]
    runs.append(made("good", 2, task_id=7, outcome=True, domain="bank"))

    frame = economics(CallBudget(), runs, samples=20)

    assert frame.attrs["unknown"] == {"tokens": {}, "cost": {"bank": 1}, "time": {}}
    assert frame[frame.domain != "shop"].cost_saved.isna().all()
    assert frame[frame.domain != "shop"].cost_saved_low.isna().all()
    assert frame[frame.domain == "shop"].cost_saved.notna().all()
    assert frame.tokens_saved.notna().all()
    assert frame.attrs["unlabelled"] == 1


def test_runs_without_usage_save_nobody_knows_what() -> None:
    runs = [
        made(name, steps, tokens=0, cost=None, task_id=name, outcome=name == "a")
        for name, steps in (("a", 2), ("b", 5))
    ]

    frame = economics(CallBudget(), runs, price=(1.0, 2.0), samples=20)

    assert frame.tokens_saved.isna().all()
    assert frame.cost_saved.isna().all()
    assert frame.attrs["unknown"]["tokens"] == {"shop": 2}
    assert frame.time_saved_s.notna().all()


def test_estimates_of_a_recording_are_named_and_its_times_are_none() -> None:
    frame = economics(CallBudget(), datasets.airline(), samples=20)

    assert frame.attrs["estimated"]["tokens"] == {"airline": 20}
    assert frame.attrs["unknown"] == {"tokens": {}, "cost": {"airline": 20}, "time": {"airline": 20}}
    assert frame[["cost_saved", "time_saved_s"]].isna().all().all()
    assert frame.tokens_saved.notna().all()


@pytest.mark.parametrize(
    ("price", "of_a_call"),
    [
        ((1.0, 10.0), (100 * 1.0 + 200 * 10.0) / 1e6),
        (lambda model, usage: 0.25 * usage.output_tokens, 50.0),
        ("gpt-4o", cost_of(Usage(100, 200), model="gpt-4o")),
    ],
)
def test_a_price_replaces_what_was_recorded(price: Any, of_a_call: float) -> None:
    found = rows(economics(CallBudget(), some(), price=price, samples=20), "detector")

    assert found[3].cost_saved == pytest.approx(3 * of_a_call)


@pytest.mark.parametrize("price", ["no such model", (1.0,), (1.0, -1.0), "", 3, lambda usage: 1.0])
def test_a_price_that_is_none_is_refused(price: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        economics(CallBudget(), some(), price=price)
    assert caught.value.code == "INVALID_PRICE"


def test_a_function_is_stopped_where_it_first_gets_so_high() -> None:
    def spent(run: Run) -> float:
        return sum(call.output_tokens for call in run.select(ModelCalled))

    found = rows(economics(spent, some(), samples=20), "detector")

    # The fourth model call brings a run to 800 tokens: two of six are left.
    assert (found[800].tokens_saved, found[800].failed_stopped, found[800].good_lost) == (600, 0.5, 0.5)


def test_a_regulator_has_one_threshold() -> None:
    regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=2))

    found = rows(economics(regulator, some(), samples=20), "detector")

    assert found[1].tokens_saved == 3 * 300
    assert (found[1].failed_stopped, found[1].good_lost) == (0.5, 0.5)
    assert list(found) == [1]


def test_a_run_without_a_score_is_left_out_and_named() -> None:
    runs = [*some(), made("unpriced", 5, cost=None, task_id=9, outcome=False)]
    detector = CostCap(tokens_out=None, usd=1.0, poor_mean=None)

    frame = economics(detector, runs, samples=20)

    assert [run_id for _, run_id, _ in frame.attrs["failures"]] == ["unpriced"]
    assert rows(frame, "detector")[2.0].failed == 2
    with pytest.raises(NoeticConfigError) as caught:
        economics(lambda run: 1 / 0, runs)
    assert caught.value.code == "DETECTOR_FAILED"


def test_thresholds_beyond_a_bound_are_thinned_out_but_for_their_ends() -> None:
    runs = [made(f"r{n}", 3, tokens=n + 1, task_id=n, outcome=n % 2 == 0) for n in range(150)]

    def heights(run: Run) -> float:
        return sum(call.input_tokens for call in run.select(ModelCalled)) + len(run.run_id) / 10

    found = rows(economics(heights, runs, samples=2), "detector")

    assert len(found) == 200
    assert max(found) == max(map(heights, runs))


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("NO_TASK", {"runs": [made("a", 2, outcome=True), made("b", 3, outcome=False)]}),
        ("ONE_CLASS", {"runs": [made("a", 2, outcome=True, task_id=1)]}),
        ("INVALID_COUNT", {"samples": 1.5}),
        ("INVALID_DETECTOR", {"detector": {"a": CallBudget(), "b": CallBudget()}}),
    ],
)
def test_what_has_no_worth_to_be_computed_is_refused(code: str, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"detector": CallBudget(), "runs": some(), **change}
    with pytest.raises(NoeticConfigError) as caught:
        economics(given.pop("detector"), given.pop("runs"), **given)
    assert caught.value.code == code
