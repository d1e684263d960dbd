"""How often each rule decided something in a run, by verdict; counted once for each event, however long the run is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.events import RunEvent, SteeringDecided

__all__ = ["RuleHits"]

_WORDS: Final = {"deny": "denied", "guide": "guided", "ask": "asked", "allow": "passed in spite of a failure"}


class RuleHits:
    """The hits of every rule.

    Parameters
    ----------
    runs : iterable of Run
        Where decisions were recorded.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> hits = RuleHits([])
    >>> where = Where("t", "e", 1)
    >>> hits.take(SteeringDecided(where, 0.0, "steering", "before_tool_call", "pay", {}, "deny", None, ("large",), 0.1))
    True
    >>> hits.words("large"), hits.words("other")
    ('1 denied', '')
    """

    def __init__(self, runs: Any) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for run in runs:
            for event in tuple(run.events):
                self.take(event)

    def take(self, event: RunEvent) -> bool:
        """Count an event; returns whether it changed anything."""
        # What a person answered to a rule that asks is an answer to the rule, and not its decision.
        if not isinstance(event, SteeringDecided) or not event.rule_ids or event.layer_id == "approval":
            return False
        for rule_id in event.rule_ids:
            self._counts[rule_id][event.action] += 1
        return True

    def words(self, rule_id: str) -> str:
        """Return a rule's hits for people; empty where it has none."""
        counts: Mapping[str, int] = self._counts.get(rule_id, {})
        return ", ".join(f"{counts[action]} {word}" for action, word in _WORDS.items() if counts.get(action))
