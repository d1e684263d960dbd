"""The events of a run, as eight frozen records.

Creating an event validates nothing; `check` does, and so do `from_dict` and `Regulator.on_event` (for a token,
`on_event` checks only the used types). NumPy and pandas numbers are accepted wherever a number is, and fractions of a
millisecond in durations, which are rounded half to even when counted or written. Two additions to the original are
optional and omitted from JSON while unset: `Cost.usd` and `ToolResult.output`.

References
----------
.. [1] docs/behaviour/regulator.md, "Events".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, get_args

__all__ = [
    "Cost",
    "Event",
    "QualityFeedback",
    "Token",
    "ToolCall",
    "ToolResult",
    "TurnComplete",
    "TurnStart",
    "UserCorrection",
    "check",
    "from_dict",
    "plain",
    "to_camel_dict",
    "to_dict",
]


def __dir__() -> list[str]:
    return sorted(__all__)


U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
"""Largest integers in the original's events and snapshots; some JSON writers cannot write larger ones either."""


@dataclass(frozen=True, slots=True)
class TurnStart:
    """A user message starts a turn; per-turn state is cleared."""

    kind: ClassVar[str] = "turn_start"
    user_message: str


@dataclass(frozen=True, slots=True)
class Token:
    """One streamed token; a logprob that is not finite and negative means "not reported"."""

    kind: ClassVar[str] = "token"
    token: str
    logprob: float
    index: int


@dataclass(frozen=True, slots=True)
class TurnComplete:
    """The whole reply, streamed or not."""

    kind: ClassVar[str] = "turn_complete"
    full_response: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The usage of one provider call; `usd` only if the caller knows the price."""

    kind: ClassVar[str] = "cost"
    tokens_in: int
    tokens_out: int
    wallclock_ms: float
    provider: str | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class QualityFeedback:
    """How good the last reply was, 0 to 1; values that are not finite are dropped."""

    kind: ClassVar[str] = "quality_feedback"
    quality: float
    fragment_spans: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        spans = self.fragment_spans
        if spans is not None and isinstance(spans, list | tuple):  # copy a list: an event never changes
            frozen = tuple([tuple(span) if isinstance(span, list) else span for span in spans])
            object.__setattr__(self, "fragment_spans", frozen)


@dataclass(frozen=True, slots=True)
class UserCorrection:
    """The user corrects the agent; dropped unless it `corrects_last`."""

    kind: ClassVar[str] = "user_correction"
    correction_message: str
    corrects_last: bool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The agent calls a tool."""

    kind: ClassVar[str] = "tool_call"
    tool_name: str
    args_json: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool returned; `output` is context for drift scorers and is only kept for a few calls."""

    kind: ClassVar[str] = "tool_result"
    tool_name: str
    success: bool
    duration_ms: float
    error_summary: str | None = None
    output: str | None = None


E = TypeVar("E", bound="Event")
Event: TypeAlias = TurnStart | Token | TurnComplete | Cost | QualityFeedback | UserCorrection | ToolCall | ToolResult

EVENT_TYPES: Final[tuple[type[Event], ...]] = get_args(Event)
_BY_KIND: Final[dict[str, type[Event]]] = {cls.kind: cls for cls in EVENT_TYPES}
_BY_TAG: Final[dict[str, type[Event]]] = {cls.__name__: cls for cls in EVENT_TYPES}
# Omitted from JSON while unset, so that the original can read it.
_OURS: Final = {("cost", "usd"), ("tool_result", "output")}


def shown(value: object) -> str:
    """Return a value as shown in error messages; Python itself refuses to print an integer of more than 4300 digits."""
    try:
        return f"{value!r:.120}"
    except ValueError:
        return f"{type(value).__name__} with a number of too many digits to print"


def is_numpy_bool(value: object) -> bool:
    """Tell whether a value is a NumPy bool, without importing NumPy."""
    cls = type(value)
    return cls.__module__ == "numpy" and cls.__name__ in ("bool", "bool_")


# Each of these rejects a value or returns it as a plain Python value; the same object if it is already plain.


def require_text(key: str, value: object) -> str:
    """Reject a value that is not a string, or contains a lone surrogate."""
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string. Given: {shown(value)}.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise ValueError(
                f"{key} holds a lone surrogate at character {exc.start}. Given: {value!r:.80}. "
                "Decode the text with errors='replace' first."
            ) from exc
    return value


def accepted_text(text: str) -> str:
    """Return text in a form that regulators accept: lone surrogates, which some models emit, are replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _optional_text(key: str, value: object) -> str | None:
    return None if value is None else require_text(key, value)


