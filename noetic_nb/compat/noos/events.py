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
        return _build(
            _Token, token=text("token", token), logprob=real("logprob", logprob), index=whole("index", index, U64_MAX)
        )

    @staticmethod
    def turn_complete(full_response: str) -> LLMEvent:
        """Return the event of the whole reply."""
        return _build(_TurnComplete, full_response=text("full_response", full_response))

    @staticmethod
    def cost(tokens_in: int, tokens_out: int, wallclock_ms: int, provider: str | None = None) -> LLMEvent:
        """Return the event of what a call used."""
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
        """Return the event of a user pushing back."""
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
    """Return an event of ours as one of theirs: the same fields, and nothing to construct it with."""
    # The fields again, over factories of the same names.
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
