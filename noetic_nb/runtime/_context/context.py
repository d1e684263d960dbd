"""One running execution as users see it: its owner, its costs, its conversation, how to stop it, and the state of its whole tree.

The harness makes each as a `RunningExecution`, which has the names that only the runtime needs.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from noetic_nb._core.names import FinishReason
from noetic_nb._core.shell import Shell
from noetic_nb._core.worker_threads import Worker
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog
from noetic_nb.memory._declared import TypedMemory
from noetic_nb.memory._enforcement import CallHistory
from noetic_nb.models._client import ModelDelta, Usage
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.channels import Channels
from noetic_nb.runtime._context.protocols import FollowedAnswer, Inbox, StepHandle, StepValue
from noetic_nb.runtime._context.reply import ReplyWarning
from noetic_nb.steps import Channel, Step
from noetic_nb.steps._channel_type import DEFAULT_TIMEOUT_MS as WAIT_MS
from noetic_nb.steps._loops import StepMeta


class Tree:
    """The state that a root execution shares with all its descendants."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        self._channels: Channels | None = None
        self._worker: Worker | None = None
        self.ended = False
        self.steps = 0
        self.calls = CallHistory()
        # Tasks that an abort cut short and that have not noticed yet.
        self.cut: frozenset[asyncio.Task[Any]] = frozenset()
        # Messages that arrived while the agent was working, taken in before its next model call.
        self.inbox: Inbox | None = None
        self.occurrences: dict[str, int] = {}
        # Gets the pieces of every answer; those that rules review, when the answer stands.
        self.on_delta: Callable[[ModelDelta], None] | None = None
        # Begins to follow an answer for whoever streams the turn. Any, as `Context` stands above.
        self.follow: Callable[[Any, bool], FollowedAnswer] | None = None
        # Why the last answer of any of its executions ended.
        self.finish_reason: FinishReason | None = None
        # The error of a judge whose model does not exist, to be raised at the end where nobody waited for the judge.
        self.missing: NoeticConfigError | None = None
        self.warnings: tuple[ReplyWarning, ...] = ()

    @property
    def channels(self) -> Channels:
        """The channels of the tree, made when the first is used."""
        if self._channels is None:
            self._channels = Channels()
            self._channels.closed = self.ended
        return self._channels

    @property
    def worker(self) -> Worker:
        """The thread in which tools run that may block, begun with the first of them."""
        if self._worker is None:
            self._worker = Worker("noetic_nb tools")
        return self._worker

    def end(self) -> None:
        """Take no more messages: the root execution has ended."""
        self.ended = True
        if self._channels is not None:
            self._channels.close()
        if self._worker is not None:
            self._worker.end()


ABORTED: Final = "context aborted"
"""The reason of an abort that was given none."""


class Runner(Protocol):
    """The parts of a harness that a context needs."""

    async def run(self, step: Step | Mapping[str, Any], value: StepValue, ctx: Context) -> StepValue:
        """Run a step and return its output."""

    def start(
        self, step: Step | Mapping[str, Any], value: StepValue, ctx: Context, *, drop: Iterable[str] = ()
    ) -> StepHandle:
        """Start a step and return at once."""


