"""Why an item was left out, and the budget that would have kept it: planted cases, and random agents by brute force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import Item, assistant_message, function_call, function_call_output, input_message
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.runs._requests.recorded_requests import RequestIndex, recorded_request
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runtime._planning.least_budget import AbsentItem, LeastBudget
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.testing import SeededIds
from tests.matrix import several
from tests.runs.test_recorded_requests import converse


def talk(*sizes: int) -> list[Item]:
    """Return alternating messages of a user and an assistant, with the given numbers of words."""
    make = [lambda text, at: input_message(text, item_id=at), lambda text, at: assistant_message(text, item_id=at)]
    return [make[place % 2](f"fact{place} " * size, f"m{place}") for place, size in enumerate(sizes)]


def recalls(layer_id: str, value: Any, budget: Any = None, slot: int = 1) -> MemoryLayer:
    def recall(p: Any) -> Any:
        return value

    return MemoryLayer(id=layer_id, slot=slot, scope="thread", budget=budget, hooks=MemoryHooks(recall=recall))


def offers(layer_id: str, *sizes: int, budget: Any = None, slot: int = 1) -> MemoryLayer:
    items = [input_message("note " * size, "developer", item_id=f"{layer_id}{at}") for at, size in enumerate(sizes)]
    return recalls(layer_id, {"items": items}, budget, slot)


def hides(*positions: int) -> MemoryLayer:
    def project_history(p: Any) -> dict[str, Any]:
        return {"items": [item for at, item in enumerate(p.items) if at not in positions]}

    return MemoryLayer(id="hides", slot=9, scope="thread", hooks=MemoryHooks(project_history=project_history))


def asked(
    history: list[Item], *layers: MemoryLayer, query: str = "And now?", instructions: str | None = None, **policy: Any
) -> RecordedRequest:
    """Return the recorded call of an agent that gets one message after a conversation."""
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", instructions=instructions),
        memory=layers,
        projection=ProjectionPolicy(**{"response_reserve": 0, "overflow": "truncate", **policy}),
    )
    model = nn.ScriptedModel(lambda request: "So it is.")
    harness = nn.AgentHarness(config, model=model, ids=SeededIds())
    run = nn.record(harness)
    if history:
        harness.seed("t", history)
    asyncio.run(harness.execute(query, thread_id="t"))
    return recorded_request(run, 0)


CALL = function_call("find", "{}", "c1", item_id="call")
OUTPUT = function_call_output("c1", "found " * 40, item_id="output")
RULES = input_message("Old rules.", "system", item_id="rules")

# By name: the call, the origin and position of the left-out item, its reason, and the budget to raise.
PLANTED: dict[str, tuple[Callable[[], RecordedRequest], str, int, str, str | None]] = {
    "oldest over budget": (lambda: asked(talk(40, 40, 40), token_budget=200), "history", 0, "over_budget", "total"),
    "next to oldest": (lambda: asked(talk(90, 40, 40), token_budget=200), "history", 1, "over_budget", "total"),
    "no room for anything": (lambda: asked(talk(9, 9), token_budget=0), "history", 1, "over_budget", "total"),
    "the question itself": (lambda: asked([], query="why " * 90, token_budget=50), "history", 0, "forced", "total"),
    "a question with more before it": (
        lambda: asked(talk(9, 9), query="why " * 90, token_budget=50), "history", 0, "over_budget", "total"
    ),
    "behind the reserve": (
        lambda: asked(talk(40, 40), token_budget=300, response_reserve=200), "history", 0, "over_budget", "total"
    ),
    "behind the instructions": (
        lambda: asked(talk(40, 40), instructions="Be kind. " * 60, token_budget=300), "history", 0, "over_budget", "total"
    ),
    "pushed out by a layer": (
        lambda: asked(talk(40, 40), offers("notes", 60), token_budget=300), "history", 0, "over_budget", "total"
    ),
    "pushed out by two layers": (
        lambda: asked(talk(40, 40), offers("a", 20, 30), recalls("b", "b is " * 60), token_budget=330),
        "history", 0, "over_budget", "total",
    ),
    "outside the window": (
        lambda: asked(talk(4, 4, 4), overflow="sliding_window", window_size=2), "history", 0, "outside_window", "window"
    ),
    "outside the window and over budget": (
        lambda: asked(talk(90, 4, 4), overflow="sliding_window", window_size=2, token_budget=120),
        "history", 0, "outside_window", "window",
    ),
    "over budget inside the window": (
        lambda: asked(talk(4, 90, 4), overflow="sliding_window", window_size=3, token_budget=120),
        "history", 1, "over_budget", "total",
    ),
    "an output whose call is outside": (
        lambda: asked([CALL, OUTPUT, *talk(4, 4)], overflow="sliding_window", window_size=4),
        "history", 1, "unresolved_call", "window",
    ),
    "an output whose call has no room": (
        lambda: asked([CALL, OUTPUT], token_budget=135), "history", 1, "unresolved_call", "total"
    ),
    "a call that was never answered": (
        lambda: asked([CALL, *talk(4)], token_budget=900), "history", 0, "unresolved_call", None
    ),
    "hidden by a layer": (lambda: asked(talk(4, 4), hides(0)), "history", 0, "hidden", None),
    "chosen by a layer and over budget": (
        lambda: asked(talk(40, 40, 4), hides(1), token_budget=90), "history", 0, "over_budget", "total"
    ),
    "beside a system message": (
        lambda: asked([*talk(40), RULES, *talk(40)], token_budget=150), "history", 0, "over_budget", "total"
    ),
    "an offer over its maximum": (
        lambda: asked([], offers("notes", 10, 50, budget=30)), "layer:notes", 1, "over_allocation", "maximum"
    ),
    "an offer before a smaller one": (
        lambda: asked([], offers("notes", 60, 10, 9, budget={"min": 5, "max": 40})),
        "layer:notes", 0, "over_allocation", "maximum",
    ),
    "an offer of a layer that shares what there is": (
        lambda: asked([], offers("notes", 90), token_budget=150), "layer:notes", 0, "over_allocation", "total"
    ),
    "an offer whose maximum is not what is short": (
        lambda: asked([], offers("notes", 70, budget=100), token_budget=100), "layer:notes", 0, "over_allocation", "total"
    ),
    "an offer for which both are short": (
        lambda: asked([], offers("notes", 90, budget=100), token_budget=150), "layer:notes", 0, "over_allocation", "total"
    ),
    "an offer that found no room": (
        lambda: asked([], offers("notes", 30, budget={"min": 40, "max": 90}), query="why " * 60, token_budget=100),
        "layer:notes", 0, "over_budget", "total",
    ),
    "the second layer's offer": (
        lambda: asked([], offers("a", 40, budget={"min": 60, "max": 60}), offers("b", 30, budget={"min": 60, "max": 60}, slot=2),
                      query="why " * 20, token_budget=160),
        "layer:b", 0, "over_budget", "total",
    ),
    "a text that was cut": (
        lambda: asked([], recalls("notes", "she likes blue " * 30 + "and green", budget=40)),
        "layer:notes", 0, "trimmed", "maximum",
    ),
    "a text that was cut to nothing": (
        lambda: asked([], recalls("notes", "blue " * 9, budget=0)), "layer:notes", 0, "over_allocation", "maximum"
    ),
    "a text cut because all is small": (
        lambda: asked([], recalls("notes", "blue " * 90 + "and green"), token_budget=120), "layer:notes", 0, "trimmed", "total"
    ),
}  # fmt: skip


def admits(absent: AbsentItem, plan: TurnPlan, request: RecordedRequest) -> bool:
    """Tell from the items actually sent, by identity or text."""
    if absent.origin == "history":
        forced = any(fate.position == absent.position and fate.reason == "forced" for fate in plan.fates)
        return not forced and any(item is absent.item for item in plan.items)
    layer_id = absent.origin.removeprefix("layer:")
    texts = [item["content"][0]["text"] for owner, item in plan.layer_items if owner == layer_id]
    wanted = absent.item["content"][0]["text"]
    if absent.reason == "over_budget":  # a larger part of a text may fit then
        return any(text.startswith(wanted) for text in texts)
    return any(text.endswith(wanted) if absent.reason == "trimmed" else text == wanted for text in texts)


def less(least: LeastBudget) -> dict[str, Any]:
    """Return the changes with one token, or one item, less."""
    if least.total is not None:
        return least._replace(total=least.total - 1).changes
    if least.window is not None:
        return least._replace(window=least.window - 1).changes
    assert least.maximum is not None
    return least._replace(maximum=least.maximum - 1).changes


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_forgotten_is_named_with_the_smallest_budget_that_keeps_it(name: str) -> None:
    make, origin, position, reason, raised = PLANTED[name]
    request = make()

    absent = {(item.origin, item.position): item for item in request.absent}[origin, position]
    least = request.least_budget(absent)

    assert absent.reason == reason
    if raised is None:
        assert least is None
        return
    assert least is not None
    assert getattr(least, raised) is not None
    assert admits(absent, request.replan(**least.changes), request)
    assert not admits(absent, request.replan(**less(least)), request)


@pytest.mark.matrix
def test_no_smaller_total_above_the_recorded_one_admits_it() -> None:
    checked = 0
    for seed in range(several(8, 25)):
        run, _ = asyncio.run(converse(seed))
        index = RequestIndex()
        for event in run.events:
            index.take(event)
        for request in index.requests:
            plans: dict[str, TurnPlan] = {}  # several items are searched for in the same plans
            for absent in request.absent[:3]:
                least = request.least_budget(absent)
                if least is None or least.total is None or least.total > 3_000:
                    continue
                checked += 1
                assert admits(absent, request.replan(**least.changes), request)
                for total in range(int(request.inputs.policy.token_budget) + 1, least.total):
                    changes = least._replace(total=total).changes
                    if repr(changes) not in plans:
                        plans[repr(changes)] = request.replan(**changes)
                    assert not admits(absent, plans[repr(changes)], request)
    assert checked > several(4, 20)
