"""Events to JSON data and back: camelCase keys, a ``kind`` first, every field checked on the way in.

The form follows from the annotations in `noetic_nb.events`, so a new field or event needs no code here. Nothing that is
read is executed, and nothing is coerced: text where a number belongs is an error, not a guess.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.events import LayerStateChanged, MemoryTraceSpan, RequestPrepared, RunEvent
from noetic_nb.items import Item
from noetic_nb.items.frozen import FrozenDict
from noetic_nb.items.kept_data import frozen_data
from noetic_nb.items.registry import ANY_ITEMS
from noetic_nb.late_data import Later, held_by
from noetic_nb.quick_records import dataclass
from noetic_nb.runs.events.payload import from_wire, to_wire

__all__ = [
    "EVENT_TYPES",
    "PLAIN_TYPES",
    "SCHEMA",
    "SCHEMA_VERSION",
    "WireError",
    "dump_event",
    "parse_event",
    "settled",
]

SCHEMA: Final = "noetic_nb/run"
SCHEMA_VERSION: Final = 2
"""Version of the events and of the file that holds them; it grows when an older reader would be wrong."""

EVENT_TYPES: Final[tuple[type[RunEvent], ...]] = get_args(RunEvent)
_BY_KIND: Final[dict[str, type[RunEvent]]] = {cls.kind: cls for cls in EVENT_TYPES}
# A run may hold items of extensions that are not registered where it is read; they are data all the same.

_Writer: TypeAlias = Callable[[Any], Any]
_Reader: TypeAlias = Callable[[Any, str], Any]


class WireError(ValueError):
    """JSON data is not an event; the message names the field."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    wire: str
    write: _Writer
    read: _Reader
    required: bool
    is_free: bool


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _wrong(path: str, wanted: str, given: object) -> WireError:
    return WireError(f"`{path}` must be {wanted}, but is {given!r:.80}")


def _same(value: Any) -> Any:
    return value


# Sums and tables are made with floats: a larger number would fail there, far from the file it came from.
_MOST: Final = 2**63 - 1  # columns of tables hold no more
_LARGEST: Final = int(sys.float_info.max)


def _in_range(number: Any, path: str) -> Any:
    if type(number) is int and not -_LARGEST <= number <= _LARGEST:
        raise WireError(f"`{path}` must be a number that a float can hold, but has {number.bit_length()} bits")
    return number


def _read_int(value: Any, path: str) -> Any:
    if type(value) is not int:
        raise _wrong(path, "a whole number", value)
    if not -_MOST <= value <= _MOST:
        raise WireError(f"`{path}` must be a whole number of at most 63 bits, but has {value.bit_length()}")
    return value


def _scalar(wanted: type, name: str) -> _Reader:
    def read(value: Any, path: str) -> Any:
        if type(value) is not wanted:
            raise _wrong(path, name, value)
        return value

    return read


def _read_float(value: Any, path: str) -> Any:
    number = from_wire(value) if isinstance(value, dict) else value
    # Whole numbers are not made floats: what was saved as 5 loads as 5.
    if type(number) not in (int, float):
        raise _wrong(path, "a number", value)
    return _in_range(number, path)


def _read_item(value: Any, path: str) -> Item:
    if not isinstance(value, dict):
        raise _wrong(path, "an item", value)
    try:
        return ANY_ITEMS.parse(value)
    except ItemValidationError as error:
        raise WireError(f"`{path}` is no item: {error}") from error


def _read_mapping(value: Any, path: str) -> FrozenDict:
    frozen = from_wire(value)
    if not isinstance(frozen, FrozenDict):
        raise _wrong(path, "an object", value)
    return frozen


def _optional(write: _Writer, read: _Reader) -> tuple[_Writer, _Reader]:
    return (
        lambda value: None if value is None else write(value),
        lambda value, path: None if value is None else read(value, path),
    )


