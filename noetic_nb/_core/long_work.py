"""Progress of long calls, and their partial result when they are interrupted.

A plain line on the standard error: it needs no package, and works in a terminal, in a notebook and in a browser. It is shown only
to a person, so that the outputs of a notebook that a program runs are the same on a fast and on a slow machine.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar

from noetic_nb.errors import NoeticConfigError

T = TypeVar("T")
Progress: TypeAlias = bool | Callable[[int, int | None], object] | None
"""True or None: a line of text. False: nothing. A function: called with how many are done, of how many (None: unknown)."""

FIRST_AFTER: Final = 2.0  # a call that is over sooner needs no line, seconds
# Often enough to see that it moves, seconds.
LINE_EVERY: Final = 0.5


class Interrupted(RuntimeWarning):
    """A call was interrupted and returned a partial result."""


class Work:
    """A call that may take long, of counted `things`; an interrupt returns the part that is done where it `keeps` one."""

    def __init__(
        self, call: str, things: str, progress: Progress = None, *, of: int | None = None, keeps: bool = True
    ) -> None:
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise NoeticConfigError(
                "INVALID_PROGRESS",
                "progress= must be True, False or a function.",
                given=progress,
                hint="A function is called with two numbers: progress(done, total).",
            )
        self._call, self._things, self._of, self._keeps = call, things, of, keeps
        self._show = progress if callable(progress) else None
        self._has_line = self._show is None and progress is not False and _is_watched()
        self._is_shown = False
        self._next = time.monotonic() + FIRST_AFTER
        self.done = 0
        self.cut: str | None = None
        """What an interrupt left: the result of the first `done` things. None if all are done."""

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """Yield things; each counts as done when the next one is asked for."""
        for thing in things:
            yield thing
            self.step()

    def step(self) -> None:
        """Count one thing as done."""
        self.at(self.done + 1)

    def at(self, done: int) -> None:
        """Say how many things are done."""
        self.done = done
        if self._show is not None:
            self._show(self.done, self._of)
        self._line(self.done, self._of, self._things)

    @contextmanager
    def within(self) -> Iterator[None]:
        """Show the counts of `counted` inside one long step."""
        before = _WORK.set(self)
        try:
            yield
        finally:
            _WORK.reset(before)

    def inside(self, things: Iterable[T], name: str) -> Iterator[T]:
        """Yield the things of which one thing is made, and show how many there were."""
        of = len(things) if isinstance(things, Sized) else None
        for done, thing in enumerate(things, 1):
            yield thing
            self._line(done, of, name)

    def _line(self, done: int, of: int | None, things: str) -> None:
        if self._has_line and (now := time.monotonic()) >= self._next:
            self._next, self._is_shown = now + LINE_EVERY, True
            self._print(done, of, things, "")

    def _print(self, done: int, of: int | None, things: str, end: str) -> None:
        text = f"{self._call}: {done:,} {things}" if of is None else f"{self._call}: {done:,} of {of:,} {things}"
        # The return to the start of the line is what notebooks and terminals both understand.
        print(f"\r{text:<60}", end=end, file=sys.stderr, flush=True)

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._is_shown:
            self._print(self.done, self._of, self._things, "\n")
        if not (self._keeps and self.done and kind is not None and issubclass(kind, KeyboardInterrupt)):
            return False
        of = "" if self._of is None else f" of {self._of:,}"
        self.cut = f"{self._call} was interrupted: its result is that of the first {self.done:,}{of} {self._things}."
        level, frame = 2, sys._getframe(1)
        while frame.f_back and frame.f_globals["__name__"].startswith("noetic_nb."):
            level, frame = level + 1, frame.f_back
        warnings.warn(self.cut, Interrupted, stacklevel=level)
        return True


_WORK: Final[ContextVar[Work | None]] = ContextVar("noetic_nb_work", default=None)


def counted(things: Iterable[T], name: str) -> Iterable[T]:
    """Return things, counted for the call that shows how far it is (`Work.within`); without one as they are."""
    work = _WORK.get()
    return things if work is None else work.inside(things, name)


def _is_watched() -> bool:
    """Tell whether a person looks on: at a terminal, or at a notebook in which questions could be answered."""
    if sys.stderr is None:
        return False
    if sys.stderr.isatty():
        return True
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    # Programs that run notebooks, such as nbclient, allow no input. Kernels without this attribute are those of browsers.
    return shell is not None and bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", True))
