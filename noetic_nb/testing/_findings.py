"""The findings of a contract test, which runs when it is awaited or, in a script or cell, when its findings are read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple, overload

from noetic_nb.sync import run_sync

# Blocking the loop for longer affects every other execution; the same limit as for a rule's predicate.
BLOCKS_MS: Final = 50.0
# A busy machine may suspend a process briefly, but not three times at the same place.
TRIES: Final = 3


class Finding(NamedTuple):
    """One fault: `code` for programs, `text` for people."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class ContractCheck(Sequence[Finding]):
    """The findings of a contract test; empty means success.

    ``await`` runs the test on the running loop and gives a tuple. If the findings are read without ``await`` (printed,
    counted, iterated), the test runs to its end then; in a notebook on a separate loop beside the kernel's.

    Examples
    --------
    >>> from noetic_nb.storage import InMemoryStorage
    >>> from noetic_nb.testing import check_storage
    >>> list(check_storage(InMemoryStorage()))
    []
    """

    def __init__(self, run: Callable[[], Awaitable[tuple[Finding, ...]]], subject: str) -> None:
        self._run = run
        self._subject = subject
        self._found: tuple[Finding, ...] | None = None

    async def _findings(self) -> tuple[Finding, ...]:
        if self._found is None:
            self._found = await self._run()
        return self._found

    def __await__(self) -> Generator[Any, Any, tuple[Finding, ...]]:
        return self._findings().__await__()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings; runs the test if it has not run."""
        return run_sync(self._findings()) if self._found is None else self._found

    @property
    def codes(self) -> tuple[str, ...]:
        """Their distinct codes."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ContractCheck | tuple | list):
            return self.findings == tuple(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self.findings:
            return f"{self._subject}: no findings"
        lines = "\n".join(f"  {finding}" for finding in self.findings)
        return f"{self._subject}: {len(self.findings)} findings\n{lines}"


class Notes:
    """Collected findings, without repeats."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(self, code: str, text: str) -> None:
        self._found.setdefault(Finding(code, text))

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(self._found)


class Stopwatch:
    """Measures how long code holds the loop between two awaits, by the name of the callback."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    def note(self, name: str, since: float) -> None:
        """Record a period without an await that began at `since`, seconds of ``time.perf_counter``."""
        ms = (time.perf_counter() - since) * 1000
        self.longest[name] = max(ms, self.longest.get(name, 0.0))

    async def call(self, name: str, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call a function, sync or async, and return its result."""
        start = time.perf_counter()
        try:
            result = function(*args, **options)
        finally:
            self.note(name, start)
        return await _Timed(self, name, result) if hasattr(result, "__await__") else result

    def blocking(self) -> dict[str, float]:
        """Return the code that blocked the loop too long."""
        return {name: ms for name, ms in self.longest.items() if ms > BLOCKS_MS}


class _Timed:
    """Drives an awaitable step by step, so that only the code between two awaits is measured."""

    def __init__(self, watch: Stopwatch, name: str, awaitable: Awaitable[Any]) -> None:
        self._watch, self._name, self._awaitable = watch, name, awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._awaitable.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            start = time.perf_counter()
            try:
                if error is not None:
                    waiting = steps.throw(error)
                elif hasattr(steps, "send"):
                    waiting = steps.send(sent)
                else:  # a custom iterator
                    waiting = next(steps)
            except StopIteration as done:
                return done.value
            finally:
                self._watch.note(self._name, start)
            sent = error = None
            try:
                sent = yield waiting
            except BaseException as exc:
                error = exc


async def not_blocking(
    notes: Notes, measure: Callable[[], Awaitable[Stopwatch]], name_of: Callable[[str], str]
) -> None:
    """Measure up to three times and note code that blocks the loop every time."""
    slow = (await measure()).blocking()
    for _ in range(TRIES - 1):
        if not slow:
            return
        again = (await measure()).blocking()
        slow = {name: min(ms, again[name]) for name, ms in slow.items() if name in again}
    for name, ms in slow.items():
        notes.add(
            "blocks_loop",
            f"{name_of(name)} holds the event loop for {ms:.0f} ms: nothing else runs meanwhile. Await what waits, or use "
            f"asyncio.to_thread.",
        )


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]:.200}" if text else type(error).__name__


async def limited(awaitable: Awaitable[Any], seconds: float) -> Any:
    """Await something with a time limit; raises `TimeoutError`."""
    async with asyncio.timeout(seconds):
        return await awaitable
