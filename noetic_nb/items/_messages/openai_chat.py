"""Messages of OpenAI's Chat Completions and compatible servers: read, written, and sent by `OpenAIModel`.

Outputs directly follow their calls, whatever is between them in the log, because the API rejects an assistant message
whose calls are not answered by the next messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of, keys
from noetic_nb.items._build import item_text
from noetic_nb.items._frozen import FrozenDict, freeze, thaw
from noetic_nb.items._item import Item, is_base_type
from noetic_nb.items._messages import message as msg
from noetic_nb.items._messages.message import call
from noetic_nb.items._messages.usage_fields import known_usage

_API: Final = "chat completions"
_LONGEST_ID: Final = 40  # the API rejects longer call ids, which other servers create

ROLES: Final[Mapping[str, msg.Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_KNOWN: Final = keys(
    "role content name tool_calls function_call tool_call_id refusal reasoning reasoning_content error usage cost"
    " model timestamp created finish_reason id turn_idx audio annotations"
)
_FILES: Final = {"file_data": "fileData", "file_id": "fileId", "filename": "filename"}


def looks_like(value: Mapping[str, Any]) -> bool:
    """Tell whether a mapping is a message in this format, or a whole response."""
    if isinstance(value.get("choices"), list):
        return True
    return "role" in value and ("content" in value or "tool_calls" in value or "function_call" in value)


def decode(value: Mapping[str, Any], reading: msg.Reading, waiting: list[str]) -> None:
    """Read a message; `waiting` has ids of calls from before calls had ids."""
    if isinstance(value.get("choices"), list):
        _response(value, reading, waiting)
        return
    given = value.get("role")
    role = ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        reading.skip("role", "there is no such role", value, f"Roles of chat messages are {', '.join(ROLES)}.")
        return
    reading.skip_keys(value, _KNOWN)
    known: dict[str, Any] = {"t_ms": msg.time_ms(value.get("timestamp", value.get("created")))}
    if role == "tool":
        _output(value, reading, waiting, known)
        return
    content = value.get("content")
    if not isinstance(content, str | list | tuple) and (content is not None or role != "assistant"):
        reading.skip("content", "the content of a chat message must be text or a list of parts", content)
        content = None
    parts = _parts(content, str(given), reading)
    calls = _calls(value, reading, waiting)
    if role != "assistant":
        if calls:
            reading.skip("tool_calls", f"a message of the role {given!r} makes no calls", value.get("tool_calls"))
        name = {"name": value["name"]} if isinstance(value.get("name"), str) else {}
        reading.messages.append(msg.Message(role, (msg.text_message(str(given), tuple(parts), **name),), **known))
        return
    if isinstance(value.get("refusal"), str) and value["refusal"]:
        parts.append(FrozenDict(type="refusal", refusal=value["refusal"]))
    if isinstance(spoken := value.get("audio"), Mapping):
        if not parts and isinstance(spoken.get("transcript"), str):
            parts.append(msg.output_text(spoken["transcript"]))
        reading.note("audio", "only the words of a spoken answer are kept", spoken)
    notes = value.get("annotations")
    if isinstance(notes, list | tuple) and notes and parts and "text" in parts[-1]:
        parts[-1] = FrozenDict({**parts[-1], "annotations": freeze(notes)})
    items: list[Item] = []
    thoughts = value.get("reasoning_content") or value.get("reasoning")
    if isinstance(thoughts, str):
        items.append(msg.thought(thoughts))
    # An assistant message with only calls has no text; an empty answer is still an answer.
    if parts or not calls:
        items.append(msg.text_message("assistant", tuple(parts)))
    counted = value["usage"] if isinstance(value.get("usage"), Mapping) else {}
    reading.messages.append(
        msg.Message(
            "assistant",
            (*items, *calls),
            model=value["model"] if isinstance(value.get("model"), str) else None,
            usage=known_usage(value.get("usage"), "openai"),
            cost=msg.money(counted.get("cost", value.get("cost"))),
            finish_reason=finish_reason_of(value.get("finish_reason")),
            **known,
        )
    )


def _response(value: Mapping[str, Any], reading: msg.Reading, waiting: list[str]) -> None:
    choices = value["choices"]
    for number, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if number or not isinstance(message, Mapping):
            reading.note(f"choices[{number}]", "only the first choice is part of a conversation", choice)
            continue
        about = {key: value.get(key) for key in ("usage", "model", "created")}
        decode({**message, **about, "finish_reason": choice.get("finish_reason")}, reading, waiting)


def _output(value: Mapping[str, Any], reading: msg.Reading, waiting: list[str], known: Mapping[str, Any]) -> None:
    call_id = value.get("tool_call_id")
    if value.get("role") == "function" and waiting:
        call_id = waiting.pop(0)
    if not isinstance(call_id, str) or not call_id:
        reading.skip("tool_call_id", "a message of a tool answers no call", value, "It needs a `tool_call_id`.")
        return
    texts = []
    content = value.get("content")
    if not isinstance(content, list | tuple):
        content = [msg.result_text(content)[0]]
    for number, part in enumerate(content):
        text = part.get("text", part.get("content")) if isinstance(part, Mapping) else part
        if isinstance(text, str):
            texts.append(text)
        else:
            reading.skip(f"content[{number}]", "the answer of a tool is not text", part)
    output, error = "".join(texts), value.get("error")
    # A failure is recorded as true, or as its text.
    failed = error if isinstance(error, str) and error else output if error is True else None
    if failed and not output:
        output = failed
    reading.messages.append(
        msg.Message(
            "tool",
            (msg.call_output(call_id, output),),
            errors={call_id: failed} if failed else {},
            statuses_known="error" in value,
            **known,
        )
    )


def _parts(content: Any, role: str, reading: msg.Reading) -> list[FrozenDict]:
    found: list[FrozenDict] = []
    for number, part in enumerate([content] if isinstance(content, str) else content or ()):
        made = _part(part, role)
        if made is None:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            hint = "Parts are text, image_url, file, input_audio and refusal."
            reading.skip(f"content[{number}]", f"a part of type {kind!r} cannot be read", part, hint)
        else:
            found.append(made)
    return found


def _part(part: Any, role: str) -> FrozenDict | None:
    text = msg.output_text if role == "assistant" else msg.input_text
    if isinstance(part, str):
        return text(part)
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in ("text", "input_text", "output_text"):
        words = part.get("text", part.get("content"))
        return text(words) if isinstance(words, str) else None
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return FrozenDict(type=kind, refusal=part["refusal"])
    if kind == "image_url":
        image = part.get("image_url")
        image = {"url": image} if isinstance(image, str) else image
        if isinstance(image, Mapping) and isinstance(image.get("url"), str):
            return FrozenDict(type="input_image", imageUrl=image["url"], detail=image.get("detail") or "auto")
    if kind == "file" and isinstance(part.get("file"), Mapping):
        file = {_FILES.get(key, key): value for key, value in part["file"].items() if isinstance(value, str)}
        return FrozenDict({"type": "input_file", **file})
    if kind == "input_audio" and msg.has_sound(part):
        return FrozenDict(type=kind, input_audio=freeze(part["input_audio"]))
    return None


def _calls(value: Mapping[str, Any], reading: msg.Reading, waiting: list[str]) -> list[Item]:
    made: list[Item] = []
    given = value.get("tool_calls") or ()
    if not isinstance(given, list | tuple):
        reading.skip("tool_calls", "its `tool_calls` are no list", given)
        given = ()
    for number, entry in enumerate(given):
        found = _call(entry)
        if found is None:
            hint = "A call is {'id', 'type': 'function', 'function': {'name', 'arguments'}}."
            reading.skip(f"tool_calls[{number}]", "a call cannot be read", entry, hint)
        else:
            made.append(found)
    legacy = value.get("function_call")
    if legacy:
        if isinstance(legacy, Mapping) and isinstance(legacy.get("name"), str) and legacy["name"]:
            call_id = f"call_{len(reading.messages)}"
            waiting.append(call_id)
            made.append(call(legacy["name"], legacy.get("arguments"), call_id))
        else:
            reading.skip("function_call", "a call cannot be read", legacy)
    return made


def _call(entry: Any) -> Item | None:
    """Read a call, in OpenAI's form or in the flat form of some servers and recordings."""
    if not isinstance(entry, Mapping):
        return None
    function = entry.get("function", entry.get("custom"))
    name: Any
    if isinstance(function, str):
        name, arguments = function, entry.get("args", entry.get("arguments"))
    elif isinstance(function, Mapping):
        name, arguments = function.get("name"), function.get("arguments", function.get("input"))
    else:
        name, arguments = entry.get("name"), entry.get("arguments", entry.get("args"))
    call_id = entry.get("id")
    if not isinstance(name, str) or not name or not isinstance(call_id, str) or not call_id:
        return None
    if arguments is not None and not isinstance(arguments, str | Mapping):
        return None
    if isinstance(entry.get("custom"), Mapping):  # a free-text tool, whose argument has no name
        return call(name, {"input": arguments}, call_id, **msg.native("openai", entry))
    return call(name, arguments, call_id)