class Context(ABC):
    """The state of an execution. Made by the harness.

    Attributes
    ----------
    id, thread_id, resource_id : str
        Whose execution it is.
    parent : Context or None
        Who spawned or forked it.
    depth : int
        0 for a root execution.
    turn : int
        Number of the turn in its thread.
    step_count : int
        Steps dispatched on this context.
    tokens : Usage
        Tokens spent, by judges, layers and children, too.
    cost : float
        US dollars spent, likewise.
    state : dict
        Free to use.
    item_log : ItemLog
        The conversation.
    last_step_meta : StepMeta or None
        The last llm step.
    harness : AgentHarness or None
        Who runs it.
    tree : Tree
        What a root execution shares with all its descendants.
    aborted, abort_reason : bool, str or None
        Whether it is to stop, and why.
    """

    # Completion shows them: it lists the names of the class.
    __slots__ = (
        "abort_reason", "aborted", "cost", "depth", "harness", "id", "item_log", "last_step_meta", "parent", "resource_id",
        "state", "step_count", "thread_id", "tokens", "tree", "turn",
    )  # fmt: skip

    id: str
    thread_id: str
    resource_id: str | None
    parent: Context | None
    depth: int
    turn: int
    step_count: int
    tokens: Usage
    cost: float
    state: dict[str, Any]
    item_log: ItemLog
    last_step_meta: StepMeta | None
    harness: Runner
    tree: Tree
    aborted: bool
    abort_reason: str | None

    @property
    def warnings(self) -> tuple[ReplyWarning, ...]:
        """The problems so far in the whole turn that did not end it; the reply has them all."""
        return self.tree.warnings

    @property
    @abstractmethod
    def params(self) -> Mapping[str, Any]:
        """The agent's `params`: set in its configuration, the same for every step, frozen."""

    @property
    @abstractmethod
    def memory(self) -> TypedMemory:
        """Functions and data of layers: ``ctx.memory["notes"].snapshot``, or ``ctx.memory[notes]`` by the layer (typed)."""

    @property
    @abstractmethod
    def fs(self) -> Any:
        """The agent's files, a filesystem of fsspec: ``ctx.fs.cat_file("a.md")``; None if the harness was given none."""

    @property
    @abstractmethod
    def shell(self) -> Shell | None:
        """Runs commands: ``await ctx.shell.run("ls")``; None if the harness was given none."""

    @property
    @abstractmethod
    def elapsed_ms(self) -> float:
        """Milliseconds since the execution began."""

    @property
    @abstractmethod
    def known_cost(self) -> float | None:
        """US dollars spent, as far as prices are known; None if models were called and no price is."""

    @abstractmethod
    def abort(self, reason: str = ABORTED, *, error: BaseException | None = None) -> None:
        """Stop the execution and everything below it: waits are cut short now, steps at their next boundary.

        Parameters
        ----------
        reason : str
            The first one stays.
        error : BaseException, optional
            Raised instead of ``cancelled``.
        """

    # Messages are Any: a channel's schema, which it checks at run time, says what they are.
    @abstractmethod
    async def send(self, channel: Channel, value: Any, timeout_ms: float = WAIT_MS) -> None:
        """Put a message into a channel of this execution tree; an abort cuts short only a send that has to wait.

        Raises
        ------
        NoeticError
            ``channel_timeout`` where a queue stayed full, ``cancelled``, ``channel_closed``, or ``step_failed`` for a
            message that does not fit the channel's schema.
        """

    @abstractmethod
    async def recv(self, channel: Channel, timeout_ms: float = WAIT_MS) -> Any:
        """Take a message out of a channel of this execution tree, or wait for one.

        Raises
        ------
        NoeticError
            ``channel_timeout``, ``cancelled`` or ``channel_closed``.
        """

    def try_recv(self, channel: Channel) -> Any:
        """Take a message out if there is one, else `channel.EMPTY`."""
        return self.tree.channels.try_recv(channel)

    async def run(self, step: Step | Mapping[str, Any], value: StepValue = None) -> StepValue:
        """Run a step inside this execution, from within a function of a step."""
        return await self.harness.run(step, value, self)

    def start(self, step: Step | Mapping[str, Any], value: StepValue = None, *, drop: Iterable[str] = ()) -> StepHandle:
        """Start a step beside this execution and return its `Handle` at once; see `AgentHarness.start`."""
        return self.harness.start(step, value, self, drop=drop)

    def __dir__(self) -> list[str]:
        return dir(Context)  # completion shows the names that are for users

    def __repr__(self) -> str:
        return f"Context({self.id!r}, thread {self.thread_id!r}, {self.step_count} steps, {self.tokens.total_tokens} tokens)"
