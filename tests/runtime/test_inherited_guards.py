"""Children keep the layers that enforce rules, whatever other layers they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ErrorRaised, RegulatorSaw, SteeringDecided
from noetic_nb.steering import RuleBook
from noetic_nb.steps import Registry, load_step, load_workflow

PAID: list[int] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()


@nn.tool
def pay(amount: int) -> str:
    """Pay someone."""
    PAID.append(amount)
    return "paid"


@nn.tool
async def wait() -> str:
    """Yield to other tasks."""
    for _ in range(20):
        await asyncio.sleep(0)
    return "waited"


def notes() -> nn.MemoryLayer:
    return nn.MemoryLayer(id="notes", slot=100, scope="execution", hooks=nn.MemoryHooks(recall=lambda p: "a note"))


def denying(*, guidance: str = "No payments.", rule: str = "no_pay") -> RuleBook:
    book = RuleBook()
    book.rule(rule, on="before_tool_call", tools=["pay"])(lambda call: nn.deny(guidance))
    return book


def harness(step: Any, *layers: nn.MemoryLayer, model: Any = None, **options: Any) -> nn.AgentHarness:
    scripted = model or nn.ScriptedModel([nn.CallTool("pay", amount=1), "Done."])
    return nn.AgentHarness(nn.AgentConfig(name="desk", step=step, memory=[*layers]), model=scripted, **options)


PAY = nn.step.tool("pay", pay, {"amount": 1}, takes_input=False)
REGISTRY = Registry(tools=[pay], layers=[notes()])
AGENT = nn.react(model="scripted", tools=[pay])


def started(**options: Any) -> Any:
    async def begin(value: Any, ctx: Any) -> Any:
        return await ctx.start(PAY, **options).result()

    return nn.step.run("begin", begin)


PATHS: dict[str, Callable[[], Any]] = {
    "spawn": lambda: nn.spawn("s", PAY),
    "spawn with other layers": lambda: nn.spawn("s", PAY, memory=[notes()]),
    "spawn without layers": lambda: nn.spawn("s", PAY, memory=[]),
    "spawn in a spawn": lambda: nn.spawn("s", nn.spawn("t", PAY, memory=[]), memory=[notes()]),
    "fork": lambda: nn.fork("f", mode="all", paths=[PAY], merge="first"),
    "fork in a spawn": lambda: nn.spawn("s", nn.fork("f", mode="all", paths=[PAY], merge="first"), memory=[]),
    "start": lambda: started(),
    "start in a spawn": lambda: nn.spawn("s", started(), memory=[notes()]),
    "loaded step": lambda: load_step(
        {
            "kind": "spawn",
            "id": "s",
            "memory": [],
            "child": {"kind": "tool", "id": "p", "tool": {"$ref": "tool:pay"}, "args": {"amount": 1}},
        },
        REGISTRY,
    ),
    "workflow": lambda: load_workflow(
        {
            "version": 1,
            "root": {
                "kind": "spawn",
                "id": "s",
                "layers": ["notes"],
                "child": {"kind": "tool", "id": "p", "toolName": "pay", "args": {"amount": 1}},
            },
        },
        REGISTRY,
    ),
}


@pytest.mark.parametrize("path", PATHS)
async def test_no_child_escapes_the_rules_of_its_parent(path: str) -> None:
    with pytest.raises(NoeticError):
        await harness(PATHS[path](), nn.steering(denying())).execute("go")

    assert PAID == []


async def test_an_agent_with_layers_of_its_own_keeps_the_rules() -> None:
    agent = nn.react(model="scripted", tools=[pay], memory=[notes()])

    reply = await harness(agent, nn.steering(denying())).execute("go")

    assert (PAID, reply.text) == ([], "Done.")


@pytest.mark.parametrize("hook", ["before_tool_call", "after_model_call"])
async def test_any_layer_that_enforces_comes_along_with_what_it_needs(hook: str) -> None:
    """A layer with an `init` and no `on_spawn` has no state in a child, and must decide there all the same."""
    seen: list[Any] = []
    hooks = {
        "init": lambda p: {"state": {"ready": True}},
        hook: lambda p: seen.append(p.state) or nn.deny("No."),
    }
    guard = nn.MemoryLayer(id="guard", slot=5, scope="execution", hooks=nn.MemoryHooks(**hooks))
    child = PAY if hook == "before_tool_call" else AGENT

    with pytest.raises(NoeticError):
        await harness(nn.spawn("s", child, memory=[]), guard).execute("go")

    assert (PAID, seen) == ([], [{"ready": True}])


async def test_only_the_layers_that_enforce_come_along() -> None:
    seen: list[Any] = []
    look = nn.step.run("look", lambda value, ctx: seen.append([layer.id for layer in ctx.engine.stack.layers]))

    await harness(nn.spawn("s", look, memory=[notes()]), nn.working_memory(), nn.steering(denying())).execute("go")

    assert seen == [["steering", "notes"]]


def rows(run: nn.Run, *, depth: int) -> list[tuple[str, str, tuple[str, ...]]]:
    return [
        (e.layer_id, e.action, e.rule_ids)
        for e in run.events
        if isinstance(e, SteeringDecided) and e.where.depth == depth
    ]


async def test_a_layer_of_the_same_id_is_judged_in_addition_and_both_leave_a_row() -> None:
    outer, inner = RuleBook(), RuleBook()
    outer.when("tool.name == 'pay'", id="outer", action="guide", guidance="Less.")
    inner.when("tool.name == 'pay'", id="inner", guidance="Never.")
    desk = harness(nn.spawn("s", AGENT, memory=[nn.steering(inner)]), nn.steering(outer))
    run = nn.record(desk)

    await desk.execute("go")

    calls = [row for row in rows(run, depth=1) if row[2]]
    assert calls == [("steering", "guide", ("outer",)), ("steering", "deny", ("inner",))]
    assert PAID == []


@pytest.mark.parametrize(("own", "wanted"), [("parent", "outer"), ("child", "inner")])
async def test_the_most_restrictive_of_both_wins(own: str, wanted: str) -> None:
    strict, silent = denying(rule=wanted), RuleBook()
    layers = (strict, silent) if own == "parent" else (silent, strict)

    with pytest.raises(NoeticError) as caught:
        await harness(nn.spawn("s", PAY, memory=[nn.steering(layers[1])]), nn.steering(layers[0])).execute("go")

    assert (caught.value.rule_id, PAID) == (wanted, [])


async def test_each_ledger_of_a_child_begins_by_on_spawn_and_is_its_own() -> None:
    ledgers: list[Any] = []

    def look(value: Any, ctx: Any) -> None:
        states = ctx.engine.stack.state.states(ctx.id)
        ledgers.append({name: [entry["kind"] for entry in state["ledger"]] for name, state in states.items()})

    child = nn.loop("l", [PAY, nn.step.run("look", look)], until=nn.until.max_steps(1), needs_output=False)
    three = nn.spawn("s", nn.spawn("t", child, memory=[nn.steering(RuleBook())]), memory=[nn.steering(RuleBook())])

    await harness(three, nn.steering(RuleBook())).execute("go")

    assert ledgers == [{name: ["tool_call"] for name in ("steering", "steering@0", "steering@1")}]
    assert PAID == [1]


async def test_the_same_layer_given_again_decides_once() -> None:
    guard = nn.steering(RuleBook())
    desk = harness(nn.spawn("s", PAY, memory=[guard]), guard)
    run = nn.record(desk)

    await desk.execute("go")

    assert len(rows(run, depth=1)) == 1


DROPPED: dict[str, Callable[[], Any]] = {
    "spawn": lambda: nn.spawn("s", PAY, drop=("steering",)),
    "spawn with other layers": lambda: nn.spawn("s", PAY, memory=[notes()], drop=["steering"]),
    "spawn two deep": lambda: nn.spawn("s", nn.spawn("t", PAY, memory=[]), drop=("steering",)),
    "spawn below another of the same id": lambda: nn.spawn(
        "s", nn.spawn("t", PAY, drop=("steering",)), memory=[nn.steering(denying())]
    ),
    "react": lambda: nn.react(model="scripted", tools=[pay], memory=[], drop=("steering",)),
    "react that keeps the other layers": lambda: nn.react(model="scripted", tools=[pay], drop=("steering",)),
    "start": lambda: started(drop=("steering",)),
    "loaded step": lambda: load_step(
        {
            "kind": "spawn",
            "id": "s",
            "drop": ["steering"],
            "child": {"kind": "tool", "id": "p", "tool": {"$ref": "tool:pay"}, "args": {"amount": 1}},
        },
        REGISTRY,
    ),
}


@pytest.mark.parametrize("path", DROPPED)
async def test_what_is_dropped_by_name_is_gone_and_the_run_says_so(path: str) -> None:
    from noetic_nb.events import LayersDropped

    desk = harness(DROPPED[path](), nn.steering(denying()))
    run = nn.record(desk)

    await desk.execute("go")

    assert PAID == [1]
    dropped = [event for event in run.events if isinstance(event, LayersDropped)]
    assert [(event.layer_ids, event.where.depth > 0) for event in dropped] == [(("steering",), True)]


async def test_a_dropped_layer_is_replaced_by_one_that_is_given() -> None:
    spawned = nn.spawn("s", PAY, memory=[nn.steering(denying(rule="mine"))], drop=("steering",))

    with pytest.raises(NoeticError) as caught:
        await harness(spawned, nn.steering(denying(rule="theirs"))).execute("go")

    assert caught.value.rule_id == "mine"


async def test_a_name_that_no_layer_has_drops_nothing() -> None:
    with pytest.raises(NoeticError):
        await harness(nn.spawn("s", PAY, drop=("sterring",)), nn.steering(denying())).execute("go")

    assert PAID == []


def test_a_check_finds_what_is_dropped() -> None:
    step = nn.spawn("s", nn.spawn("t", PAY, drop=("sterring",)), drop=("steering", "notes"))

    found = harness(step, nn.steering(denying()), notes()).check()

    levels = [
        (f.level, f.code, [name for name in ("'steering'", "'notes'", "'sterring'") if name in f.message])
        for f in found
    ]
    assert ("warning", "LAYERS_DROPPED", ["'steering'", "'notes'"]) in levels
    assert ("warning", "UNKNOWN_LAYER", ["'sterring'"]) in levels


def test_what_is_dropped_survives_the_form_as_json() -> None:
    written = nn.dump_step(nn.spawn("s", PAY, drop=("steering",)), REGISTRY)

    assert written["drop"] == ["steering"]
    assert load_step(written, REGISTRY).drop == ("steering",)


@pytest.mark.parametrize("drop", ["steering", [""], [3], 3])
def test_what_is_to_be_dropped_is_a_list_of_ids(drop: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        nn.spawn("s", PAY, drop=drop)

    assert caught.value.code == "INVALID_STEP"


async def test_a_late_verdict_of_an_inherited_layer_reaches_the_child_that_it_is_about() -> None:
    """Queues belong to one execution each: two layers with one id do not use each other's."""
    book = RuleBook()
    book.judge("Is it fine?", id="watch", mode="async", model="judge")
    script = {
        "scripted": [nn.CallTool("wait"), "Done."],
        "judge": ["DENY: Look again."],
    }
    model = nn.ScriptedModel(script)
    agent = nn.react(model="scripted", tools=[wait], memory=[nn.steering(RuleBook())])

    await harness(agent, nn.steering(book), model={"scripted": model, "judge": model}).execute("go")

    sent = [str(list(request.items)) for request in model.requests if request.purpose == "agent"]
    assert ["Look again." in text for text in sent] == [False, True]


