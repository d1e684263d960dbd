"""Events to JSON data and back: camelCase keys, a ``kind`` first, every field checked on the way in.

The form follows from `noetic_nb.events`, so a new field or event needs no code here. Nothing that is read is executed, and
nothing is coerced: text where a number belongs is an error, not a guess.
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
    if not math.isfinite(number):  # Python makes infinity of 1e400, which is not what was written
        raise ValueError(f"{text[:40]} is larger than any number here")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(line: bytes) -> Any:
    """Return the data of a line of JSON; raises `ValueError` for none, and for a number that no float can hold."""
    return json.loads(line, parse_constant=_refuse_constant, parse_float=_fraction, parse_int=_whole)


def to_wire(value: Any) -> Any:
    """Return data as plain JSON data; numbers that JSON lacks are written as ``{"$float": "Infinity"}``."""
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
"""Version of the events and of the file that holds them; it grows when an older reader would be wrong."""

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


_FREE: Final = {FrozenDict, FreeData, OfferedTool}  # what may hold something that can be written into


class WireError(ValueError):
    """JSON data is not an event; the message names the field."""


def dump_event(event: RunEvent) -> dict[str, Any]:
    """Return an event as plain JSON data: ``kind`` and every field under its camelCase name, defaults included."""
    dumped: dict[str, Any] = to_wire(msgspec.to_builtins(event, enc_hook=_plain))
    return dumped


def _plain(value: Any) -> Any:
    """Return text, a number or a mapping of a subclass as the plain type."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON data")


def parse_event(data: object) -> RunEvent:
    """Read an event from the data of `dump_event`, fields with a default may be missing; raises `WireError`."""
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
    """Read the types that msgspec does not know: items, and data and numbers as `to_wire` writes them."""
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
    """Return an error of msgspec in our words."""
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
    """Return the fields of an event that may hold mutable data."""
    if cls not in EVENT_TYPES:
        hint = "Use the records in noetic_nb.events."
        raise NoeticConfigError("INVALID_RUN_EVENT", "A run holds events.", given=cls, hint=hint)
    return tuple([field.name for field in msgspec.structs.fields(cls) if _FREE & _inside(field.type)])


def _inside(hint: Any) -> set[Any]:
    return {hint}.union(*map(_inside, get_args(hint)))


PLAIN_TYPES: Final = frozenset([cls for cls in EVENT_TYPES if not _free_fields(cls)])
"""Types of events that hold nothing that can change: `settled` returns them as they are."""


def settled(event: RunEvent) -> RunEvent:
    """Return an event whose free data can change no more, itself where it cannot; raises ``INVALID_RUN_EVENT``."""
    # As nearly all events are; a state may be large, and is frozen when it is written.
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
    # What the runtime offers is frozen all the way down, and too large to look through at every turn.
    if all(type(tool.parameters) is FrozenDict for tool in tools):
        return tools
    return tuple([replace(tool, parameters=frozen_data(tool.parameters)) for tool in tools])


def size_of(events: Sequence[RunEvent]) -> int:
    """Return about how many bytes events take as JSON, measured by MessagePack, which is faster: the unit of a run's bound."""
    try:
        return len(msgspec.msgpack.encode(events, enc_hook=_plain))
    # Half a character, or a field that no file could hold.
    except (TypeError, ValueError, OverflowError, RecursionError):
        return sum([len(repr(event)) for event in events])
