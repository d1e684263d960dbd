"""Calibrations on runs with known truth: the fit, the tasks it is reported on, and when it is off."""

from __future__ import annotations

import builtins
import json
import random
import sys
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, ModelCalled, ToolCalled, TurnCompleted, TurnStarted, Where
from noetic_nb.items import assistant_message, input_message
from noetic_nb.lab import Calibration, calibrate, datasets, first_stop, replay_regulator
from noetic_nb.lab._detection.fitting import area
from noetic_nb.lab._detection.threshold_search import COUNTS, changes_state
from noetic_nb.regulator import CallBudget, CostCap, KeywordScorer, Regulator, ScopeDrift, ToolLoop
from noetic_nb.runs import Run
from tests.matrix import several

WHERE = Where("t", "e", 1)
BASELINES = {
    "calls",
    "messages",
    "state-changing calls",
    "length in tokens",
    "length in characters",
    "TF-IDF of the words",
}


def made(name: str, calls: int, text: str = "The order is on its way.", **meta: Any) -> Run:
    """Return a run of one turn with the given number of distinct calls."""
    events: list[Any] = [
        TurnStarted(WHERE, 0.0, "u", 0, 1, "Where is it?"),
        ItemsAppended(WHERE, 0.0, 0, (input_message("Where is it?"), assistant_message(text)), "user"),
    ]
    for number in range(calls):
        events.append(ModelCalled(WHERE, number + 1.0, number, "m", "agent", 5.0, "ok", (), 100, 10))
        events.append(
            ToolCalled(WHERE, number + 1.5, f"tool{number}", f"c{number}", {"n": number}, "out", 1.0, "ok", None)
        )
    events.append(TurnCompleted(WHERE, calls + 2.0, "u", "success", 1.0, text, 0, 0, None, calls, calls))
    return Run(name, meta=meta, events=events)


def telling(domains: dict[str, int], *, tasks: int = 20, seed: int = 0) -> list[Run]:
    """Return runs of which the failed ones make more calls; by domain, the number of additional calls."""
    rng = random.Random(seed)
    runs = []
    for domain, more in domains.items():
        for task in range(tasks):
            for trial in range(3):
                good = rng.random() < 0.6
                calls = more + (rng.randint(1, 5) if good else rng.randint(4, 12))
                meta = {"domain": domain, "task_id": task, "outcome": good}
                runs.append(made(f"{domain}-{task}-{trial}", calls, f"word{rng.randint(0, 9)} done", **meta))
    return runs


def calls_of(run: Run) -> float:
    return len(run.select(ToolCalled))


def noise(run: Run) -> float:
    return random.Random(run.run_id).random()


def row_of(found: Calibration, detector: str, split: str = "held out", domain: str = "all") -> Any:
    table = found.table
    (row,) = table[(table.detector == detector) & (table.split == split) & (table.domain == domain)].itertuples()
    return row


def test_a_detector_that_tells_is_given_back_as_a_regulator_that_stops_those_runs() -> None:
    runs = telling({"shop": 0})

    found = calibrate(CallBudget(), runs, max_stopped_good=0.05, samples=200)

    assert found.detector == "call_budget"
    (budget,) = found.regulator().settings.predicates
    assert isinstance(budget, CallBudget)
    assert budget.total == found.threshold - 1
    stopped = [first_stop(replay_regulator(run, found.regulator())) is not None for run in runs]
    assert stopped == [calls_of(run) >= found.threshold for run in runs]
    held_out = row_of(found, "call_budget")
    assert held_out.auc_within_corrected > 0.5
    assert held_out.threshold == found.threshold
    assert row_of(found, "call_budget", "in sample").stopped_good <= 0.05


