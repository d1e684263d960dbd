"""The PyPI package ``noos`` 0.1.0 in pure Python: change only the import line.

A `Regulator` of this module is also a `noetic_nb.regulator` one, so it also has ``explain``, ``decide_all``,
``reset_task`` and ``fork``. All deviations reduce breakage: events compare by value; events, decisions and regulators
can be copied and pickled; any thread may use a regulator; and numbers above 32 bits in a span saturate. The texts of
suggestions and errors are this library's: branch on ``kind`` and on exception classes, as with the compiled package.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, NoReturn, Self

from noetic_nb.errors import NoeticConfigError
from noetic_nb.regulator import _regulator as native
from noetic_nb.regulator import decisions, events
from noetic_nb.regulator._adapters.otel_spans import events_from_span
from noetic_nb.regulator._settings import RELEASE_SETTINGS
from noetic_nb.regulator._state import Person
from noetic_nb.regulator._task import trust
from noetic_nb.regulator.events import U32_MAX, U64_MAX, is_numpy_bool

__all__ = ["CircuitBreakReason", "CorrectionPattern", "Decision", "LLMEvent", "Regulator", "__version__", "install"]


def __dir__() -> list[str]:
    return __all__


def text(name: str, value: object) -> str:
    """Return a string; raises for lone surrogates."""
    if not isinstance(value, str):
        raise TypeError(f"argument '{name}': {type(value).__name__!r} object cannot be converted to 'PyString'")
    if not value.isascii():
        value.encode()  # a lone surrogate raises UnicodeEncodeError, as in the original
    return value


def optional_text(name: str, value: object) -> str | None:
    """Return a string or None."""
    return None if value is None else text(name, value)


def real(name: str, value: Any) -> float:
    """Return a value that converts to a double."""
    try:
        # Not float(value), which would accept strings. This accepts objects with __float__ or __index__.
        return math.fsum((value,))
    except TypeError as exc:
        raise TypeError(f"argument '{name}': must be real number, not {type(value).__name__}") from exc


def whole(name: str, value: Any, most: int) -> int:
    """Return a value that converts to an integer from 0 to `most`."""
    try:
        number = operator.index(value)
    except TypeError as exc:
        raise TypeError(
            f"argument '{name}': {type(value).__name__!r} object cannot be interpreted as an integer"
        ) from exc
    if not 0 <= number <= most:
        raise OverflowError(f"argument '{name}': out of range integral type conversion attempted")
    return number


def flag(name: str, value: object) -> bool:
    """Return a bool of Python or numpy; rejects values that merely convert to one."""
    if not isinstance(value, bool) and not is_numpy_bool(value):
        raise TypeError(f"argument '{name}': {type(value).__name__!r} object cannot be converted to 'PyBool'")
    return bool(value)


def spans(value: Any) -> tuple[tuple[int, int], ...] | None:
    """Return a sequence of pairs, or None."""
    if value is None:
        return None
    # C's notion of a sequence: subscriptable and not a mapping. A string is one, but is rejected all the same.
    if isinstance(value, str | dict | MappingProxyType) or not hasattr(type(value), "__getitem__"):
        raise TypeError("argument 'fragment_spans': must be a sequence of (start, end) tuples")
    read = []
    for span in value:
        if not isinstance(span, tuple):
            raise TypeError(
                f"argument 'fragment_spans': {type(span).__name__!r} object cannot be converted to 'PyTuple'"
            )
        if len(span) != 2:
            raise ValueError(f"expected tuple of length 2, but got tuple of length {len(span)}")
        read.append((whole("fragment_spans", span[0], U64_MAX), whole("fragment_spans", span[1], U64_MAX)))
    return tuple(read)


class _RecordView:
    """A read-only view of one typed record."""

    __slots__ = ("_record",)
    _record: Any

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError(f"No constructor defined for {type(self).__name__}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'noos.{type(self).__name__}' objects is not writable")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return view_of, (type(self), self._record)


def _reading(name: str, doc: str, read: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a property that reads one field of the record, or None if it has no such field."""

    def get(view: _RecordView) -> Any:
        value = getattr(view._record, name, None)
        return None if value is None else read(value)

    return property(get, doc=doc)


