"""Items that users give: checked when they are given, and chat messages made into items.

A slip in a role or a part would be found by the provider, after the turn has begun, or by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from noetic_nb.errors import ItemValidationError
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items._item import Item, is_base_type
from noetic_nb.items._item_checks import MalformedItem, checked_item
from noetic_nb.items._registry import DEFAULT_REGISTRY, ItemRegistry

if TYPE_CHECKING:
    from noetic_nb.items._messages import MessageFormat


def is_given_item(value: object) -> bool:
    """Tell whether a value is meant as an item or as a message of another form: a mapping with a type or a role, or a record."""
    if isinstance(value, Mapping) and "type" in value:
        return True
    return _format(value) is not None or (hasattr(value, "role") and hasattr(value, "model_dump"))


def _format(value: Any) -> MessageFormat | None:
    """Return the format of a message that is no item of ours."""
    # The forms of others are read where somebody gives items.
    from noetic_nb.items._messages import recognise

    found = recognise([value])
    kind = value.get("type") if isinstance(value, Mapping) else None
    # Anthropic's answers are of the type "message", too, but hold blocks that no item of ours has.
    is_ours = isinstance(kind, str) and is_base_type(kind) and found != "anthropic"
    if kind == "function_call_output" and isinstance(value.get("output"), list | tuple):
        is_ours = False  # the responses API's, with parts
    return None if is_ours else found


def input_items(
    given: Iterable[Any], *, registry: ItemRegistry = DEFAULT_REGISTRY, ids: Ids = SYSTEM_IDS
) -> tuple[Item, ...]:
    """Check the items that a user gives, or messages of any format that `Run.from_messages` reads, and freeze them.

    Raises `ItemValidationError`, which names the place, for all else and for a known type with a fault; `NoeticError`
    ``item_schema_mismatch`` for an unknown type.
    """
    from noetic_nb.items._messages.formats import decode_one, plain_message
    from noetic_nb.items._messages.message import Message

    made: list[Item] = []
    waiting: list[str] = []
    for place, value in enumerate(given):
        value = plain_message(value)
        try:
            if (format := _format(value)) is not None:
                found = decode_one(value, format, waiting=waiting, place=f"Item {place}")
                made += [
                    checked_item(_with_id(item, ids)) for one in found if isinstance(one, Message) for item in one.items
                ]
            else:
                item = registry.parse(value)
                if item["type"] == "function_call" and not item["name"]:  # a model may write none, a user means one
                    raise MalformedItem("function_call", "a call needs text under 'name'.", given="")
                made.append(item)
        except MalformedItem as exc:
            raise ItemValidationError(f"Item {place}: {exc.problem}", given=exc.given, hint=exc.hint) from None
    return tuple(made)


def _with_id(item: Item, ids: Ids) -> Item:
    return item if item.get("id") is not None else Item({"id": ids.new("item"), **item})
