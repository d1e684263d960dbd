"""The record of one running execution: its ended steps, its progress, and results that can be reused.

The turn and each of its children have a record of their progress, written together with the end of each of their steps.
A child with a record restarts with the log and layer states it had; a child whose result was merged into its parent is
not merged twice. Records of children are deleted when a step around them has ended.

A step whose end cannot be written runs again. To avoid duplicates of its items and changes, nothing more of its
execution is written until a step around it ends. Likewise, steps that tools run in the execution of an llm step are not
written while that llm step is running; steps in their children are.

The end of a step is postponed if nothing can happen before the enclosing step or the turn ends: both ends go into one
write. If other work comes next, it is written before that.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from noetic_nb.items import thaw
from noetic_nb.memory._enforcement import PENDING, Place
from noetic_nb.models._client import Usage
from noetic_nb.redact import safe_logger
from noetic_nb.runtime._context.protocols import BegunCall
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.size_warnings import Measured, warn_if_large
from noetic_nb.runtime._durability.snapshot import (
    ChildSnapshot,
    Spent,
    child_place,
    noticing_checkpoint,
    snapshot_data,
    turn_place,
)
from noetic_nb.runtime._durability.step_entry import StepRecord, entry_data, is_plain, output_of, restore_meta, spent_by
from noetic_nb.runtime._durability.thread_writer import (
    attempt,
    begun_prefix,
    execution_prefix,
    ledger_prefix,
    timed,
)
from noetic_nb.runtime._durability.turn_state import TurnState
from noetic_nb.steps import Step
from noetic_nb.storage import JsonValue
from noetic_nb.storage._adapter import write_together

_log: Final = safe_logger("noetic_nb")
T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class ExecutionRecord:
    """The record of one execution of a turn: the root or a child."""

    turn: TurnState[ExecutionRecord]
    start: StepRecord
    """Its starting step in the tree; the root for the turn itself."""
    parent: ExecutionRecord | None = None
    is_beside: bool = False
    """Whether its parent continues in parallel."""
    key: str | None = None
    """Its key in storage; None before it begins, and after a step around it has ended."""
    inherited: int = 0
    """The number of items in its log that are its parent's."""
    snapshot: ChildSnapshot | None = None
    """The state in which an earlier process left it."""
    spent: Spent | None = None
    """The highest spending known from then."""
    returned: dict[StepRecord, dict[str, Any]] = field(default_factory=dict, init=False)
    """The merged results of its children, by starting step."""
    held: list[StepRecord] = field(default_factory=list, init=False)
    """Steps that will run again and have logged or changed something."""
    replayed: tuple[Usage, float, float] | None = None
    """Tokens, dollars and milliseconds of the turn at the last replayed step; None once a step really ran."""
    unwritten: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    """Ends of steps whose write failed, by key; they are part of the next write."""
    settled: list[ExecutionRecord] = field(default_factory=list, init=False)
    """Records of children inside these steps."""
    put_off: list[tuple[StepRecord, Step, Any]] = field(default_factory=list, init=False)
    """Ended steps, each inside the next, with their outputs, that are not written yet."""
    ctx: RunningExecution = field(init=False)
    _lock: asyncio.Lock | None = None

    @property
    def lock(self) -> asyncio.Lock:
        """One write at a time, so that the last write to arrive is the latest; most turns write only once."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    def step(self, frames: tuple[str, ...]) -> StepRecord:
        # Without a turn, use a detached record: entries that are never dropped would pile up in an execution held open.
        start = self.start if self.turn.is_turn else StepRecord()
        step = start.at(frames[len(self.ctx.base_frames) :])
        step.execution = self
        return step

    def replay(self, step: StepRecord, definition: Step) -> tuple[bool, Any]:
        ctx, turn = self.ctx, self.turn
        step.is_open_llm = definition.kind == "llm"
        step.ends_at_once = definition.kind == "branch" or (
            definition.kind == "loop" and definition.until.is_immediate and definition.inbox is None
        )
        if not turn.replays:
            return False, None
        entry = step.entry
        # The agent may have changed between two processes, and a function may choose another step the second time.
        if entry is not None and (entry["stepId"], entry["kind"]) != (definition.id, definition.kind):
            self._forget(step)
            entry = None
        self.replayed = None
        if entry is None:
            return False, None
        step.is_open_llm = False
        with noticing_checkpoint(turn.execution_id):  # the entry may name positions and levels that do not exist
            for level, record in enumerate(self._waiting()):
                then = (*spent_by(entry, level), float(entry["elapsedMs"]))
                # Of parallel children, the one that ended last shows how far their parent was.
                if record.replayed is None or record.replayed[2] <= then[2]:
                    record.replayed = then
            ctx.step_count -= 1  # counted when it originally ran
            ctx.tree.steps -= 1
            restore_meta(entry, ctx)
            return True, output_of(entry, definition, ctx, turn.first)

    def _forget(self, step: StepRecord) -> None:
        """Drop the records of a step and all steps inside it; keys of children are deleted when the turn ends."""
        turn = self.turn
        for inner in step.subtree():
            turn.loops.pop(inner, None)
            turn.children.pop(inner, None)
            for record in (turn.root, *turn.children.values()):
                record.returned.pop(inner, None)
        step.clear()

    def _waiting(self) -> Iterator[ExecutionRecord]:
        """Yield this record and those of the ancestors that wait for it."""
        record: ExecutionRecord | None = self
        while record is not None:
            yield record
            record = None if record.is_beside else record.parent

    def step_done(self, step: StepRecord, definition: Step, output: Any) -> Awaitable[object] | None:
        turn, ctx = self.turn, self.ctx
        if turn.is_over:
            return None
        if not turn.is_turn:
            is_outermost = self.parent is None and len(ctx.frames) == 1
            return attempt(turn.writer.keep(ctx, len(ctx.item_log), ctx.turn)) if is_outermost else None
        if turn.replays and not step.has_entry_inside():
            for record in self._waiting():
                # Ancestors ignore recorded steps that run beside this one: hence an infinite time.
                record.replayed = None if record is self else (Usage(), 0.0, math.inf)
        step.is_open_llm = False
        ends = self.put_off
        ends.append((step, definition, output))
        if self._may_be_put_off(step):
            return None
        self.put_off = []
        return self._write_ends(ends, ended=1)

    def _may_be_put_off(self, step: StepRecord) -> bool:
        """Tell whether a step and the step around it end together, with no code and no waiting in between."""
        engine, around = self.ctx.engine, step.parent
        if engine.config.after_step is not None or around is None:
            return False
        if around is not self.start:
            return around.ends_at_once and around.execution is self
        hooks = engine.stack.hooks
        if "on_complete" in hooks or "dispose" in hooks or (engine.stack.layers and engine.stack.writes_durably):
            return False
        return self.parent is None and self.ctx.id not in engine.handles

    async def catch_up(self) -> None:
        ends, self.put_off = self.put_off, []
        if ends:
            await self._write_ends(ends, ended=0)

    async def _write_ends(self, ends: list[tuple[StepRecord, Step, Any]], *, ended: int) -> None:
        """Write the end of the outermost of nested steps; if that cannot be written, the ends of the inner ones."""
        async with self.lock:
            await self._write_last(ends, ended)

    async def _write_last(self, ends: list[tuple[StepRecord, Step, Any]], ended: int) -> None:
        turn, ctx = self.turn, self.ctx
        *inside, (step, definition, output) = ends
        entry = entry_data(step.path, definition, output, ctx, text=step.text, max_bytes=turn.max_entry_bytes)
        if turn.is_over or self.key is None:  # both may have changed while waiting for the lock
            return
        is_held = self._is_held(step.parent, inside=step)
        if entry is None or is_held:
            if inside:
                await self._write_last(inside, ended - 1)
            turn.again.add(step)
        if is_held:
            return
        if entry is not None or self._only_merged(step, definition):
            await self._write(definition.id, entry, step, ended=ended)
        elif await self._has_changed():
            self.held.append(step)

    def _only_merged(self, step: StepRecord, definition: Step) -> bool:
        """Tell whether a step whose end cannot be written only merged children, which have records of their own."""
        if definition.kind != "spawn" and (definition.kind != "fork" or definition.mode == "race"):
            return False
        return not any("lost" in self.returned.get(inner, ()) for inner in step.subtree())

    def _is_held(self, around: StepRecord | None, *, inside: StepRecord | None = None) -> bool:
        """Tell whether a write inside `around` would contain items of a step that will run again; `inside` will not."""
        while around is not None:
            if around.is_open_llm and around.execution is self:
                return True
            around = around.parent
        if any(inside is None or inside not in held.around() for held in self.held):
            return True
        above = self.parent
        while above is not None:
            if above.held:
                return True
            above = above.parent
        return False

    def loop_began(self, loop: StepRecord, now_ms: float) -> tuple[Usage, float, float]:
        ctx, root = self.ctx, self.ctx.root
        loops, began = self.turn.loops, [*ctx.tokens, ctx.cost, now_ms - root.started_ms]
        if self.turn.is_turn:
            known = loops.setdefault(loop, began)
            if known is not began:
                return Usage._make(known[:-2]), known[-2] or 0.0, root.started_ms + (known[-1] or 0.0)
        return ctx.tokens, ctx.cost, now_ms

    def spent_then(self) -> tuple[Usage, float, float]:
        ctx = self.ctx
        if self.replayed is None or self.replayed[2] == math.inf:
            return ctx.tokens, ctx.cost, ctx.engine.clock.monotonic_ms()
        usage, cost, elapsed = self.replayed
        return usage, cost, ctx.root.started_ms + elapsed

    def failure_of(self, loop: StepRecord, iteration: int) -> str | None:
        entry = loop.failures.get(iteration)
        if entry is None:
            return None
        # Occurrences are part of paths: without them the next iteration would be mistaken for this one.
        self.ctx.tree.occurrences |= entry["places"]
        answer: str = entry["output"]
        return answer

    async def iteration_failed(self, loop: StepRecord, definition: Step, iteration: int, answer: str) -> None:
        turn, ctx = self.turn, self.ctx
        begun = {key: n for key, n in ctx.tree.occurrences.items() if key.rpartition("/")[0] == loop.path}
        if not turn.is_turn or turn.is_over:
            return
        async with self.lock:
            path = f"{loop.path}!{iteration}"
            entry = entry_data(path, definition, answer, ctx, text=None, max_bytes=turn.max_entry_bytes)
            if entry is not None and self.key is not None and not self._is_held(loop):
                await self._write(definition.id, {**entry, "places": begun}, None, ended=0)

    def begun_before(self, path: str, name: str, args: Mapping[str, Any]) -> BegunCall | None:
        for one in self.turn.begun:
            call = one.place.call
            if one.is_left and one.path == path and one.number is not None and (call.name, call[1]) == (name, args):
                return one
        return None

    def numbers_taken(self, path: str) -> Collection[int | None]:
        return {one.number for one in self.turn.begun if one.path == path}

    async def call_begins(self, path: str, number: int | None, place: Place, again: BegunCall | None) -> None:
        turn = self.turn
        if not turn.is_open or turn.is_over:
            return
        if again is None:
            again = BegunCall(f"{begun_prefix(turn.execution_id)}{turn.next_call:08d}", path, number, place)
            turn.next_call += 1
            turn.begun.append(again)
        again.place, again.is_left = place, False
        call = place.call
        data = {"path": path, "number": number, "call": [call.name, thaw(call.args), *call[2:], place.number]}
        await timed(self.ctx, attempt(write_together(turn.storage, {again.key: data})))

    def _is_written(self, begun: BegunCall, done: StepRecord) -> bool:
        """Tell whether the record about to be written contains the end of a call whose step does not run again."""
        is_inside = f"{begun.path}/".startswith(f"{done.path}/")
        return is_inside and begun.place.call.status != PENDING and begun.place in self.ctx.calls

    def child(self, ctx: RunningExecution, *, is_beside: bool) -> ExecutionRecord:
        turn = self.turn
        start = self.start.at(ctx.base_frames[len(self.ctx.base_frames) :]) if turn.is_turn else StepRecord()
        child = turn.children.get(start)
        if child is None or child.snapshot is None:
            child = ExecutionRecord(turn, start)
            if turn.is_turn:
                turn.children[start] = child
        child.parent, child.is_beside, child.ctx = self, is_beside, ctx
        return child

    def take_snapshot(self) -> tuple[ChildSnapshot, Spent] | None:
        found, spent, self.snapshot = self.snapshot, self.spent, None
        if found is None or spent is None:
            return None
        parent = self.ctx.parent
        if parent is None or found.inherited > len(parent.item_log):
            # The log that it continues does not exist this time. Its old key goes with the turn; it begins under a new one.
            self._forget(self.start)
            self.turn.children[self.start] = self
            self.key = None
            self.returned.clear()
            return None
        return found, spent

    async def began(self, inherited: int) -> None:
        turn = self.turn
        if not turn.is_turn or turn.is_over or self.key is not None:
            return
        self.key = f"{execution_prefix(turn.execution_id)}child:{turn.next_child:08d}"
        turn.next_child += 1
        turn.child_keys.append(self.key)
        self.inherited = inherited
        async with self.lock:
            if not self._is_held(None):
                await self._write(self.start.path, None, None, ended=0)

    def merged_before(self) -> dict[str, Any] | None:
        assert self.parent is not None
        found = self.parent.returned.get(self.start)
        return None if found is None or "lost" in found else found

    def merged(self, before: Any, result: Any) -> None:
        assert self.parent is not None
        if self.turn.is_turn:
            noted = {"result": result} if is_plain(result) else {} if result is before else {"lost": True}
            self.parent.returned[self.start] = noted

    async def _has_changed(self) -> bool:
        """Tell whether the execution is ahead of its stored record."""
        try:
            assert self.key is not None
            kept: JsonValue = await self.turn.storage.get(self.key)
            now = json.loads(json.dumps(self._data(1)))
            return any(now[part] != kept[part] for part in ("itemLog", "layers", "state"))
        except Exception as exc:
            # If unsure, True: its price is that steps run again. The price of a wrong False would be duplicate items.
            _log.debug("Whether an execution has changed is unknown. %s", exc)
            return True

    def _data(self, ended: int) -> dict[str, Any]:
        """Return the progress of the execution in its stored form."""
        turn, ctx = self.turn, self.ctx
        first = turn.writer.items if self.parent is None else self.inherited
        loops = {loop.path: began for loop, began in turn.loops.items()} if turn.loops else {}
        returned = {child.path: result for child, result in self.returned.items()} if self.returned else {}
        again = (sum([step.execution is self for step in turn.again]), len(turn.again)) if turn.again else (0, 0)
        if self.parent is not None:
            place = child_place(ctx, self.start.path, self.inherited)
        else:
            place = turn_place(ctx, turn.first, turn.writer)
        return snapshot_data(ctx, place, first, turn.sequence, loops, returned, ended, again)

    async def _write(self, step_id: str, entry: dict[str, Any] | None, done: StepRecord | None, *, ended: int) -> None:
        """Write the progress of the execution and the end of a step; records of steps inside that step are no longer needed."""
        turn, key = self.turn, self.key
        assert key is not None
        values: dict[str, Any] = {}
        if not turn.is_open:
            # Named before it exists: a name without a turn is harmless, but a turn without a name would be lost.
            values[turn.writer.open_key] = {"executionId": turn.execution_id}
        if entry is not None:
            ledger_key = f"{ledger_prefix(turn.execution_id)}{turn.sequence:08d}"
            turn.sequence += 1
            turn.written.append(ledger_key)
            self.unwritten[ledger_key] = entry
            if done is not None:
                self._settle(done)
        excess = len(turn.written) - turn.max_entries
        gone = turn.written[:excess] if excess > 0 else []
        for old in gone:
            for record in (turn.root, *turn.children.values()):
                record.unwritten.pop(old, None)
        # The order matters for stores that write keys one by one: a record must not name an end that is not stored yet,
        # and records inside a step must not be deleted before the step's end is stored.
        if self.unwritten:
            values |= self.unwritten
        # Data of layers and user code may not be plain JSON.
        is_plain = not (self.ctx.state or self.ctx.engine.stack.layers or self.returned) and math.isfinite(
            self.ctx.cost
        )
        values[key] = Measured(key, self._data(ended), is_plain=is_plain)
        ended_calls = [] if done is None else [one for one in turn.begun if self._is_written(one, done)]
        gone += [one.key for one in ended_calls]
        if self.settled:
            gone = [*gone, *[child.key for child in self.settled if child.key is not None]]
        problem = await timed(self.ctx, attempt(write_together(turn.storage, values, delete=gone)))
        warn_if_large(self.ctx, step_id, "checkpoint", values[key])
        if problem is not None:
            return
        turn.is_open = True
        turn.begun = [one for one in turn.begun if one not in ended_calls]
        if excess > 0:
            del turn.written[:excess]
        self.unwritten.clear()
        for child in self.settled:
            # One that is being written may arrive after its deletion: its key stays known until the turn ends.
            if child.key is not None and not child.lock.locked():
                turn.child_keys.remove(child.key)
            child.key = None
        self.settled.clear()

    def _settle(self, done: StepRecord) -> None:
        """Drop an ended step with all steps inside it: none of them is looked up again."""
        turn, inside = self.turn, dict.fromkeys(done.subtree())
        for step in inside:
            turn.loops.pop(step, None)
            turn.again.discard(step)
            self.returned.pop(step, None)
            child = turn.children.pop(step, None)
            if child is not None:
                self.settled.append(child)
        if self.held:
            self.held = [step for step in self.held if step not in inside]
        # Recorded ends show the enclosing steps that not all of their steps really ran.
        if not (turn.replays and done.has_entry_inside()):
            done.drop()
