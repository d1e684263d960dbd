"""Allowed items: known types always, extensions if a schema accepts them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import ItemLog, ItemRegistry, dump_item
from noetic_nb.items._registry import DEFAULT_REGISTRY


class Thing(BaseModel):
    type: str
    size: int
    note: str = "filled in"


def test_an_unknown_type_is_a_mismatch_that_names_it() -> None:
    with pytest.raises(NoeticError) as caught:
        DEFAULT_REGISTRY.parse({"type": "custom"})

    assert (caught.value.kind, caught.value.category, caught.value.item_type) == (
        "item_schema_mismatch",
        "items",
        "custom",
    )


def test_an_unknown_type_passes_where_the_registry_is_not_strict() -> None:
    assert ItemRegistry(strict=False).parse({"type": "custom"})["type"] == "custom"


@pytest.mark.parametrize("kind", ["openrouter:datetime", "openrouter:", "web_search_call", "reasoning"])
def test_known_types_need_no_schema(kind: str) -> None:
    assert DEFAULT_REGISTRY.parse({"type": kind})["type"] == kind


SCHEMAS: dict[str, Any] = {
    "model": Thing,
    "adapter": TypeAdapter(Thing),
    "callable": lambda value: isinstance(value.get("size"), int),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_a_schema_is_a_gate_and_changes_nothing(schema: Any) -> None:
    registry = ItemRegistry({"items": [schema]})

    assert dump_item(registry.parse({"type": "my:thing", "size": 3, "more": [1]})) == {
        "type": "my:thing",
        "size": 3,
        "more": [1],
    }
    with pytest.raises(NoeticError, match="my:thing"):
        registry.parse({"type": "my:thing", "size": "large"})


def test_extending_by_nothing_returns_the_same_registry() -> None:
    assert DEFAULT_REGISTRY.extend({}) is DEFAULT_REGISTRY
    assert DEFAULT_REGISTRY.extend({"items": []}) is DEFAULT_REGISTRY


def test_extending_adds_schemas_behind_those_there_and_leaves_the_old_registry_alone() -> None:
    first = ItemRegistry({"items": [Thing]})
    second = first.extend({"items": [lambda value: value["type"] == "other"]})

    assert second.parse({"type": "other"})["type"] == "other"
    assert second.parse({"type": "x", "size": 1})["type"] == "x"
    with pytest.raises(NoeticError):
        first.parse({"type": "other"})


def test_a_category_with_schemas_is_binding_and_without_is_not() -> None:
    registry = ItemRegistry({"tool_results": [lambda value: value["output"] == "ok"]})
    bad = {"type": "function_call_output", "callId": "c", "output": "no"}

    assert registry.parse(bad)["output"] == "no"
    assert registry.parse_with_category(bad, "toolCalls")["output"] == "no"
    with pytest.raises(NoeticError) as caught:
        registry.parse_with_category(bad, "toolResults")
    assert caught.value.category == "toolResults"


def test_an_unknown_category_is_refused() -> None:
    with pytest.raises(NoeticConfigError) as caught:
        ItemRegistry({"toys": [Thing]})

    assert caught.value.code == "UNKNOWN_ITEM_CATEGORY"


def test_a_log_refuses_what_its_registry_refuses_and_stays_as_it_was() -> None:
    log = ItemLog([{"type": "reasoning"}])

    with pytest.raises(NoeticError):
        log.extend([{"type": "reasoning"}, {"type": "custom"}])

    assert len(log) == 1
