"""Where the time of turns went: parts that add up, and NaN for times that a run lacks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    MemoryTraceSpan,
    ModelCalled,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    ViewAssembled,
    Where,
)
from noetic_nb.lab import profile
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import Run
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import FakeClock

WHERE = Where("t1", "e1", 1)


def model(
    end: float, ms: float | None, name: str = "fast", where: Where = WHERE, purpose: Any = "agent"
) -> ModelCalled:
    return ModelCalled(where, end, 1, name, purpose, ms, "ok")


def hook(end: float, ms: float, layer: str = "notes", where: Where = WHERE, name: Any = "recall") -> MemoryTraceSpan:
    return MemoryTraceSpan(where, end, layer, name, ms, "ok")


def tool(end: float, ms: float, where: Where = WHERE) -> ToolCalled:
    return ToolCalled(where, end, "look", "c1", {}, "", ms, "ok")


def view(end: float, ms: float | None) -> ViewAssembled:
    return ViewAssembled(WHERE, end, 1, (0, 1), (), (), (), 1000, 0, 0, 0, 0, 0, 0, 0, duration_ms=ms)


def turn(end: float, ms: float | None, storage_ms: float | None = 0.0) -> TurnCompleted:
    return TurnCompleted(WHERE, end, "u1", "success", ms, "", 0, 0, 0.0, 1, 0, storage_ms=storage_ms)


def split(*events: RunEvent) -> dict[tuple[str, str], float]:
    """Return the milliseconds of the only turn."""
    table = profile(Run("r", events=events))
    return {(row.part, row.name): row.ms for row in table[["part", "name", "ms"]].itertuples(index=False)}


def test_each_part_has_what_only_it_took() -> None:
    found = split(
        hook(3, 2), view(5, 1), model(10, 4), tool(14, 3), hook(16, 1, "late", name="store"), turn(20, 20, storage_ms=2)
    )

    assert found == {
        ("model", "fast"): 4,
        ("tool", "look"): 3,
        ("hook", "notes"): 2,
        ("hook", "late"): 1,
        ("planning", ""): 1,
        ("storage", ""): 2,
        ("own", ""): 7,
    }


def test_what_runs_inside_is_taken_from_what_is_around_it() -> None:
    child = Where("t1", "e2", 1, 1)
    found = split(
        model(4, 2, "judge", purpose="judge"), hook(6, 5), model(12, 3, "small", child), hook(14, 1, "notes", child),
        tool(16, 8), view(7, 0), turn(20, 20),
    )  # fmt: skip

    # The hook has 5 - 2, the tool 8 - 3 - 1.
    assert found["hook", "notes"] == 3 + 1
    assert found["tool", "look"] == 4
    assert (found["model", "judge"], found["model", "small"], found["own", ""]) == (2, 3, 20 - 5 - 8)


def test_hooks_that_ran_side_by_side_share_the_time() -> None:
    found = split(hook(4, 4, "a", name="store"), hook(4, 2, "b", name="store"), view(5, 0), turn(10, 10))

    assert found["hook", "a"] == 2 + 1
    assert found["hook", "b"] == 1
    assert found["own", ""] == 6


def test_rules_are_taken_from_the_layer_that_evaluated_them_and_judges_from_rules() -> None:
    decided = SteeringDecided(
        WHERE, 9, "steering", "before_tool_call", "look", {}, "allow", None, (), 8.0,
        rules_ms=(("fast", 1.0), ("judged", 6.0)),
    )  # fmt: skip
    found = split(
        model(8, 5, "judge", purpose="judge"), hook(9, 8, "steering", name="before_tool_call"), decided, view(1, 0),
        turn(10, 10),
    )  # fmt: skip

    assert (found["model", "judge"], found["rule", "fast"], found["rule", "judged"]) == (5, 1, 1)
    assert found["hook", "steering"] == 8 - 5 - 1 - 1


def test_what_the_run_does_not_carry_is_no_zero() -> None:
    old = split(hook(3, 2), view(4, None), model(10, 4), turn(20, 20, storage_ms=None))
    unknown = split(model(10, None), view(4, 1), turn(20, 20))

    assert [key for key, ms in old.items() if math.isnan(ms)] == [("planning", ""), ("storage", ""), ("own", "")]
    assert old["unsplit", ""] == 14
    assert [key for key, ms in unknown.items() if math.isnan(ms)] == [("model", "fast"), ("own", "")]
    assert unknown["unsplit", ""] == 19


def test_a_turn_without_a_duration_is_all_unknown_and_one_under_way_is_left_out() -> None:
    assert all(math.isnan(ms) for ms in split(model(10, 4), turn(20, None)).values())
    assert profile(Run("r", events=[model(10, 4)])).empty


def test_a_run_without_a_clock_is_all_unknown() -> None:
    run = Run("r", meta={"estimated": ["t_ms"]}, events=[model(10, 4), turn(20, 20)])

    assert profile(run)["ms"].isna().all()


MOMENTS = st.tuples(st.sampled_from(["model", "hook", "tool"]), st.floats(0, 100), st.floats(0, 100))


@given(st.lists(MOMENTS, max_size=12), st.floats(0, 60), st.floats(0, 100))
def test_the_parts_add_up_to_the_turn_whatever_overlaps(
    moments: list[tuple[str, float, float]], ms: float, storage_ms: float
) -> None:
    events = [{"model": model, "hook": hook, "tool": tool}[kind](end, took) for kind, end, took in moments]
    found = split(*events, view(5, 1), turn(80, ms, storage_ms))

    assert all(value >= -1e-9 for value in found.values())
    assert sum(found.values()) == pytest.approx(ms, abs=1e-6)


def notes(name: str) -> MemoryLayer:
    hooks = MemoryHooks(recall=lambda p: "known", store=lambda p: {"state": {"n": 1}})
    return MemoryLayer(id=name, slot=200, scope="thread", hooks=hooks)


def desk(storage: Any, **options: Any) -> nn.AgentHarness:
    rules = nn.RuleBook()
    rules.rule("small", on="before_tool_call")(lambda call: None)
    rules.when("tool.args.what == 'nothing'", id="worded")

    def look(what: str) -> str:
        """Look something up."""
        return what

    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[nn.tool(look)]), memory=[notes("notes"), nn.steering(rules)]
    )
    answers = nn.ScriptedModel(lambda request: nn.CallTool("look", what="a") if len(request.items) < 4 else "Done.")
    return nn.AgentHarness(config, model=answers, storage=storage, **options)


@pytest.mark.parametrize("checkpoints", [False, True])
async def test_a_recorded_turn_carries_everything(checkpoints: bool, tmp_path: Path) -> None:
    harness = desk(InMemoryStorage(), checkpoints=checkpoints)
    run = nn.record(harness)
    await harness.execute("Hi", thread_id="t1")
    run.save(tmp_path / "run.jsonl")

    table = profile(run)
    again = profile(nn.load_run(tmp_path / "run.jsonl"))

    assert not table.isna().any().any()
    assert set(table.loc[table["part"] == "rule", "name"]) == {"small", "worded"}
    assert set(table.loc[table["part"] == "hook", "name"]) == {"notes", "steering"}
    assert table["ms"].sum() == pytest.approx(run.turns[0].duration_ms)
    assert table["share"].sum() == pytest.approx(1.0)
    assert table.loc[table["part"] == "storage", "ms"].item() > 0
    pandas.testing.assert_frame_equal(table, again)


async def test_without_a_subscriber_no_time_is_kept() -> None:
    harness = desk(InMemoryStorage(), checkpoints=True)
    await harness.execute("Hi", thread_id="t1")

    assert harness._stack.state.storage_ms == {}


async def test_time_is_that_of_the_clock_of_the_harness() -> None:
    harness = desk(InMemoryStorage(), clock=FakeClock(step_ms=1))
    run = nn.record(harness)
    await harness.execute("Hi", thread_id="t1")
    table = profile(run)

    assert table["ms"].sum() == pytest.approx(run.turns[0].duration_ms)
    assert table.loc[table["part"] == "rule", "ms"].tolist() == [1, 1]


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(NoeticConfigError, match="NOT_A_RUN"):
        profile(3)
