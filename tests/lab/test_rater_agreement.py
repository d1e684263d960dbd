"""Agreement of raters: figures by definition, intervals by clusters, disagreements, and labels as outcomes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, permutations
from math import isnan, nan
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import datasets
from noetic_nb.lab._statistics.labels import labels_of
from noetic_nb.regulator import CallBudget, Regulator
from noetic_nb.runs import Run

Table = list[list[Any]]  # a row for each unit, a column for each rater; None is missing

# Krippendorff (2011), "Computing Krippendorff's alpha-reliability", example C: four observers, twelve units.
PUBLISHED: Table = [
    *([1, 1, None, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4]),
    *([4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [None, 5, 5, 5], [None, None, 1, 1], [None, None, 3, None]),
]


def labelled(table: Table, tasks: Sequence[int] | None = None) -> list[Run]:
    runs = []
    for place, row in enumerate(table):
        run = Run(f"r{place}", meta={"task_id": place if tasks is None else tasks[place]})
        for rater, value in enumerate(row):
            if value is not None:
                run.label("x", value, by=f"o{rater}")
        runs.append(run)
    return runs


def random_table(seed: int) -> Table:
    rng = random.Random(seed)
    values = rng.choice([["a", "b", "c"], [True, False], [1, 2, 5, 9]])
    raters, missing, skill = rng.choice([2, 3, 4]), rng.choice([0.0, 0.3]), rng.random()

    def row() -> list[Any]:
        truth = rng.choice(values)
        said = [truth if rng.random() < skill else rng.choice(values) for _ in range(raters)]
        return [None if rng.random() < missing else value for value in said]

    return [row() for _ in range(rng.randint(5, 25))]


def kappa_by_definition(table: Table) -> float:
    both = [(one, other) for one, other in table if one is not None and other is not None]
    if not both:
        return nan
    values = {value for pair in both for value in pair}
    agreed = sum(one == other for one, other in both) / len(both)
    chance = sum(
        (sum(one == value for one, _ in both) / len(both)) * (sum(other == value for _, other in both) / len(both))
        for value in values
    )
    return nan if chance == 1 else (agreed - chance) / (1 - chance)


def alpha_by_definition(table: Table, level: str) -> float:
    units = [[value for value in row if value is not None] for row in table]
    units = [row for row in units if len(row) > 1]
    every = [value for row in units for value in row]
    if not every:
        return nan

    def distance(one: Any, other: Any) -> float:
        if level == "nominal":
            return float(one != other)
        if level == "interval":
            return float(one - other) ** 2
        low, high = sorted([one, other])
        between = sum(low <= value <= high for value in every)
        return float(between - (every.count(low) + every.count(high)) / 2) ** 2

    observed = sum(distance(*pair) / (len(row) - 1) for row in units for pair in permutations(row, 2)) / len(every)
    expected = sum(distance(*pair) for pair in permutations(every, 2)) / (len(every) * (len(every) - 1))
    return 1 - observed / expected if expected else nan


@pytest.mark.parametrize("seed", range(30))
def test_kappa_and_alpha_are_those_of_their_definitions(seed: int) -> None:
    table = random_table(seed)
    raters = len(table[0])
    has_texts = any(isinstance(value, str) for row in table for value in row)
    levels = ["nominal"] if has_texts else ["nominal", "ordinal", "interval"]
    for level in levels:
        found = nn.lab.agreement(labelled(table), "x", level=level).set_index("raters")
        for one, other in combinations(range(raters), 2):
            row = found.loc[f"o{one}, o{other}"]
            pair = [[each[one], each[other]] for each in table]
            assert row.kappa == pytest.approx(kappa_by_definition(pair), abs=1e-12, nan_ok=True)
            assert row.alpha == pytest.approx(alpha_by_definition(pair, level), abs=1e-12, nan_ok=True)
            assert isnan(row.kappa_low) or row.kappa_low <= row.kappa <= row.kappa_high
            assert isnan(row.alpha_low) or row.alpha_low <= row.alpha <= row.alpha_high
        if raters > 2:
            assert found.loc["all"].alpha == pytest.approx(alpha_by_definition(table, level), abs=1e-12, nan_ok=True)
            assert isnan(found.loc["all"].kappa)


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_the_published_example(level: str, alpha: float) -> None:
    row = nn.lab.agreement(labelled(PUBLISHED), "x", level=level).set_index("raters").loc["all"]

    assert row.alpha == pytest.approx(alpha, abs=0.0005)
    assert (row.units, row.missing) == (11, 1)


def test_runs_of_one_task_do_not_make_an_interval_narrower() -> None:
    table = random_table(3) * 3
    tasks = [*range(len(table) // 3)] * 3
    once = nn.lab.agreement(labelled(table[: len(table) // 3]), "x")
    thrice = nn.lab.agreement(labelled(table, tasks), "x")

    widths = [(frame.kappa_high - frame.kappa_low).iloc[0] for frame in (once, thrice)]
    assert widths[1] == pytest.approx(widths[0])
    assert list(thrice.clusters) == list(once.clusters)


def test_full_agreement_of_few_runs_is_not_certain_and_one_value_says_nothing() -> None:
    row = nn.lab.agreement(labelled([["a", "a"], ["b", "b"], ["a", "a"], ["b", "b"]]), "x").iloc[0]
    same = nn.lab.agreement(labelled([["a", "a"]] * 4), "x").iloc[0]

    assert (row.kappa, row.kappa_high, row.alpha_high) == (1, 1, 1)
    assert max(row.kappa_low, row.alpha_low) < 0.5
    assert all(isnan(value) for value in (same.kappa, same.alpha, same.kappa_low))


def test_true_and_one_are_different_labels() -> None:
    assert nn.lab.agreement(labelled([[True, 1], [False, 0]]), "x").agreed.iloc[0] == 0


def test_one_number_is_one_label_however_it_is_written() -> None:
    frame = nn.lab.agreement(labelled([[1, 1.0], [2.0, 2], [3, 3.0]]), "x")

    assert (frame.agreed.iloc[0], frame.kappa.iloc[0], frame.alpha.iloc[0]) == (1, 1, 1)


def test_agreement_needs_two_raters() -> None:
    runs = labelled([["a"], ["b"]])
    for name in ("x", "y"):
        with pytest.raises(NoeticConfigError) as caught:
            nn.lab.agreement(runs, name)
        assert caught.value.code == "NO_LABELS"
        assert "'x'" in str(caught.value)
    with pytest.raises(NoeticConfigError, match="INVALID_LEVEL"):
        nn.lab.agreement(labelled([["a", "b"]]), "x", level="interval")


def test_disagreements_are_listed_until_there_is_a_consensus() -> None:
    runs = labelled([["a", "b"], ["b", "b"], ["a", None], ["b", "a"]])
    runs[3].label("x", "a", by="consensus")

    found = nn.lab.disagreements(runs, "x")
    assert found[["run_id", "o0", "o1"]].values.tolist() == [["r0", "a", "b"]]
    assert nn.lab.agreement(runs, "x").agreed.iloc[0] == pytest.approx(1 / 3)


# Labels as outcomes


def judged(runs: list[Run]) -> list[Run]:
    """Return runs whose outcome is only known from a label."""
    for run in runs:
        run.label("fine", "yes" if run.meta.pop("outcome") else "no", by="ann")
        run.meta["codebook"] = {"fine": {"values": ["yes", "no"], "good": ["yes"], "of": "run"}}
    return runs


def test_labels_are_outcomes_of_every_experiment() -> None:
    plain, runs = datasets.airline(), judged(datasets.airline())
    rules = nn.RuleBook()
    rules.at_most(3, "get_reservation_details")
    budget = CallBudget()

    def same(experiment: Any) -> None:
        one, other = experiment(plain, "outcome"), experiment(runs, "fine")
        assert one.equals(other) if hasattr(one, "equals") else one == other

    same(lambda of, outcome: nn.lab.evaluate(rules, of, outcome=outcome).to_frame())
    same(lambda of, outcome: nn.lab.calibrate(budget, of, outcome=outcome, samples=20).table)
    same(lambda of, outcome: nn.lab.economics(budget, of, outcome=outcome, price=(1, 1)))
    same(lambda of, outcome: [(each.rule.id, each.caught) for each in nn.lab.suggest(of, outcome=outcome)])
    ruled, space = Regulator.recommended("ann"), {"call_budget.total": [5, 50]}
    stopped = {"calls": lambda run: len(run.labels) if "fine" in set(run.labels.name) else -1}
    assert set(nn.lab.sweep(space, runs[:3], metrics=stopped, n_jobs=1, regulator=ruled).calls) == {1.0}


def test_raters_who_differ_leave_the_outcome_unknown_until_there_is_a_consensus() -> None:
    run = datasets.airline_run(26)
    good = datasets.airline()[0]
    good.meta["outcome"] = run.meta["outcome"] = None
    good.label("outcome", True, by="ann")
    for by, value in (("ann", True), ("bob", False)):
        run.label("outcome", value, by=by)

    before = labels_of([good, run], "outcome")
    run.label("outcome", False, by="consensus")
    assert (before, labels_of([good, run], "outcome")) == ([True, None], [True, False])


def test_a_label_that_is_no_outcome_is_refused() -> None:
    run = datasets.airline_run(26)
    run.label("fine", "yes", by="ann")

    with pytest.raises(NoeticConfigError, match="codebook") as caught:
        labels_of([run], "fine")
    assert caught.value.code == "INVALID_OUTCOME"
