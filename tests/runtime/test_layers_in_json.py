"""Built-in layers are data in the JSON of an agent; a user's layers are references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb import layers
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import MemoryLayer
from noetic_nb.steps import Registry
from tests.layers.layer_driver import Conversation
from tests.memory.stacks import layer
from tests.unit.test_contract_checks import notes_of_each


def config(*memory: MemoryLayer, step: Any = None) -> nn.AgentConfig:
    return nn.AgentConfig(name="a", step=step or nn.react(model="m"), memory=list(memory))


def there_and_back(given: nn.AgentConfig, registry: Registry | None = None) -> nn.AgentConfig:
    text = json.dumps(nn.dump_config(given, registry))
    back = nn.load_config(text, registry)
    assert json.dumps(nn.dump_config(back, registry)) == text
    return back


FIRST: dict[str, tuple[Any, ...]] = {"static_content": ("Be kind.",), "tool_memory": ("cart",)}
# These take user code.
NAMES = sorted(name for name in layers.__all__ if name.islower() and name not in {"regulation", "external_memory"})


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_layer_is_its_kind_and_loads_without_a_registry(name: str) -> None:
    given = getattr(layers, name)(*FIRST.get(name, ()))

    (data,) = nn.dump_config(config(given))["memory"]
    (back,) = there_and_back(config(given)).memory

    assert data["kind"] == name
    assert (back.id, back.slot, back.scope, back.budget) == (given.id, given.slot, given.scope, given.budget)
    assert (back.hooks.names(), back.timeouts) == (given.hooks.names(), given.timeouts)
    assert set(back.provides or ()) == set(given.provides or ())


def test_an_external_memory_names_its_store_in_a_registry() -> None:
    notes = notes_of_each()
    registry = nn.Registry(functions={"notes": notes})
    given = config(layers.external_memory(notes))

    (back,) = there_and_back(given, registry).memory

    assert (back.id, back.scope, back.hooks.names()) == ("external", "resource", given.memory[0].hooks.names())


WITH_OPTIONS: list[tuple[MemoryLayer, dict[str, Any]]] = [
    (nn.working_memory(), {}),
    (nn.working_memory(scope="thread", slot=100), {}),  # defaults are left out
    (nn.working_memory(id="notes", scope="resource", read_only=True, initial={"city": "Rome"}),
     {"id": "notes", "scope": "resource", "read_only": True, "initial": {"city": "Rome"}}),
    (nn.working_memory(budget={"min": 10, "max": 99}, slot=7.5), {"budget": {"min": 10, "max": 99}, "slot": 7.5}),
    (nn.static_content("Be kind.", tag="policy"), {"content": "Be kind.", "tag": "policy"}),
    (nn.history_window(20), {"max_items": 20}),
    (layers.file_reference(Path("docs"), allowed_extensions={".md", ".py"}),
     {"base_dir": "docs", "allowed_extensions": [".md", ".py"]}),
    (layers.plan_memory(additional_allowed_tools=(name for name in ["look"])), {"additional_allowed_tools": ["look"]}),
    (layers.semantic_recall(layers.HashingEmbedder(64), top_k=3), {"embedder": {"dimensions": 64}, "top_k": 3}),
    (layers.episodic_memory(model="small", retrieval="similarity"), {"model": "small", "retrieval": "similarity"}),
    (layers.tool_memory("cart", initial={"items": []}, scope="thread"),
     {"id": "cart", "initial": {"items": []}, "scope": "thread"}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "options"), WITH_OPTIONS, ids=lambda value: str(value)[:40])
def test_its_options_are_what_is_not_as_by_default(given: MemoryLayer, options: dict[str, Any]) -> None:
    (data,) = nn.dump_config(config(given))["memory"]
    (back,) = there_and_back(config(given)).memory

    assert data.get("options", {}) == options
    assert (back.id, back.slot, back.scope, back.budget) == (given.id, given.slot, given.scope, given.budget)


async def test_a_layer_that_was_loaded_works_as_the_one_that_was_written() -> None:
    (back,) = there_and_back(config(nn.working_memory(initial={"city": "Rome"}))).memory
    talk = Conversation(back)

    shown = await talk.begin("hello")
    await talk.call("working-memory", "update", day="Monday")

    assert "Rome" in shown
    assert talk.state("working-memory") == {"city": "Rome", "day": "Monday"}


class Profile(BaseModel):
    city: str
    visits: int = 0


@pytest.mark.parametrize("registry", [None, Registry(schemas={"profile": Profile})], ids=["data", "named"])
async def test_the_schema_of_notes_is_data_or_a_name(registry: Registry | None) -> None:
    given = nn.working_memory(schema=Profile, initial={"city": "Rome"})
    (data,) = nn.dump_config(config(given), registry)["memory"]
    (back,) = there_and_back(config(given), registry).memory
    talk = Conversation(back)
    await talk.begin("hello")

    with pytest.raises(nn.NoeticError, match="visits"):
        await talk.call("working-memory", "update", visits="many")

    assert ("$ref" in data["options"]["schema"]) == (registry is not None)
    assert talk.state("working-memory") == {"city": "Rome"}


def summarise(items: Any) -> str:
    return "a summary"


def test_a_function_among_the_options_is_a_reference() -> None:
    registry = Registry([summarise])
    given = config(layers.episodic_memory(summarise))

    (data,) = nn.dump_config(given, registry)["memory"]
    (back,) = there_and_back(given, registry).memory

    assert data == {"kind": "episodic_memory", "options": {"summarise": {"$ref": "fn:summarise"}}}
    assert back.made_by is not None
    assert back.made_by.options == {"summarise": summarise}
    with pytest.raises(NoeticConfigError, match=r"a\.memory\[0\]\.options\.summarise") as caught:
        nn.dump_config(given)
    assert caught.value.code == "UNREGISTERED_FUNCTION"


def no_payments(call: Any) -> Any:
    return nn.deny("No payments.")


async def test_rules_travel_with_the_layer_that_enforces_them() -> None:
    book = nn.RuleBook()
    book.when("tool.args.amount > 100", id="large", guidance="Too much.")
    book.rule("no_refund", on="before_tool_call", tools=["refund"])(no_payments)
    registry = Registry([no_payments])

    (back,) = there_and_back(config(nn.steering(book, on_error="raise", scope="thread")), registry).memory
    talk = Conversation(back)
    await talk.begin("hello")

    decisions = [
        await talk.stack.before_tool_call(talk.context(), tool_name=name, tool_args={"amount": amount})
        for name, amount in (("pay", 101), ("pay", 99), ("refund", 1))
    ]

    assert [(found.action, found.guidance) for found in decisions] == [
        ("deny", "Too much."), ("allow", None), ("deny", "No payments.")]  # fmt: skip
    assert (back.enforces, back.scope, back.on_steering_error) == (True, "thread", "raise")


def test_a_regulation_travels_with_its_settings() -> None:
    (back,) = there_and_back(config(nn.regulation(nn.Regulator.recommended("ann").with_cost_cap(2_000)))).memory

    assert back.made_by is not None
    regulator = back.made_by.options["regulator"]
    assert (regulator.user_id(), regulator.cost_cap_tokens()) == ("ann", 2_000)


def test_children_have_built_in_layers_in_json_too() -> None:
    given = config(step=nn.spawn("s", nn.react(model="m"), memory=[nn.working_memory(id="own")]))

    back = there_and_back(given)

    assert back.step is not None
    assert [layer.id for layer in back.step.memory] == ["own"]  # type: ignore[union-attr]


def test_layers_of_ones_own_are_references_as_ever() -> None:
    own, changed = layer("own"), nn.working_memory().with_hooks(recall=lambda p: "mine")
    registry = Registry(layers=[own, changed])

    data = nn.dump_config(config(own, changed), registry)["memory"]

    assert data == [{"$ref": "layer:own"}, {"$ref": "layer:working-memory"}]
    assert there_and_back(config(own, changed), registry).memory == (own, changed)
    for one in (own, changed):
        with pytest.raises(NoeticConfigError) as caught:
            nn.dump_config(config(one))
        assert caught.value.code == "UNREGISTERED_LAYER"


def test_a_built_in_layer_that_is_registered_is_its_name() -> None:
    given = nn.working_memory()
    registry = Registry(layers=[given])

    assert nn.dump_config(config(given), registry)["memory"] == [{"$ref": "layer:working-memory"}]
    assert there_and_back(config(given), registry).memory == (given,)


@pytest.mark.parametrize(
    ("written", "code", "match"),
    [
        ({"kind": "wishful_memory"}, "UNKNOWN_LAYER_KIND", "working_memory"),
        ({"kind": "HashingEmbedder"}, "UNKNOWN_LAYER_KIND", "history_window"),
        ({"kind": 7}, "UNKNOWN_LAYER_KIND", "7"),
        ({"kind": "working_memory", "options": {"colour": 1}}, "INVALID_LAYER_OPTION", "colour"),
        ({"kind": "working_memory", "options": []}, "INVALID_LAYER_OPTION", "options"),
        ({"kind": "working_memory", "scope": "thread"}, "INVALID_LAYER_OPTION", "nothing else"),
        ({"kind": "working_memory", "options": {"scope": "galaxy"}}, "UNKNOWN_SCOPE", "galaxy"),
        ({"kind": "history_window", "options": {"max_items": 1}}, "INVALID_HISTORY_WINDOW_MAX_ITEMS", "2"),
        ({"kind": "static_content"}, "INVALID_LAYER_OPTION", "content"),
        ({"kind": "regulation", "options": {"regulator": {"a": 1}}}, "INVALID_LAYER_OPTION", "regulator"),
        (
            {"kind": "episodic_memory", "options": {"summarise": {"$ref": "fn:none"}}},
            "UNKNOWN_FUNCTION_REFERENCE",
            "none",
        ),
    ],
    ids=str,
)
def test_what_is_no_layer_is_refused_with_what_there_is(written: Any, code: str, match: str) -> None:
    with pytest.raises(NoeticConfigError, match=match) as caught:
        nn.load_config({"name": "a", "memory": [written]})

    assert caught.value.code == code


@pytest.mark.parametrize("kind", ["historyWindow", "history-window", "history_window"])
def test_people_may_write_kinds_and_options_in_any_spelling(kind: str) -> None:
    back = nn.load_config({"name": "a", "memory": [{"kind": kind, "options": {"maxItems": 12}}]})

    assert back.memory[0].made_by is not None
    assert back.memory[0].made_by.options == {"max_items": 12}
