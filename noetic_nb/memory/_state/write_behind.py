"""The mirror of layer state in storage: written in the background, one write at a time per layer, the latest value wins.

The default store, in memory, never waits, so that it is written at once.

A mirror knows the version that it last read or wrote. If another execution has written since, the write still happens, but
the conflict is reported with the replaced value, so that nothing is lost unnoticed. A store that keeps versions also
detects other processes and reports to the diagnostic; for other stores, conflicts within this process are found by
counting, and reported as events of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from noetic_nb.errors import NoeticError
from noetic_nb.memory._hook_timeout import HookTimeout
from noetic_nb.storage import InMemoryStorage, ScopedStorage

STATE_KEY: Final = "state"  # the user key under which a layer's state is stored

OnProblem: TypeAlias = Callable[[Exception], None]
"""Called if a state could not be written, or replaced a value of another execution."""

_Key: TypeAlias = tuple[str, str]

# Number of retries when others keep writing in between, before the write fails and is reported.
MAX_ATTEMPTS: Final = 50

# A store that hangs must not block an execution for ever; the write itself is not interrupted.
FLUSH_LIMIT_MS: Final = 30_000

# Write counts for stores without versions, so that conflicts within one process are noticed all the same.
_WRITES: Final[WeakKeyDictionary[Any, dict[str, int]]] = WeakKeyDictionary()


def counts_of(storage: Any) -> dict[str, int]:
    """Return the number of writes to each key of a store by this process."""
    try:
        return _WRITES.setdefault(storage, {})
    except TypeError:  # no weak references: two harnesses on such a store do not see each other's writes
        return {}


class Target:
    """One key in storage, with its last known version."""

    def __init__(self, storage: ScopedStorage, on_problem: OnProblem | None = None) -> None:
        self.storage = storage
        self.on_problem = on_problem
        self.failure: Exception | None = None
        """Why the last write failed. Kept here rather than by execution, because a child writes where its parent does."""
        self._lock = asyncio.Lock()
        self._key = storage.prefix + STATE_KEY
        store = storage.storage
        self._counts = counts_of(store)
        self._seen: Any = self._counts.get(self._key, 0)
        self.is_versioned = hasattr(store, "get_versioned") and hasattr(store, "compare_and_set")
        """Whether the store keeps versions itself, and so detects other processes, too."""

    async def look(self) -> None:
        """Take the stored version as known."""
        read = getattr(self.storage.storage, "get_version", None)
        if self.is_versioned and read is not None:
            self._seen = await read(self._key)
        elif self.is_versioned:
            await self.load()
        else:
            self._seen = self._counts.get(self._key, 0)

    async def load(self) -> Any:
        """Return the stored value, or None, and take its version as known."""
        if self.is_versioned:
            store: Any = self.storage.storage
            found = await store.get_versioned(self._key)
            self._seen = found.version
            return found.value
        # Before the value is read, so that a write in between is detected as a conflict.
        self._seen = self._counts.get(self._key, 0)
        return await self.storage.storage.get(self._key)

    async def write(self, value: Any) -> NoeticError | None:
        """Write a state; None deletes it. Returns the conflict, if any."""
        try:
            async with self._lock:
                conflict = await (self._compared(value) if self.is_versioned else self._counted(value))
        except Exception as exc:
            self.failure = exc
            raise
        self.failure = None
        return conflict

    async def _counted(self, value: Any) -> NoeticError | None:
        store, key, conflict = self.storage.storage, self._key, None
        if self._counts.get(key, 0) != self._seen:
            conflict = self._conflict(await store.get(key), value)
        await (store.delete(key) if value is None else store.set(key, value))
        self._seen = self._counts[key] = self._counts.get(key, 0) + 1
        return conflict

    async def _compared(self, value: Any) -> NoeticError | None:
        store: Any = self.storage.storage
        key = self._key
        conflict = None
        for _ in range(MAX_ATTEMPTS):
            try:
                if value is not None:
                    self._seen = await store.compare_and_set(key, self._seen, value)
                    return conflict
                found = await store.get_versioned(key)
                if found.version == self._seen:
                    await store.delete(key)
                    self._seen = None
                    return conflict
            except NoeticError as exc:
                if exc.kind != "state_conflict":
                    raise
                found = await store.get_versioned(key)
            conflict = self._conflict(found.value, value)
            self._seen = found.version
        raise NoeticError(
            "state_conflict",
            f"The state of layer {self.storage.layer_id!r} is being written by other executions all the time",
            given=self.storage.scope_key,
            hint="It was not written; give this execution a thread or resource of its own.",
            layer_id=self.storage.layer_id,
            replaced=None,
            written=value,
        )

    def _conflict(self, replaced: Any, value: Any) -> NoeticError:
        return NoeticError(
            "state_conflict",
            f"Another execution wrote the state of layer {self.storage.layer_id!r} after this one had read it; its "
            f"value was replaced",
            given=self.storage.scope_key,
            hint="`replaced` has the value that was lost. Run one execution at a time on this scope.",
            layer_id=self.storage.layer_id,
            scope_key=self.storage.scope_key,
            replaced=replaced,
            written=value,
        )


class Mirror:
    """Writes states in the background; see the module."""

    def __init__(self, report: Callable[[str, str, str, BaseException], None]) -> None:
        self._report = report
        self.by_execution: dict[str, dict[str, Target]] = {}
        """The target of each layer in each execution."""
        self.pending: Final[dict[_Key, tuple[Any, Target]]] = {}
        """States waiting to be written, and their targets."""
        self.writing: Final[dict[_Key, asyncio.Task[None]]] = {}
        """Running writes."""

    def target(self, execution_id: str, layer_id: str) -> Target | None:
        return self.by_execution.get(execution_id, {}).get(layer_id)

    def targets(self) -> tuple[Target, ...]:
        return tuple([target for targets in self.by_execution.values() for target in targets.values()])

    def write(self, key: _Key, target: Target, kept: Any) -> None:
        """Write a copy of a state, which is never modified, to its target: soon, or at once if that cannot wait."""
        self.pending[key] = kept, target
        if type(target.storage.storage) is InMemoryStorage:
            next(self._write(key).__await__(), None)
        elif key not in self.writing:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return  # the next flush, or the next write on a loop, includes it
            self._start(key)

    async def flush(self, execution_id: str) -> None:
        """Wait until all writes of this execution so far are in storage, or were reported; at most 30 seconds."""
        wanted = [key for key in (*self.pending, *self.writing) if key[0] == execution_id]
        while True:
            for key in wanted:
                if key in self.pending and key not in self.writing:  # set when no loop was running
                    self._start(key)
            tasks = {self.writing[key]: key for key in wanted if key in self.writing}
            if not tasks:
                return
            # Waiting does not own the tasks: neither its cancellation nor its end interrupts a write.
            _, late = await asyncio.wait(tasks, timeout=FLUSH_LIMIT_MS / 1000)
            for task in late:
                error = HookTimeout(tasks[task][1], "persist", FLUSH_LIMIT_MS)
                if (target := self.target(*tasks[task])) is not None:
                    target.failure = error
                self._report(*tasks[task], "persist", error)
            if late:
                return

    def drop(self, execution_id: str, *layer_ids: str) -> None:
        """Stop mirroring an execution, or some of its layers; a running or waiting write is finished."""
        targets = self.by_execution.get(execution_id)
        if targets is None:
            return
        for layer_id in layer_ids:
            targets.pop(layer_id, None)
        if not layer_ids or not targets:
            del self.by_execution[execution_id]

    def _start(self, key: _Key) -> None:
        task = asyncio.get_running_loop().create_task(self._write(key))
        self.writing[key] = task
        task.add_done_callback(lambda _: self.writing.pop(key, None))

    async def _write(self, key: _Key) -> None:
        while key in self.pending:
            value, target = self.pending.pop(key)
            try:
                problem: Exception | None = await target.write(value)
            except Exception as exc:
                problem = exc
            if problem is None:
                continue
            # Conflicts in a store without versions are reported to the run, not to the diagnostic.
            if target.is_versioned or problem is target.failure:
                self._report(*key, "persist", problem)
            if target.on_problem is not None:
                target.on_problem(problem)