def test_each_task_is_fitted_on_or_reported_and_never_both() -> None:
    runs = telling({"shop": 0})
    detectors = {"calls": calls_of} | {
        f"task {task}": lambda run, task=task: calls_of(run) + 100 * (run.meta["task_id"] == task) for task in range(20)
    }

    found = calibrate({f"as is {name}": each for name, each in detectors.items()}, runs, samples=5)

    assert found.made_of["tasks_fitted_on"] * 2 == found.made_of["tasks"] == 20
    table = found.table[found.table.domain == "all"].set_index(["detector", "split"])
    assert sum(table.loc[("as is calls", split), "runs"] for split in ("in sample", "held out")) == len(runs)
    changed = {
        split: {
            task
            for task in range(20)
            if table.loc[(f"as is task {task}", split), "auc"] != table.loc[("as is calls", split), "auc"]
        }
        for split in ("in sample", "held out")
    }
    assert not changed["in sample"] & changed["held out"]
    assert len(changed["in sample"]) >= 8
    assert len(changed["held out"]) >= 8


def test_every_detector_stands_beside_the_baselines_and_is_judged_by_other_domains() -> None:
    runs = telling({"shop": 0, "bank": 0, "desk": 20}, tasks=12)

    table = calibrate(calls_of, runs, samples=50).table

    assert set(table[table.baseline].detector) == BASELINES
    assert set(table[~table.baseline].detector) == {"calls_of"}
    kinds = set(table[table.detector == "calls_of"][["split", "domain"]].itertuples(index=False, name=None))
    assert kinds == {("in sample", "all"), ("held out", "all")} | {
        (split, domain) for split in ("held out", "domain left out") for domain in ("shop", "bank", "desk")
    }
    left = table[(table.detector == "calls_of") & (table.split == "domain left out")].set_index("domain")
    # The threshold of the other domains stops every run of the domain with longer runs.
    assert left.loc["desk", "stopped_good"] == 1.0
    assert left.loc["desk", "runs"] == 36
    assert left.loc["shop", "stopped_failed"] == 0.0
    for name in ("stopped_failed", "stopped_good", "precision", "recall", "auc"):
        assert (table[f"{name}_low"].isna() | (table[f"{name}_low"] <= table[name] + 1e-12)).all()
        assert (table[f"{name}_high"].isna() | (table[f"{name}_high"] >= table[name] - 1e-12)).all()


def test_the_gain_is_what_a_detector_has_over_the_best_baseline_on_the_same_runs() -> None:
    runs = telling({"shop": 0, "bank": 2})

    def half_knows(run: Run) -> float:
        if run.run_id.endswith("-2"):
            raise ValueError("not this one")
        return calls_of(run) + 3 * (not run.meta["outcome"])

    found = calibrate({"knows": lambda run: not run.meta["outcome"], "half knows": half_knows}, runs, samples=200)

    table = found.table
    for row in table[table.detector == "knows"].itertuples():
        same = table[(table.split == row.split) & (table.domain == row.domain) & table.baseline]
        best = same.loc[same.auc_within.idxmax()]
        assert row.gain == pytest.approx(1 - best.auc_within)
        assert (row.gain_low, row.gain_high) == pytest.approx((1 - best.auc_within_high, 1 - best.auc_within_low))
        assert row.best_baseline == best.detector
    assert row_of(found, "knows").gain_low > 0
    # Runs without a score do not count for the baseline either.
    row = row_of(found, "half knows", "domain left out", "bank")
    scored = [run for run in runs if run.meta["domain"] == "bank" and not run.run_id.endswith("-2")]
    failed = np.asarray([not run.meta["outcome"] for run in scored])
    own, other = (
        area(np.asarray([score(run) for run in scored], dtype=float), failed)
        for score in (half_knows, COUNTS[row.best_baseline])
    )
    assert (row.runs, row.not_scored) == (40, 20)
    assert row.gain == own - other
    assert table[table.baseline].gain.isna().all()
    assert set(table[table.baseline].best_baseline) == {""}


def test_what_only_counts_calls_gains_nothing_and_that_is_said() -> None:
    runs = telling({"shop": 0, "bank": 2})
    found = calibrate({"own": calls_of}, runs, samples=200, max_stopped_good=0.2)
    row = row_of(found, "own")
    assert (row.gain, row.gain_low, row.gain_high, row.best_baseline) == (0.0, 0.0, 0.0, "calls")
    assert found.detector == "own"
    said = "On held-out tasks own cannot be told from the baseline calls (AUC +0.00 [+0.00, +0.00])."
    assert said in repr(found)
    telling_more = calibrate({"own": lambda run: not run.meta["outcome"]}, runs, samples=200, max_stopped_good=0.2)
    assert "cannot be told from the baseline" not in repr(telling_more)


