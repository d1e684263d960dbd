"""LangChain messages: its objects, their dictionaries in three forms, and the form saved by LangGraph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of, keys
from noetic_nb.items._frozen import FrozenDict, freeze, thaw
from noetic_nb.items._item import Item
from noetic_nb.items._messages import anthropic
from noetic_nb.items._messages import message as msg
from noetic_nb.items._origins import MODEL, with_origin

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "chat",
}
_SPEAKERS: Final = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "system": "system"}
_TYPES: Final = _ROLES | {
    f"{'AI' if name == 'ai' else name.title()}Message{end}": role
    for name, role in _ROLES.items()
    for end in ("", "Chunk")
}
_KNOWN: Final = keys(
    "type id name content tool_calls invalid_tool_calls tool_call_id status usage_metadata response_metadata"
    " additional_kwargs role artifact example tool_call_chunks chunk_position"
)
# Fields that providers repeat in their own form.
_EXTRAS: Final = frozenset({"tool_calls", "function_call", "refusal", "reasoning_content"})
# Counts that are also in `usage_metadata`, and the provider's own names.
_ABOUT: Final = keys(
    "model_name model finish_reason stop_reason created_at token_usage usage id type role model_provider"
    " system_fingerprint object status stop_sequence done done_reason output_version"
)
# Blocks of these types are repeated in `tool_calls`.
_CALLS: Final = keys("tool_call tool_use invalid_tool_call function_call tool_call_chunk input_json_delta")
# Providers reject thinking that is sent back without these.
_SEALS: Final = ("signature", "encrypted_content")


def looks_like(value: Any) -> bool:
    """Tell whether a value is a message in this format."""
    if not isinstance(value, Mapping):
        return type(value).__name__ in _TYPES and hasattr(value, "content")
    if value.get("lc") == 1:
        return True
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        return False
    return isinstance(value.get("data"), Mapping) or ("content" in value and "role" not in value)


def joined(messages: Iterable[Any]) -> list[Any]:
    """Merge the chunks of streamed answers into messages."""
    made: list[Any] = []
    for message in messages:
        last = made[-1] if made else None
        is_more = type(message).__name__ == "AIMessageChunk" and type(last).__name__ == "AIMessageChunk"
        if is_more and getattr(message, "id", None) is not None and message.id == getattr(last, "id", None):
            made[-1] = last + message
        else:
            made.append(message)
    return made


def _fields(value: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the type and fields of a message in any saved form."""
    if not isinstance(value, Mapping):
        return type(value).__name__, value.model_dump()
    if value.get("lc") == 1:
        ids, fields = value.get("id"), value.get("kwargs")
        kind = ids[-1] if isinstance(ids, list) and ids else None
        return kind, fields if isinstance(fields, Mapping) else {}
    if isinstance(value.get("data"), Mapping):
        return value["type"], value["data"]
    return value.get("type"), value


def decode(value: Any, reading: msg.Reading) -> None:
    kind, fields = _fields(value)
    role = _TYPES.get(kind) if isinstance(kind, str) else None
    if role == "chat":
        role = _SPEAKERS.get(str(fields.get("role")))
    if role is None:
        reading.skip("type", f"a message of type {kind!r} is not known", fields)
        return
    reading.skip_keys(fields, _KNOWN)
    extras, about = (msg.mapping(fields.get(key)) for key in ("additional_kwargs", "response_metadata"))
    reading.skip_keys(extras, _EXTRAS, "additional_kwargs")
    reading.skip_keys(about, _ABOUT, "response_metadata")
    if role == "tool":
        _tool(fields, reading)
        return
    errors: dict[str, str] = {}
    items = _content(fields.get("content"), role, reading, errors)
    if role != "assistant":
        own: Any = "user" if role == "user" else "system"
        name = {"name": fields["name"]} if isinstance(fields.get("name"), str) else {}
        parts = [part for item in items if item["type"] == "message" for part in item["content"]]
        item = msg.text_message(own, tuple(parts), **name)
        # LangChain's middleware replaces the earlier messages by the model's summary, in the user's role.
        is_summary = extras.get("lc_source") == "summarization"
        reading.messages.append(msg.Message(own, (with_origin(item, MODEL) if is_summary else item,)))
        return
    calls = []
    told = [fields.get(key) for key in ("tool_calls", "invalid_tool_calls")]
    for number, entry in enumerate([each for some in told if isinstance(some, list | tuple) for each in some]):
        made = _call(entry, len(reading.messages), number)
        if made is None:
            reading.skip(f"tool_calls[{number}]", "a call cannot be read", entry)
        else:
            calls.append(made)
    if isinstance(extras.get("reasoning_content"), str):
        items.insert(0, msg.thought(extras["reasoning_content"]))
    if isinstance(extras.get("refusal"), str) and extras["refusal"]:
        items.append(msg.text_message("assistant", (FrozenDict(type="refusal", refusal=extras["refusal"]),)))
    if not calls and all(item["type"] == "reasoning" for item in items):
        items.append(msg.text_message("assistant", ()))
    model = about.get("model_name", about.get("model"))
    counted = msg.mapping(fields.get("usage_metadata"))
    reading.messages.append(
        msg.Message(
            "assistant",
            (*items, *calls),
            model=model if isinstance(model, str) else None,
            usage=msg.usage_of(
                counted,
                read="input_tokens",
                written="output_tokens",
                cached=msg.mapping(counted.get("input_token_details")).get("cache_read"),
                stored=msg.mapping(counted.get("input_token_details")).get("cache_creation"),
                reasoning=msg.mapping(counted.get("output_token_details")).get("reasoning"),
            ),
            finish_reason=finish_reason_of(about.get("finish_reason", about.get("stop_reason", ""))),
            t_ms=msg.time_ms(about.get("created_at")) if isinstance(about.get("created_at"), str) else None,
            errors=errors,
            statuses_known=True,
        )
    )


