"""The values of a text that is JSON or YAML, each with the key beside it and the item that it belongs to."""

from __future__ import annotations

import importlib
import json
from typing import Any, Final, NamedTuple

from noetic_nb.items._value_search import value_text

MAX_LEAVES: Final = 20_000
# A result of this size takes some 10 ms to read as YAML; a longer one has no fields.
MAX_STRUCTURED: Final = 200_000


class Leaf(NamedTuple):
    """A value of a JSON or YAML text."""

    key: str | None
    """The key beside it."""
    text: str
    item: int
    """The number of the mapping that it stands in."""


def _leaves_of_json(data: Any) -> list[Leaf]:
    found: list[Leaf] = []
    waiting: list[tuple[str | None, Any, int]] = [(None, data, 0)]
    items = 0
    while waiting and len(found) < MAX_LEAVES:
        key, value, item = waiting.pop()
        if isinstance(value, dict):
            items += 1
            waiting += reversed([(str(name), inner, items) for name, inner in value.items()])
        elif isinstance(value, list):
            waiting += reversed([(key, inner, item) for inner in value])
        elif value is not None:
            found.append(Leaf(key, value_text(value), item))
    return found


def _leaves_of_yaml(text: str) -> list[Leaf]:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:  # an optional package: without it only JSON has fields
        return []
    found: list[Leaf] = []
    # Of every open collection its key and, in a mapping, the key that waits for its value; and the number of the mapping.
    open_: list[list[Any]] = []
    items = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent) or len(found) > MAX_LEAVES:
                return []  # what repeats itself can be as large as it likes
            if isinstance(event, yaml.ScalarEvent):
                if not open_:
                    return []  # prose is YAML, too
                top = open_[-1]
                if top[0] == "mapping" and top[2] is None:
                    top[2] = event.value
                    continue
                found.append(Leaf(top[2] if top[0] == "mapping" else top[1], event.value, top[3]))
                if top[0] == "mapping":
                    top[2] = None
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                key = None
                if open_:
                    key = open_[-1][2] if open_[-1][0] == "mapping" else open_[-1][1]
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                items += is_mapping
                open_.append(
                    ["mapping", key, None, items] if is_mapping else ["list", key, None, open_[-1][3] if open_ else 0]
                )
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                open_.pop()
                if open_ and open_[-1][0] == "mapping":
                    open_[-1][2] = None
    except yaml.YAMLError:
        return []
    return found


def leaves(text: str) -> list[Leaf]:
    """Return the values of a JSON or YAML text, each with the key beside it and its item; none for other text."""
    if len(text) > MAX_STRUCTURED:
        return []
    start = text.lstrip()[:1]
    if start and start in '[{"':
        try:
            data = json.loads(text)
            # JSON inside a JSON text is what some tools return.
            if isinstance(data, str):
                data = json.loads(data)
        except (ValueError, RecursionError):
            pass
        else:
            return _leaves_of_json(data) if isinstance(data, dict | list) else []
    return _leaves_of_yaml(text) if ":" in text else []
