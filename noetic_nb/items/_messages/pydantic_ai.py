"""Messages of pydantic-ai: requests and responses, each with parts of several kinds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of, keys
from noetic_nb.items._frozen import FrozenDict, freeze
from noetic_nb.items._item import Item
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._messages import message as msg
from noetic_nb.items._origins import MODEL, with_origin

_KNOWN: Final = keys(
    "parts kind usage model_name timestamp finish_reason instructions run_id provider_name provider_url"
    " provider_response_id conversation_id vendor_id state cost model_id canonical_system provider_details"
)
# Calls and results of tools run by the provider, by their old and new names.
_CALLS: Final = frozenset({"tool-call", "builtin-tool-call", "native-tool-call"})
_RETURNS: Final = frozenset({"builtin-tool-return", "native-tool-return"})
# The package writes bytes as URL-safe base64; a data URL uses the standard alphabet.
_URL_SAFE: Final = str.maketrans("-_", "+/")
_OBJECTS: Final = ("ModelRequest", "ModelResponse")


def looks_like(value: Any) -> bool:
    """Tell whether a value is a message in this format."""
    if not isinstance(value, Mapping):
        return type(value).__name__ in _OBJECTS and hasattr(value, "parts")
    return value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list | tuple)


def decode(value: Any, reading: msg.Reading) -> None:
    """Read a request or a response."""
    if not isinstance(value, Mapping):
        # The package's own adapter knows how bytes are written.
        module = sys.modules[type(value).__module__]
        value = module.ModelMessagesTypeAdapter.dump_python([value], mode="json")[0]
    reading.skip_keys(value, _KNOWN)
    t_ms = msg.time_ms(value.get("timestamp"))
    if value.get("kind") == "response":
        _response(value, reading, t_ms)
    else:
        _request(value, reading, t_ms)


def _request(value: Mapping[str, Any], reading: msg.Reading, t_ms: float | None) -> None:
    instructions = value.get("instructions")
    # Sent again with each request, but recorded once.
    if isinstance(instructions, str) and not any(
        isinstance(one, msg.Message) and one.role == "system" and instructions in str(one.items)
        for one in reading.messages
    ):
        reading.messages.append(msg.Message("system", (msg.text_message("system", (msg.input_text(instructions),)),)))
    for number, part in enumerate(value["parts"]):
        kind = part.get("part_kind") if isinstance(part, Mapping) else None
        at = msg.time_ms(part.get("timestamp")) if isinstance(part, Mapping) else None
        known: dict[str, Any] = {"t_ms": t_ms if at is None else at}
        if kind == "system-prompt" and isinstance(part.get("content"), str):
            item = msg.text_message("system", (msg.input_text(part["content"]),))
            reading.messages.append(msg.Message("system", (item,), **known))
        elif kind == "user-prompt":
            parts = _parts(part.get("content"), number, reading)
            reading.messages.append(msg.Message("user", (msg.text_message("user", tuple(parts)),), **known))
        elif (
            kind in ("tool-return", "retry-prompt")
            and isinstance(part.get("tool_call_id"), str)
            and part.get("tool_name")
        ):
            errors: dict[str, str] = {}
            item = _output(part, errors)
            reading.messages.append(msg.Message("tool", (item,), errors=errors, statuses_known=True, **known))
        elif kind in ("retry-prompt", "retry-feedback"):  # the answer itself was invalid: the model is asked again
            item = with_origin(msg.text_message("user", (msg.input_text(_text(part.get("content"))),)), MODEL)
            reading.messages.append(msg.Message("user", (item,), **known))
        else:
            reading.skip(f"parts[{number}]", f"a part of kind {kind!r} cannot be read", part)


def _parts(content: Any, place: int, reading: msg.Reading) -> list[FrozenDict]:
    found = []
    for number, piece in enumerate([content] if isinstance(content, str) else content or ()):
        about = {"content": piece} if isinstance(piece, str) else msg.mapping(piece)
        kind = about.get("kind")
        if isinstance(about.get("content"), str):
            found.append(msg.input_text(about["content"]))
        elif kind == "image-url" and isinstance(about.get("url"), str):
            found.append(FrozenDict(type="input_image", imageUrl=about["url"], detail="auto"))
        elif kind == "binary" and isinstance(about.get("data"), str):
            media = str(about.get("media_type") or "")
            url = f"data:{media};base64,{about['data'].translate(_URL_SAFE)}"
            if media.startswith("image/"):
                found.append(FrozenDict(type="input_image", imageUrl=url, detail="auto"))
            elif media.startswith("audio/"):
                audio = FrozenDict(data=url.partition(";base64,")[2], format=media.partition("/")[2])
                found.append(FrozenDict(type="input_audio", input_audio=audio))
            else:
                found.append(FrozenDict(type="input_file", fileData=url))
        elif kind == "document-url" and isinstance(about.get("url"), str):
            found.append(FrozenDict(type="input_file", fileUrl=about["url"]))
        elif kind == "uploaded-file" and isinstance(about.get("file_id"), str):
            found.append(FrozenDict(type="input_file", fileId=about["file_id"]))
        elif kind != "cache-point":  # cache points mark the end of a prefix and have no content
            reading.skip(f"parts[{place}].content[{number}]", "a piece of a prompt cannot be read", piece)
    return found


def _text(content: Any) -> str:
    if isinstance(content, list | tuple) and any(isinstance(part, Mapping) and "msg" in part for part in content):
        return compact_json(content)  # the validation errors
    return msg.result_text(content)[0]


def _output(part: Mapping[str, Any], errors: dict[str, str]) -> Item:
    """Read the result of a tool; images and files beside its text stay in the item unchanged."""
    output, is_whole = _text(part.get("content")), msg.result_text(part.get("content"))[1]
    if part["part_kind"] == "retry-prompt" or part.get("outcome") in ("failed", "denied", "retried"):
        errors[part["tool_call_id"]] = output or "failed"
    own = {} if is_whole else msg.native("pydantic-ai", part)
    return msg.call_output(part["tool_call_id"], output, **own)


def _response(value: Mapping[str, Any], reading: msg.Reading, t_ms: float | None) -> None:
    items: list[Item] = []
    texts: list[FrozenDict] = []
    errors: dict[str, str] = {}
    calls = False
    for number, part in enumerate(value["parts"]):
        kind = part.get("part_kind") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("content"), str):
            cited = {"citations": freeze(part["citations"])} if part.get("citations") else {}
            texts.append(FrozenDict({**msg.output_text(part["content"]), **cited}))
            continue
        if texts:
            items.append(msg.text_message("assistant", tuple(texts)))
            texts = []
        if kind == "thinking" and isinstance(part.get("content"), str):
            own = {"signature": part["signature"]} if isinstance(part.get("signature"), str) else {}
            items.append(msg.thought(part["content"], **own))
        elif kind in _CALLS and isinstance(part.get("tool_name"), str) and part["tool_name"]:
            calls = calls or kind == "tool-call"
            call_id = part.get("tool_call_id")
            known = call_id if isinstance(call_id, str) and call_id else f"call_{len(reading.messages)}_{number}"
            items.append(msg.call(part["tool_name"], part.get("args"), known))
        elif kind in _RETURNS and isinstance(part.get("tool_call_id"), str):
            items.append(_output(part, errors))
        else:
            reading.skip(f"parts[{number}]", f"a part of kind {kind!r} cannot be read", part)
    if texts or not items:
        items.append(msg.text_message("assistant", tuple(texts)))
    counted = value.get("usage")
    parts = msg.mapping(counted)
    old = "request_tokens" in parts
    reading.messages.append(
        msg.Message(
            "assistant",
            tuple(items),
            model=value["model_name"] if isinstance(value.get("model_name"), str) else None,
            usage=msg.usage_of(
                counted,
                read="request_tokens" if old else "input_tokens",
                written="response_tokens" if old else "output_tokens",
                cached=parts.get("cache_read_tokens"),
                stored=parts.get("cache_write_tokens"),
                reasoning=msg.mapping(parts.get("details")).get("reasoning_tokens"),
            ),
            cost=msg.money(value.get("cost")),
            finish_reason=finish_reason_of(value.get("finish_reason") or ("tool_calls" if calls else "")),
            t_ms=t_ms,
            errors=errors,
            statuses_known=True,
        )
    )
