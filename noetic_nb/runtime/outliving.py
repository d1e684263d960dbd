"""What a harness offers for conversations that outlive their process: list them, load them, go on with them, delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runtime.context.reply import AgentReply

if TYPE_CHECKING:
    from noetic_nb.runtime.threads.durable_threads import DurableThreads

__all__ = ["OutlivesProcess"]


class OutlivesProcess:
    """The part of `AgentHarness` that needs checkpoints."""

    _durable: DurableThreads | None = None

    async def unfinished(self) -> tuple[str, ...]:
        """Return the ids of turns that were under way when their process ended, from the storage of checkpoints."""
        return () if self._durable is None else await self._durable.checkpoints.unfinished()

    async def resume(self, execution_id: str) -> AgentReply:
        """Go on with a turn that was under way when its process ended; steps whose end was recorded are not run again.

        Something new that is said on the thread gives the turn up: what it had logged stays in the conversation.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT`` where there is nothing to go on with, ``CHECKPOINT_SCHEMA_MISMATCH`` for a damaged one.
        NoeticError
            As for `execute`.
        """
        return await self._kept.resume(execution_id)

    async def clear_checkpoint(self, execution_id: str) -> None:
        """Forget where a turn stood that was under way when its process ended: it cannot be resumed any more."""
        await self._kept.checkpoints.clear(execution_id)

    async def saved_threads(self) -> tuple[str, ...]:
        """Return the threads in the storage of checkpoints, whichever harness wrote them; sorted.

        Examples
        --------
        >>> import asyncio
        >>> import noetic_nb as nn
        >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
        >>> store = nn.InMemoryStorage()
        >>> def harness(*replies):
        ...     return nn.AgentHarness(config, model=nn.ScriptedModel(replies), storage=store, checkpoints=True)
        >>> async def main():
        ...     await harness("Hello!").execute("Hi", thread_id="ann")
        ...     later = harness("Still here.")  # as in a new process
        ...     await later.execute("And now?", thread_id="ann")
        ...     return await later.saved_threads(), len(later.log("ann"))
        >>> asyncio.run(main())
        (('ann',), 4)
        """
        return () if self._durable is None else await self._durable.saved()

    async def load_thread(self, thread_id: str = "default") -> bool:
        """Read a saved thread now, so that `preview`, `log` and `memory` know it; `execute` does so by itself.

        Returns
        -------
        bool
            False where no such thread is saved.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT`` for a harness without checkpoints, ``CHECKPOINT_SCHEMA_MISMATCH`` for a damaged thread,
            ``THREAD_EXISTS`` for one that was begun here without it.
        NoeticError
            ``state_conflict`` where another harness has gone on with a thread that this one has gone on with, too.
        """
        return await self._kept.load(thread_id)

    async def forget_thread(self, thread_id: str) -> bool:
        """Delete a conversation, here and in storage, with its checkpoints. What layers know stays: edit it with `memory`.

        Returns
        -------
        bool
            False where there was no such thread.

        Raises
        ------
        NoeticError
            ``step_failed`` where a turn of the thread is running, or what the storage raises.
        NoeticConfigError
            ``NO_CHECKPOINT`` for a harness without checkpoints.
        """
        return await self._kept.forget(thread_id)

    @property
    def _kept(self) -> DurableThreads:
        if self._durable is None:
            raise NoeticConfigError(
                "NO_CHECKPOINT", "This harness keeps no checkpoints.", hint="Pass checkpoints=True and a storage."
            )
        return self._durable
