"""One run under many thresholds: it is read once, and only what a predicate answers is worked out again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, RunEvent, TurnCompleted, TurnStarted
from noetic_nb.items import freeze
from noetic_nb.lab.replaying.decisions_again import was_regulated
from noetic_nb.lab.replaying.replays import replay
from noetic_nb.regulator import Regulator, decisions
from noetic_nb.regulator.person import Person
from noetic_nb.runs import Run
from noetic_nb.runs.regulator_feed import RegulatorFeed
from noetic_nb.runs.regulator_tape import DecisionTape, tape_of, with_thresholds

__all__ = ["ThresholdReplays", "Thresholds"]

Thresholds: TypeAlias = Mapping[str, Mapping[str, float | None]]
"""New numbers by predicate and name, as in `Regulator.thresholds`."""

# As `replay` records a regulator that was not there.
LAYER_ID: Final = "regulation"
# What nearly every decision is.
GO_ON: Final = freeze(decisions.to_dict(decisions.CONTINUE))


class ThresholdReplays:
    """A run that is replayed under one threshold after another.

    Parameters
    ----------
    run : Run
        What was recorded.
    regulator : Regulator, optional
        Whose settings count in place of the recorded ones; a template, which learns nothing.
    **changes
        What else is other than it was: arguments of `replay`.

    Raises
    ------
    NoeticConfigError
        ``NO_REGULATOR`` where nothing decided in the run and none is given, and what `replay` raises.

    Examples
    --------
    >>> from noetic_nb.lab import datasets, first_stop
    >>> replays = ThresholdReplays(datasets.airline_run(26), Regulator.recommended("ann"))
    >>> [first_stop(replays.under({"call_budget": {"total": most}})).position for most in (4, 6)]
    [70, 86]
    """

    def __init__(self, run: Run, regulator: Regulator | None = None, **changes: Any) -> None:
        self._run, self._changes = run, changes
        self._open: list[bool] | None = None
        if was_regulated(run):
            # Denials of the recorded regulator go with its decisions, so that the whole run is judged again.
            self._regulator = tape_of(run).template if regulator is None else regulator
            return
        if regulator is None:
            raise NoeticConfigError(
                "NO_REGULATOR",
                f"Nothing has thresholds in {run.run_id}: it had no regulator.",
                given=run.run_id,
                hint="Pass one, such as regulator=Regulator.recommended('ann').",
            )
        self._regulator = regulator
        self._feed(run)

    def _feed(self, run: Run) -> None:
        plain = replay(run, **self._changes)
        # Without predicates, as each is asked when it is known under which numbers.
        bare = Regulator(self._regulator.person, replace(self._regulator.settings, predicates=()))
        fed: list[RunEvent] = []
        feed = RegulatorFeed(bare, None, fed, LAYER_ID)
        for event in plain.events:
            for _ in feed.take(event):
                pass
        about = plain.meta["replay"]
        about["changed"].append("regulator")
        self._base = Run(plain.run_id, meta=plain.meta, events=fed)
        self._tape = DecisionTape(self._regulator)
        self._open = []
        running: set[str] = set()
        for seq, event in enumerate(self._base.events):
            self._tape.append(event, seq)
            match event:
                case TurnStarted():
                    running.add(event.where.thread_id)
                case TurnCompleted():
                    running.discard(event.where.thread_id)
                case RegulatorDecided():
                    self._open.append(event.where.thread_id in running)

    def under(self, thresholds: Thresholds) -> Run:
        """Return the run as `replay` gives it for a regulator with these thresholds."""
        settings = with_thresholds(self._regulator.settings, thresholds)
        if self._open is None:
            return replay(self._run, regulator=Regulator(self._regulator.person, settings), **self._changes)
        instead: dict[int, RunEvent] = {}
        numbers = Regulator(Person("numbers"), settings)
        shown, cap = freeze(numbers.thresholds), numbers.cost_cap_tokens()
        latched: dict[str, decisions.CircuitBreak] = {}
        counts: Counter[str] = Counter()
        stopped = 0
        for moment, is_open in zip(self._tape.decide(thresholds), self._open, strict=True):
            recorded, decision = moment.recorded, moment.decision
            assert moment.seq is not None
            if latched and recorded.at == "turn_start":
                decision = latched.pop(recorded.where.thread_id, decision)
            own = decision if isinstance(decision, decisions.CircuitBreak) else None
            if own is not None and not is_open:
                # No turn is there to be stopped: the next one is.
                latched[recorded.where.thread_id] = own
            stops = own is not None and is_open
            instead[moment.seq] = replace(
                recorded,
                decision=GO_ON if decision is decisions.CONTINUE else freeze(decisions.to_dict(decision)),
                suggestion=None if own is None else own.suggestion,
                cost_cap=cap,
                stops=stops,
                thresholds=shown,
            )
            counts[decision.kind] += 1
            stopped += stops
        found = self._base.with_events(instead)
        about = found.meta["replay"]
        about["regulator"]["after"] = {**dict(sorted(counts.items())), "stops": stopped}
        return found
