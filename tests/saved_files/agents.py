"""The agents, rules and regulator behind the saved files, by public names only.

``python -m tests.saved_files.agents FOLDER`` writes the files with whichever version of the library is imported.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.regulator import (
    CostCap,
    LowConfidence,
    ProceduralWarning,
    QualityDecline,
    RepeatedFailure,
    ScopeDrift,
    ToolLoop,
    events,
)
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, CONTEXT_THRESHOLD
from noetic_nb.steering import LLMEval, SequenceRule, save_rules
from noetic_nb.steps import Registry, branch, fork, loop, spawn, step, until
from noetic_nb.testing import FakeClock, SeededIds

KILL = "NOETIC_NB_KILL_AT"


def text_of(item: Any) -> str:
    """Return the text of a message or the output of a call."""
    return "".join(part.get("text", "") for part in item["content"]) if item["type"] == "message" else item["output"]


# -- a recorded run: tools, steering, a regulator, a child -----------------------------------------------------------------


@nn.tool
def lookup(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


@nn.tool
def refund(order_id: str, amount: int) -> str:
    """Pay an order back."""
    return f"refunded {amount} for {order_id}"


def limit(call: Any) -> Any:
    """Deny what is too much, and ask for a reason where it is much."""
    if call.tool_args["amount"] > 100:
        return nn.deny("Refunds end at 100.")
    return nn.guide("Say why.") if call.tool_args["amount"] > 50 else nn.allow()


def desk_replies(request: Any) -> Any:
    """Answer the desk's requests: look up, refund what the user says, hand over to a child."""
    last = request.items[-1]
    if last["type"] == "function_call_output":
        return nn.Reply(f"It is done: {last['output']}", usage=nn.Usage(40, 8), cost=0.002)
    words = text_of(last).split()
    match words:
        case ["refund", amount]:
            return nn.Reply(
                tool_calls=[nn.CallTool("refund", order_id="A1", amount=int(amount))], usage=nn.Usage(30, 9)
            )
        case ["order", name]:
            return nn.Reply(tool_calls=[nn.CallTool("lookup", order_id=name)], usage=nn.Usage(20, 6))
    return nn.Reply(f"You said: {' '.join(words)}", usage=nn.Usage(20, 5), logprobs=[-0.1, -0.2])


def recommended_then(user_id: str) -> nn.Regulator:
    """Return what `Regulator.recommended` was when the files were written: presets change, saved settings do not."""
    return nn.Regulator.recommended(user_id).with_predicates(
        CostCap(),
        QualityDecline(),
        ToolLoop(threshold=8),
        ToolLoop(threshold=3, by="call", across_turns=True),
        ToolLoop(threshold=3, by="call", period=2, across_turns=True),
        ToolLoop(threshold=3, by="call", period=3, across_turns=True),
        ToolLoop(threshold=3, by="result", across_turns=True),
        RepeatedFailure(threshold=3),
        ScopeDrift(scorer=CONTEXT_SCORER, threshold=CONTEXT_THRESHOLD),
        ProceduralWarning(),
        LowConfidence(),
    )


def desk() -> nn.AgentHarness:
    """Return the agent of the recorded run."""
    limits = nn.SteeringRule(id="limit", applies_to="before_tool_call", tools=["refund"], predicate=limit)
    agent = nn.react(model="m", tools=[lookup, refund], max_steps=4)
    whole = loop("desk", [agent, spawn("summary", step.llm("summarise", model="m"))], until=until.max_steps(2))
    config = nn.AgentConfig(
        name="desk",
        step=whole,
        memory=[nn.working_memory(), nn.steering(rules=[limits]), nn.regulation(recommended_then)],
        params={"shop": "north"},
    )
    return nn.AgentHarness(config, model=nn.ScriptedModel(desk_replies), clock=FakeClock(1_000), ids=SeededIds())


