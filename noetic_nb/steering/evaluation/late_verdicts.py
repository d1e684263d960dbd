"""Verdicts that come after the fact, delivered to the model exactly once.

Each execution has a queue. A recall moves what waits into flight; only an explicit "not sent" puts it back. What is left
when a root execution ends is carried to the next one of its thread, verdicts still being formed included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from noetic_nb.items import Item, content_tokens, input_message
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.tokens import Tokenizer

__all__ = ["FeedbackQueues", "feedback_message"]

Entry: TypeAlias = dict[str, str]
"""``{"ruleId": ..., "guidance": ...}``, the wire form of a queued verdict."""


def feedback_message(entries: list[Entry], ctx: ExecutionContext) -> Item:
    """Return the developer message that delivers verdicts, one line each.

    References
    ----------
    .. [1] Runtime specification, section 8.3 (async verdicts).
    """
    lines = [f"[{entry['ruleId']}] {entry['guidance']}" for entry in entries]
    return input_message("\n".join(["<steering_feedback>", *lines, "</steering_feedback>"]), "developer", ids=ctx.ids)


@dataclass(slots=True)
class _Queue:
    """One execution's verdicts: waiting, and on their way in a message."""

    thread_id: str
    depth: int
    pending: list[Entry] = field(default_factory=list)
    in_flight: dict[str, list[Entry]] = field(default_factory=dict)
    saved: list[Entry] = field(default_factory=list)
    ended: bool = False


class FeedbackQueues:
    """The queues of one steering layer."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._carried: dict[str, list[Entry]] = {}
        # A task that nobody holds may be collected before it is done; an execution's queue does not outlive it.
        self._forming: set[asyncio.Task[None]] = set()

    def open(self, ctx: ExecutionContext, entries: list[Entry]) -> list[Entry]:
        """Begin an execution's queue and return its live list of waiting entries."""
        queue = self._of(ctx)
        queue.pending[:] = entries
        if ctx.depth == 0:
            queue.pending += self._carried.pop(ctx.thread_id, [])
        return queue.pending

    def _of(self, ctx: ExecutionContext) -> _Queue:
        found = self._queues.get(ctx.execution_id)
        if found is None:
            found = self._queues[ctx.execution_id] = _Queue(ctx.thread_id, ctx.depth)
        return found

    def pending(self, ctx: ExecutionContext, stated: list[Entry] | None = None) -> list[Entry]:
        """Return the live list of waiting entries; a list that replaced it in the layer's state takes its place."""
        queue = self._of(ctx)
        if stated is not None and stated is not queue.pending:
            queue.pending = stated
        return queue.pending

    def take(self, ctx: ExecutionContext, budget: float, tokenize: Tokenizer) -> Item | None:
        """Put as much as fits into one message, and into flight; the rest keeps waiting.

        The first entry always goes, cut to the budget if need be: it would otherwise wait for ever.
        """
        queue = self._of(ctx)
        if not queue.pending:
            return None
        count = len(queue.pending)
        message = feedback_message(queue.pending, ctx)
        while count > 1 and content_tokens(message, tokenize) > budget:
            count -= 1
            message = feedback_message(queue.pending[:count], ctx)
        taken = queue.pending[:count]
        if count == 1 and content_tokens(message, tokenize) > budget:
            cut = self._cut(taken[0], ctx, budget, tokenize)
            if cut is None:
                return None
            message = cut
        del queue.pending[:count]
        queue.in_flight[message["id"]] = taken
        return message

    @staticmethod
    def _cut(entry: Entry, ctx: ExecutionContext, budget: float, tokenize: Tokenizer) -> Item | None:
        low, high, best = 0, len(entry["guidance"]), None
        while low <= high:
            middle = (low + high) // 2
            message = feedback_message([{**entry, "guidance": entry["guidance"][:middle] + "…"}], ctx)
            if content_tokens(message, tokenize) <= budget:
                best, low = message, middle + 1
            else:
                high = middle - 1
        return best

    def delivered(self, ctx: ExecutionContext, sent: frozenset[str]) -> None:
        """Hear which items were sent: what was in flight and is not among them waits again, in front."""
        queue = self._of(ctx)
        for item_id, entries in list(queue.in_flight.items()):
            del queue.in_flight[item_id]
            if item_id not in sent:
                queue.pending[:0] = entries

    def form(self, ctx: ExecutionContext, verdict: Coroutine[Any, Any, Entry | None]) -> None:
        """Form a verdict in the background and queue it, if it is one; it outlives its execution if need be."""
        queue = self._of(ctx)

        async def run() -> None:
            entry = await verdict
            if entry is not None:
                self._waiting_place(queue).append(entry)

        task = asyncio.get_running_loop().create_task(run())
        self._forming.add(task)
        task.add_done_callback(self._forming.discard)

    def _waiting_place(self, queue: _Queue) -> list[Entry]:
        """Return where a verdict waits: with its execution, or with the thread's present or next root execution."""
        if not queue.ended:
            return queue.pending
        for other in self._queues.values():
            if other.thread_id == queue.thread_id and other.depth == 0:
                return other.pending
        return self._carried.setdefault(queue.thread_id, [])

    def saved(self, ctx: ExecutionContext) -> None:
        """Note that what waits now is kept in durable state, from where the next execution loads it."""
        queue = self._of(ctx)
        queue.saved = list(queue.pending)

    def close(self, ctx: ExecutionContext) -> None:
        """End an execution's queue: what was not delivered goes to the thread's next root execution."""
        queue = self._queues.pop(ctx.execution_id, None)
        if queue is None:
            return
        queue.ended = True
        left = [entry for entry in queue.pending if not any(entry is kept for kept in queue.saved)]
        if left:
            self._carried.setdefault(queue.thread_id, []).extend(left)

    async def settle(self) -> None:
        """Wait for verdicts still being formed."""
        while self._forming:
            await asyncio.gather(*self._forming, return_exceptions=True)
