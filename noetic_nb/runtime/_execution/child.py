"""Child executions: created, started with the items that their parent's layers spawn, merged back, and closed.

A child's spending is charged to its ancestors as it occurs, so it is counted even if the child fails.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.errors import NoeticError
from noetic_nb.events import ChildEnded, ChildStarted, LayersDropped
from noetic_nb.items import ItemLog
from noetic_nb.items._origins import Origin
from noetic_nb.memory import MemoryLayer
from noetic_nb.memory._hooks.hook_runner import NO_SOURCES
from noetic_nb.memory._state.state_copy import can_be_copied
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.keeping import keeper_of
from noetic_nb.runtime._context.protocols import ChildState, StepValue
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.size_warnings import warn_if_large
from noetic_nb.runtime._context.step_errors import error_text, layers_not_saved, step_failed
from noetic_nb.runtime._execution.handle import end_handles
from noetic_nb.steps._loops import output_text
from noetic_nb.sync import protected

# No layer has this id, so the lock is not one of a layer.
_MERGING: Final = ""

Outcome: TypeAlias = Literal["success", "failure", "aborted"]
"""How an execution ended."""

ChildKind: TypeAlias = Literal["spawn", "fork", "start"]
"""How a child was created. A started or forked child runs in parallel, so it does not write for its parent."""


class Child:
    """One child execution, from its creation in the parent's step `step_id` to its end; `outer` is the parent's engine."""

    def __init__(
        self, outer: Engine, engine: Engine, parent: RunningExecution, step_id: str, kind: ChildKind, log: ItemLog
    ) -> None:
        self.engine = engine
        self.outer = outer
        self.parent = parent
        self.step_id = step_id
        self.kind = kind
        self.inherited = len(log)
        if parent.state:
            warn_if_large(parent, step_id, "state", parent.state)
        self.ctx = RunningExecution(
            id=engine.ids.new("execution"),
            thread_id=parent.thread_id,
            resource_id=parent.resource_id,
            log=log,
            turn=parent.turn,
            started_ms=engine.clock.monotonic_ms(),
            engine=engine,
            harness=parent.harness,
            open_memory=parent.open_memory,
            parent=parent,
            state=copied_state(parent.state, step_id),
        )
        # Paths of the child's steps continue those of its parent, so that they are the same when the turn is resumed.
        self.ctx.base_frames = parent.frames
        self._own_layers: tuple[str, ...] = ()
        # `sources` relates an engine to the enclosing one, so it does not apply to fork paths, which share one engine.
        self._is_other = engine is not outer
        self._sources = engine.sources if self._is_other else NO_SOURCES

    async def begin(self, items: Iterable[Mapping[str, Any]] = (), *, append_spawned: bool = True) -> None:
        """Give the child its items and inherited layer states; a fork's log already has the items of ``on_spawn``."""
        record, kept = None, None
        if self.parent.record is not None:
            record = self.ctx.record = self.parent.record.child(self.ctx, is_beside=self.kind == "start")
            kept = record.take_snapshot()
        if kept is None:
            start, spawned = len(self.ctx.item_log), await self._start(items, append_spawned)
        else:
            start, spawned = kept[0].inherited, await self._resume(*kept)
        if record is not None:
            # Its first record contains its items and states, so they must be in place.
            await record.began(self.inherited)
        sink = self.engine.sink
        if sink is not None:
            sink.emit(
                ChildStarted(
                    self.ctx.where,
                    self.engine.clock.now_ms(),
                    self.parent.id,
                    self.step_id,
                    self.kind,
                    self.inherited,
                    tuple(self.ctx.item_log[start:]),
                    spawned,
                    () if self.ctx.kept is None else keeper_of(self.engine).news(self.engine, self.ctx),
                )
            )
            if self._is_other and self.engine.dropped:
                now, dropped = self.engine.clock.now_ms(), self.engine.dropped
                sink.emit(LayersDropped(self.ctx.where, now, self.parent.id, self.step_id, dropped))

    async def _start(self, items: Iterable[Mapping[str, Any]], append_spawned: bool) -> dict[str, Any]:
        """Give a new child its items and layer states; returns the states that its parent's layers spawned."""
        self.ctx.item_log.extend(items, own_call_ids=True)
        stack = self.engine.stack
        spawned: dict[str, Any] = {}
        if stack.layers:
            hook_ctx = self.engine.hook_context(self.ctx)
            for layer_id, state, extra in await stack.spawn(
                self.outer.hook_context(self.parent), hook_ctx, durable=self.kind == "spawn", sources=self._sources
            ):
                spawned[layer_id] = state
                if append_spawned and extra:
                    start = len(self.ctx.item_log)
                    self.ctx.item_log.extend(extra, own_call_ids=True)
                    places = range(start, len(self.ctx.item_log))
                    self.ctx.item_log.mark(dict.fromkeys(places, Origin("layer", layer_id)))
            fresh = self._fresh()
            if fresh:
                await self.engine.stack_of(fresh).init(hook_ctx)
                self._own_layers = tuple([layer.id for layer in fresh])
                self._share_mirrors(fresh)
            if self.engine.remembering:
                await keeper_of(self.engine).begin(self.engine, self.ctx)
        return spawned

    async def _resume(self, snapshot: ChildState[RunningExecution], spent: Any) -> dict[str, Any]:
        """Continue a child where an earlier process left it; returns the states of its layers."""
        from noetic_nb.runtime._durability.checkpoints import load_states  # only resumed turns need it

        ctx, state = self.ctx, self.engine.stack.state
        # The parent may have logged more since: a child sees only the items from before it began.
        log = self.parent.item_log.until(snapshot.inherited) if snapshot.inherited else ctx.item_log.until(0)
        log.extend(snapshot.items)
        log.mark({snapshot.inherited + place: origin for place, origin in snapshot.origins.items()})
        ctx.item_log, ctx.first, ctx.state = log, snapshot.inherited, dict(snapshot.state)
        self.inherited = snapshot.inherited
        snapshot.put_back(ctx, spent)
        fresh = self._fresh()
        await load_states(self.engine, ctx, fresh, snapshot.layers)
        self._own_layers = tuple([layer.id for layer in fresh])
        self._share_mirrors(fresh)
        if self.engine.remembering:
            await keeper_of(self.engine).begin(self.engine, ctx)
        for layer in self.engine.stack.layers:
            if layer.id in snapshot.layers and layer not in fresh:
                # As at the first start: a state comes from the parent's layers, and `init` is not called.
                state.set(ctx.id, layer.id, snapshot.layers[layer.id], hook="on_spawn")
                if self.kind == "spawn" and layer.id not in self._sources.values():
                    # The parent waits for a spawned child, so it may write; parallel children would conflict.
                    state.share_durable(self.parent.id, ctx.id, layer.id, self._sources.get(layer.id))
        missing = [layer for layer in self.engine.stack.layers if layer.is_guard and layer not in fresh]
        missing = [layer for layer in missing if layer.id not in snapshot.layers]
        if missing:  # records from before children kept their guards do not contain them
            parent_ctx, hook_ctx = self.outer.hook_context(self.parent), self.engine.hook_context(ctx)
            stack = self.engine.stack_of(tuple(missing))
            await stack.spawn(parent_ctx, hook_ctx, durable=self.kind == "spawn", sources=self._sources)
        return dict(snapshot.layers)

    def _fresh(self) -> tuple[MemoryLayer, ...]:
        """Return the layers that start without inherited state: those the parent never had, and guards that inherit nothing."""
        known = {layer.id for layer in self.outer.stack.layers} | self._sources.keys()
        return tuple([layer for layer in self.engine.stack.layers if layer.id not in known or self._begins_anew(layer)])

    def _share_mirrors(self, fresh: tuple[MemoryLayer, ...]) -> None:
        """Let such guards write to the storage key of their parent's state or nowhere, so that they never compete with it."""
        state = self.engine.stack.state
        for layer in fresh:
            if layer.scope != "execution" and self._begins_anew(layer):
                state.stop_durable(self.ctx.id, layer.id)
                if self.kind == "spawn" and layer.id not in self._sources.values():
                    state.share_durable(self.parent.id, self.ctx.id, layer.id, self._sources.get(layer.id))

    def _begins_anew(self, guard: MemoryLayer) -> bool:
        """Tell whether a guard would have no state in a child, and so would not decide."""
        if not guard.is_guard or guard.hooks.on_spawn:
            return False
        if guard.hooks.init is None and guard.scope == "execution":
            return False  # it decides without a state
        # A guard that is disabled in the parent stays disabled.
        return self.outer.stack.runs(guard, self.parent.id, self._sources.get(guard.id))

    async def merge_into_parent(self, result: StepValue) -> tuple[StepValue, tuple[str, ...]]:
        """Let layers merge the child's knowledge; returns the output as changed by them, and the ids of the merging layers."""
        stack = self.engine.stack
        # Before the merge, so that it includes data from the steps that the child started.
        if self.ctx.id in self.engine.handles:
            await end_handles(self.engine, self.ctx)
        if "on_return" not in stack.hooks:
            return result, ()
        # One child at a time, however created: merges of one layer must not overwrite each other.
        async with self.parent.lock(_MERGING):
            return await self._merge(result)

    async def _merge(self, result: StepValue) -> tuple[StepValue, tuple[str, ...]]:
        record, before = self.ctx.record, result
        returned = None if record is None else record.merged_before()
        if returned is not None:
            # Merged before a crash: the parent's states contain it, and a second merge would count it twice.
            return returned.get("result", result), ()
        merged: list[str] = []
        stack = self.engine.stack
        stop = stack.state.listen(
            lambda execution, layer, state, hook: merged.append(layer) if execution == self.parent.id else None
        )
        try:
            result = await stack.return_(
                self.outer.hook_context(self.parent),
                self.engine.hook_context(self.ctx),
                child_log=self.ctx.item_log,
                result=result,
                sources=self._sources,
            )
        finally:
            stop()
        # After the merge, so that an interrupted merge is repeated.
        if record is not None:
            record.merged(before, result)
        return result, tuple(merged)

    async def end(self, outcome: Outcome, result: StepValue, merged: tuple[str, ...]) -> None:
        """Remove the child; layers that were started for it complete first."""
        ctx = self.ctx
        if ctx.id in self.engine.handles:
            try:
                await end_handles(self.engine, ctx)
            finally:
                await self.end(outcome, result, merged)
            return
        if "before_tool_call" in self.outer.stack.hooks:
            # Results of its tools may return as its own words. Noted before it leaves: afterwards its calls are the parent's.
            own = tuple([place.call for place in ctx.calls if place.call.execution_id in ("", ctx.id)])
            noted = self.parent.noting()
            noted.ended.append((len(self.parent.item_log), ctx.item_log, ctx.first, own, ctx.sent))
            noted.kept |= ctx.kept_texts
        ctx.leave()
        sink = self.engine.sink
        if sink is not None:
            sink.emit(
                ChildEnded(
                    ctx.where,
                    self.engine.clock.now_ms(),
                    self.parent.id,
                    self.step_id,
                    outcome,
                    self.engine.clock.monotonic_ms() - ctx.started_ms,
                    output_text(result),
                    merged,
                    ctx.tokens.input_tokens,
                    ctx.tokens.output_tokens,
                    ctx.known_cost,
                )
            )
        if not self.engine.stack.layers:
            return
        # Shielded, because the layers of a cancelled child also have state to write.
        try:
            await protected(self._close(outcome), "Closing a child execution")
        finally:
            self.ctx.hook_base = None

    async def _close(self, outcome: Outcome) -> None:
        hook_ctx = self.engine.hook_context(self.ctx)
        try:
            if self.engine.remembering:
                await keeper_of(self.engine).keep(self.engine, self.ctx)
            if self._own_layers:
                own = [layer for layer in self.engine.stack.layers if layer.id in self._own_layers]
                await self.engine.stack_of(tuple(own)).complete(hook_ctx, log=self.ctx.item_log, outcome=outcome)
        finally:
            failed = await self.engine.stack.dispose(hook_ctx)
            # The parent may still write the states that it shares with the child.
            own_failed = {layer_id: error for layer_id, error in failed.items() if layer_id in self._own_layers}
            if own_failed and self.ctx.record is not None:
                self.ctx.record.turn.problem = layers_not_saved(own_failed)


def outcome_of(error: BaseException) -> Outcome:
    """Return how an execution ended, given its error."""
    cut = isinstance(error, asyncio.CancelledError) or (isinstance(error, NoeticError) and error.kind == "cancelled")
    return "aborted" if cut else "failure"


def copied_state(state: dict[str, Any], step_id: str) -> dict[str, Any]:
    """Return a deep copy of the state; the error names the key of a value that cannot be copied."""
    try:
        return copy.deepcopy(state)
    except Exception as exc:
        # deepcopy does not say where it failed, so each key is tried alone.
        key = next((key for key, value in state.items() if not can_be_copied(value)), None)
        what = f"A child gets a copy of `ctx.state`, and the value under {key!r} cannot be copied: {error_text(exc)}"
        hint = "Keep live objects (locks, files, connections) in a variable outside of the state."
        raise step_failed(step_id, what, exc, hint=hint) from exc
