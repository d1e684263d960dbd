"""The source texts of memories, stored beside them so that a layer cannot make a value more trusted than its source.

For each scope of the layers that remember, the texts of the user, tools and model are stored before the layers store
data derived from them. They are read again when an execution with rules begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from noetic_nb.events import MemoryTexts
from noetic_nb.items._origin_index import KEPT_KINDS, KeptTexts
from noetic_nb.items._origins import Origin
from noetic_nb.memory import MemoryLayer
from noetic_nb.memory.scope import HasIds, resolve_scope_key
from noetic_nb.runtime._context.sent_history import RETURNED, KeptBy, add_calls
from noetic_nb.storage import StorageAdapter
from noetic_nb.storage._adapter import escape_segment, get_many, write_together

if TYPE_CHECKING:
    from noetic_nb.runtime._context.engine import Engine
    from noetic_nb.runtime._context.running_execution import RunningExecution

# Characters of one scope. The oldest texts are dropped first; a mark records that they may have held a tool's result.
MAX_CHARACTERS: Final = 1_000_000

# Stands for texts that were dropped. Nothing is known about them, so they count as a tool's result.
_LOST: Final = ("tool", None, "", None)

_Shared: TypeAlias = Literal["thread", "resource", "global"]
_Place: TypeAlias = tuple[_Shared, str]


def prefix_of(scope: _Shared, scope_key: str) -> str:
    """Return the key prefix for the texts of a scope."""
    return f"sources/{scope}/{escape_segment(scope_key)}/"


_COPIED: Final[tuple[_Shared, ...]] = ("thread", "resource")


class _Scope:
    """The texts of one scope that this process has read."""

    def __init__(self) -> None:
        self.texts = KeptTexts()
        self.parts: dict[str, int] = {}
        """Keys in storage with their number of characters, oldest first."""
        self.seen: set[tuple[str, ...]] = set()
        self.last = 0
        """The highest part number."""
        self.recorded = 0
        """The number of known texts that the run already contains."""

    def add(self, key: str, entries: Sequence[Sequence[Any]]) -> None:
        self.last = max(self.last, int(key.rpartition("/")[2].partition("-")[0]))
        self.parts[key] = sum([len(entry[2]) for entry in entries])
        for kind, name, text, args in entries:
            self.seen.add((kind, name or "", text))
            self.texts.add(text, Origin(kind, name), args)


class Keeper:
    """Stores and reads the source texts for all executions of a harness."""

    def __init__(self, storage: StorageAdapter) -> None:
        self._storage = storage
        self._scopes: dict[_Place, _Scope] = {}
        self._logged: dict[str, int] = {}
        self._sinks: Any = None

    async def begin(self, engine: Engine, ctx: RunningExecution, first: int | None = None) -> None:
        """Read the source texts of an execution's layers; a resumed execution began at `first` of its log."""
        found: dict[str, KeptTexts] = {}
        read: dict[_Place, KeptTexts] = {}
        ids, has_rules = engine.hook_context(ctx), "before_tool_call" in engine.stack.hooks
        for layer in engine.remembering:
            place = _place(layer, ids)
            if place not in read:
                is_known = place in self._scopes and not has_rules
                known = self._scopes.setdefault(place, _Scope())
                read[place] = known.texts if is_known or await self._load(engine, ctx, layer, place) else _unknown()
            found[layer.id] = read[place].of_others() if layer.foreign else read[place]
        ctx.kept = KeptBy(found, self._start(ctx) if first is None else first)

    def _start(self, ctx: RunningExecution) -> int:
        """Return the log position of the first item that was not stored before."""
        if ctx.parent is not None:
            return ctx.first
        # Items that another process logged in this thread were stored by that process.
        return self._logged.get(ctx.thread_id, 0 if ctx.turn == 1 else len(ctx.item_log))

    async def _load(self, engine: Engine, ctx: RunningExecution, layer: MemoryLayer, place: _Place) -> bool:
        """Read the texts that other processes stored since the last read; False if storage fails."""
        known = self._scopes[place]
        try:
            keys = [key for key in await self._storage.list(prefix_of(*place)) if key not in known.parts]
            for key, entries in (await get_many(self._storage, keys)).items():
                known.add(key, entries)
        except Exception as exc:
            engine.stack.state.report(ctx.id, layer.id, "persist", exc)
            return False
        return True

    async def keep(self, engine: Engine, ctx: RunningExecution, *, only_results: bool = False) -> None:
        """Store the items logged since the last call; with `only_results`, only if a tool's result is among them."""
        if ctx.kept is None:
            ctx.kept = KeptBy({}, self._start(ctx))
        own, log, ids = ctx.kept, ctx.item_log, engine.hook_context(ctx)
        lost: list[tuple[str, str | None, str, str | None]] = []
        try:
            own.index.read_log(log.items, log.marked(own.index.read), is_child=ctx.parent is not None)
        except Exception as exc:  # a damaged record; the turn itself reports the details
            lost = [_LOST]
            engine.stack.state.report(ctx.id, engine.remembering[0].id, "persist", exc)
        for made in ctx.calls:
            is_own = made.call.execution_id in ("", ctx.id) and made.number not in own.calls
            if is_own and made.call.status in RETURNED:
                own.calls.add(made.number)
                add_calls(own.index, [made.call], log, len(log))
        news = own.index.all()[own.sources :]
        if only_results and not lost and not any(source.origin.kind == "tool" for source in news):
            return
        own.sources += len(news)
        if ctx.parent is None:
            self._logged[ctx.thread_id] = len(log)
        texts = lost + [
            (source.origin.kind, source.origin.name, source.raw, source.args)
            for source in news
            if source.origin.kind in KEPT_KINDS
        ]
        for place, layer in {_place(layer, ids): layer for layer in engine.remembering}.items():
            known = self._scopes.setdefault(place, _Scope())
            entries = [list(text) for text in texts if (text[0], text[1] or "", text[2]) not in known.seen]
            if not entries:
                continue
            is_recorded = engine.sink is not None and known.recorded == len(known.texts.index)
            # Numbered rather than timestamped, so that a resumed turn writes the same keys.
            key = f"{prefix_of(*place)}{known.last + 1:08d}-{escape_segment(ctx.root.id)}"
            known.add(key, entries)
            if is_recorded:  # the run already has them as events
                known.recorded = len(known.texts.index)
            gone = self._surplus(place, known)
            written: dict[str, Any] = {key: entries}
            if gone:
                written[_mark(place)] = [list(_LOST)]
            try:
                await write_together(self._storage, written, delete=gone)
            except Exception as exc:
                engine.stack.state.report(ctx.id, layer.id, "persist", exc)

    def news(self, engine: Engine, ctx: RunningExecution) -> tuple[MemoryTexts, ...]:
        """Return the texts of an execution's memories that the run does not contain yet."""
        if self._sinks is not engine.hub.sinks:  # a new subscriber has seen nothing
            self._sinks = engine.hub.sinks
            for known in self._scopes.values():
                known.recorded = 0
        found: dict[_Place, list[str]] = {}
        for layer in engine.remembering:
            found.setdefault(_place(layer, engine.hook_context(ctx)), []).append(layer.id)
        foreign = {layer.id for layer in engine.remembering if layer.foreign}
        return tuple(
            [
                MemoryTexts(place[0], tuple(ids), self._unrecorded(place), tuple([id for id in ids if id in foreign]))
                for place, ids in found.items()
            ]
        )

    def _unrecorded(self, place: _Place) -> tuple[Any, ...]:
        known = self._scopes.setdefault(place, _Scope())
        news = known.texts.index.all()[known.recorded :]
        known.recorded += len(news)
        texts = [(source.origin.kind, source.origin.name, source.raw, source.args) for source in news]
        if known.texts.forgot is not None:
            texts.append(("tool", known.texts.forgot.name, "", None))
        return tuple(texts)

    async def copy(self, source: HasIds, target: HasIds) -> None:
        """Copy the texts of a thread and its resource for a fork, which has copies of the states derived from them."""
        values: dict[str, Any] = {}
        for scope in _COPIED:
            old, new = [prefix_of(scope, resolve_scope_key(scope, ids)) for ids in (source, target)]
            found = await get_many(self._storage, await self._storage.list(old))
            values |= {new + key.removeprefix(old): texts for key, texts in found.items()}
        if values:
            await write_together(self._storage, values)

    def _surplus(self, place: _Place, known: _Scope) -> list[str]:
        """Return the oldest parts of a scope that exceeds its limit."""
        size, gone = sum(known.parts.values()), []
        for key, characters in [*known.parts.items()][:-1]:
            if size <= MAX_CHARACTERS:
                break
            if key != _mark(place):
                gone.append(key)
                size -= characters
        if gone:
            del self._scopes[place]  # read again when an execution begins
        return gone


def _place(layer: MemoryLayer, ids: HasIds) -> _Place:
    # External data outlives an execution, even if the layer keeps nothing longer.
    scope: _Shared = "thread" if layer.scope == "execution" else layer.scope
    return scope, resolve_scope_key(scope, ids)


def _unknown() -> KeptTexts:
    """Return the texts of a memory whose sources are unknown."""
    found = KeptTexts()
    found.add("", Origin("tool"))
    return found


def _mark(place: _Place) -> str:
    """Return the key of the part that marks dropped texts; it sorts before all others."""
    return prefix_of(*place) + "0"
