"""The methods of a harness for its threads: feedback on replies, logs and memory, and threads that outlive their process."""

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

if TYPE_CHECKING:  # loaded when first needed
    from noetic_nb.runtime._check import SetupFinding
    from noetic_nb.runtime._threads.durable_threads import DurableThreads
    from noetic_nb.runtime._threads.memory_view import MemoryView


class HarnessThreads:
    """The methods of `AgentHarness` for its threads."""

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
            From 0 (useless) to 1 (perfect); values outside this range are clamped to it.
        source : str
            Source of the rating.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for a value that is not a finite number.
        """
        if isinstance(quality, bool) or not isinstance(quality, int | float) or not math.isfinite(quality):
            raise NoeticConfigError("INVALID_FEEDBACK", "Quality must be a finite number from 0 to 1.", given=quality)
        grade = min(max(float(quality), 0.0), 1.0)
        ctx = await self._last_context(thread_id)
        if self._engine.sink is not None:
            now = self._engine.clock.now_ms()
            self._engine.sink.emit(QualityGiven(ctx.where, now, grade, source))
        await self._engine.stack.feedback(self._engine.hook_context(ctx), kind="quality", value=grade, source=source)

    @explained(**HINTS["correct"])
    async def correct(self, thread_id: str, message: str, *, source: str = "user") -> None:
        """Tell the agent about a fault in a thread's last reply, so that it remembers it.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for a value that is not text.
        """
        if not isinstance(message, str) or not message.strip():
            raise NoeticConfigError("INVALID_FEEDBACK", "A correction is a text.", given=message)
        ctx = await self._last_context(thread_id)
        await self._engine.stack.feedback(
            self._engine.hook_context(ctx), kind="correction", value=message, source=source
        )

    async def reset_task(self, thread_id: str = "default") -> None:
        """Begin a new task on a thread: the regulator's counts for the old one no longer stop it."""
        ctx = await self._last_context(thread_id)
        await self._engine.stack.feedback(self._engine.hook_context(ctx), kind="reset_task", value=None, source="user")

    async def _last_context(self, thread_id: str) -> RunningExecution:
        """Return the context that feedback belongs to; its thread may have to be read first."""
        self._threads.there(thread_id)  # which refuses what is no id
        if self._durable is not None:
            await self._durable.load(thread_id)
        await self._threads.cleared(thread_id)
        self._threads.known(thread_id)
        return self._threads.context_of(thread_id)

    def preview(self, thread_id: str = "default") -> TurnPlan:
        """Return the plan of the next model call of a thread, without calling anything.

        Layers contribute what they last recalled on the thread; no hook is run.
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
        """Return the memory of a thread, to inspect, edit or rewind; see `MemoryView`.

        Reading a state on an unknown thread raises ``UNKNOWN_THREAD`` if other threads exist.
        """
        return self._threads.memory(thread_id)

    @property
    def turn_count(self) -> int:
        """Total number of turns of the threads in memory."""
        return sum([thread.turn for thread in self._threads.by_id.values()])

    def status(self, thread_id: str = "default") -> ThreadStatus:
        """Return the current status of a thread.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> nn.AgentHarness(nn.AgentConfig(name="desk")).status()
        ThreadStatus(state='idle', turn_id=None, elapsed_ms=0.0, waiting=0)
        """
        session = self._threads.there(thread_id)
        return ThreadStatus("idle") if session is None else session.status

    def check(self) -> tuple[SetupFinding, ...]:
        """Check the configuration; returns findings, worst first."""
        from noetic_nb.runtime._check import find

        return find(self._engine)

    def describe(self) -> dict[str, Any]:
        """Return the configuration and the models' names as plain data, for the header of a run."""
        from noetic_nb.runtime._config.config import describe

        return describe(self.config, self._engine.models)

    def log(self, thread_id: str = "default") -> ItemLog:
        """Return a copy of a thread's log.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_THREAD`` if there are threads, but none with this id.
        """
        self._threads.known(thread_id)
        return self._threads.thread(thread_id).log.fork()

    @explained(**HINTS["seed"])
    def seed(self, thread_id: str, items_or_run: Iterable[Any] | Conversations, *, replace: bool = False) -> AddedItems:
        """Begin a thread with an earlier conversation; no model is called.

        Parameters
        ----------
        items_or_run : iterable of items, or Run
            Items, messages in the format of OpenAI's chat completions, or a run with one thread or one of this name.
        replace : bool, default False
            Start over if the thread has items: its log, its layers' own knowledge and, with checkpoints, its saved data
            and unfinished turn are deleted. Data shared with other threads, such as by a resource, stays.

        Returns
        -------
        tuple of Item
            The logged items. With `replace`, await it to clear storage as well; otherwise the next turn clears it.

        Raises
        ------
        NoeticConfigError
            ``THREAD_EXISTS`` if the thread has items here, ``UNKNOWN_THREAD`` for a run of several threads.
        NoeticError
            ``step_failed`` if a turn of the thread is running, ``item_schema_mismatch`` for an unknown type.
        ItemValidationError
            For a value that is not an item, or does not match its type; nothing is changed then.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> harness = nn.AgentHarness(nn.AgentConfig(name="desk"))
        >>> len(harness.seed("t", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]))
        2
        """
        return self._threads.seed(thread_id, items_or_run, replace)

    def append(self, thread_id: str, items: Iterable[Any]) -> AddedItems:
        """Add items to a thread, skipping those whose ids it has; no model is called.

        For a saved thread, call `load_thread` first.

        Returns
        -------
        tuple of Item
            The added items.

        Raises
        ------
        NoeticError
            ``step_failed`` if a turn of the thread is running, ``item_schema_mismatch`` for an unknown type.
        ItemValidationError
            For a value that is not an item, does not match its type, or has the id of another item; nothing is added then.
        """
        return self._threads.append(thread_id, items)

    def close_thread(self, thread_id: str) -> bool:
        """Remove a thread from this harness: its log and its data in memory. Stored data stays; see `forget_thread`.

        Returns
        -------
        bool
            False if there was no such thread.

        Raises
        ------
        NoeticError
            ``step_failed`` if a turn of the thread is running.
        """
        return self._threads.close(thread_id)

    @property
    def threads(self) -> tuple[str, ...]:
        """The names of the threads."""
        return tuple(self._threads.by_id)

    async def unfinished(self) -> tuple[str, ...]:
        """Return the ids of turns that were interrupted by the end of their process, from the storage of checkpoints."""
        return () if self._durable is None else await self._durable.checkpoints.unfinished()

    def resume(self, execution_id: str) -> Coroutine[Any, Any, AgentReply]:
        """Continue a turn that was interrupted by the end of its process; steps whose end was recorded are not run again.

        A new message on the thread abandons the turn instead: its logged items stay in the conversation.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT`` if there is nothing to continue, ``CHECKPOINT_SCHEMA_MISMATCH`` for a damaged checkpoint.
        NoeticError
            As for `execute`.
        """
        return PendingReply("resume", lambda: self._kept.resume(execution_id))

    async def clear_checkpoint(self, execution_id: str) -> None:
        """Delete the progress of an interrupted turn, which can then no longer be resumed."""
        await self._kept.checkpoints.clear(execution_id)

    async def saved_threads(self) -> tuple[str, ...]:
        """Return the threads in the storage of checkpoints, sorted, from any harness.

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
        """Read a saved thread now, for `preview`, `log` and `memory`; `execute` does so automatically.

        Returns
        -------
        bool
            False if no such thread is saved.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT`` for a harness without checkpoints, ``CHECKPOINT_SCHEMA_MISMATCH`` for a damaged thread,
            ``THREAD_EXISTS`` if the thread was begun here without the saved one.
        NoeticError
            ``state_conflict`` if this harness and another one have both continued the thread.
        """
        return await self._kept.load(thread_id)

    async def forget_thread(self, thread_id: str) -> bool:
        """Delete a conversation and its checkpoints, here and in storage. States of layers stay: edit them with `memory`.

        Returns
        -------
        bool
            False if there was no such thread.

        Raises
        ------
        NoeticError
            ``step_failed`` if a turn of the thread is running, or an error of the storage.
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
