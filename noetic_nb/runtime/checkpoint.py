"""Where a turn stands, written down after every step, so that another process can go on with it.

A step whose end was recorded is never run again: its output is used. A step that was under way is run again from its
beginning, with the log and the layers' state as they were before it; tools see the same idempotency key then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from pydantic import Field

from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items import ItemLog, ItemRegistry, dump_item, parse_item, thaw
from noetic_nb.memory import LayerStack
from noetic_nb.models.base import Usage
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.saying import query_of
from noetic_nb.steps import Step, StepMeta
from noetic_nb.steps.base import Frozen, JustA
from noetic_nb.tokens import Tokenizer

__all__ = ["Checkpoint", "Checkpoints", "Snapshot", "as_checkpoints"]

_log: Final = logging.getLogger("noetic_nb")

# What was allowed when it was logged is asked again by the log it goes into.
_STORED: Final = ItemRegistry(strict=False)
VERSION: Final = 1
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

    def open(self, ctx: Context) -> Checkpoint:
        """Begin to write down an execution."""
        return Checkpoint(self, ctx.id)

    async def unfinished(self) -> tuple[str, ...]:
        """Return the executions that have a snapshot."""
        keys = await self.storage.list("execution:")
        return tuple([key.split(":")[1] for key in keys if key.endswith(":snapshot")])

    async def load(self, execution_id: str) -> Snapshot:
        """Read a snapshot.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT``, ``CHECKPOINT_SCHEMA_MISMATCH``.
        """
        found = await self.storage.get(_snapshot_key(execution_id))
        if found is None:
            known = ", ".join(await self.unfinished()) or "none"
            raise NoeticConfigError(
                "NO_CHECKPOINT",
                "There is no such execution to go on with.",
                given=execution_id,
                hint=f"There is {known}.",
            )
        return Snapshot.read(found, execution_id)

    async def restore(self, ctx: Context, snapshot: Snapshot) -> None:
        """Give a context what its snapshot holds: counters, layers' state, and the ledger of its steps."""
        ctx.tokens = Usage(**snapshot.usage)
        ctx.cost = snapshot.cost
        ctx.step_count = ctx.tree.steps = snapshot.steps
        ctx.model_calls, ctx.tool_calls = snapshot.model_calls, snapshot.tool_calls
        ctx.query = query_of(ctx.item_log[snapshot.first :])
        checkpoint: Checkpoint = ctx.tree.checkpoint
        for key in sorted(await self.storage.list(_ledger_prefix(ctx.id))):
            entry = await self.storage.get(key)
            if isinstance(entry, Mapping) and isinstance(entry.get("path"), str):
                checkpoint.entries[entry["path"]] = dict(entry)
                checkpoint.sequence = int(key.rsplit(":", 1)[1]) + 1
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
        for key in (_snapshot_key(execution_id), *await self.storage.list(_ledger_prefix(execution_id))):
            await self.storage.delete(key)


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where an execution stood."""

    thread_id: str
    resource_id: str | None
    turn: int
    first: int
    items: tuple[Mapping[str, Any], ...]
    layers: Mapping[str, Any]
    state: Mapping[str, Any]
    usage: Mapping[str, int]
    cost: float
    steps: int
    model_calls: int
    tool_calls: int

    @classmethod
    def read(cls, data: Any, execution_id: str) -> Snapshot:
        """Read the stored form.

        Raises
        ------
        NoeticConfigError
            ``CHECKPOINT_SCHEMA_MISMATCH``.
        """
        try:
            if data["version"] != VERSION or data["executionId"] != execution_id:
                raise ValueError(f"version {data['version']!r}, execution {data['executionId']!r}")
            usage = data["tokens"]
            return cls(
                thread_id=data["threadId"],
                resource_id=data.get("resourceId"),
                turn=int(data["turn"]),
                first=int(data["first"]),
                items=tuple([_STORED.parse(item) for item in data["itemLog"]["items"]]),
                layers=dict(data["layers"]),
                state=dict(data["state"]),
                usage={name: int(usage[name]) for name in ("input_tokens", "output_tokens", "cached_tokens")},
                cost=float(data["cost"]),
                steps=int(data["stepCount"]),
                model_calls=int(data["modelCalls"]),
                tool_calls=int(data["toolCalls"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ItemValidationError) as exc:
            raise NoeticConfigError(
                "CHECKPOINT_SCHEMA_MISMATCH",
                f"The checkpoint of this execution cannot be read: {type(exc).__name__}: {exc}",
                given=execution_id,
                hint="It was damaged, or written by another version; clear it and start again.",
            ) from exc

    def log(self, tokenizer: Tokenizer, registry: ItemRegistry) -> ItemLog:
        """Return the thread's log as it was, if its items are still allowed."""
        return ItemLog(self.items, registry=registry, tokenizer=tokenizer)


