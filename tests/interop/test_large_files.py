"""Files above the limit: records are read on demand, and errors for indivisible files name the remedy."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.interop import _importing
from noetic_nb.interop._formats import message_files
from noetic_nb.interop._formats.message_files import large_document
from noetic_nb.interop._formats.sources import Document
from noetic_nb.interop._spans import import_spans
from tests.interop import test_agent_sessions as sessions
from tests.interop.span_forms import as_otlp_lines
from tests.interop.test_atif import step, trajectory
from tests.interop.test_trace_exports import langsmith_trace, weave_trace

TALES = [
    trajectory(step(1, "user", f"Wie viele Ähren, 麦 {n}?"), step(2, "agent", "Drei" + "!" * n), session_id=f"s{n}")
    for n in range(40)
]


def traces() -> list[dict[str, Any]]:
    """Return runs of three conversations, with two traces each, in random order."""
    found = []
    for thread in ("x", "y", "z"):
        for trace in ("a", "b"):
            for record in langsmith_trace():
                ids = {
                    key: f"{thread}{trace}{record[key]}" for key in ("id", "trace_id", "parent_run_id") if record[key]
                }
                text = json.dumps(record).replace('"t7"', f'"{thread}"')
                found.append({**json.loads(text), **ids})
    random.Random(0).shuffle(found)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_importing, "MAX_BYTES", 1_000)
    monkeypatch.setattr(import_spans, "MAX_BYTES", 1_000)
    monkeypatch.setattr(message_files, "_PIECE", 512)


def lines(values: list[Any]) -> str:
    return "".join([json.dumps(each, ensure_ascii=False) + "\n" for each in values])


@pytest.mark.parametrize(
    "text",
    [
        lines(TALES),
        "\n" + lines(TALES[:7]) + "\n\n" + lines(TALES[7:]),
        json.dumps(TALES, ensure_ascii=False),
        json.dumps(TALES, indent=2),
        "\ufeff" + json.dumps(TALES, ensure_ascii=False),
        " [\n" + ",\n".join(json.dumps(each) for each in TALES) + "\n]\n",
        lines(sessions.SESSION),
        lines(langsmith_trace()),
        lines(weave_trace()),
        json.dumps(weave_trace()),
    ],
    ids=[
        "lines",
        "blank lines",
        "list",
        "indented",
        "mark",
        "line in list",
        "session",
        "langsmith",
        "weave",
        "list of weave",
    ],
)
def test_a_large_file_gives_the_runs_of_a_small_one(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "source.jsonl"
    path.write_text(text, encoding="utf-8")
    whole = list(nn.import_runs(path))
    monkeypatch.setattr(_importing, "MAX_BYTES", 1_000)
    monkeypatch.setattr(message_files, "_PIECE", 512)

    runs = list(nn.import_runs(path))

    assert [run.events[:] for run in runs] == [run.events[:] for run in whole]  # type: ignore[union-attr]
    assert [run.run_id for run in runs] == [run.run_id for run in whole]  # type: ignore[union-attr]


def test_only_one_conversation_of_a_large_file_of_traces_is_read_at_a_time(tmp_path: Path, small: None) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(lines(traces()))

    runs = {run.threads: run for run in nn.import_runs(path)}  # type: ignore[union-attr]
    whole = {run.threads: run for run in nn.import_runs(traces())}  # type: ignore[union-attr]
    document = large_document(path)

    assert sorted(runs) == sorted(whole) == [("x",), ("y",), ("z",)]
    for name, run in runs.items():
        assert run.events[:] == whole[name].events[:]  # type: ignore[union-attr]
    assert document.is_large
    assert not isinstance(document.data, list)


def test_a_bad_record_of_a_large_file_is_a_failure_and_the_next_is_read(tmp_path: Path, small: None) -> None:
    path = tmp_path / "source.jsonl"
    path.write_text(lines(TALES[:5]) + '{"steps": [\n' + lines(TALES[5:9]))

    runs = list(nn.import_runs(path))

    assert [isinstance(run, nn.Run) for run in runs] == [True] * 5 + [False] + [True] * 4


def one_value(path: Path) -> None:
    path.write_text(
        json.dumps({"eval": {"task": "t"}, "version": 2, "samples": [{"id": n} for n in range(400)]}, indent=1)
    )


def one_line(path: Path) -> None:
    path.write_text(json.dumps({"data": [{"id": n} for n in range(400)]}))


def packed(path: Path) -> None:
    path.write_bytes(gzip.compress(random.Random(0).randbytes(4_000)))


def cut_list(path: Path) -> None:
    path.write_text(json.dumps(TALES)[:-30])


def spans(path: Path) -> None:
    captures = Path(__file__).parent.parent / "fixtures" / "spans"
    found = json.loads((captures / "smolagents-oi.json").read_text())
    path.write_text(as_otlp_lines(found["spans"], found["logs"]))


@pytest.mark.parametrize(
    ("write", "hint"),
    [(one_value, "jq"), (one_line, "jq"), (packed, "Unpack"), (cut_list, "jq"), (spans, "Large files of spans")],
)
def test_a_large_file_that_cannot_be_split_says_how_to_go_on(
    write: Callable[[Path], None], hint: str, tmp_path: Path, small: None
) -> None:
    path = tmp_path / "source.json"
    write(path)

    with pytest.raises(NoeticError) as caught:
        nn.import_run(path)

    assert caught.value.kind == "invalid_run_file"
    assert caught.value.path == str(path)
    assert hint in caught.value.hint


def test_a_file_of_many_lines_is_not_held(tmp_path: Path, small: None) -> None:
    path = tmp_path / "source.jsonl"
    path.write_text(lines(TALES))
    read: list[int] = []
    document = large_document(path)

    class Counted(type(document.data)):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, int):
                read.append(index)
            return super().__getitem__(index)

    data = Counted(path)
    data.starts, data.stops = document.data.starts, document.data.stops
    runs = _importing.atif.read(Document(data, path, by_line=True))
    next(runs)()

    assert read == [0]
