"""Which items an agent may log beyond the known types, as its configuration says.

A schema is a type, a JSON Schema, or a function that returns False or raises `ValueError` for what it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_origin

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import DEFAULT_REGISTRY, FrozenDict, ItemRegistry
from noetic_nb.steps.schema import OutputSchema, as_schema

__all__ = ["as_item_schemas", "item_registry"]


def as_item_schemas(value: Any) -> FrozenDict:
    """Return schemas by category, types and JSON Schemas as `OutputSchema`.

    Raises
    ------
    NoeticConfigError
        ``INVALID_AGENT_CONFIG``, ``UNKNOWN_ITEM_CATEGORY`` or ``INVALID_SCHEMA``.

    Examples
    --------
    >>> as_item_schemas({"developer_messages": [{"type": "object"}]})
    {'developerMessages': (OutputSchema({'type': 'object'}),)}
    """
    if not isinstance(value, Mapping) or not all(isinstance(schemas, list | tuple) for schemas in value.values()):
        raise NoeticConfigError(
            "INVALID_AGENT_CONFIG",
            "Item schemas are lists by category.",
            given=value,
            hint="Such as item_schemas={'items': [Note]}.",
            field="item_schemas",
        )
    made = {name: tuple([_schema(schema) for schema in schemas]) for name, schemas in value.items()}
    return FrozenDict(ItemRegistry(made).schemas)  # with the categories checked, and spelled one way


def _schema(given: Any) -> Any:
    is_function = callable(given) and not isinstance(given, type) and get_origin(given) is None
    return given if is_function else as_schema(given)


def _gate(schema: Any) -> Callable[[Any], object]:
    if not isinstance(schema, OutputSchema):
        accept: Callable[[Any], object] = schema
        return accept

    def accepts(value: Any) -> bool:
        schema.check(value)  # raises ValueError
        return True

    return accepts


def item_registry(schemas: Mapping[str, Any], *, strict: bool) -> ItemRegistry:
    """Return the registry that these schemas make.

    Examples
    --------
    >>> registry = item_registry(as_item_schemas({"items": [{"required": ["size"]}]}), strict=True)
    >>> registry.parse({"type": "my:thing", "size": 3}).size
    3
    """
    if strict and not schemas:
        return DEFAULT_REGISTRY
    return ItemRegistry({name: [_gate(schema) for schema in found] for name, found in schemas.items()}, strict=strict)
