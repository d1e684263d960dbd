"""Files that version 0.1.0 wrote still open, and hold what they held."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ChildEnded, ToolCalled
from noetic_nb.regulator import RegulatorState
from noetic_nb.steering import dump_rules, load_rules
from tests.saved_files import agents

SAVED = Path(__file__).parents[1] / "fixtures" / "before_rooms"
QUERIES = [("t1", "order A1"), ("t1", "refund 40"), ("t2", "refund 400")]


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """Return a function that copies a file, since a database is written to when it is opened."""
    return lambda name: Path(shutil.copy(SAVED / name, tmp_path))


# -- runs -----------------------------------------------------------------------------------------------------------------


def test_a_run_has_its_turns_and_texts() -> None:
    run = nn.load_run(SAVED / "run.jsonl.gz")

    assert run.threads == ("t1", "t2")
    assert [(turn.query, turn.outcome) for turn in run.turns] == [(query, "success") for _, query in QUERIES]
    assert [turn.text.removeprefix("You said: You said: It is done: ")[:18] for turn in run.turns] == [
        '{"order":"A1","sta', "refunded 40 for A1", '{"error":{"kind":"',
    ]  # fmt: skip
    said = [agents.text_of(item) for item in run.log("t1") if item.get("role") == "user"]
    assert said[::2] == ["order A1", "refund 40"], "what its second round was given stands between"


def test_a_run_has_its_tools_decisions_grades_and_children() -> None:
    run = nn.load_run(SAVED / "run.jsonl.gz")

    assert [(call.name, call.status) for call in run.select(ToolCalled)] == [
        ("lookup", "ok"), ("refund", "ok"), ("refund", "denied"),
    ]  # fmt: skip
    denied = run.to_frame("ledger").query("action == 'deny'")
    assert [*denied[["tool_name", "guidance", "rule_ids"]].itertuples(index=False, name=None)] == [
        ("refund", "Refunds end at 100.", ("limit",))
    ]
    decided = run.to_frame("decisions")
    assert [*decided["decision"]].count("scope_drift_warn") == 2
    assert [*decided["at"]].count("quality") == [*decided["at"]].count("correction") == 1
    assert [*run.to_frame("turns")["quality"].dropna()] == [0.75]
    assert {event.where.depth for event in run.select(ChildEnded)} == {1}
    assert len(run.select(ChildEnded)) == 6


async def test_a_run_of_the_same_agent_says_the_same_today(tmp_path: Path) -> None:
    await agents.write_run(tmp_path)
    then, now = nn.load_run(SAVED / "run.jsonl.gz"), nn.load_run(tmp_path / "run.jsonl.gz")

    def kinds(run: nn.Run) -> list[str]:
        # Since then a regulation counts what children do as well, and a run has what each call was planned from.
        found = [event.kind for event in run.events if getattr(event, "layer_id", None) != "regulation"]
        found = [kind for kind in found if kind != "request_prepared"]
        # And a turn stands before the user's items, no longer behind them.
        for place in range(1, len(found)):
            if found[place - 1 : place + 1] == ["items_appended", "turn_started"]:
                found[place - 1 : place + 1] = ["turn_started", "items_appended"]
        return found

    assert kinds(now) == kinds(then)
    # What the model wrote was not kept beside the arguments then.
    assert not any(then.to_frame("tools")["raw_args"])
    assert all(now.to_frame("tools")["raw_args"])
    for name in ("turns", "tools", "ledger"):
        # `finish_reason` and `raw_args` came with version 2 of run files; in this one they are not known.
        # Numbers and times of events move with those that a regulation adds in children.
        # A file of then has 0 cached tokens where nobody told any.
        since = (
            "run_id",
            "duration_ms",
            "raw_args",
            "finish_reason",
            "seq",
            "t_ms",
            "cached_tokens",
            "cached_tokens_known",
        )
        kept = [column for column in then.to_frame(name) if column not in since]
        assert now.to_frame(name)[kept].to_json() == then.to_frame(name)[kept].to_json(), name
    assert [*now.to_frame("decisions")["decision"]] == [*then.to_frame("decisions")["decision"]]


def test_a_run_that_is_saved_again_holds_the_same_events(tmp_path: Path) -> None:
    run = nn.load_run(SAVED / "run.jsonl.gz")

    again = nn.load_run(run.save(tmp_path / "again.jsonl.gz"))

    assert again == run
    assert again.meta == run.meta


def test_the_regulator_of_a_run_decides_again_as_it_decided() -> None:
    from noetic_nb.lab import replay_regulator

    run = nn.load_run(SAVED / "run.jsonl.gz")
    replayed = replay_regulator(run, agents.recommended_then("ann"))

    before, now = ([*each.to_frame("decisions")["decision"]] for each in (run, replayed))
    assert now == before
    assert before == ["continue"] * 10 + ["scope_drift_warn"] * 2 + ["continue"]


# -- rules and cassettes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rules.yaml", "rules.json"])
def test_rules_of_every_form_are_the_same(name: str) -> None:
    loaded = load_rules(SAVED / name, functions={"limit": agents.limit})

    assert [dump_rules([rule], format="json") for rule in loaded] == [
        dump_rules([rule], format="json") for rule in agents.rules()
    ]
    assert dump_rules(loaded, format=name.rsplit(".")[-1]) == (SAVED / name).read_text()
    assert [rule.form for rule in loaded] == ["cel"] * 4 + ["sequence"] * 3 + ["judge", "cel", "python"]


async def test_a_cassette_answers_as_it_was_recorded() -> None:
    model = nn.CassetteModel(SAVED / "cassette.jsonl")

    find, said = [await model.complete(request) for request in agents.cassette_requests()]

    assert [(item["type"], item.get("arguments")) for item in find.items] == [
        ("reasoning", None), ("function_call", '{"id":"A1"}'),
    ]  # fmt: skip
    assert (find.usage, find.cost) == (nn.Usage(7, 3, 2), 0.002)
    assert ([agents.text_of(item) for item in said.items], said.usage) == (["Packed."], nn.Usage(9, 2, 0))
    assert [(part.token, part.logprob, part.alternatives) for part in said.logprobs] == [
        ("Packed", -0.5, (("Packed", -0.5),))
    ]


# -- threads --------------------------------------------------------------------------------------------------------------


async def test_a_durable_thread_has_its_log_and_its_layers_their_state(saved: Any) -> None:
    async with nn.SQLiteStorage(saved("thread.db")) as store:
        harness = agents.talker(store)

        assert await harness.saved_threads() == ("t1", "t2")
        assert await harness.unfinished() == ()
        assert await harness.load_thread("t1")
        assert [agents.text_of(item) for item in harness.log("t1") if item["type"] == "message"] == [
            "note blue", "Noted.", "note green", "Noted.",
        ]  # fmt: skip
        reply = await harness.execute("note grey", thread_id="t1", resource_id="bob")

        assert reply.text == "Noted."
        assert await store.get("layers/working-memory/t1/state") == {"last": "grey"}
        assert await store.get("layers/person/ann/state") == {"last": "green"}
        assert await store.get("layers/person/bob/state") == {"last": "grey"}


async def test_the_state_of_layers_is_in_the_next_prompt(saved: Any) -> None:
    sent: list[Any] = []
    async with nn.SQLiteStorage(saved("thread.db")) as store:
        harness = agents.talker(store)
        harness = nn.AgentHarness(
            harness.config, model=nn.ScriptedModel(lambda request: sent.append(request) or "ok"), storage=store
        )
        await harness.execute("hi", thread_id="t3", resource_id="ann")

    assert "green" in json.dumps([dict(item) for item in sent[0].items])


async def test_a_turn_that_was_cut_off_is_resumed_where_it_was(saved: Any) -> None:
    agents.PAID.clear()
    async with nn.SQLiteStorage(saved("unfinished.db")) as store:
        harness = agents.cashier(store)
        (execution_id,) = await harness.unfinished()

        reply = await harness.resume(execution_id)

        place = "/once#1/both#1/[1]/outer#1/inner#1/react-loop#1/react#2"
        assert [(place, 2, f"{execution_id}:{place}:1")] == agents.PAID, "only what was under way is paid again"
        assert reply.output == "all of paid 2\nall of paid 2, over"
        assert reply.cost == 9.0
        assert await harness.unfinished() == ()
        assert await store.list("execution:") == []
        assert [agents.text_of(item) for item in harness.log("t") if item["type"] == "message"] == [
            "go", "all of paid 2\nall of paid 2, over",
        ]  # fmt: skip


async def test_a_turn_that_was_cut_off_ends_as_one_that_was_not(saved: Any) -> None:
    whole = agents.cashier(nn.InMemoryStorage())
    uncut = await whole.execute("go", thread_id="t")
    async with nn.SQLiteStorage(saved("unfinished.db")) as store:
        harness = agents.cashier(store)
        reply = await harness.resume((await harness.unfinished())[0])

        assert (reply.output, reply.text, reply.cost) == (uncut.output, uncut.text, uncut.cost)
        assert [item["type"] for item in harness.log("t")] == [item["type"] for item in whole.log("t")]


# -- configurations, workflows, regulators --------------------------------------------------------------------------------


def test_a_configuration_is_the_same() -> None:
    data = json.loads((SAVED / "config.json").read_text())

    loaded = nn.load_config(data, agents.REGISTRY)

    assert nn.dump_config(loaded, agents.REGISTRY) == data == nn.dump_config(agents.config(), agents.REGISTRY)
    assert (loaded.force_atomic_recall, loaded.limits, dict(loaded.params)) == (
        True, nn.Limits(max_steps=20), {"shop": "north"},
    )  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), [("hi", "OK"), ("bye", "A")])
async def test_a_workflow_runs(value: str, expected: str) -> None:
    made = nn.load_workflow(json.loads((SAVED / "workflow.json").read_text()), agents.REGISTRY)
    harness = nn.AgentHarness(nn.AgentConfig(name="w"), model=nn.ScriptedModel(["ok"]))

    async with harness.execution() as ctx:
        output = await harness.run(made, value, ctx)

    assert output == (expected if value == "hi" else '{"ORDER":"A","STATE":"PACKED"}')


def test_a_regulator_has_what_it_had_learned() -> None:
    text = (SAVED / "regulator.json").read_text()

    back = nn.Regulator.from_json(text)

    assert json.loads(back.export_json("everything")) == json.loads(text)
    assert back.cost_cap_tokens() == 500
    assert json.loads(agents.regulator().export_json("everything")) == json.loads(text)
    assert RegulatorState.from_json(text).user_id == "ann"