def test_the_baseline_of_calls_is_the_same_as_a_function_that_counts_them() -> None:
    table = calibrate(calls_of, telling({"shop": 0, "bank": 3}, tasks=8), samples=50).table
    only_of_detectors = ["detector", "baseline", "auc_within_corrected", "best_baseline", *table.filter(like="gain")]

    ours = table[table.detector == "calls_of"].drop(columns=only_of_detectors)
    theirs = table[table.detector == "calls"].drop(columns=only_of_detectors)
    assert ours.reset_index(drop=True).equals(theirs.reset_index(drop=True))


def test_what_only_tells_domains_apart_is_off() -> None:
    runs = [
        made(f"{domain}-{task}", calls, domain=domain, task_id=task, outcome=task % of == 0)
        for domain, calls, of in (("easy", 2, 2), ("hard", 9, 5))
        for task in range(40)
    ]

    found = calibrate(CallBudget(), runs, samples=200)

    row = row_of(found, "call_budget")
    assert row.auc_low > 0.5
    assert row.auc_within == 0.5
    assert found.threshold is None
    assert found.detector is None
    assert "cannot be distinguished from chance" in found.reasons["call_budget"]
    assert found.regulator().settings.predicates == ()
    assert repr(found).startswith("Calibration: off")


def test_what_tells_but_costs_too_many_good_runs_is_off() -> None:
    runs = [made(f"{task}", task % 4 if task % 2 else 3, task_id=task, outcome=bool(task % 2)) for task in range(80)]

    found = calibrate(calls_of, runs, max_stopped_good=0.0, samples=200)

    assert row_of(found, "calls_of").auc_low > 0.5
    assert found.threshold is None
    assert "no threshold" in found.reasons["calls_of"]


def test_of_several_the_best_is_chosen_and_each_is_corrected_for_all() -> None:
    runs = telling({"shop": 0}, tasks=40)
    many: dict[str, Any] = {
        f"noise {n}": lambda run, n=n: random.Random(f"{run.run_id}{n}").random() for n in range(15)
    }

    found = calibrate({"budget": CallBudget(), **many}, runs, samples=200)
    alone = calibrate({"budget": CallBudget()}, runs, samples=200)

    assert found.detector == "budget"
    assert set(found.reasons) == set(many)
    assert row_of(alone, "budget").auc_within_corrected <= row_of(alone, "budget").auc_low
    assert row_of(found, "budget").auc_within_corrected < row_of(alone, "budget").auc_within_corrected
    assert row_of(found, "budget").auc_low == row_of(alone, "budget").auc_low


def test_without_correction_noise_would_pass_more_often() -> None:
    runs = telling({"shop": 0}, tasks=16, seed=4)
    many: dict[str, Any] = {
        f"noise {n}": lambda run, n=n: random.Random(f"{n}{run.run_id}").random() for n in range(60)
    }

    found = calibrate(many, runs, samples=400)

    judged = found.table[(found.table.split == "held out") & (found.table.domain == "all") & ~found.table.baseline]
    assert (judged.auc_low > 0.5).any()
    assert not (judged.auc_within_corrected > 0.5).any()
    assert found.threshold is None


def test_a_regulator_stops_or_does_not_and_is_given_back() -> None:
    runs = telling({"shop": 0})
    regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=5))

    found = calibrate(regulator, runs, max_stopped_good=0.1, samples=100)

    assert (found.detector, found.threshold) == ("regulator", 1.0)
    assert found.regulator().settings == regulator.settings


