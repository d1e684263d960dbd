"""Trajectories in ATIF: read, written, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ChildEnded, ChildStarted, ContextCompacted, ModelCalled, ToolCalled
from noetic_nb.lab import datasets
from noetic_nb.runs import Run


def step(number: int, source: str, message: Any, **more: Any) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": message, **more}


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call_id": call_id, "function_name": name, "arguments": arguments}


def trajectory(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    agent = {"name": "clerk", "version": "3", "model_name": "m-1"}
    return {"schema_version": "ATIF-v1.8", "session_id": "s9", "agent": agent, "steps": list(steps), **more}


PAID = {
    "prompt_tokens": 90,
    "completion_tokens": 12,
    "cached_tokens": 64,
    "cost_usd": 0.25,
    "extra": {"cache_creation_input_tokens": 16, "output_tokens_details": {"thinking_tokens": 5}},
}


def test_turns_calls_results_and_every_kind_of_token_are_read() -> None:
    run = nn.import_run(
        trajectory(
            step(1, "system", "Be exact.", timestamp="2026-03-01T09:59:00Z"),
            step(2, "user", "How many?", timestamp="2026-03-01T10:00:00Z"),
            step(
                3,
                "agent",
                "I look.",
                timestamp="2026-03-01T10:00:02Z",
                reasoning_content="A file may say.",
                tool_calls=[call("c1", "read", path="a.txt"), call("c2", "read", path="b.txt")],
                observation={
                    "results": [
                        {"source_call_id": "c1", "content": "3", "extra": {"is_error": False}},
                        {"source_call_id": "c2", "content": "no such file", "extra": {"is_error": True}},
                    ]
                },
                metrics=PAID,
            ),
            step(4, "agent", "Three.", timestamp="2026-03-01T10:00:03Z", metrics={"prompt_tokens": 100}),
        )
    )

    first, second = run.select(ModelCalled)
    assert run.run_id == "s9"
    assert first.counts == (90, 12, 64, 16, 5)
    assert (first.cost, first.model) == (0.25, "m-1")
    assert second.counts[2:] == (None, None, None)
    assert [(each.args, each.status) for each in run.select(ToolCalled)] == [
        ({"path": "a.txt"}, "ok"),
        ({"path": "b.txt"}, "error"),
    ]
    assert [(turn.query, turn.text, turn.duration_ms) for turn in run.turns] == [("How many?", "Three.", 3_000.0)]
    assert run.meta["policy"] == "Be exact."
    assert run.meta["agent"] == "clerk"


def test_a_call_that_no_model_made_counts_no_model_call() -> None:
    made = step(2, "agent", "", tool_calls=[call("c1", "ping")], llm_call_count=0)
    run = nn.import_run(trajectory(step(1, "user", "hi"), made, step(3, "agent", "There.")))

    assert len(run.select(ModelCalled)) == 1
    assert [each.name for each in run.select(ToolCalled)] == ["ping"]


def test_copied_steps_are_the_log_before_the_first_turn() -> None:
    run = nn.import_run(
        trajectory(
            step(1, "user", "Old question", is_copied_context=True),
            step(2, "agent", "Old answer", is_copied_context=True, metrics=PAID),
            step(3, "user", "New question"),
            step(4, "agent", "New answer"),
        )
    )

    assert [turn.query for turn in run.turns] == ["New question"]
    assert len(run.select(ModelCalled)) == 1
    assert len(run.log(run.threads[0])) == 4
    assert run.meta["policy"] == ""


@pytest.fixture
def delegated() -> dict[str, Any]:
    inner = trajectory(step(1, "user", "Count."), step(2, "agent", "Seven.", metrics=PAID), trajectory_id="t-in")
    reference = {"source_call_id": "c1", "content": "7", "subagent_trajectory_ref": [{"trajectory_id": "t-in"}]}
    asked = step(2, "agent", "", tool_calls=[call("c1", "ask")], observation={"results": [reference]})
    whole = trajectory(step(1, "user", "How many?"), asked, step(3, "agent", "Seven."))
    return {**whole, "subagent_trajectories": [inner]}


def test_a_trajectory_of_a_call_is_a_child(delegated: dict[str, Any]) -> None:
    run = nn.import_run(delegated)

    (started,), (ended,) = run.select(ChildStarted), run.select(ChildEnded)
    assert (started.where.depth, ended.text, ended.input_tokens) == (1, "Seven.", 90)
    assert [each.where.depth for each in run.select(ModelCalled)] == [0, 1, 0]
    (turn,) = run.turns
    assert turn.input_tokens == sum(call.input_tokens for call in turn.model_calls) >= 90
    assert turn.cost == ended.cost == 0.25


def test_a_trajectory_in_a_file_beside_it_is_read_and_none_outside_of_its_folder(
    delegated: dict[str, Any], tmp_path: Path
) -> None:
    (inner,) = delegated.pop("subagent_trajectories")
    reference = delegated["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"][0]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "inner.json").write_text(json.dumps(inner))
    (tmp_path / "outside.json").write_text(json.dumps(inner))

    for path, found in (("inner.json", 1), ("../outside.json", 0), (str(tmp_path / "outside.json"), 0)):
        reference["trajectory_path"] = path
        (folder / "main.json").write_text(json.dumps(delegated))
        run = nn.import_run(folder / "main.json")
        assert len(run.select(ChildStarted)) == found
        assert bool(run.meta["unmapped"]) is not bool(found)


def test_a_compaction_is_written_and_read_back() -> None:
    about = {"by": "codex", "tokens_before": 900, "tokens_after": 80, "trigger": "auto", "items_removed": 6}
    given = trajectory(
        step(1, "user", "Go."),
        step(2, "agent", "Done."),
        step(3, "system", "The user wanted it done.", extra={"context_compacted": about}),
        step(4, "user", "More."),
        step(5, "agent", "More done."),
    )
    run = nn.import_run(given)
    again = nn.import_run(run.to_atif())

    for each in (run, again):
        (event,) = each.select(ContextCompacted)
        assert (event.by, event.tokens_before, event.tokens_after, event.items_removed) == ("codex", 900, 80, 6)
        (row,) = each.to_frame("compactions").to_dict("records")
        assert (row["call"], row["summary"], row["opaque"]) == (1, "The user wanted it done.", False)


def facts(run: Run) -> Any:
    calls = [(each.where.depth, each.counts, each.cost) for each in run.select(ModelCalled)]
    turns = [(turn.query, turn.text, turn.outcome) for turn in run.turns]
    return calls, turns, [(each.name, each.args, each.status, each.output) for each in run.select(ToolCalled)]


@pytest.mark.parametrize("name", ["airline", "retail", "telecom"])
def test_packaged_runs_survive_the_way_there_and_back(name: str) -> None:
    atif = pytest.importorskip("atif")
    for run in getattr(datasets, name)()[::4]:
        told = json.loads(json.dumps(run.to_atif()))
        atif.Trajectory.model_validate(told)
        assert facts(nn.import_run(told)) == facts(run), run.run_id


async def test_a_run_of_our_own_survives_with_its_prompt_and_its_tools() -> None:
    @nn.tool
    def find(order: str) -> str:
        """Find an order."""
        if order == "B2":
            raise ValueError("there is no B2")
        return "packed"

    model = nn.ScriptedModel([nn.CallTool("find", order="A1"), nn.CallTool("find", order="B2"), "Only A1 is there."])
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", instructions="Look it up.", tools=[find]))
    harness = nn.AgentHarness(config, model=model)
    run = nn.record(harness)
    await harness.execute("Where are A1 and B2?")
    told = run.to_atif()

    assert [each["source"] for each in told["steps"]] == ["system", "user", "agent", "agent", "agent"]
    assert told["agent"]["tool_definitions"][0]["function"]["name"] == "find"
    again = nn.import_run(told)
    assert [(each.name, each.status) for each in again.select(ToolCalled)] == [("find", "ok"), ("find", "error")]
    assert [turn.text for turn in again.turns] == ["Only A1 is there."]
    assert again.meta["policy"] == "Look it up."


@pytest.mark.parametrize(
    "given",
    [
        {"schema_version": "ATIF-v1.8", "steps": 3},
        {"schema_version": "ATIF-v1.2", "steps": None},
        [{"schema_version": "ATIF-v1.8", "steps": {}}],
    ],
)
def test_a_trajectory_without_steps_is_refused(given: Any) -> None:
    with pytest.raises(NoeticError, match="list of `steps`"):
        nn.import_run(given)


def test_damaged_parts_are_no_crash() -> None:
    run = nn.import_run(
        trajectory(step(1, "user", [{"type": "image"}, 3, {"type": "text", "text": "hi"}]), {"x": 1}, 7)
    )
    assert run.turns[0].query == "[image]hi"
    assert run.meta["unmapped"]


def test_objects_and_generators_of_trajectories_are_read() -> None:
    atif = pytest.importorskip("atif")
    told = [trajectory(step(1, "user", f"q{n}"), step(2, "agent", "Yes.")) for n in range(3)]
    made = [atif.Trajectory.model_validate(each) for each in told]

    for source in (told, made, iter(told), (each for each in made)):
        assert [run.turns[0].query for run in nn.import_runs(source)] == ["q0", "q1", "q2"]  # type: ignore[union-attr]


def test_a_thread_must_be_named_where_there_are_several() -> None:
    run = nn.import_run(trajectory(step(1, "user", "hi"), step(2, "agent", "Hello.")))
    with pytest.raises(NoeticConfigError, match="UNKNOWN_THREAD"):
        run.to_atif("nobody")


def test_costs_are_those_that_were_reported_else_of_the_list_else_unknown() -> None:
    told = [step(1, "user", "hi"), step(2, "agent", "Hello.", metrics=PAID)]
    assert nn.import_run(trajectory(*told)).cost() == 0.25
    known = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    priced = step(2, "agent", "Hello.", model_name="gpt-4.1", metrics=known)
    assert nn.import_run(trajectory(told[0], priced)).cost() == pytest.approx(2.0)
    priced["model_name"] = "nobody's model"
    assert nn.import_run(trajectory(told[0], priced)).cost() is None


SECRET = "sk-proj-Zq8vT3nLw0RkYb5Xd7Hf2Jm9Pc4Gs6Ae1Uu"


def test_no_field_of_a_trajectory_keeps_a_secret() -> None:
    about = {"by": SECRET, "trigger": SECRET}
    answer = step(3, "agent", SECRET, model_name=SECRET, reasoning_effort=SECRET, extra={"model_error": SECRET})
    compaction = step(2, "system", SECRET, extra={"context_compacted": about})
    run = nn.import_run(
        {**trajectory(step(1, "user", SECRET), compaction, answer), "session_id": SECRET, "notes": SECRET}
    )

    assert SECRET not in json.dumps(run.to_atif())
    assert SECRET not in repr([*run.events, run.meta, run.run_id])
