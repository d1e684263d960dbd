"""An ordered, versioned set of rules that may be edited while an agent runs.

Whoever evaluates takes a snapshot first, and snapshots never change: an edit takes effect at the next evaluation and never
in the middle of one. Rules are found by enforcement point and tool name, so that rules about other tools cost nothing.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering.rule import Point, SteeringRule, as_rule
from noetic_nb.steering.source import check_on_samples, compile_predicate

__all__ = ["RuleBook", "RuleChange", "RuleSnapshot"]

F = TypeVar("F", bound=Callable[..., Any])
ChangeKind: TypeAlias = Literal["add", "replace", "remove", "enable", "disable", "move", "undo"]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One step from a version of a rule book to the next."""

    version: int
    change: ChangeKind
    rule_id: str
    old: SteeringRule | None
    new: SteeringRule | None


@dataclass(frozen=True)
class RuleSnapshot:
    """The rules of one version, in order."""

    version: int
    rules: tuple[SteeringRule, ...]
    _found: dict[tuple[str, str | None], tuple[SteeringRule, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def applicable(self, point: Point, tool_name: str | None) -> tuple[SteeringRule, ...]:
        """Return the enabled rules for a point and, before a call, a tool."""
        key = (point, tool_name)
        found = self._found.get(key)
        if found is None:
            found = tuple(
                rule
                for rule in self.rules
                if rule.enabled
                and point in rule.applies_to
                and (rule.tools is None or tool_name is None or tool_name in rule.tools)
            )
            if len(self._found) < 1024:  # tool names come from models: do not let nonsense names fill memory
                self._found[key] = found
        return found

    def __iter__(self) -> Iterator[SteeringRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


class RuleBook:
    """Rules that are living, versioned data.

    Parameters
    ----------
    rules : iterable of SteeringRule or mapping, optional
        The first rules, in order.

    Examples
    --------
    >>> from noetic_nb.steering import deny
    >>> rules = RuleBook()
    >>> @rules.rule(on="before_tool_call", tools=["delete"])
    ... def inside_workspace(call):
    ...     if not call.tool_args["path"].startswith("/workspace/"):
    ...         return deny("Stay inside /workspace/.")
    >>> [rule.id for rule in rules], rules.version
    (['inside_workspace'], 1)
    """

    def __init__(self, rules: Iterable[SteeringRule | Mapping[str, Any]] = ()) -> None:
        self._snapshot = RuleSnapshot(0, ())
        self._changes: list[RuleChange] = []
        self._past: list[tuple[tuple[SteeringRule, ...], RuleChange]] = []
        self._listeners: list[Callable[[RuleChange], None]] = []
        first = tuple(as_rule(rule) for rule in rules)
        seen: set[str] = set()
        for rule in first:
            if rule.id in seen:
                raise NoeticConfigError(
                    "DUPLICATE_RULE_ID", "Two rules share an id.", given=rule.id, hint="Rename one."
                )
            seen.add(rule.id)
        if first:
            self._snapshot = RuleSnapshot(0, first)

    @property
    def snapshot(self) -> RuleSnapshot:
        """The rules as they are now; never changes."""
        return self._snapshot

    @property
    def version(self) -> int:
        """How many changes there have been."""
        return self._snapshot.version

    @property
    def changes(self) -> tuple[RuleChange, ...]:
        """All changes, oldest first."""
        return tuple(self._changes)

    def __iter__(self) -> Iterator[SteeringRule]:
        return iter(self._snapshot)

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, rule_id: object) -> bool:
        return any(rule.id == rule_id for rule in self._snapshot)

    def __getitem__(self, rule_id: str) -> SteeringRule:
        for rule in self._snapshot:
            if rule.id == rule_id:
                return rule
        known = ", ".join(repr(rule.id) for rule in self._snapshot) or "none"
        raise NoeticConfigError("UNKNOWN_RULE", "There is no such rule.", given=rule_id, hint=f"Rules: {known}.")

    def rule(
        self,
        id: str | None = None,
        *,
        on: Point | Iterable[Point],
        tools: Iterable[str] | None = None,
        history: bool = False,
        name: str | None = None,
        isolate: Literal["thread"] | None = None,
    ) -> Callable[[F], F]:
        """Make a function a rule; running the same cell again replaces the rule in place.

        Parameters
        ----------
        id : str, optional
            The function's name where it is left out.
        on : {"before_tool_call", "after_model_call"} or both
            When it is asked.
        tools : iterable of str, optional
            Before a call: only about these tools; None means every tool.
        history : bool, default False
            Give the rule the calls so far as ``call.history``.
        isolate : {"thread"}, optional
            Run the function in a thread, so that one that hangs is denied on time.
        """

        def add(function: F) -> F:
            self.put(
                SteeringRule(
                    id=id or function.__name__,
                    name=name,
                    applies_to=(on,) if isinstance(on, str) else tuple(on),
                    predicate=function,
                    tools=None if tools is None else tuple(tools),
                    history=history,
                    isolate=isolate,
                    source=_source(function),
                )
            )
            return function

        return add

    def put(self, rule: SteeringRule | Mapping[str, Any]) -> SteeringRule:
        """Add a rule at the end, or replace the one with its id in place."""
        new = as_rule(rule)
        rules = list(self._snapshot.rules)
        for position, old in enumerate(rules):
            if old.id == new.id:
                rules[position] = new
                self._become("replace", new.id, rules, old, new)
                return new
        self._become("add", new.id, [*rules, new], None, new)
        return new

    def replace_source(self, rule_id: str, text: str, *, samples: Iterable[Any] = ()) -> SteeringRule:
        """Replace a Python rule by what a text says, if the text holds up; else the last good version stays.

        Parameters
        ----------
        rule_id : str
            Which rule.
        text : str
            Source of one function; it may use the names its old version could use, and `allow`, `deny`, `guide`.
        samples : iterable, optional
            Calls or responses the new version is tried on first (records with the fields of the hook's parameters).

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_RULE``, ``RULE_DOES_NOT_COMPILE`` or ``RULE_FAILS_ON_SAMPLE``; the last two have a `line`.
        """
        old = self[rule_id]
        names = getattr(inspect.unwrap(old.predicate), "__globals__", {}) if old.predicate is not None else {}
        predicate = compile_predicate(rule_id, text, names)
        new = old.model_copy(update={"predicate": predicate, "source": text})
        check_on_samples(new, samples)
        return self.put(new)

    def remove(self, rule_id: str) -> SteeringRule:
        """Take a rule out."""
        old = self[rule_id]
        self._become("remove", rule_id, [rule for rule in self._snapshot if rule.id != rule_id], old, None)
        return old

    def enable(self, rule_id: str) -> None:
        """Let a rule take part again."""
        self._switch(rule_id, True)

    def disable(self, rule_id: str) -> None:
        """Leave a rule in its place but do not ask it."""
        self._switch(rule_id, False)

    def move(self, rule_id: str, position: int) -> None:
        """Put a rule at another place in the order, 0 for the first."""
        rule = self[rule_id]
        rest = [other for other in self._snapshot if other.id != rule_id]
        rest.insert(position, rule)
        self._become("move", rule_id, rest, rule, rule)

    def undo(self) -> RuleChange | None:
        """Take the last change back, as a change of its own; None where there is nothing to take back."""
        if not self._past:
            return None
        before, last = self._past.pop()
        self._become("undo", last.rule_id, before, last.new, last.old, remember=False)
        return self._changes[-1]

    def listen(self, listener: Callable[[RuleChange], None]) -> Callable[[], None]:
        """Call `listener` after every change; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _switch(self, rule_id: str, enabled: bool) -> None:
        old = self[rule_id]
        if old.enabled == enabled:
            return
        new = old.model_copy(update={"enabled": enabled})
        rules = [new if rule.id == rule_id else rule for rule in self._snapshot]
        self._become("enable" if enabled else "disable", rule_id, rules, old, new)

    def _become(
        self,
        kind: ChangeKind,
        rule_id: str,
        rules: Iterable[SteeringRule],
        old: SteeringRule | None,
        new: SteeringRule | None,
        *,
        remember: bool = True,
    ) -> None:
        before = self._snapshot.rules
        version = self._snapshot.version + 1
        # One assignment: an evaluation sees all of the change or nothing of it.
        self._snapshot = RuleSnapshot(version, tuple(rules))
        change = RuleChange(version, kind, rule_id, old, new)
        self._changes.append(change)
        if remember:
            self._past.append((before, change))
        for listener in tuple(self._listeners):
            listener(change)

    def __repr__(self) -> str:
        return f"RuleBook(version {self.version}: {', '.join(rule.id for rule in self._snapshot) or 'no rules'})"


def _source(function: Callable[..., Any]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None  # typed at a prompt that keeps no text: the rule works, it just cannot be shown
