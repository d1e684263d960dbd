"""The live state of layers, and its mirror in storage.

Reading and writing never wait. Each write to a registered (execution, layer) is mirrored in the background: one write
at a time per pair, the latest value wins, and `flush` waits until all is written. The mirror writes a snapshot taken at
the time of the write, so that a later in-place change cannot reach storage half done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from noetic_nb.memory._execution_context import Diagnostic, log_diagnostic
from noetic_nb.memory._state.state_copy import StateNotCopied, deep_copy, snapshot_of
from noetic_nb.memory._state.write_behind import Mirror, Target
from noetic_nb.storage import ScopedStorage

StateListener: TypeAlias = Callable[[str, str, Any, str], None]
"""Called at every write: ``listener(execution_id, layer_id, state, hook)``."""

_NO_TARGETS: Final[Mapping[str, Target]] = {}


class Remembers(Protocol):
    """A history of states, called at every write before anything else."""

    def may_skip(self, execution_id: str, layer_id: str, state: Any) -> bool:
        """Tell whether a state that was just loaded is known already, so that no copy of it is needed."""

    def note(self, execution_id: str, layer_id: str, kept: Any, hook: str) -> None:
        """Note a write, given a copy of the state that nobody writes into."""


class LayerStateStore:
    """State by (execution, layer).

    Parameters
    ----------
    diagnostic : callable, optional
        Called with mirror failures, with hook ``"persist"``; they never raise.

    Examples
    --------
    >>> store = LayerStateStore()
    >>> store.set("e1", "notes", None)
    >>> store.get("e1", "notes"), store.has("e1", "notes"), store.has("e1", "other")
    (None, True, False)
    """

    def __init__(self, diagnostic: Diagnostic = log_diagnostic) -> None:
        self.diagnostic = diagnostic
        # Called in addition, with the execution's id, so that the problem appears in the warnings of its reply.
        self.on_problem: Callable[[str, str, str, BaseException], None] | None = None
        self.history: Remembers | None = None
        # By execution, so that one can be searched and dropped without the others.
        self._states: dict[str, dict[str, Any]] = {}
        self._mirror = Mirror(self.report)
        self._targets = self._mirror.by_execution
        self.storage_ms: dict[tuple[str, int], float] = defaultdict(float)
        """Storage time in milliseconds by thread and turn, including child executions, kept until the turn is over."""
        self._disabled: dict[str, set[str]] = {}
        self._listeners: list[StateListener] = []

    def report(self, execution_id: str, layer_id: str, hook: str, error: BaseException) -> None:
        """Report an error that does not fail the run, to the diagnostic and to the subscribers of the execution."""
        self.note(execution_id, layer_id, hook, error)
        # Read at each report, because a user may replace the diagnostic.
        self.diagnostic(layer_id, hook, error)

    def note(self, execution_id: str, layer_id: str, hook: str, error: BaseException) -> None:
        """Report an error to the subscribers of the execution only."""
        if self.on_problem is not None:
            self.on_problem(execution_id, layer_id, hook, error)

    def get(self, execution_id: str, layer_id: str) -> Any:
        """Return a layer's state, or None if there is none."""
        return self._states.get(execution_id, {}).get(layer_id)

    def has(self, execution_id: str, layer_id: str) -> bool:
        """Tell whether there is an entry, even None: a cleared state is not a missing one."""
        return layer_id in self._states.get(execution_id, ())

    def holds(self, execution_id: str, layer_id: str) -> bool:
        """Tell whether writes take effect here: there is an entry, or a target in storage."""
        return self.has(execution_id, layer_id) or self._mirror.target(execution_id, layer_id) is not None

    def set(self, execution_id: str, layer_id: str, state: Any, *, hook: str = "set") -> None:
        """Write a state; it is mirrored if a target is registered. None deletes the stored key.

        Parameters
        ----------
        hook : str, optional
            The source of the write, for the listeners.

        Raises
        ------
        If the state cannot be copied, and a history or a subscriber needs the copy; the old state stays, and no
        listener is called. If only storage needs the copy, it is reported like every other failure of the mirror.
        """
        targets, history = self._targets.get(execution_id), self.history
        target = None if targets is None else targets.get(layer_id)
        if hook == "init" and history is not None and history.may_skip(execution_id, layer_id, state):
            history = None
        kept = None
        if history is not None or target is not None:
            # First: if it fails, nothing has changed.
            try:
                kept = snapshot_of(state)
            except Exception as exc:
                error = StateNotCopied(layer_id, hook, state, exc)
                if history is not None or target is None:
                    raise error from exc
                # Only storage needed the copy, and its failures are reported and kept.
                target.failure, target = error, None
                self.report(execution_id, layer_id, "persist", error)
        self._states.setdefault(execution_id, {})[layer_id] = state
        if target is not None:
            self._mirror.write((execution_id, layer_id), target, kept)
        if history is not None:
            history.note(execution_id, layer_id, kept, hook)
        # A copy, because a listener may unsubscribe while it is called.
        for listener in tuple(self._listeners):
            listener(execution_id, layer_id, state, hook)

    def copy_of(self, execution_id: str, layer_id: str, hook: str) -> Any:
        """Return a copy of a layer's state for a hook or function; raises `StateNotCopied`."""
        state = self.get(execution_id, layer_id)
        try:
            return deep_copy(state)
        except Exception as exc:  # a lock or a connection that the layer added in place
            raise StateNotCopied(layer_id, hook, state, exc) from exc

    def listen(self, listener: StateListener) -> Callable[[], None]:
        """Call `listener` at every write; returns a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def register_durable(self, execution_id: str, layer_id: str, target: ScopedStorage | Target) -> None:
        """Mirror later writes of this pair to `target`; the current state is not written."""
        found = target if isinstance(target, Target) else Target(target)
        self.register_targets(execution_id, {layer_id: found})

    def register_targets(self, execution_id: str, targets: Mapping[str, Target]) -> None:
        self._targets.setdefault(execution_id, {}).update(targets)

    def share_durable(self, execution_id: str, child_id: str, layer_id: str, source: str | None = None) -> None:
        """Mirror a child's writes to its parent's target, under `source`: the two count as one writer without conflicts."""
        target = self._mirror.target(execution_id, source or layer_id)
        if target is not None:
            self.register_durable(child_id, layer_id, target)

    def stop_durable(self, execution_id: str, layer_id: str) -> None:
        """Stop mirroring this pair."""
        self._mirror.drop(execution_id, layer_id)

    async def look_again(self, layer_id: str, scope_key: str) -> None:
        """Accept the stored value under a layer's scope: it was written deliberately, outside executions."""
        for target in self._mirror.targets():
            if (target.storage.layer_id, target.storage.scope_key) == (layer_id, scope_key):
                await target.look()

    def disable(self, execution_id: str, layer_id: str) -> None:
        self._disabled.setdefault(execution_id, set()).add(layer_id)

    def is_disabled(self, execution_id: str, layer_id: str) -> bool:
        return layer_id in self._disabled.get(execution_id, ())

    @property
    def is_idle(self) -> bool:
        """Whether no write is pending, so that there is nothing to flush."""
        return not self._mirror.pending and not self._mirror.writing

    async def flush(self, execution_id: str) -> None:
        """Wait until all writes of this execution so far are in storage, or were reported."""
        if not self.is_idle:
            await self._mirror.flush(execution_id)

    def unsaved(self, execution_id: str) -> dict[str, Exception]:
        """Return the layers of an execution whose last write to storage failed, and why."""
        found: dict[str, Exception] = {}
        for layer_id, target in self._targets.get(execution_id, _NO_TARGETS).items():
            if target.failure is not None:
                found[layer_id] = target.failure
        return found

    def cleanup(self, execution_id: str) -> None:
        """Drop an execution: its state, targets and flags. Running writes are finished."""
        self._states.pop(execution_id, None)
        self._mirror.drop(execution_id)
        self._disabled.pop(execution_id, None)

    def states(self, execution_id: str) -> dict[str, Any]:
        states = self._states.get(execution_id, {})
        return {layer_id: states[layer_id] for layer_id in sorted(states)}
