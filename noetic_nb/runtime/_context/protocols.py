"""Interfaces between the parts of an execution, as protocols, so that the parts need not import one another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, Where
from noetic_nb.items import Item, ItemLog
from noetic_nb.items._origins import Origin
from noetic_nb.memory import ExecutionContext, LayerStack
from noetic_nb.memory._enforcement import CallHistory, Place
from noetic_nb.models._client import ModelDelta, ModelResponse, Usage
from noetic_nb.runtime._config.config import Limits
from noetic_nb.steps import LoopStep, Step

C = TypeVar("C", contravariant=True)
S = TypeVar("S")


@dataclass(slots=True, eq=False)
class BegunCall:
    """A tool call that may have taken effect although its end is not in storage."""

    key: str
    """Its key in storage."""
    path: str
    """Path of the step that makes the call."""
    number: int | None
    """Its number among the calls of this step, used in its idempotency key; None if the tool does not use that key."""
    place: Place
    """Its position in the call history of the tree."""
    is_left: bool = False
    """Whether a process that has since ended began the call, and it was not repeated."""


class ChildState(Protocol[C]):
    """The saved state of a child that is restarted."""

    @property
    def inherited(self) -> int:
        """The number of items from its parent's log."""

    @property
    def items(self) -> tuple[Item, ...]:
        """The items it logged after the inherited ones."""

    @property
    def origins(self) -> Mapping[int, Origin]:
        """Origins of these items, by index, where their roles do not imply them."""

    @property
    def state(self) -> Mapping[str, Any]:
        """Its ``ctx.state``."""

    @property
    def layers(self) -> Mapping[str, Any]:
        """The states of its layers."""

    def put_back(self, ctx: C, spent: Any) -> None:
        """Restore the counters of a context."""


class ExecutionRecorder(Protocol[C, S]):
    """Records the progress of an execution `C`, with a record `S` for each step, so that another process can continue it."""

    @property
    def turn(self) -> TurnRecorder:
        """The turn that the execution belongs to."""

    def step(self, frames: tuple[str, ...]) -> S:
        """Return the record of a step, given the frames around it and its own."""

    def replay(self, step: S, definition: Step) -> tuple[bool, StepValue]:
        """Return whether a step ended before, and its output."""

    def step_done(self, step: S, definition: Step, output: StepValue) -> Awaitable[object] | None:
        """Write that a step ended; returns an awaitable for the write, or None if there is nothing to await."""

    @property
    def put_off(self) -> Sequence[Any]:
        """Ended steps that are not written yet, because nothing has happened since."""

    async def catch_up(self) -> None:
        """Write these ends now, because other work comes next."""

    def loop_began(self, loop: S, now_ms: float) -> tuple[Usage, float, float]:
        """Return the spending and the time at the start of a loop."""

    def spent_then(self) -> tuple[Usage, float, float]:
        """Return the spending at the end of the execution's last step, and the time."""

    def failure_of(self, loop: S, iteration: int) -> str | None:
        """Return how a failed iteration was handled before."""

    async def iteration_failed(self, loop: S, definition: LoopStep, iteration: int, answer: str) -> None:
        """Write how a failed iteration was handled."""

    def begun_before(self, path: str, name: str, args: Mapping[str, Any]) -> BegunCall | None:
        """Return the unfinished call with these arguments that an earlier process began at a step."""

    def numbers_taken(self, path: str) -> Collection[int | None]:
        """Return the numbers of a step's calls that a process began and did not finish."""

    def call_begins(self, path: str, number: int | None, place: Place, again: BegunCall | None) -> Awaitable[object]:
        """Write that a call is about to be made or repeated (`again`): until its end is written, it may have taken effect."""

    def child(self, ctx: C, *, is_beside: bool) -> ExecutionRecorder[C, S]:
        """Return the record of a child that is about to begin."""

    def take_snapshot(self) -> tuple[ChildState[C], Any] | None:
        """Return the saved state of a restarted child and the input for `put_back`; None for a new child."""

    async def began(self, inherited: int) -> None:
        """Write the starting point of a child."""

    def merged_before(self) -> Mapping[str, Any] | None:
        """Return the result of a child that was merged into its parent earlier."""

    def merged(self, before: StepValue, result: StepValue) -> None:
        """Record the result of a child that was just merged into its parent."""


T = TypeVar("T")

StepValue: TypeAlias = Any
"""The input or output of a step. Any, because users choose it: text, items, data, an object of any class."""


class TurnTree(Protocol):
    """The turn of a model call."""

    limits: Limits | None
    calls: CallHistory


class SteeredExecution(Protocol):
    """An execution whose tool calls are steered: a `Context`, or a session of another agent."""

    @property
    def where(self) -> Where:
        """The place of the execution in a run's events."""

    @property
    def tree(self) -> TurnTree:
        """The tree shared with its descendants."""

    def report_problem(self, code: str, source: str, hook: str, error: BaseException) -> None:
        """Report an error that does not end the turn."""


class Enforcing(Protocol):
    """An engine that decides on tool calls: an `Engine`, or the guard of another agent's tools."""

    stack: LayerStack
    clock: Clock
    sink: EventSink | None
    approve: Callable[..., Any] | None


class Execution(Protocol):
    """An execution as the engine sees it; implemented by `Context`, which is defined further up."""

    id: str
    thread_id: str
    resource_id: str | None
    depth: int
    turn: int
    # The engine and the context that hooks get; Any, as the engine is defined further up.
    hook_base: tuple[Any, ExecutionContext] | None
    step_count: int
    tokens: Usage
    cost: float
    item_log: ItemLog
    aborted: bool

    @property
    def where(self) -> Where:
        """The place of the execution in a run's events."""

    @property
    def tree(self) -> TurnTree:
        """The tree shared with its descendants."""

    def note_missing_judge(self, error: NoeticConfigError) -> None:
        """Keep the error of a judge whose model does not exist: the turn ends with it."""

    def lock(self, layer_id: str) -> asyncio.Lock:
        """Return the lock that makes functions of a layer run one at a time."""

    def charge(self, response: ModelResponse) -> None:
        """Add the cost of a model call."""

    def check_limits(self) -> None:
        """Raise if more was spent than a limit allows."""

    async def until_aborted(self, awaitable: Awaitable[T]) -> T:
        """Await something, interrupted by an abort."""


class StepHandle(Protocol):
    """A step that runs in parallel to its execution; see `noetic_nb.runtime.Handle`."""

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""

    async def result(self) -> StepValue:
        """Wait for the step's output."""

    def cancel(self, reason: str = ...) -> bool:
        """Abort the step; False if it had already ended."""


class FollowedAnswer(Protocol):
    """One model answer, for the streams of the turn."""

    def add(self, delta: ModelDelta) -> None:
        """Add a piece."""

    def stood(self) -> None:
        """Note that the answer was accepted; its items are logged next."""

    def take_back(self) -> None:
        """Note that the answer was rejected, or was never finished."""


class TurnRecorder(Protocol):
    """Records a turn in storage."""

    problem: Exception | None
    """After the turn: why its work is not in storage, or None if it is. Set earlier if a layer failed."""
    raises: bool
    """Whether the problem is an error rather than a warning."""

    async def begin(self, first: int) -> None:
        """Write that the turn's items, from `first` on, have been logged."""

    async def end(self) -> None:
        """Write the logged items and delete the progress."""

    def close(self) -> None:
        """Release the record, which is no longer read."""