def encode(
    items: Sequence[Item], failed: Collection[str] = (), *, to_wire: Callable[[str], str] | None = None
) -> list[dict[str, Any]]:
    """Return items as messages, with outputs after their calls. `to_wire` makes a request; raises ``UNSUPPORTED_BY_API``."""
    is_request = to_wire is not None
    # Collect outputs first: they may be anywhere after their call, but must directly follow it.
    outputs: dict[Any, list[Item]] = {}
    for item in items:
        if item["type"] == "function_call_output":
            outputs.setdefault(item.get("callId"), []).append(item)
    made: list[dict[str, Any]] = []
    thoughts = ""
    place = 0
    while place < len(items):
        item = items[place]
        kind = item["type"]
        if thoughts and kind not in ("function_call", "reasoning") and item.get("role") != "assistant":
            made.append({"role": "assistant", "content": "", "reasoning_content": thoughts})
            thoughts = ""
        if kind == "function_call":
            calls = []
            while place < len(items) and items[place]["type"] == "function_call":
                calls.append(items[place])
                place += 1
            # A text and its calls were one answer, so they are sent back as one message.
            if thoughts or not made or made[-1]["role"] != "assistant" or "tool_calls" in made[-1]:
                made.append({"role": "assistant", "content": None})
            if thoughts:
                made[-1]["reasoning_content"], thoughts = thoughts, ""
            made[-1]["tool_calls"] = [_wire_call(call, to_wire) for call in calls]
            for call in calls:
                # Remove the outputs, so that their own position in the log does not add them again.
                made += [_tool_message(output, is_request) for output in outputs.pop(call.get("callId"), ())]
            continue
        if kind == "message":
            made.append(_request_message(item) if is_request else _message(item))
            if thoughts:
                made[-1]["reasoning_content"], thoughts = thoughts, ""
        elif kind == "function_call_output":
            made += [_tool_message(output, is_request) for output in outputs.pop(item.get("callId"), ())]
        elif kind == "reasoning" and not is_request:
            thoughts += "".join(part.get("text") or "" for part in item.get("content") or item.get("summary") or ())
        elif kind == "compaction" and (is_request or item_text(item)):
            made.append({"role": "system", "content": msg.sendable_summary(item, _API)})
        elif is_request and not is_base_type(kind):  # the others come from the provider's own tools
            raise msg.unsendable(
                f"an item of type {kind!r}", item, _API, "Turn it into a message in `project_history`."
            )
        place += 1
    if thoughts:
        made.append({"role": "assistant", "content": "", "reasoning_content": thoughts})
    return made


