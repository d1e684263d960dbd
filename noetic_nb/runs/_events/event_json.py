"""Converts events to JSON data and back: camelCase keys, ``kind`` first, every field validated on reading.

The format follows the classes in `noetic_nb.events`, so a new field or event needs no code here. Reading never executes
anything and never coerces: text in place of a number is an error, not a guess.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn, get_args

import msgspec.msgpack
import msgspec.structs
from msgspec.structs import replace

from noetic_nb._core.event_parts import FreeData, Number
from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.events import LayerStateChanged, MemoryTraceSpan, OfferedTool, RunEvent
from noetic_nb.items import Item
from noetic_nb.items._frozen import MOST_BITS, FrozenDict, frozen_data
from noetic_nb.items._registry import ANY_ITEMS

NON_FINITE: Final = "$float"
_TEXT_OF: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NUMBER_OF: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def _whole(text: str) -> int:
    number = int(text)
    if number.bit_length() > MOST_BITS:
        raise ValueError(f"a number of {len(text)} digits is larger than any number here")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # Python parses 1e400 as infinity, which is not the written number
        raise ValueError(f"{text[:40]} is larger than any number here")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(line: bytes) -> Any:
    """Parse a line of JSON; raises `ValueError` for invalid JSON and for a number that no float can hold."""
    return json.loads(line, parse_constant=_refuse_constant, parse_float=_fraction, parse_int=_whole)


def to_wire(value: Any) -> Any:
    """Convert data to plain JSON data; numbers that JSON lacks are written as ``{"$float": "Infinity"}``."""
    if type(value) is float and not math.isfinite(value):
        return {NON_FINITE: _TEXT_OF.get(value, "NaN")}
    if isinstance(value, Mapping):
        return {key: to_wire(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(inner) for inner in value]
    return value


def from_wire(value: Any) -> Any:
    """Return the frozen data that `to_wire` wrote."""
    if isinstance(value, dict):
        if len(value) == 1 and NON_FINITE in value:
            number = value[NON_FINITE]
            if isinstance(number, str) and number in _NUMBER_OF:
                return _NUMBER_OF[number]
        return FrozenDict({key: from_wire(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return tuple([from_wire(inner) for inner in value])
    return value


SCHEMA: Final = "noetic_nb/run"
SCHEMA_VERSION: Final = 2
"""Version of the events and of the run file; increased when an older reader would misread the data."""

EVENT_TYPES: Final[tuple[type[RunEvent], ...]] = get_args(RunEvent)
_KINDS: Final = frozenset([cls.kind for cls in EVENT_TYPES])
_WORDS: Final = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list",
    "object": "an object",
}  # fmt: skip
_EXPECTED: Final = re.compile(r"Expected `(\w+)[^`]*`(?: of length (\d+))?")
_ABOUT_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.S)
_TOO_LARGE: Final = re.compile(r"Integer value out of range|Expected `int` [<>]=")
_PLACE: Final = re.compile(r"\w+|\[\d+\]")


_FREE: Final = {FrozenDict, FreeData, OfferedTool}  # types that may contain mutable data


class WireError(ValueError):
    """The JSON data is not an event; the message names the field."""


def dump_event(event: RunEvent) -> dict[str, Any]:
    """Convert an event to plain JSON data: ``kind`` and every field under its camelCase name, defaults included."""
    dumped: dict[str, Any] = to_wire(msgspec.to_builtins(event, enc_hook=_plain))
    return dumped


def _plain(value: Any) -> Any:
    """Convert an instance of a subclass of str, a number type or a mapping to the plain type."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON data")


