"""OpenInference's conventions: messages as flat numbered attributes, and input and output values on every span."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from noetic_nb._core.names import meanings
from noetic_nb.interop._spans.dialect import Dialect, History, Kind, read_history
from noetic_nb.interop._spans.span_messages import SpanMessage, parsed, read_messages
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.items._messages.usage_fields import USAGE

_KINDS: Final[Mapping[str, Kind]] = meanings(
    model="LLM", tool="TOOL", agent="AGENT", other="CHAIN", memory="RETRIEVER", check="GUARDRAIL EVALUATOR"
)
# No message list is longer; a hostile index must not cause a huge allocation.
_MOST_MESSAGES: Final = 100_000
_PARAMS: Final = ("temperature", "top_p", "max_tokens", "max_completion_tokens")


def nested(span: Span, prefix: str) -> list[dict[str, Any]] | None:
    """Return numbered attributes below a prefix as mappings, in order of their numbers; None if there are none."""
    found: dict[int, dict[str, Any]] = {}
    start = len(prefix)
    for key, value in span.attributes.items():
        if not key.startswith(prefix):
            continue
        place, dot, rest = key[start:].partition(".")
        if dot and place.isdigit() and len(place) <= 6:
            found.setdefault(int(place), {})[rest] = value
    return [found[place] for place in sorted(found)][:_MOST_MESSAGES] if found else None


_CALL: Final = re.compile(r"(?:message\.)?tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)")
_PART: Final = re.compile(r"(?:message\.)?contents\.(\d{1,6})\.message_content\.(type|text)")


def _message(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbered attributes as a chat message."""
    made: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    parts: dict[int, dict[str, Any]] = {}
    for key, value in flat.items():
        if (match := _CALL.fullmatch(key)) is not None:
            calls.setdefault(int(match[1]), {})[match[2]] = value
        elif (match := _PART.fullmatch(key)) is not None:
            parts.setdefault(int(match[1]), {})[match[2]] = value
        else:
            made[key.removeprefix("message.")] = value
    if made.get("function_call_name"):
        arguments = made.get("function_call_arguments_json")
        calls.setdefault(0, {"name": made["function_call_name"], "arguments": arguments})
    if calls:
        made["tool_calls"] = [calls[place] for place in sorted(calls)]
    if parts and "content" not in made:
        made["content"] = [parts[place] for place in sorted(parts)]
    return made


def messages(span: Span, prefix: str, role: str) -> list[SpanMessage] | None:
    found = nested(span, prefix)
    if found is None:
        return None
    read: list[SpanMessage] = []
    for each in found:
        read += read_messages({"role": role, **_message(each)}, role) or []
    return read


def by_name(value: Any, parameters: Any = None) -> dict[str, Any] | None:
    """Return ``{"args": [...], "kwargs": {...}}`` as arguments by name; None for any other value."""
    if not isinstance(value, Mapping) or not isinstance(value.get("kwargs"), Mapping) or "args" not in value:
        return None
    given = value["args"] if isinstance(value["args"], list) else []
    order = list(parameters) if isinstance(parameters, Mapping) else []
    return {order[at] if at < len(order) else f"arg{at}": each for at, each in enumerate(given)} | dict(value["kwargs"])


class OpenInference(Dialect):
    """Spans with an ``openinference.span.kind``."""

    texts: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "conversation": ("session.id",),
        "call_id": ("tool_call.id", "tool.id"),
        "agent_name": ("agent.name", "graph.node.id"),
        "model": ("llm.model_name", "embedding.model_name"),
        "finish": ("llm.finish_reason",),
    }
    tokens = USAGE["openinference"].read
    costs = ("llm.cost.total",)

    def kind(self, span: Span) -> Kind | None:
        kind = span.attributes.get("openinference.span.kind")
        return None if not isinstance(kind, str) else _KINDS.get(kind.upper(), "other")

    def inputs(self, span: Span) -> History | None:
        """Return the messages that were sent, or the task of an agent."""
        found = messages(span, "llm.input_messages.", "user")
        if found is not None:
            return History(found)
        if self.kind(span) is None:
            return None
        value = parsed(span.attributes.get("input.value"))
        if isinstance(value, Mapping):
            for key in ("task", "input", "query", "question", "prompt"):
                if isinstance(value.get(key), str):
                    return read_history([{"role": "user", "content": value[key]}])
            value = value.get("messages")
            if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) and value[0][:1] != ["user"]:
                value = value[0]
        if isinstance(value, list):
            return read_history(value)
        return read_history([{"role": "user", "content": value}]) if isinstance(value, str) and value else None

    def outputs(self, span: Span) -> list[SpanMessage] | None:
        found = messages(span, "llm.output_messages.", "assistant")
        if found is not None or self.kind(span) is None:
            return found
        value = parsed(span.attributes.get("output.value"))
        if isinstance(value, str) and value:
            return read_messages([{"role": "assistant", "content": value}])
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
            read = read_messages(value["messages"], "assistant") or []
            return [msg for msg in read[-1:] if msg.role == "assistant"] or None
        return None

    def tool_input(self, span: Span) -> Any:
        if self.kind(span) != "tool":
            return None
        value = parsed(span.attributes.get("input.value"))
        bound = by_name(value, parsed(span.attributes.get("tool.parameters")))
        if bound is not None:
            return bound
        return value if value is not None else span.attributes.get("tool_call.function.arguments")

    def tool_output(self, span: Span) -> Any:
        return span.attributes.get("output.value") if self.kind(span) == "tool" else None

    def tool_name(self, span: Span) -> str | None:
        """Return the attribute, or else the name of the span."""
        return span.text("tool.name", "tool_call.function.name") or (span.name if self.kind(span) == "tool" else None)

    def params(self, span: Span) -> Mapping[str, Any] | None:
        found = parsed(span.attributes.get("llm.invocation_parameters"))
        if not isinstance(found, Mapping):
            return None
        return {key: found[key] for key in _PARAMS if found.get(key) is not None} or None