async def write_run(folder: Path) -> None:
    harness = desk()
    run = nn.record(harness)
    await harness.execute("order A1", thread_id="t1", resource_id="ann")
    await harness.feedback("t1", quality=0.75)
    await harness.execute("refund 40", thread_id="t1", resource_id="ann")
    await harness.execute("refund 400", thread_id="t2", resource_id="bob")
    await harness.correct("t1", "shorter, please")
    run.save(folder / "run.jsonl.gz")


# -- rules ----------------------------------------------------------------------------------------------------------------


def rules() -> list[nn.SteeringRule]:
    """Return one rule of every form that a file can hold."""
    before = {"applies_to": ("before_tool_call",)}
    return [
        nn.SteeringRule(
            id="outside", name="Stay inside", when="tool.name == 'rm' && !tool.args.path.startsWith('/srv')", **before
        ),
        nn.SteeringRule(
            id="dear", when="ctx.cost > 0.5", action="guide", guidance="Finish: {ctx.cost} is spent.", **before
        ),
        nn.SteeringRule(id="sure", when="history.size() > 3", action="ask", tools=["pay"], **before),
        nn.SteeringRule(id="known", when="tool.name == 'read'", action="allow", enabled=False, **before),
        nn.SteeringRule(
            id="search-first", sequence=SequenceRule(kind="only_after", others=("search",)), tools=["book"], **before
        ),
        nn.SteeringRule(
            id="not-after-paying",
            sequence=SequenceRule(kind="never_after", others=("pay", "charge")),
            action="guide",
            guidance="The money is gone.",
            tools=["cancel"],
            **before,
        ),
        nn.SteeringRule(id="thrice", sequence=SequenceRule(kind="at_most", count=3), tools=["search"], **before),
        nn.SteeringRule(
            id="kind",
            applies_to=("before_tool_call", "after_model_call"),
            llm_eval=LLMEval(mode="sync", prompt="Is it kind?", model="judge"),
        ),
        nn.SteeringRule(
            id="honest",
            applies_to=("after_model_call",),
            when="ctx.depth == 0",
            llm_eval=LLMEval(mode="async", prompt="Is it true?\nOr a guess?", model="judge"),
        ),
        nn.SteeringRule(id="limit", predicate=limit, tools=["refund"], **before),
    ]


async def write_rules(folder: Path) -> None:
    save_rules(rules(), folder / "rules.yaml")
    save_rules(rules(), folder / "rules.json")


# -- a cassette -----------------------------------------------------------------------------------------------------------


def cassette_requests() -> list[nn.ModelRequest]:
    """Return what was sent when the cassette was recorded."""
    from noetic_nb.items import input_message
    from noetic_nb.models import ToolSpec

    find = ToolSpec("find", "Find an order.", {"type": "object", "properties": {"id": {"type": "string"}}})
    return [
        nn.ModelRequest(model="m", items=(input_message("Where is A1?", item_id="u1"),), tools=(find,)),
        nn.ModelRequest(
            model="m",
            items=(input_message("Be brief.", "system", item_id="s1"), input_message("And B2?", item_id="u2")),
            params=nn.ModelParams(temperature=0.5),
        ),
    ]


async def write_cassette(folder: Path) -> None:
    from noetic_nb.models import TokenLogprob

    replies = [
        nn.Reply(tool_calls=[nn.CallTool("find", id="A1")], usage=nn.Usage(7, 3, 2), cost=0.002, reasoning="Look."),
        nn.Reply("Packed.", usage=nn.Usage(9, 2), logprobs=[TokenLogprob("Packed", -0.5, (("Packed", -0.5),))]),
    ]
    path = folder / "cassette.jsonl"
    path.unlink(missing_ok=True)
    model = nn.CassetteModel(path, nn.ScriptedModel(replies))
    for request in cassette_requests():
        await model.complete(request)


# -- a durable thread, and a turn that was cut off ------------------------------------------------------------------------


@nn.tool
async def pay(amount: int, ctx: Any) -> str:
    """Pay; the process ends in the payment that the environment names."""
    if os.environ.get(KILL) == f"{ctx.place}:{amount}":
        os._exit(9)
    PAID.append((ctx.place, amount, ctx.idempotency_key))
    return f"paid {amount}"


