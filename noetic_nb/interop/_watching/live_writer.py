"""The events of one conversation, written call by call as spans end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from noetic_nb.events import RunEvent, Where
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.interop._spans.span_run import RunWriter
from noetic_nb.interop._spans.span_tree import Execution
from noetic_nb.interop._spans.span_turns import Log
from noetic_nb.redact import Redaction
from noetic_nb.runs._context_tokens import ContextTokens


class LiveWriter(RunWriter):
    """Writes a conversation as the reader of finished spans does, a few calls at a time."""

    def __init__(self, thread_id: str, redaction: Redaction) -> None:
        super().__init__(thread_id, redaction)
        self.log = Log(Where(thread_id, f"{thread_id}/e0", 0), ContextTokens(self.counter))
        self._known: tuple[int, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether a call that a model made has no result yet."""
        return bool(self.log.waiting)

    def is_turn_of(self, span: Span) -> bool:
        """Tell whether the turn that is open is the work of an agent on this span."""
        return self.turn is not None and self.turn.invocation is span

    def call(self, use: Any, root: Execution) -> list[RunEvent]:
        """Write a call that has ended, with nothing inside of it; returns its events."""
        self.entry(self.log, use, root, True)  # nothing has to be read ahead of it
        self.log.done.clear()
        return self._new_events()

    @property
    def is_answered(self) -> bool:
        """Whether the turn that is open has its answer, where no agent is on a span whose end would end it."""
        turn = self.turn
        return turn is not None and turn.invocation is None and self.log.answer is not None and not self.log.waiting

    def take(self, root: Execution) -> list[RunEvent]:
        """Write calls that have ended; returns their events."""
        log = self.log
        if len(root.entries) == 1 and not isinstance(root.entries[0], Execution):
            return self.call(root.entries[0], root)
        self.entries(log, root)
        # What was read ahead of these calls is of no use to the next, and their numbers may come again.
        for known in (log.results, log.by_id, log.issued, log.late, log.done):
            known.clear()
        return self._new_events()

    def finish_turn(self, agents: Iterable[Span]) -> list[RunEvent]:
        """Complete the turn that is open; of `agents`, which have ended, the first that can answers where no call did."""
        self.release(self.log, None)
        self.end_turn(self.log, Execution("", agents=sorted(agents, key=lambda span: (span.start_ns or 0, span.place))))
        return self._new_events()

    def _new_events(self) -> list[RunEvent]:
        found, self.events = self.events, []
        return found

    def news(self) -> dict[str, Any] | None:
        """Return the meta of the conversation where it has changed since the last time."""
        known = len(self.unmapped), len(self.estimated), len(self.models), self.params is None, self.policy is None
        if known == self._known:
            return None
        new = self.unmapped[self._known[0] if self._known else 0 :]
        self._known = known
        return {**self.meta(), "unmapped": new}
