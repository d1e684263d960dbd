"""Detects, reads and writes the message formats of other frameworks.

These formats have no field for an origin, so the first line of the text names it. Such a line can only lower the trust
implied by the role, or change nothing, so forging one gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from noetic_nb._core.long_work import counted
from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._item import Item
from noetic_nb.items._messages import anthropic, langchain, openai_chat, openai_responses, pydantic_ai
from noetic_nb.items._messages.message import Compaction, Message, Reading, input_text, text_message
from noetic_nb.items._origins import OriginKind, origin_named, with_origin

_LINE: Final = re.compile(rf"\[from ((?:{'|'.join(get_args(OriginKind))})(?::[^\]\n]*)?)\]\n")
_UNFIT: Final = re.compile(r"[\]\n]")


def write_origin(item: Item) -> Item:
    """Return an item whose text begins with its named origin, for a format without a field for it."""
    origin = item.get("origin")
    # Also mark a text that happens to begin this way, so that reading it back is unambiguous.
    if not _may_name(item) or (origin is None and _LINE.match(_first_text(item)) is None):
        return item
    name = "user" if origin is None else origin_named(origin).text
    return _with_start(item, f"[from {_UNFIT.sub(' ', name)}]\n", 0)


def read_origin(item: Item) -> Item:
    """Return an item that names the origin with which its text began."""
    found = _LINE.match(_first_text(item)) if _may_name(item) else None
    return item if found is None else with_origin(_with_start(item, "", found.end()), origin_named(found[1]))


def _may_name(item: Item) -> bool:
    """Tell whether an item has text and an origin other than the model, which is trusted least anyway."""
    kind = item["type"]
    return kind == "function_call_output" or (kind == "message" and item.get("role") != "assistant")


def _first_text(item: Item) -> str:
    given = item.get("output") if item["type"] == "function_call_output" else item.get("content")
    if isinstance(given, str):
        return given
    return next((part["text"] for part in given or () if isinstance(part.get("text"), str)), "")


def _with_start(item: Item, start: str, cut: int) -> Item:
    """Return an item with the first `cut` characters of its text replaced by `start`."""
    name = "output" if item["type"] == "function_call_output" else "content"
    given: Any = item.get(name) or ""
    if isinstance(given, str):
        return Item({**item, name: start + given[cut:]})
    parts = [*given]
    place = next((at for at, part in enumerate(parts) if isinstance(part.get("text"), str)), None)
    if place is None:
        return Item({**item, name: (input_text(start), *parts)})
    text = start + parts[place]["text"][cut:]
    # A part with nothing but the origin line was added for it, beside an image: remove it.
    parts[place : place + 1] = [FrozenDict({**parts[place], "text": text})] if text or len(parts) == 1 else []
    return Item({**item, name: tuple(parts)})


MessageFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic", "langchain", "pydantic-ai"]
"""Supported message formats."""

_ENCODERS: Final[dict[str, Callable[[Sequence[Item], Collection[str]], list[dict[str, Any]]]]] = {
    "openai": openai_chat.encode,
    "openai-responses": openai_responses.encode,
    "anthropic": anthropic.encode,
    "langchain": langchain.encode,
}
# Most specific test first: several formats resemble chat messages.
_SIGNS: Final[tuple[tuple[MessageFormat, Callable[[Any], bool]], ...]] = (
    ("pydantic-ai", pydantic_ai.looks_like),
    ("langchain", langchain.looks_like),
    ("openai-responses", lambda value: isinstance(value, Mapping) and openai_responses.looks_like(value)),
    ("anthropic", lambda value: isinstance(value, Mapping) and anthropic.looks_like(value)),
)


def recognise(messages: Sequence[Any]) -> MessageFormat | None:
    """Return the format of messages, or None if unrecognised."""
    for name, sign in _SIGNS:
        if any(_shows(sign, message) for message in messages):
            return name
    chat = [message for message in messages if isinstance(message, Mapping) and openai_chat.looks_like(message)]
    return "openai" if chat else None


def _shows(sign: Callable[[Any], bool], message: Any) -> bool:
    try:
        return sign(message)
    except (TypeError, RecursionError):  # a list where the formats have a string
        return False


def decode_messages(
    messages: Iterable[Any], *, format: MessageFormat | None = None, system: Any = None, strict: bool = False
) -> tuple[list[Message | Compaction], list[dict[str, Any]], MessageFormat]:
    """Read messages as dictionaries or objects of other packages; returns them, the unmapped parts, and the format.

    `system` is the prompt, if the format stores it separately. An unmapped part has its place, the reason (``what``)
    and its value; with `strict` it raises `ItemValidationError`. Raises `NoeticConfigError` ``UNKNOWN_FORMAT``.
    """
    if format is not None and format not in get_args(MessageFormat):
        raise unknown_format(format, get_args(MessageFormat))
    listed: object = messages
    if not isinstance(listed, Iterable):
        what, hint = "Messages are given as a list.", "Pass [message, ...]."
        raise NoeticConfigError("UNKNOWN_FORMAT", what, given=messages, hint=hint)
    given = openai_responses.joined(
        openai_chat.joined([plain_message(message) for message in langchain.joined(messages)])
    )
    found = format or recognise(given)
    if found is None:
        if given:
            what = "The format of these messages is unknown."
            hint = f"Name the format: {', '.join(get_args(MessageFormat))}."
            raise NoeticConfigError("UNKNOWN_FORMAT", what, given=given[0], hint=hint)
        found = "openai"
    reading = Reading(strict=strict)
    if system:
        _system(system, reading)
    waiting: list[str] = []
    for number, message in enumerate(counted(given, "messages")):
        reading.place = f"messages[{number}]"
        decode_into(message, found, reading, waiting)
    return reading.messages, reading.unmapped, found


def decode_one(message: Any, format: MessageFormat, *, waiting: list[str], place: str) -> list[Message | Compaction]:
    """Read one message, called `place` in errors; `waiting` has calls without an id. Raises `ItemValidationError`."""
    reading = Reading(strict=True)
    reading.place = place
    decode_into(message, format, reading, waiting)
    return reading.messages


def decode_into(message: Any, format: MessageFormat, reading: Reading, waiting: list[str]) -> None:
    """Read one message, which may add several to `reading`; an unreadable one is listed there."""
    is_mapping = isinstance(message, Mapping)
    known = len(reading.messages)
    try:
        if format == "pydantic-ai" and pydantic_ai.looks_like(message):
            pydantic_ai.decode(message, reading)
        elif format == "langchain" and langchain.looks_like(message):
            langchain.decode(message, reading)
        elif format == "openai-responses" and is_mapping:
            openai_responses.decode(message, reading)
        elif format == "anthropic" and is_mapping:
            anthropic.decode(message, reading)
        elif is_mapping and openai_chat.looks_like(message):
            openai_chat.decode(message, reading, waiting)
        else:
            reading.skip("", "it is not a message", message)
    except ItemValidationError as error:
        if reading.strict:
            raise
        del reading.messages[known:]
        reading.skip("", error.what, message)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        # External data may be malformed anywhere; a field of the wrong type must not lose the other messages.
        del reading.messages[known:]
        reading.skip("", f"it cannot be read ({type(error).__name__}: {str(error)[:200]})", message)
    for one in reading.messages[known:]:
        if isinstance(one, Message):
            one.items = tuple(map(read_origin, one.items))


def plain_message(message: Any) -> Any:
    """Convert a message object of a provider's package to a dictionary; frameworks have their own readers."""
    if langchain.looks_like(message) or pydantic_ai.looks_like(message):
        return message
    return _plain(message)