def view_of(cls: type[Any], record: object) -> Any:
    """Return a view of a record; the classes have no constructor."""
    # Bypasses `__init__` and `__setattr__`, which both raise.
    made = object.__new__(cls)
    object.__setattr__(made, "_record", record)
    return made


class CorrectionPattern(_RecordView):
    """The corrections of a user on one topic."""

    __slots__ = ()

    user_id: str = _reading("user_id", "Whose correction it was.")
    topic_cluster: str = _reading("topic_cluster", "On which topic.")
    pattern_name: str = _reading("pattern_name", "``corrections_on_`` and the cluster.")
    learned_from_turns: int = _reading("learned_from_turns", "How many corrections there were.")
    confidence: float = _reading("confidence", "A twentieth of that, at most 1.", float)
    example_corrections: list[str] = _reading("example_corrections", "The newest three, newest first.", list)

    def __repr__(self) -> str:
        # The compiled package prints two decimals.
        return (
            f"CorrectionPattern(user={self.user_id}, cluster={self.topic_cluster}, turns={self.learned_from_turns}, "
            f"conf={self.confidence:.2f})"
        )


class CircuitBreakReason(_RecordView):
    """Why a circuit break fired; branch on `kind`."""

    __slots__ = ()

    kind: str = _reading("kind", "Name of the variant.")
    tokens_spent: int | None = _reading("tokens_spent", "Output tokens spent.")
    tokens_cap: int | None = _reading("tokens_cap", "Cap on output tokens.")
    mean_quality_last_n: float | None = _reading("mean_quality_last_n", "Mean of the last three grades.")
    turns: int | None = _reading("turns", "Length of the window.")
    mean_delta: float | None = _reading("mean_delta", "Oldest minus newest grade of the window.")
    cluster: str | None = _reading("cluster", "Topic that kept failing.")
    failure_count: int | None = _reading("failure_count", "How often it failed.")
    tool_name: str | None = _reading("tool_name", "Tool that was called again and again.")
    consecutive_count: int | None = _reading("consecutive_count", "How often it was called in a row.")

    def __repr__(self) -> str:
        return f"CircuitBreakReason.{self.kind}"


class Decision(_RecordView):
    """The decision of a regulator; branch on `kind`."""

    __slots__ = ()

    kind: str = _reading("kind", "Name of the variant.")
    drift_score: float | None = _reading("drift_score", "Share of the reply that has no anchor in the task.")
    drift_tokens: list[str] | None = _reading("drift_tokens", "Words of the reply without an anchor.", list)
    task_tokens: list[str] | None = _reading("task_tokens", "Words of the task.", list)
    reason: CircuitBreakReason | None = _reading(
        "reason", "Why it stops.", lambda reason: view_of(CircuitBreakReason, reason)
    )
    suggestion: str | None = _reading("suggestion", "What to show the user.")
    patterns: list[CorrectionPattern] | None = _reading(
        "patterns",
        "Past corrections on this topic.",
        lambda patterns: [view_of(CorrectionPattern, pattern) for pattern in patterns],
    )

    def is_continue(self) -> bool:
        """Return whether no predicate holds."""
        return isinstance(self._record, decisions.Continue)

    def is_scope_drift(self) -> bool:
        """Return whether the reply strays from its task."""
        return isinstance(self._record, decisions.ScopeDriftWarn)

    def is_circuit_break(self) -> bool:
        """Return whether to stop."""
        return isinstance(self._record, decisions.CircuitBreak)

    def is_procedural_warning(self) -> bool:
        """Return whether the user has corrected this topic before."""
        return isinstance(self._record, decisions.ProceduralWarning)

    def is_low_confidence(self) -> bool:
        """Return whether parts of the reply were unlikely; reserved there: False unless `LowConfidence` is a predicate."""
        return isinstance(self._record, decisions.LowConfidenceSpans)

    def __repr__(self) -> str:
        return f"Decision.{self.kind}"


