"""A limit on the tool calls of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from noetic_nb.regulator.decisions import CallBudgetExceeded, CircuitBreak, Decision
from noetic_nb.regulator.predicates.evidence import Evidence
from noetic_nb.regulator.predicates.explanation import Change, Condition, PredicateFinding, finding, require_whole

__all__ = ["CallBudget"]

_SUGGESTION: Final = "This task {did}. Ask the user to narrow the request, or hand over to a person."


@dataclass(frozen=True, slots=True)
class CallBudget:
    """A task makes more tool calls than allowed.

    Parameters
    ----------
    total : int, optional
        Most calls of the task, counting all tools and turns; the next call breaks the circuit. None is no limit.
    per_tool : mapping of str to int
        Most calls of one tool, by tool name.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Call budget" (ours).

    Examples
    --------
    >>> from noetic_nb.regulator import Regulator
    >>> from noetic_nb.regulator.events import ToolCall
    >>> regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=30, per_tool={"search": 1}))
    >>> for place in ("Ulm", "Bonn"):
    ...     regulator.on_event(ToolCall("search", place))
    >>> regulator.decide().reason
    CallBudgetExceeded(tool_name='search', call_count=2, call_budget=1)
    """

    kind: ClassVar[str] = "call_budget"
    total: int | None = None
    # Excluded from the hash, because mappings are not hashable.
    per_tool: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.total is not None:
            require_whole("total", self.total, 0)
        if not isinstance(self.per_tool, Mapping):
            raise TypeError(f"per_tool must be a mapping of tool names to numbers. Given: {self.per_tool!r:.80}.")
        for name, most in self.per_tool.items():
            if not isinstance(name, str):
                raise TypeError(f"per_tool must name tools by text. Given: {name!r:.80}.")
            require_whole(f"per_tool[{name!r:.60}]", most, 0)
        # A copy, because the caller may change the original later.
        object.__setattr__(self, "per_tool", dict(self.per_tool))

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a circuit break if the task has exceeded a limit."""
        counts = evidence.call_counts
        if self.total is not None:
            made = sum(counts.values())
            if made > self.total:
                return self._break(None, made, self.total)
        for name, most in self.per_tool.items():
            if counts.get(name, 0) > most:
                return self._break(name, counts[name], most)
        return None

    def _break(self, name: str | None, made: int, most: int) -> Decision:
        did = f"made {made} tool calls and may make {most}"
        if name is not None:
            did = f"called {name!r} {made} times and may do so {most} times"
        return CircuitBreak(CallBudgetExceeded(name, made, most), _SUGGESTION.format(did=did))

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding; changing one limit suffices only if no other is exceeded."""
        counts = evidence.call_counts
        limits = [] if self.total is None else [("total", "calls", sum(counts.values()), self.total)]
        limits += [
            (f"per_tool.{name}", f"calls of {name}", counts.get(name, 0), most) for name, most in self.per_tool.items()
        ]
        exceeded = [limit for limit in limits if limit[2] > limit[3]]
        changes: list[Change] = []
        if len(exceeded) == 1:
            ((name, what, made, most),) = exceeded
            changes = [Change(what, made, most, is_threshold=False), Change(name, most, made, is_threshold=True)]
        # Without limits, an empty group would hold trivially; an impossible condition states the reason instead.
        never = [] if limits else [Condition("limits_set", 0, ">=", 1)]
        reached = [Condition(what, made, ">", most) for _, what, made, most in limits]
        return finding(self.kind, self.check(evidence), never, changes, any_of=reached)
