"""How far replies drifted that nobody was warned of, scored by the real scorer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from noetic_nb.events import RegulatorDecided, RegulatorSaw
from noetic_nb.regulator import DriftInput, KeywordScorer, Regulator, ScopeDrift, events

__all__ = ["DriftScores"]

# What a regulator sees before it first decides is kept until its settings are known; that is the start of a turn.
MOST_EARLY: Final = 100
# All that a scorer of keywords compares.
TEXTS: Final = {"turn_start": "user_message", "turn_complete": "full_response"}
SCORED: Final = frozenset({"turn_start", "turn_complete", "tool_call", "tool_result"})

Score: TypeAlias = Callable[[], float | None]
"""Scores a reply; None where no score is defined."""


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
    >>> scores.take(RegulatorSaw(where, 0.0, "regulation", reply))()
    0.5
    """

    def __init__(self, regulator_of: Callable[[RegulatorDecided], Regulator | None]) -> None:
        self._regulator_of = regulator_of
        self._template: Regulator | None = None
        self._scorer: Any = None
        self.is_known = False
        """Whether a decision was read; others are not needed."""
        self._live: dict[str, Regulator | None] = {}
        self._messages: dict[str, str | None] = {}
        self._early: list[RegulatorSaw] = []
        self.kinds = SCORED
        """The kinds of what a regulator sees that are needed."""

    def take(self, event: RegulatorSaw | RegulatorDecided) -> Score | None:
        """Read one event of the regulator; returns the score of the reply that it brought, None where it brought none."""
        if isinstance(event, RegulatorDecided):
            return None if self.is_known else self._find(event)
        if event.event.get("kind") not in self.kinds:
            return None
        if not self.is_known and len(self._early) < MOST_EARLY:
            self._early.append(event)
        return None if self._scorer is None else self._score(event)

    def _find(self, decided: RegulatorDecided) -> Score | None:
        self.is_known = True
        self._template = self._regulator_of(decided)
        if self._template is not None:
            scorers = [each.scorer for each in self._template.predicates if isinstance(each, ScopeDrift)]
            self._scorer = scorers[0] if scorers else None
            self.kinds = frozenset(TEXTS) if type(self._scorer) is KeywordScorer else SCORED
        early, self._early = self._early, []
        scores = [self._score(saw) for saw in early] if self._scorer is not None else []
        return scores[-1] if scores else None

    def _score(self, saw: RegulatorSaw) -> Score | None:
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
        return None if found is None else lambda: found.score

    def _compare(self, saw: RegulatorSaw, thread_id: str) -> Score | None:
        """Score a reply against its message alone, without all else that a regulator works out of them."""
        kind = saw.event.get("kind")
        if kind not in TEXTS or self._messages.get(thread_id, "") is None:
            return None
        text = saw.event.get(TEXTS[kind])
        if not isinstance(text, str) or not text.isascii():  # else it needs no check
            try:
                text = getattr(events.from_dict(saw.event), TEXTS[kind])
            except (TypeError, ValueError):
                self._messages[thread_id] = None  # what comes after a damaged event is unknown
                return None
        if kind == "turn_start":
            self._messages[thread_id] = text
            return None
        message = self._messages.get(thread_id)
        if message is None:
            return None
        return partial(_scored, self._scorer, message, text)


def _scored(scorer: KeywordScorer, message: str, text: str) -> float | None:
    found = scorer(DriftInput(message, text))
    return None if found is None else found.score
