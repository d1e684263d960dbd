"""Layer state while it lives, and its mirror in storage.

Reading and writing never wait. Each write to a registered (execution, layer) is mirrored behind: one write at a time per
pair, the latest value wins, and `flush` waits until all is written. What is mirrored is a snapshot taken at the write, so
a state that is changed in place later cannot reach storage half-changed.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from noetic_nb.memory.diagnostics import Diagnostic, log_diagnostic
from noetic_nb.storage import ScopedStorage

__all__ = ["LayerStateStore", "StateListener"]

StateListener: TypeAlias = Callable[[str, str, Any, str], None]
"""Told of every write: ``listener(execution_id, layer_id, state, hook)``."""

_Key: TypeAlias = tuple[str, str]
_STATE_KEY: Final = "state"


class LayerStateStore:
    """State by (execution, layer).

    Parameters
    ----------
    diagnostic : callable, optional
        Told of mirror failures, with hook ``"persist"``; they never raise.

    Examples
    --------
    >>> store = LayerStateStore()
    >>> store.set("e1", "notes", None)
    >>> store.get("e1", "notes"), store.has("e1", "notes"), store.has("e1", "other")
    (None, True, False)
    """

    def __init__(self, diagnostic: Diagnostic = log_diagnostic) -> None:
        self.diagnostic = diagnostic
        self._states: dict[_Key, Any] = {}
        self._targets: dict[_Key, ScopedStorage] = {}
        self._disabled: set[_Key] = set()
        self._pending: dict[_Key, Any] = {}
        self._writing: dict[_Key, asyncio.Task[None]] = {}
        self._by_execution: dict[str, set[str]] = {}
        self._listeners: list[StateListener] = []

    def get(self, execution_id: str, layer_id: str) -> Any:
        """Return a layer's state, None where there is none."""
        return self._states.get((execution_id, layer_id))

    def has(self, execution_id: str, layer_id: str) -> bool:
        """Tell whether there is an entry, be it None: a cleared state is not a missing one."""
        return (execution_id, layer_id) in self._states

    def set(self, execution_id: str, layer_id: str, state: Any, *, hook: str = "set") -> None:
        """Write a state; it is mirrored if a target is registered. None deletes the durable key.

        Parameters
        ----------
        hook : str, optional
            What wrote it, for those who listen.
        """
        key = (execution_id, layer_id)
        self._states[key] = state
        self._by_execution.setdefault(execution_id, set()).add(layer_id)
        if key in self._targets:
            self._mirror(key, state)
        for listener in self._listeners:
            listener(execution_id, layer_id, state, hook)

    def listen(self, listener: StateListener) -> Callable[[], None]:
        """Call `listener` at every write; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def register_durable(self, execution_id: str, layer_id: str, target: ScopedStorage) -> None:
        """Mirror later writes of this pair to `target`; what is there already is not written."""
        self._targets[(execution_id, layer_id)] = target
        self._by_execution.setdefault(execution_id, set()).add(layer_id)

    def disable(self, execution_id: str, layer_id: str) -> None:
        """Mark a layer as out of action for this execution."""
        self._disabled.add((execution_id, layer_id))
        self._by_execution.setdefault(execution_id, set()).add(layer_id)

    def is_disabled(self, execution_id: str, layer_id: str) -> bool:
        """Tell whether a layer is out of action for this execution."""
        return (execution_id, layer_id) in self._disabled

    async def flush(self, execution_id: str) -> None:
        """Wait until everything written so far for this execution is in storage, or was reported."""
        while True:
            keys = [(execution_id, layer_id) for layer_id in self._by_execution.get(execution_id, ())]
            for key in keys:
                if key in self._pending and key not in self._writing:  # set where no loop was running
                    self._start(key)
            tasks = [self._writing[key] for key in keys if key in self._writing]
            if not tasks:
                return
            # Shielded: a cancelled flush must not cut a write short.
            await asyncio.shield(asyncio.gather(*tasks))

    def cleanup(self, execution_id: str) -> None:
        """Forget an execution: its state, targets and flags. Writes under way are finished."""
        for layer_id in self._by_execution.pop(execution_id, ()):
            key = (execution_id, layer_id)
            self._states.pop(key, None)
            if key not in self._pending:
                self._targets.pop(key, None)
            self._disabled.discard(key)

    def states(self, execution_id: str) -> dict[str, Any]:
        """Return the states of an execution by layer id."""
        layer_ids = self._by_execution.get(execution_id, set())
        return {
            layer_id: self._states[(execution_id, layer_id)]
            for layer_id in sorted(layer_ids)
            if (execution_id, layer_id) in self._states
        }

    def _mirror(self, key: _Key, state: Any) -> None:
        try:
            self._pending[key] = copy.deepcopy(state)
        except Exception as exc:
            self.diagnostic(key[1], "persist", exc)
            return
        if key not in self._writing:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return  # the next flush, or the next write on a loop, takes it along
            self._start(key)

    def _start(self, key: _Key) -> None:
        task = asyncio.get_running_loop().create_task(self._write(key))
        self._writing[key] = task
        task.add_done_callback(lambda _: self._writing.pop(key, None))

    async def _write(self, key: _Key) -> None:
        while key in self._pending:
            value = self._pending.pop(key)
            target = self._targets.get(key)
            if target is None:
                return
            try:
                if value is None:
                    await target.delete(_STATE_KEY)
                else:
                    await target.set(_STATE_KEY, value)
            except Exception as exc:
                self.diagnostic(key[1], "persist", exc)
        if key not in self._states:
            self._targets.pop(key, None)
