"""The user's view of a running execution: its ids, costs, conversation and abort, and the state shared by its whole tree.

The harness creates each as a `RunningExecution`, which adds the names that only the runtime needs.
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
from noetic_nb.models._client import Usage
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.channels import Channels
from noetic_nb.runtime._context.protocols import FollowedAnswer, StepHandle, StepValue
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
        # Tasks cancelled by an abort that have not reacted yet.
        self.cut: frozenset[asyncio.Task[Any]] = frozenset()
        # Messages that arrived while the agent was working; they are logged before its next model call.
        self.inbox: list[Any] = []
        self.occurrences: dict[str, int] = {}
        # Starts tracking an answer for the streams of the turn. Any, as `Context` is defined further up.
        self.follow: list[Callable[[Any, bool], FollowedAnswer]] = []
        # Finish reason of the last answer of any execution in the tree.
        self.finish_reason: FinishReason | None = None
        # The error of a judge whose model does not exist; raised at the end of the turn if no code awaited the judge.
        self.missing: NoeticConfigError | None = None
        self.warnings: tuple[ReplyWarning, ...] = ()

    @property
    def channels(self) -> Channels:
        if self._channels is None:
            self._channels = Channels()
            self._channels.closed = self.ended
        return self._channels

    @property
    def worker(self) -> Worker:
        """The thread in which blocking tools run, started with the first of them."""
        if self._worker is None:
            self._worker = Worker("noetic_nb tools")
        return self._worker

    def end(self) -> None:
        """Accept no more messages, because the root execution has ended."""
        self.ended = True
        if self._channels is not None:
            self._channels.close()
        if self._worker is not None:
            self._worker.end()


ABORTED: Final = "context aborted"
"""The default reason of an abort."""


class Runner(Protocol):
    """The methods of a harness that a context uses."""

    async def run(self, step: Step | Mapping[str, Any], value: StepValue, ctx: Context) -> StepValue:
        """Run a step and return its output."""

    def start(
        self, step: Step | Mapping[str, Any], value: StepValue, ctx: Context, *, drop: Iterable[str] = ()
    ) -> StepHandle:
        """Start a step and return its handle at once."""


class Context(ABC):
    """The state of an execution, created by the harness.

    Attributes
    ----------
    id, thread_id, resource_id : str
        Ids of the execution, its thread and its resource.
    parent : Context or None
        The execution that spawned or forked this one.
    depth : int
        0 for a root execution.
    turn : int
        Number of the turn in its thread.
    step_count : int
        Number of steps dispatched on this context.
    tokens : Usage
        Tokens spent, including judges, layers and children.
    cost : float
        US dollars spent, with the same inclusions.
    state : dict
        Free for your own data.
    item_log : ItemLog
        The conversation.
    last_step_meta : StepMeta or None
        Data about the last llm step.
    harness : AgentHarness or None
        The harness that runs the execution.
    tree : Tree
        State that a root execution shares with all its descendants.
    aborted, abort_reason : bool, str or None
        Whether the execution must stop, and why.
    """

    # Completion lists the names of the class, and therefore shows these.
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
        """The problems of the whole turn so far that did not end it; the reply contains all of them."""
        return self.tree.warnings

    @property
    @abstractmethod
    def params(self) -> Mapping[str, Any]:
        """The agent's `params` from its configuration: frozen, and the same for every step."""

    @property
    @abstractmethod
    def memory(self) -> TypedMemory:
        """Functions and data of layers: ``ctx.memory["notes"].snapshot``, or typed, by the layer, ``ctx.memory[notes]``."""

    @property
    @abstractmethod
    def fs(self) -> Any:
        """The agent's files as an fsspec filesystem: ``ctx.fs.cat_file("a.md")``; None if none was configured."""

    @property
    @abstractmethod
    def shell(self) -> Shell | None:
        """The shell that runs commands: ``await ctx.shell.run("ls")``; None if none was configured."""

    @property
    @abstractmethod
    def elapsed_ms(self) -> float:
        """Milliseconds since the execution began."""

    @property
    @abstractmethod
    def known_cost(self) -> float | None:
        """US dollars spent, as far as prices are known; None if models were called and none of their prices is known."""

    @abstractmethod
    def abort(self, reason: str = ABORTED, *, error: BaseException | None = None) -> None:
        """Stop the execution and its descendants: waits are interrupted now, steps stop at their next boundary.

        Parameters
        ----------
        reason : str
            Why it stops; if it is aborted twice, the first reason is kept.
        error : BaseException, optional
            Raised instead of ``cancelled``.
        """

    # Messages are Any: the channel's schema, checked at run time, defines their type.
    @abstractmethod
    async def send(self, channel: Channel, value: Any, timeout_ms: float = WAIT_MS) -> None:
        """Send a message to a channel of this execution tree; an abort interrupts only a send that has to wait.

        Raises
        ------
        NoeticError
            ``channel_timeout`` if a queue stayed full, ``cancelled``, ``channel_closed``, or ``step_failed`` for a
            message that does not match the channel's schema.
        """

    @abstractmethod
    async def recv(self, channel: Channel, timeout_ms: float = WAIT_MS) -> Any:
        """Receive a message from a channel of this execution tree, waiting for one if necessary.

        Raises
        ------
        NoeticError
            ``channel_timeout``, ``cancelled`` or ``channel_closed``.
        """

    def try_recv(self, channel: Channel) -> Any:
        """Receive a message without waiting; `channel.EMPTY` if there is none."""
        return self.tree.channels.try_recv(channel)

    async def run(self, step: Step | Mapping[str, Any], value: StepValue = None) -> StepValue:
        """Run a step inside this execution, from a function of a step."""
        return await self.harness.run(step, value, self)

    def start(self, step: Step | Mapping[str, Any], value: StepValue = None, *, drop: Iterable[str] = ()) -> StepHandle:
        """Start a step in parallel to this execution and return its `Handle` at once; see `AgentHarness.start`."""
        return self.harness.start(step, value, self, drop=drop)

    def __dir__(self) -> list[str]:
        return dir(Context)  # completion shows only the public names

    def __repr__(self) -> str:
        return f"Context({self.id!r}, thread {self.thread_id!r}, {self.step_count} steps, {self.tokens.total_tokens} tokens)"
