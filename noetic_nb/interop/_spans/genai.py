"""OpenTelemetry's conventions for generative AI: current attributes, the details event, and the older events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from noetic_nb._core.names import meanings
from noetic_nb.interop._spans.dialect import Dialect, History, Kind, read_history
from noetic_nb.interop._spans.span_messages import SpanMessage, parsed, read_messages, result_of, words_of
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.items._messages.usage_fields import USAGE

_KINDS: Final[Mapping[str, Kind]] = meanings(
    model="chat text_completion generate_content completion call_llm",
    tool="execute_tool",
    agent="invoke_agent",
    other="invoke_workflow create_agent",
    memory="search_memory update_memory create_memory upsert_memory delete_memory"
    " create_memory_store delete_memory_store retrieval",
    plan="plan",
)
_PARAMS: Final = {name: f"gen_ai.request.{name}" for name in ("temperature", "top_p", "max_tokens", "seed")}


class GenAI(Dialect):
    """Current attributes, on the span or on its details event, which may arrive as a log record."""

    texts: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "conversation": ("gen_ai.conversation.id",),
        "call_id": ("gen_ai.tool.call.id",),
        "agent_name": ("gen_ai.agent.name", "agent_name"),
        "model": ("gen_ai.request.model", "gen_ai.response.model"),
    }
    tokens = USAGE["genai"].read
    costs = ("operation.cost", "gen_ai.usage.cost")

    def kind(self, span: Span) -> Kind | None:
        """Return the kind of the operation; spans of early versions only have names."""
        about = span.attributes
        operation = about.get("gen_ai.operation.name")
        if isinstance(operation, str):
            return _KINDS.get(operation, "other")
        if span.name.startswith("running tool") and "gen_ai.tool.name" in about:
            return "tool"
        if "gcp.vertex.agent.llm_request" in about:
            return "model"
        if "gcp.vertex.agent.tool_call_args" in about:
            return "tool"
        return "agent" if "agent_name" in about and "model_name" in about else None

    def _detail(self, span: Span, name: str) -> Any:
        found = span.attributes.get(name)
        if found is not None:
            return found
        for event in span.events:
            if name in event.attributes:
                return event.attributes[name]
        return None

    def system(self, span: Span) -> str | None:
        found = read_messages(self._detail(span, "gen_ai.system_instructions"), "system")
        return None if found is None else "\n\n".join([msg.text for msg in found if msg.text])

    def inputs(self, span: Span) -> History | None:
        found = self._detail(span, "gen_ai.input.messages")
        if found is None:
            request = parsed(span.attributes.get("gcp.vertex.agent.llm_request"))
            found = request.get("contents") if isinstance(request, Mapping) else None
        if found is None:
            return _before_answer(read_messages(span.attributes.get("pydantic_ai.all_messages")))
        return read_history(found, span.before)

    def outputs(self, span: Span) -> list[SpanMessage] | None:
        found = self._detail(span, "gen_ai.output.messages")
        if found is None:
            response = parsed(span.attributes.get("gcp.vertex.agent.llm_response"))
            found = response.get("content") if isinstance(response, Mapping) else None
        if found is None:
            found = span.attributes.get("final_result")
        if not isinstance(found, str) and isinstance(found, Mapping) and "output" in found:
            found = found["output"]
        return read_messages(found, "assistant")

    def tool_input(self, span: Span) -> Any:
        found = span.given("gen_ai.tool.call.arguments", "tool_arguments", "gcp.vertex.agent.tool_call_args")
        if found is None:
            for msg in read_messages(self._detail(span, "gen_ai.input.messages")) or ():
                for call in msg.calls:
                    return call.arguments
        return found

    def tool_output(self, span: Span) -> Any:
        found = span.given("gen_ai.tool.call.result", "tool_response", "gcp.vertex.agent.tool_response")
        if found is None:
            for msg in read_messages(self._detail(span, "gen_ai.output.messages"), "tool") or ():
                for result in msg.results:
                    return result.output
        return found

    def tool_name(self, span: Span) -> str | None:
        """Return the attribute, or else the tool in the span's name."""
        _, _, name = span.name.partition("execute_tool ")
        return span.text("gen_ai.tool.name") or name or None

    def params(self, span: Span) -> Mapping[str, Any] | None:
        about = span.attributes
        return {
            name: value for name, key in _PARAMS.items() if key in about and (value := about[key]) is not None
        } or None

    def finish(self, span: Span) -> str | None:
        found = span.attributes.get("gen_ai.response.finish_reasons")
        found = parsed(found)
        return str(found[0]) if isinstance(found, list | tuple) and found else None


def _before_answer(messages: list[SpanMessage] | None) -> History | None:
    """Return a conversation up to its last user message."""
    if messages is None:
        return None
    last = max((place for place, msg in enumerate(messages) if msg.role == "user" and msg.text), default=-1)
    return History(messages[: last + 1])


_ROLES: Final[Mapping[str, str]] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "choice",
    "gen_ai.content.prompt": "prompt",
    "gen_ai.content.completion": "completion",
}


class GenAIEvents(Dialect):
    """Older conventions: one event per message, on the span, as a log record, or listed in an attribute."""

    def _events(self, span: Span) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for event in span.events:
            role = _ROLES.get(event.name)
            if role is not None:
                content = parsed(event.attributes.get("gen_ai.event.content"))
                yield role, {**event.attributes, **content} if isinstance(content, Mapping) else event.attributes
        for name in ("events", "all_messages_events"):
            listed = parsed(span.attributes.get(name))
            for about in listed if isinstance(listed, list) else ():
                role = _ROLES.get(str(about.get("event.name"))) if isinstance(about, Mapping) else None
                if role is not None:
                    yield role, about

    def system(self, span: Span) -> str | None:
        return words_of(self._messages(span, ("system",)), "system") or None

    def _messages(self, span: Span, roles: tuple[str, ...]) -> list[SpanMessage] | None:
        found: list[SpanMessage] = []
        for role, about in self._events(span):
            if role in roles:
                message = {key: value for key, value in about.items() if not key.startswith(("gen_ai.", "event."))}
                found += read_messages(message | {"role": role}, role) or []
        return found or None

    def inputs(self, span: Span) -> History | None:
        found = self._messages(span, ("user", "assistant", "tool"))
        if found is None:
            prompt = next((about.get("gen_ai.prompt") for role, about in self._events(span) if role == "prompt"), None)
            return read_history(prompt)
        return _before_answer(found) if "all_messages_events" in span.attributes else History(found)

    def outputs(self, span: Span) -> list[SpanMessage] | None:
        for role, about in self._events(span):
            if role == "choice" and about.get("index") in (None, 0, "0"):
                message = parsed(about.get("message", about.get("content")))
                found = read_messages(message if message is not None else dict(about), "assistant")
                finish = about.get("finish_reason")
                for msg in found or ():
                    if isinstance(finish, str) and finish:
                        msg.finish = finish
                return found
            if role == "completion":
                return read_messages(about.get("gen_ai.completion"), "assistant")
        return None

    def tool_input(self, span: Span) -> Any:
        return next((about.get("content") for role, about in self._events(span) if role == "tool"), None)

    def tool_output(self, span: Span) -> Any:
        for role, about in self._events(span):
            if role == "choice":
                return result_of(parsed(about.get("message", about.get("content"))))
        return None