def _real(key: str, value: object) -> float:
    # Allow NaN and infinity: providers send them, and readers of these numbers skip them.
    if not isinstance(value, int | float | Real):
        raise TypeError(f"{key} must be a number. Given: {shown(value)}.")
    try:
        number = float(value)
    except OverflowError as exc:
        raise ValueError(f"{key} is too large for a double. Given: an integer of many digits.") from exc
    return value if value.__class__ in _PLAIN_NUMBERS else number  # type: ignore[return-value]  # an int or a float


def _flag(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not is_numpy_bool(value):
        raise TypeError(f"{key} must be True or False. Given: {shown(value)}.")
    return bool(value)


def _whole(key: str, value: object, most: int = U64_MAX) -> int:
    # Accept True as 1, like the compiled original.
    if not isinstance(value, int | Integral):
        raise TypeError(f"{key} must be an integer. Given: {shown(value)}.")
    number = int(value)
    if not 0 <= number <= most:
        raise ValueError(
            f"{key} must be at least 0 and at most {most}. Given: an integer of {number.bit_length()} bits."
        )
    return value if value.__class__ in _PLAIN_NUMBERS else number  # type: ignore[return-value]  # an int or a bool


def _time(key: str, value: object, most: int = U64_MAX) -> int:
    # Clocks return fractions; the original counts whole milliseconds, and so does every snapshot and log.
    if isinstance(value, float | Real) and not isinstance(value, int | Integral):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{key} must be finite. Given: {shown(value)}.")
        return _whole(key, round(number), most)
    return _whole(key, value, most)


def _money(key: str, value: object) -> float | None:
    if value is None:
        return None
    number = _real(key, value)
    if not 0 <= float(number) < float("inf"):
        raise ValueError(f"{key} must be finite and at least 0. Given: {shown(value)}.")
    return number


def _spans(key: str, value: object) -> tuple[tuple[int, int], ...] | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list):
        raise TypeError(f"{key} must be a sequence of (start, end) pairs. Given: {shown(value)}.")
    for span in value:
        if not isinstance(span, tuple | list) or len(span) != 2:
            raise TypeError(f"{key} must hold (start, end) pairs. Given: {shown(span)}.")
    read = tuple([(_whole(f"{key} start", start), _whole(f"{key} end", end)) for start, end in value])
    is_plain = value.__class__ is tuple and all(
        old.__class__ is tuple and old[0] is new[0] and old[1] is new[1] for old, new in zip(value, read, strict=True)
    )
    return value if is_plain else read  # type: ignore[return-value]  # compared above


_PLAIN_NUMBERS: Final = frozenset({int, float, bool})
_READERS: Final[dict[str, Callable[[str, object], Any]]] = {
    "user_message": require_text,
    "token": require_text,
    "logprob": _real,
    "index": _whole,
    "full_response": require_text,
    "tokens_in": partial(_whole, most=U32_MAX),
    "tokens_out": partial(_whole, most=U32_MAX),
    "wallclock_ms": partial(_time, most=U32_MAX),
    "provider": _optional_text,
    "usd": _money,
    "quality": _real,
    "fragment_spans": _spans,
    "correction_message": require_text,
    "corrects_last": _flag,
    "tool_name": require_text,
    "args_json": _optional_text,
    "success": _flag,
    "duration_ms": _time,
    "error_summary": _optional_text,
    "output": _optional_text,
}
_NAMES: Final[dict[str, tuple[str, ...]]] = {cls.kind: tuple(f.name for f in fields(cls)) for cls in EVENT_TYPES}
_REQUIRED: Final = frozenset((cls.kind, f.name) for cls in EVENT_TYPES for f in fields(cls) if f.default is MISSING)


