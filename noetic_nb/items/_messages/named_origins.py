"""Origins in messages of others: their formats have no field for one, so that the first line of a text names it.

Such a line makes a message less trusted than its role says, or changes nothing: nobody gains by writing one.
"""

from __future__ import annotations

import re
from typing import Any, Final, get_args

from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._item import Item
from noetic_nb.items._messages.message import input_text
from noetic_nb.items._origins import OriginKind, origin_named, with_origin

_LINE: Final = re.compile(rf"\[from ((?:{'|'.join(get_args(OriginKind))})(?::[^\]\n]*)?)\]\n")
_UNFIT: Final = re.compile(r"[\]\n]")


def told(item: Item) -> Item:
    """Return an item whose text begins with the origin that it names, for a format that has no field for it."""
    origin = item.get("origin")
    # A text that happens to begin so is told apart from one that was written here.
    if not _may_name(item) or (origin is None and _LINE.match(_first_text(item)) is None):
        return item
    name = "user" if origin is None else origin_named(origin).text
    return _with_start(item, f"[from {_UNFIT.sub(' ', name)}]\n", 0)


def heard(item: Item) -> Item:
    """Return an item that names the origin with which its text began."""
    found = _LINE.match(_first_text(item)) if _may_name(item) else None
    return item if found is None else with_origin(_with_start(item, "", found.end()), origin_named(found[1]))


def _may_name(item: Item) -> bool:
    """Tell whether an item has a text and another origin than the model, which is trusted least anyway."""
    kind = item["type"]
    return kind == "function_call_output" or (kind == "message" and item.get("role") != "assistant")


def _first_text(item: Item) -> str:
    given = item.get("output") if item["type"] == "function_call_output" else item.get("content")
    if isinstance(given, str):
        return given
    return next((part["text"] for part in given or () if isinstance(part.get("text"), str)), "")


def _with_start(item: Item, start: str, cut: int) -> Item:
    """Return an item with another start of its text, in place of so many characters."""
    name = "output" if item["type"] == "function_call_output" else "content"
    given: Any = item.get(name) or ""
    if isinstance(given, str):
        return Item({**item, name: start + given[cut:]})
    parts = [*given]
    place = next((at for at, part in enumerate(parts) if isinstance(part.get("text"), str)), None)
    if place is None:
        return Item({**item, name: (input_text(start), *parts)})
    text = start + parts[place]["text"][cut:]
    # What holds nothing but the line was put there for it, beside a picture.
    parts[place : place + 1] = [FrozenDict({**parts[place], "text": text})] if text or len(parts) == 1 else []
    return Item({**item, name: tuple(parts)})
