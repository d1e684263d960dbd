"""Messages in Inspect logs, which resemble OpenAI's chat format, and the measurements of their model calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of
from noetic_nb.items._messages.formats import decode_into
from noetic_nb.items._messages.message import Compaction, Message, Reading, money, records, shown, time_ms
from noetic_nb.items._messages.usage_fields import known_usage

_PREFIX: Final = "attachment://"
_PARAMS: Final = ("temperature", "top_p", "max_tokens")


def messages_of(
    message: Any, texts: Mapping[str, Any], place: str, unmapped: list[dict[str, Any]], waiting: list[str]
) -> list[Message | Compaction]:
    """Return a message of a log; `texts` are attachments stored apart, `waiting` lists open calls without an id."""
    reading = Reading()
    reading.place = place
    wire = _wire(message, texts, place, unmapped) if isinstance(message, Mapping) else message
    decode_into(wire, "openai", reading, waiting)
    unmapped += reading.unmapped
    return reading.messages


def _wire(
    message: Mapping[str, Any], texts: Mapping[str, Any], message_place: str, unmapped: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a message converted to OpenAI's chat format."""
    content = resolved(message.get("content"), texts)
    wire = {key: value for key, value in message.items() if key in ("id", "role", "tool_call_id", "model")}
    wire["tool_calls"] = [
        {**call, "arguments": resolved(call.get("arguments"), texts)} if isinstance(call, Mapping) else call
        for call in (message["tool_calls"] if isinstance(message.get("tool_calls"), list) else ())
    ]
    for place, call in enumerate(wire["tool_calls"]):
        if isinstance(call, Mapping) and call.get("parse_error"):
            where = f"{message_place}.tool_calls[{place}].parse_error"
            unmapped.append({"place": where, "what": "the arguments could not be read", "value": call["parse_error"]})
    if not wire["tool_calls"]:
        del wire["tool_calls"]
    if message.get("role") == "tool":
        error = message.get("error")
        # A log says for every call whether it failed.
        wire["error"] = error.get("message") or error.get("type") if isinstance(error, Mapping) else error
    if not isinstance(content, list):
        return {**wire, "content": content}
    parts: list[Any] = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "reasoning" and isinstance(part.get("reasoning"), str):
            wire["reasoning_content"] = wire.get("reasoning_content", "") + part["reasoning"]
        elif kind == "text" and part.get("refusal"):
            wire["refusal"] = part.get("text")
        elif kind == "image":
            image = {"url": part.get("image"), "detail": part.get("detail") or "auto"}
            parts.append({"type": "image_url", "image_url": image})
        elif kind == "audio" and isinstance(part.get("audio"), str):
            data = part["audio"].partition(";base64,")[2] or part["audio"]
            parts.append({"type": "input_audio", "input_audio": {"data": data, "format": part.get("format")}})
        elif kind == "document" and isinstance(part.get("document"), str):
            file = {"file_data": part["document"], "filename": part.get("filename")}
            parts.append({"type": "file", "file": file})
        elif kind == "tool_use":  # run by the provider: the log only has its traces
            where = f"{message_place}.content[{place}]"
            unmapped.append({"place": where, "what": "a tool that the provider ran", "value": shown(part)})
        else:
            parts.append(part)
    return {**wire, "content": parts}


def resolved(value: Any, texts: Mapping[str, Any], depth: int = 0) -> Any:
    """Return data with its separately stored long texts put back."""
    if isinstance(value, str):
        return texts.get(value.removeprefix(_PREFIX), value) if value.startswith(_PREFIX) else value
    if depth > 100 or not texts:
        return value
    if isinstance(value, Mapping):
        return {key: resolved(inner, texts, depth + 1) for key, inner in value.items()}
    return [resolved(inner, texts, depth + 1) for inner in value] if isinstance(value, list) else value


def params_of(config: Any) -> dict[str, Any]:
    """Return the model parameters that a configuration sets."""
    return {key: config[key] for key in _PARAMS if config.get(key) is not None} if isinstance(config, Mapping) else {}


def measure(message: Message, event: Mapping[str, Any]) -> None:
    """Add the measurements in a model call's event to its answer."""
    output = event["output"]
    used = output.get("usage")
    message.usage = known_usage(used, "inspect")
    message.cost = money(used.get("total_cost")) if isinstance(used, Mapping) else None
    message.model = output["model"] if isinstance(output.get("model"), str) else message.model
    seconds = money(output.get("time"))
    message.duration_ms = None if seconds is None else seconds * 1_000
    message.t_ms = time_ms(event.get("completed"))
    choices = records(output.get("choices")) or [{}]
    message.finish_reason = finish_reason_of(choices[0].get("stop_reason")) or message.finish_reason
