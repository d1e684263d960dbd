"""Tables of messages are read; other sources give an error that describes them and the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ToolCalled

CALL = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"id": "A17"}'}}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is A17?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "packed"},
    {"role": "assistant", "content": "It is packed."},
]


class Polars:
    """The part of a polars DataFrame that is used."""

    columns = ("role", "content")

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]


@pytest.mark.parametrize(
    "source",
    [
        pandas.DataFrame(TALK),
        pandas.DataFrame(TALK).to_dict("records"),
        pandas.DataFrame(TALK).convert_dtypes(),
        pandas.DataFrame(TALK).assign(conversation_id=7, score=numpy.nan),
        pandas.DataFrame(TALK).astype(object).where(pandas.DataFrame(TALK).notna(), None),
    ],
    ids=["frame", "records", "with NA", "with more columns", "with None"],
)
def test_a_table_of_messages_is_the_conversation(source: Any) -> None:
    run = nn.import_run(source)

    assert (run.turns[0].query, run.turns[0].text) == ("Where is A17?", "It is packed.")
    assert [call.name for call in run.select(ToolCalled)] == ["lookup"]
    assert len(run.events) == len(nn.import_run(TALK).events)


def test_columns_and_other_libraries() -> None:
    simple = pandas.DataFrame([TALK[0], TALK[3]])[["role", "content"]]
    for source in (simple.to_dict("list"), Polars()):
        assert len(nn.import_run(source).turns) == 1


def test_several_conversations_of_one_table_are_several_runs() -> None:
    table = pandas.concat([pandas.DataFrame(TALK).assign(thread_id=name) for name in ("a", "b")])

    assert [run.turns[0].text for run in nn.import_runs(table)] == ["It is packed."] * 2  # type: ignore[union-attr]
    with pytest.raises(NoeticConfigError, match="SEVERAL_RUNS"):
        nn.import_run(table)


def file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


SOURCES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "slip in a message": ([{"rol": "user", "content": "Hi"}], ("keys 'rol', 'content'", "Did you mean 'role'")),
    "slip in a document": ({"mesages": TALK}, ("keys 'mesages'", "Did you mean 'messages'")),
    "something else": ({"a": 1}, ("a mapping with the keys 'a'", "'role' and 'content'")),
    "a frame of something else": (pandas.DataFrame({"a": [1]}), ("keys 'a'",)),
    "a number": (3, ("Given: int", "Pass a list of messages")),
    "numbers": ([3], ("a list of int", "Pass a list of messages")),
    "nothing": (None, ("Given: NoneType",)),
    "a text": ("a text", ("No such file", "Check the path", "'role': 'user'")),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_cannot_be_read_is_named(name: str) -> None:
    source, words = SOURCES[name]

    with pytest.raises(NoeticError) as caught:
        nn.import_run(source)
    assert all(word in str(caught.value) for word in words), str(caught.value)


FILES: dict[str, tuple[str, bytes, str]] = {
    "cp1252": ("talk.json", '[{"role": "user", "content": "schön"}]'.encode("cp1252"), "encoding='cp1252'"),
    "cut": ("talk.json", json.dumps(TALK).encode()[:-10], "It is truncated"),
    "cut in a text": ("talk.json", b'[{"role": "us', "It is truncated"),
    "cut line": (
        "talk.jsonl",
        (json.dumps(TALK[0]) + "\n" + json.dumps(TALK[3])[:-9]).encode(),
        "It is truncated",
    ),
    "table": ("talk.csv", b"role,content\nuser,Hi\n", "pandas.read_csv(path)"),
    "wrong in the middle": ("talk.json", b'[{"role": "user" "content": "Hi"}, {"role": "user"}]', "Correct the file"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_says_what_to_do(name: str, tmp_path: Path) -> None:
    file_name, content, words = FILES[name]

    with pytest.raises(NoeticError) as caught:
        nn.import_run(file(tmp_path, file_name, content))
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"role,content\nuser,Hi\n", json.dumps(TALK).encode()])
def test_load_run_sends_other_recordings_to_import_run(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(NoeticError, match=r"other recordings are read by nn\.import_run"):
        nn.load_run(file(tmp_path, "talk.csv", content))
