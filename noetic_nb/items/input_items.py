"""Items that users give: checked when they are given, and chat messages made into items.

A slip in a role or a part would be found by the provider, after the turn has begun, or by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.errors import ItemValidationError
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items.item import Item, is_base_type
from noetic_nb.items.registry import DEFAULT_REGISTRY, ItemRegistry

if TYPE_CHECKING:
    from noetic_nb.items.messages import MessageFormat

__all__ = ["answer_message", "input_items", "is_given_item", "text_as_part"]

ROLES: Final = ("user", "system", "developer", "assistant")
STATUSES: Final = ("in_progress", "completed", "incomplete", "failed")
# What must be text in parts that are known; others are of a provider and pass.
_TEXT_FIELDS: Final = {
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}


def is_given_item(value: object) -> bool:
    """Tell whether a value is meant as an item or as a message of another form: a mapping with a type or a role, or a record."""
    if isinstance(value, Mapping) and "type" in value:
        return True
    return _format(value) is not None or (hasattr(value, "role") and hasattr(value, "model_dump"))


def _format(value: Any) -> MessageFormat | None:
    """Return the format of a message that is no item of ours."""
    # The forms of others are read where somebody gives items.
    from noetic_nb.items.messages import recognise

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
    """Check what a user gives as items, and freeze it.

    Parameters
    ----------
    given : iterable of mapping
        Items, or messages of any format that `Run.from_messages` reads.
    registry : ItemRegistry, optional
        Which item types are known.
    ids : Ids, optional
        Source of the ids of what is made of chat messages.

    Raises
    ------
    ItemValidationError
        For what is no item, or one of a known type that is not as its type must be; the message names its place.
    NoeticError
        ``item_schema_mismatch`` for an unknown type.

    Examples
    --------
    >>> [item.type for item in input_items([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])]
    ['message', 'message']
    >>> input_items([{"type": "message", "role": "king", "content": []}])
    Traceback (most recent call last):
    ...
    noetic_nb.errors.ItemValidationError: Item 0: there is no such role. Given: 'king'. Roles are user, system, ...
    """
    from noetic_nb.items.messages.formats import decode_one, plain_message

    made: list[Item] = []
    waiting: list[str] = []
    for place, value in enumerate(given):
        value = plain_message(value)
        try:
            if (format := _format(value)) is not None:
                found = decode_one(value, format, waiting=waiting, place=f"Item {place}")
                made += [_checked(_with_id(item, ids)) for message in found for item in message.items]
            else:
                made.append(_checked(registry.parse(value)))
        except _Problem as problem:
            raise ItemValidationError(f"Item {place}: {problem.what}", given=problem.given, hint=problem.hint) from None
    return tuple(made)


def _with_id(item: Item, ids: Ids) -> Item:
    return item if item.get("id") is not None else Item({"id": ids.new("item"), **item})


class _Problem(Exception):
    def __init__(self, what: str, given: object, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.given, self.hint = what, given, hint


def _checked(item: Item) -> Item:
    """Return an item of a known type that is as it must be; text in place of parts is made one part."""
    check = _CHECKS.get(item["type"])
    if check is None:
        return item
    if item.get("status") not in (None, *STATUSES):
        raise _Problem("there is no such status.", item["status"], f"Statuses are {', '.join(STATUSES)}.")
    if item.get("id") is not None and not isinstance(item["id"], str):
        raise _Problem("an id is text.", item["id"])
    return check(item)


def _message(item: Item) -> Item:
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise _Problem("there is no such role.", role, f"Roles are {', '.join(ROLES)}.")
    if isinstance(content, str):
        return text_as_part(item)
    _check_parts(content, "content")
    return item


def text_as_part(item: Item) -> Item:
    """Return a message whose content is a text with that text as its only part, as everything that reads items expects.

    Examples
    --------
    >>> text_as_part(Item(type="message", role="user", content="Hi"))["content"][0]["type"]
    'input_text'
    """
    return Item({**item, "content": (_text_part(item["role"], item["content"]),)})


def answer_message(item: Item) -> Item:
    """Return a message of a model as everything that reads items expects it: its text in parts of a response.

    Raises `TypeError` for content that is neither text nor parts, and for a part whose text is none: it would be lost, and no
    rule would see it. Parts of other types are of a provider and pass.

    Examples
    --------
    >>> chat = Item(type="message", role="assistant", content=({"type": "text", "text": "Hi"},))
    >>> answer_message(chat)["content"][0]["type"]
    'output_text'
    """
    content = item.get("content")
    if content is None:
        return item
    if isinstance(content, str):
        return text_as_part(item)
    if not isinstance(content, list | tuple):
        raise TypeError(f"The content of a message is a text or a list of parts, not {type(content).__name__}.")
    parts: list[Any] = []
    for part in content:
        if not isinstance(part, Mapping):
            raise TypeError(f"A part of a message is a mapping with a type, not {type(part).__name__}.")
        kind = part.get("type")
        field = "text" if kind == "text" else _TEXT_FIELDS.get(kind) if isinstance(kind, str) else None
        if field is not None and not isinstance(part.get(field), str):
            raise TypeError(f"A part of type {kind!r} has no text under {field!r}.")
        parts.append(_text_part("assistant", part["text"]) if kind == "text" else part)
    return Item({**item, "content": tuple(parts)})


def _text_part(role: str, text: str) -> Item:
    return (
        Item(type="output_text", text=text, annotations=())
        if role == "assistant"
        else Item(type="input_text", text=text)
    )


def _check_parts(parts: Any, name: str) -> None:
    if not isinstance(parts, list | tuple):
        raise _Problem(f"its {name} is no list of parts.", parts, "Such as [{'type': 'input_text', 'text': 'Hello'}].")
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str) or not part["type"]:
            raise _Problem(
                f"a part of its {name} has no type.", part, "Such as {'type': 'input_text', 'text': 'Hello'}."
            )
        field = _TEXT_FIELDS.get(part["type"])
        if field is not None and not isinstance(part.get(field), str):
            raise _Problem(f"a part of type {part['type']!r} has no text under {field!r}.", part)
        if part["type"] == "text":
            raise _Problem(
                "a part of type 'text' is one of a chat message.", part, "Use 'input_text' or 'output_text'."
            )


def _call(item: Item) -> Item:
    for field in ("name", "arguments"):
        if not isinstance(item.get(field), str) or (field == "name" and not item[field]):
            raise _Problem(f"a call needs text under {field!r}.", item.get(field), "Arguments are JSON text.")
    if not isinstance(item.get("callId") or item.get("id"), str):
        raise _Problem("a call needs text under 'callId'.", item.get("callId"))
    return item


def _output(item: Item) -> Item:
    for field in ("callId", "output"):
        if not isinstance(item.get(field), str) or (field == "callId" and not item[field]):
            raise _Problem(f"the output of a call needs text under {field!r}.", item.get(field))
    return item


def _reasoning(item: Item) -> Item:
    for field in ("content", "summary"):
        if item.get(field) is not None:
            _check_parts(item[field], field)
    return item


_CHECKS: Final[dict[str, Callable[[Item], Item]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _output,
    "reasoning": _reasoning,
}
