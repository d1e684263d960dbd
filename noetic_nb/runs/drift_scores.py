"""How far replies drifted that nobody was warned of, scored by the real scorer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeGuard

from noetic_nb.events import RegulatorDecided, RegulatorSaw, RunEvent
from noetic_nb.regulator import DriftInput, KeywordScorer, Regulator, ScopeDrift, events

__all__ = ["DriftScores"]

# What a regulator sees before it first decides is kept until its settings are known; that is the start of a turn.
MOST_EARLY: Final = 100
# All that a scorer of keywords compares.
TEXTS: Final = frozenset({"turn_start", "turn_complete"})
SCORED: Final = frozenset({"turn_start", "turn_complete", "tool_call", "tool_result"})


class DriftScores:
    """The drift of every reply, as the recorded scorer sees it.

    Parameters
    ----------
    regulator_of : callable
        From the first decision to a regulator with the settings of the one that made it, or None where nobody knows them.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> where = Where("t1", "e1", 1)
    >>> scores = DriftScores(lambda decided: Regulator.for_user("ann"))
    >>> task = {"kind": "turn_start", "user_message": "move the flight"}
    >>> scores.take(RegulatorSaw(where, 0.0, "regulation", task))
    >>> scores.take(RegulatorDecided(where, 0.0, "regulation", "turn_start", {"kind": "continue"}))
    >>> reply = {"kind": "turn_complete", "full_response": "The flight and the hotel."}
    >>> scores.take(RegulatorSaw(where, 0.0, "regulation", reply))
    0.5
    """

    def __init__(self, regulator_of: Callable[[RegulatorDecided], Regulator | None]) -> None:
        self._regulator_of = regulator_of
        self._template: Regulator | None = None
        self._scorer: Any = None
        self._is_known = False
        self._live: dict[str, Regulator | None] = {}
        self._messages: dict[str, str | None] = {}
        self._early: list[RegulatorSaw] = []

    def reads(self, event: RunEvent) -> TypeGuard[RegulatorSaw | RegulatorDecided]:
        """Tell whether `take` has a use for an event: nearly all decisions of a long run are of none."""
        kind = type(event)
        return kind is RegulatorSaw or (kind is RegulatorDecided and not self._is_known)

    def take(self, event: RegulatorSaw | RegulatorDecided) -> float | None:
        """Read one event of the regulator; returns the score of the reply that it brought, None where it has none."""
        if isinstance(event, RegulatorDecided):
            return None if self._is_known else self._find(event)
        if event.event.get("kind") not in SCORED:
            return None
        if not self._is_known and len(self._early) < MOST_EARLY:
            self._early.append(event)
        return None if self._scorer is None else self._score(event)

    def _find(self, decided: RegulatorDecided) -> float | None:
        self._is_known = True
        self._template = self._regulator_of(decided)
        if self._template is not None:
            scorers = [each.scorer for each in self._template.predicates if isinstance(each, ScopeDrift)]
            self._scorer = scorers[0] if scorers else None
        early, self._early = self._early, []
        scores = [self._score(saw) for saw in early] if self._scorer is not None else []
        return scores[-1] if scores else None

    def _score(self, saw: RegulatorSaw) -> float | None:
        thread_id = saw.where.thread_id
        if type(self._scorer) is KeywordScorer:
            return self._compare(saw, thread_id)
        if thread_id not in self._live:
            self._live[thread_id] = None if self._template is None else self._template.fork()
        live = self._live[thread_id]
        if live is None:
            return None
        try:
            live.on_event(events.from_dict(saw.event))
        except (TypeError, ValueError):
            self._live[thread_id] = None  # what comes after a damaged event is unknown
            return None
        if saw.event.get("kind") != "turn_complete":
            return None
        found = live.evidence.drift(self._scorer)
        return None if found is None else found.score

    def _compare(self, saw: RegulatorSaw, thread_id: str) -> float | None:
        """Score a reply against its message alone, without all else that a regulator works out of them."""
        if saw.event.get("kind") not in TEXTS or self._messages.get(thread_id, "") is None:
            return None
        try:
            event = events.from_dict(saw.event)
        except (TypeError, ValueError):
            self._messages[thread_id] = None  # what comes after a damaged event is unknown
            return None
        if isinstance(event, events.TurnStart):
            self._messages[thread_id] = event.user_message
        message = self._messages.get(thread_id)
        if not isinstance(event, events.TurnComplete) or message is None:
            return None
        found = self._scorer(DriftInput(message, event.full_response))
        return None if found is None else found.score