def _sequence(write: _Writer, read: _Reader) -> tuple[_Writer, _Reader]:
    def read_all(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _wrong(path, "a list", value)
        return tuple([read(inner, f"{path}[{place}]") for place, inner in enumerate(value)])

    return lambda values: [write(value) for value in values], read_all


def _record(parts: tuple[Any, ...]) -> tuple[_Writer, _Reader]:
    codecs = [_codec(part) for part in parts]

    def read(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(codecs):
            raise _wrong(path, f"a list of {len(codecs)}", value)
        return tuple([codec[1](value[place], f"{path}[{place}]") for place, codec in enumerate(codecs)])

    return lambda values: [codec[0](inner) for codec, inner in zip(codecs, values, strict=True)], read


_PLAIN: Final[dict[Any, tuple[_Writer, _Reader]]] = {
    str: (_same, _scalar(str, "text")),
    int: (_same, _read_int),
    bool: (_same, _scalar(bool, "true or false")),
    float: (to_wire, _read_float),
    Item: (to_wire, _read_item),
    Any: (to_wire, lambda value, path: from_wire(value)),
}


def _codec(hint: Any) -> tuple[_Writer, _Reader]:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        # Any word passes: a run must load although a layer or a newer version uses a word that this one does not know.
        return _PLAIN[str]
    if origin in (types.UnionType, Union) and len(args) == 2 and type(None) in args:
        return _optional(*_codec(next(arg for arg in args if arg is not type(None))))
    if origin is tuple:
        return _sequence(*_codec(args[0])) if args[-1] is Ellipsis else _record(args)
    if origin is Mapping:
        return to_wire, _read_mapping
    if is_dataclass(hint):
        cls: type[Any] = hint  # type: ignore[assignment]  # annotations name classes, never instances
        return _dump, lambda value, path: _parse(cls, value, path)
    raise TypeError(
        f"An event field is annotated {hint!r}, which has no wire form. Extend noetic_nb.runs.events.event_codec."
    )


def _is_free(hint: Any) -> bool:
    return hint is Any or get_origin(hint) is Mapping or any(get_origin(arg) is Mapping for arg in get_args(hint))


_FIELDS: Final[dict[type[Any], tuple[_Field, ...]]] = {}
_state_of: Final = held_by(LayerStateChanged, "state")
_NOTHING: Final[tuple[Any, ...]] = ()  # the only tuple that is empty
# With what gets the value as it is held.
_FREE: Final[dict[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]]] = {}
PLAIN_TYPES: Final[set[type[Any]]] = set()
"""Types of events that hold nothing that can change, of those that were seen: `settled` returns them as they are."""


def _fields_of(cls: type[Any]) -> tuple[_Field, ...]:
    known = _FIELDS.get(cls)
    if known is None:
        # Once a class: resolving annotations takes longer than reading an event.
        hints = get_type_hints(cls)
        known = _FIELDS[cls] = tuple(
            _Field(
                field.name,
                _camel(field.name),
                *_codec(hints[field.name]),
                required=field.default is MISSING and field.default_factory is MISSING,
                is_free=_is_free(hints[field.name]),
            )
            for field in fields(cls)
        )
    return known


def _free_fields(event: object) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    if not isinstance(event, EVENT_TYPES):
        raise NoeticConfigError(
            "INVALID_RUN_EVENT", "A run holds events.", given=event, hint="Use the records in noetic_nb.events."
        )
    cls = type(event)
    names = [field.name for field in _fields_of(cls) if field.is_free]
    if not names and cls is not RequestPrepared:
        PLAIN_TYPES.add(cls)
    free = _FREE[cls] = tuple([(name, held_by(cls, name)) for name in names])
    return free


def settled(event: RunEvent, known: dict[int, tuple[Any, Any]] | None = None) -> RunEvent:
    """Return an event whose free data can change no more; the event itself when that holds already.

    A tool may go on to change the arguments it was given: what a run keeps must not change with them. `known` is filled with
    what was looked through, for events that share their data.
    Raises `NoeticConfigError`, ``INVALID_RUN_EVENT``, if it is no event.
    """
    if isinstance(event, MemoryTraceSpan):
        if event.attributes is None and not event.notes:
            return event  # as most, and most events are these
    elif isinstance(event, LayerStateChanged) and type(_state_of(event)) is Later:
        return event
    if isinstance(event, RequestPrepared):
        event = _with_settled_tools(event)
    free = _FREE.get(type(event))
    if free is None:  # the first of its class, or none
        free = _free_fields(event)
    changed = {}
    for name, held in free:
        value = held(event)
        if value is None or value is _NOTHING or type(value) is Later:  # which nobody can write into
            continue
        if known is None:
            frozen = frozen_data(value)
        else:
            seen = known.get(id(value))
            # The value is kept beside, as its id may not become another's.
            frozen = seen[1] if seen is not None else known.setdefault(id(value), (value, frozen_data(value)))[1]
        if frozen is not value:
            changed[name] = frozen
    return replace(event, **changed) if changed else event


def _with_settled_tools(event: RequestPrepared) -> RequestPrepared:
    # What the runtime offers is frozen all the way down, and too large to look through at every turn.
    if all(type(tool.parameters) is FrozenDict for tool in event.tools):
        return event
    tools = [replace(tool, parameters=frozen_data(tool.parameters)) for tool in event.tools]
    return replace(event, tools=tuple(tools))


def _dump(record: Any) -> dict[str, Any]:
    return {field.wire: field.write(getattr(record, field.name)) for field in _fields_of(type(record))}


def _parse(cls: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(path or "event", "an object", value)
    known = _fields_of(cls)
    prefix = f"{path}." if path else ""
    values = {}
    for field in known:
        if field.wire in value:
            values[field.name] = field.read(value[field.wire], f"{prefix}{field.wire}")
        elif field.required:
            raise WireError(f"`{prefix}{field.wire}` is missing")
    extra = value.keys() - {field.wire for field in known} - {"kind"}
    if extra:
        raise WireError(f"`{prefix}{min(extra)}` is not a field of {cls.__name__}")
    return cls(**values)


def dump_event(event: RunEvent) -> dict[str, Any]:
    """Return an event as plain JSON data: ``kind`` and every field under its camelCase name, defaults included.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> dump_event(QualityGiven(Where("t1", "e1", 2), 5.0, 0.4, "grader"))["where"]
    {'threadId': 't1', 'executionId': 'e1', 'turn': 2, 'depth': 0}
    """
    return {"kind": event.kind, **_dump(event)}


def parse_event(data: object) -> RunEvent:
    """Read an event from what `dump_event` returned, perhaps through a file; fields with a default may be missing.

    Raises `WireError` if the kind is unknown, a field is missing, unknown, or of the wrong type.

    Examples
    --------
    >>> parse_event({"kind": "quality_given", "where": {"threadId": "t1", "executionId": "e1", "turn": "2"}})
    Traceback (most recent call last):
    ...
    noetic_nb.runs.events.event_codec.WireError: `where.turn` must be a whole number, but is '2'
    """
    if not isinstance(data, dict):
        raise _wrong("event", "an object", data)
    kind = data.get("kind")
    cls = _BY_KIND.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise WireError(f"`kind` must be one of {', '.join(sorted(_BY_KIND))}, but is {kind!r:.80}")
    event: RunEvent = _parse(cls, data, "")
    return event