class LLMEvent:
    """An event; built by the factories, opaque except for `kind`.

    Examples
    --------
    >>> LLMEvent.cost(25, 400, 1_800)
    LLMEvent.cost
    """

    __slots__ = ()

    kind: ClassVar[str] = "event"

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Raise, because the factories build events."""
        raise TypeError("No constructor defined for LLMEvent")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'noos.LLMEvent' objects is not writable")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        # By kind, because the classes below are created at import and cannot be found by name.
        return _rebuild, (self.kind, _fields(self))

    def __repr__(self) -> str:
        return f"LLMEvent.{self.kind}"

    @staticmethod
    def turn_start(user_message: str) -> LLMEvent:
        """Return the event that opens a turn."""
        return _build(_TurnStart, user_message=text("user_message", user_message))

    @staticmethod
    def token(token: str, logprob: float, index: int) -> LLMEvent:
        """Return the event of one streamed token."""
        return _build(
            _Token, token=text("token", token), logprob=real("logprob", logprob), index=whole("index", index, U64_MAX)
        )

    @staticmethod
    def turn_complete(full_response: str) -> LLMEvent:
        """Return the event of the whole reply."""
        return _build(_TurnComplete, full_response=text("full_response", full_response))

    @staticmethod
    def cost(tokens_in: int, tokens_out: int, wallclock_ms: int, provider: str | None = None) -> LLMEvent:
        """Return the event of a call's usage."""
        return _build(
            _Cost,
            tokens_in=whole("tokens_in", tokens_in, U32_MAX),
            tokens_out=whole("tokens_out", tokens_out, U32_MAX),
            wallclock_ms=whole("wallclock_ms", wallclock_ms, U32_MAX),
            provider=optional_text("provider", provider),
        )

    @staticmethod
    def quality_feedback(quality: float, fragment_spans: Any = None) -> LLMEvent:
        """Return the event of a grade."""
        return _build(_QualityFeedback, quality=real("quality", quality), fragment_spans=spans(fragment_spans))

    @staticmethod
    def user_correction(correction_message: str, corrects_last: bool) -> LLMEvent:
        """Return the event of a user's correction."""
        return _build(
            _UserCorrection,
            correction_message=text("correction_message", correction_message),
            corrects_last=flag("corrects_last", corrects_last),
        )

    @staticmethod
    def tool_call(tool_name: str, args_json: str | None = None) -> LLMEvent:
        """Return the event of a tool being called."""
        name, args = text("tool_name", tool_name), optional_text("args_json", args_json)
        return _build(_ToolCall, tool_name=name, args_json=args)

    @staticmethod
    def tool_result(tool_name: str, success: bool, duration_ms: int, error_summary: str | None = None) -> LLMEvent:
        """Return the event of a tool having ended."""
        return _build(
            _ToolResult,
            tool_name=text("tool_name", tool_name),
            success=flag("success", success),
            duration_ms=whole("duration_ms", duration_ms, U64_MAX),
            error_summary=optional_text("error_summary", error_summary),
        )

    @staticmethod
    def from_otel_span_json(span_json: str) -> list[LLMEvent]:
        """Return the events of one OpenTelemetry GenAI span."""
        found = events_from_span(text("span_json", span_json), reading="original")
        return [_build(_EVENT_CLASSES[type(event)], **_fields(event)) for event in found]


def _event_class(base: type[Any]) -> Any:
    """Return one of our event classes in their form: the same fields, but no constructor."""
    # The fields again, because factories have the same names.
    slots = {name: base.__dict__[name] for name in base.__slots__}
    space = {"__slots__": (), "__module__": __name__, "kind": base.kind, **slots}
    return type(f"_{base.__name__}", (LLMEvent, base), space)


_EVENT_CLASSES: Final[dict[type[Any], type[Any]]] = {cls: _event_class(cls) for cls in events.EVENT_TYPES}
_TurnStart, _Token, _TurnComplete, _Cost, _QualityFeedback, _UserCorrection, _ToolCall, _ToolResult = (
    _EVENT_CLASSES.values()
)
for _event, _cls in _EVENT_CLASSES.items():
    trust(_cls, _event)


def _build(cls: type[Any], **values: object) -> LLMEvent:
    event: Any = object.__new__(cls)
    event.__init__(**values)
    made: LLMEvent = event
    return made


def _rebuild(kind: str, values: dict[str, Any]) -> LLMEvent:
    return _build(next(cls for cls in _EVENT_CLASSES.values() if cls.kind == kind), **values)


def _fields(event: Any) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in fields(event) if field.name != "usd"}


