"""Where a turn stands, written down after every step, so that another process can go on with it.

A step whose end was recorded is never run again: its output is used. A step that was under way is run again from its
beginning, with the log and the layers' state as they were before it; tools see the same idempotency key then.

A snapshot holds the items of its turn; what was said before is in the thread's own parts (see `journal`). When the turn
ends, what it added becomes a part of the thread and its snapshot goes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from pydantic import Field

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import dump_item, parse_item, thaw
from noetic_nb.memory import LayerStack
from noetic_nb.models.base import Usage
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.journal import Journal, ledger_prefix, snapshot_key
from noetic_nb.runtime.oversize import mind_size
from noetic_nb.runtime.saying import query_of
from noetic_nb.runtime.snapshot import USAGE_FIELDS, Snapshot, snapshot_data
from noetic_nb.runtime.thread_store import ThreadStore, open_key, part_key
from noetic_nb.steps import Step, StepMeta
from noetic_nb.steps.base import Frozen, JustA
from noetic_nb.storage import get_many, write_together

__all__ = ["Checkpoint", "Checkpoints", "as_checkpoints"]

_log: Final = logging.getLogger("noetic_nb")
# A store that hangs must not hold the end of a turn for ever.
END_LIMIT_S: Final = 30
# Runtime specification, section 4.1: retention of the step ledger.
MAX_ENTRY_BYTES: Final = 128 * 1024
MAX_ENTRIES: Final = 1_000


class Checkpoints(Frozen):
    """Where and how much.

    Parameters
    ----------
    storage : StorageAdapter, optional
        The harness's own when absent.
    max_entry_bytes, max_entries : int
        Limits of the ledger of steps.

    Raises
    ------
    NoeticConfigError
        ``STEP_LEDGER_RETENTION_INVALID``.

    Examples
    --------
    >>> Checkpoints(max_entries=10).max_entries
    10
    """

    error_code: ClassVar[str] = "STEP_LEDGER_RETENTION_INVALID"

    storage: Any = None
    max_entry_bytes: int = Field(default=MAX_ENTRY_BYTES, ge=1)
    max_entries: int = Field(default=MAX_ENTRIES, ge=1)
    stack: JustA[LayerStack] | None = None

    @property
    def threads(self) -> ThreadStore:
        """The saved threads."""
        assert self.stack is not None
        return ThreadStore(self.storage, self.stack.registry)

    def open(self, ctx: Context, journal: Journal) -> Checkpoint:
        """Begin to write down an execution."""
        return Checkpoint(self, ctx.id, journal)

    async def unfinished(self) -> tuple[str, ...]:
        """Return the executions one can go on with; snapshots whose thread has gone on are removed."""
        ids = [key.split(":")[1] for key in await self.storage.list("execution:") if key.endswith(":snapshot")]
        snapshots = await get_many(self.storage, [snapshot_key(execution_id) for execution_id in ids])
        after = {}
        for execution_id in ids:
            data: Any = snapshots.get(snapshot_key(execution_id))
            try:
                after[execution_id] = part_key(data["threadId"], data["parts"])
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # `load` says what is wrong with it
        taken = await get_many(self.storage, after.values())
        gone = [execution_id for execution_id in ids if after.get(execution_id) in taken]
        for execution_id in gone:
            await self.clear(execution_id)
        return tuple([execution_id for execution_id in ids if execution_id not in gone])

    async def load(self, execution_id: str) -> Snapshot:
        """Read a snapshot.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT``, ``CHECKPOINT_SCHEMA_MISMATCH``.
        """
        found = await self.storage.get(snapshot_key(execution_id))
        if found is None:
            known = ", ".join(await self.unfinished()) or "none"
            raise NoeticConfigError(
                "NO_CHECKPOINT",
                "There is no such execution to go on with.",
                given=execution_id,
                hint=f"There is {known}.",
            )
        return Snapshot.read(found, execution_id, self.threads.registry)

    async def restore(self, ctx: Context, snapshot: Snapshot) -> None:
        """Give a context what its snapshot holds: counters, layers' state, and the ledger of its steps."""
        ctx.tokens = Usage(**snapshot.usage)
        ctx.cost = snapshot.cost
        ctx.step_count = ctx.tree.steps = snapshot.steps
        ctx.model_calls, ctx.tool_calls = snapshot.model_calls, snapshot.tool_calls
        ctx.query = query_of(ctx.item_log[snapshot.first :])
        checkpoint: Checkpoint = ctx.tree.checkpoint
        await checkpoint.replay_from(snapshot)
        stack = self.stack
        assert stack is not None
        hctx = ctx.engine.hook_context(ctx)
        missing = tuple([layer for layer in stack.layers if layer.id not in snapshot.layers])
        if missing:
            await ctx.engine.stack_of(missing).init(hctx)
        for layer in stack.layers:
            if layer.id in snapshot.layers:
                # Through an `init` that loads just this, so that later writes are mirrored as after any other.
                kept = layer.with_hooks(init=_loads(snapshot.layers[layer.id]))
                await ctx.engine.stack_of((kept,)).init(hctx)

    async def clear(self, execution_id: str) -> None:
        """Forget an execution."""
        ledger = await self.storage.list(ledger_prefix(execution_id))
        await write_together(self.storage, {}, delete=[snapshot_key(execution_id), *ledger])


