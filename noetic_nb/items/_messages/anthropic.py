"""Messages of Anthropic's API: blocks of text, thinking, tool use and tool results."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of
from noetic_nb.items._frozen import FrozenDict, freeze, thaw
from noetic_nb.items._item import Item
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._messages import message as msg
from noetic_nb.items._messages.usage_fields import USAGE, known_usage

_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction"}
)
_CALLS: Final = frozenset({"tool_use", "mcp_tool_use", "server_tool_use"})
# Usage fields that are read, or that can be ignored.
_USAGE: Final = frozenset(
    name.partition(".")[0].partition("[")[0]
    for name in (*chain.from_iterable(USAGE["anthropic"].read.values()), *USAGE["anthropic"].ignored)
) - {"server_tool_use", "fallback_credit"}
_KNOWN: Final = frozenset(
    [
        *("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage", "timestamp", "created_at"),
        "context_management",
    ]
)


def looks_like(value: Mapping[str, Any]) -> bool:
    """Tell whether a mapping is certainly in this format: it has a block type that no other format has."""
    content = value.get("content")
    if value.get("role") not in ("user", "assistant", "system") or not isinstance(content, list | tuple):
        return False
    if "stop_reason" in value:
        return True
    blocks = [block for block in content if isinstance(block, Mapping)]
    return any(block.get("type") in _BLOCKS or "source" in block or "cache_control" in block for block in blocks)


def decode(value: Mapping[str, Any], reading: msg.Reading) -> None:
    """Read a message; tool results become a message of the tools, placed before the text beside them."""
    role, content = value.get("role"), value.get("content")
    if role not in ("user", "assistant", "system"):
        reading.skip("role", "there is no such role", value, "Roles are user, assistant and system.")
        return
    reading.skip_keys(value, _KNOWN)
    if not isinstance(content, str | list | tuple):
        reading.skip("content", "the content of a message must be text or a list of blocks", value)
        return
    t_ms = msg.time_ms(value.get("timestamp", value.get("created_at")))
    items: list[Item] = []
    results: list[Item] = []
    parts: list[FrozenDict] = []
    errors: dict[str, str] = {}

    def close() -> None:
        if parts:
            items.append(msg.text_message(str(role), tuple(parts)))
            parts.clear()

    for number, block in enumerate([content] if isinstance(content, str) else content):
        part = _part(block, str(role))
        if part is not None:
            parts.append(part)
            continue
        made = block_item(block, errors)
        if made is None:
            kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
            reading.skip(f"content[{number}]", f"a block of type {kind!r} cannot be read", block)
        elif made["type"] == "function_call_output" and role != "assistant":
            results.append(made)
        else:
            close()
            items.append(made)
    close()
    if results:
        reading.messages.append(msg.Message("tool", tuple(results), errors=errors, statuses_known=True, t_ms=t_ms))
        if not items:
            return
    _compactions(value, items, reading)
    if role != "assistant":
        reading.messages.append(msg.Message(role, tuple(items) or (msg.text_message(str(role), ()),), t_ms=t_ms))
        return
    reading.messages.append(
        msg.Message(
            "assistant",
            tuple(items) or (msg.text_message("assistant", ()),),
            model=value["model"] if isinstance(value.get("model"), str) else None,
            usage=_usage(value.get("usage"), reading),
            finish_reason=finish_reason_of(value.get("stop_reason")),
            t_ms=t_ms,
            errors=errors,
            statuses_known=True,
        )
    )


def _usage(value: Any, reading: msg.Reading) -> dict[str, int] | None:
    """Return the tokens of an answer; those of other models that worked on it become separate calls."""
    if not isinstance(value, Mapping):
        return None
    reading.skip_keys({key: inner for key, inner in value.items() if inner != 0}, _USAGE, "usage")
    for entry in _iterations(value, "advisor_message"):
        counted = known_usage(entry, "anthropic iterations[advisor_message]")
        model = entry["model"] if isinstance(entry.get("model"), str) else None
        reading.messages.append(msg.Message("assistant", (), model=model, usage=counted, is_kept=False))
    return known_usage(value, "anthropic")


def _iterations(usage: Any, kind: str) -> list[Mapping[str, Any]]:
    return [entry for entry in msg.records(msg.mapping(usage).get("iterations")) if entry.get("type") == kind]


def _compactions(value: Mapping[str, Any], items: Sequence[Item], reading: msg.Reading) -> None:
    """Read how the server shortened the context before answering: cleared results and thinking, a summary."""
    t_ms = msg.time_ms(value.get("timestamp", value.get("created_at")))
    managed = value.get("context_management")
    edits = msg.records(msg.mapping(managed).get("applied_edits"))
    if edits:
        total, *cleared = [
            [number for edit in edits if (number := msg.count(edit.get(key))) is not None]
            for key in ("cleared_input_tokens", "cleared_tool_uses", "cleared_thinking_turns")
        ]
        after = (known_usage(value.get("usage"), "anthropic") or {}).get("input_tokens")
        reading.messages.append(
            msg.Compaction(
                "anthropic",
                (),
                None if after is None or not total else after + sum(total),
                after,
                trigger=", ".join([str(edit.get("type")) for edit in edits]),
                items_removed=sum(map(sum, cleared)) if any(cleared) else None,
                t_ms=t_ms,
            )
        )
    counted: dict[str, int] = {}
    known: dict[str, Any] = {
        "model": value["model"] if isinstance(value.get("model"), str) else None,
        "trigger": "server",
        "t_ms": t_ms,
    }
    for entry in _iterations(value.get("usage"), "compaction"):
        for name, number in (known_usage(entry, "anthropic iterations[compaction]") or {}).items():
            counted[name] = counted.get(name, 0) + number
    for number, item in enumerate(item for item in items if item["type"] == "compaction"):
        own = msg.native_form(item, "anthropic")
        if own.get("content") is None and own.get("encrypted_content") is None:
            reading.note("content", "a compaction that failed", {"block": own, "usage": counted})
            counted = {}
            continue
        usage, is_opaque = (None if number else counted or None), own.get("content") is None
        reading.messages.append(msg.Compaction("anthropic", (item,), opaque=is_opaque, usage=usage, **known))
        counted = {}
    if counted:
        reading.messages.append(msg.Compaction("anthropic", opaque=True, usage=counted, **known))


def _part(block: Any, role: str) -> FrozenDict | None:
    text = msg.output_text if role == "assistant" else msg.input_text
    if isinstance(block, str):
        return text(block)
    if not isinstance(block, Mapping):
        return None
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        cited = {"citations": freeze(block["citations"])} if block.get("citations") else {}
        return FrozenDict({**text(block["text"]), **cited})
    source = block.get("source")
    if block.get("type") not in ("image", "document") or not isinstance(source, Mapping):
        return None
    kind, data = source.get("type"), source.get("data")
    if kind == "file" and isinstance(source.get("file_id"), str):
        return FrozenDict(type="input_file", fileId=source["file_id"])
    if kind == "text" and isinstance(data, str):  # a plain-text document
        return text(data)
    url = source.get("url") if kind == "url" else f"data:{source.get('media_type')};base64,{data}" if data else None
    if not isinstance(url, str):
        return None
    if block["type"] == "image":
        return FrozenDict(type="input_image", imageUrl=url, detail="auto")
    name = {"filename": block["title"]} if isinstance(block.get("title"), str) else {}
    return FrozenDict({"type": "input_file", "fileUrl" if kind == "url" else "fileData": url, **name})


def block_item(block: Any, errors: dict[str, str]) -> Item | None:
    """Read a block of thinking, a call or a result, None for other blocks; errors of calls are added to `errors`."""
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        return None
    if kind in ("thinking", "redacted_thinking"):
        # Keep the signature: without it the API rejects thinking that is sent back.
        own = {key: block[key] for key in ("signature", "data") if isinstance(block.get(key), str) and block[key]}
        return msg.thought(block.get("thinking"), **own)
    if kind == "compaction":
        text = block.get("content")
        told = (FrozenDict(type="summary_text", text=text),) if isinstance(text, str) else ()
        return Item(type=kind, summary=told, **msg.native("anthropic", block))
    if kind in _CALLS:
        name, call_id = block.get("name"), block.get("id")
        if not isinstance(name, str) or not name or not isinstance(call_id, str) or not call_id:
            return None
        # Blocks of tools run by the provider are sent back unchanged, because their results are encrypted.
        own = {} if kind == "tool_use" else msg.native("anthropic", block)
        return msg.call(name, block.get("input"), call_id, **own)
    call_id = block.get("tool_use_id")
    if not kind.endswith("tool_result") or not isinstance(call_id, str) or not call_id:
        return None
    content = block.get("content")
    output, is_whole = msg.result_text(content)
    failed = isinstance(content, Mapping) and str(content.get("type")).endswith("_error")
    if block.get("is_error") or failed:
        errors[call_id] = output or "failed"
    own = {} if kind == "tool_result" and is_whole else msg.native("anthropic", block)
    return msg.call_output(call_id, output, **own)


def encode(items: Sequence[Item], failed: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return items as alternating user and assistant messages, results first; `failed` has ids of calls."""
    made: list[dict[str, Any]] = []
    before = ""
    for item in items:
        role, blocks = _blocks(item, failed)
        if not blocks:  # the API rejects empty messages
            continue
        kind = item["type"]
        # An assistant's thinking, text and calls form one message, until text follows text; user text follows results.
        begins = before == "message" and kind in ("message", "reasoning")
        if made and made[-1]["role"] == role and role != "system" and not begins:
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
        before = kind
    return made