@dataclass(slots=True)
class Checkpoint:
    """The record of one execution while it runs."""

    settings: Checkpoints
    execution_id: str
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    sequence: int = 0
    first: int = 0
    written: list[str] = field(default_factory=list)
    over: bool = False

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
        """Write down a turn whose items have just been logged."""
        self.first = first
        await self._snapshot(ctx)

    async def step_done(self, path: str, step: Step, output: Any, ctx: Context) -> None:
        """Write down that a step ended, then where the execution stands; not what was left behind by one that ended."""
        if self.over:
            return
        await self._record(path, step, output, ctx)
        if ctx.parent is None:
            await self._snapshot(ctx)

    async def _record(self, path: str, step: Step, output: Any, ctx: Context) -> None:
        entry = {"path": path, "stepId": step.id, "kind": step.kind, "output": output}
        entry["completedAt"] = ctx.engine.clock.now_ms()
        meta = ctx.last_step_meta
        if step.kind == "llm" and meta is not None:
            usage = {name: getattr(meta.usage, name) for name in ("input_tokens", "output_tokens", "cached_tokens")}
            calls = [dump_item(item) for item in meta.tool_calls]
            entry["meta"] = {"toolCalls": calls, "usage": usage, "cost": meta.cost}
        try:
            size = len(json.dumps(entry, allow_nan=False))
            same = type(output) in (str, int, float, bool, type(None)) or json.loads(json.dumps(output)) == output
        except (TypeError, ValueError, RecursionError):
            return  # what cannot be written down is done again on resume, as the module says
        if not same or size > self.settings.max_entry_bytes:
            return
        key = f"{_ledger_prefix(self.execution_id)}{self.sequence:08d}"
        self.sequence += 1
        if await self._write(key, entry):
            self.written.append(key)
        while len(self.written) > self.settings.max_entries:
            await self.settings.storage.delete(self.written.pop(0))

    async def _snapshot(self, ctx: Context) -> None:
        states = {
            layer.id: thaw(ctx.engine.stack.state.get(ctx.id, layer.id))
            for layer in ctx.engine.stack.layers
            if ctx.engine.stack.state.has(ctx.id, layer.id)
        }
        usage = {name: getattr(ctx.tokens, name) for name in ("input_tokens", "output_tokens", "cached_tokens")}
        await self._write(
            _snapshot_key(self.execution_id),
            {
                "version": VERSION,
                "executionId": ctx.id,
                "threadId": ctx.thread_id,
                "resourceId": ctx.resource_id,
                "turn": ctx.turn,
                "first": self.first,
                "frontier": list(ctx.frames),
                "layers": states,
                "state": ctx.state,
                "itemLog": {"items": [dump_item(item) for item in ctx.item_log]},
                "tokens": usage,
                "cost": ctx.cost,
                "stepCount": ctx.step_count,
                "modelCalls": ctx.model_calls,
                "toolCalls": ctx.tool_calls,
                "capturedAt": ctx.engine.clock.now_ms(),
            },
        )

    async def _write(self, key: str, value: Any) -> bool:
        try:
            await self.settings.storage.set(key, value)
        except Exception as exc:
            _log.warning("A checkpoint could not be written; the turn goes on without it. %s", exc)
            return False
        return True

    async def end(self, ctx: Context, outcome: str) -> None:
        """Forget an execution that ended by itself: there is nothing to go on with."""
        self.over = True
        try:
            await self.settings.clear(self.execution_id)
        except Exception as exc:
            _log.warning("The checkpoint of %s could not be removed. %s", self.execution_id, exc)


def _snapshot_key(execution_id: str) -> str:
    return f"execution:{execution_id}:snapshot"


def _ledger_prefix(execution_id: str) -> str:
    return f"execution:{execution_id}:ledger:"
