"""Sweeps: the configurations tried, the table, and equal results from every backend."""

from __future__ import annotations

import asyncio
import functools
import os
import runpy
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import joblib
import pandas
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import RegulatorDecided, ToolCalled
from noetic_nb.lab import RegulatorReadings, datasets, first_stop, replay, replay_regulator, sweep
from noetic_nb.lab._replaying import regulator_readings
from noetic_nb.lab._statistics.intervals import Cluster, mean_interval
from noetic_nb.lab._sweeping import workers
from noetic_nb.layers import regulation
from noetic_nb.models import ModelRequest, ModelResponse, ScriptedModel, Usage
from noetic_nb.regulator import CallBudget, Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_decisions import with_thresholds
from noetic_nb.testing import SeededIds
from tests.lab.random_agents import random_run
from tests.lab.swept import Fatal, apologised, at_most, decided, denied, find, kept, no_lookups_book, pay, ran, stopped

ANN = Regulator.recommended("ann")
SPACE = {"call_budget.total": [5, 10, 20], "cost_cap.tokens_out": [300, 900]}


@functools.cache
def _airline(n: int = 12) -> tuple[Run, ...]:
    return tuple(datasets.airline(n))


def _with(regulator: Regulator, thresholds: dict[str, Any]) -> Regulator:
    return Regulator(regulator.person, with_thresholds(regulator.settings, thresholds))


def _is_same(one: pandas.DataFrame, other: pandas.DataFrame) -> bool:
    return one.to_csv() == other.to_csv() and list(one.dtypes) == list(other.dtypes)


@pytest.mark.parametrize("regulator", [ANN, Regulator.for_user("ann")], ids=["recommended", "release"])
@pytest.mark.parametrize("thresholds", [{}, {"cost_cap": {"tokens_out": 400}}, {"quality_decline": {"poor_mean": 0.9}}])
def test_a_run_read_once_is_replayed_as_it_is_alone(regulator: Regulator, thresholds: dict[str, Any]) -> None:
    graded = [replay_regulator(run, regulator, grader=lambda reply: len(reply) % 7 / 7) for run in _airline(6)]
    for run in (*_airline(6), *graded):
        shared = RegulatorReadings(run)
        shared.replay(_with(regulator, {"procedural_warning": {"min_corrections": 1}}))
        other = _with(regulator, thresholds)
        found, alone = shared.replay(other), replay(run, regulator=other)
        assert found.events[:] == alone.events[:]
        assert found.meta["replay"] == alone.meta["replay"]
    for run in _airline(6):
        numbers = _with(regulator, thresholds)
        assert replay(run, regulator=numbers).events[:] == replay_regulator(run, numbers).events[:]


