"""The progress of an agent in one line: turn, step, running tools, tokens and cost so far."""

from __future__ import annotations

from typing import ClassVar, Final

from noetic_nb.events import (
    ModelCalled,
    RunEvent,
    StepStarted,
    ToolCalled,
    ToolProgress,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.markup import dollars
from noetic_nb.runs.plain_text import plain

__all__ = ["Progress"]

# More names than these are counted.
_TOOLS_NAMED: Final = 3


class Progress:
    """Reads events and describes the current progress.

    Attributes
    ----------
    running : dict of str to Where
        The threads in which a turn runs now, and where.

    Examples
    --------
    >>> progress = Progress()
    >>> where = Where("t1", "e1", 2)
    >>> progress.take(TurnStarted(where, 0.0, "u", 0, 1, "Hi"))
    >>> progress.take(ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 1200, 30, cost=0.002))
    >>> progress.text
    'Turn 2 runs · 1,230 tokens · $0.0020'
    """

    reads: ClassVar = frozenset({ModelCalled, StepStarted, ToolCalled, ToolProgress, TurnCompleted, TurnStarted})
    """The types of the events that it has a use for."""

    def __init__(self) -> None:
        self.running: dict[str, Where] = {}
        self._step = ""
        self._open: dict[str, str] = {}
        self._tokens = 0
        self._cost = 0.0
        self._unpriced = 0
        self._last: TurnCompleted | None = None

    def take(self, event: RunEvent) -> None:
        """Read one event."""
        match event:
            case TurnStarted(where):
                self.running[where.thread_id] = where
                self._step = ""
                self._open.clear()
            case StepStarted():
                self._step = event.step_id
            case ModelCalled():
                self._tokens += event.input_tokens + event.output_tokens
                self._cost += event.cost or 0.0
                self._unpriced += event.cost is None
                if event.purpose == "agent":
                    calls = [item for item in event.items if item["type"] == "function_call"]
                    self._open |= {str(item.get("callId")): str(item.get("name")) for item in calls}
            case ToolProgress():
                self._open.setdefault(event.call_id, event.name)
            case ToolCalled():
                self._open.pop(event.call_id, None)
            case TurnCompleted(where):
                self.running.pop(where.thread_id, None)
                self._last = event
                self._open.clear()

    @property
    def text(self) -> str:
        """The line."""
        parts = []
        if self.running:
            where = list(self.running.values())[-1]
            thread = f" of {plain(where.thread_id)}" if len(self.running) > 1 else ""
            parts.append(f"Turn {where.turn}{thread} runs")
            if self._step:
                parts.append(f"step {plain(self._step)}")
            if self._open:
                names = [plain(name) for name in self._open.values()]
                more = f" and {len(names) - _TOOLS_NAMED} more" if len(names) > _TOOLS_NAMED else ""
                parts.append(f"tool {', '.join(names[:_TOOLS_NAMED])}{more}")
        elif self._last is not None:
            parts.append(f"Turn {self._last.where.turn} ended: {plain(self._last.outcome)}")
        else:
            parts.append("No turn yet")
        if self._tokens:
            parts.append(f"{self._tokens:,} tokens")
        if self._cost:
            known = dollars(self._cost) if self._cost < 1 else f"${self._cost:,.2f}"
            parts.append(f"{known} and {self._unpriced:,} calls without a price" if self._unpriced else known)
        return " · ".join(parts)