def check(event: Event) -> None:
    """Reject an event with a field of the wrong type or range.

    Raises
    ------
    TypeError
        If a field has the wrong type, or the value is not an event at all.
    ValueError
        If a number is out of range, or a text contains a lone surrogate.

    Examples
    --------
    >>> check(Cost(1, -2, 3))
    Traceback (most recent call last):
    ...
    ValueError: tokens_out must be at least 0 and at most 4294967295. Given: an integer of 2 bits.
    """
    plain(event)


def plain(event: E) -> E:
    """Return an event with plain Python numbers and whole milliseconds; the same event if it is plain. Raises as `check`.

    Examples
    --------
    >>> [plain(Cost(1, 2, milliseconds)).wallclock_ms for milliseconds in (2.5, 3.5)]
    [2, 4]
    """
    if not isinstance(event, EVENT_TYPES):
        raise TypeError(f"A regulator only accepts events such as TurnStart(...). Given: {shown(event)}.")
    changes: dict[str, Any] = {}
    for name in _NAMES[event.kind]:
        value = getattr(event, name)
        read = _READERS[name](name, value)
        if read is not value:
            changes[name] = read
    return replace(event, **changes) if changes else event


def to_dict(event: Event) -> dict[str, Any]:
    """Return an event as plain snake_case JSON, durations in whole milliseconds; rejects the same events as `check`.

    Examples
    --------
    >>> to_dict(UserCorrection("shorter", True))
    {'kind': 'user_correction', 'correction_message': 'shorter', 'corrects_last': True}
    """
    return {"kind": event.kind, **_body(event)}


def to_camel_dict(event: Event) -> dict[str, Any]:
    """Return an event in the original's externally tagged form; otherwise like `to_dict`.

    Examples
    --------
    >>> to_camel_dict(TurnStart("hi"))
    {'TurnStart': {'user_message': 'hi'}}
    """
    return {_BY_KIND[event.kind].__name__: _body(event)}


def _body(event: Event) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name in _NAMES[event.kind]:
        value = _READERS[name](name, getattr(event, name))
        if value is None and (event.kind, name) in _OURS:
            continue
        body[name] = [list(span) for span in value] if name == "fragment_spans" and value is not None else value
    return body


def from_dict(data: Mapping[str, Any]) -> Event:
    """Parse an event in either form and check it.

    Parameters
    ----------
    data : mapping
        ``{"kind": "turn_start", "user_message": "hi"}`` or ``{"TurnStart": {"user_message": "hi"}}``. Optional fields may be
        missing; unknown keys are ignored.

    Raises
    ------
    ValueError
        If the kind is unknown or missing, a required key is missing, or a value is out of range.
    TypeError
        If `data` is not a mapping or a value has the wrong type.

    Examples
    --------
    >>> from_dict({"Cost": {"tokens_in": 1, "tokens_out": 2, "wallclock_ms": 3, "provider": None}})
    Cost(tokens_in=1, tokens_out=2, wallclock_ms=3, provider=None, usd=None)
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"An event must be a mapping. Given: {shown(data)}.")
    if "kind" in data:
        cls, body = _BY_KIND.get(data["kind"]) if isinstance(data["kind"], str) else None, data
    else:
        tag, body = next(iter(data.items()), ("", {}))
        cls = _BY_TAG.get(tag) if isinstance(tag, str) and len(data) == 1 else None
    if cls is None:
        raise ValueError(
            f"An event needs a `kind`, one of {sorted(_BY_KIND)}, or one CamelCase tag. Given: {shown(data)}."
        )
    if not isinstance(body, Mapping):
        raise TypeError(f"{cls.__name__} needs a mapping of its fields. Given: {shown(body)}.")
    values: dict[str, Any] = {}
    for name in _NAMES[cls.kind]:
        if name in body:
            values[name] = body[name]
        elif (cls.kind, name) in _REQUIRED:
            raise ValueError(f"{cls.kind} lacks the key `{name}`. Given: {shown(body)}.")
    # Checked before conversion to tuples, so that the error shows the given value.
    if isinstance(values.get("fragment_spans"), list):
        values["fragment_spans"] = _spans("fragment_spans", values["fragment_spans"])
    return plain(cls(**values))