def _loads(state: Any) -> Callable[[Any], Any]:
    return lambda params: {"state": state}


def as_checkpoints(given: bool | Checkpoints, stack: LayerStack) -> Checkpoints:
    """Return checkpoints that know where to write."""
    asked = Checkpoints() if given is True else given
    if not isinstance(asked, Checkpoints):
        raise NoeticConfigError(
            "INVALID_OPTION", "checkpoints is True, False or Checkpoints(...).", given=given, hint="Pass True."
        )
    return asked.model_copy(update={"storage": asked.storage or stack.storage, "stack": stack})


@dataclass(slots=True)
class Checkpoint:
    """The record of one execution while it runs.

    An execution that is held open has no step to go on with: what it adds to the log is written after each of its steps,
    and nothing else is.
    """

    settings: Checkpoints
    execution_id: str
    journal: Journal
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    sequence: int = 0
    first: int = 0
    is_turn: bool = False
    written: list[str] = field(default_factory=list)
    loops: dict[str, list[Any]] = field(default_factory=dict)
    over: bool = False

    def loop_began(self, place: str, usage: Usage, cost: float) -> tuple[Usage, float]:
        """Return what had been spent when a loop began: where it began before a crash, what had been spent then."""
        spent = self.loops.setdefault(place, [{name: getattr(usage, name) for name in USAGE_FIELDS}, cost])
        return Usage(**spent[0]), spent[1]

    async def replay_from(self, snapshot: Snapshot) -> None:
        """Read which steps have ended; an end that the snapshot does not know of is forgotten, with what came of it."""
        self.loops = {place: list(spent) for place, spent in snapshot.loops.items()}
        keys = sorted(await self.settings.storage.list(ledger_prefix(self.execution_id)))
        found = await get_many(self.settings.storage, keys)
        ahead = []
        for key in keys:
            entry, number = found.get(key), int(key.rsplit(":", 1)[1])
            self.sequence = number + 1
            if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
                continue
            if number >= snapshot.sequence and not entry.get("depth"):
                ahead.append(key)
                continue
            self.entries[entry["path"]] = dict(entry)
        if ahead:
            await write_together(self.settings.storage, {}, delete=ahead)

    def recorded(self, path: str, step: Step, ctx: Context) -> tuple[bool, Any]:
        """Return whether a step ended before, and its output; a record of another step is forgotten with all below it."""
        entry = self.entries.get(path)
        if entry is None:
            return False, None
        if (entry["stepId"], entry["kind"]) != (step.id, step.kind):
            self.entries = {p: e for p, e in self.entries.items() if p != path and not p.startswith(f"{path}/")}
            return False, None
        meta = entry.get("meta")
        if meta is not None:
            calls = tuple([parse_item(item) for item in meta["toolCalls"]])
            ctx.last_step_meta = StepMeta(calls, Usage(**meta["usage"]), meta["cost"], ())
        return True, entry["output"]

    async def begin(self, ctx: Context, first: int) -> None:
        """Write down a turn whose items have just been logged, and before it what is missing of its thread."""
        self.first, self.is_turn = first, True
        await self._attempt(self.journal.keep(ctx, first, max(self.journal.turn, ctx.turn - 1)))
        opened = {"executionId": self.execution_id}
        # Named before it is there: what is named and missing is nothing, what is there and not named would be lost.
        await self._attempt(self._write({open_key(ctx.thread_id): opened, **self._snapshot(ctx, "turn")}))

    async def step_done(self, path: str, step: Step, output: Any, ctx: Context) -> None:
        """Write down that a step ended, and where the execution stands; not what was left behind by one that ended."""
        if self.over:
            return
        if not self.is_turn:
            if ctx.parent is None and len(ctx.frames) == 1:
                await self._attempt(self.journal.keep(ctx, len(ctx.item_log), ctx.turn))
            return
        values: dict[str, Any] = {}
        entry = self._entry(path, step, output, ctx)
        if entry is not None:
            key = f"{ledger_prefix(self.execution_id)}{self.sequence:08d}"
            self.sequence += 1
            self.written.append(key)
            values[key] = entry
        if ctx.parent is None:
            values |= self._snapshot(ctx, step.id)
        excess = max(0, len(self.written) - self.settings.max_entries)
        if values and await self._attempt(self._write(values, self.written[:excess])):
            del self.written[:excess]

    def _entry(self, path: str, step: Step, output: Any, ctx: Context) -> dict[str, Any] | None:
        """Return what is written of a step's end; None for what cannot be, which is done again on resume."""
        entry = {"path": path, "stepId": step.id, "kind": step.kind, "depth": ctx.depth, "output": output}
        entry["completedAt"] = ctx.engine.clock.now_ms()
        meta = ctx.last_step_meta
        if step.kind == "llm" and meta is not None:
            usage = {name: getattr(meta.usage, name) for name in USAGE_FIELDS}
            calls = [dump_item(item) for item in meta.tool_calls]
            entry["meta"] = {"toolCalls": calls, "usage": usage, "cost": meta.cost}
        try:
            size = len(json.dumps(entry, allow_nan=False))
            same = type(output) in (str, int, float, bool, type(None)) or json.loads(json.dumps(output)) == output
        except (TypeError, ValueError, RecursionError):
            return None
        return entry if same and size <= self.settings.max_entry_bytes else None

    def _snapshot(self, ctx: Context, step_id: str) -> dict[str, Any]:
        stack = ctx.engine.stack
        states = {
            layer.id: thaw(stack.state.get(ctx.id, layer.id))
            for layer in stack.layers
            if stack.state.has(ctx.id, layer.id)
        }
        data = snapshot_data(
            ctx,
            states,
            first=self.first,
            parts=self.journal.parts,
            recorded=self.journal.items,
            sequence=self.sequence,
            loops=self.loops,
        )
        mind_size(ctx.engine, step_id, "checkpoint", data)
        return {snapshot_key(self.execution_id): data}

    async def _write(self, values: Mapping[str, Any], delete: list[str] | None = None) -> None:
        await write_together(self.settings.storage, values, delete=delete or [])

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
            self.journal.ended.append(self.execution_id)

        async def keep() -> None:
            async with asyncio.timeout(END_LIMIT_S):
                await self.journal.keep(ctx, len(ctx.item_log), ctx.turn)

        keeping = asyncio.ensure_future(self._attempt(keep()))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping])
            raise
