"""The record of one turn: begun and ended with it, shared by the records of its executions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from noetic_nb.runtime._context.step_errors import unsaved_text
from noetic_nb.runtime._durability.execution_record import ExecutionRecord, timed
from noetic_nb.runtime._durability.step_record import StepRecord
from noetic_nb.runtime._durability.thread_writer import attempt, snapshot_key
from noetic_nb.runtime._durability.turn_state import TurnState
from noetic_nb.sync import protected

__all__ = ["TurnRecord"]


@dataclass(slots=True, eq=False, repr=False)
class TurnRecord(TurnState[ExecutionRecord]):
    """Begins and ends the record of a turn; the parts that its executions share are described in `TurnState`."""

    def __post_init__(self) -> None:
        self.root = ExecutionRecord(self, StepRecord(), key=snapshot_key(self.execution_id))

    async def begin(self, first: int) -> None:
        """Write a turn whose items have just been logged, and before it the missing parts of its thread."""
        ctx, writer = self.root.ctx, self.writer
        self.first, self.is_turn = first, True
        # The snapshot holds only items of this turn, counted from the last part: the part must be there before it.
        if writer.ended or writer.items < first or writer.turn < ctx.turn - 1 or writer.lost is not None:
            await timed(ctx, attempt(writer.keep(ctx, first, max(writer.turn, ctx.turn - 1))))
        if writer.lost is not None:
            # Known before a model was called: what cannot be saved need not be paid for.
            raise writer.lost
        await self.root._write("turn", None, None, ended=0)

    async def end(self) -> None:
        """Add the items of the turn to the thread and forget its snapshot; a cancellation waits until that is done."""
        writer = self.writer
        self.is_over = True  # before anything is awaited: steps left behind must not write after the deletion below
        if self.is_turn:
            writer.end(self.execution_id, [*self.written, *self.child_keys, *[call.key for call in self.begun]])

        if writer.store.is_immediate:  # nothing can come in between
            await self._keep()
            return
        try:
            await protected(self._keep(), "Saving a turn")
        except asyncio.CancelledError as exc:
            if self.problem is not None:
                exc.add_note(unsaved_text(self.problem))
            raise

    def close(self) -> None:
        """Forget the record once the turn has ended in every way: its context stays in memory until the next."""
        self.root.ctx.record = None
        if not self.children:  # those that were left behind may still look
            # Circles, which nobody but the garbage collector would find.
            self.root.start.take_apart()
            self.root.put_off.clear()
            self.loops.clear()
            self.again.clear()
            del self.root

    async def _keep(self) -> None:
        """Write the items that the turn logged, and note a failed write where the reply is made."""
        ctx = self.root.ctx
        self.problem = await timed(ctx, self.writer.keep_all(ctx)) or self.problem
        if self.problem is not None:
            ctx.warn("not_saved", unsaved_text(self.problem))
