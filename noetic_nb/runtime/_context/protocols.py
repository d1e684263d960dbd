"""The interfaces between the parts of an execution, as protocols: none of them has to import the other."""

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
    """A tool call that may have had its effect before its end is in storage."""

    key: str
    """Where it is written."""
    path: str
    """The step that makes it."""
    number: int | None
    """Which call of this step it is, as its idempotency key says; None if the tool does not know that key."""
    place: Place
    """Where it stands in the history of the tree."""
    is_left: bool = False
    """Whether a process that has ended began it, and it was not made once more since."""


class ChildState(Protocol[C]):
    """Where a child stood that is begun again."""

    @property
    def inherited(self) -> int:
        """How many items of its parent's log it began with."""

    @property
    def items(self) -> tuple[Item, ...]:
        """The items it logged after these."""

    @property
    def origins(self) -> Mapping[int, Origin]:
        """The origins of items, by their place among these, where their roles do not say them."""

    @property
    def state(self) -> Mapping[str, Any]:
        """Its ``ctx.state``."""

    @property
    def layers(self) -> Mapping[str, Any]:
        """The states of its layers."""

    def put_back(self, ctx: C, spent: Any) -> None:
        """Set the counters of a context to earlier values."""


class ExecutionRecorder(Protocol[C, S]):
    """Writes down how far an execution `C` has come, with its record of a step, `S`: another process can continue it."""

    @property
    def turn(self) -> TurnRecorder:
        """The turn it belongs to."""

    def step(self, frames: tuple[str, ...]) -> S:
        """Return the record of a step, by all frames around it and its own."""

    def replay(self, step: S, definition: Step) -> tuple[bool, StepValue]:
        """Return whether a step ended before, and its output."""

    def step_done(self, step: S, definition: Step, output: StepValue) -> Awaitable[object] | None:
        """Write that a step ended; returns an awaitable for that, or None if nothing has to be awaited."""

    @property
    def put_off(self) -> Sequence[Any]:
        """Steps whose ends are not written yet, as nothing has happened since."""

    async def catch_up(self) -> None:
        """Write these ends: something else comes next."""

    def loop_began(self, loop: S, now_ms: float) -> tuple[Usage, float, float]:
        """Return the spending and the time when a loop began."""

    def spent_then(self) -> tuple[Usage, float, float]:
        """Return the spending of the execution when its last step ended, and the time."""

    def failure_of(self, loop: S, iteration: int) -> str | None:
        """Return how a failed iteration was dealt with before."""

    async def iteration_failed(self, loop: S, definition: LoopStep, iteration: int, answer: str) -> None:
        """Write how a failed iteration was dealt with."""

    def begun_before(self, path: str, name: str, args: Mapping[str, Any]) -> BegunCall | None:
        """Return the call that a process which has ended began at a step with these arguments, and did not finish."""

    def numbers_taken(self, path: str) -> Collection[int | None]:
        """Return which numbers calls of a step have that a process began and did not finish."""

    def call_begins(self, path: str, number: int | None, place: Place, again: BegunCall | None) -> Awaitable[object]:
        """Write that a call is about to be made, be it `again`: until its end is written it may have had its effect."""

    def child(self, ctx: C, *, is_beside: bool) -> ExecutionRecorder[C, S]:
        """Return the record of a child that is about to begin."""

    def take_snapshot(self) -> tuple[ChildState[C], Any] | None:
        """Return the place of a child that is begun again, and the input of `put_back`; None for a new one."""

    async def began(self, inherited: int) -> None:
        """Write where a child begins."""

    def merged_before(self) -> Mapping[str, Any] | None:
        """Return the result of a child that was merged into its parent before."""

    def merged(self, before: StepValue, result: StepValue) -> None:
        """Note the result of a child that was just merged into its parent."""


T = TypeVar("T")

StepValue: TypeAlias = Any
"""What a step takes or returns. Any, as that is the user's own: text, items, data, an object of any class."""


class TurnTree(Protocol):
    """The turn of a model call."""

    limits: Limits | None
    calls: CallHistory


class SteeredExecution(Protocol):
    """An execution whose tool calls are steered: a `Context`, or another agent's session."""

    @property
    def where(self) -> Where:
        """The place of the execution in a run's events."""

    @property
    def tree(self) -> TurnTree:
        """The tree it shares with its descendants."""

    def report_problem(self, code: str, source: str, hook: str, error: BaseException) -> None:
        """Report an error that does not end the turn."""


class Enforcing(Protocol):
    """An engine that decides on tool calls: an `Engine`, or the guard of another agent's tools."""

    stack: LayerStack
    clock: Clock
    sink: EventSink | None
    approve: Callable[..., Any] | None


class Execution(Protocol):
    """An execution as an engine sees it; `Context`, which stands above it, is one."""

    id: str
    thread_id: str
    resource_id: str | None
    depth: int
    turn: int
    # Who made it, and the execution as hooks see it; Any, as the engine stands above this file.
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
        """The tree it shares with its descendants."""

    def note_missing_judge(self, error: NoeticConfigError) -> None:
        """Keep the error of a judge whose model does not exist: its turn ends with it."""

    def lock(self, layer_id: str) -> asyncio.Lock:
        """Return the lock under which functions of a layer run one at a time."""

    def charge(self, response: ModelResponse) -> None:
        """Add the cost of a model call."""

    def check_limits(self) -> None:
        """Raise where more was spent than may be."""

    async def until_aborted(self, awaitable: Awaitable[T]) -> T:
        """Await something; an abort cuts it short."""


class Incoming(Protocol):
    """A message for the agent that waits to become part of its turn."""

    def take(self) -> Sequence[Mapping[str, Any]]:
        """Return its items, which are part of a turn from now on."""


class Inbox(Collection[Incoming], Protocol):
    """Messages that arrived while the agent was working; a list."""

    def clear(self) -> None:
        """Empty it."""


class StepHandle(Protocol):
    """A step that runs beside its execution; see `noetic_nb.runtime.Handle`."""

    @property
    def done(self) -> bool:
        """Whether there is a result, or an error."""

    async def result(self) -> StepValue:
        """Wait for the step's output."""

    def cancel(self, reason: str = ...) -> bool:
        """Abort the step; False if it had ended already."""


class FollowedAnswer(Protocol):
    """One answer of a model, for the streams of the turn."""

    def add(self, delta: ModelDelta) -> None:
        """Take a piece."""

    def stood(self) -> None:
        """Note that the answer stands; its items are logged next."""

    def take_back(self) -> None:
        """Note that the answer does not stand, or was never finished."""


class TurnRecorder(Protocol):
    """Writes down a turn."""

    problem: Exception | None
    """Once it has ended: why what it did is not in storage, or None if it is. Set before that where a layer failed."""
    raises: bool
    """Whether that is an error, and not a warning only."""

    async def begin(self, first: int) -> None:
        """Write that its items, from `first` on, have been logged."""

    async def end(self) -> None:
        """Write the items it logged, and forget its progress."""

    def close(self) -> None:
        """Release the record: it is no longer read."""
