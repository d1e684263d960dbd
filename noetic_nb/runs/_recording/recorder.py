"""From a stream of events to a `Run`. A recorder only listens: its errors never reach the agent."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final, Protocol

from noetic_nb._core.arguments import explained
from noetic_nb._core.cards import Card, with_card
from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, RunEvent
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import thaw
from noetic_nb.items._frozen import frozen_data
from noetic_nb.redact import safe_logger
from noetic_nb.runs._recording.retained_turns import KEPT_BYTES, KeptTurns
from noetic_nb.runs._recording.retention import bound, open_autosave
from noetic_nb.runs._run import Run

_LOG: Final = safe_logger("noetic_nb.runs")
_MOST_EARLIER: Final = 100


class Recordable(Protocol):
    """Something whose events can be followed, such as a harness; its ``describe()``, if any, goes into the run's ``meta``."""

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        """Send every event to come to `sink`; the result ends that."""
        ...


@with_card
class Recorder:
    """An event sink that appends to a run.

    Parameters
    ----------
    run : Run, optional
        Where events go; a new run by default.
    clock, ids : optional
        For the new run.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> recorder = Recorder()
    >>> recorder.emit(QualityGiven(Where("t1", "e1", 1), 5.0, 0.25, "grader"))
    >>> len(recorder.run.events)
    1
    """

    def __init__(self, run: Run | None = None, *, clock: Clock = SYSTEM_CLOCK, ids: Ids = SYSTEM_IDS) -> None:
        self.run = Run(clock=clock, ids=ids) if run is None else run

    def _card(self) -> Card:
        return Card("Recorder", facts=[("run", self.run)])

    def emit(self, event: RunEvent) -> None:
        """Add one event, from any thread; an object that is not an event is logged and left out."""
        try:
            self.run.append(event)
        except Exception:
            _LOG.exception("An event was not recorded; the run goes on without it.")


@explained(harness="Pass the harness: run = nn.record(harness).")
def record(
    harness: Recordable,
    *,
    run: Run | None = None,
    autosave: str | PathLike[str] | None = None,
    max_bytes: int | None = KEPT_BYTES,
    max_turns: int | None = None,
) -> Run:
    """Follow a harness: return a run that grows with everything it does.

    Parameters
    ----------
    harness : AgentHarness
        Anything with ``subscribe(sink) -> unsubscribe``.
    run : Run, optional
        A run to go on with. A harness that this run follows already is not followed twice.
    autosave : path-like, optional
        A file that the run is saved to as it grows, secrets replaced: each turn is in it before its reply is returned, so a
        kernel that is killed loses no finished turn. A run that is in the file already goes on, in the same kernel or in a
        new one. One process at a time.
    max_bytes, max_turns : int, optional
        How much is kept, in memory and in the file: bytes of the events (128 MiB; an event takes about 0.5 kB), and turns (any
        number). Beyond it the oldest turns are dropped whole until three quarters are left;
        ``run.meta["dropped"]`` says which. None is no bound. A run that is given keeps its own unless another is named.

    Returns
    -------
    Run
        The growing run; ``run.stop_recording()`` ends it.

    Raises
    ------
    NoeticConfigError
        ``NOT_RECORDABLE`` if `harness` has no ``subscribe``, ``INVALID_BOUND``, ``AUTOSAVE_EXISTS`` for a file that holds
        another run than `run`.
    NoeticError
        ``storage_failed`` if the file cannot be written, or another process saves to it; ``invalid_run_file`` if it is no
        file of a run. What goes wrong later stands in the repr of the run and in the log, and is tried again with the next turn.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for reply in ("Hello!", "Still here."):  # as in two kernels, one after the other
    ...         harness = nn.AgentHarness(config, model=nn.ScriptedModel([reply]))
    ...         run = nn.record(harness, autosave=f"{folder}/run.jsonl.gz")
    ...         _ = asyncio.run(harness.execute("Hi"))
    ...         run.stop_recording()
    ...     [turn.text for turn in nn.load_run(f"{folder}/run.jsonl.gz").turns]
    ['Hello!', 'Still here.']
    """
    if not callable(getattr(harness, "subscribe", None)):
        what = "This cannot be recorded: it has no subscribe(sink)."
        raise NoeticConfigError("NOT_RECORDABLE", what, given=harness, hint="Pass an AgentHarness.")
    turns = KeptTurns(max_bytes=max_bytes, max_turns=max_turns)

    def new() -> Run:
        clock: Clock = getattr(harness, "clock", SYSTEM_CLOCK)
        ids: Ids = getattr(harness, "ids", SYSTEM_IDS)
        return Run(meta=_description(harness), clock=clock, ids=ids)

    if autosave is None:
        is_new = run is None
        run = new() if run is None else run
        # A run that is given keeps the bound it has, unless one is named.
        if (max_bytes, max_turns) != ((None, None) if is_new else (KEPT_BYTES, None)):
            bound(run, turns)
    else:
        run = open_autosave(os.fspath(autosave), run, new, turns)
        _note_setup(run, _description(harness))
    before = getattr(harness, "turn_count", 0) if recorded(harness) is None and not len(run.events) else 0
    if before:
        warnings.warn(
            f"The harness has had {before} turn{'s' if before > 1 else ''}, which this run does not have: "
            "a run contains the events after nn.record(harness). Call it before the first turn.",
            stacklevel=3,
        )
    recorder = Recorder(run)
    run.made_with(getattr(harness, "config", None))
    # Through the run, which knows its sources: running the cell again must not record everything twice.
    run._attach(harness, lambda: harness.subscribe(recorder))
    return run


def recorded(harness: Recordable) -> Run | None:
    """Return the run that follows a harness, the newest of several; None if none does."""
    runs = [sink.run for sink in getattr(harness, "sinks", ()) if isinstance(sink, Recorder)]
    return runs[-1] if runs else None


def _note_setup(run: Run, now: Mapping[str, Any]) -> None:
    """Note where the agent has changed since a run began: the earlier set-up stays, with the event it holds up to."""
    before = {key: run.meta.get(key) for key in ("config", "models")}
    after = thaw(frozen_data({key: now.get(key) for key in before}))
    if len(run.events) and before != after and any(before.values()):
        earlier = run.meta.get("earlier")
        known = earlier if isinstance(earlier, list) else []
        # As many as anyone would look through.
        run.meta["earlier"] = [*known, {**before, "events": len(run.events)}][-_MOST_EARLIER:]
    run.meta.update(after if any(after.values()) else {})


def _description(harness: object) -> Mapping[str, Any]:
    describe = getattr(harness, "describe", None)
    if not callable(describe):
        return {}
    found = describe()
    if not isinstance(found, Mapping):
        hint = "For example: {'config': …}."
        raise NoeticConfigError("NOT_RECORDABLE", "describe() must return a mapping.", given=found, hint=hint)
    return found
