"""A file can never name another file to open, and irregular files are refused before they are opened."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.cli.main import main
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop import runs_from_spans
from noetic_nb.steering import load_rules

SPAN = {
    "name": "chat m",
    "context": {"trace_id": "0x1", "span_id": "0x1"},
    "attributes": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "the other file"}]}]',
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}]',
    },
}
# Places in a document that may hold spans, or text with spans.
NAMING: dict[str, Callable[[str], Any]] = {
    "spans": lambda path: {"spans": path},
    "spans in a list": lambda path: {"spans": [path]},
    "resourceSpans": lambda path: {"resourceSpans": path},
    "resource_spans in a list": lambda path: {"resource_spans": [path]},
    "scopeSpans": lambda path: {"resourceSpans": [{"scopeSpans": path}]},
    "spans in scopeSpans": lambda path: {"resourceSpans": [{"scopeSpans": [{"spans": path}]}]},
    "logs": lambda path: {"resourceLogs": path},
    "a list of documents": lambda path: [{"resourceSpans": path}],
    "text in text": lambda path: {"spans": json.dumps({"spans": path})},
    "messages": lambda path: {"messages": path},
    "a list of names": lambda path: [path],
}


def outcome(read: Callable[[], Any]) -> str:
    """Return the result as text; unreadable input gives a typed error."""
    try:
        return "".join(str(list(run.events)) for run in read())
    except (NoeticError, NoeticConfigError):
        return ""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    path = tmp_path / "other" / "spans.json"
    path.write_text(json.dumps([SPAN]))
    assert "the other file" in outcome(lambda: [nn.import_run(path)])
    return path


@pytest.mark.parametrize("format", [None, "otel", "openai"])
@pytest.mark.parametrize("named", NAMING)
def test_no_document_has_another_file_opened(
    named: str, format: str | None, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = NAMING[named](str(other))
    text = json.dumps(document)
    file, lines = tmp_path / "given.json", tmp_path / "lines.jsonl"
    file.write_text(text)
    lines.write_text(f"{text}\n{text}\n")

    for source in (document, text, text.encode(), file, str(file), lines):
        assert "the other file" not in outcome(lambda source=source: [nn.import_run(source, format=format)])
        assert "the other file" not in outcome(lambda source=source: runs_from_spans(source))
    main(["import", str(file), "--json"])
    assert "the other file" not in capsys.readouterr().out


def test_a_file_that_holds_a_name_and_bytes_that_are_one_open_nothing(other: Path, tmp_path: Path) -> None:
    file = tmp_path / "name.json"
    file.write_text(json.dumps(str(other)))

    assert outcome(lambda: [nn.import_run(file, format="otel")]) == ""
    assert outcome(lambda: [nn.import_run(str(other).encode(), format="otel")]) == ""
    assert outcome(lambda: runs_from_spans(str(other).encode())) == ""
    assert outcome(lambda: runs_from_spans([str(other)])) == ""


def test_the_argument_itself_may_be_a_path_and_spans_may_be_text(other: Path) -> None:
    assert len(runs_from_spans(other)) == len(runs_from_spans(str(other))) == 1
    assert len(runs_from_spans([json.dumps(SPAN)])) == len(runs_from_spans({"spans": json.dumps([SPAN])})) == 1


READERS: dict[str, Callable[[str], Any]] = {
    "import_run": nn.import_run,
    "import_run of spans": lambda path: nn.import_run(path, format="otel"),
    "import_run of our own": lambda path: nn.import_run(path, format="noetic"),
    "runs_from_spans": runs_from_spans,
    "load_run": nn.load_run,
    "logs": lambda path: runs_from_spans([SPAN], logs=path),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_or_a_device_is_refused_before_it_is_opened(reader: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    for path in (pipe, Path("/dev/zero"), Path("/dev/full")):
        with pytest.raises(NoeticError, match="not a regular file"):
            READERS[reader](str(path))
    with pytest.raises(NoeticError, match="cannot be read"):
        READERS[reader](str(tmp_path / "none.json"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_commands_and_rules_refuse_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    with pytest.raises(NoeticConfigError, match="not a regular file"):
        load_rules(pipe)
    for command in ("import", "check", "report", "lint"):
        assert main([command, str(pipe)]) != 0


def test_the_size_is_known_before_a_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tmp_path / "large.jsonl.gz"
    with large.open("wb") as file:
        file.write(gzip.compress(b"{}"))
        file.truncate(2**40)  # a sparse file, which takes no space
    with pytest.raises(NoeticError, match="compressed, and too large"):
        nn.import_run(str(large))
    opened: list[Any] = []
    monkeypatch.setattr("noetic_nb._core.atomic_write.open", lambda path, mode: opened.append(path), raising=False)

    for read in (nn.load_run, runs_from_spans):
        with pytest.raises(NoeticError, match="contains more than"):
            read(str(large))
    assert opened == []
