"""Progress of long calls, and their partial result after an interrupt.

A plain line on standard error: it needs no package, and works in a terminal, a notebook and a browser. It is only shown
to a person, so that the outputs of a notebook executed by a program do not depend on the machine's speed.
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
"""True or None: a line of text. False: nothing. A function: called with the number done and the total (None: unknown)."""

FIRST_AFTER: Final = 2.0  # seconds; shorter calls need no line
# Seconds; often enough to see progress.
LINE_EVERY: Final = 0.5


class Interrupted(RuntimeWarning):
    """A call was interrupted and returned a partial result."""


class Work:
    """A call that may take long, over counted `things`; if `keeps`, an interrupt returns the part that is done."""

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
        """A sentence about the partial result after an interrupt; None if all are done."""

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """Yield things; each counts as done when the next one is requested."""
        for thing in things:
            yield thing
            self.step()

    def step(self) -> None:
        self.at(self.done + 1)

    def at(self, done: int) -> None:
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
        """Yield the parts of one thing, and show how many are done."""
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
    """Return things, counted for the call that shows progress (`Work.within`), or unchanged without such a call."""
    work = _WORK.get()
    return things if work is None else work.inside(things, name)


def _is_watched() -> bool:
    """Tell whether a person is watching: at a terminal, or in a notebook that allows input."""
    if sys.stderr is None:
        return False
    if sys.stderr.isatty():
        return True
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    # Programs that run notebooks, such as nbclient, allow no input. Kernels without this attribute are those of browsers.
    return shell is not None and bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", True))