# The runs among the first dozen in which a regulator decides.
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 7, 8, 10, 11])
async def test_a_regulated_run_is_read_once_for_all_regulators(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await random_run(seed)
    recorded = await asyncio.to_thread(replay, run)
    assert recorded.select(RegulatorDecided)
    read: list[Run] = []
    known = regulator_readings.tape_of
    monkeypatch.setattr(
        regulator_readings, "tape_of", lambda run, *given, **more: read.append(run) or known(run, *given, **more)
    )
    others = [Regulator.for_user("ann").with_predicates(CallBudget(total=total)) for total in (0, 1, 2, 99)]

    readings = RegulatorReadings(run)
    found = await asyncio.to_thread(lambda: [readings.replay(other) for other in [*others, None, *others]])

    assert len(read) == 2  # with another one's learned state, and as recorded
    assert found[:4] == found[5:]
    assert found[4].events[:] == recorded.events[:]
    for other, shared in zip(others, found, strict=False):
        alone = await asyncio.to_thread(lambda other=other: replay(run, regulator=other))
        assert shared.events[:] == alone.events[:]
        assert shared.meta["replay"] == alone.meta["replay"]


def test_a_grade_between_turns_stops_the_next_turn_as_alone() -> None:
    from noetic_nb.events import QualityGiven, TurnStarted

    run = Run("graded", meta=_airline()[0].meta, events=_airline()[0].events)
    events = list(run.events)
    second = [at for at, event in enumerate(events) if isinstance(event, TurnStarted)][1]
    where = events[second - 1].where
    grades = [QualityGiven(where, events[second - 1].t_ms, quality, "user") for quality in (0.9, 0.5, 0.05)]
    run = Run("graded", meta=run.meta, events=[*events[:second], *grades, *events[second:]])
    regulator = Regulator.for_user("ann")
    numbers = {"quality_decline": {"poor_mean": 0.6}}
    alone = replay(run, regulator=_with(regulator, numbers))
    readings = RegulatorReadings(run)
    readings.replay(regulator)
    assert readings.replay(_with(regulator, numbers)).events[:] == alone.events[:]
    assert first_stop(alone) is not None


def test_few_clusters_widen_the_corrected_interval_as_they_widen_the_other() -> None:
    # One task has most of the runs, so that the effective number of tasks is far below their number.
    runs = [*_airline()[:1] * 30, *_airline()[1:12]]

    frame = sweep({"call_budget.total": [3, 99]}, runs, metrics={"stopped": stopped}, regulator=ANN, n_jobs=1)

    assert (frame["low_corrected"] <= frame["low"]).all()
    assert (frame["high_corrected"] >= frame["high"]).all()


def test_a_row_is_the_mean_over_runs_with_the_interval_over_tasks() -> None:
    runs = _airline()
    frame = sweep(SPACE, runs, metrics={"stopped": stopped}, regulator=ANN, n_jobs=1, seed=3)
    columns = ["stopped", "low", "high", "n", "failed", "nan", "seed", "digest", "low_corrected", "high_corrected"]
    assert list(frame) == [*SPACE, *columns, "stopped_known"]
    assert (frame["low_corrected"] <= frame["low"]).all()
    assert (frame["high_corrected"] >= frame["high"]).all()
    assert list(frame[[*SPACE]].itertuples(index=False, name=None)) == [(c, t) for c in (5, 10, 20) for t in (300, 900)]
    for row in frame.to_dict("records"):
        numbers = {
            "call_budget": {"total": row["call_budget.total"]},
            "cost_cap": {"tokens_out": row["cost_cap.tokens_out"]},
        }
        values = [stopped(replay(run, regulator=_with(ANN, numbers))) for run in runs]
        assert row["stopped"] == sum(values) / len(values)
        tasks = [run.meta["task_id"] for run in runs]
        low, high = mean_interval(values, [Cluster(task) for task in tasks])
        assert (row["low"], row["high"]) == pytest.approx((low, high))
        assert (row["n"], row["failed"], row["nan"], row["seed"]) == (len(runs), 0, 0, 3)
    assert frame["digest"].nunique() == len(frame)
    assert {"seed", "versions", "data", "backend", "interval", "failures", "stopped"} <= set(frame.attrs)


def test_several_metrics_have_columns_of_their_own() -> None:
    frame = sweep({"call_budget.total": [5]}, _airline(), metrics={"a": stopped, "b": decided}, regulator=ANN, n_jobs=1)
    assert list(frame)[1:9] == ["a", "a_low", "a_high", "b", "b_low", "b_high", "a_n", "b_n"]


def later_calls(run: Run) -> int:
    return len(run.select(ToolCalled))


def test_the_mean_over_the_known_parts_stands_beside_the_mean() -> None:
    runs = _airline()
    metrics = {"stops": decided, "calls": later_calls}
    frame = sweep({"call_budget.total": [5, 10_000]}, runs, metrics=metrics, regulator=ANN, n_jobs=1)
    few, many = frame.to_dict("records")
    assert few["stops_known"] <= 1 < few["stops"]
    assert few["calls_known"] <= 6 < few["calls"]
    assert few["calls"] == many["calls"]
    replayed = [replay(run, regulator=_with(ANN, {"call_budget": {"total": 5}})) for run in runs]
    calls = [
        sum(
            isinstance(event, ToolCalled) and seq < run.known_until.get(event.where.thread_id, (0, len(run.events)))[1]
            for seq, event in enumerate(run.events)
        )
        for run in replayed
    ]
    assert few["calls_known"] == sum(calls) / len(calls)
    assert frame.attrs["known"].startswith(f"{sum(bool(run.known_until) for run in replayed)} of ")
    whole = sweep({"projection": [None]}, runs[:1], metrics=metrics, n_jobs=1)
    assert not [name for name in whole if name.endswith("_known")]
    assert whole.attrs["known"] == "Every run is known to its end."


def test_what_is_missing_is_counted_and_never_made_up() -> None:
    names = [run.run_id for run in _airline()]

    def odd(run: Run) -> Any:
        at = names.index(run.run_id.removesuffix("-replay"))
        if at == 0:
            raise ZeroDivisionError("by zero")
        return {1: None, 2: nan, 3: float("inf")}.get(at, 1.0)

    frame = sweep(
        {"call_budget.total": [5, 9]}, _airline(), metrics={"odd": odd, "s": stopped}, regulator=ANN, n_jobs=1
    )
    row = frame.iloc[0]
    assert (row["odd"], row["odd_n"], row["s_n"], row["n"], row["failed"], row["nan"]) == (1.0, 8, 12, 8, 1, 3)
    (failure,) = frame.attrs["failures"]
    assert (failure["metric"], failure["error"], failure["count"]) == ("odd", "ZeroDivisionError: by zero", 2)


def test_nothing_counted_is_not_a_number() -> None:
    frame = sweep({"call_budget.total": [5]}, _airline(), metrics={"none": lambda run: None}, regulator=ANN, n_jobs=1)
    assert all(isnan(frame.iloc[0][name]) for name in ("none", "low", "high"))
    assert (frame.iloc[0]["n"], frame.iloc[0]["nan"]) == (0, 12)


def _again(**options: Any) -> pandas.DataFrame:
    space = {"rules": [[], no_lookups_book()], "call_budget.total": [5, 10, 20]}
    return sweep(
        space, _airline(4), metrics={"denied": denied, "s": lambda run: stopped(run)}, regulator=ANN, **options
    )


@functools.cache
def _alone() -> pandas.DataFrame:
    return _again(n_jobs=1)


def test_threads_and_processes_give_the_same_table() -> None:
    one = _alone()
    assert one["denied"].max() > 0
    with joblib.parallel_config("threading", n_jobs=2):
        threads = _again()
    assert threads.attrs["backend"] == "threading"
    processes = _again(n_jobs=2)
    assert processes.attrs["backend"] == "loky"
    assert _is_same(one, threads)
    assert _is_same(one, processes)


@pytest.mark.parametrize(("start_s", "backend"), [(inf, "sequential"), (0.0, "loky")])
def test_processes_are_started_for_what_is_not_soon_done(
    monkeypatch: pytest.MonkeyPatch, start_s: float, backend: str
) -> None:
    def chunks(self: workers.Workers, *given: Any) -> Any:
        yield workers._work(*given)

    monkeypatch.setattr(workers, "START_S", start_s)
    monkeypatch.setattr(workers.Workers, "_chunks", chunks)
    with joblib.parallel_config(n_jobs=2):
        frame = _again()

    assert frame.attrs["backend"] == backend
    assert _is_same(_alone(), frame)


@functools.cache
def _native() -> tuple[Run, ...]:
    async def recorded(amount: int) -> Run:
        replies = [nn.CallTool("find", place=4), nn.CallTool("pay", amount=amount), "Paid.", "Anything else?"]
        step = nn.react(model="scripted", instructions="Work.", tools=[find, pay])
        regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=9))
        config = nn.AgentConfig(name="desk", step=step, memory=[at_most(5), regulation(regulator)])
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies), ids=SeededIds(seed=amount))
        run = nn.record(harness)
        await harness.execute(f"pay {amount}")
        await harness.execute("thanks")
        run.stop_recording()
        run.meta["task_id"] = amount
        return run

    return tuple([asyncio.run(recorded(amount)) for amount in (5, 60)])


