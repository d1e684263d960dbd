"""Records a stream of events to a `Run`. A recorder only listens: its errors never reach the agent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final, Protocol

from noetic_nb._core.arguments import explained
from noetic_nb._core.atomic_write import as_path
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
    """A source of events, such as a harness; the result of its optional ``describe()`` goes into the run's ``meta``."""

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        """Send every future event to `sink`; returns a function that unsubscribes it."""
        ...


@with_card
class Recorder:
    """An event sink that appends to a run.

    Parameters
    ----------
    run : Run, optional
        The run that gets the events; a new run by default.
    clock, ids : optional
        Used for the new run.

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
        """Add one event, from any thread; an object that is not an event is logged and skipped."""
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
        Any object with ``subscribe(sink) -> unsubscribe``.
    run : Run, optional
        A run to continue. A harness that this run already follows is not followed twice.
    autosave : path-like, optional
        A file to which the run is saved as it grows, secrets replaced. Each turn is saved before its reply is returned,
        so killing the kernel loses no finished turn. If the file already holds a run, that run continues, in the same
        kernel or a new one. Only one process at a time may use the file.
    max_bytes, max_turns : int, optional
        Limits on the kept events, in memory and in the file: bytes of events (128 MiB; an event takes about 0.5 kB), and
        turns (no limit). Beyond a limit, the oldest turns are dropped whole until three quarters are left;
        ``run.meta["dropped"]`` lists them. None is no limit. An existing run keeps its own limits unless you pass others.

    Returns
    -------
    Run
        The growing run; ``run.stop_recording()`` stops recording.

    Raises
    ------
    NoeticConfigError
        ``NOT_RECORDABLE`` if `harness` has no ``subscribe``, ``INVALID_BOUND``, ``AUTOSAVE_EXISTS`` if the file holds
        a run other than `run`.
    NoeticError
        ``storage_failed`` if the file cannot be written, or another process saves to it; ``invalid_run_file`` if it is
        not a run file. Later problems are shown in the run's repr and logged; saving is retried with the next turn.

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
        # A given run keeps its limits unless others are passed.
        if (max_bytes, max_turns) != ((None, None) if is_new else (KEPT_BYTES, None)):
            bound(run, turns)
    else:
        run = open_autosave(str(as_path(autosave)), run, new, turns)
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
    # The run knows its sources: running the cell again must not record everything twice.
    run._attach(harness, lambda: harness.subscribe(recorder))
    return run


def recorded(harness: Recordable) -> Run | None:
    """Return the run that follows a harness (the newest if several do), or None."""
    runs = [sink.run for sink in getattr(harness, "sinks", ()) if isinstance(sink, Recorder)]
    return runs[-1] if runs else None


def _note_setup(run: Run, now: Mapping[str, Any]) -> None:
    """Note a change of the agent's set-up: the earlier set-up is kept with the number of the event up to which it applied."""
    before = {key: run.meta.get(key) for key in ("config", "models")}
    after = thaw(frozen_data({key: now.get(key) for key in before}))
    if len(run.events) and before != after and any(before.values()):
        earlier = run.meta.get("earlier")
        known = earlier if isinstance(earlier, list) else []
        # The limit of what a user would look through.
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
