"""The fields of a span in any dialect: model calls, tool calls and memory operations of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from noetic_nb.interop._spans import span_messages as talk
from noetic_nb.interop._spans.dialect import Dialect, History, Kind, read_history
from noetic_nb.interop._spans.genai import GenAI, GenAIEvents
from noetic_nb.interop._spans.openinference import OpenInference, by_name, messages
from noetic_nb.interop._spans.span_record import MAPPINGS, Span

_KINDS: Final[Mapping[str, Kind]] = {"tool": "tool", "agent": "agent", "workflow": "other", "task": "other"}
_REQUESTS: Final = frozenset(["chat", "completion"])
_SESSION: Final = "traceloop.association.properties."


class Traceloop(Dialect):
    """OpenLLMetry spans, which predate OpenTelemetry's conventions and also accompany them."""

    texts: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "conversation": tuple([f"{_SESSION}{name}" for name in ("conversation_id", "thread_id", "session_id")]),
        "agent_name": ("traceloop.entity.name",),
        "model": ("llm.request.model", "llm.response.model"),
        "finish": ("gen_ai.completion.0.finish_reason", "llm.completions.0.finish_reason"),
    }
    tokens: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "input_tokens": ("llm.usage.prompt_tokens",),
        "output_tokens": ("llm.usage.completion_tokens",),
    }

    def kind(self, span: Span) -> Kind | None:
        """Return the kind of the entity, or of the request."""
        kind = span.attributes.get("traceloop.span.kind")
        if isinstance(kind, str):
            return _KINDS.get(kind, "other")
        request = span.attributes.get("llm.request.type")
        if isinstance(request, str):
            return "model" if request in _REQUESTS else "other"
        return None

    def inputs(self, span: Span) -> History | None:
        """Return the prompts, or the input of an entity."""
        for prefix in ("gen_ai.prompt.", "llm.prompts."):
            found = messages(span, prefix, "user")
            if found is not None:
                return History(found)
        value = _inner(span.attributes.get("traceloop.entity.input"), "inputs")
        if isinstance(value, Mapping):
            if isinstance(value.get("messages"), list):
                return read_history(value["messages"])
            value = next((value[key] for key in ("input", "query", "question", "task") if key in value), None)
        return read_history([{"role": "user", "content": value}]) if isinstance(value, str) and value else None

    def outputs(self, span: Span) -> list[talk.SpanMessage] | None:
        """Return the completion, or the output of an entity."""
        for prefix in ("gen_ai.completion.", "llm.completions."):
            found = messages(span, prefix, "assistant")
            if found is not None:
                return found[:1]
        value = _inner(span.attributes.get("traceloop.entity.output"), "outputs")
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            read = talk.read_messages(value["messages"], "assistant") or []
            return [msg for msg in read[-1:] if msg.role == "assistant"] or None
        return (
            talk.read_messages([{"role": "assistant", "content": value}]) if isinstance(value, str) and value else None
        )

    def tool_input(self, span: Span) -> Any:
        """Return the arguments, unwrapped."""
        if self.kind(span) != "tool":
            return None
        found = talk.parsed(span.attributes.get("traceloop.entity.input"))
        bound = by_name(found)
        return found if bound is None else bound

    def tool_output(self, span: Span) -> Any:
        return span.attributes.get("traceloop.entity.output") if self.kind(span) == "tool" else None

    def tool_name(self, span: Span) -> str | None:
        return span.text("traceloop.entity.name") if self.kind(span) == "tool" else None


def _inner(value: Any, key: str) -> Any:
    found = talk.parsed(value)
    return found.get(key, found) if isinstance(found, Mapping) else found


# A span often has several dialects; the current conventions come first.
DIALECTS: Final[tuple[Dialect, ...]] = (GenAI(), GenAIEvents(), OpenInference(), Traceloop())


def first(field: str, span: Span) -> Any:
    """Return the first result of a dialect that is not None."""
    for dialect in DIALECTS:
        if (names := dialect.texts.get(field)) is not None:
            found = span.text(*names)
        else:
            read = getattr(dialect, field, None)
            found = None if read is None else read(span)
        if found is not None:
            return found
    return None


def kind_of(span: Span) -> Kind:
    found: Kind | None = first("kind", span)
    return found or "other"


def conversation_of(span: Span) -> str | None:
    found: str | None = first("conversation", span)
    return found


@dataclass(slots=True)
class ModelUse:
    """One model call; fields missing in its dialect are None."""

    span: Span
    inputs: History | None
    outputs: list[talk.SpanMessage] | None
    model: str | None
    usage: Mapping[str, int] | None
    cost: float | None
    params: Mapping[str, Any] | None
    finish: str | None
    error: str | None

    @property
    def is_summary(self) -> bool:
        """Whether LangChain marks the call as a summary that replaces part of the context."""
        about = talk.parsed(self.span.attributes.get("metadata"))
        said = about.get("lc_source") if isinstance(about, Mapping) else None
        return (self.span.attributes.get("lc_source") or said) == "summarization"

    @property
    def system(self) -> str | None:
        """The system prompt, sent apart or among the messages."""
        found: str | None = first("system", self.span)
        if found is None and self.inputs is not None:
            found = talk.words_of(self.inputs.messages, "system") or None
        return found


