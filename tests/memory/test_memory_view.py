"""Memory under manual control: data and functions of layers, inspected and edited states, threads rewound into forks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.events import LayerStateChanged
from noetic_nb.items import item_text
from noetic_nb.items._json_text import compact_json
from noetic_nb.memory import MemoryLayer, layer_fn
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from tests.memory.stacks import Seen, layer


class Profile(BaseModel):
    city: str = ""
    visits: int = 0


def agent(*memory: MemoryLayer, replies: Any = None, tools: Any = (), storage: Any = None, **config: Any) -> Any:
    model = nn.ScriptedModel(["ok"] * 50 if replies is None else replies)
    made = nn.AgentConfig(
        name="a", step=nn.react(model="m", tools=tools or None, max_steps=10), memory=list(memory), **config
    )
    return nn.AgentHarness(made, model=model, storage=storage)


def noted(turn: int) -> Any:
    return nn.CallTool("working-memory/update", turn=turn)


def diary(scope: Any = "thread") -> Any:
    """An agent that stores the number of each turn."""
    replies = [reply for n in range(1, 8) for reply in (noted(n), f"turn {n}")]
    return agent(nn.working_memory(scope=scope), replies=replies)


# -- ctx.memory -------------------------------------------------------------------------------------------------------


async def test_code_reads_data_and_calls_functions_of_layers() -> None:
    harness = agent(nn.working_memory())

    async with harness.execution(thread_id="t1") as ctx:
        assert await ctx.memory["working-memory"].update({"city": "Rome"}) is None
        await ctx.memory["working-memory"].update(visits=2)

        assert ctx.memory["working-memory"].snapshot == {"city": "Rome", "visits": 2}
        assert list(ctx.memory) == ["working-memory"]
        assert dir(ctx.memory["working-memory"]) == ["snapshot", "update"]
    assert await harness.memory("t1").state("working-memory") == {"city": "Rome", "visits": 2}


async def test_a_tool_reaches_the_memory_of_its_execution() -> None:
    @nn.tool
    async def add(item: str, ctx: Any) -> int:
        """Add to the cart."""
        cart = ctx.memory["cart"].value
        await ctx.memory["cart"].set(value=[*cart, item])
        return len(ctx.memory["cart"].value)

    replies = [nn.CallTool("add", item="tea"), nn.CallTool("add", item="milk"), "done"]
    harness = agent(nn.tool_memory("cart", initial=[]), replies=replies, tools=[add])

    reply = await harness.execute("add two things")

    assert [item.output for item in reply.items if item["type"] == "function_call_output"] == ["1", "2"]


@pytest.mark.parametrize("scope", ["execution", "thread"])
async def test_tool_memory_can_be_set_to_none(scope: Any) -> None:
    harness = agent(nn.tool_memory("cart", initial=["tea"], scope=scope, show=lambda cart: f"Cart: {cart}"))

    async with harness.execution(thread_id="t1") as ctx:
        assert ctx.memory["cart"].value == ["tea"]
        await ctx.memory["cart"].set(value=None)
        assert ctx.memory["cart"].value is None
    async with harness.execution(thread_id="t1") as ctx:
        assert ctx.memory["cart"].value == (None if scope == "thread" else ["tea"])
        await ctx.memory["cart"].set(value=["milk"])
        assert ctx.memory["cart"].value == ["milk"]


async def test_what_is_not_provided_is_said_with_what_is() -> None:
    harness = agent(nn.working_memory())

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticConfigError, match="working-memory"):
            ctx.memory["notes"]
        with pytest.raises(AttributeError, match="snapshot"):
            ctx.memory["working-memory"].summary


async def test_defect_2_a_layer_function_called_from_code_is_steered() -> None:
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call", tools=["working-memory/update"])
    def no_secrets(call: Any) -> Any:
        return nn.deny("No secrets.") if "secret" in call.tool_args else None

    harness = agent(nn.steering(rules), nn.working_memory())

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError, match="No secrets") as caught:
            await ctx.memory["working-memory"].update(secret=1)
        await ctx.memory["working-memory"].update(city="Rome")
        assert ctx.memory["working-memory"].snapshot == {"city": "Rome"}
    assert caught.value.kind == "steering_denied"


def counting(**fn: Any) -> MemoryLayer:
    async def bump(args: dict[str, int], state: Any, ctx: Any) -> Any:
        await asyncio.sleep(0)
        state["n"] += args["by"]  # in place, like a careless function
        return {"result": fn.get("result", state["n"]), "state": state}

    return layer(
        "count",
        scope="execution",
        init=lambda p: {"state": {"n": 0}},
        provides={"bump": layer_fn(description="Bump.", input=dict[str, int], output=int, execute=bump)},
    )


async def test_defect_13_concurrent_calls_lose_no_update() -> None:
    harness = agent(counting())

    async with harness.execution() as ctx:
        await asyncio.gather(*(ctx.memory["count"].bump(by=1) for _ in range(25)))
        assert ctx.engine.stack.state.get(ctx.id, "count") == {"n": 25}


@pytest.mark.parametrize(("args", "made"), [({"by": "many"}, counting()), ({"by": 1}, counting(result="text"))])
async def test_defect_4_arguments_and_results_are_checked_and_a_failed_call_changes_nothing(
    args: dict[str, Any], made: MemoryLayer
) -> None:
    harness = agent(made)

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await ctx.memory["count"].bump(**args)
        assert caught.value.kind == "tool_failed"
        assert ctx.engine.stack.state.get(ctx.id, "count") == {"n": 0}


async def test_functions_of_a_disabled_layer_refuse() -> None:
    def failing(p: Any) -> Any:
        raise RuntimeError("no")

    made = nn.working_memory().with_hooks(init=failing)
    from dataclasses import replace

    harness = agent(replace(made, on_init_error="disable"))

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError, match="does not take part"):
            await ctx.memory["working-memory"].update(city="Rome")


async def test_functions_for_code_only_are_no_tools() -> None:
    seen: list[Any] = []

    def reply(request: Any) -> str:
        seen.extend(spec.name for spec in request.tools)
        return "ok"

    harness = agent(nn.tool_memory("cart"), nn.working_memory(), replies=reply)
    await harness.execute("hi")

    assert seen == ["working-memory/update"]


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_the_view_shows_every_layer_with_its_state_size_and_history() -> None:
    harness = diary()
    await harness.execute("one", thread_id="t1")
    await harness.execute("two", thread_id="t1")

    (shown,) = await harness.memory("t1").layers()

    assert (shown.layer_id, shown.scope_key, shown.state) == ("working-memory", "t1", {"turn": 2})
    assert (shown.size, shown.tokens, shown.changed_in_turn) == (10, 3, 2)
    assert [(change.turn, change.hook, change.state) for change in shown.changes] == [
        (1, "init", ""),
        (1, "update", {"turn": 1}),
        (2, "update", {"turn": 2}),
    ]


async def test_the_view_is_shown_as_a_table_in_which_state_is_data() -> None:
    harness = agent(nn.working_memory(initial={"note": "<script>alert(1)</script>"}))
    await harness.execute("hi", thread_id="<b>t</b>")

    html = harness.memory("<b>t</b>")._repr_html_()

    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html


async def test_looking_while_a_turn_runs_shows_the_live_state() -> None:
    seen: list[Any] = []

    @nn.tool
    async def look(ctx: Any) -> str:
        """Look."""
        seen.append(await ctx.harness.memory("t1").state("working-memory"))
        return "ok"

    harness = agent(nn.working_memory(), replies=[noted(1), nn.CallTool("look"), "done"], tools=[look])
    await harness.execute("go", thread_id="t1")

    assert seen == [{"turn": 1}]


async def test_what_is_shown_cannot_be_used_to_change_what_is_kept() -> None:
    harness = diary()
    await harness.execute("one", thread_id="t1")
    memory = harness.memory("t1")

    (await memory.state("working-memory"))["turn"] = 99
    memory.history("working-memory")[-1].state["turn"] = 99

    assert await memory.state("working-memory") == {"turn": 1}
    assert memory.history("working-memory")[-1].state == {"turn": 1}


async def test_the_error_of_the_estimate_is_told() -> None:
    harness = nn.AgentHarness(
        nn.AgentConfig(name="a", step=nn.react(model="m")),
        model=nn.ScriptedModel(["ok"]),
        tokenizer=lambda text: len(text),
    )
    await harness.execute("hello", thread_id="t1")

    error = harness.memory("t1").tokenizer_error()

    assert error["counted"] == sum(len(compact_json(item)) for item in harness.log("t1"))
    assert error["ratio"] == pytest.approx(4, rel=0.05)


# -- editing ----------------------------------------------------------------------------------------------------------


async def test_an_edit_is_durable_an_event_and_seen_by_the_next_turn(tmp_path: Path) -> None:
    said: list[str] = []

    def reply(request: Any) -> str:
        said.extend(item_text(item) for item in request.items if item.role == "developer")
        return "ok"

    async with SQLiteStorage(tmp_path / "a.db") as storage:
        harness = agent(nn.working_memory(), replies=reply, storage=storage)
        seen = Seen()
        harness.subscribe(seen)
        await harness.execute("hi", thread_id="t1")

        await harness.memory("t1").edit("working-memory", {"city": "Rome"})
        await harness.execute("where?", thread_id="t1")

        assert await storage.get("layers/working-memory/t1/state") == {"city": "Rome"}
        assert "Rome" in said[0]
    edits = [event for event in seen.events if isinstance(event, LayerStateChanged) and event.hook == "edit"]
    assert [(event.layer_id, event.state, event.where.thread_id) for event in edits] == [
        ("working-memory", {"city": "Rome"}, "t1")
    ]


async def test_an_edit_inside_an_open_execution_takes_effect_at_once_and_is_kept() -> None:
    storage = InMemoryStorage()
    harness = agent(nn.working_memory(), storage=storage)
    seen = Seen()
    harness.subscribe(seen)

    async with harness.execution(thread_id="t1") as ctx:
        await harness.memory("t1").edit("working-memory", {"city": "Rome"})
        assert ctx.memory["working-memory"].snapshot == {"city": "Rome"}

    assert await storage.get("layers/working-memory/t1/state") == {"city": "Rome"}
    assert [e.hook for e in seen.events if isinstance(e, LayerStateChanged)] == ["init", "edit"]


async def test_an_edit_reaches_an_eventual_layer_at_its_next_recall() -> None:
    said: list[str] = []

    def reply(request: Any) -> str:
        said.append("|".join(item_text(item) for item in request.items if item.role == "developer"))
        return "ok"

    async def init(p: Any) -> Any:
        return {"state": await p.storage.get("state") or "old"}

    harness = agent(layer("ev", recall_mode="eventual", init=init, recall=lambda p: p.state), replies=reply)
    await harness.execute("hi", thread_id="t1")

    await harness.memory("t1").edit("ev", "new")
    await harness.execute("hi", thread_id="t1")

    assert said == ["old", "new"]


BAD_EDITS: list[tuple[MemoryLayer, Any]] = [
    (nn.working_memory(schema=Profile), {"visits": "many"}),
    (nn.working_memory(), 7),
    (nn.working_memory(), {"when": {1, 2}}),
    (nn.episodic_memory(), {"episodes": "none"}),
    (nn.observational_memory(), {"observations": []}),
    (nn.plan_memory(), {"phase": "dreaming"}),
]


@pytest.mark.parametrize(("made", "state"), BAD_EDITS, ids=[f"{m.id}-{s!r}"[:50] for m, s in BAD_EDITS])
async def test_an_edit_the_layer_cannot_read_is_refused_and_changes_nothing(made: MemoryLayer, state: Any) -> None:
    storage = InMemoryStorage()
    harness = agent(made, storage=storage)
    await harness.execute("hi", thread_id="t1")
    before = {key: await storage.get(key) for key in await storage.list("")}

    with pytest.raises(nn.NoeticError) as caught:
        await harness.memory("t1").edit(made.id, state)

    assert caught.value.kind == "storage_failed"
    assert {key: await storage.get(key) for key in await storage.list("")} == before


async def test_clearing_by_hand_makes_the_layer_begin_anew() -> None:
    harness = diary()
    await harness.execute("one", thread_id="t1")

    await harness.memory("t1").edit("working-memory", None)

    assert await harness.memory("t1").state("working-memory") is None


async def test_what_ends_with_each_execution_can_only_be_edited_while_one_is_open() -> None:
    harness = agent(nn.tool_memory("cart", initial=[]))
    with pytest.raises(nn.NoeticConfigError) as caught:
        await harness.memory("t1").edit("cart", ["tea"])
    assert caught.value.code == "NOT_EDITABLE"

    async with harness.execution(thread_id="t1") as ctx:
        await harness.memory("t1").edit("cart", ["tea"])
        assert ctx.memory["cart"].value == ["tea"]


async def test_an_unknown_layer_is_said_with_those_there_are() -> None:
    with pytest.raises(nn.NoeticConfigError, match="working-memory"):
        await diary().memory("t1").edit("notes", {})


# -- going back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["thread", "resource"])
async def test_a_fork_runs_on_from_an_earlier_turn_and_the_thread_stays_as_it_is(scope: Any) -> None:
    harness = diary(scope)
    for n in range(1, 4):
        await harness.execute(f"message {n}", thread_id="t1", resource_id="ann")
    before = [dict(item) for item in harness.log("t1")]

    fork = await harness.memory("t1").rewind(1)

    assert fork == "t1@1"
    assert [item_text(item) for item in harness.log(fork) if item.role == "user"] == ["message 1"]
    assert await harness.memory(fork).state("working-memory") == {"turn": 1}
    reply = await harness.execute("another way", thread_id=fork)
    assert reply.text == "turn 4"
    assert await harness.memory(fork).state("working-memory") == {"turn": 4}
    assert [dict(item) for item in harness.log("t1")] == before
    assert await harness.memory("t1").state("working-memory") == {"turn": 3}
    assert harness.memory(fork).turns == (1, 2)


async def test_rewinding_to_the_beginning_is_a_thread_that_knows_nothing() -> None:
    harness = diary()
    await harness.execute("one", thread_id="t1")

    fork = await harness.memory("t1").rewind(0, thread_id="fresh")

    assert (fork, len(harness.log("fresh"))) == ("fresh", 0)
    assert await harness.memory("fresh").state("working-memory") is None


async def test_a_fork_of_a_fork_goes_back_within_it() -> None:
    harness = diary()
    await harness.execute("one", thread_id="t1")
    first = await harness.memory("t1").rewind(1)
    await harness.execute("two", thread_id=first)

    second = await harness.memory(first).rewind(1)
    third = await harness.memory("t1").rewind(1)

    assert await harness.memory(second).state("working-memory") == {"turn": 1}
    assert (second, third) == ("t1@1@1", "t1@1.2")


async def test_what_a_layer_keeps_beside_its_state_comes_along() -> None:
    harness = agent(nn.semantic_recall())
    await harness.execute("My locker number is 4711.", thread_id="t1")

    fork = await harness.memory("t1").rewind(1)
    async with harness.execution(thread_id=fork) as ctx:
        found = await ctx.memory["semantic-recall"].search(query="locker number")

    assert any("4711" in remark for remark in found)


async def test_rewinding_to_a_turn_that_was_not_or_under_a_name_that_is_taken_is_refused() -> None:
    harness = diary()
    await harness.execute("one", thread_id="t1")
    await harness.execute("two", thread_id="t2")

    with pytest.raises(nn.NoeticConfigError, match="turns are 1") as caught:
        await harness.memory("t1").rewind(5)
    assert caught.value.code == "UNKNOWN_TURN"
    with pytest.raises(nn.NoeticConfigError) as caught:
        await harness.memory("t1").rewind(1, thread_id="t2")
    assert caught.value.code == "THREAD_EXISTS"


async def test_the_history_of_states_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from noetic_nb.runtime._threads import state_history

    monkeypatch.setattr(state_history, "MAX_CHANGES", 5)
    monkeypatch.setattr(state_history, "MAX_SCOPES", 3)
    harness = agent(nn.durable_task_state())
    for n in range(6):
        for _ in range(3):
            await harness.execute("hi", thread_id=f"t{n}")

    remembered = [len(harness.memory(f"t{n}").history("durable-task-state")) for n in range(6)]
    assert remembered == [0, 0, 0, 5, 5, 5]
