"""The description of a predicate, and why it holds or not, as data.

A predicate holds if all its conditions hold (and at least one of an `any_of` group). The distance of a condition is how
far its value must move, in the value's own unit.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from html import escape
from numbers import Integral, Real
from typing import Any, Final, Literal, Protocol, TypeAlias

from noetic_nb.regulator.decisions import CONTINUE, Decision
from noetic_nb.regulator.predicates.evidence import Evidence

__all__ = [
    "Change",
    "Condition",
    "Explanation",
    "Predicate",
    "PredicateFinding",
    "Relation",
    "explain",
    "finding",
    "names_of",
    "require_number",
    "require_whole",
    "thresholds_of",
]

Relation: TypeAlias = Literal[">=", ">", "<"]
_HOLDS: Final[dict[str, Callable[[Any, Any], bool]]] = {">=": operator.ge, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a predicate.

    Parameters
    ----------
    name : str
        The name of the compared value.
    value : float or None
        Its current value; None if undefined, and then the condition does not hold.
    relation : {">=", ">", "<"}
        The comparison.
    threshold : float
        The number it is compared with.

    Examples
    --------
    >>> near = Condition("tokens_out", 900, ">=", 1000)
    >>> near.holds, near.distance
    (False, 100)
    """

    name: str
    value: float | None
    relation: Relation
    threshold: float

    @property
    def holds(self) -> bool:
        """Whether the comparison is true."""
        return self.value is not None and _HOLDS[self.relation](self.value, self.threshold)

    @property
    def distance(self) -> float | None:
        """The distance of the value from the threshold: 0 if the condition holds, None if undefined."""
        if self.value is None:
            return None
        return 0 if self.holds else abs(self.threshold - self.value)


@dataclass(frozen=True, slots=True)
class Change:
    """The smallest change of one number with which a predicate would no longer fire.

    Parameters
    ----------
    field : str
        An input, such as ``"newest_quality"``, or a threshold, such as ``"tokens_out"``.
    before, after : float
        Its current value, and the nearest value at which the predicate no longer holds.
    is_threshold : bool
        Whether it is a setting of the predicate (a slider) or an event.
    """

    field: str
    before: float
    after: float
    is_threshold: bool


@dataclass(frozen=True, slots=True)
class PredicateFinding:
    """One predicate, explained.

    Parameters
    ----------
    predicate : str
        Its name: its kind, and if a regulator has several of a kind, also the difference (see `names_of`).
    holds : bool
        Whether it would fire on its own.
    decision : Decision or None
        The decision it would return.
    conditions : tuple of Condition
        All must hold.
    any_of : tuple of Condition
        At least one must hold, if there are any.
    changes : tuple of Change
        What would stop it from firing, each the smallest in its unit; empty if it does not hold. Events come before settings.
    masked_by : str or None
        The earlier predicate that also holds and decides instead; None for a predicate that does not hold.
    notes : tuple of str
        Remarks for readers, such as that some costs had no price.
    """

    predicate: str
    holds: bool
    decision: Decision | None
    conditions: tuple[Condition, ...]
    any_of: tuple[Condition, ...] = ()
    changes: tuple[Change, ...] = ()
    masked_by: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, float | None]:
        """Every value that the predicate read, by name."""
        return {condition.name: condition.value for condition in (*self.conditions, *self.any_of)}

    @property
    def thresholds(self) -> dict[str, float]:
        """Every threshold, by the name of the value it is compared with."""
        return {condition.name: condition.threshold for condition in (*self.conditions, *self.any_of)}

    @property
    def distance(self) -> float | None:
        """The distance from firing, as a share of the thresholds: 0 if it holds, None while an input is undefined."""
        gaps = [_relative(condition) for condition in self.conditions]
        if self.any_of:
            known = [gap for gap in map(_relative, self.any_of) if gap is not None]
            # One condition of a group is sufficient, so use the nearest; all others must hold, so use the farthest.
            gaps.append(min(known) if known else None)
        return None if None in gaps else max((gap for gap in gaps if gap is not None), default=0.0)


def _relative(condition: Condition) -> float | None:
    gap = condition.distance
    if gap is None or condition.holds:
        return gap
    # A mean equal to a threshold that it must be *below* has distance 0, yet does not hold: use the smallest step.
    return max(gap, math.ulp(condition.threshold)) / max(abs(condition.threshold), 1e-12)


