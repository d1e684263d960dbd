"""Tables of a run: the common columns first, and column types that do not depend on the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ContextCompacted, TurnCompleted, TurnStarted, WarningRaised
from noetic_nb.runs import Run
from noetic_nb.runs._events.event_json import EVENT_TYPES
from noetic_nb.runs._tables import TABLES
from tests.runs.factories import conversation, where

COMMON = ["run_id", "thread_id", "execution_id", "turn", "seq", "t_ms"]


def made() -> Run:
    run = Run("r1", events=conversation(2))
    for turn in (1, 2):
        run.append(ContextCompacted(where(turn), 9_000.0, "summary", 4, (), 900, 80, trigger="auto"))
        run.append(WarningRaised(where(turn), 9_000.0, "recall_failed", "'notes', `recall`: KeyError: 'gone'", "notes"))
    return run


@pytest.mark.parametrize("name", TABLES)
def test_every_table_begins_with_where_and_when(name: str) -> None:
    frame = made().to_frame(name)

    assert list(frame.columns[:6]) == COMMON
    assert len(frame) >= 2
    assert list(frame["run_id"].unique()) == ["r1"]
    assert list(frame["turn"].unique()) == [1, 2]


@pytest.mark.parametrize("name", TABLES)
def test_an_empty_run_gives_the_same_columns_and_types(name: str) -> None:
    empty, full = Run("r0").to_frame(name), made().to_frame(name)

    assert len(empty) == 0
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


@pytest.mark.parametrize("name", TABLES)
def test_seq_is_the_place_of_the_event_a_row_came_from(name: str) -> None:
    run = made()

    for row in run.to_frame(name).itertuples():
        event = run.events[row.seq]
        assert (event.t_ms, event.where.turn) == (row.t_ms, row.turn)


def test_an_unknown_table_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        NoeticConfigError,
        match="turns, allocations, items, spans, tools, ledger, decisions, regulator, tokens, compactions, warnings",
    ):
        made().to_frame("costs")


def test_allocations_say_what_a_layer_got_used_and_yielded() -> None:
    row = made().to_frame("allocations").iloc[0]

    assert (row["layer_id"], row["allocated"], row["used"], row["yielded"]) == ("notes", 100.0, 30, 70.0)
    assert (row["system"], row["history"], row["total"]) == (20, 40, 900.0)


def test_the_ledger_holds_the_call_and_the_verdict() -> None:
    row = made().to_frame("ledger").iloc[0]

    assert (row["hook"], row["tool_name"], row["args"]) == ("before_tool_call", "lookup", {"ids": [1, 2]})
    assert (row["action"], row["guidance"], row["rule_ids"], row["outcome"]) == ("allow", None, ("r1",), None)
    assert row["duration_ms"] == 0.1


def test_turns_hold_what_was_asked_answered_and_spent() -> None:
    row = made().to_frame("turns").iloc[1]

    assert (row["query"], row["text"], row["outcome"], row["stopped"]) == ("question 2", "answer 2", "success", None)
    assert (row["input_tokens"], row["output_tokens"], row["quality"]) == (220, 25, 0.5)
    assert (row["model_calls"], row["tool_calls"]) == (2, 1)


def test_items_are_listed_at_their_position_in_the_log() -> None:
    frame = made().to_frame("items")

    assert list(frame["position"]) == list(range(8))
    assert list(frame["origin"][:4]) == ["user", "model", "tool", "model"]
    assert frame["text"][0] == "question 1"
    assert (frame["tokens"] > 0).all()


def test_decisions_tools_and_regulator_rows_name_their_kinds() -> None:
    run = made()

    assert list(run.to_frame("decisions")["decision"]) == ["continue", "continue"]
    assert list(run.to_frame("regulator")["event"]) == ["tool_call", "tool_call"]
    assert list(run.to_frame("tools")["status"]) == ["ok", "ok"]
    assert list(run.to_frame("spans")["used"]) == [30.0, 30.0]


def test_changing_a_frame_does_not_change_the_run() -> None:
    run = made()

    run.to_frame("ledger")["args"].iloc[0]["ids"].append(9)

    assert run.to_frame("ledger")["args"].iloc[0] == {"ids": [1, 2]}


def test_the_page_about_runs_names_every_event_table_and_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "behaviour" / "runs.md").read_text(encoding="utf-8")

    for kind in EVENT_TYPES:
        assert f"`{kind.kind}`" in page
    for name, table in TABLES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        for column in table.columns.split():
            assert f"`{column.partition(':')[0]}`" in row


def test_tokens_that_nobody_counted_are_missing_and_no_zero(tmp_path: Path) -> None:
    done = TurnCompleted(where(1), 2.0, "turn-1", "success", 1.0, "Packed.", None, None, None, 0, 1)
    run = Run("r", events=[TurnStarted(where(1), 1.0, "turn-1", 0, 0, "Where?"), done])

    assert run.to_frame("turns")[["input_tokens", "output_tokens"]].isna().all(axis=None)
    assert (run.turns[0].input_tokens, run.turns[0].output_tokens) == (None, None)
    assert '<td style="text-align:left">success</td><td style="text-align:left"></td>' in run._repr_html_()
    assert Run.load(run.save(tmp_path / "run.jsonl")).turns == run.turns
