"""Secrets out of decisions of a regulator: they hold words of texts, which are known as those of a secret only after these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from noetic_nb.events import RegulatorSaw, RunEvent, TurnCompleted, TurnStarted
from noetic_nb.redact import Redaction

__all__ = ["DecisionRedaction"]

# Lines that are known to have no secret, of a long run; see `Redaction`.
REMEMBERED: Final = 100_000
# Texts that wait until a decision is shown: most are looked at together, in less time than one by one.
MOST_UNREAD: Final = 1_000
_TEXTS: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    RegulatorSaw: lambda event: event.event,
    TurnStarted: lambda event: event.query,
    TurnCompleted: lambda event: event.text,
}


class DecisionRedaction:
    """Reads the texts that a regulator looks at, and replaces secrets in what it decided of them.

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

    def __init__(self) -> None:
        self._rule = Redaction(remembered=REMEMBERED)
        self._unread: list[Any] = []

    def take(self, event: RunEvent) -> None:
        """Read one event."""
        text_of = _TEXTS.get(type(event))
        if text_of is None:
            return
        self._unread.append(text_of(event))
        if len(self._unread) > MOST_UNREAD:
            self._learn()

    @property
    def rule(self) -> Redaction:
        """What replaces the secrets in all texts that were read."""
        if self._unread:
            self._learn()
        return self._rule

    def decision(self, decision: Any) -> Any:
        """Return a decision without secrets."""
        return self.rule.data(decision)

    def _learn(self) -> None:
        unread, self._unread = self._unread, []
        # Most have no sign of a secret, which is seen at once.
        if not self._rule.are_plain(_texts(unread)):
            for seen in unread:
                self._rule.data(seen)


def _texts(unread: Iterable[Any]) -> list[str]:
    return [
        text
        for seen in unread
        for text in ((seen,) if isinstance(seen, str) else seen.values())
        if isinstance(text, str)
    ]
