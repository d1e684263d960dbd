"""The packaged samples and the loaders of downloads: their contents, the facts in every run, and the licences."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.datasets_build import build_agentdojo, build_tau2, contents
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ModelCalled, ToolCalled
from noetic_nb.items import item_text
from noetic_nb.lab import datasets
from noetic_nb.runs import Run, load_run

META = {
    "source", "domain", "suite", "model", "task_id", "trial", "user_task", "injection_task", "attack", "attack_succeeded",
    "outcome", "estimated", "unmapped", "dropped",
}  # fmt: skip
SETS: dict[str, Callable[[], list[Run]]] = {
    "airline": datasets.airline,
    "retail": datasets.retail,
    "telecom": datasets.telecom,
    "agentdojo banking": lambda: datasets.agentdojo("banking"),
    "agentdojo workspace": lambda: datasets.agentdojo("workspace"),
}


@cache
def packaged(name: str) -> list[Run]:
    return SETS[name]()


def test_the_table_says_what_the_package_holds() -> None:
    table = datasets.describe()

    assert list(table.columns) == ["name", "runs", "calls", "good", "failed", "licence", "packaged"]
    held = table[table.packaged].drop(columns="packaged").to_dict("records")
    assert held == contents()
    missing = table[~table.packaged]
    assert {"agentdojo slack", "agentrewardbench", "who_and_when", "locomo"} <= set(missing.name)
    assert missing[["runs", "calls", "good", "failed"]].isna().all(axis=None)
    assert table.licence.notna().all()


def test_all_that_is_packaged_is_small_and_has_its_licences_beside_it() -> None:
    files = list(datasets.DATA.iterdir())

    assert sum(file.stat().st_size for file in files) < 3_000_000
    for name, holder in [("tau-bench", "Sierra"), ("tau2-bench", "Sierra"), ("agentdojo", "Debenedetti")]:
        text = (datasets.DATA / f"LICENSE.{name}").read_text(encoding="utf-8")
        assert "Permission is hereby granted" in text
        assert holder in text


@pytest.mark.parametrize("name", SETS)
def test_every_run_says_what_it_is(name: str) -> None:
    runs = packaged(name)

    assert len({run.run_id for run in runs}) == len(runs)
    for run in runs:
        assert run.meta.keys() >= META
        assert run.meta["outcome"] in (True, False)
        assert run.meta["attack"] in (True, False)
        assert (run.meta["attack_succeeded"] is None) == (not run.meta["attack"])
        assert run.meta["dropped"] == []
        assert isinstance(run.meta["model"], str)
        assert run.meta["domain"] == run.meta["suite"] == name.split()[-1]


def test_a_count_gives_the_first_runs_of_a_set() -> None:
    assert datasets.retail(2) == datasets.retail()[:2]
    assert datasets.telecom(0) == []
    assert len(datasets.agentdojo("banking", 3)) == 3
    for load in (datasets.retail, datasets.telecom, lambda n: datasets.agentdojo("banking", n)):
        with pytest.raises(NoeticConfigError, match="INVALID_COUNT"):
            load(100_000)


@pytest.mark.parametrize("suite", ["slack", "travel", "", None, ["banking"]])
def test_a_suite_that_does_not_ship_names_the_loader(suite: Any) -> None:
    with pytest.raises(NoeticConfigError, match="load_agentdojo") as caught:
        datasets.agentdojo(suite)

    assert caught.value.code == "NOT_PACKAGED"


def test_the_users_own_tools_of_telecom_are_no_calls_of_the_agent() -> None:
    runs = packaged("telecom")
    agents = {call.name for run in runs for call in run.select(ToolCalled)}
    users = {entry["name"] for run in runs for entry in run.meta["unmapped"]}

    assert "toggle_airplane_mode" in users
    assert not agents & users
    assert all(0 < entry["turn"] <= len(run.turns) for run in runs for entry in run.meta["unmapped"])


def test_runs_are_new_at_each_call() -> None:
    first = datasets.agentdojo("banking", 1)[0]
    first.meta["outcome"] = "changed"
    first.append(first.events[0])

    again = datasets.agentdojo("banking", 1)[0]

    assert (again.meta["outcome"], len(again.events) + 1) == (True, len(first.events))


@pytest.mark.parametrize("name", SETS)
def test_a_run_survives_its_file_but_for_its_secrets(name: str, tmp_path: Path) -> None:
    run = packaged(name)[0]

    again = load_run(run.save(tmp_path / "a.jsonl.gz"))

    assert len(again.events) == len(run.events)
    assert again.meta["outcome"] == run.meta["outcome"]


def test_the_passwords_of_tasks_are_part_of_them() -> None:
    calls = [call for run in packaged("agentdojo banking") for call in run.select(ToolCalled)]

    assert {"new_password"} <= {call.args["password"] for call in calls if call.name == "update_password"}


def test_files_are_rebuilt_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "LICENSE.tau2-bench").write_text("MIT")
    for file in datasets.DATA.glob("*gpt*.json.gz"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    build_tau2(tmp_path, tmp_path / "out")
    (tmp_path / "LICENSE.agentdojo").write_text("MIT")
    (tmp_path / "a.jsonl.gz").write_bytes((datasets.DATA / "agentdojo-banking.jsonl.gz").read_bytes())
    build_agentdojo(tmp_path, tmp_path / "out")

    built = {file.name: file.read_bytes() for file in (tmp_path / "out").glob("*.gz")}
    assert len(built) == 4
    assert all((datasets.DATA / name).read_bytes() == content for name, content in built.items())


# Downloads


def test_a_folder_of_agentdojo_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    for task in ("user_task_1", "user_task_0"):
        path = tmp_path / "runs" / "gpt" / "slack" / task / "none" / "none.json"
        path.parent.mkdir(parents=True)
        entry = {"suite_name": "slack", "pipeline_name": "gpt", "user_task_id": task, "messages": []}
        path.write_text(json.dumps(entry, indent=4))

    assert [run.meta["task_id"] for run in datasets.load_agentdojo(tmp_path / "runs")] == ["user_task_0", "user_task_1"]


COLUMNS = ["benchmark", "task_id", "model_name", "exp_name", "trajectory_success", "trajectory_looping"]


def annotations(folder: Path, *rows: list[str]) -> Path:
    path = folder / "annotations.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def test_annotations_are_runs_with_their_trajectories_where_there_are_any(tmp_path: Path) -> None:
    rows = [
        ["web", f"web.{n}", "gpt", "exp-1", success, "No"]
        for n, success in enumerate(["Successful", "Unsuccessful", "?"])
    ]
    path = annotations(tmp_path, *rows)
    steps = [
        {"action": "click('a51')", "reasoning": "I click."},
        {"action": "fill('b', 'x')", "last_action_error": "no such element"},
        {"action": None, "reasoning": "Done.", "last_action_error": ""},
    ]
    for experiment in ("exp-1", "exp-2"):
        file = tmp_path / "cleaned" / "gpt" / experiment / "web.0.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"goal": f"Buy by {experiment}.", "steps": steps}))

    first, second, third = datasets.load_agentrewardbench(path)

    assert [run.meta["outcome"] for run in (first, second, third)] == [True, False, None]
    assert first.meta["marks"]["trajectory_looping"] == "No"
    assert first.turns[0].query == "Buy by exp-1."
    assert [(call.name, call.status) for call in first.select(ToolCalled)] == [("click", "error"), ("fill", "ok")]
    assert (first.turns[0].text, len(second.events)) == ("Done.", 0)
    assert second.meta["unmapped"][0]["what"] == "there is no trajectory beside the annotations"
    assert first.meta.keys() >= META
    assert [run.run_id for run in datasets.load_agentrewardbench(tmp_path)] == [
        run.run_id for run in (first, second, third)
    ]


def test_annotations_of_another_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoeticError) as caught:
        datasets.load_agentrewardbench(annotations(tmp_path, ["web", "web.1", "gpt", "exp", "Successful"], ["web"]))

    assert (caught.value.kind, caught.value.index) == ("invalid_run_file", 1)
    with pytest.raises(NoeticError, match="no row"):
        datasets.load_agentrewardbench(annotations(tmp_path))


def who(**changes: Any) -> dict[str, Any]:
    history = [
        {"content": "Where is it?", "role": "human"},
        {"content": "I plan.", "role": "Orchestrator (thought)"},
        {"content": "print(1)", "role": "assistant", "name": "Coder"},
        {"content": "exitcode: 0", "role": "user", "name": "Computer_terminal"},
    ]
    marks = {"mistake_agent": "Coder", "mistake_step": "2", "mistake_reason": "It is wrong."}
    return {
        "question": "Where is it?",
        "ground_truth": "x",
        "is_correct": False,
        "history": history,
        **marks,
        **changes,
    }


@pytest.mark.parametrize("first", [0, 1])
def test_the_mistake_of_a_log_is_a_place_in_its_thread(first: int, tmp_path: Path) -> None:
    entry = who()
    entry.update(history=entry["history"][first:], mistake_step=2 - first)
    (tmp_path / "7.json").write_text(json.dumps(entry))

    (run,) = datasets.load_who_and_when(tmp_path)

    item = run.log(run.threads[0])[run.meta["mistake_item"]]
    assert (item_text(item), item.get("name")) == ("print(1)", run.meta["mistake_agent"])
    assert (len(run.turns), len(run.select(ModelCalled)), run.meta["outcome"]) == (1, 2, False)
    assert next(item_text(item) for item in run.log(run.threads[0])) == "Where is it?"
    assert run.meta.keys() >= META


def test_logs_of_one_file_are_runs_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "logs.json"
    path.write_text(json.dumps([who(mistake_step=1), who(mistake_step="2")]))

    runs = datasets.load_who_and_when(path)

    assert [run.meta["mistake_step"] for run in runs] == [1, 2]
    assert len({run.run_id for run in runs}) == 2
    path.write_text(json.dumps([who(), who(history=5)]))
    with pytest.raises(NoeticError) as caught:
        datasets.load_who_and_when(path)
    assert (caught.value.kind, caught.value.index) == ("invalid_run_file", 1)


def test_the_airline_set_is_read_under_its_name() -> None:
    named = datasets.load_airline(datasets.DATA / "airline.json.gz")
    assert [run.run_id for run in named] == [
        run.run_id for run in datasets.load_trajectories(datasets.DATA / "airline.json.gz")
    ]


@pytest.mark.parametrize("changes", [{"history": 5}, {"history": [1]}, {"history": [{"role": 1}]}, {"question": None}])
def test_a_log_of_another_form_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(who(**changes)))

    with pytest.raises(NoeticError) as caught:
        datasets.load_who_and_when(path)

    assert (caught.value.kind, caught.value.path) == ("invalid_run_file", str(path))
