"""The decisions of a regulator in a run that had none: the run is fed once, its decisions are made under many settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from noetic_nb.events import RegulatorDecided, RunEvent, TurnCompleted, TurnStarted
from noetic_nb.items import freeze
from noetic_nb.lab._replaying.regulator_template import RegulatorTemplate
from noetic_nb.regulator import Regulator, decisions
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape
from noetic_nb.runs._regulation.recorded_regulator import RegulatorFeed

__all__ = ["DecisionsAdded", "fed_events"]

LAYER_ID: Final = "regulation"
# What nearly every decision is.
_GO_ON: Final = freeze(decisions.to_dict(decisions.CONTINUE))


def fed_events(events: Iterable[RunEvent], template: RegulatorTemplate) -> list[RunEvent]:
    """Return events with those a regulator reads, and a decision to go on at every moment at which it would decide."""
    # Without predicates, as each is asked when it is known under which numbers.
    bare = Regulator(template.person.copy(), replace(template.settings, predicates=()))
    fed: list[RunEvent] = []
    feed = RegulatorFeed(bare, None, fed, LAYER_ID)
    for event in events:
        for _ in feed.take(event):
            pass
    return fed


class DecisionsAdded:
    """The moments of a run at which a regulator that was not there would have decided.

    Parameters
    ----------
    run : Run
        With `fed_events`.
    tape : DecisionTape
        Its moments, in their order.
    """

    def __init__(self, run: Run, tape: DecisionTape) -> None:
        self.run, self._tape = run, tape
        # Each with its place, and whether a turn is there to be stopped.
        self._moments: list[tuple[RegulatorDecided, int, bool]] = []
        running: set[str] = set()
        for seq, event in enumerate(run.events):
            match event:
                case TurnStarted():
                    running.add(event.where.thread_id)
                case TurnCompleted():
                    running.discard(event.where.thread_id)
                case RegulatorDecided():
                    self._moments.append((event, seq, event.where.thread_id in running))
        # The decisions of the last regulator in their plain form: most are those of the next.
        self._plain: list[tuple[Any, Any]] = [(decisions.CONTINUE, _GO_ON)] * len(self._moments)

    def under(self, template: RegulatorTemplate) -> dict[int, RegulatorDecided]:
        """Return the decisions of a regulator by their place in `run`; it takes the same from events as the tape."""
        found: dict[int, RegulatorDecided] = {}
        # By thread, a break that came between turns: the next one is stopped.
        latched: dict[str, decisions.CircuitBreak] = {}
        thresholds, cost_cap = template.thresholds, template.cost_cap
        moments = self._tape.decide_under(template.settings)
        for at, ((made, seq, is_open), moment) in enumerate(zip(self._moments, moments, strict=True)):
            decision = moment.decision
            if latched and made.at == "turn_start":
                decision = latched.pop(made.where.thread_id, decision)
            own = decision if isinstance(decision, decisions.CircuitBreak) else None
            if own is not None and not is_open:
                latched[made.where.thread_id] = own
            known = self._plain[at]
            if known[0] is not decision:
                known = self._plain[at] = decision, freeze(decisions.to_dict(decision))
            found[seq] = RegulatorDecided(
                made.where,
                made.t_ms,
                made.layer_id,
                made.at,
                known[1],
                None if own is None else own.suggestion,
                made.confidence,
                made.tokens_out,
                cost_cap,
                own is not None and is_open,
                thresholds,
            )
        return found
