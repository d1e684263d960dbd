"""Random agents with rules of every deterministic form, a regulator, layers and children; and their runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.items import input_message
from noetic_nb.layers import regulation
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.regulator import CallBudget, CostCap, QualityDecline, Regulator, ToolLoop
from noetic_nb.runs import Run
from noetic_nb.steering import allow, ask, deny, guide
from noetic_nb.testing import FakeClock, SeededIds


@nn.tool
def find(place: int, text: str = "") -> str:
    """Find something."""
    if place == 4:
        raise ValueError("nothing there")
    return f"found {place} {text} " * place


@nn.tool
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount}"


def random_rules(rng: random.Random) -> nn.RuleBook:
    """Return a book with rules of every deterministic form."""
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call", tools=["pay"])
    def large(call: Any) -> Any:
        if call.tool_args["amount"] > 50:
            return deny("Too much.")
        return guide("Say why.") if call.tool_args["amount"] > 40 else None

    @rules.rule(on="after_model_call")
    async def waits(response: Any) -> Any:
        await asyncio.sleep(0)
        return guide("Be brief.") if len(response.text) > 30 else allow()

    @rules.rule(on="before_tool_call", history=True)
    def often(call: Any) -> Any:
        return deny("Enough.") if len([past for past in call.history if past.name == call.tool_name]) > 2 else None

    @rules.rule(on="before_tool_call", tools=["find"])
    def raises(call: Any) -> Any:
        return {"a": 1}["no"] if call.tool_args["place"] == 3 else None

    @rules.rule(on="before_tool_call", tools=["pay"])
    def asks(call: Any) -> Any:
        return ask("Sure?") if call.tool_args["amount"] == 40 else None

    @rules.rule(on="before_tool_call")
    def remembers(call: Any) -> Any:
        refused = [entry for entry in call.state["ledger"] if entry.get("action") == "deny"]
        return deny("Three times no.") if len(refused) > 2 else None

    @rules.rule(on="after_model_call")
    def counts(response: Any) -> Any:
        return guide("Come to an end.") if len(response.state["ledger"]) % 7 == 6 else None

    rules.when("tool.args.place == 2", id="cel", on="before_tool_call", tools=["find"], guidance="Not two.")
    rules.when(
        'origin(tool.args.amount) == "user"',
        id="origin",
        on="before_tool_call",
        tools=["pay"],
        action="guide",
        guidance="As the user said.",
    )
    rules.at_most(2, "pay", id="twice")
    rules.never("pay", after="find", id="order")
    rules.only("pay", after="find", id="first", action="guide")
    rules.only_from_user("pay", "amount", id="own")
    for rule in list(rules):
        if rng.random() < 0.4:
            rules.remove(rule.id)
        elif rng.random() < 0.2:
            rules.disable(rule.id)
    return rules


def random_regulator(rng: random.Random) -> Regulator:
    predicates: list[Any] = [
        CostCap(tokens_out=rng.choice([None, 20, 60]), usd=rng.choice([None, 0.3]), poor_mean=None),
        CallBudget(total=rng.choice([3, 5]), per_tool={}),
        ToolLoop(),
        QualityDecline(),
    ]
    return Regulator.for_user("ann").with_predicates(*rng.sample(predicates, rng.randrange(1, 4)))


def offering_layer(rng: random.Random, layer_id: str) -> MemoryLayer:
    sizes = [rng.randrange(1, 80) for _ in range(rng.randrange(5))]

    def recall(p: Any) -> Any:
        return {
            "items": [
                input_message(f"{layer_id} {n} " * n, "developer", item_id=f"{layer_id}{at}")
                for at, n in enumerate(sizes)
            ]
        }

    budget: Any = rng.choice([None, "auto", 30, 200, {"min": 20, "max": 300}])
    return MemoryLayer(id=layer_id, slot=1, scope="thread", budget=budget, hooks=MemoryHooks(recall=recall))


def storing_layer(rng: random.Random, layer_id: str) -> MemoryLayer:
    """Return a layer that stores every answer and offers its notes, per thread."""
    most = rng.choice([1, 3])

    def recall(p: Any) -> Any:
        notes = [] if p.state is None else p.state["notes"]
        return {
            "items": [input_message(note, "developer", item_id=f"{layer_id}-{at}") for at, note in enumerate(notes)]
        }

    def store(p: Any) -> Any:
        notes = [] if p.state is None else p.state["notes"]
        return {"state": {"notes": [*notes, f"{layer_id}: {len(p.log)} items, {p.response.items[-1]['type']}"][-most:]}}

    hooks = MemoryHooks(recall=recall, store=store, on_spawn=lambda p: {"child_state": p.parent_state})
    return MemoryLayer(id=layer_id, slot=2, scope="thread", budget=rng.choice(["auto", 40]), hooks=hooks)


def projecting_layer(rng: random.Random) -> MemoryLayer:
    """Return a layer that omits the oldest tool messages from the history, or replaces them by a note."""
    note = rng.random() < 0.5

    def project_history(p: Any) -> Any:
        if len(p.items) < 6:
            return None
        kept = list(p.items[-4:])
        while kept and kept[0]["type"] == "function_call_output":
            kept.pop(0)
        first = [input_message("What was before is left out.", "developer", item_id="left-out")] if note else []
        return {"items": [*first, *kept]}

    return MemoryLayer(
        id="projecting", slot=3, scope="execution", budget=0, hooks=MemoryHooks(project_history=project_history)
    )


def random_answer(rng: random.Random) -> Any:
    drawn = rng.random()
    if drawn < 0.35:
        return nn.CallTool("find", place=rng.randrange(6), text=rng.choice(["a", "b"]))
    if drawn < 0.55:
        return nn.CallTool("pay", amount=rng.choice([10, 40, 41, 60]))
    return nn.Reply(
        text=rng.choice(["ok", "done then", "words " * 12]),
        usage={"input_tokens": rng.randrange(50), "output_tokens": rng.randrange(40)},
        cost=rng.choice([0.05, 0.2]),
    )


async def random_run(seed: int, *, edits: bool = True) -> Run:
    """Return the run of an agent; with `edits`, rules are switched during the run."""
    rng = random.Random(seed)
    layers: list[Any] = [offering_layer(rng, f"layer{at}") for at in range(rng.randrange(3))]
    layers += [storing_layer(rng, f"notes{at}") for at in range(rng.randrange(3))]
    if rng.random() < 0.4:
        layers.append(projecting_layer(rng))
    rules = random_rules(rng)
    layers.append(nn.steering(rules, scope=rng.choice(["execution", "thread", "resource"])))
    if rng.random() < 0.7:
        layers.append(regulation(random_regulator(rng)))
    inner = nn.react(model="scripted", instructions="Work.", max_steps=rng.choice([3, 6]))
    body = inner if rng.random() < 0.7 else nn.spawn("child", inner)
    config = nn.AgentConfig(
        name="desk",
        step=body,
        memory=layers,
        tools=[find, pay],
        projection=ProjectionPolicy(
            token_budget=rng.choice([200, 600, 4_000]),
            response_reserve=20,
            overflow=rng.choice(["truncate", "sliding_window"]),
        ),
    )

    async def approve(name: str, args: Any) -> bool:
        return rng.random() < 0.5

    harness = nn.AgentHarness(
        config,
        model=nn.ScriptedModel(lambda request: random_answer(rng)),
        clock=FakeClock(step_ms=3),
        ids=SeededIds(seed),
        approve=approve,
    )
    run = nn.record(harness)
    for turn in range(4):
        thread = rng.choice(["t1", "t2"])
        with contextlib.suppress(NoeticError):
            await harness.execute(f"message {turn}, pay 40 " * rng.randrange(1, 6), thread_id=thread, resource_id="ann")
        if rng.random() < 0.4 and thread in run.threads:
            await harness.feedback(thread, quality=rng.random())
        if rng.random() < 0.3 and edits and len(rules):
            first = next(iter(rules)).id
            rules.disable(first) if rules[first].enabled else rules.enable(first)
    run.stop_recording()
    return run
