"""The allowed item types: known types, and extensions with registered schemas, which only validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.items._frozen import thaw
from noetic_nb.items._item import BASE_TYPES, Item, is_base_type, parse_shape
from noetic_nb.items._item_checks import answer_item, checked_item, is_checked, kept_item, logged_item, newly_checked

ItemCategory: TypeAlias = Literal["items", "developerMessages", "toolCalls", "toolResults"]
"""The items that an extension schema applies to."""

ItemSchema: TypeAlias = type[BaseModel] | TypeAdapter[Any] | Callable[[dict[str, Any]], object]
"""A pydantic model or adapter, or a callable that returns False or raises ValueError for invalid items."""

_CATEGORIES: Final[tuple[str, ...]] = get_args(ItemCategory)
_SNAKE: Final = {"developer_messages": "developerMessages", "tool_calls": "toolCalls", "tool_results": "toolResults"}


def _accepts(schema: ItemSchema, value: Item) -> bool:
    try:
        if isinstance(schema, TypeAdapter):
            schema.validate_python(thaw(value))
        elif isinstance(schema, type) and issubclass(schema, BaseModel):
            schema.model_validate(thaw(value))
        else:
            accept: Callable[[dict[str, Any]], object] = schema
            return accept(thaw(value)) is not False
    except (ValidationError, ValueError):
        return False
    return True


def _category_of(item: Item) -> ItemCategory | None:
    kind = item["type"]
    if kind == "function_call":
        return "toolCalls"
    if kind == "function_call_output":
        return "toolResults"
    if kind == "message" and item.role == "developer":
        return "developerMessages"
    return None


@dataclass(frozen=True, slots=True)
class ItemRegistry:
    """An immutable set of extension schemas.

    Parameters
    ----------
    schemas : mapping of str to sequence of schemas, optional
        Categories ``items``, ``developerMessages``, ``toolCalls``, ``toolResults``.
    strict : bool, default True
        Reject unknown types that no schema accepts.
    checks : bool, default True
        Reject invalid items of known types; recorded items are read without checks.

    Examples
    --------
    >>> ItemRegistry(strict=False).parse({"type": "custom"})
    Item({'type': 'custom'})
    >>> DEFAULT_REGISTRY.parse({"type": "custom"})
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticError: No schema accepts an item of type 'custom'...
    """

    schemas: Mapping[str, Sequence[ItemSchema]] = field(default_factory=dict)
    strict: bool = True
    checks: bool = True

    def __post_init__(self) -> None:
        named = {_SNAKE.get(name, name): tuple(schemas) for name, schemas in self.schemas.items()}
        unknown = set(named) - set(_CATEGORIES)
        if unknown:
            what = "Item schemas are grouped by category."
            hint = f"Use {', '.join(_CATEGORIES)}."
            raise NoeticConfigError("UNKNOWN_ITEM_CATEGORY", what, given=sorted(unknown), hint=hint)
        # Normalise the spelling, so that every look-up uses camelCase.
        object.__setattr__(self, "schemas", named)

    def extend(self, extension: Mapping[str, Sequence[ItemSchema]]) -> ItemRegistry:
        """Return a registry with additional schemas, or this one if there are none."""
        extra = ItemRegistry(extension)
        if not any(extra.schemas.values()):
            return self
        merged = {
            name: (*self.schemas.get(name, ()), *extra.schemas.get(name, ()))
            for name in _CATEGORIES
            if self.schemas.get(name) or extra.schemas.get(name)
        }
        return ItemRegistry(merged, strict=self.strict, checks=self.checks)

    def parse(self, value: object) -> Item:
        """Check and freeze one item.

        Raises
        ------
        ItemValidationError
            If the value is not an item at all, or an invalid item of a known type.
        NoeticError
            ``item_schema_mismatch`` if the registry is strict, the type unknown and no schema accepts it.
        """
        if type(value) is Item and is_checked(value):
            return value
        item = parse_shape(value)
        self._check_type(item)
        return newly_checked(item) if self.checks else item

    def parse_answer(self, value: object) -> Item:
        """Parse an item of a model's response: see `answer_item`."""
        item = parse_shape(value)
        self._check_type(item)
        return answer_item(item)

    def parse_kept(self, value: object) -> Item:
        """Parse a logged item; an invalid one is kept unchanged."""
        item = parse_shape(value)
        self._check_type(item)
        try:
            return logged_item(item)
        except ItemValidationError as exc:
            return kept_item(item, exc)

    def _check_type(self, item: Item) -> None:
        kind = item["type"]
        if kind in BASE_TYPES or not self.strict or is_base_type(kind):
            return
        # Only unknown types get here: known ones pass whatever the schemas.
        category = _category_of(item)
        schemas = (*self.schemas.get("items", ()), *(self.schemas.get(category, ()) if category else ()))
        if any(_accepts(schema, item) for schema in schemas):
            return
        what = f"No schema accepts an item of type {kind!r}"
        hint = "Register a schema for it, or use a registry with strict=False."
        raise NoeticError("item_schema_mismatch", what, given=item, hint=hint, category="items", item_type=kind)

    def parse_with_category(self, value: object, category: ItemCategory) -> Item:
        """Check and freeze one item that must match a schema of this category, if there is one."""
        schemas = self.schemas.get(category, ())
        if not schemas:
            return self.parse(value)
        item = checked_item(parse_shape(value))
        if any(_accepts(schema, item) for schema in schemas):
            return item
        what = f"No schema of category {category!r} accepts this item"
        hint = "Register a schema that does, or change the item."
        raise NoeticError("item_schema_mismatch", what, given=item, hint=hint, category=category)


DEFAULT_REGISTRY: Final = ItemRegistry()
ANY_ITEMS: Final = ItemRegistry(strict=False, checks=False)
"""Accepts recorded and provider-specific items unchanged."""


def parse_item(value: object, *, registry: ItemRegistry = DEFAULT_REGISTRY) -> Item:
    """Check one item and freeze it recursively.

    Parameters
    ----------
    value : mapping
        The item; keys in camelCase or, for known fields, snake_case.
    registry : ItemRegistry, optional
        The known extensions; the default registry has none and is strict.

    Raises
    ------
    ItemValidationError
        If the value is not a mapping with a non-empty ``type``, not JSON data, or an invalid item of a known type; the
        message names the field.
    NoeticError
        ``item_schema_mismatch`` for an unknown type.

    Examples
    --------
    >>> item = parse_item({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]})
    >>> item.role, item.id
    ('user', None)
    """
    return registry.parse(value)
