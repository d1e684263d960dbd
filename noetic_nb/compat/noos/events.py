"""Events of the compiled package: opaque, built by factories, typed underneath."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Final, NoReturn, Self

from noetic_nb.compat.noos.argument_checks import flag, optional_text, real, spans, text, whole
from noetic_nb.regulator import events
from noetic_nb.regulator._adapters.otel_spans import events_from_span
from noetic_nb.regulator._task import trust
from noetic_nb.regulator.events import U32_MAX, U64_MAX

__all__ = ["LLMEvent"]


class LLMEvent:
    """An event; built by the factories, opaque but for `kind`.

    Examples
    --------
    >>> LLMEvent.cost(25, 400, 1_800)
    LLMEvent.cost
    """

    __slots__ = ()

    kind: ClassVar[str] = "event"

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse: the factories build events."""
        raise TypeError("No constructor defined for LLMEvent")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'noos.LLMEvent' objects is not writable")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        # By kind, because the classes below are made at import and cannot be found by their names.
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
        if (
            token.__class__ is not str
            or logprob.__class__ is not float
            or index.__class__ is not int
            or not (token.isascii() and 0 <= index <= U64_MAX)
        ):
            token, logprob, index = text("token", token), real("logprob", logprob), whole("index", index, U64_MAX)
        # Assigning __class__ swaps a plain object for a frozen one of the same layout, without a second copy.
        event: Any = _TokenDraft(token, logprob, index)
        event.__class__ = _Token
        made: LLMEvent = event
        return made

    @staticmethod
    def turn_complete(full_response: str) -> LLMEvent:
        """Return the event of the whole reply."""
        return _build(_TurnComplete, full_response=text("full_response", full_response))

    @staticmethod
    def cost(tokens_in: int, tokens_out: int, wallclock_ms: int, provider: str | None = None) -> LLMEvent:
        """Return the event of what a call used."""
        # One shift tests three ranges: a negative or a 33rd bit in any of them survives the union.
        if (
            not tokens_in.__class__ is tokens_out.__class__ is wallclock_ms.__class__ is int
            or (tokens_in | tokens_out | wallclock_ms) >> 32
        ):
            tokens_in = whole("tokens_in", tokens_in, U32_MAX)
            tokens_out = whole("tokens_out", tokens_out, U32_MAX)
            wallclock_ms = whole("wallclock_ms", wallclock_ms, U32_MAX)
        if provider is not None and (provider.__class__ is not str or not provider.isascii()):
            provider = text("provider", provider)
        event: Any = _CostDraft(tokens_in, tokens_out, wallclock_ms, provider)
        event.__class__ = _Cost
        made: LLMEvent = event
        return made

    @staticmethod
    def quality_feedback(quality: float, fragment_spans: Any = None) -> LLMEvent:
        """Return the event of a grade."""
        return _build(_QualityFeedback, quality=real("quality", quality), fragment_spans=spans(fragment_spans))

    @staticmethod
    def user_correction(correction_message: str, corrects_last: bool) -> LLMEvent:
        """Return the event of a user pushing back."""
        return _build(
            _UserCorrection,
            correction_message=text("correction_message", correction_message),
            corrects_last=flag("corrects_last", corrects_last),
        )

    @staticmethod
    def tool_call(tool_name: str, args_json: str | None = None) -> LLMEvent:
        """Return the event of a tool being called."""
        if tool_name.__class__ is not str or not tool_name.isascii():
            tool_name = text("tool_name", tool_name)
        if args_json is not None and (args_json.__class__ is not str or not args_json.isascii()):
            args_json = text("args_json", args_json)
        event: LLMEvent = _new(_ToolCall)
        _set_call_name(event, tool_name)
        _set_args_json(event, args_json)
        return event

    @staticmethod
    def tool_result(tool_name: str, success: bool, duration_ms: int, error_summary: str | None = None) -> LLMEvent:
        """Return the event of a tool having ended."""
        return _build(
            _ToolResult,
            tool_name=text("tool_name", tool_name),
            success=flag("success", success),
            duration_ms=whole("duration_ms", duration_ms, U64_MAX),
            error_summary=optional_text("error_summary", error_summary),
            output=None,
        )

    @staticmethod
    def from_otel_span_json(span_json: str) -> list[LLMEvent]:
        """Return the events of one OpenTelemetry GenAI span."""
        found = events_from_span(text("span_json", span_json), reading="original")
        return [_build(_EVENT_CLASSES[type(event)], **_fields(event)) for event in found]


def _event_class(base: type[Any]) -> Any:
    """Return an event of ours as one of theirs: the same fields, and nothing to construct it with."""
    return type(f"_{base.__name__}", (LLMEvent, base), {"__slots__": (), "__module__": __name__, "kind": base.kind})


_TurnStart, _TurnComplete, _QualityFeedback, _UserCorrection, _ToolCall, _ToolResult = map(
    _event_class,
    (
        events.TurnStart,
        events.TurnComplete,
        events.QualityFeedback,
        events.UserCorrection,
        events.ToolCall,
        events.ToolResult,
    ),
)


class _Token(LLMEvent, events.Token):
    __slots__ = ()
    kind = events.Token.kind
    token = events.Token.__dict__["token"]  # the field, over the factory of the same name


class _TokenDraft:
    """A token while it is written: same layout, not yet frozen. Turning it into one is the quickest way to a frozen event."""

    __slots__ = ("token", "logprob", "index")  # noqa: RUF023  # the layout is that of events.Token

    def __init__(self, token: str, logprob: float, index: int) -> None:
        self.token = token
        self.logprob = logprob
        self.index = index


class _Cost(LLMEvent, events.Cost):
    __slots__ = ()
    kind = events.Cost.kind
    usd = None  # shadows the slot: the compiled package knows no prices, and one slot fewer is written


class _CostDraft:
    """A cost while it is written."""

    __slots__ = ("tokens_in", "tokens_out", "wallclock_ms", "provider", "usd")  # noqa: RUF023  # as in events.Cost

    def __init__(self, tokens_in: int, tokens_out: int, wallclock_ms: int, provider: str | None) -> None:
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.wallclock_ms = wallclock_ms
        self.provider = provider


_EVENT_CLASSES: Final[dict[type[Any], type[Any]]] = {
    cls.__bases__[1]: cls
    for cls in (_TurnStart, _Token, _TurnComplete, _Cost, _QualityFeedback, _UserCorrection, _ToolCall, _ToolResult)
}
# The factories have checked every field, so a regulator need not do so again.
for _event, _cls in _EVENT_CLASSES.items():
    trust(_cls, _event)

# Writing slots directly is how a frozen event is made at half the price of its initialiser.
_new: Final[Any] = object.__new__
_set_call_name: Final = events.ToolCall.__dict__["tool_name"].__set__
_set_args_json: Final = events.ToolCall.__dict__["args_json"].__set__


def _build(cls: type[Any], **values: object) -> LLMEvent:
    event: LLMEvent = _new(cls)
    for name, value in values.items():
        object.__setattr__(event, name, value)
    return event


def _rebuild(kind: str, values: dict[str, Any]) -> LLMEvent:
    return _build(next(cls for cls in _EVENT_CLASSES.values() if cls.kind == kind), **values)


def _fields(event: Any) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in fields(event) if field.name != "usd"}