def _tool(fields: Mapping[str, Any], reading: msg.Reading) -> None:
    call_id = fields.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        reading.skip("tool_call_id", "a message of a tool answers no call", fields)
        return
    if fields.get("artifact") is not None:
        reading.note("artifact", "no place in a run", fields["artifact"])
    output, is_whole = msg.result_text(fields.get("content"))
    own = {} if is_whole else msg.native("langchain", fields["content"])
    errors = {call_id: output or "failed"} if fields.get("status") == "error" else {}
    item = msg.call_output(call_id, output, **own)
    reading.messages.append(msg.Message("tool", (item,), errors=errors, statuses_known="status" in fields))


def _call(entry: Any, message: int, number: int) -> Item | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        return None
    call_id = entry.get("id")
    if not isinstance(call_id, str) or not call_id:
        call_id = f"call_{message}_{number}"
    return msg.call(entry["name"], entry.get("args"), call_id)


def _content(content: Any, role: str, reading: msg.Reading, errors: dict[str, str]) -> list[Item]:
    """Return the contents of a message in order: messages of text and images, thinking, and tools run by the provider."""
    text = msg.output_text if role == "assistant" else msg.input_text
    items: list[Item] = []
    parts: list[FrozenDict] = []
    blocks = [content] if isinstance(content, str) and content else content or ()
    for number, block in enumerate(blocks if isinstance(blocks, list | tuple) else [blocks]):
        if isinstance(block, Mapping) and block.get("type") == "non_standard":
            block = msg.mapping(block.get("value")) or block
        kind = block.get("type") if isinstance(block, Mapping) else None
        if isinstance(kind, str) and kind in _CALLS:
            continue
        part = text(block) if isinstance(block, str) else _part(block, text)
        if part is not None:
            parts.append(part)
            continue
        if (made := _item(block, errors)) is None:
            reading.skip(f"content[{number}]", f"a block of type {kind!r} cannot be read", block)
            continue
        if parts:
            items.append(msg.text_message(role, tuple(parts)))
            parts = []
        items.append(made)
    if parts:
        items.append(msg.text_message(role, tuple(parts)))
    return items


def _item(block: Any, errors: dict[str, str]) -> Item | None:
    """Read a non-text block of an answer: thinking, or the result of the provider's own tools."""
    if not isinstance(block, Mapping):
        return None
    kind, extras = block.get("type"), msg.mapping(block.get("extras"))
    if kind == "reasoning":
        own = {key: found for key in _SEALS if isinstance(found := block.get(key, extras.get(key)), str)}
        words = block.get("reasoning")
        if words is None:  # as in the Responses API
            words = "".join(str(msg.mapping(part).get("text") or "") for part in block.get("summary") or ())
        return msg.thought(words, **own) if isinstance(words, str) else None
    if kind == "server_tool_call" and isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
        return msg.call(block["name"], block.get("args"), block["id"], **msg.native("langchain", block))
    if kind in ("server_tool_result", "server_tool_call_result") and isinstance(block.get("tool_call_id"), str):
        output, _ = msg.result_text(block.get("output"))
        if block.get("status") == "error":
            errors[block["tool_call_id"]] = output or "failed"
        return msg.call_output(block["tool_call_id"], output, **msg.native("langchain", block))
    return anthropic.block_item(block, errors)


