"""Secrets out of decisions of a regulator: they hold words of texts, which are known as those of a secret only after these."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from noetic_nb.events import RegulatorSaw, RunEvent, TurnCompleted, TurnStarted
from noetic_nb.redact import Redaction

__all__ = ["DecisionRedaction"]

# Lines that are known to have no secret, of a long run; see `Redaction`.
REMEMBERED: Final = 100_000
# Texts that wait until a decision is shown, where a run grows: most are looked at together, in less time than one by one.
MOST_UNREAD: Final = 1_000
# Once more wait, so many are looked at with each that comes: no event of a run that grows takes long.
AT_ONCE: Final = 100
_TEXTS: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    RegulatorSaw: lambda event: event.event,
    TurnStarted: lambda event: event.query,
    TurnCompleted: lambda event: event.text,
}


class DecisionRedaction:
    """Reads the texts that a regulator looks at, and replaces secrets in its decisions about them.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> words = DecisionRedaction()
    >>> words.take(TurnStarted(Where("t1", "e1", 1), 0.0, "turn-1", 0, 1, "PASSWORD=hunter2secret fails"))
    >>> words.decision({"kind": "scope_drift_warn", "drift_tokens": ["hunter2secret"]})["drift_tokens"]
    ['[redacted]']
    """

    reads: ClassVar = frozenset(_TEXTS)
    """The types of the events that it has a use for."""

    def __init__(self, *, grows: bool = True) -> None:
        """`grows` is False while a recording is read that is there: its texts wait, however many, until a decision is shown."""
        self.grows = grows
        self._rule = Redaction(remembered=REMEMBERED)
        self._unread: deque[RunEvent] = deque()

    def take(self, event: RunEvent) -> None:
        """Read one event."""
        if type(event) not in _TEXTS:
            return
        self._unread.append(event)
        if self.grows and len(self._unread) > MOST_UNREAD:
            self._learn(AT_ONCE)

    @property
    def rule(self) -> Redaction:
        """The redaction of the secrets in all texts that were read."""
        while self._unread:
            self._learn(MOST_UNREAD)
        return self._rule

    def decision(self, decision: Any) -> Any:
        """Return a decision without secrets."""
        return self.rule.data(decision)

    def _learn(self, count: int) -> None:
        oldest = [self._unread.popleft() for _ in range(min(count, len(self._unread)))]
        # Most have no sign of a secret, which is seen at once.
        if not self._rule.are_plain(_texts(oldest)):
            for event in oldest:
                self._rule.data(_TEXTS[type(event)](event))


def _texts(events: Iterable[RunEvent]) -> set[str]:
    """Return the texts of events, each once: a regulator sees the texts that turns begin and end with."""
    found: set[Any] = set()
    for event in events:
        seen = _TEXTS[type(event)](event)
        if isinstance(seen, str):
            found.add(seen)
        else:
            try:
                found.update(seen.values())
            except TypeError:  # some are no texts and have no hash
                found.update([text for text in seen.values() if isinstance(text, str)])
    return {text for text in found if isinstance(text, str)}
