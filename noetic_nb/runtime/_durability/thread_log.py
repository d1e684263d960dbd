"""Conversations in storage: additions to a thread's log, in parts that are written once and never changed.

A part has the key ``thread:<id>:part:<8 digits>`` and contains its start position in the log, so that missing and
duplicate parts are detected on reading. ``thread:<id>:open`` names the running execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, get_args

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, ItemLog, dump_item
from noetic_nb.items._origins import Origin, OriginKind
from noetic_nb.items._registry import ItemRegistry
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._durability.corruption import count, is_damage, mapping, noticing, text_or_none, unreadable
from noetic_nb.storage import JsonValue, StorageAdapter
from noetic_nb.storage._adapter import get_many

VERSION: Final = 1
# Parts parsed before the next ones are read, to limit memory and to let other tasks run.
_AT_ONCE: Final = 250
PREFIX: Final = "thread:"


@lru_cache(maxsize=64)
def thread_prefix(thread_id: str) -> str:
    """Return the prefix of all keys of a thread; ``~`` and ``:`` are escaped, so that no two threads share keys."""
    return f"{PREFIX}{thread_id.replace('~', '~0').replace(':', '~1')}:"


def part_key(thread_id: str, number: int) -> str:
    return f"{thread_prefix(thread_id)}part:{number:08d}"


def states_key(thread_id: str, number: int) -> str:
    """Return the key of the layer states written with a part."""
    return f"{thread_prefix(thread_id)}states:{number:08d}"


def open_key(thread_id: str) -> str:
    return f"{thread_prefix(thread_id)}open"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a log: the items from position `first` on, after turn `turn`."""

    number: int
    first: int
    turn: int
    resource_id: str | None
    items: tuple[Item, ...]
    origins: Mapping[int, Origin] = field(default_factory=dict)
    """Origins of items, by position in the part, where their roles do not imply them."""
    states: Mapping[str, int | None] | None = None
    """For each layer, the number of its state at the end of the part; None if earlier versions stored none."""


class ThreadStore:
    def __init__(self, storage: StorageAdapter, registry: ItemRegistry) -> None:
        self.storage = storage
        self.registry = registry

    async def read(self, thread_id: str) -> tuple[Part, ...]:
        """Return all parts of a thread, in order; none for a thread that was never saved."""
        prefix = f"{thread_prefix(thread_id)}part:"
        keys = await self.storage.list(prefix)
        parts: list[Part] = []
        position = 0
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            found = await self._values(thread_id, some)
            for number, key in enumerate(some, start):
                # Eight digits sort numerically: the keys are 0, 1, 2 and so on unless one is missing.
                if key != f"{prefix}{number:08d}":
                    with self._noticing(thread_id, number):
                        raise LookupError("it is missing")
                part = self.part(found.get(key), thread_id, number, position)
                parts.append(part)
                position += len(part.items)
        return tuple(parts)

    async def after(self, thread_id: str, number: int, position: int) -> tuple[list[Part], str | None]:
        """Return any parts from `number` on, and the id of the running execution."""
        # Read before every turn, and nearly always only these two keys matter: one read instead of two.
        found = await self._values(thread_id, [part_key(thread_id, number), open_key(thread_id)])
        parts: list[Part] = []
        data = found.get(part_key(thread_id, number))
        while data is not None:
            parts.append(self.part(data, thread_id, number + len(parts), position))
            position += len(parts[-1].items)
            key = part_key(thread_id, number + len(parts))
            data = (await self._values(thread_id, [key])).get(key)
        opened = found.get(open_key(thread_id))
        execution_id = execution_of(opened)
        if opened is not None and execution_id is None:
            # Treating it as None would hide a turn whose items are stored nowhere else.
            with self._noticing(thread_id, "'open'"):
                raise TypeError("it names no execution")
        return parts, execution_id

    async def _values(self, thread_id: str, keys: Sequence[str]) -> dict[str, JsonValue]:
        """Read some keys of a thread; if one is not valid JSON, the error names it."""
        try:
            return await get_many(self.storage, keys)
        except Exception as exc:
            if not is_damage(exc):
                raise
            found = {}
            for key in keys:
                with self._noticing(thread_id, key.rsplit(":", 1)[1]):
                    found[key] = await self.storage.get(key)
            return {key: value for key, value in found.items() if value is not None}

    async def states(self, thread_id: str, places: Mapping[str, int | None]) -> dict[str, Any]:
        """Return states of layers, given the numbers that a part has for them."""
        numbers = {number: states_key(thread_id, number) for number in places.values() if number is not None}
        found = await self._values(thread_id, [*numbers.values()])
        states = {}
        for layer_id, number in places.items():
            if number is None or numbers[number] not in found:
                what = f"The state of layer {layer_id!r} after this turn is not stored."
                hint = "It was not JSON data." if number is None else "It is too old."
                raise NoeticConfigError("UNKNOWN_TURN", what, given=thread_id, hint=hint)
            record = found[numbers[number]]
            if not isinstance(record, Mapping) or layer_id not in record:
                raise unreadable(
                    f"What the layers of thread {thread_id!r} knew at part {number}",
                    thread_id,
                    f"there is no state of layer {layer_id!r}",
                    "written by another version; go back to another turn.",
                )
            states[layer_id] = record[layer_id]
        return states

    def part(self, data: JsonValue, thread_id: str, number: int, position: int) -> Part:
        """Read a part, which must begin at `position`; raises `NoeticConfigError` ``CHECKPOINT_SCHEMA_MISMATCH``."""
        try:
            return self._part(data, thread_id, number, position)
        except Exception:  # the message is only built on failure: a thread may have ten thousand parts
            with self._noticing(thread_id, number):
                raise

    def _part(self, data: JsonValue, thread_id: str, number: int, position: int) -> Part:
        found = (data["version"], data["threadId"], data["part"], data["first"])
        if found != (VERSION, thread_id, number, position):
            raise ValueError(f"version, thread, part and position are {found}")
        if not isinstance(data["items"], list):
            raise TypeError("'items' is not a list")
        parse = self.registry.parse_kept
        items = tuple([parse(item) for item in data["items"]])
        return Part(
            number,
            position,
            count(data["turn"], "turn"),
            text_or_none(data, "resourceId"),
            items,
            read_origins(data, len(items)) if "origins" in data else {},
            _places(data, number),
        )

    def _noticing(self, thread_id: str, number: int | str) -> AbstractContextManager[None]:
        return noticing(
            f"Part {number} of the saved thread {thread_id!r}",
            thread_id,
            "written by another version; mend it, or give the thread up with `await harness.forget_thread(...)`.",
        )

    async def names(self) -> tuple[str, ...]:
        """Return the ids of the saved threads, sorted."""
        names = set()
        for key in await self.storage.list(PREFIX):
            escaped, _, rest = key.removeprefix(PREFIX).partition(":")
            kind = rest.partition(":")[0]
            # In this order: "~01" stands for "~1" and must not become a colon.
            name = escaped.replace("~1", ":").replace("~0", "~")
            # `open` is written before its snapshot and deleted after it, so alone it may mean nothing.
            if kind == "part" or (kind == "open" and name not in names and await self.is_open(name)):
                names.add(name)
        return tuple(sorted(names))

    async def has(self, thread_id: str) -> bool:
        return bool(await self.storage.list(part_key(thread_id, 0))) or await self.is_open(thread_id)

    async def is_open(self, thread_id: str) -> bool:
        """Tell whether an unfinished turn has left any data."""
        try:
            opened = await self.storage.get(open_key(thread_id))
            if opened is None:
                return False
            execution_id = execution_of(opened)
            return execution_id is None or await self.storage.get(f"execution:{execution_id}:snapshot") is not None
        except Exception as exc:
            if not is_damage(exc):
                raise
            return True  # there is data; its errors are raised when the thread is read

    async def keys(self, thread_id: str) -> list[str]:
        """Return all keys of a thread in deletion order: the remaining parts are always the beginning of the thread."""
        return sorted(await self.storage.list(thread_prefix(thread_id)), reverse=True)