def test_a_run_that_a_detector_cannot_score_is_named_and_the_rest_is_kept() -> None:
    runs = telling({"shop": 0})

    def fragile(run: Run) -> float:
        if run.run_id == "shop-3-1":
            raise LookupError("no such thing")
        return float("nan") if run.run_id == "shop-4-0" else calls_of(run)

    found = calibrate({"fragile": fragile, "whole": calls_of}, runs, samples=20)

    assert [(each.detector, each.run_id) for each in found.failures] == [
        ("fragile", "shop-3-1"),
        ("fragile", "shop-4-0"),
    ]
    assert "LookupError: no such thing" in repr(found)
    counts = found.table[found.table.domain == "all"].groupby("detector")[["runs", "not_scored"]].sum()
    assert tuple(counts.loc["fragile"]) == (len(runs) - 2, 2)
    assert tuple(counts.loc["whole"]) == (len(runs), 0)


@pytest.mark.parametrize(
    ("detector", "why"), [(lambda run: 1 / 0, "ZeroDivisionError"), (CostCap(tokens_out=None, usd=1.0), "price")]
)
def test_a_detector_that_scores_no_run_is_refused(detector: Any, why: str) -> None:
    with pytest.raises(NoeticConfigError, match=why) as caught:
        calibrate(detector, telling({"shop": 0}, tasks=4))
    assert caught.value.code == "DETECTOR_FAILED"
    assert "shop-0-0" in str(caught.value)


def test_runs_without_a_label_are_left_out_and_counted() -> None:
    runs = telling({"shop": 0})
    unknown = [made(f"unknown-{n}", n, task_id=n, domain="shop", outcome=None) for n in range(5)]

    found = calibrate(calls_of, [*unknown, *runs], samples=20)

    assert found.unlabelled == 5
    assert found.made_of["runs"] == len(runs)
    assert "5 runs without a label" in repr(found)
    assert found.table.equals(calibrate(calls_of, runs, samples=20).table)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("NO_TASK", {"runs": [made("a", 1, outcome=True), made("b", 2, outcome=False)]}),
        ("ONE_CLASS", {"runs": [made("a", 1, outcome=True, task_id=1), made("b", 2, outcome=True, task_id=2)]}),
        ("NO_LABELS", {"runs": [made("a", 1, task_id=1)]}),
        ("NO_RUNS", {"runs": []}),
        ("INVALID_RUN", {"runs": ["run"]}),
        ("TOO_FEW_TASKS", {"by": lambda run: "one"}),
        ("INVALID_GROUP", {"by": "suite"}),
        ("INVALID_SHARE", {"max_stopped_good": 5}),
        ("INVALID_SHARE", {"max_stopped_good": True}),
        ("INVALID_SHARE", {"max_stopped_good": float("nan")}),
        ("INVALID_COUNT", {"samples": 0}),
        ("INVALID_DETECTOR", {"detector": {"calls": calls_of}}),
        ("INVALID_DETECTOR", {"detector": 3}),
    ],
)
def test_what_cannot_be_calibrated_is_refused(code: str, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"detector": calls_of, "runs": telling({"shop": 0}, tasks=3), **change}
    with pytest.raises(NoeticConfigError) as caught:
        calibrate(given.pop("detector"), given.pop("runs"), **given)
    assert caught.value.code == code


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(NoeticConfigError, match=r"pip install 'noetic_nb\[study\]'") as caught:
        calibrate(calls_of, telling({"shop": 0}, tasks=3))
    assert caught.value.code == "MISSING_PACKAGE"


def test_the_same_seed_gives_the_same_and_another_one_another_split() -> None:
    runs = telling({"shop": 0, "bank": 2}, tasks=8)
    one, same, other = (calibrate(calls_of, runs, samples=30, seed=seed).table for seed in (0, 0, 1))

    assert one.equals(same)
    assert not one.equals(other)


