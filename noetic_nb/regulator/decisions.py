"""Decisions of a regulator: five frozen records.

`QualityDeclineNoRecovery.mean_delta` is, despite its name, the oldest minus the newest quality of the window; `delta`
is the same number with a clear name.

References
----------
.. [1] docs/behaviour/regulator.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, get_args

__all__ = [
    "CallBudgetExceeded",
    "CircuitBreak",
    "Continue",
    "CorrectionPattern",
    "CostCapReached",
    "Decision",
    "LowConfidenceSpans",
    "ProceduralWarning",
    "QualityDeclineNoRecovery",
    "Reason",
    "RepeatedFailurePattern",
    "RepeatedToolCallLoop",
    "ScopeDriftWarn",
    "Span",
    "from_dict",
    "to_camel",
    "to_dict",
]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True, slots=True)
class CostCapReached:
    """A budget is spent and recent answers are poor; the first two numbers are in `currency`."""

    kind: ClassVar[str] = "cost_cap_reached"
    tokens_spent: float
    tokens_cap: float
    mean_quality_last_n: float
    currency: str = "tokens_out"
    """Ours; omitted from JSON for output tokens, the only currency of the original."""


@dataclass(frozen=True, slots=True)
class QualityDeclineNoRecovery:
    """Answers got worse over the last `turns` and are poor on average."""

    kind: ClassVar[str] = "quality_decline_no_recovery"
    turns: int
    mean_delta: float

    @property
    def delta(self) -> float:
        """Oldest minus newest quality of the window."""
        return self.mean_delta


@dataclass(frozen=True, slots=True)
class RepeatedToolCallLoop:
    """One tool, or one cycle of tools, was called repeatedly."""

    kind: ClassVar[str] = "repeated_tool_call_loop"
    tool_name: str
    consecutive_count: int


@dataclass(frozen=True, slots=True)
class RepeatedFailurePattern:
    """Tools kept failing on one topic."""

    kind: ClassVar[str] = "repeated_failure_pattern"
    cluster: str
    failure_count: int


@dataclass(frozen=True, slots=True)
class CallBudgetExceeded:
    """A task made more tool calls than allowed, in total (`tool_name` None) or of one tool (ours)."""

    kind: ClassVar[str] = "call_budget_exceeded"
    tool_name: str | None
    call_count: int
    call_budget: int


Reason: TypeAlias = (
    CostCapReached | QualityDeclineNoRecovery | RepeatedToolCallLoop | RepeatedFailurePattern | CallBudgetExceeded
)


@dataclass(frozen=True, slots=True)
class CorrectionPattern:
    """A user's corrections on one topic; examples newest first, at most three."""

    user_id: str
    topic_cluster: str
    pattern_name: str
    learned_from_turns: int
    confidence: float
    example_corrections: tuple[str, ...] = ()


class Span(NamedTuple):
    """A part of the reply, in characters, about which the model was unsure."""

    start_char: int
    end_char: int
    confidence: float
    mean_token_logprob: float


@dataclass(frozen=True, slots=True)
class Continue:
    """No predicate holds."""

    kind: ClassVar[str] = "continue"


@dataclass(frozen=True, slots=True)
class ScopeDriftWarn:
    """The reply is about topics that the task does not mention."""

    kind: ClassVar[str] = "scope_drift_warn"
    drift_tokens: tuple[str, ...]
    drift_score: float
    task_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CircuitBreak:
    """Stop retrying; `suggestion` can be shown to a user as it is."""

    kind: ClassVar[str] = "circuit_break"
    reason: Reason
    suggestion: str


@dataclass(frozen=True, slots=True)
class ProceduralWarning:
    """The user has corrected answers on this topic before."""

    kind: ClassVar[str] = "procedural_warning"
    patterns: tuple[CorrectionPattern, ...]


@dataclass(frozen=True, slots=True)
class LowConfidenceSpans:
    """Parts of the reply were generated with low probability."""

    kind: ClassVar[str] = "low_confidence_spans"
    spans: tuple[Span, ...]


Decision: TypeAlias = Continue | ScopeDriftWarn | CircuitBreak | ProceduralWarning | LowConfidenceSpans

CONTINUE: Final = Continue()

_REASONS: Final[dict[str, type[Reason]]] = {cls.kind: cls for cls in get_args(Reason)}
_DECISIONS: Final[dict[str, type[Decision]]] = {cls.kind: cls for cls in get_args(Decision)}
_KIND_BY_TAG: Final[dict[str, str]] = {cls.__name__: kind for kind, cls in (_REASONS | _DECISIONS).items()}


