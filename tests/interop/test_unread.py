"""No part of a source is left out silently: unknown keys of any record are listed, and so are damaged parts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.interop._formats import atif, claude_code, codex
from noetic_nb.interop._formats.sources import Keys
from tests.interop import test_agent_sessions as sessions
from tests.interop import test_atif as trajectories
from tests.interop import test_trace_exports as traces
from tests.matrix import sampled

ROLLOUT = [
    *sessions.HEAD,
    sessions.exec_call("c1", "ls"),
    sessions.record(100, 9),
    sessions.output("c1", "Process exited with code 0\nOutput:\na.txt"),
    sessions.message("assistant", "One file."),
    sessions.count(sessions.counts(240, 14), sessions.counts(140, 5)),
    sessions.line("compacted", message="Go on."),
]
TRAJECTORY = trajectories.trajectory(
    trajectories.step(1, "user", "How many?", timestamp="2026-03-01T10:00:00Z"),
    trajectories.step(
        2,
        "agent",
        "I look.",
        tool_calls=[trajectories.call("c1", "read", path="a.txt")],
        observation={"results": [{"source_call_id": "c1", "content": "3", "extra": {"is_error": False}}]},
        metrics=trajectories.PAID,
    ),
    trajectories.step(3, "agent", "Three."),
)
SOURCES: dict[str, tuple[Callable[[], Any], Keys | None]] = {
    "claude-code": (lambda: sessions.SESSION, claude_code._KEYS),
    "codex": (lambda: ROLLOUT, codex._KEYS),
    "atif": (lambda: TRAJECTORY, atif._KEYS),
    "langsmith": (traces.langsmith_trace, None),
    "langfuse": (traces.langfuse_trace, None),
    "mlflow": (traces.mlflow_trace, None),
    "weave": (traces.weave_trace, None),
}


_NUMBERED = ("mode", "cost-state", "summary")


def saved(path: Path, name: str, value: Any) -> Path:
    """Write a source as its program does: logs have one record per line."""
    if name in ("claude-code", "codex"):
        return sessions.written(path / "log.jsonl", value)
    path = path / "source.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def marked(value: Any, marks: list[str], known: Keys | None) -> Any:
    """Return a value with an unknown key in each mapping, except below keys that are passed over for a reason."""
    if isinstance(value, dict):
        passed = () if known is None else known.passed
        found = {key: inner if key in passed else marked(inner, marks, known) for key, inner in value.items()}
        marks.append(f"mark{len(marks):04}")
        return {**found, "zz_unknown": marks[-1]}
    return [marked(each, marks, known) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", SOURCES)
def test_an_unknown_key_is_listed_wherever_it_stands(name: str, tmp_path: Path) -> None:
    make, known = SOURCES[name]
    marks: list[str] = []
    whole = make()
    # Lines without a place in a run are listed by number.
    value: Any = (
        [each if each.get("type") in _NUMBERED else marked(each, marks, known) for each in whole]
        if isinstance(whole, list)
        else marked(whole, marks, known)
    )

    (run,) = nn.import_runs(saved(tmp_path, name, value), progress=False)

    assert isinstance(run, nn.Run)
    text = json.dumps(dict(run.meta), default=repr) + repr([msgspec.structs.astuple(event) for event in run.events])
    assert [mark for mark in marks if mark not in text] == []
    assert len(marks) > 12


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


JUNK: list[Any] = [
    None,
    7,
    -1,
    10**400,
    "",
    "{",
    "\ud800",
    [],
    {},
    [[]],
    {"type": []},
    True,
    [None],
    1e308,
    "2026-13-45T99:00",
]


@pytest.mark.matrix
@pytest.mark.parametrize("name", SOURCES)
def test_a_changed_value_is_read_or_listed_and_never_an_unknown_error(name: str, tmp_path: Path) -> None:
    make, _ = SOURCES[name]
    whole, chance = json.loads(json.dumps(make())), random.Random(name)
    read = refused = 0
    for path in sampled(places(whole), keep=40):
        source = deepcopy(whole)
        host = source
        for key in path[:-1]:
            host = host[key]
        if chance.random() < 0.2:
            del host[path[-1]]
        else:
            host[path[-1]] = chance.choice(JUNK)
        for run in nn.import_runs(saved(tmp_path, name, source), progress=False):
            if isinstance(run, nn.Run):
                read += 1
                run.to_frame("tokens")
            else:
                refused += 1
                assert isinstance(run.error, NoeticError)
                assert run.error.kind == "invalid_run_file"
    assert refused <= read * 0.06


def test_two_sessions_of_one_file_are_two_runs(tmp_path: Path) -> None:
    second = [{**line, "sessionId": "s-2"} for line in sessions.SESSION]
    runs = list(nn.import_runs(sessions.written(tmp_path / "two.jsonl", [*sessions.SESSION, *second])))
    assert [(run.run_id, len(run.turns)) for run in runs] == [("s-1", 2), ("s-2", 2)]  # type: ignore[union-attr]

    head, *rest = ROLLOUT
    other = sessions.line("session_meta", id="r-9", cli_version="0.9")
    runs = list(nn.import_runs(sessions.written(tmp_path / "rollouts.jsonl", [*ROLLOUT, other, *rest])))
    assert [run.run_id for run in runs] == ["r-1", "r-9"]  # type: ignore[union-attr]

    # A forked rollout begins with the head of the original, and stays one run.
    forked = sessions.line("session_meta", id="r-8", forked_from_id="r-1")
    runs = list(nn.import_runs(sessions.written(tmp_path / "forked.jsonl", [forked, head, *rest])))
    assert [run.run_id for run in runs] == ["r-8"]  # type: ignore[union-attr]


def test_a_sub_agent_that_no_call_names_is_listed(tmp_path: Path) -> None:
    path = sessions.with_helper(tmp_path)
    killed = tmp_path / "s" / "subagents" / "agent-a88.jsonl"
    killed.write_text((tmp_path / "s" / "subagents" / "agent-a77.jsonl").read_text())

    run = nn.import_run(path)

    assert [
        each["value"] for each in run.meta["unmapped"] if each["what"] == "the log of a sub-agent without a call"
    ] == ["a88"]


def test_a_damaged_first_line_of_a_log_spoils_no_other(tmp_path: Path) -> None:
    for name in ("claude-code", "codex"):
        path = saved(tmp_path, name, SOURCES[name][0]())
        whole = nn.import_run(path)
        path.write_text('{"type": "mo\n' + path.read_text())

        run = nn.import_run(path)

        assert run.turns == whole.turns
        assert [each["place"] for each in run.meta["unmapped"] if "cannot be read" in each["what"]] == ["line 1"]


@pytest.mark.parametrize(
    "write",
    [
        lambda time: time.isoformat(),
        lambda time: time.isoformat().replace("+00:00", "Z"),
        lambda time: time.replace(tzinfo=None).isoformat(),
        lambda time: time.timestamp(),
        lambda time: round(time.timestamp() * 1_000),
        lambda time: round(time.timestamp() * 1_000_000),
        lambda time: round(time.timestamp() * 1_000_000) * 1_000,
        lambda time: str(round(time.timestamp() * 1_000)),
    ],
)
def test_times_of_traces_are_the_same_in_every_form(write: Callable[[Any], Any]) -> None:
    for make, names in (
        (traces.langsmith_trace, ("start_time", "end_time")),
        (traces.weave_trace, ("started_at", "ended_at")),
    ):
        changed = [
            {**each, **{name: write(datetime.fromisoformat(each[name].replace("Z", "+00:00"))) for name in names}}
            for each in make()
        ]
        assert [event.t_ms for event in nn.import_run(changed).events] == [
            event.t_ms for event in nn.import_run(make()).events
        ]
