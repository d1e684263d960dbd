"""Checks items of known types when they are added; unknown types and fields belong to others, and pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetic_nb.errors import ItemValidationError
from noetic_nb.items._frozen import MAPPINGS
from noetic_nb.items._item import Item

ROLES: Final = ("user", "system", "developer", "assistant")
STATUSES: Final = ("in_progress", "completed", "incomplete", "failed")
# By type of a part, the fields that must be text. A type with a colon is provider-specific, as with items.
_PART_TEXTS: Final = {
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
_PARTS: Final = frozenset({*_PART_TEXTS, "input_image", "input_file", "input_audio", "output_audio"})
_PART_EXAMPLE: Final = "For example: [{'type': 'input_text', 'text': 'Hello'}]."

# The slot itself, as in `noetic_nb.items._item`: empty text, or the problem of an item from an earlier version.
_mark: Final = Item._checked.__set__  # type: ignore[attr-defined]
_marked: Final = Item._checked.__get__  # type: ignore[attr-defined]


class MalformedItem(ItemValidationError):
    """An item of a known type is invalid; `problem` describes the fault, without the type."""

    def __init__(self, kind: str, problem: str, *, given: object, hint: str = "") -> None:
        super().__init__(f"An item of type {kind!r}: {problem}", given=given, hint=hint)
        self.problem = problem


def problem_of(item: Item) -> str | None:
    """Return why an item is invalid for its type, or None if it is valid."""
    try:
        logged_item(item)
    except MalformedItem as exc:
        return str(exc)
    return kept_problem(item) or None


def kept_problem(item: Item) -> str | None:
    """Return empty text for a checked item, the problem of an invalid item that was kept, None for all others."""
    try:
        found: str = _marked(item)
    except AttributeError:
        return None
    return found


def is_checked(item: Item) -> bool:
    """Tell whether an item was checked before, or kept unchecked."""
    try:
        _marked(item)
    except AttributeError:
        return False
    return True


def checked_item(item: Item) -> Item:
    """Return a valid item of a known type, with text as a part; raises `ItemValidationError` that names the field."""
    return item if is_checked(item) else newly_checked(item)


def newly_checked(item: Item) -> Item:
    check = _CHECKS.get(item["type"])
    if check is not None:
        _check_frame(item)
        item = check(item)
        _mark(item, "")
    return item


def logged_item(item: Item) -> Item:
    """Check a logged item; an assistant message is checked like one from a model. See `checked_item`."""
    is_answer = item["type"] == "message" and item.get("role") == "assistant"
    return answer_item(item) if is_answer else checked_item(item)


def kept_item(item: Item, error: ItemValidationError) -> Item:
    """Return an invalid item that may be logged nevertheless, because it was logged before."""
    _mark(item, str(error))
    return item


def answer_item(item: Item) -> Item:
    """Return an item of a model's response in the form that all readers of items expect.

    A message from a model always has the role assistant, and its text is in response parts. Parts of other types are
    provider-specific, and pass. Raises `ItemValidationError` for content that would be lost, or that no rule would see.
    """
    if item["type"] == "function_call" and item.get("callId") in (None, ""):
        # Some servers send no id; the log makes it unique.
        item = Item({**item, "callId": item.get("id") or "call"})
    if item["type"] != "message":
        return checked_item(item)
    if item.get("role") == "assistant" and is_checked(item):
        return item
    _check_frame(item)
    content = item.get("content")
    parts: Any = [] if content is None else [_text_part("assistant", content)] if isinstance(content, str) else content
    _check_parts(item, "content", parts, others_pass=True)
    made = [_text_part("assistant", part["text"]) if part["type"] == "text" else part for part in parts]
    if item.get("role") != "assistant" or content is None or isinstance(content, str) or made != [*parts]:
        item = Item({**item, "role": "assistant", "content": tuple(made)})
    _mark(item, "")
    return item


def _text_part(role: str, text: str) -> Item:
    return (
        Item(type="output_text", text=text, annotations=())
        if role == "assistant"
        else Item(type="input_text", text=text)
    )


def _check_frame(item: Item) -> None:
    kind = item["type"]
    status = item.get("status")
    if status is not None and status not in STATUSES:
        hint = f"Statuses are {', '.join(STATUSES)}."
        raise MalformedItem(kind, "there is no such status.", given=status, hint=hint)
    if item.get("id") is not None and not isinstance(item["id"], str):
        raise MalformedItem(kind, "an id is text.", given=item["id"])


def _message(item: Item) -> Item:
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise MalformedItem("message", "there is no such role.", given=role, hint=f"Roles are {', '.join(ROLES)}.")
    if isinstance(content, str):
        return Item({**item, "content": (_text_part(item["role"], item["content"]),)})
    _check_parts(item, "content", content)
    return item


def _check_parts(item: Item, name: str, parts: Any, *, others_pass: bool = False) -> None:
    kind = item["type"]
    if not isinstance(parts, (list, tuple)):
        raise MalformedItem(kind, f"its {name} is not a list of parts.", given=parts, hint=_PART_EXAMPLE)
    for part in parts:
        if not isinstance(part, MAPPINGS) or not isinstance(part.get("type"), str) or not part["type"]:
            raise MalformedItem(kind, f"a part of its {name} has no type.", given=part, hint=_PART_EXAMPLE)
        field = "text" if part["type"] == "text" else _PART_TEXTS.get(part["type"])
        if field is not None and not isinstance(part.get(field), str):
            raise MalformedItem(kind, f"a part of type {part['type']!r} has no text under {field!r}.", given=part)
        if others_pass or part["type"] in _PARTS or ":" in part["type"]:
            continue
        if part["type"] == "text":
            what, hint = ("a part of type 'text' is one of a chat message.", "Use 'input_text' or 'output_text'.")
        else:
            what = f"its {name} has a part of type {part['type']!r}, which does not exist."
            hint = f"Parts are {', '.join(sorted(_PARTS))}, or a provider's own with a colon in its type."
        raise MalformedItem(kind, what, given=part, hint=hint)


def _call(item: Item) -> Item:
    for field in ("name", "arguments", "callId"):
        if not isinstance(item.get(field), str) or (field == "callId" and not item[field]):
            what = f"a call needs text as {field!r}."
            hint = "Arguments are JSON text." if field == "arguments" else ""
            raise MalformedItem("function_call", what, given=item.get(field), hint=hint)
    return item


def _output(item: Item) -> Item:
    call_id, output = item.get("callId"), item.get("output")
    if not isinstance(call_id, str) or not call_id:
        raise MalformedItem("function_call_output", "it needs text under 'callId'.", given=call_id)
    if not isinstance(output, str):  # such as images
        _check_parts(item, "output", output)
    return item


def _reasoning(item: Item) -> Item:
    for field in ("content", "summary"):
        if item.get(field) is not None:
            _check_parts(item, field, item[field])
    return item


_CHECKS: Final[dict[str, Callable[[Item], Item]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _output,
    "reasoning": _reasoning,
}
