"""The names of a harness for its threads: feedback on replies, their logs and memory, and threads that outlive their process."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven
from noetic_nb.items import ItemLog
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.runtime._config.harness_arguments import HINTS
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._planning.make_plan import plan_turn
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.runtime._threads.thread import PendingReply, ThreadStatus
from noetic_nb.runtime._threads.threads import AddedItems, Conversations, Threads
from noetic_nb.steps._output_codec import system_instructions
from noetic_nb.steps._records import llm_steps

if TYPE_CHECKING:  # loaded when they are first wanted
    from noetic_nb.runtime._check import SetupFinding
    from noetic_nb.runtime._threads.durable_threads import DurableThreads
    from noetic_nb.runtime._threads.memory_view import MemoryView


class HarnessThreads:
    """The part of `AgentHarness` that is about the threads there are."""

    config: AgentConfig
    _engine: Engine
    _threads: Threads
    _durable: DurableThreads | None

    @explained(**HINTS["feedback"])
    async def feedback(self, thread_id: str = "default", *, quality: float, source: str = "user") -> None:
        """Rate the last reply of a thread.

        Parameters
        ----------
        quality : float
            From 0 (useless) to 1 (perfect); values outside are clamped by the regulator.
        source : str
            Who rates it.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for a value that is not a finite number.
        """
        if isinstance(quality, bool) or not isinstance(quality, int | float) or not math.isfinite(quality):
            raise NoeticConfigError("INVALID_FEEDBACK", "Quality must be a finite number from 0 to 1.", given=quality)
        ctx = await self._last_context(thread_id)
        if self._engine.sink is not None:
            now = self._engine.clock.now_ms()
            self._engine.sink.emit(QualityGiven(ctx.where, now, float(quality), source))
        await self._engine.stack.feedback(
            self._engine.hook_context(ctx), kind="quality", value=float(quality), source=source
        )

    @explained(**HINTS["correct"])
    async def correct(self, thread_id: str, message: str, *, source: str = "user") -> None:
        """Tell the agent the fault of the last reply of a thread, so that it is remembered.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for what is not text.
        """
        if not isinstance(message, str) or not message.strip():
            raise NoeticConfigError("INVALID_FEEDBACK", "A correction is a text.", given=message)
        ctx = await self._last_context(thread_id)
        await self._engine.stack.feedback(
            self._engine.hook_context(ctx), kind="correction", value=message, source=source
        )

    async def reset_task(self, thread_id: str = "default") -> None:
        """Begin a new task on a thread: the counts of a regulator for the old one no longer stop it."""
        ctx = await self._last_context(thread_id)
        await self._engine.stack.feedback(self._engine.hook_context(ctx), kind="reset_task", value=None, source="user")

    async def _last_context(self, thread_id: str) -> RunningExecution:
        """Return the context that feedback belongs to; its thread may have to be read first."""
        if self._durable is not None:
            await self._durable.load(thread_id)
        await self._threads.cleared(thread_id)
        self._threads.known(thread_id)
        return self._threads.context_of(thread_id)

    def preview(self, thread_id: str = "default") -> TurnPlan:
        """Return the plan of the next model call of a thread, without calling anything.

        The layers' part is what they last recalled on the thread; no hook is run.
        """
        session = self._threads.thread(thread_id)
        step = next(iter(llm_steps(self.config.step)), None)
        instructions = step.instructions if step is not None and isinstance(step.instructions, str) else ""
        last = session.ctx or session.last
        model = step.model if step is not None and isinstance(step.model, str) else ""
        tokenizer = self._engine.tokenizer_of(model)
        return plan_turn(
            session.log,
            self.config.memory,
            self.config.projection if step is None or step.projection is None else step.projection,
            () if last is None else last.recalled,
            instructions=instructions if step is None else system_instructions(instructions, step.output),
            tool_tokens=0 if step is None else self._engine.setups.tools(step).count(tokenizer),
            tokenizer=tokenizer,
        )

    def memory(self, thread_id: str = "default") -> MemoryView:
        """Return the memory of a thread: look at it, edit it, rewind it; see `MemoryView`.

        Looking for a state on a thread that is not there is ``UNKNOWN_THREAD``, where any is.
        """
        return self._threads.memory(thread_id)

    @property
    def turn_count(self) -> int:
        """How many turns the threads in memory have had."""
        return sum([thread.turn for thread in self._threads.by_id.values()])

    def status(self, thread_id: str = "default") -> ThreadStatus:
        """Return the status of a thread now.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> nn.AgentHarness(nn.AgentConfig(name="desk")).status()
        ThreadStatus(state='idle', turn_id=None, elapsed_ms=0.0, waiting=0)
        """
        session = self._threads.by_id.get(thread_id)
        return ThreadStatus("idle") if session is None else session.status

    def check(self) -> tuple[SetupFinding, ...]:
        """Look the configuration over; returns findings, worst first."""
        from noetic_nb.runtime._check import find

        return find(self._engine)

    def describe(self) -> dict[str, Any]:
        """Return the configuration and the models' names as plain data, for the head of a run."""
        from noetic_nb.runtime._config.config import describe

        return describe(self.config, self._engine.models)

    def log(self, thread_id: str = "default") -> ItemLog:
        """Return a copy of a thread's log.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_THREAD`` where there are threads, and none of this id.
        """
        self._threads.known(thread_id)
        return self._threads.thread(thread_id).log.fork()

    @explained(**HINTS["seed"])
    def seed(self, thread_id: str, items_or_run: Iterable[Any] | Conversations, *, replace: bool = False) -> AddedItems:
        """Begin a thread with an earlier conversation; no model is called.

        Parameters
        ----------
        items_or_run : iterable of items, or Run
            Items, messages as OpenAI's chat completions have them, or a run with one thread or one of this name.
        replace : bool, default False
            Begin anew where the thread has items: its log, what layers of its own know and, with checkpoints, what is
            saved of it and its unfinished turn go. What it shares with other threads, as by a resource, stays.

        Returns
        -------
        tuple of Item
            What was logged. With `replace`, awaiting it makes sure that storage is cleared, too; the next turn does
            otherwise.

        Raises
        ------
        NoeticConfigError
            ``THREAD_EXISTS`` where the thread has items here, ``UNKNOWN_THREAD`` for a run of several threads.
        NoeticError
            ``step_failed`` where a turn of the thread is running, ``item_schema_mismatch`` for an unknown type.
        ItemValidationError
            For a value that is not an item, or not as its type must be; nothing is changed then.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> harness = nn.AgentHarness(nn.AgentConfig(name="desk"))
        >>> len(harness.seed("t", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]))
        2
        """
        return self._threads.seed(thread_id, items_or_run, replace)

    def append(self, thread_id: str, items: Iterable[Any]) -> AddedItems:
        """Add items to a thread, but for those it has by their ids; no model is called.

        Read a saved thread with `load_thread` before.

        Returns
        -------
        tuple of Item
            What was added.

        Raises
        ------
        NoeticError
            ``step_failed`` where a turn of the thread is running, ``item_schema_mismatch`` for an unknown type.
        ItemValidationError
            For a value that is not an item, not as its type must be, or has the id of another item; nothing is added then.
        """
        return self._threads.append(thread_id, items)

    def close_thread(self, thread_id: str) -> bool:
        """Forget a thread here: its log and its data in memory. Stored data stays; see `forget_thread`.

        Returns
        -------
        bool
            False if there was no such thread.

        Raises
        ------
        NoeticError
            ``step_failed`` where a turn of the thread is running.
        """
        return self._threads.close(thread_id)

    @property
    def threads(self) -> tuple[str, ...]:
        """The threads there are."""
        return tuple(self._threads.by_id)

    async def unfinished(self) -> tuple[str, ...]:
        """Return the ids of turns that were under way when their process ended, from the storage of checkpoints."""
        return () if self._durable is None else await self._durable.checkpoints.unfinished()

    def resume(self, execution_id: str) -> Coroutine[Any, Any, AgentReply]:
        """Continue a turn that was under way when its process ended; steps whose end was recorded are not run again.

        A new message on the thread gives the turn up: what it had logged stays in the conversation.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT`` where there is nothing to continue, ``CHECKPOINT_SCHEMA_MISMATCH`` for a damaged one.
        NoeticError
            As for `execute`.
        """
        return PendingReply("resume", lambda: self._kept.resume(execution_id))

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
            False if no such thread is saved.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT`` for a harness without checkpoints, ``CHECKPOINT_SCHEMA_MISMATCH`` for a damaged thread,
            ``THREAD_EXISTS`` for one that was begun here without it.
        NoeticError
            ``state_conflict`` where another harness has continued a thread that this one has continued, too.
        """
        return await self._kept.load(thread_id)

    async def forget_thread(self, thread_id: str) -> bool:
        """Delete a conversation, here and in storage, with its checkpoints. Layers' states stay: edit them with `memory`.

        Returns
        -------
        bool
            False if there was no such thread.

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
            hint = "Pass checkpoints=True and a storage."
            raise NoeticConfigError("NO_CHECKPOINT", "This harness has no checkpoints.", hint=hint)
        return self._durable
