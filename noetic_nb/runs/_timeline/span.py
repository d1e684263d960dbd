"""A span of a run, or a moment: its name, its time and its outcome."""

from __future__ import annotations

from typing import Final

from noetic_nb.events import Where
from noetic_nb.runs._timeline.span_rows import Row

KINDS: Final = (
    "turn",
    "step",
    "child",
    "model",
    "tool",
    "hook",
    "decision",
    "wait",
    "compaction",
    "regulator",
    "error",
    "warning",
)
"""Kinds of spans."""
MOMENTS: Final = ("compaction", "regulator", "error", "warning")
"""Those that have no duration."""

SIGNS: Final = ("", "⊘", "◔", "✕")
"""What stands at a span beside its word: nothing, kept from going on, out of time, failed."""
_SEVERITY: Final = {
    **dict.fromkeys(("deny", "guide", "denied", "guided", "refused", "nobody"), 1),
    **dict.fromkeys(("aborted", "cancelled", "stopped", "unfinished"), 1),
    "timeout": 2,
    **dict.fromkeys(("error", "failure", "invalid_args", "invalid_result", "unknown"), 3),
}
CUT_OFF: Final = frozenset({"cancelled", "unfinished"})
"""Statuses of what something else ended."""


def severity_of(status: str) -> int:
    """Return which of `SIGNS` a status has: 0 went well, or runs."""
    return _SEVERITY.get(status, 0)


class Span:
    """Something that took time, or a moment.

    Attributes
    ----------
    at : int
        Its number among the spans of the timeline.
    seq : int
        The number of its event in the run; of what has two, the first that was seen.
    kind, name, status : str
        One of `KINDS`, what it is called, and how it ended: ``running`` while it has not.
    start_ms, end_ms : float
        From where to where it is drawn, by the run's clock; without one in the order of events.
    duration_ms : float or None
        As measured; None where nobody knows it, and while it runs.
    first, last : int
        The same in the order of events.
    parent : Span or None
        What it is part of.
    follows : bool
        Whether it ended as it did because another span of the timeline did.
    call, item, decision : int or None
        The model call, the place in the log and the steering decision that it belongs to.
    """

    __slots__ = (
        "at", "call", "decision", "duration_ms", "end_ms", "error", "first", "follows", "is_open", "item", "kind", "last",
        "level", "name", "parent", "row", "seq", "severity", "start_ms", "status", "where",
    )  # fmt: skip

    row: Row

    def __init__(self, at: int, seq: int, kind: str, name: str, where: Where, parent: Span | None, level: int) -> None:
        self.at, self.seq, self.kind, self.name, self.where = at, seq, kind, name, where
        self.parent, self.level = parent, level
        self.start_ms = self.end_ms = 0.0
        self.first = self.last = 0
        self.duration_ms: float | None = None
        self.status, self.severity, self.is_open = "running", 0, True
        self.follows = False
        self.call: int | None = None
        self.item: int | None = None
        self.decision: int | None = None
        self.error: str | None = None

    @property
    def depth(self) -> int:
        """How many spans it is inside of."""
        depth, around = 0, self.parent
        while around is not None:
            depth, around = depth + 1, around.parent
        return depth

    @property
    def was_held(self) -> bool:
        """Whether a rule, a person or the regulator kept it from going on, which is no failure."""
        return self.severity == 1 and self.status != "unfinished"

    def holds(self, other: Span) -> bool:
        """Return whether another span is part of it."""
        around = other.parent
        while around is not None and around is not self:
            around = around.parent
        return around is self
