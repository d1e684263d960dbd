"""The interface of the recorder of an execution's progress, as protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from noetic_nb.items import Item
from noetic_nb.items._origins import Origin
from noetic_nb.memory._enforcement.call_history import Place
from noetic_nb.models._client import Usage
from noetic_nb.runtime._context.protocols import StepValue, TurnRecorder
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
    """Which call of this step it is, as its idempotency key says; None where the tool does not know that key."""
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
    """Writes down how far an execution has come, so that another process can continue it.

    Made on a floor above this one, see `noetic_nb.runtime._durability`; `C` is the context, `S` what it keeps of a step, which
    nobody here looks into, so that a context names it Any.
    """

    @property
    def turn(self) -> TurnRecorder:
        """The turn it belongs to."""

    def step(self, frames: tuple[str, ...]) -> S:
        """Return the record of a step, by all frames around it and its own."""

    def replay(self, step: S, definition: Step) -> tuple[bool, StepValue]:
        """Return whether a step ended before, and its output."""

    def step_done(self, step: S, definition: Step, output: StepValue) -> Awaitable[object] | None:
        """Write that a step ended; returns an awaitable for that, None where nothing has to be awaited."""

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
