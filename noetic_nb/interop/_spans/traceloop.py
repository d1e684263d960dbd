"""Traceloop's conventions: numbered prompts and completions, and inputs and outputs of entities as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.interop._spans.dialect import Dialect, Kind, counted
from noetic_nb.interop._spans.openinference import by_name, messages
from noetic_nb.interop._spans.span_history import History, read_history
from noetic_nb.interop._spans.span_messages import SpanMessage, parsed, read_messages
from noetic_nb.interop._spans.span_record import Span

__all__ = ["Traceloop"]

_KINDS: Final[Mapping[str, Kind]] = {"tool": "tool", "agent": "agent", "workflow": "other", "task": "other"}
_REQUESTS: Final = frozenset(["chat", "completion"])
_USAGE: Final = {"input_tokens": ("llm.usage.prompt_tokens",), "output_tokens": ("llm.usage.completion_tokens",)}
_SESSION: Final = "traceloop.association.properties."


class Traceloop(Dialect):
    """Spans of OpenLLMetry, before and beside OpenTelemetry's conventions."""

    name = "Traceloop"
    prefixes = ("traceloop.", "llm.", "gen_ai.prompt.", "gen_ai.completion.")

    def kind(self, span: Span) -> Kind | None:
        """Return the kind of the entity, or of the request."""
        kind = span.attributes.get("traceloop.span.kind")
        if isinstance(kind, str):
            return _KINDS.get(kind, "other")
        request = span.attributes.get("llm.request.type")
        if isinstance(request, str):
            return "model" if request in _REQUESTS else "other"
        return None

    def conversation(self, span: Span) -> str | None:
        """Return the thread or session of the properties."""
        return span.text(*[f"{_SESSION}{name}" for name in ("conversation_id", "thread_id", "session_id")])

    def inputs(self, span: Span) -> History | None:
        """Return the prompts; of an entity its input."""
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

    def outputs(self, span: Span) -> list[SpanMessage] | None:
        """Return the completion; of an entity its output."""
        for prefix in ("gen_ai.completion.", "llm.completions."):
            found = messages(span, prefix, "assistant")
            if found is not None:
                return found[:1]
        value = _inner(span.attributes.get("traceloop.entity.output"), "outputs")
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            read = read_messages(value["messages"], "assistant") or []
            return [msg for msg in read[-1:] if msg.role == "assistant"] or None
        return read_messages([{"role": "assistant", "content": value}]) if isinstance(value, str) and value else None

    def tool_input(self, span: Span) -> Any:
        """Return the arguments, without their wrapping."""
        if self.kind(span) != "tool":
            return None
        found = parsed(span.attributes.get("traceloop.entity.input"))
        bound = by_name(found)
        return found if bound is None else bound

    def tool_output(self, span: Span) -> Any:
        """Return the result."""
        return span.attributes.get("traceloop.entity.output") if self.kind(span) == "tool" else None

    def tool_name(self, span: Span) -> str | None:
        """Return the name of the entity."""
        return span.text("traceloop.entity.name") if self.kind(span) == "tool" else None

    def agent_name(self, span: Span) -> str | None:
        """Return the name of the entity."""
        return span.text("traceloop.entity.name")

    def model(self, span: Span) -> str | None:
        """Return the model, by the older names."""
        return span.text("llm.request.model", "llm.response.model")

    def usage(self, span: Span) -> Mapping[str, int] | None:
        """Return the tokens, by the older names."""
        return counted(span, _USAGE)

    def finish(self, span: Span) -> str | None:
        """Return why the first completion ended."""
        return span.text("gen_ai.completion.0.finish_reason", "llm.completions.0.finish_reason")


def _inner(value: Any, key: str) -> Any:
    found = parsed(value)
    return found.get(key, found) if isinstance(found, Mapping) else found