def _plain(value: Any) -> Any:
    """Convert package objects in data to dictionaries; plain data is returned unchanged."""
    if isinstance(value, Mapping):
        found = {key: _plain(inner) for key, inner in value.items() if _has_objects(inner)}
        return {**value, **found} if found else value
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return value
    try:
        return dump(exclude_none=True, by_alias=True, warnings=False)
    except TypeError:  # not a pydantic model
        return dump()


def _has_objects(value: Any) -> bool:
    """Tell whether a value is a package object, or a list that contains one, such as the blocks of a response."""
    if isinstance(value, list | tuple):
        return any(not isinstance(inner, str) and hasattr(inner, "model_dump") for inner in value)
    return hasattr(value, "model_dump")


def _system(system: Any, reading: Reading) -> None:
    blocks = [system] if isinstance(system, str) else system if isinstance(system, list | tuple) else []
    texts = [block.get("text") if isinstance(block, Mapping) else block for block in blocks]
    parts = tuple([input_text(text) for text in texts if isinstance(text, str)])
    reading.place = "system"
    if len(parts) != len(texts) or not parts:
        reading.skip("", "a system prompt must be text or a list of texts", system)
    if parts:
        reading.messages.append(Message("system", (text_message("system", parts),)))


def encode_messages(items: Sequence[Item], format: str, *, failed: Collection[str] = ()) -> list[dict[str, Any]]:
    """Write items as messages of a format, with `failed` calls if it can express them; raises ``UNKNOWN_FORMAT``."""
    encode = _ENCODERS.get(format) if isinstance(format, str) else None
    if encode is None:
        raise unknown_format(format, _ENCODERS)
    return encode([*map(write_origin, items)], failed)


def unknown_format(given: object, known: Iterable[str]) -> NoeticConfigError:
    return NoeticConfigError(
        "UNKNOWN_FORMAT", "There is no such format.", given=given, hint=f"Formats are {', '.join(known)}."
    )
