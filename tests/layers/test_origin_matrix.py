"""A value that a tool returned is never trusted more after a layer has kept it, in whatever scope and form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import layers
from noetic_nb.items import item_text
from noetic_nb.items._origins import _RANK, Origin

VALUE = "DE89370400440532013000"
FORMS = {
    "verbatim": f"The account of the landlord is {VALUE}.",
    "normalised": "The account of the landlord is de89 3704 0044 0532 0130 00.",
    "summarised": f"Looked up the landlord: {VALUE}",
}


def lines_of(items: Any) -> list[str]:
    return [text for item in items if "landlord" in (text := item_text(item))]


LAYERS: dict[str, Callable[..., Any]] = {
    "semantic_recall": lambda **k: layers.semantic_recall(min_score=-1, skip_recent=0, **k),
    "hybrid_recall": lambda **k: layers.hybrid_recall(min_score=-1, skip_recent=0, **k),
    "episodic_memory": lambda **k: layers.episodic_memory(lambda items: " ".join(lines_of(items)), **k),
    "observational_memory": lambda **k: layers.observational_memory(
        lambda texts: [text for text in texts if "landlord" in text], buffer_threshold=1, **k
    ),
    "working_memory": layers.working_memory,
    "entity_memory": layers.entity_memory,
    "procedural_memory": layers.procedural_memory,
    "temporal_memory": lambda **k: layers.temporal_memory(
        extract=lambda texts, at: {"2026-01-01": [text for text in texts if "landlord" in text]},
        buffer_threshold=1,
        inject_ledger=True,
        **k,
    ),
}


@nn.tool
def read_page(url: str) -> str:
    """Read a page."""
    return f"Account of the landlord: {VALUE}"


async def origin_after(name: str, scope: str, form: str) -> tuple[bool, Origin | None]:
    """Return whether the layer recalled the value, and its origin in a call of a later conversation."""
    seen: list[Origin] = []

    @nn.tool
    def pay(recipient: str) -> str:
        """Pay."""
        return "paid"

    def look(call: Any) -> None:
        seen.append(call.origin(call.tool_args["recipient"]))

    rule = nn.SteeringRule(id="look", applies_to="before_tool_call", tools=["pay"], predicate=look)
    storage = nn.InMemoryStorage()

    def desk(replies: list[Any]) -> tuple[nn.AgentHarness, nn.ScriptedModel]:
        memory = [LAYERS[name](scope=scope), nn.steering(rules=[rule])]
        config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[read_page, pay]), memory=memory)
        model = nn.ScriptedModel(replies)
        return nn.AgentHarness(config, model=model, storage=storage, checkpoints=False), model

    text = FORMS[form]
    writes = {
        "working_memory": nn.CallTool("working-memory/update", content=text),
        "entity_memory": nn.CallTool("entity-memory/remember", name="landlord", fact=text),
        "procedural_memory": nn.CallTool("procedural-memory/learn", name="pay", when="Pay the landlord", steps=[text]),
    }
    replies: list[Any] = [nn.CallTool("read_page", url="x"), *([writes[name]] if name in writes else []), text]
    first, _ = desk(replies)
    await first.execute("Which account has the landlord?", thread_id="t1", resource_id="ann")
    where = {"thread": ("t1", "ann"), "resource": ("t2", "ann"), "global": ("t3", "ben")}[scope]
    later, model = desk([nn.CallTool("pay", recipient=VALUE), "Paid."])
    await later.execute("Pay the landlord", thread_id=where[0], resource_id=where[1])
    sent = "".join(item_text(item) for item in model.requests[0].items).lower().replace(" ", "")
    return VALUE.lower() in sent, seen[0] if seen else None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scope", ["thread", "resource", "global"])
@pytest.mark.parametrize("name", LAYERS)
async def test_no_layer_makes_a_value_more_trusted(name: str, scope: str, form: str) -> None:
    recalled, origin = await origin_after(name, scope, form)

    assert recalled
    assert origin is not None
    assert _RANK[origin.kind] >= _RANK["tool"]