def test_words_that_tell_are_learned_on_other_tasks_only() -> None:
    rng = random.Random(2)
    runs = []
    for task in range(60):
        good = rng.random() < 0.5
        # Each task has its own word, which reveals its label but is useless for other tasks.
        text = f"task{task} task{task} " + ("fine" if good != (rng.random() < 0.1) else "sorry")
        runs += [made(f"{task}-{n}", 1, text, task_id=task, outcome=good) for n in range(2)]

    found = calibrate(noise, runs, samples=20)
    scrambled = [
        Run(
            run.run_id,
            meta={**run.meta, "outcome": random.Random(f"x{run.meta['task_id']}").random() < 0.5},
            events=run.events,
        )
        for run in runs
    ]

    assert row_of(found, "TF-IDF of the words").auc > 0.8
    of_noise = calibrate(noise, scrambled, samples=20)
    assert abs(row_of(of_noise, "TF-IDF of the words").auc - 0.5) < 0.3
    assert row_of(of_noise, "TF-IDF of the words", "in sample").auc < 0.9


def test_a_calibration_is_read_back_as_it_was(tmp_path: Path) -> None:
    runs = telling({"shop": 0, "bank": 2}, tasks=10)
    detectors = {"budget": CallBudget(), "own": calls_of, "set": Regulator.recommended("ann"), "loop": ToolLoop()}
    found = calibrate(detectors, runs, samples=50, max_stopped_good=0.2)

    path = found.save(tmp_path / "found.json")
    loaded = Calibration.load(path)

    assert repr(loaded) == repr(found)
    assert loaded.table.equals(found.table)
    assert loaded.curve("budget").equals(found.curve("budget"))
    assert loaded.failures == found.failures
    assert loaded.save(tmp_path / "again.json").read_text() == path.read_text()
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    if found.detector != "own":
        assert loaded.regulator().settings == found.regulator().settings


def test_a_loaded_budget_gives_the_same_regulator(tmp_path: Path) -> None:
    found = calibrate(CallBudget(per_tool={"tool1": 0}, total=30), telling({"shop": 0}), samples=50)

    loaded = Calibration.load(found.save(tmp_path / "found.json"))

    assert found.threshold is not None or found.detector is None
    assert loaded.regulator().settings == found.regulator().settings


def test_a_scorer_of_ones_own_is_asked_for(tmp_path: Path) -> None:
    def longest(given: Any) -> Any:
        return KeywordScorer()(given)

    found = calibrate({"drift": ScopeDrift(scorer=longest), "budget": CallBudget()}, telling({"shop": 0}), samples=20)
    path = found.save(tmp_path / "found.json")

    assert Calibration.load(path, named={"longest": longest}).detector == "budget"
    with pytest.raises(NoeticConfigError) as caught:
        Calibration.load(path)
    assert caught.value.code == "INVALID_CALIBRATION"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"form": "noetic_nb calibration 2"}', '{"form": "noetic_nb calibration 1"}']
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(NoeticConfigError) as caught:
        Calibration.load(path)
    assert caught.value.code == "INVALID_CALIBRATION"


def test_a_function_gives_no_regulator_whether_it_is_off_or_not() -> None:
    runs = telling({"shop": 0})
    for detector in (calls_of, noise):
        with pytest.raises(NoeticConfigError) as caught:
            calibrate(detector, runs, samples=100).regulator()
        assert caught.value.code == "NOT_A_PREDICATE"


def test_curves_are_drawn_on_axes_that_are_given() -> None:
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    from noetic_nb import plots

    found = calibrate(CallBudget(), telling({"shop": 0}), samples=50)
    ax = Figure().subplots()

    assert found.plot(ax=ax) is ax
    labels = {line.get_label() for line in ax.get_lines()}
    assert labels >= BASELINES | {"call_budget", "chance"}
    point = next(line for line in ax.get_lines() if str(line.get_label()).startswith("threshold"))
    row = row_of(found, "call_budget")
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (row.stopped_good, row.stopped_failed)
    assert not pyplot.get_fignums()
    assert found.plot()._repr_png_() == plots.roc(found)._repr_png_()


def test_the_table_is_shown_as_html_without_what_could_be_run() -> None:
    found = calibrate({"<script>": calls_of}, telling({"<b>": 0}), samples=20)

    page = found._repr_html_()

    assert "<script>" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page


def test_an_unknown_curve_is_refused() -> None:
    found = calibrate(calls_of, telling({"shop": 0}), samples=20)

    assert list(found.curve().columns) == ["threshold", "stopped_failed", "stopped_good", "precision"]
    with pytest.raises(NoeticConfigError) as caught:
        found.curve("nothing")
    assert caught.value.code == "UNKNOWN_DETECTOR"