def _wire_call(item: Item, to_wire: Callable[[str], str] | None) -> dict[str, Any]:
    if to_wire is None:
        own: dict[str, Any] | None = msg.native_form(item, "openai")
        function = {"name": item["name"], "arguments": item["arguments"]}
        return own or {"id": item.get("callId"), "type": "function", "function": function}
    function = {"name": to_wire(item["name"]), "arguments": msg.sendable_arguments(item)}
    return {"id": msg.sendable_id(item.get("callId"), _LONGEST_ID), "type": "function", "function": function}


def _tool_message(item: Item, is_request: bool) -> dict[str, Any]:
    call_id = msg.sendable_id(item.get("callId"), _LONGEST_ID) if is_request else item.get("callId")
    return {"role": "tool", "tool_call_id": call_id, "content": item.get("output") or ""}


def _request_message(item: Item) -> dict[str, Any]:
    """Return a message that every server accepts: without names, refusals as text."""
    role, content = item.get("role"), item.get("content") or ()
    if role == "assistant":
        refusals = [part["refusal"] for part in content if part.get("type") == "refusal"]
        return {"role": role, "content": item_text(item) or "".join(refusals)}
    # Only OpenAI has "developer"; every server knows "system", which newer OpenAI models treat as "developer".
    role = "system" if role == "developer" else role
    if isinstance(content, str):
        return {"role": role, "content": content}
    parts = [_wire_part(part) for part in content]
    for part, made in zip(content, parts, strict=True):
        if made is None:
            hint = "Pass the file's data or id, or use api='responses'."
            raise msg.unsendable(f"a part of type {part['type']!r}", part, _API, hint)
    return {"role": role, "content": _joined_text(parts)}


