"""Files of tau-bench, tau2 and AgentDojo: recognised without a name, graded, or refused with the record's position."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import QualityGiven, ToolCalled
from noetic_nb.runs import Run
from tests.matrix import matrix

META = {
    "source", "domain", "suite", "model", "task_id", "trial", "user_task", "injection_task", "attack", "attack_succeeded",
    "outcome", "estimated", "unmapped", "dropped",
}  # fmt: skip
KEY = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"


def tau(**changes: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"My key is {KEY}."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "seen"},
        {"role": "assistant", "content": "done"},
    ]
    return {"task_id": 1, "trial": 0, "reward": 1.0, "traj": talk, "info": {}, **changes}


def simulation(**changes: Any) -> dict[str, Any]:
    call = {"id": "x", "name": "look", "arguments": {"a": 1}, "requestor": "assistant"}
    talk = [
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": f"My key is {KEY}."},
        {"role": "assistant", "tool_calls": [call], "usage": {"prompt_tokens": 9, "completion_tokens": 2}, "cost": 0.5},
        {"role": "tool", "id": "x", "content": "seen", "requestor": "assistant", "error": False},
        {"role": "assistant", "content": "done"},
    ]
    return {"id": "s1", "task_id": "7", "trial": 2, "reward_info": {"reward": 1.0}, "messages": talk, **changes}


def tau2(*simulations: Any) -> dict[str, Any]:
    info = {"agent_info": {"llm": "m"}, "environment_info": {"domain_name": "retail", "policy": "Be brief."}}
    return {"info": info, "tasks": [], "simulations": list(simulations)}


def dojo(**changes: Any) -> dict[str, Any]:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"My key is {KEY}."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "", "function": "look", "args": {"a": 1}}]},
        {"role": "tool", "content": "seen", "tool_call_id": "", "error": None},
        {"role": "assistant", "content": [{"type": "text", "content": "done"}]},
    ]
    about = {"suite_name": "slack", "pipeline_name": "m", "user_task_id": "u1", "utility": True, "security": True}
    return {**about, "attack_type": None, "injection_task_id": None, "messages": talk, **changes}


SOURCES = {
    "tau": [tau()],
    "tau2": tau2(simulation()),
    "agentdojo": dojo(),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("form", ["object", "text", "file", "gzip", "named"])
def test_a_recording_is_recognised_and_its_conversation_read(name: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text = json.dumps(SOURCES[name], indent=1)
    path.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode())
    source = {"object": SOURCES[name], "text": text}.get(form, path)

    run = nn.import_run(source, format=name if form == "named" else None)

    assert run.meta.keys() >= META
    assert (run.meta["outcome"], run.meta["attack"], run.meta["attack_succeeded"]) == (True, False, None)
    assert (run.meta["policy"], run.meta["dropped"], run.meta["unmapped"]) == ("Be brief.", [], [])
    assert [(call.name, call.args, call.output, call.status) for call in run.select(ToolCalled)] == [
        ("look", {"a": 1}, "seen", "ok")
    ]
    assert [(turn.text, turn.outcome, turn.qualities) for turn in run.turns] == [("done", "success", (1.0,))]
    assert [grade.quality for grade in run.select(QualityGiven)] == [1.0]


@pytest.mark.parametrize("name", SOURCES)
def test_secrets_of_an_imported_recording_are_replaced(name: str) -> None:
    run = nn.import_run(SOURCES[name])

    assert KEY not in str(run.events[:]) + str(run.meta)
    assert "[redacted]" in run.turns[0].query


def test_the_same_text_is_clean_in_one_record_and_searched_in_the_next() -> None:
    other = tau()
    other["traj"][1]["content"] = "Nothing secret, though it is long enough to be remembered as such."
    runs = [run for run in nn.import_runs([other, tau(), other, tau()]) if isinstance(run, Run)]

    assert [KEY in run.turns[0].query for run in runs] == [False] * 4
    assert [run.turns[0].query for run in runs][::2] == [other["traj"][1]["content"]] * 2


@pytest.mark.parametrize("attack", [None, "important_instructions"])
@pytest.mark.parametrize("security", [True, False, None])
def test_an_attack_succeeds_only_where_there_was_one(attack: str | None, security: bool | None) -> None:
    run = nn.import_run(dojo(attack_type=attack, security=security, injection_task_id="i1"))

    assert run.meta["attack"] is (attack is not None)
    assert run.meta["attack_succeeded"] is (security if attack else None)
    assert (run.meta["suite"], run.meta["user_task"], run.meta["injection_task"]) == ("slack", "u1", "i1")


def test_ids_that_are_used_again_name_calls_of_their_own() -> None:
    talk = dojo()["messages"]

    run = nn.import_run(dojo(messages=[*talk, *talk[1:]]))

    assert [call.call_id for call in run.select(ToolCalled)] == ["call", "call~2"]


def test_several_runs_are_read_one_by_one_and_a_bad_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    bad = dojo(messages=[{"role": "tool", "tool_call_id": "x", "content": "?"}])
    path.write_text("\n".join([json.dumps(dojo()), json.dumps(bad), '{"suite_name": "sl', json.dumps(dojo())]))

    found = list(nn.import_runs(path))

    assert [type(each) for each in found] == [Run, nn.Failed, nn.Failed, Run]
    assert [
        str(each.error).count(f"line {place}") for place, each in enumerate(found, 1) if isinstance(each, nn.Failed)
    ] == [
        1,
        1,
    ]
    with pytest.raises(NoeticConfigError, match="SEVERAL_RUNS"):
        nn.import_run(path)


@pytest.mark.parametrize(
    "source", [[tau(), tau(reward="1"), tau()], tau2(simulation(), simulation(messages=5), simulation())]
)
def test_the_place_of_a_bad_record_is_that_in_its_list(source: Any) -> None:
    first, second, third = nn.import_runs(source)

    assert isinstance(first, Run)
    assert isinstance(third, Run)
    assert isinstance(second, nn.Failed)
    assert isinstance(second.error, NoeticError)
    assert (second.error.kind, second.error.index) == ("invalid_run_file", 1)


def is_read_or_refused(found: Run | nn.Failed) -> bool:
    error = getattr(found, "error", None)
    return isinstance(found, Run) or (isinstance(error, NoeticError) and error.kind == "invalid_run_file")


HOSTILE: list[Any] = [None, 5, "x", [], {}, [[]], {"a": [None]}, True, float("nan"), "\ud800", [5], {"role": {}}]


KEYS = ["role", "content", "tool_calls", "tool_call_id", "id", "usage", "cost", "timestamp", "error"]


@matrix("name,key,value", product(SOURCES, KEYS, HOSTILE), keep=90)
def test_values_of_other_types_are_read_or_refused(name: str, key: str, value: Any) -> None:
    for place in range(5):
        made = {"tau": lambda: [tau()], "tau2": lambda: tau2(simulation()), "agentdojo": dojo}[name]()
        entry = (
            made[0]["traj"]
            if name == "tau"
            else made["simulations"][0]["messages"]
            if name == "tau2"
            else made["messages"]
        )
        entry[place][key] = value
        assert all(map(is_read_or_refused, nn.import_runs(made, format=name)))


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", SOURCES)
def test_records_of_other_types_are_read_or_refused(name: str, value: Any) -> None:
    record = {"tau": tau(), "tau2": simulation(), "agentdojo": dojo()}[name]
    for key in record:
        bad = {**record, key: value}
        assert all(
            map(
                is_read_or_refused,
                nn.import_runs({"tau": [bad], "tau2": tau2(bad), "agentdojo": bad}[name], format=name),
            )
        )


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_refused(name: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text = json.dumps(SOURCES[name])
    path.write_text(text[: int(len(text) * share)])

    with pytest.raises(NoeticError) as caught:
        nn.import_run(path)

    assert (caught.value.kind, caught.value.path) == ("invalid_run_file", str(path))


def test_arguments_that_are_nested_too_deep_are_refused() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    talk = dojo()["messages"]
    talk[2]["tool_calls"][0]["args"] = deep

    with pytest.raises(NoeticError, match="nested"):
        nn.import_run(dojo(messages=talk))


LINES = {
    "cut off": json.dumps(dojo()).encode()[:-40],
    "no JSON": b"{'suite_name': 'slack'}",
    "no UTF-8": json.dumps(dojo()).encode().replace(b"slack", b"sl\xff\xfeck"),
    "two on one line": json.dumps(dojo()).encode() * 2,
    "nested without end": b'{"suite_name":' + b"[" * 100_000,
    "a number of many digits": b'{"suite_name": ' + b"1" * 5_000 + b"}",
    "a list": b"[1]",
    "no text": b"\x00\x00",
}


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\n\n", b"\n \r\n"])
@pytest.mark.parametrize("name", LINES)
def test_a_bad_line_spoils_no_other(name: str, ends: bytes, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    good = json.dumps(dojo()).encode()
    path.write_bytes(ends.join([good, LINES[name], good]))

    first, bad, last = nn.import_runs(path)

    assert isinstance(bad, nn.Failed)
    assert isinstance(bad.error, NoeticError)
    assert (bad.path, bad.error.kind, bad.error.line, bad.error.index) == (str(path), "invalid_run_file", 2, 1)
    assert [type(each) for each in (first, last)] == [Run, Run]


@pytest.mark.parametrize("form", ["plain", "gzip"])
@pytest.mark.parametrize("missing", [1, 40, 300])
def test_of_a_file_that_was_cut_off_the_whole_lines_are_read(form: str, missing: int, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    content = b"\n".join([json.dumps(dojo()).encode()] * 3)[:-missing]
    path.write_bytes(gzip.compress(content) if form == "gzip" else content)

    assert [type(each) for each in nn.import_runs(path)] == [Run, Run, nn.Failed]


def test_a_packed_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join([json.dumps(dojo()).encode()] * 3))[:-20])

    (found,) = nn.import_runs(path)

    assert is_read_or_refused(found)
    assert isinstance(found, nn.Failed)


def test_secrets_are_replaced_however_a_line_spells_them(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    spelled = json.dumps(dojo()).replace(KEY, "".join([f"\\u{ord(sign):04x}" for sign in KEY]))
    inside = json.dumps(dojo(messages=[{"role": "user", "content": spelled}, {"role": "assistant", "content": "ok"}]))
    path.write_text("\n".join([json.dumps(dojo(suite_name="other")), spelled, inside]))
    assert KEY not in spelled + inside

    runs = [run for run in nn.import_runs(path) if isinstance(run, Run)]

    assert ["[redacted]" in run.turns[0].query for run in runs] == [True] * 3
    kept = str([(run.events[:], run.meta) for run in runs])
    assert not any(form in kept for form in (KEY, f"u{ord(KEY[-1]):04x}"))


def test_arguments_are_those_of_each_source_and_cannot_change() -> None:
    source = dojo()
    given = source["messages"][2]["tool_calls"][0]["args"] = {"to": ["Ann"], "amount": 1, "note": {"a": [1]}}
    (before,) = nn.import_run(source).select(ToolCalled)
    given["to"].append("Eve")
    given["amount"] = 1.0

    changed, again = [nn.import_run(source).select(ToolCalled)[0] for _ in range(2)]

    assert before.args == {"to": ("Ann",), "amount": 1, "note": {"a": (1,)}}
    assert changed.args == again.args == {"to": ("Ann", "Eve"), "amount": 1.0, "note": {"a": (1,)}}
    assert (type(before.args["amount"]), type(changed.args["amount"])) == (int, float)
    for call in (before, changed, again):
        with pytest.raises(TypeError, match="never change"):
            call.args["note"]["a"] = ()  # type: ignore[index]


def test_a_number_that_no_float_holds_is_described_in_arguments() -> None:
    source = dojo()
    source["messages"][2]["tool_calls"][0]["args"] = {"a": 10**400}

    (call,) = nn.import_run(source).select(ToolCalled)

    assert call.args is not None
    assert call.args["a"]["$unserializable"] == "a number of 1329 bits"
