"""The interfaces between the parts of an execution, as protocols: none of them has to import the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, Where
from noetic_nb.items import ItemLog
from noetic_nb.memory import ExecutionContext, LayerStack
from noetic_nb.memory._enforcement.call_history import CallHistory
from noetic_nb.models._client import ModelDelta, ModelResponse, Usage
from noetic_nb.runtime._config.limits import Limits

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
        """Abort the step; False where it had ended already."""


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
    """Once it has ended: why what it did is not in storage, None where it is. Set before that where a layer failed."""
    raises: bool
    """Whether that is an error, and not a warning only."""

    async def begin(self, first: int) -> None:
        """Write that its items, from `first` on, have been logged."""

    async def end(self) -> None:
        """Write the items it logged, and forget its progress."""

    def close(self) -> None:
        """Release the record: it is no longer read."""