def _message(item: Item) -> dict[str, Any]:
    content = item.get("content") or ()
    name = {"name": item["name"]} if isinstance(item.get("name"), str) else {}
    if isinstance(content, str):
        return {"role": item.get("role"), "content": content, **name}
    refusals = "".join(part["refusal"] for part in content if part.get("type") == "refusal")
    # Name a part without an equivalent here, so that readers see that something was omitted.
    parts = [
        _wire_part(part) or {"type": "text", "text": part.get("fileUrl") or f"[{part.get('type')}]"}
        for part in content
        if part.get("type") != "refusal"
    ]
    text = None if refusals and not parts else _joined_text(parts)
    return {"role": item.get("role"), "content": text, **name, **({"refusal": refusals} if refusals else {})}


def _joined_text(parts: list[Any]) -> Any:
    return "".join(part["text"] for part in parts) if all(part["type"] == "text" for part in parts) else parts


def _wire_part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    match part["type"]:
        case "input_text" | "output_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            image = {"url": part.get("imageUrl"), "detail": part.get("detail") or "auto"}
            return {"type": "image_url", "image_url": image}
        case "input_file" if not part.get("fileUrl"):
            file = {key: part[name] for key, name in _FILES.items() if part.get(name) is not None}
            return {"type": "file", "file": file}
        case "input_audio":
            return {"type": "input_audio", "input_audio": thaw(part["input_audio"])}
    return None


def joined(messages: Sequence[Any]) -> list[Any]:
    """Merge the chunks of streamed responses into messages."""
    made: list[Any] = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("object") != "chat.completion.chunk":
            made.append(message)
            continue
        last = made[-1] if made and isinstance(made[-1], _Streamed) and made[-1]["id"] == message.get("id") else None
        if last is None:
            last = _Streamed(id=message.get("id"), choices=[])
            made.append(last)
        last.add(message)
    return made


class _Streamed(dict[str, Any]):
    """A response merged from its chunks."""

    def add(self, chunk: Mapping[str, Any]) -> None:
        for key in ("model", "created", "usage"):
            if chunk.get(key) is not None:
                self[key] = chunk[key]
        for choice in chunk.get("choices") or ():
            place = choice.get("index") or 0
            # Grow by one at most: a hostile index must not create a huge list.
            if place >= len(self["choices"]):
                place = len(self["choices"])
                self["choices"].append({"message": {"role": "assistant", "content": None}, "finish_reason": None})
            whole = self["choices"][place]
            whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]
            for key, piece in (choice.get("delta") or {}).items():
                if key == "tool_calls":
                    self._add_calls(whole["message"].setdefault(key, []), piece or ())
                elif isinstance(piece, str) and key != "role":
                    whole["message"][key] = (whole["message"].get(key) or "") + piece
                elif piece is not None:
                    whole["message"][key] = piece

    @staticmethod
    def _add_calls(calls: list[dict[str, Any]], pieces: Sequence[Any]) -> None:
        for piece in pieces:
            place = piece.get("index")
            if not isinstance(place, int) or not 0 <= place < len(calls):
                place = len(calls)
                calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
            calls[place]["id"] = piece.get("id") or calls[place]["id"]
            function = piece.get("function") or {}
            for key in ("name", "arguments"):
                calls[place]["function"][key] += function.get(key) or ""