@dataclass(slots=True)
class ToolUse:
    """One tool call; `given` is the text on the span if it is not a mapping of arguments."""

    span: Span
    name: str
    call_id: str | None
    args: Mapping[str, Any] | None
    given: Any
    output: str | None
    failed: bool
    error: str | None
    error_type: str | None
    children: list[Any] = field(default_factory=list)


def model_use(span: Span) -> ModelUse:
    outputs: list[talk.SpanMessage] | None = first("outputs", span)
    finish: str | None = first("finish", span)
    if not finish:
        for msg in outputs or ():
            finish = finish or msg.finish
    return ModelUse(
        span,
        first("inputs", span),
        outputs,
        first("model", span),
        first("usage", span),
        first("cost", span),
        first("params", span),
        finish,
        _error(span)[0] if span.failed or (span.events and _exception(span) is not None) else None,
    )


def _exception(span: Span) -> Mapping[str, Any] | None:
    for event in span.events:
        if event.name == "exception":
            return event.attributes
    return None


def _error(span: Span, output: str | None = None) -> tuple[str, str | None]:
    """Return an error's message and class; an exception says most, a status that repeats the class says least."""
    raised = _exception(span) or {}
    kind = raised.get("exception.type") or span.attributes.get("error.type")
    kind = kind if isinstance(kind, str) and kind else None
    message = raised.get("exception.message")
    if isinstance(message, str) and message:
        return message, kind
    if span.problem and span.problem != kind:
        return span.problem, kind
    return output or span.problem or kind or "failed", kind


def tool_use(span: Span) -> ToolUse:
    """Read a span of a tool call, and unwrap arguments and results that a framework wrapped."""
    given = talk.parsed(first("tool_input", span))
    call_id: str | None = first("call_id", span)
    if isinstance(given, MAPPINGS) and "input_str" in given:  # passed to LangChain's callbacks
        extra = given.get("kwargs")
        if call_id is None and isinstance(extra, Mapping) and isinstance(extra.get("tool_call_id"), str):
            call_id = extra["tool_call_id"]
        given = given["inputs"] if isinstance(given.get("inputs"), Mapping) else given["input_str"]
    answer = _answer(first("tool_output", span))
    if call_id is None and answer is not None:
        call_id = answer.call_id
    output = None if answer is None else answer.output
    status = span.attributes.get("gen_ai.tool.status", span.attributes.get("gen_ai.task.status"))
    failed = (
        span.failed
        or isinstance(span.attributes.get("error.type"), str)
        or status in ("error", "failure")
        or (answer is not None and answer.failed is True)
    )
    error, error_type = _error(span, output) if failed else (None, None)
    return ToolUse(
        span,
        first("tool_name", span) or span.name or "tool",
        call_id,
        talk.arguments_of(given),
        given,
        output,
        failed,
        error,
        error_type,
    )


def _answer(value: Any) -> talk.Result | None:
    if value is None:
        return None
    found = talk.parsed(value)
    if found is value and isinstance(value, str):  # plain text, the output of most tools
        return talk.Result(None, None, value)
    if isinstance(found, MAPPINGS):
        inner = found.get("output") if set(found) <= {"output", "kwargs"} and "output" in found else found
        is_dump = isinstance(inner, MAPPINGS) and ("lc" in inner or (inner.get("type") == "tool" and "data" in inner))
        if is_dump:
            for msg in talk.read_messages([inner], "tool") or ():
                for result in msg.results:
                    return result
        if inner is not found:
            return talk.Result(None, None, talk.result_of(inner))
    if isinstance(found, list) and found and all(isinstance(part, Mapping) and set(part) == {"text"} for part in found):
        return talk.Result(None, None, talk.result_of(found))
    return talk.Result(None, None, talk.result_of(value))


def merged(outer: Any, inner: Any) -> Any:
    """Merge two instrumentations' spans of one call: the outer span, with fields that only the inner one has."""
    names = (
        ("inputs", "outputs", "model", "usage", "cost", "params", "finish", "error")
        if isinstance(outer, ModelUse)
        else ("call_id", "args", "given", "output", "error", "error_type")
    )
    missing = {name: getattr(inner, name) for name in names if getattr(outer, name) is None}
    if isinstance(outer, ModelUse) and (outer.usage or inner.usage):
        missing["usage"] = {**(inner.usage or {}), **(outer.usage or {})}
    return replace(outer, **missing)
