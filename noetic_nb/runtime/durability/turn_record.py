"""The record of one turn while it runs: what has ended, where each of its executions stands, what can be used again.

The turn and each of its children have a record of where they stand, written together with the end of every step of theirs.
A child whose record is there begins with the log and the layers' state it had; one that had given back to its parent does
not do so twice. Records of children go when a step around them has ended.

A step whose end cannot be written is done again. What it had logged, or changed, must not be there twice then, so nothing
more of its execution is written until a step around it ends. Nor is what the tools of an llm step run in its execution, as
long as it is under way; what they let children do is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.models.client import Usage
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.oversize import warn_if_large
from noetic_nb.runtime.durability.snapshot import ChildStand, Snapshot, Spent, child_data, place_of, snapshot_data
from noetic_nb.runtime.durability.step_record import entry_data, is_plain, output_of, restore_meta, spent_by
from noetic_nb.runtime.durability.thread_log import open_key
from noetic_nb.runtime.durability.thread_writer import Journal, execution_prefix, ledger_prefix, snapshot_key
from noetic_nb.steps import Step
from noetic_nb.storage import StorageAdapter, get_many, write_together

__all__ = ["Checkpoint"]

_log: Final = logging.getLogger("noetic_nb")
# A store that hangs must not hold the end of a turn for ever.
END_LIMIT_S: Final = 30


@dataclass(slots=True)
class Checkpoint:
    """The record of one execution while it runs.

    An execution that is held open has no step to go on with: what it adds to the log is written after each of its steps,
    and nothing else is.
    """

    storage: StorageAdapter
    execution_id: str
    journal: Journal
    max_entry_bytes: int
    max_entries: int
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    sequence: int = 0
    first: int = 0
    is_turn: bool = False
    opened: bool = False
    written: list[str] = field(default_factory=list)
    loops: dict[str, list[float]] = field(default_factory=dict)
    over: bool = False
    # By place: the key of each child's record and how much of its log is its parent's; all keys there may be.
    children: dict[str, tuple[str, int]] = field(default_factory=dict)
    child_keys: list[str] = field(default_factory=list)
    next_child: int = 0
    stands: dict[str, ChildStand] = field(default_factory=dict)
    totals: dict[str, Spent] = field(default_factory=dict)
    # By parent, then by child.
    returned: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    held: dict[str, list[str]] = field(default_factory=dict)
    # Llm steps that are under way, or have failed, and where.
    asking: dict[str, str] = field(default_factory=dict)
    # Steps that have ended, without an entry, and where.
    again: dict[str, str] = field(default_factory=dict)
    said: dict[int, tuple[Any, str]] = field(default_factory=dict)
    replayed: dict[str, tuple[Usage, float, float]] = field(default_factory=dict)
    beside: set[str] = field(default_factory=set)
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    # -- going on -------------------------------------------------------------------------------------------------

    async def replay_from(self, snapshot: Snapshot, ctx: Context) -> None:
        """Read what has ended; an end that no record of its execution knows of is forgotten, with what came of it."""
        storage = self.storage
        found = await get_many(storage, await storage.list(execution_prefix(self.execution_id)))
        self.loops, self.totals = {**snapshot.loops}, {"": snapshot.spent}
        self.returned[""] = dict(snapshot.returned)
        tree_steps, known = snapshot.tree_steps, {"": snapshot.sequence}
        for key in sorted(found):
            kind = key.split(":")[2]
            if kind == "ledger":
                self.written.append(key)
                self.sequence = int(key.rsplit(":", 1)[1]) + 1
            elif kind == "child":
                self.child_keys.append(key)
                self.next_child = int(key.rsplit(":", 1)[1]) + 1
                stand = ChildStand.read(found[key], self.execution_id, ctx.item_log.registry)
                self.stands[stand.place], self.children[stand.place] = stand, (key, stand.inherited)
                known[stand.place] = stand.sequence
                self.loops |= stand.loops
                self.returned[stand.place] = dict(stand.returned)
                tree_steps = max(tree_steps, stand.tree_steps)
                for place, spent in {**stand.above, stand.place: stand.spent}.items():
                    self.totals[place] = self.totals.get(place, spent).or_more(spent)
        # Numbers of writes that failed are not used again, so that no record seems to know of what came later.
        self.sequence = max(self.sequence, *known.values())
        ahead = []
        for key in self.written:
            entry, number = found.get(key), int(key.rsplit(":", 1)[1])
            if isinstance(entry, Mapping) and isinstance(entry.get("path"), str):
                if number < known.get(entry.get("in", ""), -1):
                    self.entries[entry["path"]] = dict(entry)
                else:
                    ahead.append(key)
        snapshot.put_back(ctx, self.totals[""])
        ctx.tree.steps = tree_steps
        ctx.started_ms -= snapshot.elapsed_ms
        if ahead:
            await write_together(storage, {}, delete=ahead)

    def recorded(self, path: str, step: Step, ctx: Context) -> tuple[bool, Any]:
        """Return whether a step ended before, and its output; a record of another step is forgotten with all below it."""
        if step.kind == "llm":
            self.asking[path] = place_of(ctx)
        if not self.entries:
            return False, None
        entry = self.entries.get(path)
        if entry is not None and (entry["stepId"], entry["kind"]) != (step.id, step.kind):
            self._forget(path)
            entry = None
        self.replayed.pop(ctx.id, None)
        if entry is None:
            return False, None
        self.asking.pop(path, None)
        for level, above in enumerate(self._waiting_for(ctx)):
            known, then = self.replayed.get(above.id), (*spent_by(entry, level), float(entry["elapsedMs"]))
            if known is None or known[2] <= then[2]:
                self.replayed[above.id] = then
        ctx.step_count -= 1  # it was counted when it was run
        ctx.tree.steps -= 1
        restore_meta(entry, ctx)
        return True, output_of(entry, step, ctx, self.first)

    def _waiting_for(self, ctx: Context) -> Iterator[Context]:
        """Yield an execution and those above that wait for it."""
        above: Context | None = ctx
        while above is not None:
            yield above
            above = None if above.id in self.beside else above.parent

    def _went_on(self, path: str, ctx: Context) -> None:
        """Note that a step was really run: whoever waits for it has spent what it has spent by now."""
        if self.entries and not any(known.startswith(f"{path}/") for known in self.entries):
            for above in self._waiting_for(ctx):
                if above is ctx:
                    self.replayed.pop(above.id, None)
                else:  # whatever a step beside it says
                    self.replayed[above.id] = (Usage(), 0.0, math.inf)

    def _forget(self, path: str) -> None:
        """Forget what was recorded of a step and of all below it."""

        def below(place: str) -> bool:
            return f"{place}/".startswith(f"{path}/") or place.startswith(f"{path}!")

        everything: list[dict[str, Any]] = [self.entries, self.stands, self.loops, *self.returned.values()]
        for known in everything:
            for place in [place for place in known if below(place)]:
                del known[place]

    def stand_of(self, ctx: Context) -> tuple[ChildStand, Spent] | None:
        """Return where a child stood that is begun again, and what it had spent; None for a new one."""
        place = place_of(ctx)
        stand = self.stands.pop(place, None)
        if stand is None:
            return None
        if ctx.parent is None or stand.inherited > len(ctx.parent.item_log):
            self._forget(place)
            return None
        return stand, self.totals[place]

    # -- loops ----------------------------------------------------------------------------------------------------

    def loop_began(self, ctx: Context, now_ms: float) -> tuple[Usage, float, float]:
        """Return what had been spent when a loop began, and when that was, be it before a crash."""
        root = ctx.root
        new = [*ctx.tokens, ctx.cost, now_ms - root.started_ms]
        *usage, cost, elapsed = self.loops.setdefault(ctx.place, new)
        return Usage(*map(int, usage)), cost, root.started_ms + elapsed

    def stood(self, ctx: Context) -> tuple[Usage, float, float]:
        """Return what an execution had spent, and the time, when its last step ended, be it before a crash."""
        root = ctx.root
        found = self.replayed.get(ctx.id)
        if found is None or found[2] == math.inf:
            return ctx.tokens, ctx.cost, ctx.engine.clock.monotonic_ms()
        usage, cost, elapsed = found
        return usage, cost, root.started_ms + elapsed

    def absorbed(self, ctx: Context, iteration: int) -> str | None:
        """Return what was done about an iteration that failed before; the steps it took keep their places."""
        entry = self.entries.get(f"{ctx.place}!{iteration}")
        if entry is None:
            return None
        ctx.tree.occurrences |= entry["places"]
        answer: str = entry["output"]
        return answer

    async def absorb(self, step: Step, ctx: Context, iteration: int, answer: str) -> None:
        """Write down that an iteration failed and the loop goes on."""
        place = ctx.place
        begun = {key: n for key, n in ctx.tree.occurrences.items() if key.rpartition("/")[0] == place}
        if self.is_turn and not self.over:
            async with self._lock(ctx):
                path = f"{place}!{iteration}"
                entry = entry_data(path, step, answer, ctx, said=None, max_bytes=self.max_entry_bytes)
                if entry is not None and not self._is_held(path, ctx) and not self._is_left_behind(ctx):
                    await self._write(ctx, step.id, {**entry, "places": begun}, ended=0)

    # -- children -------------------------------------------------------------------------------------------------

    async def child_began(self, ctx: Context, inherited: int, *, is_beside: bool) -> None:
        """Write down where a child begins; one beside its parent says nothing of how far that has come."""
        place = place_of(ctx)
        if is_beside:
            self.beside.add(ctx.id)
        if not self.is_turn or self.over or place in self.children:
            return
        key = f"{execution_prefix(self.execution_id)}child:{self.next_child:08d}"
        self.next_child += 1
        self.child_keys.append(key)
        self.children[place] = (key, inherited)
        async with self._lock(ctx):
            if not self._is_held(place, ctx):
                await self._write(ctx, place, None, ended=0)

    def has_returned(self, ctx: Context) -> dict[str, Any] | None:
        """Return what came of a child that had given back to its parent before; None for one that had not."""
        assert ctx.parent is not None
        found = self.returned.get(place_of(ctx.parent), {}).get(place_of(ctx))
        return None if found is None or "lost" in found else found

    def returns(self, ctx: Context, before: Any, result: Any) -> None:
        """Note what came of a child that has just given back; written with the next record of its parent."""
        assert ctx.parent is not None
        if self.is_turn:
            noted = {"result": result} if is_plain(result) else {} if result is before else {"lost": True}
            self.returned.setdefault(place_of(ctx.parent), {})[place_of(ctx)] = noted

    # -- writing --------------------------------------------------------------------------------------------------

    async def begin(self, ctx: Context, first: int) -> None:
        """Write down a turn whose items have just been logged, and before it what is missing of its thread."""
        self.first, self.is_turn = first, True
        await self._attempt(self.journal.keep(ctx, first, max(self.journal.turn, ctx.turn - 1)))
        await self._write(ctx, "turn", None, ended=0)

    def read_from(self, output: Any, text: str) -> None:
        """Note which text of a model an output was read from, until its step ends."""
        if self.is_turn:
            self.said[id(output)] = (output, text)

    async def step_done(self, path: str, step: Step, output: Any, ctx: Context) -> None:
        """Write down that a step ended, and where the execution stands; not what was left behind by one that ended."""
        if self.over:
            return
        if not self.is_turn:
            if ctx.parent is None and len(ctx.frames) == 1:
                await self._attempt(self.journal.keep(ctx, len(ctx.item_log), ctx.turn))
            return
        self._went_on(path, ctx)
        self.asking.pop(path, None)
        _, said = self.said.pop(id(output), (None, None)) if step.kind == "llm" else (None, None)
        async with self._lock(ctx):
            entry = entry_data(path, step, output, ctx, said=said, max_bytes=self.max_entry_bytes)
            if self.over or self._is_left_behind(ctx):
                return
            is_held = self._is_held(path, ctx)
            if entry is None or is_held:
                self.again[path] = place_of(ctx)
            if is_held:
                return
            if entry is not None or self._merges_once(path, step, ctx):
                await self._write(ctx, step.id, entry, ended=1)
            elif await self._has_changed(ctx):
                self.held.setdefault(place_of(ctx), []).append(path)

    def _lock(self, ctx: Context) -> asyncio.Lock:
        """Return what lets one record of an execution be written at a time, so that the last to come is the latest."""
        return self._lock_at(place_of(ctx))

    def _lock_at(self, place: str) -> asyncio.Lock:
        return self.locks.setdefault(place, asyncio.Lock())

    def _is_left_behind(self, ctx: Context) -> bool:
        """Tell whether the step that began a child has ended: nobody will ask how far it came."""
        return ctx.parent is not None and place_of(ctx) not in self.children

    def _merges_once(self, path: str, step: Step, ctx: Context) -> bool:
        """Tell whether a step whose end cannot be written did nothing but let children give back, which is noted."""
        if step.kind != "spawn" and (step.kind != "fork" or step.mode == "race"):
            return False
        returned = self.returned.get(place_of(ctx), {})
        return not any("lost" in noted for place, noted in returned.items() if f"{place}/".startswith(f"{path}/"))

    def _is_held(self, path: str, ctx: Context) -> bool:
        """Tell whether a step that will be done again, with all it logs, would be in what is to be written."""
        here = place_of(ctx)
        if any(place == here and path.startswith(f"{asking}/") for asking, place in self.asking.items()):
            return True
        above: Context | None = ctx if self.held else None
        while above is not None:
            if any(not place.startswith(f"{path}/") for place in self.held.get(place_of(above), ())):
                return True
            above = above.parent
        return False

    async def _has_changed(self, ctx: Context) -> bool:
        """Tell whether an execution has done what its record, as it is in storage, knows nothing of."""
        key = self._key(ctx)
        try:
            kept: Any = await self.storage.get(key)
            now = json.loads(json.dumps(self._stand(ctx, ended=1)[key]))
            return any(now[part] != kept[part] for part in ("itemLog", "layers", "state"))
        except Exception as exc:
            _log.debug("Whether an execution has changed cannot be told. %s", exc)
            return True

    def _key(self, ctx: Context) -> str:
        return snapshot_key(self.execution_id) if ctx.parent is None else self.children[place_of(ctx)][0]

    def _stand(self, ctx: Context, *, ended: int) -> dict[str, Any]:
        place = place_of(ctx)
        more = {
            "sequence": self.sequence,
            "loops": self.loops,
            "returned": self.returned.get(place, {}),
            "ended": ended,
            "again": (sum(here == place for here in self.again.values()), len(self.again)),
        }
        if ctx.parent is not None:
            return {self._key(ctx): child_data(ctx, place, self.children[place][1], **more)}
        parts, recorded = self.journal.parts, self.journal.items
        return {self._key(ctx): snapshot_data(ctx, first=self.first, parts=parts, recorded=recorded, **more)}

    async def _write(self, ctx: Context, step_id: str, entry: dict[str, Any] | None, *, ended: int) -> None:
        """Write where an execution stands, and the end of a step: that of all inside it is of no use any more."""
        values: dict[str, Any] = {}
        gone: dict[str, str] = {}
        if not self.opened:
            # Named before it is there: what is named and missing is nothing, what is there and not named would be lost.
            values[open_key(ctx.thread_id)] = {"executionId": self.execution_id}
        if entry is not None:
            key = f"{ledger_prefix(self.execution_id)}{self.sequence:08d}"
            self.sequence += 1
            self.written.append(key)
            values[key] = entry
            gone = self._ended(entry["path"])
        values |= self._stand(ctx, ended=ended)
        warn_if_large(ctx.engine, step_id, "checkpoint", values[self._key(ctx)])
        excess = max(0, len(self.written) - self.max_entries)
        delete = [*self.written[:excess], *gone.values()]
        if await self._attempt(write_together(self.storage, values, delete=delete)):
            del self.written[:excess]
            for place, key in gone.items():
                self.children.pop(place, None)
                if not self._lock_at(place).locked():  # or it is just being written again
                    self.child_keys.remove(key)
                    del self.locks[place]
            self.opened = True

    def _ended(self, path: str) -> dict[str, str]:
        """Forget what is kept of what was inside a step: it will never be looked at. Return the keys of its children."""
        inside = f"{path}/"
        if self.loops:
            self.loops = {place: began for place, began in self.loops.items() if not f"{place}/".startswith(inside)}
        for parent in self.returned:
            kept = {c: result for c, result in self.returned[parent].items() if not f"{c}/".startswith(inside)}
            self.returned[parent] = kept
        if self.asking:
            self.asking = {step: place for step, place in self.asking.items() if not step.startswith(inside)}
        if self.again:
            self.again = {step: place for step, place in self.again.items() if not step.startswith(inside)}
        for place in tuple(self.held):
            self.held[place] = [held for held in self.held[place] if not held.startswith(inside)]
            if not self.held[place]:
                del self.held[place]
        return {place: key for place, (key, _) in self.children.items() if f"{place}/".startswith(inside)}

    async def _attempt(self, writing: Awaitable[None]) -> bool:
        try:
            await writing
        except Exception as exc:
            _log.warning("A checkpoint could not be written; the turn goes on without it. %s", exc)
            return False
        return True

    async def end(self, ctx: Context) -> None:
        """Add what the execution logged to the thread and forget its snapshot; a cancellation waits until that is done."""
        self.over = True
        if self.is_turn:
            self.journal.end(self.execution_id, [*self.written, *self.child_keys])

        async def keep() -> None:
            async with asyncio.timeout(END_LIMIT_S):
                await self.journal.keep(ctx, len(ctx.item_log), ctx.turn)

        keeping = asyncio.ensure_future(self._attempt(keep()))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping])
            raise
