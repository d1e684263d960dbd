"""The last offers of eventual layers, served at once and refreshed in the background when their state is written.

A model call waits for such a layer at most once, when there is no value yet.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_copy import is_same
from noetic_nb.memory.params import RecallParams
from noetic_nb.memory.scope import resolve_scope_key

__all__ = ["EventualRecalls"]

# Values kept for eventual layers; beyond it the one that was served longest ago goes, and is recalled anew when it is needed.
CACHE_ENTRIES: Final = 1024

Offer = TypeVar("Offer")
Call: TypeAlias = Callable[[MemoryLayer, RecallParams], Awaitable[Offer | None]]
"""Calls the recall hook of a layer; None where it offers nothing."""
_Key: TypeAlias = tuple[str, str]


class EventualRecalls(Generic[Offer]):
    """Keeps the offers of eventual layers, by scope: a value is to serve the next execution of the thread."""

    def __init__(self, runner: HookRunner, layers: Iterable[MemoryLayer]) -> None:
        self.layers: Final = {layer.id: layer for layer in layers}
        """The eventual layers, by id."""
        self.refreshing: Final[dict[_Key, asyncio.Task[None]]] = {}
        """The refreshes under way."""
        self._runner = runner
        self._cache: OrderedDict[_Key, Offer] = OrderedDict()
        # The last parameters of each eventual layer, so that its hook can be called again when its state is written.
        self._last_params: OrderedDict[_Key, tuple[MemoryLayer, RecallParams]] = OrderedDict()
        self._live: dict[str, ExecutionContext] = {}
        self._stale: set[_Key] = set()

    def begin(self, ctx: ExecutionContext) -> None:
        """Note an execution, so that a state written before its first recall refreshes the right value."""
        self._live[ctx.execution_id] = ctx

    async def serve(self, layer: MemoryLayer, params: RecallParams, call: Call[Offer]) -> Offer | None:
        """Return the last offer of a layer; its present offer where there is none yet."""
        key = (resolve_scope_key(layer.scope, params.ctx), layer.id)
        # Noted even where a value is there: a refresh should use the newest query and log.
        self._last_params[key] = (layer, params)
        self._last_params.move_to_end(key)
        while len(self._last_params) > CACHE_ENTRIES:
            self._last_params.popitem(last=False)
        refresh = self.refreshing.get(key)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if refresh is not None:  # cold and already being filled: wait for that one
            await asyncio.shield(refresh)
            return self._cache.get(key)
        entry = await call(layer, params)
        self._keep(key, entry)
        return entry

    def _keep(self, key: _Key, entry: Offer | None) -> None:
        # A layer that now offers nothing must not go on serving what it has withdrawn.
        if entry is None:
            self._cache.pop(key, None)
            return
        self._cache[key] = entry
        self._cache.move_to_end(key)
        while len(self._cache) > CACHE_ENTRIES:
            self._cache.popitem(last=False)

    def written(self, execution_id: str, layer_id: str, state: Any, hook: str, call: Call[Offer]) -> None:
        """Refresh the offer of a layer: its state was written."""
        layer = self.layers.get(layer_id)
        ctx = self._live.get(execution_id)
        if layer is None or ctx is None or hook == "recall":
            return
        # By scope, not by execution: the value is to serve the next execution of the thread.
        key = (resolve_scope_key(layer.scope, ctx), layer_id)
        last = self._last_params.get(key)
        if last is None:
            return  # cold: the first recall sees this state
        if hook == "init" and is_same(last[1].state, state):
            return  # loaded as it was left
        self._last_params[key] = (layer, last[1]._replace(ctx=ctx, state=state))
        self._refresh(key, call)

    def _refresh(self, key: _Key, call: Call[Offer]) -> None:
        if key in self.refreshing:
            # One refresh at a time; it looks at this mark when it is done.
            self._stale.add(key)
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._cache.pop(key, None)  # no loop to refresh on: the next recall fills it
            return
        task = loop.create_task(self._refill(key, call))
        self.refreshing[key] = task
        task.add_done_callback(lambda _: self.refreshing.pop(key, None))

    async def _refill(self, key: _Key, call: Call[Offer]) -> None:
        again = True
        while again:
            self._stale.discard(key)
            last = self._last_params.get(key)
            if last is None:
                return
            layer, params = last
            execution_id = params.ctx.execution_id
            if not self._runner.order.runs(layer, execution_id):
                return
            # Read again, because the state may have been written while the refresh waited.
            state = self._runner.state.get(execution_id, layer.id)
            fresh = RecallParams(params.log, params.query, params.ctx, state, params.budget)
            self._keep(key, await call(layer, fresh))
            again = key in self._stale

    def drop(self, layer_id: str, scope_key: str) -> None:
        """Forget the last offer of a layer in a scope: its state was changed by hand."""
        self._cache.pop((scope_key, layer_id), None)
        self._last_params.pop((scope_key, layer_id), None)

    async def settle(self) -> None:
        """Wait for refreshes under way."""
        # A refresh may start another one, by writing a state.
        while self.refreshing:
            await asyncio.gather(*self.refreshing.values(), return_exceptions=True)

    def forget(self, execution_id: str) -> None:
        """Drop the data that only an ended execution used."""
        self._live.pop(execution_id, None)
        for key, (layer, params) in list(self._last_params.items()):
            # Other scopes outlive the execution, and their values are wanted again.
            if layer.scope == "execution" and params.ctx.execution_id == execution_id:
                self._last_params.pop(key, None)
                self._cache.pop(key, None)
