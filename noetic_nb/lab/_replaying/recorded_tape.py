"""A recorded run prepared for replay: the parts it must have, and its source."""

from __future__ import annotations

from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ViewAssembled
from noetic_nb.runs import Run

__all__ = ["checked_run", "is_native"]


def is_native(run: Run) -> bool:
    """Tell whether a run was made by this runtime, so that a harness can go on with it.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> is_native(datasets.airline_run(26))
    False
    """
    return run.meta.get("config") is not None or any(isinstance(event, ViewAssembled) for event in run.events)


def checked_run(run: Any) -> Run:
    """Return a run that can be replayed.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN`` for what is no run, ``RUN_INCOMPLETE`` where its oldest turns were dropped, ``RUN_NOT_ENDED`` while a
        turn of it is being recorded.

    Examples
    --------
    >>> checked_run(Run("short", meta={"dropped": [{"thread_id": "t1", "first": 1, "last": 3}]}))
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticConfigError: [RUN_INCOMPLETE] The oldest turns of this run were dropped, so that nothing after \
them can be worked out again. Given: {'t1': '1 to 3'}. Record with nn.record(harness, max_bytes=None).
    """
    if not isinstance(run, Run):
        raise NoeticConfigError(
            "INVALID_RUN", "A replay needs a run.", given=run, hint="Use nn.record(harness) or nn.load_run(path)."
        )
    dropped = run.meta.get("dropped")
    if isinstance(dropped, list) and any(isinstance(part, dict) and "last" in part for part in dropped):
        gone = {str(part.get("thread_id")): f"{part.get('first')} to {part['last']}" for part in dropped}
        raise NoeticConfigError(
            "RUN_INCOMPLETE",
            "The oldest turns of this run were dropped, so that nothing after them can be worked out again.",
            given=gone,
            hint="Record with nn.record(harness, max_bytes=None).",
        )
    running = [turn.where for turn in run.turns if turn.outcome is None]
    if running and run.is_recording:
        raise NoeticConfigError(
            "RUN_NOT_ENDED",
            "A turn of this run is still being recorded.",
            given={"thread_id": running[-1].thread_id, "turn": running[-1].turn},
            hint="Wait for its reply, or replay run.copy().",
        )
    return run
