"""When a loop stops, as data. A predicate is started once per loop run, so no state leaks from one run to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field

from noetic_nb.models.base import NO_USAGE, Usage
from noetic_nb.steps.base import Frozen

__all__ = ["Check", "LoopSnapshot", "UntilPredicate", "Verdict", "until"]


class Verdict(NamedTuple):
    """Whether to stop, why, and what to tell the next iteration."""

    stop: bool
    reason: str | None = None
    feedback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSnapshot:
    """A loop after an iteration. Tokens and cost are those of the whole execution so far, `elapsed_ms` of the loop."""

    step_count: int
    tokens: Usage = NO_USAGE
    cost: float = 0.0
    elapsed_ms: float = 0.0
    last_output: Any = None
    last_text: str = ""
    history: Sequence[Any] = ()
    depth: int = 0
    last_tool_calls: int = 0


Check: TypeAlias = Callable[[LoopSnapshot], Verdict]

_GO_ON = Verdict(False)


class MaxSteps(Frozen):
    """Stops after n successful iterations."""

    kind: Literal["maxSteps"] = "maxSteps"
    n: int

    def start(self) -> Check:
        """Return a check for one run of a loop."""
        return lambda s: Verdict(True, f"Reached max steps ({self.n})") if s.step_count >= self.n else _GO_ON


class MaxCost(Frozen):
    """Stops when the execution has cost so many US dollars."""

    kind: Literal["maxCost"] = "maxCost"
    usd: float

    def start(self) -> Check:
        """Return a check for one run of a loop."""
        return lambda s: Verdict(True, f"Reached max cost (${self.usd:g})") if s.cost >= self.usd else _GO_ON


class NoToolCalls(Frozen):
    """Stops when the last model call asked for no tool."""

    kind: Literal["noToolCalls"] = "noToolCalls"

    def start(self) -> Check:
        """Return a check for one run of a loop."""
        return lambda s: Verdict(True, "No tool calls") if s.step_count >= 1 and not s.last_tool_calls else _GO_ON


class Any_(Frozen):
    """Stops at the first member that stops; feedback of the members evaluated is joined by newlines."""

    kind: Literal["any"] = "any"
    predicates: tuple[UntilPredicate, ...]

    def start(self) -> Check:
        """Return a check for one run of a loop."""
        checks = [predicate.start() for predicate in self.predicates]

        def check(snapshot: LoopSnapshot) -> Verdict:
            said: list[str] = []
            for one in checks:
                verdict = one(snapshot)
                if verdict.feedback:
                    said.append(verdict.feedback)
                if verdict.stop:
                    return Verdict(True, verdict.reason, "\n".join(said) or None)
            return Verdict(False, None, "\n".join(said) or None)

        return check


UntilPredicate: TypeAlias = Annotated[MaxSteps | MaxCost | NoToolCalls | Any_, Field(discriminator="kind")]


class until:
    """Builders of loop predicates.

    Examples
    --------
    >>> check = until.any(until.no_tool_calls(), until.max_steps(3)).start()
    >>> check(LoopSnapshot(step_count=3, last_tool_calls=1))
    Verdict(stop=True, reason='Reached max steps (3)', feedback=None)
    """

    @staticmethod
    def max_steps(n: int) -> MaxSteps:
        """Stop after n successful iterations."""
        return MaxSteps(n=n)

    @staticmethod
    def max_cost(usd: float) -> MaxCost:
        """Stop when the execution has cost so many US dollars."""
        return MaxCost(usd=usd)

    @staticmethod
    def no_tool_calls() -> NoToolCalls:
        """Stop when the last model call asked for no tool."""
        return NoToolCalls()

    @staticmethod
    def any(*predicates: UntilPredicate) -> Any_:
        """Stop when any of these stops."""
        return Any_(predicates=predicates)