def _plain(value: object) -> Any:
    if isinstance(value, CorrectionPattern):
        return body_of(value)
    if isinstance(value, Span):
        return list(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def body_of(record: Decision | Reason | CorrectionPattern) -> dict[str, Any]:
    """Return the fields of a record as plain data, in order."""
    body = {field.name: _plain(getattr(record, field.name)) for field in fields(record)}
    # Omit the original's only currency, so that both write the same JSON.
    if body.get("currency") == "tokens_out":
        del body["currency"]
    return body


def to_dict(decision: Decision) -> dict[str, Any]:
    """Return a decision as plain snake_case JSON with its `kind`.

    Examples
    --------
    >>> to_dict(CircuitBreak(RepeatedToolCallLoop("search", 5), "Try another way."))["reason"]
    {'kind': 'repeated_tool_call_loop', 'tool_name': 'search', 'consecutive_count': 5}
    """
    body = body_of(decision)
    if isinstance(decision, CircuitBreak):
        body["reason"] = {"kind": decision.reason.kind, **body_of(decision.reason)}
    return {"kind": decision.kind, **body}


def to_camel(decision: Decision) -> str | dict[str, Any]:
    """Return a decision in the original's externally tagged form.

    Examples
    --------
    >>> to_camel(Continue())
    'Continue'
    >>> to_camel(ScopeDriftWarn(("cake",), 1.0, ("tea",)))
    {'ScopeDriftWarn': {'drift_tokens': ['cake'], 'drift_score': 1.0, 'task_tokens': ['tea']}}
    """
    if isinstance(decision, Continue):
        return "Continue"
    body = body_of(decision)
    if isinstance(decision, CircuitBreak):
        body["reason"] = {_REASONS[decision.reason.kind].__name__: body_of(decision.reason)}
    return {_DECISIONS[decision.kind].__name__: body}


def from_dict(data: Mapping[str, Any] | str) -> Decision:
    """Parse a decision in either form.

    Parameters
    ----------
    data : mapping or str
        The result of `to_dict` or `to_camel`.

    Raises
    ------
    ValueError
        If the kind is unknown or a key is missing.

    Examples
    --------
    >>> from_dict("Continue"), from_dict({"kind": "low_confidence_spans", "spans": [[0, 4, 0.1, -6.0]]})
    (Continue(), LowConfidenceSpans(spans=(Span(start_char=0, end_char=4, confidence=0.1, mean_token_logprob=-6.0),)))
    """
    kind, body = _untag(data)
    cls = _DECISIONS.get(kind)
    if cls is None:
        raise ValueError(f"A decision's kind must be one of {sorted(_DECISIONS)}. Given: {kind!r}.")
    values = _values(cls, body)
    if cls is CircuitBreak:
        reason_kind, reason = _untag(values["reason"])
        if reason_kind not in _REASONS:
            raise ValueError(f"A circuit break's reason must be one of {sorted(_REASONS)}. Given: {reason_kind!r}.")
        values["reason"] = _REASONS[reason_kind](**_values(_REASONS[reason_kind], reason))
    elif cls is ProceduralWarning:
        values["patterns"] = tuple(
            CorrectionPattern(
                **{
                    **_values(CorrectionPattern, item),
                    "example_corrections": tuple(item.get("example_corrections", ())),
                }
            )
            for item in values["patterns"]
        )
    elif cls is LowConfidenceSpans:
        values["spans"] = tuple(Span(*item) for item in values["spans"])
    elif cls is ScopeDriftWarn:
        values = {key: tuple(item) if isinstance(item, list) else item for key, item in values.items()}
    return cls(**values)


def _untag(data: object) -> tuple[str, Mapping[str, Any]]:
    if isinstance(data, str):
        return _KIND_BY_TAG.get(data, data), {}
    if isinstance(data, Mapping) and isinstance(data.get("kind"), str):
        return data["kind"], data
    if isinstance(data, Mapping) and len(data) == 1:
        tag, body = next(iter(data.items()))
        if isinstance(body, Mapping):
            return _KIND_BY_TAG.get(tag, str(tag)), body
    raise ValueError(f"A decision needs a `kind`, or one CamelCase tag with its fields. Given: {data!r:.120}.")


def _values(cls: type[Any], body: Mapping[str, Any]) -> dict[str, Any]:
    # Ignore unknown keys, so that decisions written by later versions can be read.
    missing = [field.name for field in fields(cls) if field.name not in body and field.default is MISSING]
    if missing:
        raise ValueError(f"{cls.__name__} lacks the key `{missing[0]}`. Given: {body!r:.120}.")
    return {field.name: body[field.name] for field in fields(cls) if field.name in body}
