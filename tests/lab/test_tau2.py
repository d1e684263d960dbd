"""Recorded tau2-bench runs: every message is in the run, and the user's own tools are kept apart from the agent's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.errors import NoeticError
from noetic_nb.events import ModelCalled, QualityGiven, ToolCalled
from noetic_nb.items import item_text
from noetic_nb.lab import datasets, replay_regulator
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run, load_run


def call(id: str, name: str, requestor: str, **args: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": args, "requestor": requestor}


def messages() -> list[dict[str, Any]]:
    def at(second: int, **message: Any) -> dict[str, Any]:
        return {**message, "timestamp": f"2025-08-01T16:16:{second:02}.500000"}

    paid = {"usage": {"prompt_tokens": 900, "completion_tokens": 12}, "cost": 0.25}
    return [
        at(0, role="assistant", content="Hi! How can I help you today?", cost=0.0),
        at(1, role="user", content="My phone is offline.", cost=0.125),
        at(2, role="assistant", tool_calls=[call("x", "look_up", "assistant", number="555")], **paid),
        at(3, role="tool", id="x", content="Error: no such line", requestor="assistant", error=False),
        at(4, role="assistant", content="Switch it off and on.", **paid),
        at(5, role="user", tool_calls=[call("x", "toggle", "user", mode="air")]),
        at(6, role="tool", id="x", content="Done.", requestor="user", error=False),
        at(7, role="user", content="Still offline."),
        at(8, role="assistant", tool_calls=[call("x", "look_up", "assistant", number="556")], **paid),
        at(9, role="tool", id="x", content="gone", requestor="assistant", error=True),
        at(10, role="assistant", content="I am sorry.", **paid),
        at(11, role="user", content="###STOP###"),
    ]


def entry(**changes: Any) -> dict[str, Any]:
    made = {"id": "s1", "task_id": "7", "trial": 2, "reward_info": {"reward": 0.0}, "messages": messages()}
    return {**made, **changes}


def loaded(tmp_path: Path, *entries: Any, **changes: Any) -> list[Run]:
    data = {"domain": "telecom", "agent": "gpt", "policy": "Be brief.", "simulations": list(entries), **changes}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    return datasets.load_tau2(path)


def test_turns_calls_tokens_costs_and_times_are_the_recorded_ones(tmp_path: Path) -> None:
    (run,) = loaded(tmp_path, entry())
    turns = run.to_frame("turns")

    assert list(turns["query"]) == ["My phone is offline.", "Still offline.", "###STOP###"]
    assert list(turns["text"]) == ["Switch it off and on.", "I am sorry.", ""]
    assert list(turns["cost"]) == [0.5, 0.5, 0.0]
    assert list(turns["input_tokens"]) == [1800, 1800, 0]
    assert turns["duration_ms"].isna().all()
    assert [(made.name, made.args, made.status) for made in run.select(ToolCalled)] == [
        ("look_up", {"number": "555"}, "ok"),
        ("look_up", {"number": "556"}, "error"),
    ]
    assert turns["t_ms"].diff().dropna().to_list() == [6_000.0, 4_000.0]
    assert {made.model for made in run.select(ModelCalled)} == {"gpt"}
    assert item_text(run.log(run.threads[0])[0]) == "Hi! How can I help you today?"


def test_meta_names_what_the_file_knows(tmp_path: Path) -> None:
    (run,) = loaded(tmp_path, entry())
    known = {key: run.meta[key] for key in ("source", "domain", "model", "task_id", "trial", "reward", "outcome")}

    assert known == {
        "source": "tau2-bench",
        "domain": "telecom",
        "model": "gpt",
        "task_id": "7",
        "trial": 2,
        "reward": 0.0,
        "outcome": False,
    }
    assert run.meta["policy"] == "Be brief."
    assert run.meta["estimated"] == []
    assert [grade.quality for grade in run.select(QualityGiven)] == [0.0]


def test_the_users_own_tools_are_kept_apart_from_the_agents(tmp_path: Path) -> None:
    (run,) = loaded(tmp_path, entry())

    assert run.meta["unmapped"] == [
        {
            "turn": 1,
            "what": "user_tool_call",
            "name": "toggle",
            "args": {"mode": "air"},
            "output": "Done.",
            "failed": False,
        }
    ]
    assert "toggle" not in {made.name for made in run.select(ToolCalled)}


def test_what_a_file_has_lost_is_missing_or_named_as_an_estimate(tmp_path: Path) -> None:
    kept = ("role", "content", "tool_calls", "id", "requestor")
    bare = [{key: value for key, value in message.items() if key in kept} for message in messages()]
    (run,) = loaded(tmp_path, {"messages": bare, "reward_info": None})

    assert run.meta["estimated"] == ["t_ms", "input_tokens", "output_tokens", "status"]
    assert (run.meta["outcome"], run.meta["task_id"], run.meta["trial"]) == (None, None, None)
    assert not run.select(QualityGiven)
    assert run.to_frame("turns")["cost"].isna().all()
    assert [made.status for made in run.select(ToolCalled)] == ["error", "ok"]
    assert run.run_id == "telecom-0"


def test_result_files_in_the_form_of_the_original_are_read(tmp_path: Path) -> None:
    info = {
        "agent_info": {"llm": "gpt-4.1"},
        "environment_info": {"domain_name": "retail", "policy": "Be kind."},
    }
    (run,) = loaded(tmp_path, entry(), info=info, domain=None, agent=None, policy=None, tasks=[])

    assert (run.meta["domain"], run.meta["model"], run.meta["policy"]) == ("retail", "gpt-4.1", "Be kind.")


def test_a_folder_and_gzipped_files_are_read_and_runs_survive_their_files(tmp_path: Path) -> None:
    data = json.dumps({"domain": "retail", "simulations": [entry(), entry(id="s2")]}).encode()
    (tmp_path / "a.json").write_bytes(data)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(data))

    runs = datasets.load_tau2(tmp_path)

    assert [run.run_id for run in runs] == ["retail-s1", "retail-s2"] * 2
    assert load_run(runs[0].save(tmp_path / "run.jsonl.gz")) == runs[0]
    assert replay_regulator(runs[0], Regulator.for_user("ann")).turns


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: [1], "no simulation"),
        (lambda: [{}], "`messages`"),
        (lambda: [entry(messages=["hi"])], "`messages`"),
        (lambda: [entry(reward_info={"reward": "1"})], "`reward`"),
        (lambda: [entry(messages=messages()[2:])], "begins with the role 'assistant'"),
        (lambda: [entry(messages=[{"role": "user", "content": "hi", "tool_calls": "x"}])], "`tool_calls`"),
        (lambda: [entry(messages=[{"role": "assistant", "tool_calls": [{"name": "a"}]}])], "lacks its name"),
        (lambda: [entry(messages=[{"role": "tool", "id": "x", "requestor": "user"}])], "answers no call"),
        (lambda: [entry(messages=[{"role": "tool", "id": "x"}])], "answers no call"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(make: Callable[[], Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(NoeticError) as raised:
        loaded(tmp_path, *make())

    assert (raised.value.kind, raised.value.index) == ("invalid_run_file", 0)
    assert says in str(raised.value)


@pytest.mark.parametrize("content", ["[]", "{", '{"simulations": [], "domain": 1}'])
def test_a_file_without_simulations_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)

    with pytest.raises(NoeticError, match="cannot be read"):
        datasets.load_tau2(path)


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoeticError, match=r"no \.json"):
        datasets.load_tau2(tmp_path)
