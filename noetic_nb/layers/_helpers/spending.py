"""What memories outside of this library spend on models of their own, for listeners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from noetic_nb.clock import Clock


@dataclass(slots=True)
class Spent:
    """The model calls that stores made, their tokens, and the time in which stores were asked."""

    timer: Clock | None = None
    calls: int = 0
    tokens: int = 0
    ms: float = 0.0


_LISTENING: ContextVar[Spent | None] = ContextVar("noetic_nb_spent", default=None)


@contextmanager
def counting(spent: Spent) -> Iterator[None]:
    """Count what is spent inside of the block."""
    before = _LISTENING.set(spent)
    try:
        yield
    finally:
        _LISTENING.reset(before)


@contextmanager
def spending(store: Any) -> Iterator[None]:
    """Count the model calls that a store adds to ``spent`` inside of the block, where there is a listener."""
    spent = _LISTENING.get()
    if spent is None:
        yield
        return
    before = len(getattr(store, "spent", ()))
    began = spent.timer.monotonic_ms() if spent.timer is not None else 0.0
    try:
        yield
    finally:
        for usage in list(getattr(store, "spent", ()))[before:]:
            spent.calls += 1
            spent.tokens += usage.input_tokens + usage.output_tokens
        if spent.timer is not None:
            spent.ms += spent.timer.monotonic_ms() - began