class Regulator(native.Regulator):
    """One task of one user under observation; build it with `for_user` or `from_json`.

    `Decision.suggestion` has the compiled package's remedy in this library's words: compare `reason.kind`, not texts.

    Examples
    --------
    >>> from noetic_nb.compat.noos import LLMEvent
    >>> regulator = Regulator.for_user("ann").with_cost_cap(1_000)
    >>> for _ in range(5):
    ...     regulator.on_event(LLMEvent.tool_call("search"))
    >>> regulator.decide().reason.consecutive_count
    5
    """

    __slots__ = ("_view", "_viewed")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The compiled class cannot be called; `for_user`, `from_json` and `fork` pass a `Person`.
        if not args or not isinstance(args[0], Person):
            raise TypeError("No constructor defined for Regulator")
        super().__init__(*args, **kwargs)
        self._viewed: decisions.Decision | None = None
        self._view: Decision | None = None

    @classmethod
    def for_user(cls, user_id: str) -> Self:  # type: ignore[override]  # the compiled one takes no other argument
        """Return a fresh regulator."""
        return cls(Person(text("user_id", user_id)))

    @classmethod
    def from_json(cls, json_str: str) -> Self:  # type: ignore[override]
        """Return a regulator from a snapshot; raises ValueError for an invalid one."""
        text("json_str", json_str)
        return super().from_json(json_str, as_original=True)

    def with_cost_cap(self, cap_tokens: int) -> Self:
        """Set the cap on output tokens."""
        return super().with_cost_cap(whole("cap_tokens", cap_tokens, U32_MAX))

    def with_implicit_correction_window_secs(self, window_secs: float) -> Self:
        """Count a message on the same topic within `window_secs` seconds of a reply as a correction."""
        seconds = real("window_secs", window_secs)
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"window_secs must be a positive finite number, got {seconds:g}")
        return super().with_implicit_correction_window_secs(seconds)

    def with_scope_drift_threshold(self, threshold: float) -> Self:
        """Set the score from which a reply counts as drifting; exists only in newer releases of the original."""
        value = real("threshold", threshold)
        if not 0 <= value <= 1:
            raise ValueError(f"threshold must be a finite number in [0, 1], got {value:g}")
        return super().with_scope_drift_threshold(value)

    def decide(self) -> Decision:  # type: ignore[override]  # a view of the same decision
        """Return the decision for the current state."""
        decision = native.Regulator.decide(self)
        # One view per decision, so that a loop that reads it repeatedly creates it once.
        if decision is not self._viewed or self._view is None:
            self._viewed, self._view = decision, view_of(Decision, decision)
        return self._view

    def inject_corrections(self, user_prompt: str) -> str:  # type: ignore[override]
        """Return the prompt below past corrections, or unchanged."""
        return super().inject_corrections(text("user_prompt", user_prompt))

    def metrics_snapshot(self) -> dict[str, float]:
        """Return every reading; without the drift threshold unless settings go beyond 0.1.0, which lacks that key."""
        readings = super().metrics_snapshot()
        settings = replace(self.settings, implicit_window_s=None)
        # A cap and a window are the two settings of the compiled package.
        if settings.with_cost_cap(0) == RELEASE_SETTINGS.with_cost_cap(0):
            readings.pop("noos.scope_drift_threshold", None)
        return readings

    def __repr__(self) -> str:
        return f"Regulator(user={self.user_id()}, total_tokens_out={self.total_tokens_out()})"


__version__ = "0.1.0"


def install() -> None:
    """Make ``import noos`` mean this module in the whole process, for packages whose import lines you cannot change.

    Call it before anything imports ``noos``; a second call changes nothing.

    Raises
    ------
    NoeticConfigError
        ``ALREADY_IMPORTED`` if the compiled package is in use: some code already holds its classes, and each package
        rejects the other's events.

    Examples
    --------
    >>> from noetic_nb.compat import noos
    >>> noos.install()                                              # doctest: +SKIP
    >>> import noos                                                 # doctest: +SKIP
    """
    this = sys.modules[__name__]
    present = sys.modules.setdefault("noos", this)
    if present is not this:
        what = "Another package named noos is imported already, so its classes are in use."
        hint = "Call install() first, before any import of noos."
        raise NoeticConfigError("ALREADY_IMPORTED", what, given=getattr(present, "__file__", None), hint=hint)