@pytest.mark.parametrize(
    "child", [lambda: nn.spawn("s", PAY), lambda: nn.fork("f", mode="all", paths=[PAY], merge="first")]
)
async def test_a_guard_of_a_thread_is_no_rival_of_itself(child: Callable[[], Any]) -> None:
    """A layer with an `init` and no `on_spawn` is initialised in the child; it writes to the parent's key, or nowhere."""

    def count(params: Any) -> Any:
        return {"state": {"calls": params.state["calls"] + 1}}

    async def load(params: Any) -> Any:
        return {"state": await params.storage.get("state") or {"calls": 0}}

    hooks = nn.MemoryHooks(init=load, before_tool_call=count)
    guard = nn.MemoryLayer(id="guard", slot=5, scope="thread", hooks=hooks)
    twice = nn.loop("l", [PAY, child(), PAY], until=nn.until.max_steps(1))
    desk = harness(twice, guard)
    run = nn.record(desk)

    await desk.execute("go")

    assert [event for event in run.events if isinstance(event, ErrorRaised)] == []
    assert PAID == [1, 1, 1]


@pytest.mark.parametrize("child", [lambda step: nn.spawn("s", step), lambda step: nn.spawn("s", step, memory=[])])
async def test_a_regulation_counts_the_calls_of_a_child_in_the_turn_of_its_parent(child: Callable[..., Any]) -> None:
    made: list[str] = []

    @nn.tool
    def look(q: str) -> str:
        """Look."""
        made.append(q)
        return "nothing"

    def act(request: nn.ModelRequest) -> Any:
        return nn.CallTool("look", q="x")

    config = nn.AgentConfig(
        name="desk",
        step=child(nn.react(model="m", tools=[look])),
        memory=[nn.regulation(nn.Regulator.for_user("ann"))],
    )
    desk = nn.AgentHarness(config, model=nn.ScriptedModel(act))
    run = nn.record(desk)

    reply = await desk.execute("go")

    seen = [event.event["kind"] for event in run.select(RegulatorSaw)]
    assert len(made) == 4
    assert reply.stopped is not None
    assert reply.stopped["reason"]["kind"] == "repeated_tool_call_loop"
    assert seen.count("tool_call") == 5
    assert "cost" in seen
    assert [kind for kind in seen if kind.startswith("turn")] == ["turn_start"]
    assert [event for event in run.events if isinstance(event, ErrorRaised)] == []