def parse_event(data: object) -> RunEvent:
    """Parse an event from the output of `dump_event`; fields with defaults may be missing. Raises `WireError`."""
    kind = data.get("kind") if isinstance(data, dict) else ""
    if not isinstance(kind, str) or (kind not in _KINDS and isinstance(data, dict)):
        raise WireError(f"`kind` must be one of {', '.join(sorted(_KINDS))}, but is {kind!r:.80}")
    try:
        event: RunEvent = msgspec.convert(data, RunEvent, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise WireError(_words(data, error)) from error
    except UnicodeEncodeError as error:
        raise WireError(f"a name or a word in it contains a lone surrogate: {error.object!r:.80}") from error
    return event


def _read(kind: type[Any], value: Any) -> Any:
    """Parse the types that msgspec does not know: items, and data and numbers as written by `to_wire`."""
    if kind is Item:
        if not isinstance(value, dict):
            raise ValueError(_wrong("an item", value))
        try:
            return ANY_ITEMS.parse(value)
        except ItemValidationError as error:
            raise ValueError(f"is not an item: {error}") from error
    found = from_wire(value)
    if kind is Number and type(found) not in (int, float):
        raise ValueError(_wrong("a number", value))
    if kind is FrozenDict and type(found) is not FrozenDict:
        raise ValueError(_wrong("an object", value))
    return found


def _wrong(wanted: str, given: object) -> str:
    return f"must be {wanted}, but is {given!r:.80}"


def _words(data: Any, error: msgspec.ValidationError) -> str:
    what, _, place = str(error).rpartition(" - at `$")
    if not what:
        what, place = place, ""
    place = place.removesuffix("`").removeprefix(".")
    if _TOO_LARGE.match(what) is not None:
        return f"`{place}` must be a whole number of at most 63 bits"
    if (about := _ABOUT_FIELD.match(what)) is not None:
        field = f"{place}.{about[2]}" if place else about[2]
        return f"`{field}` is missing" if about[1] == "missing required" else f"`{field}` is not a field here"
    if (expected := _EXPECTED.match(what)) is not None:
        for step in _PLACE.findall(place):
            data = data[int(step[1:-1]) if step[0] == "[" else step]
        length = f" of {expected[2]}" if expected[2] else ""
        what = _wrong(_WORDS.get(expected[1], expected[1]) + length, data)
    return f"`{place or 'event'}` {what}"


@cache
def _free_fields(cls: type[Any]) -> tuple[str, ...]:
    if cls not in EVENT_TYPES:
        hint = "Use the records in noetic_nb.events."
        raise NoeticConfigError("INVALID_RUN_EVENT", "A run holds events.", given=cls, hint=hint)
    return tuple([field.name for field in msgspec.structs.fields(cls) if _FREE & _inside(field.type)])


def _inside(hint: Any) -> set[Any]:
    return {hint}.union(*map(_inside, get_args(hint)))


PLAIN_TYPES: Final = frozenset([cls for cls in EVENT_TYPES if not _free_fields(cls)])
"""Event types without mutable content: `settled` returns them unchanged."""


def settled(event: RunEvent) -> RunEvent:
    """Return an event with frozen free data (the event itself if nothing in it can change); raises ``INVALID_RUN_EVENT``."""
    # The fast path, taken by nearly all events. States may be large, and are frozen when written.
    if isinstance(event, MemoryTraceSpan):
        if event.attributes is None and not event.notes:
            return event
    elif isinstance(event, LayerStateChanged) and type(event.state) is FrozenDict:
        return event
    changed: dict[str, Any] = {}
    for name in _free_fields(type(event)):
        value = getattr(event, name)
        frozen = _settled_tools(value) if name == "tools" else frozen_data(value)
        if frozen is not value:
            changed[name] = frozen
    return replace(event, **changed) if changed else event


def _settled_tools(tools: tuple[OfferedTool, ...]) -> tuple[OfferedTool, ...]:
    # The runtime offers deeply frozen tools, which are too large to check at every turn.
    if all(type(tool.parameters) is FrozenDict for tool in tools):
        return tools
    return tuple([replace(tool, parameters=frozen_data(tool.parameters)) for tool in tools])


def size_of(events: Sequence[RunEvent]) -> int:
    """Return about how many bytes events take as JSON, measured with the faster MessagePack: the unit of a run's size limit."""
    try:
        return len(msgspec.msgpack.encode(events, enc_hook=_plain))
    # Lone surrogates, or a field that no file can hold.
    except (TypeError, ValueError, OverflowError, RecursionError):
        return sum([len(repr(event)) for event in events])
