"""The memory of one thread: inspect it, edit it, and rewind to an earlier turn in a fork.

Nothing here needs a model. The layer itself validates an edit, which is then written to storage and recorded in the run.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import Where
from noetic_nb.items import ItemLog, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.markup import plain_line
from noetic_nb.memory import DisposeParams, ExecutionContext, InitParams, MemoryLayer, resolve_scope_key
from noetic_nb.memory._hook_timeout import call_hook
from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._state.state_copy import snapshot_of
from noetic_nb.memory._state.write_behind import STATE_KEY
from noetic_nb.redact import redact, redact_text
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.keeping import keeper_of
from noetic_nb.runtime._threads.state_history import StateChange, StateHistory, TurnEnd, state_changed
from noetic_nb.storage import InMemoryStorage, ScopedStorage
from noetic_nb.tokens import estimate_tokens

OpenThread = Callable[[str, ItemLog, int], None]
"""Opens a thread: ``open_thread(thread_id, log, turn)``."""


class SavedThread(Protocol):
    """The stored checkpoints of the thread."""

    async def load(self) -> tuple[ExecutionContext, ItemLog] | None:
        """Read the thread if it was not read yet; returns the context for hooks, and its log."""

    async def has(self, thread_id: str) -> bool:
        """Tell whether a thread of this name is in storage."""

    async def states(self, places: Mapping[str, int | None]) -> dict[str, Any]:
        """Return states of layers, given their stored numbers."""


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """The state of one layer on a thread: its size in characters of JSON and in tokens, and its recorded writes."""

    layer_id: str
    slot: float
    scope: str
    scope_key: str
    state: Any
    size: int
    tokens: int
    changes: tuple[StateChange, ...]

    @property
    def changed_in_turn(self) -> int | None:
        return self.changes[-1].turn if self.changes else None


@with_card(shown="as HTML")
class MemoryView:
    """The layers of a harness on one thread. Created by ``harness.memory(thread_id)``.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="a", step=nn.react(model="m"), memory=[nn.working_memory()])
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."]))
    >>> async def main():
    ...     await harness.execute("Hi", thread_id="t1")
    ...     memory = harness.memory("t1")
    ...     await memory.edit("working-memory", {"city": "Rome"})
    ...     return await memory.state("working-memory")
    >>> asyncio.run(main())
    {'city': 'Rome'}
    """

    def __init__(
        self,
        engine: Engine,
        history: StateHistory,
        ctx: ExecutionContext,
        log: ItemLog,
        *,
        is_live: bool,
        open_thread: OpenThread,
        threads: tuple[str, ...],
        settle: Callable[[], Awaitable[None]],
        known: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._history = history
        self._ctx = ctx
        self._log = log
        self._is_live = is_live
        self._open_thread = open_thread
        self._threads = threads
        # Called before storage is read or written: data from before the thread started over may still be there.
        self._settle = settle
        # Raises if there are threads, but none of this name.
        self._known = known
        self.saved: SavedThread | None = None

    @property
    def thread_id(self) -> str:
        """Id of the thread."""
        return self._ctx.thread_id

    @property
    def turns(self) -> tuple[int, ...]:
        """The turns to which the thread can be rewound."""
        return self._history.turns(self.thread_id)

    async def layers(self) -> tuple[LayerMemory, ...]:
        """Return the state of every layer on this thread, in slot order."""
        by_slot = sorted(self._engine.stack.layers, key=lambda layer: layer.slot)
        found = tuple([await self._of(layer) for layer in by_slot])
        await self._check_thread(any(layer.state is not None for layer in found))
        return found

    async def layer(self, layer_id: str) -> LayerMemory:
        """Return the state of one layer on this thread."""
        found = await self._of(self._layer(layer_id))
        await self._check_thread(found.state is not None)
        return found

    async def state(self, layer_id: str) -> Any:
        """Return a copy of a layer's state: the live one during a turn, otherwise the stored one.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_LAYER_REFERENCE``, or ``UNKNOWN_THREAD`` if there is no state and only threads of other names exist.
        """
        found = await self._state(self._layer(layer_id))
        await self._check_thread(found is not None)
        return found

    async def _check_thread(self, has_state: bool) -> None:
        """Raise for a misspelt thread name instead of returning an empty state."""
        if not has_state and not (self.saved is not None and await self.saved.has(self.thread_id)):
            self._known()

    def history(self, layer_id: str) -> tuple[StateChange, ...]:
        """Return the recorded writes of a layer's state, oldest first."""
        return self._history.changes(layer_id, self._key(self._layer(layer_id)))

    def tokenizer_error(self) -> dict[str, float]:
        """Return how far the estimate of four characters per token is from the harness's tokenizer on this thread.

        Returns
        -------
        dict
            ``counted`` and ``estimated`` tokens of the log, and their ``ratio`` (above 1: the estimate is too low).
        """
        texts = [compact_json(item) for item in self._log]
        estimated = sum(estimate_tokens(text) for text in texts)
        counted = sum(self._engine.tokenizer(text) for text in texts)
        return {"counted": counted, "estimated": estimated, "ratio": counted / estimated if estimated else 1.0}

    def _layer(self, layer_id: str) -> MemoryLayer:
        for layer in self._engine.stack.layers:
            if layer.id == layer_id:
                return layer
        known = ", ".join(repr(layer.id) for layer in self._engine.stack.layers) or "none"
        hint = f"It has {known}."
        raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", "The agent has no such layer.", given=layer_id, hint=hint)

    def _key(self, layer: MemoryLayer, ctx: ExecutionContext | None = None) -> str:
        return resolve_scope_key(layer.scope, self._ctx if ctx is None else ctx)

    def _scoped(self, layer: MemoryLayer, ctx: ExecutionContext | None = None) -> ScopedStorage:
        return ScopedStorage(self._engine.stack.storage, layer.id, self._key(layer, ctx))

    async def _state(self, layer: MemoryLayer) -> Any:
        await self._settle()
        live = self._engine.stack.state
        if self._is_live and live.has(self._ctx.execution_id, layer.id):
            return live.copy_of(self._ctx.execution_id, layer.id, "state")
        if layer.scope == "execution":
            changes = self._history.changes(layer.id, self._key(layer))
            return copy.deepcopy(changes[-1].state) if changes else None
        return await self._scoped(layer).get(STATE_KEY)

    async def _of(self, layer: MemoryLayer) -> LayerMemory:
        state = await self._state(layer)
        text = "" if state is None else _text(state)
        key = self._key(layer)
        changes = self._history.changes(layer.id, key)
        return LayerMemory(
            layer.id, float(layer.slot), layer.scope, key, state, len(text), self._engine.tokenizer(text), changes
        )

    async def edit(self, layer_id: str, state: Any) -> None:
        """Replace a layer's state; None clears it. It takes effect at the next hook or turn.

        Parameters
        ----------
        state : JSON data
            The new state. The layer itself checks whether it can load it.

        Raises
        ------
        NoeticError
            ``storage_failed`` if the state is not JSON data or the layer rejects it; nothing is changed then.
        NoeticConfigError
            ``UNKNOWN_LAYER_REFERENCE``, or ``NOT_EDITABLE`` for an execution-scoped layer while no execution is open.
        """
        layer = self._layer(layer_id)
        if layer.scope == "execution" and not self._is_live:
            what = f"The state of layer {layer_id!r} ends with each execution, and this thread has none."
            hint = "Edit it inside `async with harness.execution(...)`, or give the layer the scope 'thread'."
            raise NoeticConfigError("NOT_EDITABLE", what, given=layer_id, hint=hint)
        # Before any await: the caller may modify the object meanwhile.
        try:
            fresh = copy.deepcopy(state)
        except Exception as exc:
            raise _unreadable(layer, state, exc) from exc
        await self._settle()
        await self._check(layer, fresh)
        take_over = self._prepare(layer, fresh)
        key = self._key(layer)
        live = self._engine.stack.state
        if self._is_live and live.holds(self._ctx.execution_id, layer_id):
            live.set(self._ctx.execution_id, layer_id, fresh, hook="edit")
            # Other writes happen in the background, but an edit that has returned is in storage.
            await live.flush(self._ctx.execution_id)
        else:
            await _write(self._scoped(layer), fresh)
            # An eventual layer shows its last recall, which was made from the old state.
            self._engine.stack.forget_recalled(layer_id, key)
            self._note(layer, self._ctx.where, "edit", fresh)
        # Last: a layer must not show a state that storage refused.
        take_over()

    def _prepare(self, layer: MemoryLayer, state: Any) -> Callable[[], None]:
        """Let a layer that keeps its data elsewhere read the state before it is written."""
        if layer.hooks.on_edit is None:
            return lambda: None
        try:
            return layer.hooks.on_edit(self._ctx, copy.deepcopy(state))
        except Exception as exc:
            raise _unreadable(layer, state, exc) from exc

    async def _check(self, layer: MemoryLayer, state: Any) -> None:
        """Let a layer load the state from a trial storage, so that its own validation decides."""
        if state is None:
            return
        trial = InMemoryStorage()
        key = self._key(layer)
        scoped = ScopedStorage(trial, layer.id, key)
        await scoped.set(STATE_KEY, state)
        if layer.hooks.init is None or layer.scope == "execution":
            return
        problems: list[BaseException] = []
        ctx = ExecutionContext(
            # A separate execution, because layers keep data by execution and the real one must not be changed.
            execution_id=self._engine.ids.new("trial"),
            thread_id=self._ctx.thread_id,
            resource_id=self._ctx.resource_id,
            clock=self._engine.clock,
            ids=self._engine.ids,
            fs=self._engine.fs,
            shell=self._engine.shell,
            home=trial,
            diagnostic=lambda layer_id, hook, error: problems.append(error),
        )
        try:
            loaded = await call_hook(
                layer.hooks.init,
                InitParams(scoped, key, ctx),
                layer_id=layer.id,
                name="init",
                timeout_ms=layer.timeout_ms("init"),
            )
        except Exception as exc:
            problems.append(exc)
        else:
            if not problems and field_of(loaded, "state", hook="init") in (UNSET, None):
                problems.append(ValueError("it reads it as nothing"))
        finally:
            await self._forget_trial(layer, ctx)
        if problems:
            raise _unreadable(layer, state, problems[0]) from problems[0]

    async def _forget_trial(self, layer: MemoryLayer, ctx: ExecutionContext) -> None:
        if layer.hooks.dispose is not None:
            await call_hook(
                layer.hooks.dispose,
                DisposeParams(None, ctx),
                layer_id=layer.id,
                name="dispose",
                timeout_ms=layer.timeout_ms("dispose"),
            )

    def _note(self, layer: MemoryLayer, where: Where, hook: str, state: Any, scope_key: str | None = None) -> None:
        kept = snapshot_of(state)
        key = self._key(layer) if scope_key is None else scope_key
        self._history.note(layer.id, key, where, hook, kept)
        if self._engine.sink is not None:
            now = self._engine.clock.now_ms()
            self._engine.sink.emit(state_changed(where, now, layer.id, hook, kept))

    async def rewind(self, turn: int, *, thread_id: str | None = None) -> str:
        """Fork this thread as it was at the end of a turn, to continue from there. The thread itself does not change.

        Parameters
        ----------
        turn : int
            The last turn in the fork; 0 for a fork without turns.
        thread_id : str, optional
            Name of the fork; ``"<thread>@<turn>"`` and a count by default.

        Returns
        -------
        str
            The fork's thread id. Layers of thread and resource scope begin with their states of that moment, under the fork's
            own keys; global ones are shared. Data that a layer stores besides its state is copied in its current form.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_TURN``, or ``THREAD_EXISTS``.
        """
        await self._settle()
        loaded = None if self.saved is None else await self.saved.load()
        if loaded is not None:
            self._ctx, self._log = loaded
        end = TurnEnd(0, None) if turn == 0 else self._history.end_of(self.thread_id, turn)
        if end is None:
            known = ", ".join(map(str, self.turns)) or "none"
            what = f"Thread {self.thread_id!r} has no such turn."
            hint = f"Its turns are {known}, or 0 for the beginning."
            raise NoeticConfigError("UNKNOWN_TURN", what, given=turn, hint=hint)
        states = await self._states_at(end)
        name = thread_id if thread_id is not None else await self._fresh_name(turn)
        if await self._is_taken(name):
            hint = "Choose another."
            raise NoeticConfigError("THREAD_EXISTS", "A fork needs a name of its own.", given=name, hint=hint)
        # Without a resource, so that its states of that scope are separate from those of the original thread.
        home = self._engine.stack.storage
        fork = ExecutionContext(execution_id=f"rewind:{name}", thread_id=name, turn=turn, home=home)
        for layer in self._engine.stack.layers:
            if layer.scope in ("thread", "resource"):
                await self._carry(layer, fork, states.get(layer.id), is_empty=turn == 0)
        if turn and self._engine.remembering:
            await keeper_of(self._engine).copy(self._ctx, fork)
        self._open_thread(name, self._log.until(end.items), turn)
        self._history.turn_ended(name, turn, end.items)
        return name

    async def _states_at(self, end: TurnEnd) -> dict[str, Any]:
        """Return the states of all layers that a fork takes with it, as they were at the end of a turn."""
        states: dict[str, Any] = {}
        places: dict[str, int | None] = {}
        for layer in self._engine.stack.layers:
            if layer.scope not in ("thread", "resource"):
                continue
            key = self._key(layer)
            change = None if end.order is None else self._history.state_at(layer.id, key, end.order)
            if change is not None:
                states[layer.id] = change.state
            elif end.places is not None:
                if layer.id in end.places:
                    places[layer.id] = end.places[layer.id]
            elif end.order is not None and self._history.is_forgotten(layer.id, key):
                what = f"The state of layer {layer.id!r} after this turn is no longer stored."
                hint = "Go back to a later turn; with checkpoints=True all of them are kept."
                raise NoeticConfigError("UNKNOWN_TURN", what, given=self.thread_id, hint=hint)
        if places and self.saved is not None:
            states |= await self.saved.states(places)
        return states

    async def _fresh_name(self, turn: int) -> str:
        name, count = f"{self.thread_id}@{turn}", 1
        while await self._is_taken(name):
            count += 1
            name = f"{self.thread_id}@{turn}.{count}"
        return name

    async def _is_taken(self, name: str) -> bool:
        return name in self._threads or (self.saved is not None and await self.saved.has(name))

    async def _carry(self, layer: MemoryLayer, fork: ExecutionContext, state: Any, *, is_empty: bool) -> None:
        """Write a layer's state under the fork's key, and copy its other data; nothing if the fork is empty."""
        source, target = self._scoped(layer), self._scoped(layer, fork)
        for key in await target.list():  # left from an earlier fork of this name
            await target.delete(key)
        if not is_empty:
            for key in await source.list():
                if key != STATE_KEY:
                    await target.set(key, await source.get(key))
        if state is None:
            return
        await _write(target, state)
        self._note(layer, fork.where, "rewind", state, target.scope_key)

    def __repr__(self) -> str:
        ids = ", ".join(layer.id for layer in self._engine.stack.layers)
        return f"MemoryView({plain_line(self.thread_id)!r}, {plain_line(ids, 200) or 'no layers'}, {len(self.turns)} turns)"

    def _card(self) -> Card:
        rows: list[tuple[Any, ...]] = []
        for layer in sorted(self._engine.stack.layers, key=lambda layer: layer.slot):
            changes = self._history.changes(layer.id, self._key(layer))
            last = changes[-1] if changes else None
            text = "" if last is None or last.state is None else _text(last.state)
            cells = (
                layer.id,
                layer.scope,
                "" if last is None else f"{last.hook}, turn {last.turn}",
                len(changes),
                self._engine.tokenizer(text),
                text,
            )
            rows.append(cells)
        heads = ("layer", "scope", "last written", "writes", "tokens", "state")
        return Card("Memory", f"of thread {self.thread_id}", table=Table(heads, rows, len(rows), "no layers"))


def _unreadable(layer: MemoryLayer, state: Any, error: BaseException) -> NoeticError:
    what = f"Layer {layer.id!r} cannot read this state: {error}"
    hint = "Nothing was changed. Look at `await memory.state(...)` for the shape it has now."
    return NoeticError("storage_failed", what, given=state, hint=hint, layer_id=layer.id)


async def _write(storage: ScopedStorage, state: Any) -> None:
    if state is None:
        await storage.delete(STATE_KEY)
    else:
        await storage.set(STATE_KEY, state)


def _text(state: Any) -> str:
    try:
        return compact_json(redact(thaw(state)))
    except (TypeError, ValueError):
        return redact_text(repr(state))