PAID: list[tuple[str, int, str]] = []
"""What was paid in this process: where, how much, and the idempotency key."""


def paying(request: Any) -> Any:
    """Note the first word, or pay twice and say so."""
    words = [text_of(item).split() for item in request.items if item.get("role") == "user"]
    if words and words[-1][0] == "note":
        if request.items[-1]["type"] == "function_call_output":
            return nn.Reply("Noted.", cost=0.5)
        names = ("working-memory/update", "person/update")
        return nn.Reply(tool_calls=[nn.CallTool(name, last=words[-1][1]) for name in names], cost=0.5)
    paid = sum(item["type"] == "function_call_output" for item in request.items)
    if paid < 2:
        return nn.Reply(tool_calls=[nn.CallTool("pay", amount=paid + 1)], cost=1.0)
    return nn.Reply(f"all of {text_of(request.items[-1])}", cost=1.0)


def count_layer() -> nn.MemoryLayer:
    """Return a layer that counts stores, and adds what its children counted and 100 for each child."""
    hooks = nn.MemoryHooks(
        init=lambda p: {"state": {"n": 0}},
        on_spawn=lambda p: {"child_state": {"n": 0}},
        store=lambda p: {"state": {"n": p.state["n"] + 1}},
        on_return=lambda p: {"parent_state": {"n": p.parent_state["n"] + p.child_state["n"] + 100}},
    )
    return nn.MemoryLayer(id="count", slot=200, scope="execution", hooks=hooks)


def talker(storage: Any) -> nn.AgentHarness:
    """Return the agent of the durable thread."""
    config = nn.AgentConfig(
        name="talker",
        step=nn.react(model="m", max_steps=4),
        memory=[nn.working_memory(), nn.working_memory(id="person", scope="resource")],
    )
    return nn.AgentHarness(config, model=nn.ScriptedModel(paying), storage=storage, checkpoints=True, ids=SeededIds())


def cashier(storage: Any) -> nn.AgentHarness:
    """Return the agent whose turn was cut off: a child that had ended, then two beside each other."""

    def payer(name: str) -> Any:
        return spawn(name, nn.react(model="m", tools=[pay], max_steps=5))

    whole = loop(
        "once",
        [
            payer("first"),
            step.run("between", lambda value, ctx: f"{value}, then"),
            fork(
                "both", mode="all", paths=[payer("left"), spawn("outer", payer("inner"))], merge="concat", concurrency=1
            ),
            step.run("after", lambda value, ctx: f"{value}, over"),
        ],
        until=until.max_steps(1),
    )
    config = nn.AgentConfig(name="cashier", step=whole, memory=[nn.working_memory(), count_layer()])
    return nn.AgentHarness(config, model=nn.ScriptedModel(paying), storage=storage, checkpoints=True)