def execution_of(data: JsonValue) -> str | None:
    found = data.get("executionId") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else None


def _places(data: Mapping[str, Any], number: int) -> Mapping[str, int | None] | None:
    """Return the state numbers of a part, none of them later than the part itself."""
    if data.get("states") is None:
        return None
    found = mapping(data, "states")
    for place in found.values():
        if place is not None and not (type(place) is int and 0 <= place <= number):
            raise ValueError("a state is stored at a position that cannot have one")
    return found


def origins_data(log: ItemLog, start: int, stop: int | None = None) -> dict[str, Any]:
    """Return the origins of the items from `start` on, as data, where their roles do not imply them."""
    marked = log.marked(start)
    if not marked:
        return {}
    found = {str(at - start): [origin.kind, origin.name] for at, origin in marked.items() if stop is None or at < stop}
    return {"origins": found} if found else {}


def read_origins(data: Mapping[str, Any], items: int) -> dict[int, Origin]:
    """Read the result of `origins_data` for `items` items; raises `ValueError` for any other data."""
    found = {}
    for place, (kind, name) in data.get("origins", {}).items():
        if kind not in get_args(OriginKind) or not isinstance(name, str | None) or not 0 <= int(place) < items:
            raise ValueError(f"the origin of item {place!r} is not valid")
        found[int(place)] = Origin(kind, name)
    return found


def part_data(
    ctx: RunningExecution, part: tuple[int, int, int], items: Sequence[Item], states: Mapping[str, int | None]
) -> dict[str, Any]:
    """Return the stored form of a part; `part` is its number, its start in the log, and its turn."""
    number, first, turn = part
    return {
        "version": VERSION,
        "threadId": ctx.thread_id,
        "part": number,
        "first": first,
        "turn": turn,
        "resourceId": ctx.resource_id,
        "items": [dump_item(item) for item in items],
        **origins_data(ctx.item_log, first, first + len(items)),
        "states": states,
        "writtenAt": ctx.engine.clock.now_ms(),
    }