def finding(
    kind: str,
    decision: Decision | None,
    conditions: Iterable[Condition],
    changes: Iterable[Change],
    *,
    any_of: Iterable[Condition] = (),
    notes: Iterable[str] = (),
) -> PredicateFinding:
    """Return a finding; changes are only kept if the predicate holds."""
    # Based on the decision, not the conditions: an explanation must not contradict the decision.
    holds = decision is not None
    return PredicateFinding(
        predicate=kind,
        holds=holds,
        decision=decision,
        conditions=tuple(conditions),
        any_of=tuple(any_of),
        changes=tuple(changes) if holds else (),
        notes=tuple(notes),
    )


class Predicate(Protocol):
    """One reason to intervene."""

    @property
    def kind(self) -> str:
        """Stable name of this family of predicates."""

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return the decision if the predicate holds."""

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return its measurements, its distance from firing, and the changes that would stop it from firing."""


COLUMNS: Final = ("predicate", "holds", "because", "distance", "hidden by")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """A decision and every predicate behind it; displayed as a short table, one line per predicate.

    Parameters
    ----------
    decision : Decision
        The result of `decide`.
    findings : tuple of PredicateFinding
        One per predicate, in order of priority.
    thresholds : mapping of str to mapping of str to float
        The thresholds of each predicate, by predicate and name.

    Examples
    --------
    >>> from noetic_nb.regulator import Regulator, events
    >>> regulator = Regulator.for_user("ann").with_cost_cap(1_000)
    >>> regulator.on_event(events.Cost(25, 400, 1_800))
    >>> regulator.explain()
    continue
    predicate           holds  because                                                        distance  hidden by
    cost_cap            no     mean_quality 1 < 0.5 (no), tokens_out 400 >= 1000 (no)         100 %
    quality_decline     no     grades 0 >= 3 (no), delta ? >= 0.15, mean_quality ? < 0.5      ?
    tool_loop           no     repetitions 0 >= 5 (no)                                        100 %
    scope_drift         no     drift_score ? >= 0.5                                           ?
    procedural_warning  no     corrections 0 >= 3 (no)                                        100 %
    """

    decision: Decision
    findings: tuple[PredicateFinding, ...]
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def deciding(self) -> PredicateFinding | None:
        """The finding that made the decision; None for `Continue`."""
        return next((found for found in self.findings if found.holds), None)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes that would avoid the current decision, each the smallest in its unit; events before settings."""
        deciding = self.deciding
        return () if deciding is None else deciding.changes

    def rows(self) -> list[dict[str, Any]]:
        """Return the table as plain data, for example for a data frame."""
        return [
            {
                "predicate": found.predicate,
                "holds": found.holds,
                "because": ", ".join(map(_because, (*found.conditions, *found.any_of))),
                "distance": found.distance,
                "hidden by": found.masked_by,
            }
            for found in self.findings
        ]

    def to_text(self) -> str:
        """Return the table as text."""
        cells = [COLUMNS, *map(_cells, self.rows())]
        widths = [max(len(row[place]) for row in cells) for place in range(len(COLUMNS))]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
        return "\n".join((_headline(self.decision), *lines))

    def to_html(self) -> str:
        """Return the table as HTML."""
        head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in self.rows())
        return (
            f"<table><caption>{escape(_headline(self.decision))}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return self.to_text()


def _headline(decision: Decision) -> str:
    reason = getattr(decision, "reason", None)
    return decision.kind if reason is None else f"{decision.kind}: {reason.kind}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _because(condition: Condition) -> str:
    failed = " (no)" if condition.value is not None and not condition.holds else ""
    return f"{condition.name} {_number(condition.value)} {condition.relation} {_number(condition.threshold)}{failed}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    distance = row["distance"]
    far = "?" if distance is None else f"{100 * distance:.3g} %" if distance else ""
    return (row["predicate"], "yes" if row["holds"] else "no", row["because"], far, row["hidden by"] or "")


def names_of(predicates: Iterable[Predicate]) -> tuple[str, ...]:
    """Return a distinct name for each predicate.

    The name is its kind (for a user-defined predicate, its `name` if it has one); if several share it, also the settings that
    change the evidence. Thresholds are excluded, so that names stay while a slider moves; remaining duplicates are numbered.

    Examples
    --------
    >>> from noetic_nb.regulator import CostCap, ToolLoop
    >>> names_of([ToolLoop(), ToolLoop(by="call", period=2), CostCap(), CostCap(tokens_out=5)])
    ('tool_loop', 'tool_loop(by=call, period=2)', 'cost_cap', 'cost_cap #2')
    """
    given = tuple(predicates)
    bases = tuple([_base_name(predicate) for predicate in given])
    several = Counter(bases)
    if len(several) == len(bases):
        return bases
    seen: Counter[str] = Counter()
    names = []
    for base, predicate in zip(bases, given, strict=True):
        name = base if several[base] == 1 else f"{base}{_set_apart(predicate)}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return tuple(names)


def _base_name(predicate: Predicate) -> str:
    name = getattr(predicate, "name", None)
    return name if isinstance(name, str) else predicate.kind


def _set_apart(predicate: Predicate) -> str:
    shown = []
    for item in fields_of(predicate):
        value = getattr(predicate, item.name)
        if value is True:
            shown.append(item.name)
        elif value != item.default and (item.name == "period" or isinstance(value, str) or callable(value)):
            # Never a repr: that of a function contains an address.
            text = value if isinstance(value, str | int) else getattr(value, "name", type(value).__name__)
            shown.append(f"{item.name}={text}")
    return f"({', '.join(shown)})" if shown else ""


def fields_of(predicate: object) -> tuple[Field[Any], ...]:
    """Return the fields of a predicate, none if it is not a dataclass."""
    return fields(predicate) if is_dataclass(predicate) else ()


def thresholds_of(predicates: Iterable[Predicate]) -> dict[str, dict[str, float]]:
    """Return the numeric settings of predicates: thresholds, windows and minimum counts, by `names_of` and field.

    A cap of None is omitted. A user-defined predicate must be a dataclass, or have a mapping `thresholds`.

    Examples
    --------
    >>> from noetic_nb.regulator import CostCap, ScopeDrift
    >>> thresholds_of([CostCap(tokens_out=None, usd=0.5), ScopeDrift()])
    {'cost_cap': {'usd': 0.5, 'window': 3, 'poor_mean': 0.5}, 'scope_drift': {'threshold': 0.5}}
    """
    given = tuple(predicates)
    return {name: dict(_numbers(predicate)) for name, predicate in zip(names_of(given), given, strict=True)}


def _numbers(predicate: Predicate) -> Iterator[tuple[str, float]]:
    own = getattr(predicate, "thresholds", None)
    found = (
        own if isinstance(own, Mapping) else {item.name: getattr(predicate, item.name) for item in fields_of(predicate)}
    )
    for name, value in found.items():
        # A mapping of limits, such as one per tool, is a setting as well.
        for inside, number in value.items() if isinstance(value, Mapping) else (("", value),):
            # In Python `True` is a number, but not a valid setting.
            if not isinstance(number, bool) and isinstance(number, Real) and math.isfinite(number):
                plain = int(number) if isinstance(number, Integral) else float(number)
                yield (f"{name}.{inside}" if inside else str(name)), plain


def explain(predicates: Sequence[Predicate], evidence: Evidence) -> Explanation:
    """Return every predicate's finding for the same evidence; predicates in order of priority."""
    findings: list[PredicateFinding] = []
    deciding: PredicateFinding | None = None
    for name, predicate in zip(names_of(predicates), predicates, strict=True):
        found = predicate.explain(evidence)
        masked_by = deciding.predicate if deciding is not None and found.holds else None
        found = replace(found, predicate=name, masked_by=masked_by)
        findings.append(found)
        if deciding is None and found.holds:
            deciding = found
    decision = CONTINUE if deciding is None or deciding.decision is None else deciding.decision
    return Explanation(decision, tuple(findings), thresholds_of(predicates))


def require_number(name: str, value: object, low: float, high: float) -> None:
    """Reject a setting that is not a finite number within bounds."""
    # In Python `True` is a number, but as a threshold it is a mistake.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number. Given: {value!r}.")
    if not low <= value <= high:  # NaN fails here too
        raise ValueError(f"{name} must be between {low:g} and {high:g}. Given: {value!r}.")


def require_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Reject a setting that is not an integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer. Given: {value!r}.")
    if value < low or (high is not None and value > high):
        limit = "" if high is None else f" and at most {high}"
        raise ValueError(f"{name} must be at least {low}{limit}. Given: {value!r:.60}.")
