"""An invalid value in a run raises a typed error on reading, or is harmless; no text controls the terminal."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.cli.main import main
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.interop import runs_from_spans
from noetic_nb.runs._tables import TABLES
from noetic_nb.steering import load_rules
from tests.matrix import sampled
from tests.runs.factories import conversation

TYPED = (NoeticError, NoeticConfigError, ItemValidationError)
VALUES: list[Any] = [2**63, -(2**63) - 1, 10**400, -1, True, None, "\x00", "\ud800", "\x1b[31m", 1e308, [], {}, "text"]


def saved(path: Path) -> list[dict[str, Any]]:
    run = nn.Run("r1", events=conversation(2), meta={"source": "recorded", "estimated": ["t_ms"]})
    return [json.loads(line) for line in gzip.decompress(run.save(path).read_bytes()).splitlines()]


def keys_of(value: Any) -> Iterator[str]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(value, dict):
            yield key
        yield from keys_of(inner)


def with_value(value: Any, key: str, new: Any) -> Any:
    """Return data with another value under every key with the given name."""
    if isinstance(value, dict):
        return {name: new if name == key else with_value(inner, key, new) for name, inner in value.items()}
    return [with_value(inner, key, new) for inner in value] if isinstance(value, list) else value


def used(run: nn.Run) -> None:
    for name in TABLES:
        run.to_frame(name)
    run._repr_html_()
    views = pytest.importorskip("noetic_nb.widgets")
    for kind in (views.Ledger, views.Transcript, views.RunTimeline, views.TokenAllocation, views.RegulatorTrends):
        with kind(run) as view:
            view.to_html()
            view.to_text()
            view.to_frame()


@pytest.mark.matrix
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_run_file_with_another_value_is_refused_or_can_be_used(value: Any, tmp_path: Path) -> None:
    lines, path = saved(tmp_path / "whole.jsonl.gz"), tmp_path / "run.jsonl.gz"

    keys = sorted(set(keys_of(lines)))
    for key in sampled(keys, len(keys) // 8, VALUES.index(value) % 8):
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, with_value(lines, key, value))).encode()))
        try:
            run = nn.load_run(path)
        except TYPED:
            continue
        used(run)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_turn_that_no_table_can_hold_is_refused(number: int, tmp_path: Path) -> None:
    lines = with_value(saved(tmp_path / "whole.jsonl.gz"), "turn", number)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))

    with pytest.raises(NoeticError, match="63 bits"):
        nn.load_run(path)


@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b"], ids=["NUL", "half a character"])
@pytest.mark.parametrize(
    "use",
    [
        nn.load_run,
        nn.import_run,
        runs_from_spans,
        nn.SQLiteStorage,
        lambda name: load_rules(f"{name}.json"),
        lambda name: nn.Run().save(name),
        lambda name: nn.record(
            nn.AgentHarness(nn.AgentConfig(name="d", step=nn.react(model="m")), model=nn.ScriptedModel([])),
            autosave=name,
        ),
    ],
)
def test_a_name_that_no_file_can_have_is_a_typed_error(use: Callable[[str], Any], name: str) -> None:
    with pytest.raises(TYPED):
        use(name)


def test_no_message_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "red\x1b[31m\u202e.json"
    (tmp_path / name).write_text('[{"role": "\\u001b[31m"}, 4]')

    for command in ("import", "check", "report"):
        main([command, str(tmp_path / name)])
    main(["import", f"missing \x1b]0;title\x07 {name}"])
    shown = capsys.readouterr()

    assert not set(shown.out + shown.err) & set("\x1b\x07\u202e")
    error = NoeticError("tool_failed", "It said \x1b[31m.", hint="\x07")
    assert not set(str(error) + str(NoeticConfigError("X", "\x9b1m"))) & set("\x1b\x07\x9b")
