"""Runs of real agents for tests of the transcript: a desk with a small budget, and one with a long conversation."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import noetic_nb as nn
from noetic_nb.events import (
    ItemsAppended,
    LayerTokens,
    ModelCalled,
    SteeringDecided,
    ToolCalled,
    ViewAssembled,
    Where,
)
from noetic_nb.items import assistant_message, function_call, input_message
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.runs import Run
from tests.widgets.scenes import HOSTILE

NOTES = (
    "Customer since 2019. Prefers email over phone.",
    "Order A17 was delayed twice in March; a voucher of 10 EUR was offered and accepted.",
    "Asked last week whether parcels can be left with a neighbour. Address: 12 Harbour Lane, second floor, ring twice.",
    "Long complaint of 2021 about a damaged box, with photographs, settled by a full refund. " * 6,
)


@nn.tool
def lookup(order_id: str) -> dict[str, Any]:
    """Find one order."""
    return {"order": order_id, "state": "packed", "carrier": "DHL", "due": "2026-03-14"}


@nn.tool
def refund(order_id: str, amount: float) -> dict[str, Any]:
    """Pay money back."""
    return {"order": order_id, "paid": amount}


def profile(name: str = "profile") -> MemoryLayer:
    def recall(p: Any) -> dict[str, Any]:
        return {"items": [input_message(text, "developer", item_id=f"{name}-{at}") for at, text in enumerate(NOTES)]}

    return MemoryLayer(id=name, slot=10, scope="thread", budget=90, hooks=MemoryHooks(recall=recall))


def mood() -> MemoryLayer:
    def recall(p: Any) -> str:
        return f"The customer has written {sum(item.get('role') == 'user' for item in p.log)} times and is in a hurry."

    return MemoryLayer(id="mood", slot=20, scope="thread", budget=60, hooks=MemoryHooks(recall=recall))


def rules() -> nn.RuleBook:
    book = nn.RuleBook()

    @book.rule(on="before_tool_call", tools=["refund"])
    def only_small_refunds(call: Any) -> Any:
        if call.tool_args["amount"] > 20:
            return nn.deny("Refunds above 20 EUR need a person. Offer a voucher instead.")
        return None

    @book.rule(on="after_model_call")
    def no_promises(response: Any) -> Any:
        return nn.guide("Do not promise a date.") if "promise" in response.text else None

    return book


def recorded(replies: list[Any], questions: list[str], *, total: float, layers: list[Any]) -> Run:
    """Run an agent in a separate thread, because a notebook already has an event loop."""
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(
            model="scripted",
            instructions="You work at the desk of a shop. Be brief and kind, and look an order up before you speak about it.",
            tools=[lookup, refund],
        ),
        memory=layers,
        projection=ProjectionPolicy(token_budget=total, response_reserve=100),
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies), diagnostic=lambda *about: None)
    run = nn.record(harness)

    async def talk() -> None:
        for question in questions:
            await harness.execute(question, thread_id="t1")

    worker = threading.Thread(target=lambda: asyncio.run(talk()))
    worker.start()
    worker.join()
    return run


def desk_run() -> Run:
    """Return four turns with a small budget: layers and history lose items, one rule guides an answer, another denies a call."""
    return recorded(
        [
            nn.CallTool("lookup", order_id="A17"),
            "Order A17 is packed and due on 14 March.",
            "I promise that it arrives on Friday.",
            "It should arrive on 14 March; I cannot give you a firmer date.",
            nn.CallTool("refund", order_id="A17", amount=49.9),
            "A refund of that size needs a colleague. Would a voucher help?",
            "You're welcome. The voucher is on its way by email.",
        ],
        [
            "Where is order A17? I have waited for two weeks, and last month it was the same with another parcel.",
            "Will it be here by Friday?",
            "Then I want my 49.90 back.",
            "Fine, a voucher then. Thank you.",
        ],
        total=760,
        layers=[profile(), mood(), nn.steering(rules())],
    )


def hostile_transcript() -> Run:
    """Return texts that imitate markup, as every kind of text in a request and its outcome."""
    run = Run(run_id="hostile")
    where = Where(HOSTILE[0], "e1", 1)
    names = (*HOSTILE, "constructor", "__proto__", "toString")
    items = tuple(input_message(text, item_id=f"i{at}") for at, text in enumerate(names))
    run.append(ItemsAppended(where, 0.0, 0, items, "user"))
    layer_items = tuple((text, input_message(text, "developer", item_id=f"l{at}")) for at, text in enumerate(names))
    layers = tuple(LayerTokens(text, 10.0, 5, 5.0, 1) for text in names)
    view = ViewAssembled(
        where, 0.0, 0, (0, len(items)), (), layers, layer_items, 9_000.0, 100.0, 20, 30, 10, 99, 500.0, len(items)
    )
    run.append(view)
    calls = tuple(function_call(text, f'{{"a": "{at}"}}', text, item_id=f"c{at}") for at, text in enumerate(names))
    run.append(ModelCalled(where, 1.0, 0, HOSTILE[1], "agent", 5.0, "ok", (assistant_message(HOSTILE[1]), *calls)))
    for text in names:
        decided = ("steering_decided", "before_tool_call", text, {"a": text})
        run.append(SteeringDecided(where, 2.0, *decided[:1], *decided[1:], text, text, (text,), 0.1))  # type: ignore[arg-type]
        run.append(ToolCalled(where, 2.0, text, text, {text: text}, text, 1.0, text, text))  # type: ignore[arg-type]
    return run


def imported_run() -> Run:
    """Return a conversation of another agent, without its requests."""
    return Run.from_messages(
        [
            {"role": "system", "content": "You book flights."},
            {"role": "user", "content": "Find me a flight to Rome."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"to": "FCO"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": '{"flights": ["AZ 610"]}'},
            {"role": "assistant", "content": "AZ 610 leaves at ten."},
        ]
    )


def large_request(items: int = 1_000) -> Run:
    """Return one call with many items in its conversation."""
    run = Run(run_id="large")
    where = Where("t1", "e1", 1)
    log = tuple(
        input_message(f"Message {at} about the same long story.", item_id=f"i{at}")
        if at % 2 == 0
        else assistant_message(f"Answer {at}.", item_id=f"i{at}")
        for at in range(items)
    )
    run.append(ItemsAppended(where, 0.0, 0, log, "seed"))
    run.append(ViewAssembled(where, 0.0, 0, (0, items), (), (), (), 1e6, 0.0, 20, 30, 10, 20 * items, 1e6, items))
    run.append(ModelCalled(where, 1.0, 0, "scripted", "agent", 5.0, "ok", (assistant_message("Yes.", item_id="a"),)))
    return run


def many_calls(calls: int = 10_000) -> Run:
    """Return a long run of short calls."""
    run = Run(run_id="many")
    for number in range(calls):
        where = Where("t1", f"e{number}", number + 1)
        run.append(ItemsAppended(where, 0.0, 2 * number, (input_message(f"Q{number}", item_id=f"q{number}"),), "user"))
        run.append(
            ViewAssembled(
                where,
                0.0,
                0,
                (max(0, 2 * number - 10), 2 * number + 1),
                (),
                (),
                (),
                900.0,
                0.0,
                20,
                30,
                10,
                99,
                500.0,
                11,
                max(0, 2 * number - 10),
            )
        )
        answer = (assistant_message(f"A{number}", item_id=f"a{number}"),)
        run.append(ModelCalled(where, 1.0, 0, "scripted", "agent", 5.0, "ok", answer, 100, 3))
        run.append(ItemsAppended(where, 1.0, 2 * number + 1, answer, "model"))
    return run