def _part(block: Any, text: Any) -> FrozenDict | None:
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if kind in (None, "text", "text-plain", "input_text", "output_text") and isinstance(block.get("text"), str):
        notes = {key: freeze(block[key]) for key in ("annotations", "citations") if block.get(key)}
        return FrozenDict({**text(block["text"]), **notes})
    if kind == "refusal" and isinstance(block.get("refusal"), str):
        return FrozenDict(type="refusal", refusal=block["refusal"])
    if kind == "image_url":
        image = block.get("image_url")
        image = {"url": image} if isinstance(image, str) else msg.mapping(image)
        if isinstance(image.get("url"), str):
            return FrozenDict(type="input_image", imageUrl=image["url"], detail=image.get("detail") or "auto")
    if kind == "input_audio" and msg.has_sound(block):
        return FrozenDict(type="input_audio", input_audio=freeze(block["input_audio"]))
    if "source" in block:
        return anthropic._part(block, "user")
    if kind not in ("image", "file", "audio"):
        return None
    data, media = block.get("base64", block.get("data")), str(block.get("mime_type") or "")
    if kind == "audio":
        if not isinstance(data, str):
            return None
        return FrozenDict(type="input_audio", input_audio=FrozenDict(data=data, format=media.partition("/")[2]))
    file_id, url = block.get("file_id", block.get("id")), block.get("url")
    whole = f"data:{media};base64,{data}" if isinstance(data, str) else None
    if kind == "image" and isinstance(url or whole, str):
        return FrozenDict(type="input_image", imageUrl=url or whole, detail="auto")
    found = {"fileUrl": url, "fileData": whole, "fileId": None if url or whole else file_id}
    known = {key: value for key, value in found.items() if isinstance(value, str)}
    name = block.get("filename", msg.mapping(block.get("extras")).get("filename"))
    named = {"filename": name} if isinstance(name, str) else {}
    return FrozenDict({"type": "input_file", **known, **named}) if known and kind == "file" else None


def encode(items: Sequence[Item], failed: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return items as ``{"type", "data"}``, for LangChain's ``messages_from_dict``; `failed` has ids of calls."""
    made: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] | None = None  # of the current answer
    before = ""
    for item in items:
        kind = item["type"]
        own = msg.native_form(item, "langchain")
        if kind == "function_call_output" and not (isinstance(own, dict) and "tool_call_id" in own):
            status = "error" if item["callId"] in failed else "success"
            content = item.get("output") or "" if own is None else own
            data = {"content": content, "tool_call_id": item["callId"], "status": status}
            made.append({"type": "tool", "data": data})
            blocks, before = None, kind
            continue
        if kind == "message" and item.get("role") != "assistant":
            name = {"name": item["name"]} if isinstance(item.get("name"), str) else {}
            role = "human" if item.get("role") == "user" else "system"
            made.append({"type": role, "data": {"content": _short(_wire(item)), **name}})
            blocks, before = None, ""
            continue
        # Text after text, or after a call, begins a new answer, and so does thinking.
        follows = before == "message" or (made and "tool_calls" in made[-1]["data"])
        is_new = kind in ("message", "reasoning") and own is None and follows
        if blocks is None or is_new:
            blocks = []
            made.append({"type": "ai", "data": {"content": blocks}})
        before = kind
        if own is not None:
            blocks.append(own)
        elif kind == "function_call":
            calls = made[-1]["data"].setdefault("tool_calls", [])
            args = anthropic._data(item["arguments"])
            calls.append({"name": item["name"], "args": args, "id": item["callId"], "type": "tool_call"})
        elif kind == "reasoning":
            blocks.append(_reasoning(item))
        else:
            blocks += _wire(item) if kind == "message" else [{"type": "non_standard", "value": thaw(item)}]
    for message in made:
        if message["type"] == "ai":
            message["data"]["content"] = _short(message["data"]["content"])
    return made


def _reasoning(item: Item) -> dict[str, Any]:
    text = "".join(part.get("text") or "" for part in item.get("content") or item.get("summary") or ())
    if isinstance(item.get("data"), str):
        return {"type": "non_standard", "value": {"type": "redacted_thinking", "data": item["data"]}}
    seals = {key: item[key] for key in _SEALS if isinstance(item.get(key), str)}
    return {"type": "reasoning", "reasoning": text, **({"extras": seals} if seals else {})}


def _short(blocks: list[dict[str, Any]]) -> Any:
    """Return a single text as text, anything else as blocks."""
    if not blocks:
        return ""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks


def _wire(item: Item) -> list[dict[str, Any]]:
    content = item.get("content") or ()
    return [{"type": "text", "text": content}] if isinstance(content, str) else [_block(part) for part in content]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "input_image":
            image = {"url": part.get("imageUrl"), "detail": part.get("detail") or "auto"}
            return {"type": "image_url", "image_url": image}
        case "input_file":
            head, _, data = (part.get("fileData") or "").partition(";base64,")
            where = {"url": part.get("fileUrl"), "file_id": part.get("fileId"), "base64": data or None}
            media = {"mime_type": head.removeprefix("data:")} if data else {}
            name = {"extras": {"filename": part["filename"]}} if isinstance(part.get("filename"), str) else {}
            return {"type": "file", **{key: value for key, value in where.items() if value}, **media, **name}
        case "input_audio":
            return {"type": "input_audio", "input_audio": thaw(part["input_audio"])}
        case "refusal":
            return {"type": "refusal", "refusal": part.get("refusal") or ""}
    notes = {key: thaw(part[key]) for key in ("annotations", "citations") if part.get(key)}
    return {"type": "text", "text": part.get("text") or "", **notes}