@pytest.mark.parametrize("mode", ["open", "closed"])
def test_runs_of_an_agent_are_swept_alike_here_and_in_processes(mode: str) -> None:
    def swept(**options: Any) -> pandas.DataFrame:
        space = {"rules": [at_most(9), at_most(0)], "call_budget.total": [1, 9]}
        metrics = {"ran": ran, "denied": denied, "apologised": apologised, "kept": kept}
        model = nn.ScriptedModel(["Sorry.", "Bye."])
        return sweep(space, _native(), metrics=metrics, mode=mode, model=model, **options)

    one = swept(n_jobs=1)
    assert one["failed"].tolist() == [0] * 4, one.attrs["failures"]
    if mode == "open":  # the past does not change
        assert one["ran"].tolist() == [2.0] * 4
        assert one["denied"].tolist() == [1.0, 0.0, 2.0, 1.0]  # the call budget denies, too
    else:  # the model answers instead of a denied call
        assert one["ran"].tolist() == [1.0, 2.0, 1.0, 1.0]
        assert one["apologised"].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert _is_same(one, swept(n_jobs=2))
    with joblib.parallel_config("threading", n_jobs=2):
        assert _is_same(one, swept())


def test_a_closed_sweep_replays_as_alone_and_teaches_no_regulator() -> None:
    regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=9))
    before = regulator.export_json("everything")
    frame = sweep(
        {"call_budget.total": [1, 9], "projection": [None, {"token_budget": 5_000}]},
        _native(),
        metrics={"ran": ran},
        mode="closed",
        regulator=regulator,
        model=nn.ScriptedModel(["Sorry.", "Bye."]),
        n_jobs=1,
    )
    for row in frame.to_dict("records"):
        numbers = _with(regulator, {"call_budget": {"total": row["call_budget.total"]}})
        alone = [
            replay(run, regulator=numbers, mode="closed", model=nn.ScriptedModel(["Sorry.", "Bye."]))
            for run in _native()
        ]
        assert row["ran"] == sum(map(ran, alone)) / 2
    assert regulator.export_json("everything") == before


