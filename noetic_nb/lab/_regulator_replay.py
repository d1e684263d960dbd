"""Replay a recorded run through a regulator: its decisions where there was none, or another one.

No model is called and no tool is run. A fork of the regulator observes the recorded events in their order, so the one that
is passed in learns nothing; time is the run's, so that "within so many seconds" means what it meant then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, TurnCompleted, ViewAssembled
from noetic_nb.lab._replaying.open_replay import OpenPoints
from noetic_nb.lab._replaying.replay_report import Unknown, horizon, note_known
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_regulator import Grader, RecordedReply, RegulatorFeed

__all__ = ["RecordedReply", "StopPoint", "first_stop", "replay_regulator"]


class StopPoint(NamedTuple):
    """Where a run would have been stopped, and why."""

    turn: int
    """Number of the turn in its thread."""
    position: int
    """Place of the decision in the replayed run: ``run.events[position]``."""
    decision: Mapping[str, Any]
    """The circuit break in its plain form, with its ``reason``."""
    suggestion: str
    """The text the user would have got instead."""


def _cut(into: Run, decided: RegulatorDecided, t_ms: float) -> None:
    """Complete the turn as the harness would have: aborted, with the suggestion in place of a reply."""
    thread_id = decided.where.thread_id
    turn = next(turn for turn in reversed(into.turns) if turn.where.thread_id == thread_id)
    into.append(
        TurnCompleted(
            turn.where,
            t_ms,
            turn.turn_id,
            "aborted",
            # The times of some recordings only count messages.
            None if "t_ms" in (into.meta.get("estimated") or ()) else max(0.0, t_ms - turn.t_ms),
            decided.suggestion or "",
            turn.input_tokens,
            turn.output_tokens,
            turn.cost,
            len(turn.model_calls),
            len(turn.tool_calls),
            stopped=decided.decision,
        )
    )


def _settings(regulator: Regulator) -> dict[str, Any]:
    try:
        return {"regulator": {"settings": regulator.settings.to_dict()}}
    except ValueError:  # a scorer of one's own without a name
        return {}


def replay_regulator(
    run: Run,
    regulator: Regulator,
    *,
    grader: Grader | None = None,
    stop: bool = False,
    layer_id: str = "regulation",
) -> Run:
    """Replay a recorded run through a regulator and record its decisions.

    A turn's start, each tool call that ran, the final reply and each grade are decision points, as in a live harness.

    Parameters
    ----------
    run : Run
        Any run; it is not changed. What another regulator observed and decided in it is left out, except the user's
        corrections, which are repeated.
    regulator : Regulator
        The template. Each thread has a fresh task with its settings, each resource a copy of what it has learned.
    grader : callable, optional
        From a reply (a `RecordedReply`, which is text) to its quality, 0 to 1, or None. Without it the recorded grades count;
        with it only the grader's.
    stop : bool
        Cut a thread where its turn would have been stopped: the turn ends as ``"aborted"`` with the suggestion as its text, and
        what was recorded later in that thread is left out. By default everything is kept and only marked.
    layer_id : str
        Recorded as the layer that regulates.

    Returns
    -------
    Run
        The recorded events with ``RegulatorSaw`` and ``RegulatorDecided`` where they would have been. ``stops`` is True where a
        circuit break ends a turn; one that comes between turns (a late grade) stops the next.

    Raises
    ------
    NoeticConfigError
        ``INVALID_REGULATOR`` if it is not a `Regulator`, ``INVALID_GRADE`` if the grader returns anything else than a number.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> replayed = replay_regulator(datasets.airline_run(26), Regulator.for_user("airline"))
    >>> stop = first_stop(replayed)
    >>> stop.turn, stop.decision["reason"]["tool_name"], stop.decision["reason"]["consecutive_count"]
    (4, 'get_reservation_details', 5)
    """
    if not isinstance(regulator, Regulator):
        raise NoeticConfigError(
            "INVALID_REGULATOR", "A replay needs a regulator.", given=regulator, hint="Use Regulator.for_user(name)."
        )
    about = {"of": run.run_id, "stop": stop, "graded": grader is not None, "layer_id": layer_id}
    meta = {**run.meta, "source": "replay", "replay": about, **_settings(regulator)}
    into = Run(f"{run.run_id}-replay", meta=meta)
    replaying = RegulatorFeed(regulator, grader, into, layer_id)
    stopped: set[str] = set()
    # A copy, because a run may still be recorded into.
    for event in tuple(run.events):
        if event.where.thread_id in stopped:
            continue
        for decided in replaying.take(event):
            if stop and decided.stops:
                _cut(into, decided, event.t_ms)
                stopped.add(event.where.thread_id)
                break
    # Where nothing was planned, a regulator takes nothing from anybody.
    unknown = (
        OpenPoints(run).unknown(regulator=True)
        if run.select(ViewAssembled)
        else Unknown(is_given=True, scope="resource")
    )
    note_known(into, horizon(run, tuple(into.events), unknown))
    return into


def first_stop(run: Run) -> StopPoint | None:
    """Return where a run is first stopped by a regulator; None if it never is.

    Parameters
    ----------
    run : Run
        A replayed run, or a live one with a regulation layer.
    """
    for position, event in enumerate(run.events):
        if isinstance(event, RegulatorDecided) and event.stops:
            return StopPoint(event.where.turn, position, event.decision, event.suggestion or "")
    return None
