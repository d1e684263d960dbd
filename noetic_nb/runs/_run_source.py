"""Finds the run to use: the object itself, or its ``run``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent


class RunLike(Protocol):
    """The part of a run's interface that views and figures need."""

    @property
    def events(self) -> Any:
        """The events so far, oldest first."""
        ...

    def subscribe(self, listener: Callable[[RunEvent], None], /) -> Callable[[], None]:
        """Call `listener` with each new event; returns a function that unsubscribes it."""
        ...

    def to_frame(self, name: str, /) -> Any:
        """Return one of the run's tables."""
        ...


def run_of(source: Any) -> RunLike:
    """Return the run itself, or the run in an object's ``run`` attribute; raises ``NOT_A_RUN``."""
    candidates: tuple[Any, ...] = (source, getattr(source, "run", None))
    for candidate in candidates:
        if hasattr(candidate, "events") and callable(getattr(candidate, "subscribe", None)):
            found: RunLike = candidate
            return found
    hint = "Pass a Run, such as nn.record(harness), nn.load_run(path), or nn.import_run(path) for a trace."
    raise NoeticConfigError("NOT_A_RUN", "This is not a run.", given=source, hint=hint)