def test_an_imported_run_cannot_be_swept_closed() -> None:
    with pytest.raises(NoeticConfigError, match=r"OPEN_LOOP_ONLY|imported from another system") as refused:
        sweep({"call_budget.total": [5]}, _airline(2), metrics={"s": stopped}, regulator=ANN, mode="closed", n_jobs=1)
    assert refused.value.code == "NOTHING_REPLAYED"


def test_rules_of_another_process_are_those_of_the_agent() -> None:
    one = sweep({"call_budget.total": [1, 9]}, _native(), metrics={"kept": kept}, n_jobs=1)
    two = sweep({"call_budget.total": [1, 9]}, _native(), metrics={"kept": kept}, n_jobs=2)
    assert one["kept"].tolist() == [0.0, 0.0]
    assert _is_same(one, two)


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_table() -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    import dask

    one = _alone()
    with (
        # Workers are forks of a process that has imported Dask, including those that replace dead ones.
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        frame = _again()
        with pytest.raises(NoeticError) as died:
            sweep({"call_budget.total": [2]}, _airline(1), metrics={"s": Fatal(os.getpid())}, regulator=ANN)
    assert died.value.kind == "worker_died"
    assert frame.attrs["backend"].startswith("dask")
    assert _is_same(one, frame)


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.util.joblib import register_ray

    one = _alone()
    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with joblib.parallel_config("ray"):
            frame = _again()
            with pytest.raises(NoeticError) as died:
                sweep({"call_budget.total": [2, 3]}, _airline(2), metrics={"s": Fatal(os.getpid())}, regulator=ANN)
    finally:
        ray.shutdown()
    assert frame.attrs["backend"] == "ray"
    assert _is_same(one, frame)
    assert died.value.kind == "worker_died"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of forks beside threads
def test_a_backend_that_gives_nothing_back_before_the_end_is_asked_round_by_round() -> None:
    done: list[int] = []
    with joblib.parallel_config("multiprocessing", n_jobs=2):
        frame = _again(progress=lambda finished, of: done.append(finished))
    assert frame.attrs["backend"] == "multiprocessing"
    assert _is_same(_alone(), frame)
    assert done == list(range(1, 7))


def test_samples_are_drawn_without_repeats_and_by_their_seed() -> None:
    from scipy.stats import uniform

    def drawn(seed: int, **space: Any) -> list[tuple[Any, ...]]:
        apply = lambda run, **configuration: run  # noqa: E731
        frame = sweep(space, _airline(2), metrics={"m": lambda run: 1}, apply=apply, n=6, n_jobs=1, seed=seed)
        return list(frame[list(space)].itertuples(index=False, name=None))

    grid = {"a": list(range(4)), "b": list(range(3))}
    assert len(set(drawn(0, **grid))) == 6
    assert drawn(0, **grid) == drawn(0, **grid) != drawn(1, **grid)
    ranges = {"u": uniform(2, 3), "w": {"low": 1, "high": 3}, "f": {"low": 0.5, "high": 0.75}}
    found = drawn(0, **ranges)
    assert found == drawn(0, **ranges)
    assert all(2 <= u <= 5 and w in (1, 2, 3) and 0.5 <= f <= 0.75 for u, w, f in found)


@pytest.mark.parametrize(
    ("space", "options", "code"),
    [
        ({}, {}, "INVALID_SPACE"),
        ([], {}, "INVALID_SPACE"),
        ({"call_budget.total": []}, {}, "INVALID_SPACE"),
        ({"call_budget.total": 5}, {}, "INVALID_SPACE"),
        ({"call_budget.total": "5"}, {}, "INVALID_SPACE"),
        ({"call_budget.total": [5, 5]}, {}, "INVALID_SPACE"),
        ({"call_budget.total": [nan]}, {}, "INVALID_SPACE"),
        ({"call_budget.total": {"low": 1, "high": 5}}, {}, "INVALID_SPACE"),
        ({"call_budget.total": {"low": 5, "high": 1}}, {"n": 2}, "INVALID_SPACE"),
        ({"colour": ["red"]}, {}, "UNKNOWN_NAME"),
        ({"nothing.total": [5]}, {}, "UNKNOWN_PREDICATE"),
        ({"call_budget.nothing": [5]}, {}, "UNKNOWN_THRESHOLD"),
        ({"call_budget.total": [-5]}, {}, "INVALID_THRESHOLD"),
        ({"regulator": ["ann"]}, {}, "INVALID_REGULATOR"),
        (SPACE, {"n": 0}, "INVALID_N"),
        (SPACE, {"n": 7}, "INVALID_N"),
        (SPACE, {"n": 1.5}, "INVALID_N"),
        (SPACE, {"n": True}, "INVALID_N"),
        (SPACE, {"runs": []}, "NO_RUNS"),
        (SPACE, {"runs": ["run"]}, "INVALID_RUN"),
        (SPACE, {"metrics": {}}, "INVALID_METRICS"),
        (SPACE, {"metrics": stopped}, "INVALID_METRICS"),
        (SPACE, {"metrics": {"a": 1}}, "INVALID_METRICS"),
        (SPACE, {"n_jobs": 0}, "INVALID_N_JOBS"),
        (SPACE, {"regulator": None}, "NOTHING_REPLAYED"),
        ({"budgets": [{"facts": 100}]}, {}, "NOTHING_REPLAYED"),
    ],
)
def test_what_cannot_be_swept_is_refused(space: Any, options: dict[str, Any], code: str) -> None:
    given = {"runs": _airline(2), "metrics": {"stopped": stopped}, "regulator": ANN, "n_jobs": 1, **options}
    with pytest.raises(NoeticConfigError) as refused:
        sweep(space, given.pop("runs"), **given)
    assert refused.value.code == code
    assert refused.value.hint


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(NoeticConfigError, match=r"budgets.*cost_cap\.tokens_out.*apply="):
        sweep({"colour": ["red"]}, _airline(2), metrics={"stopped": stopped}, regulator=ANN)


class _Incomparable:
    def __eq__(self, other: object) -> bool:
        raise TypeError("no order")

    __hash__ = None  # type: ignore[assignment]


def test_values_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(NoeticConfigError, match="cannot be compared"):
        sweep({"a": [_Incomparable(), _Incomparable()]}, _airline(2), metrics={"m": stopped}, apply=lambda run, a: run)


def test_runs_without_a_task_have_no_interval_and_the_table_names_the_way_on() -> None:
    runs = [Run(run.run_id, meta={**run.meta, "task_id": None}, events=run.events) for run in _airline(4)]
    frame = sweep({"call_budget.total": [5]}, runs, metrics={"s": stopped}, regulator=ANN, n_jobs=1)
    assert frame[["low", "high", "low_corrected", "high_corrected"]].isna().all(axis=None)
    assert 'pass by="run"' in frame.attrs["interval"]
    by_run = sweep({"call_budget.total": [5]}, runs, metrics={"s": stopped}, regulator=ANN, n_jobs=1, by="run")
    assert by_run[["low", "high"]].notna().all(axis=None)


def test_an_interrupted_sweep_keeps_its_rows_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    whole = sweep(SPACE, _airline(), metrics={"s": stopped}, regulator=ANN, n_jobs=1)
    asked: list[str] = []

    def once(run: Run) -> float:
        # A metric is also computed for the known part of a run, which must not be mistaken for the whole.
        if run.known_until or run.meta["replay"]["known"] == "Known to its end.":
            asked.append(run.run_id)
        return stopped(run)

    def interrupt(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    def go(progress: Callable[[int, int], object]) -> pandas.DataFrame:
        return sweep(SPACE, _airline(), metrics={"s": once}, regulator=ANN, n_jobs=1, resume=path, progress=progress)

    asked_before = asked
    with pytest.warns(RuntimeWarning, match="2 of 6 configurations: it was interrupted; resume="):
        part = go(interrupt)
    assert len(part) == 2
    assert "interrupted" in part.attrs["stopped"]
    assert len(asked_before) == 2 * len(_airline())
    asked.clear()
    # An incomplete line, as after a power failure.
    path.write_bytes(path.read_bytes()[:-9])
    seen: list[tuple[int, int]] = []
    rest = go(lambda done, of: seen.append((done, of)))
    assert len(asked) == 5 * len(_airline())
    assert seen[-1] == (6, 6)
    assert rest.drop(columns="digest").to_csv() == whole.drop(columns="digest").to_csv()
    asked.clear()
    assert _is_same(go(lambda done, of: None), rest)
    assert not asked


def test_an_interrupted_sweep_of_processes_keeps_its_rows(tmp_path: Path) -> None:
    path, space = tmp_path / "sweep.jsonl", {"call_budget.total": list(range(1, 13))}

    def interrupt(done: int, of: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"metrics": {"s": stopped}, "regulator": ANN, "n_jobs": 2}
    with pytest.warns(RuntimeWarning, match="it was interrupted"):
        part = sweep(space, _airline(4), **options, resume=path, progress=interrupt)
    assert 4 <= len(part) < 12
    whole = sweep(space, _airline(4), **options, resume=path)
    assert _is_same(whole, sweep(space, _airline(4), **{**options, "n_jobs": 1}))


def test_a_file_of_another_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    options: dict[str, Any] = {"metrics": {"s": stopped}, "regulator": ANN, "n_jobs": 1, "resume": path}
    sweep(SPACE, _airline(2), **options)
    for other in (
        {"seed": 1},
        {"metrics": {"s": decided}},
        {"regulator": Regulator.for_user("ann")},
    ):
        with pytest.raises(NoeticConfigError) as refused:
            sweep({"cost_cap.tokens_out": [300]}, _airline(2), **{**options, **other})
        assert refused.value.code == "OTHER_SWEEP"
    with pytest.raises(NoeticConfigError):
        sweep(SPACE, _airline(3), **options)
    path.write_text("a shopping list\n")
    with pytest.raises(NoeticConfigError, match="not the file of a sweep"):
        sweep(SPACE, _airline(2), **options)
    assert path.read_text() == "a shopping list\n"


def test_a_worker_that_dies_once_costs_only_time(tmp_path: Path) -> None:
    died = tmp_path / "died"
    mine = os.getpid()

    def fatal(run: Run) -> float:
        is_last = run.meta["replay"]["regulator"]["after"]["stops"] >= 0 and run.run_id.startswith("airline")
        if is_last and not died.exists() and os.getpid() != mine and marker.exists():
            died.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return stopped(run)

    marker = tmp_path / "one_is_done"
    space = {"call_budget.total": list(range(2, 14))}
    expected = sweep(space, _airline(3), metrics={"s": fatal}, regulator=ANN, n_jobs=1)
    frame = sweep(
        space, _airline(3), metrics={"s": fatal}, regulator=ANN, n_jobs=2, progress=lambda *_: marker.write_text("")
    )
    assert died.exists()
    assert _is_same(expected, frame)


def test_workers_that_always_die_are_an_error() -> None:
    with pytest.raises(NoeticError) as died:
        sweep({"call_budget.total": [2, 3]}, _airline(2), metrics={"s": Fatal(os.getpid())}, regulator=ANN, n_jobs=2)
    assert died.value.kind == "worker_died"


@pytest.mark.kill
def test_a_killed_process_leaves_whole_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, script = tmp_path / "sweep.jsonl", tmp_path / "go.py"
    script.write_text(
        textwrap.dedent(f"""
            import os, signal, sys
            from noetic_nb.lab import datasets, first_stop, sweep
            from noetic_nb.regulator import Regulator

            def stopped(run):
                return float(first_stop(run) is not None)

            def progress(done, of):
                if done == 3 and len(sys.argv) > 1:
                    os.kill(os.getpid(), signal.SIGKILL)

            frame = sweep({{"call_budget.total": [2, 4, 6, 8, 10]}}, datasets.airline(4), metrics={{"s": stopped}},
                          regulator=Regulator.recommended("ann"), n_jobs=1, resume={str(path)!r}, progress=progress)
            print(frame.to_csv())
            """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run([sys.executable, str(script), "die"], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert path.read_bytes().count(b"\n") == 4
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, check=True)
    path.unlink()
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert done.stdout.decode() == capsys.readouterr().out


class _Live:
    """A client that is not marked as a script."""

    def __init__(self, cost: float | None = 0.5) -> None:
        self.cost, self.asked = cost, 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.asked += 1
        return ModelResponse((), Usage(10, 5), self.cost)


def _ask(run: Run, *, model: Any, word: str) -> Run:
    import asyncio

    asyncio.run(model.complete(ModelRequest("any", ())))
    return run


def test_a_live_model_needs_a_ceiling_and_stops_at_it() -> None:
    live = _Live()
    options: dict[str, Any] = {"metrics": {"m": lambda run: 1}, "apply": _ask, "model": live, "n_jobs": 1}
    for ceiling in (None, 0, -1, nan, "five", {}, {"euro": 5}):
        with pytest.raises(NoeticConfigError) as refused:
            sweep({"word": ["a", "b"]}, _airline(2), max_cost=ceiling, **options)
        assert refused.value.code == "COST_CEILING"
    assert not live.asked
    with pytest.warns(RuntimeWarning, match="limit"):
        frame = sweep({"word": list("abcdef")}, _airline(2), max_cost=2.0, **options)
    assert (len(frame), live.asked) == (2, 4)
    with pytest.warns(RuntimeWarning, match="limit"):
        assert len(sweep({"word": list("abcdef")}, _airline(2), max_cost={"tokens": 45}, **options)) == 1
    with pytest.raises(NoeticConfigError, match="price of this model is unknown"):
        sweep({"word": list("ab")}, _airline(2), max_cost=2.0, **{**options, "model": _Live(None)})


def test_what_was_paid_for_is_kept_when_threads_reach_the_ceiling(tmp_path: Path) -> None:
    live, path = _Live(), tmp_path / "sweep.jsonl"
    options: dict[str, Any] = {"metrics": {"m": lambda run: 1}, "apply": _ask, "model": live, "resume": path}
    space = {"word": list("abcdefghijklmnopqrstuvwxyz")}
    with pytest.warns(RuntimeWarning, match="limit"):
        part = sweep(space, _airline(1), max_cost=6.0, n_jobs=2, **options)
    # The twelfth answer reaches the ceiling; one other row may be in progress then.
    assert 11 <= len(part) <= live.asked <= 13
    assert "goes on" in part.attrs["stopped"]
    asked = live.asked
    whole = sweep(space, _airline(1), max_cost=100.0, n_jobs=2, **options)
    assert len(whole) == len(space["word"])
    assert live.asked == asked + len(whole) - len(part)
    assert whole.attrs["stopped"] is None
    with pytest.raises(NoeticConfigError) as refused:
        sweep(space, _airline(1), **{**options, "model": ScriptedModel(["yes"]), "n_jobs": 1})
    assert refused.value.code == "OTHER_SWEEP"


def test_a_live_model_goes_on_closed_under_the_ceiling() -> None:
    live = _Live()
    space = {"rules": [at_most(count) for count in (9, 0, 1)]}
    options: dict[str, Any] = {"metrics": {"ran": ran}, "mode": "closed", "model": live, "n_jobs": 2}
    with pytest.raises(NoeticConfigError) as refused:
        sweep(space, _native(), **options)
    assert refused.value.code == "COST_CEILING"
    frame = sweep(space, _native(), max_cost=100.0, **options)
    assert frame["ran"].tolist() == [2.0, 1.0, 2.0]
    assert live.asked > 0
    with pytest.warns(RuntimeWarning, match="limit"):
        cut = sweep(space, _native(), max_cost=0.5, **options)
    assert set(cut["ran"]) <= {2.0}  # rows without requests
    assert len(cut) < 3


def test_a_script_is_fresh_for_every_run() -> None:
    model = ScriptedModel(["one"])
    frame = sweep({"word": ["a", "b"]}, _airline(2), metrics={"m": lambda run: 1}, apply=_ask, model=model, n_jobs=1)
    assert frame["failed"].tolist() == [0, 0]


def test_a_metric_that_fails_on_every_run_is_an_error_and_not_a_column_of_nothing() -> None:
    def broken(run: Run) -> float:
        return float(run.nope)  # type: ignore[attr-defined]

    with pytest.raises(NoeticConfigError, match="'broken' failed on every run: AttributeError") as refused:
        sweep(SPACE, _airline(2), metrics={"s": stopped, "broken": broken}, regulator=ANN, n_jobs=1)
    assert refused.value.code == "METRIC_FAILED"
    unknown = sweep(SPACE, _airline(2), metrics={"unknown": lambda run: None}, regulator=ANN, n_jobs=1)
    assert unknown["failed"].tolist() == [0] * len(unknown)


def test_runs_and_space_in_each_others_place_are_told_so() -> None:
    with pytest.raises(NoeticConfigError, match="sweep takes the space first, then the runs") as caught:
        sweep([Run()], {"call_budget.total": [1]}, metrics={"one": lambda run: 1})  # type: ignore[arg-type]
    assert caught.value.code == "SWAPPED_ARGUMENTS"