def test_runs_of_lost_tasks_are_grouped_by_what_is_named() -> None:
    runs = datasets.retail()

    with pytest.raises(NoeticConfigError) as caught:
        calibrate(ToolLoop(), runs)
    found = calibrate(ToolLoop(), runs, by=lambda run: run.turns[0].query, samples=100)

    assert caught.value.code == "NO_TASK"
    assert found.made_of["runs"] == 97
    assert found.threshold is None


@pytest.mark.parametrize(
    ("name", "changes"),
    [("get_user", False), ("pay", True), ("getUser", False), ("Getaway", True), ("", True), ("list-all", False)],
)
def test_a_tool_changes_something_unless_its_name_says_that_it_reads(name: str, changes: bool) -> None:
    assert changes_state(name) is changes


def test_a_domain_without_failures_has_no_area() -> None:
    runs = telling({"shop": 0}) + [made(f"fine-{n}", 3, domain="fine", task_id=n, outcome=True) for n in range(12)]

    row = row_of(calibrate(calls_of, runs, samples=50), "calls_of", "domain left out", "fine")

    assert isnan(row.auc)
    assert isnan(row.stopped_failed)
    assert row.stopped_good == 0.0


def noisy(strength: float, *, tasks: int, seed: int = 1) -> list[Run]:
    """Return two runs per task with ``meta["score"]``, which separates failed runs as strongly as requested."""
    rng = random.Random(seed)
    runs = []
    for task in range(tasks):
        for trial in range(2):
            good = rng.random() < 0.6
            score = rng.gauss(0, 1) + strength * (not good)
            runs.append(made(f"{task}-{trial}", 1, domain="shop", task_id=task, outcome=good, score=score))
    return runs


def score_of(run: Run) -> float:
    return float(run.meta["score"])


@pytest.mark.parametrize(
    ("strength", "tasks", "verdict"), [(2.0, 40, "on"), (0.0, 8, "no evidence"), (0.0, 150, "evidence against")]
)
def test_missing_evidence_is_told_from_evidence_against(strength: float, tasks: int, verdict: str) -> None:
    found = calibrate({"own": score_of}, noisy(strength, tasks=tasks), samples=200, max_stopped_good=0.3)

    assert found.verdict == verdict
    assert (found.detector is not None) == (verdict == "on")
    assert 0 <= found.stability <= 1
    assert ("evidence" in repr(found)) == (verdict != "on")
    assert f"These {tasks} tasks show an AUC of {found.detectable:.2f}" in repr(found)


def test_more_tasks_detect_smaller_areas() -> None:
    few, many = (calibrate({"own": score_of}, noisy(0, tasks=n), samples=200).detectable for n in (10, 160))

    assert 0.5 < many < few <= 1.0
    # Four times as precise with sixteen times as many tasks.
    assert (many - 0.5) / (few - 0.5) == pytest.approx(1 / 4, abs=0.12)


@pytest.mark.matrix
def test_the_verdict_hardly_depends_on_the_seed() -> None:
    runs = noisy(0.95, tasks=40, seed=4)

    seeds = range(several(5, 50))
    verdicts = [calibrate({"own": score_of}, runs, samples=100, seed=seed, max_stopped_good=0.3) for seed in seeds]

    assert sum(found.verdict == "on" for found in verdicts) >= 0.9 * len(seeds)


def test_a_calibration_that_was_saved_without_a_verdict_is_read(tmp_path: Path) -> None:
    path = calibrate({"own": score_of}, noisy(2, tasks=20), samples=50, max_stopped_good=0.3).save(tmp_path / "c.json")
    data = json.loads(path.read_text())
    for name in ("verdict", "detectable", "stability"):
        del data[name]
    path.write_text(json.dumps(data))

    loaded = Calibration.load(path)

    assert loaded.verdict == ("no evidence" if loaded.detector is None else "on")
    assert isnan(loaded.detectable)
    assert isnan(loaded.stability)