def _blocks(item: Item, failed: Collection[str]) -> tuple[str, list[dict[str, Any]]]:
    kind = item["type"]
    if (own := msg.native_form(item, "anthropic")) is not None:
        return "user" if own.get("type") == "tool_result" else "assistant", [own]
    if kind == "function_call":
        call_id, name = item["callId"], item["name"]
        return "assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": _data(item["arguments"])}]
    if kind == "function_call_output":
        result = {"type": "tool_result", "tool_use_id": item["callId"], "content": item.get("output") or ""}
        return "user", [{**result, "is_error": True} if item["callId"] in failed else result]
    if kind == "reasoning":
        if isinstance(item.get("data"), str):
            return "assistant", [{"type": "redacted_thinking", "data": item["data"]}]
        text = "".join(part.get("text") or "" for part in item.get("content") or item.get("summary") or ())
        return "assistant", [{"type": "thinking", "thinking": text, "signature": item.get("signature") or ""}]
    if kind in msg.UNREADABLE:
        return "assistant", []
    if kind != "message":
        return "assistant", [{"type": "text", "text": compact_json(thaw(item))}]
    role = "system" if item.get("role") == "developer" else str(item.get("role"))
    content = item.get("content") or ()
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [_wire(part) for part in content]
    return role, [block for block in blocks if block["type"] != "text" or block["text"]]


def _data(arguments: Any) -> Any:
    try:
        found = json.loads(arguments)
    except (ValueError, TypeError, RecursionError):
        return {"arguments": arguments}  # the API only accepts objects
    return found if isinstance(found, dict) else {"arguments": found}


def _wire(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind not in ("input_image", "input_file"):
        # Name a part without an equivalent here, so that readers see that something was omitted.
        text = part.get("text", part.get("refusal"))
        cited = {"citations": thaw(part["citations"])} if part.get("citations") else {}
        return {"type": "text", "text": f"[{kind}]" if text is None else text, **cited}
    url = part.get("imageUrl") or part.get("fileUrl") or part.get("fileData")
    head, _, data = (url or "").partition(";base64,")
    source: dict[str, Any]
    if url is None:
        source = {"type": "file", "file_id": part.get("fileId")}
    elif data:
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    else:
        source = {"type": "url", "url": url}
    title = {"title": part["filename"]} if isinstance(part.get("filename"), str) else {}
    return {"type": "image" if kind == "input_image" else "document", "source": source, **title}
