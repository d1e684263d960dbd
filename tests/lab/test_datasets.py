"""Recorded airline runs contain every message, call and result of the data, and nothing else."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from benchmarks.datasets_build import CHOSEN, build
from noetic_nb import tokenizers
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, ModelCalled, QualityGiven, ToolCalled, TurnCompleted
from noetic_nb.items import item_tokens
from noetic_nb.items._build import content_tokens, unresolved_positions
from noetic_nb.lab import datasets
from noetic_nb.runs import Run, load_run
from noetic_nb.tokens import system_tokens

ENTRIES = json.loads(gzip.decompress((datasets.DATA / "airline.json.gz").read_bytes()))
INDICES = [entry["index"] for entry in ENTRIES]


def messages(entry: dict[str, Any], *roles: str) -> list[dict[str, Any]]:
    return [message for message in entry["traj"] if message["role"] in roles]


def pair(index: int) -> tuple[dict[str, Any], Run]:
    return next(entry for entry in ENTRIES if entry["index"] == index), datasets.airline_run(index)


def test_the_package_holds_twenty_runs_half_of_them_successes() -> None:
    runs = datasets.airline()

    assert len(runs) == 20
    assert sum(run.meta["reward"] == 1.0 for run in runs) == 10
    assert {run.meta["trial"] for run in runs} == {0, 1, 2, 3}
    assert [run.meta["index"] for run in runs] == sorted(run.meta["index"] for run in runs)
    assert {26, 80, 15, 83} <= set(INDICES)


def test_the_data_is_small_and_its_licence_is_beside_it() -> None:
    assert (datasets.DATA / "airline.json.gz").stat().st_size < 100_000
    assert "Sierra" in (datasets.DATA / "LICENSE.tau-bench").read_text()


def test_the_longest_loop_is_twelve_calls_of_one_tool() -> None:
    calls = [call.name for call in datasets.airline_run(26).select(ToolCalled)]

    assert max((len(list(group)), name) for name, group in groupby(calls)) == (12, "search_direct_flight")


@pytest.mark.parametrize("index", INDICES)
def test_every_user_message_opens_a_turn(index: int) -> None:
    entry, run = pair(index)

    assert [turn.query for turn in run.turns] == [message["content"] for message in messages(entry, "user")]
    assert [turn.where.turn for turn in run.turns] == list(range(1, len(run.turns) + 1))


@pytest.mark.parametrize("index", INDICES)
def test_every_reply_is_a_model_call_whose_items_join_the_log(index: int) -> None:
    entry, run = pair(index)
    calls = run.select(ModelCalled)

    assert len(calls) == len(messages(entry, "assistant"))
    assert [call.items for call in calls] == [e.items for e in run.select(ItemsAppended) if e.origin == "model"]
    counter = tokenizers.get(run.meta["counter"])
    assert all(call.output_tokens == sum(content_tokens(item, counter) for item in call.items) > 0 for call in calls)


@pytest.mark.parametrize("index", INDICES)
def test_every_call_has_its_arguments_and_its_result(index: int) -> None:
    entry, run = pair(index)
    asked = [call["function"] for message in messages(entry, "assistant") for call in message.get("tool_calls") or []]

    calls = run.to_frame("tools")

    assert list(calls["tool_name"]) == [call["name"] for call in asked]
    assert list(calls["args"]) == [json.loads(call["arguments"]) for call in asked]
    assert list(calls["output"]) == [message["content"] for message in messages(entry, "tool")]


@pytest.mark.parametrize("index", INDICES)
def test_the_log_holds_the_conversation_and_pairs_every_call(index: int) -> None:
    entry, run = pair(index)

    log = run.log(f"airline-{index}")

    spoken = messages(entry, "user", "tool") + [m for m in messages(entry, "assistant") if m["content"]]
    asked = [call for message in messages(entry, "assistant") for call in message.get("tool_calls") or []]
    assert len(log) == len(spoken) + len(asked)
    assert unresolved_positions(log) == set()
    assert len({item.id for item in log}) == len(log)


@pytest.mark.parametrize("index", INDICES)
def test_the_reward_is_a_grade_at_the_end(index: int) -> None:
    entry, run = pair(index)

    grade = run.events[-1]

    assert isinstance(grade, QualityGiven)
    assert (grade.quality, grade.source) == (entry["reward"], "reward")
    assert run.turns[grade.where.turn - 1].outcome == "success"


def test_a_failed_call_is_an_error_with_its_message() -> None:
    failed = [call for call in datasets.airline_run(75).select(ToolCalled) if call.status == "error"]

    assert failed
    assert all(call.error == call.output and call.output.startswith("Error") for call in failed)


def test_a_turn_nobody_answered_is_aborted_and_a_hand_over_is_not() -> None:
    last = datasets.airline_run(4).turns[-1]
    handed_over = datasets.airline_run(69).turns[-1]

    assert (last.query, last.outcome, last.text, last.model_calls) == ("###STOP###", "aborted", "", ())
    assert (handed_over.outcome, handed_over.text) == ("success", "")
    assert handed_over.tool_calls[-1].name == "transfer_to_human_agents"


def test_input_tokens_count_the_policy_and_all_of_the_log_before_the_call() -> None:
    run = datasets.airline_run(26)
    first, second = run.select(ModelCalled)[:2]
    log = run.log("airline-26")

    counter = tokenizers.get(run.meta["counter"])
    assert second.input_tokens - first.input_tokens == item_tokens(log[1], counter) + item_tokens(log[2], counter)
    assert first.input_tokens == system_tokens(counter, run.meta["policy"]) + item_tokens(log[0], counter)


@pytest.mark.parametrize("index", INDICES)
def test_a_turn_sums_up_its_own_calls(index: int) -> None:
    _, run = pair(index)
    frame = run.to_frame("turns")

    assert list(frame["model_calls"]) == [done.model_calls for done in run.select(TurnCompleted)]
    assert list(frame["tool_calls"]) == [done.tool_calls for done in run.select(TurnCompleted)]
    assert list(frame["output_tokens"]) == [sum(call.output_tokens for call in t.model_calls) for t in run.turns]
    assert list(frame["input_tokens"]) == [sum(call.input_tokens for call in t.model_calls) for t in run.turns]


def test_runs_are_the_same_each_time_and_share_nothing() -> None:
    first, second = datasets.airline_run(26), datasets.airline_run("airline-26")
    assert first == second

    second.append(second.events[0])

    assert datasets.airline_run(26) == first


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    for run in datasets.airline():
        assert load_run(run.save(tmp_path / "run.jsonl.gz")) == run


@pytest.mark.parametrize("n", [-1, 21, 2.0, True])
def test_a_count_that_cannot_be_had_is_refused(n: Any) -> None:
    with pytest.raises(NoeticConfigError, match="20 airline runs"):
        datasets.airline(n)


def test_a_count_gives_the_first_runs() -> None:
    assert [run.run_id for run in datasets.airline(3)] == [run.run_id for run in datasets.airline()[:3]]
    assert datasets.airline(0) == []


@pytest.mark.parametrize("key", [0, "airline-0", "26x", "", "airline", -1, None])
def test_an_unknown_run_is_refused_with_the_known_ones(key: Any) -> None:
    with pytest.raises(NoeticConfigError, match="26"):
        datasets.airline_run(key)


@pytest.mark.parametrize("module", ["noetic_nb.lab", "noetic_nb.lab._replaying.regulator_readings"])
def test_importing_the_lab_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'pandas', 'numpy', 'matplotlib', 'IPython'}} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


# Custom files


def entry(**changes: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "seen"},
        {"role": "assistant", "content": "done"},
    ]
    return {"task_id": 1, "trial": 0, "reward": 1, "traj": talk, **changes}


def saved(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_plain_file_and_a_gzipped_file_give_the_same_runs(tmp_path: Path) -> None:
    plain = saved(tmp_path / "a.json", [entry()])
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    (run,) = datasets.load_trajectories(plain, name="desk")

    assert datasets.load_trajectories(packed, name="desk") == [run]
    assert (run.run_id, run.threads, run.turns[0].text) == ("desk-0", ("desk-0",), "done")


@pytest.mark.parametrize(("reward", "outcome"), [(1, True), (0.5, False), (0, False), (None, None)])
def test_the_full_reward_is_a_good_outcome_and_an_unknown_one_is_none(
    reward: float | None, outcome: bool | None, tmp_path: Path
) -> None:
    (run,) = datasets.load_trajectories(saved(tmp_path / "a.json", [entry(reward=reward)]), name="desk")

    assert run.meta["outcome"] is outcome
    assert [grade.quality for grade in run.select(QualityGiven)] == ([] if reward is None else [reward])
    assert (run.meta["domain"], run.meta["model"], datasets.airline(1)[0].meta["model"]) == ("desk", None, "gpt-4o")


def test_arguments_that_are_not_json_stay_in_the_item_and_leave_the_call_without(tmp_path: Path) -> None:
    broken = entry()
    broken["traj"][2]["tool_calls"][0]["function"]["arguments"] = "{a:"

    (run,) = datasets.load_trajectories(saved(tmp_path / "a.json", [broken]))

    assert run.select(ToolCalled)[0].args is None
    assert run.log("airline-0")[1].arguments == "{a:"


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in entry().items() if name != key}


def replaced(place: int, message: dict[str, Any]) -> dict[str, Any]:
    talk = entry()["traj"]
    talk[place] = message
    return entry(traj=talk)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: {"runs": []}, "no list"),
        (lambda: ["run"], "not a trajectory"),
        (lambda: [without("traj")], "`traj`"),
        (lambda: [entry(traj=["hi"])], "`traj`"),
        (lambda: [without("reward")], "`reward`"),
        (lambda: [entry(reward=True)], "`reward`"),
        (lambda: [entry(index="1")], "`index`"),
        (lambda: [entry(traj=entry()["traj"][2:])], "begins with the role 'assistant'"),
        (lambda: [replaced(1, {"role": "robot", "content": "hi"})], "'robot'"),
        (lambda: [replaced(1, {"role": "user", "content": ["hi"]})], "must be text"),
        (lambda: [replaced(2, {"role": "assistant", "tool_calls": [{"id": "c1"}]})], "lacks its id, name or arguments"),
        (
            lambda: [
                replaced(
                    2, {"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "a", "arguments": ""}}]}
                )
            ],
            "must be text",
        ),
        (lambda: [replaced(2, {"role": "assistant", "tool_calls": "c1"})], "must be a list"),
        (lambda: [replaced(3, {"role": "tool", "tool_call_id": "c9", "content": ""})], "answers no call"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(make: Callable[[], Any], says: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json", make())

    with pytest.raises(NoeticError) as raised:
        datasets.load_trajectories(path)

    assert (raised.value.kind, raised.value.path) == ("invalid_run_file", str(path))
    assert says in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\x1f\x8bnot really", b"[" * 100_000])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)

    with pytest.raises(NoeticError, match="cannot be read"):
        datasets.load_trajectories(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoeticError, match="No such file"):
        datasets.load_trajectories(tmp_path / "none.json")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_is_too_large_is_refused(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(pack(b"[" + b" " * 100_000 + b"]"))

    with pytest.raises(NoeticError, match="max_bytes"):
        datasets.load_trajectories(path, max_bytes=50_000)


def test_the_package_can_be_built_from_the_full_set(tmp_path: Path) -> None:
    last = max(index for indices in CHOSEN.values() for index in indices)
    full = [{**entry(info={"task": {"instruction": "fly"}}), "task_id": place} for place in range(last + 1)]
    source = tmp_path / "trajectories.json.gz"
    source.write_bytes(gzip.compress(json.dumps(full).encode()))
    (tmp_path / "LICENSE").write_text("MIT")

    build(source, tmp_path / "data")

    runs = datasets.load_trajectories(tmp_path / "data" / "airline.json.gz")
    assert [run.meta["task_id"] for run in runs] == sorted(index for group in CHOSEN.values() for index in group)
    assert [run.meta["task"] for run in runs] == ["fly"] * 20
    assert (tmp_path / "data" / "LICENSE.tau-bench").read_text() == "MIT"
