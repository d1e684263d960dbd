"""What people say of a reply once they have read it: how good it was, what was wrong, or that a new task begins."""

from __future__ import annotations

import math

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.engine import Engine
from noetic_nb.runtime.outliving import OutlivesProcess
from noetic_nb.runtime.threads.threads import Threads

__all__ = ["TakesRemarks"]


class TakesRemarks(OutlivesProcess):
    """The part of `AgentHarness` that hands remarks to the layers."""

    _engine: Engine
    _threads: Threads

    async def feedback(self, thread_id: str = "default", *, quality: float, source: str = "user") -> None:
        """Judge the last reply of a thread.

        Parameters
        ----------
        quality : float
            From 0 (useless) to 1 (perfect); values outside are clamped by the regulator.
        source : str
            Who judges.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for what is not a finite number.
        """
        if isinstance(quality, bool) or not isinstance(quality, int | float) or not math.isfinite(quality):
            raise NoeticConfigError("INVALID_FEEDBACK", "Quality is a finite number from 0 to 1.", given=quality)
        ctx = await self._last_of(thread_id)
        if self._engine.sink is not None:
            now = self._engine.clock.now_ms()
            self._engine.sink.emit(QualityGiven(ctx.where, now, float(quality), source))
        await self._engine.stack.feedback(
            self._engine.hook_context(ctx), kind="quality", value=float(quality), source=source
        )

    async def correct(self, thread_id: str, message: str, *, source: str = "user") -> None:
        """Tell the agent what was wrong with the last reply of a thread, so that it is remembered.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for what is not text.
        """
        if not isinstance(message, str) or not message.strip():
            raise NoeticConfigError("INVALID_FEEDBACK", "A correction is a text.", given=message)
        ctx = await self._last_of(thread_id)
        await self._engine.stack.feedback(
            self._engine.hook_context(ctx), kind="correction", value=message, source=source
        )

    async def reset_task(self, thread_id: str = "default") -> None:
        """Begin a new task on a thread: what a regulator counted for the old one no longer stops it."""
        ctx = await self._last_of(thread_id)
        await self._engine.stack.feedback(self._engine.hook_context(ctx), kind="reset_task", value=None, source="user")

    async def _last_of(self, thread_id: str) -> Context:
        """Return the context a remark belongs to; whose thread it is may have to be read first."""
        if self._durable is not None:
            await self._durable.load(thread_id)
        return self._threads.context_of(thread_id)