def _packed(path: Path) -> None:
    """Put everything into the one file, at its smallest."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


async def write_thread(folder: Path) -> None:
    path = folder / "thread.db"
    path.unlink(missing_ok=True)
    async with nn.SQLiteStorage(path) as store:
        harness = talker(store)
        await harness.execute("note blue", thread_id="t1", resource_id="ann")
        await harness.execute("note green", thread_id="t1", resource_id="ann")
        await harness.execute("note red", thread_id="t2", resource_id="bob")
    _packed(path)


async def write_unfinished(folder: Path) -> None:
    path = folder / "unfinished.db"
    path.unlink(missing_ok=True)
    code = f"import asyncio; from tests.saved_files import agents; asyncio.run(agents._begin({str(path)!r}))"
    async with nn.SQLiteStorage(path.with_name("whole.db")) as store:
        await cashier(store).execute("go", thread_id="t")
    for more in path.parent.glob("whole.db*"):
        more.unlink()
    place = [place for place, amount, _ in PAID if amount == 2][-1]
    environment = {**os.environ, KILL: f"{place}:2"}
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], env=environment, check=False)
    assert ended.returncode == 9, ended
    _packed(path)


async def _begin(path: str) -> None:
    async with nn.SQLiteStorage(path) as store:
        await cashier(store).execute("go", thread_id="t")


# -- a configuration and a workflow ---------------------------------------------------------------------------------------


class Order(BaseModel):
    id: str


def add(value: Any, ctx: Any) -> Any:
    """Add one."""
    return value + 1


def positive(value: Any, ctx: Any) -> Any:
    """Choose no way."""
    return None


def shout(value: Any, ctx: Any) -> str:
    """Return it in capitals."""
    return str(value).upper()


NOTES = nn.working_memory(id="notes")
REGISTRY = Registry([add, positive, shout], tools=[lookup], layers=[NOTES], schemas={"order": Order})


def config() -> nn.AgentConfig:
    """Return a configuration with a step of every kind."""
    run = step.run("add", add, retry={"max_attempts": 2, "backoff": "linear", "initial_delay_ms": 5})
    whole = loop(
        "all",
        [
            step.llm("ask", model="m", instructions="Be brief.", tools=[lookup], output=Order, tool_rounds=3),
            run,
            step.tool("find", lookup, {"order_id": "A"}, takes_input=False),
            branch("way", positive),
            branch("words", routes=[{"match": "yes", "target": run}], default=run),
            fork("both", mode="all", paths=[run, run], merge="concat", concurrency=2),
            spawn("sub", step.llm("inner", model="m"), context_in="inherit", context_out="summary", memory=[NOTES]),
        ],
        until=until.any(until.all(until.never(), until.converged(0.5)), until.max_cost(1.5)),
        max_iterations=7,
        on_error="skip",
    )
    return nn.AgentConfig(
        name="desk",
        step=whole,
        memory=[NOTES],
        tools=[lookup],
        projection=nn.ProjectionPolicy(token_budget=900, response_reserve=100, overflow="truncate"),
        force_atomic_recall=True,
        limits=nn.Limits(max_steps=20),
        params={"shop": "north"},
    )


WORKFLOW = {
    "version": 1,
    "root": {
        "kind": "sequence",
        "id": "main",
        "steps": [
            {"kind": "run", "id": "loud", "execute": {"$ref": "fn:shout"}},
            {
                "kind": "branch",
                "id": "way",
                "routes": [{"match": "HI", "target": {"kind": "llm", "id": "ask", "model": "m", "instructions": "Be kind."}}],
                "default": {"kind": "tool", "id": "find", "toolName": "lookup", "args": {"order_id": "A"}},
            },
            {
                "kind": "loop",
                "id": "again",
                "body": {"kind": "spawn", "id": "child", "child": {"kind": "run", "id": "l", "execute": {"$ref": "fn:shout"}}},
                "until": {"kind": "maxSteps", "n": 2},
            },
        ],
    },
}  # fmt: skip


async def write_config(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(nn.dump_config(config(), REGISTRY), indent=1))


async def write_workflow(folder: Path) -> None:
    nn.load_workflow(WORKFLOW, REGISTRY)
    (folder / "workflow.json").write_text(json.dumps(WORKFLOW, indent=1))


# -- a regulator ----------------------------------------------------------------------------------------------------------


def regulator() -> nn.Regulator:
    """Return a regulator in the middle of a task, with something learned."""
    made = recommended_then("ann").with_cost_cap(500)
    for number in range(3):
        for event in (
            events.TurnStart("Refactor the async auth module"),
            events.Token("ok", -0.25, 0),
            events.ToolCall("search_orders", '{"q": 1}'),
            events.ToolResult("search_orders", True, 12),
            events.Cost(40, 25, 80),
            events.TurnComplete(f"I refactored part {number} and added logging."),
            events.QualityFeedback(0.75 - number / 10),
            events.UserCorrection("Do not add logging.", True),
        ):
            made.on_event(event)
    return made


async def write_regulator(folder: Path) -> None:
    (folder / "regulator.json").write_text(regulator().export_json("everything"))


async def main(folder: Path) -> None:
    for write in (
        write_run, write_rules, write_cassette, write_thread, write_unfinished, write_config, write_workflow,
        write_regulator,
    ):  # fmt: skip
        await write(folder)
        print(write.__name__)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
