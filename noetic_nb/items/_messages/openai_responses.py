"""Items of OpenAI's Responses API, which resemble ours, and whole responses; `OpenAIModel` sends the items written here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

from noetic_nb._core.names import finish_reason_of, keys
from noetic_nb.errors import ItemValidationError
from noetic_nb.items._build import item_text
from noetic_nb.items._frozen import thaw
from noetic_nb.items._item import Item, is_base_type, parse_shape
from noetic_nb.items._messages import message as msg
from noetic_nb.items._messages.usage_fields import known_usage

_ROLES: Final[Mapping[str, msg.Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_API: Final = "responses"
# The API rejects longer call ids, which other servers create.
_LONGEST_ID: Final = 64
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
# Fields of a call that are not arguments.
_RESULTS: Final = ("error", "output", "outputs", "results", "result")
_ABOUT_CALLS: Final = frozenset(
    {"type", "id", "call_id", "name", "status", "server_label", "caller", "namespace", "execution", "environment"}
    | {"created_by", "fingerprint", "approval_request_id", *_RESULTS}
)
# Calls whose only argument has its own name for the action.
_ACTIONS: Final = {"shell_call": "action", "local_shell_call": "action", "apply_patch_call": "operation"}
_CALLS: Final = ("_call", "program")
_OUTPUTS: Final = ("_call_output", "tool_search_output", "program_output")
_COMPACTED: Final = "response.compaction"
# Items written by the user's program; all others are part of an answer.
_GIVEN: Final = frozenset({"mcp_approval_response", "additional_tools"})
# Fields of a response that are read, and those that repeat its request.
_KNOWN: Final = keys(
    "id object created_at completed_at status output usage model instructions temperature top_p max_output_tokens"
    " incomplete_details parallel_tool_calls tool_choice truncation text store background service_tier top_logprobs"
    " output_text error"
)
_INCOMPLETE: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}


def looks_like(value: Mapping[str, Any]) -> bool:
    """Tell whether a mapping is an item in this format, or a whole response."""
    if isinstance(value.get("output"), list | tuple) and value.get("object", "response") in ("response", _COMPACTED):
        return True
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _ENDS or kind.endswith((*_CALLS, *_OUTPUTS)):
        return kind in _ENDS or "call_id" in value or "id" in value
    if not is_base_type(kind):
        return False
    content = value.get("content")
    # Anthropic's answers also have the type "message".
    return kind != "message" or not isinstance(content, list | tuple) or _is_ours(content)


def _is_ours(content: Sequence[Any]) -> bool:
    kinds = {part.get("type") for part in content if isinstance(part, Mapping)}
    return not kinds or bool(kinds & {"input_text", "output_text", "input_image", "input_file", "refusal"})


def decode(value: Mapping[str, Any], reading: msg.Reading) -> None:
    """Read an item, or a response with all its items."""
    if isinstance(value.get("response"), Mapping) and value.get("type") in _ENDS:
        value = value["response"]
    if isinstance(value.get("output"), list | tuple) and "type" not in value:
        (_compacted if value.get("object") == _COMPACTED else _response)(value, reading)
        return
    if "role" in value and "type" not in value:  # the short form of a message, as in the API's input
        value = {"type": "message", **value}
    errors: dict[str, str] = {}
    items = _items(value, reading, errors)
    if not items:
        return
    if items[0]["type"] == "compaction":
        # It begins an answer, or a context that was compacted earlier: then no model was called.
        reading.messages += [_compaction(items[0]), msg.Message("assistant", items, is_called=False)]
        return
    role, last = _role(items[0]), reading.messages[-1] if reading.messages else None
    if role == "assistant" and isinstance(last, msg.Message) and last.role == role:
        last.items += items  # the items of an answer are adjacent
        last.errors, last.is_called = {**last.errors, **errors}, True
        return
    if items[0]["type"] == "mcp_approval_response":
        reading.messages += _refused(items[0], reading)
        return
    reading.messages.append(msg.Message(role, items, errors=errors))


def _compaction(item: Item, **known: Any) -> msg.Compaction:
    return msg.Compaction("openai", (item,), opaque=True, **{"trigger": "server", **known})


def _compacted(value: Mapping[str, Any], reading: msg.Reading) -> None:
    """Read an answer of the compact endpoint: the context from here on, whose user messages are already known."""
    reading.skip_keys(value, _KNOWN)
    items = tuple(item for raw in value["output"] if isinstance(raw, Mapping) for item in _items(raw, reading, {}))
    own = tuple(item for item in items if item["type"] in msg.UNREADABLE)
    usage, t_ms = known_usage(value.get("usage"), "openai-responses"), msg.time_ms(value.get("created_at"))
    answer = msg.Message("assistant", own, usage=usage, t_ms=t_ms)
    before = None if usage is None else usage.get("input_tokens")
    reading.messages.append(
        msg.Compaction("openai", items, before, opaque=True, trigger="responses.compact", answer=answer, t_ms=t_ms)
    )
    reading.messages.append(msg.Message("system", own, t_ms=t_ms))


def _refused(response: Item, reading: msg.Reading) -> list[msg.Message | msg.Compaction]:
    """Read the user's decision on a call of an MCP server; a refused call counts as failed."""
    asked: Any = response.get("approval_request_id")
    for message in reading.messages if response.get("approve") is False and isinstance(asked, str) else ():
        for place, item in enumerate(message.items if isinstance(message, msg.Message) else ()):
            if item["type"] == "mcp_approval_request" and item.get("id") == asked and isinstance(item.get("name"), str):
                made = msg.call(item["name"], item.get("arguments"), asked, **msg.native("openai-responses", item))
                message.items = (*message.items[:place], made, *message.items[place + 1 :])
                why = response.get("reason") if isinstance(response.get("reason"), str) else ""
                output = msg.call_output(asked, why or "denied", **msg.native("openai-responses", response))
                return [msg.Message("tool", (output,), errors={asked: why or "denied"}, statuses_known=True)]
    return [msg.Message("system", (response,))]


def _role(item: Item) -> msg.Role:
    kind = item["type"]
    if kind == "message":
        return _ROLES[item["role"]]
    if kind in _GIVEN:
        return "system"
    return "tool" if kind == "function_call_output" else "assistant"


def _items(value: Mapping[str, Any], reading: msg.Reading, errors: dict[str, str]) -> tuple[Item, ...]:
    """Return an item, followed by its output if the provider ran the tool; nothing for an unreadable item."""
    kind = value.get("type")
    if not isinstance(kind, str) or not (is_base_type(kind) or kind.endswith((*_CALLS, *_OUTPUTS))):
        reading.skip("type", f"an item of type {kind!r} is not known", value)
        return ()
    if kind == "function_call_output" or not is_base_type(kind):
        found = _output(value, reading, errors) if kind.endswith(_OUTPUTS) else _tool(value, reading, errors)
        if not found:
            reading.skip("call_id", "a call or an output has no id", value)
        return found
    if kind == "message":
        role, content = value.get("role"), value.get("content")
        if not isinstance(role, str) or role not in _ROLES:
            reading.skip("role", "there is no such role", value, f"Roles are {', '.join(_ROLES)}.")
            return ()
        if isinstance(content, str):
            value = {**value, "content": [(msg.output_text if role == "assistant" else msg.input_text)(content)]}
        elif not isinstance(content, list | tuple) or not all(isinstance(part, Mapping) for part in content):
            reading.skip("content", "the content of a message must be text or a list of parts", value)
            return ()
    try:
        item = parse_shape(value)
    except ItemValidationError as error:
        reading.skip("", error.what, value)
        return ()
    if not isinstance(item.get("id"), str | None):
        reading.skip("id", "an id is text", value)
        return ()
    if kind == "reasoning" and not all(map(_is_parts, (item.get("summary"), item.get("content")))):
        reading.skip("", "a thought must be a list of parts", value)
        return ()
    if kind == "function_call" and not all(
        isinstance(item.get(key), str) and item[key] for key in ("name", "arguments", "callId")
    ):
        reading.skip("", "a call lacks its name, arguments or call id", value)
        return ()
    return (item,)


def _is_parts(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and all(isinstance(part, Mapping) for part in value))


def _output(value: Mapping[str, Any], reading: msg.Reading, errors: dict[str, str]) -> tuple[Item, ...]:
    call_id = value.get("call_id", value.get("callId", value.get("id")))
    if value["type"] == "tool_search_output" and value.get("call_id") is None and reading.searches:
        call_id = reading.searches.pop(0)
    if not isinstance(call_id, str) or not call_id:
        return ()
    given = value.get("output", value.get("result", value.get("tools")))
    text, is_whole = msg.result_text(given)
    is_cut = value["type"] == "program_output" and value.get("status") == "incomplete"
    if value["type"] == "shell_call_output" and isinstance(given, list | tuple):
        text, why = _shell_text(given)
        if why:
            errors[call_id] = why
    elif value.get("status") == "failed" or isinstance(value.get("error"), str) or is_cut:
        errors[call_id] = str(value.get("error") or text or "failed")
    if value["type"] != "function_call_output":
        return (msg.call_output(call_id, text, **msg.native("openai-responses", value)),)
    own = {} if is_whole else msg.native("openai-responses", value)
    item = parse_shape({**value, "output": text, **own})
    return (item if item.get("callId") else Item({**item, "callId": call_id}),)


def _shell_text(parts: Sequence[Any]) -> tuple[str, str | None]:
    """Return the output of shell commands, and the reason if one of them failed."""
    texts, why = [], None
    for part in parts:
        if isinstance(part, Mapping):
            texts += [part[key] for key in ("stdout", "stderr") if isinstance(part.get(key), str)]
            ended = part.get("outcome")
            if isinstance(ended, Mapping) and ended.get("type") == "timeout":
                why = "timeout"
            elif isinstance(ended, Mapping) and ended.get("exit_code") not in (None, 0):
                why = f"exit code {ended['exit_code']}"
    return "".join(texts), why


def _tool(value: Mapping[str, Any], reading: msg.Reading, errors: dict[str, str]) -> tuple[Item, ...]:
    """Read a call of a tool that is not a function: custom, from an MCP server, or the provider's own."""
    kind = value["type"]
    call_id, name = value.get("call_id") or value.get("id"), value.get("name") or kind.removesuffix("_call")
    if not isinstance(call_id, str) or not call_id or not isinstance(name, str):
        return ()
    given = value.get("arguments")
    if given is None:
        given = value.get(_ACTIONS.get(kind, ""))
        given = given if isinstance(given, Mapping) else value
        given = {key: inner for key, inner in given.items() if given is not value or key not in _ABOUT_CALLS}
        given = {key: inner for key, inner in given.items() if inner is not None}
    if kind == "tool_search_call" and not value.get("call_id"):
        reading.searches.append(call_id)
    made = msg.call(name, given, call_id, **msg.native("openai-responses", value))
    results = [value[key] for key in _RESULTS if value.get(key) is not None]
    if not results:
        return (made,)
    output = msg.result_text(results[0])[0]
    if value.get("error") is not None or value.get("status") == "failed":
        errors[call_id] = output or "failed"
    # The call itself has its output when sent, so nothing is written for it.
    return made, msg.call_output(call_id, output, **msg.native("openai-responses", {}))


def _response(value: Mapping[str, Any], reading: msg.Reading) -> None:
    outer = reading.place
    reading.skip_keys(value, _KNOWN)
    prompt = value.get("instructions")
    prompts = [str(one.items) for one in reading.messages if isinstance(one, msg.Message) and one.role == "system"]
    # Sent again with each request, but recorded once.
    if isinstance(prompt, str) and not any(prompt in known for known in prompts):
        place = len(reading.messages) if prompts else 0  # the first prompts come before the user's messages
        reading.messages.insert(place, msg.Message("system", (msg.text_message("system", (msg.input_text(prompt),)),)))
    items: list[Item] = []
    errors: dict[str, str] = {}
    for number, raw in enumerate(value["output"]):
        reading.place = f"{outer}.output[{number}]"
        if isinstance(raw, Mapping):
            items += _items(raw, reading, errors)
        else:
            reading.skip("", "it is not an item", raw)
    reading.place = outer
    counted = value.get("usage")
    error, why = value.get("error"), value.get("incomplete_details")
    failed = error.get("message") or error.get("code") if isinstance(error, Mapping) else None
    if failed is None and value.get("status") == "failed":
        failed = "failed"
    reason = _INCOMPLETE.get(str(why.get("reason"))) if isinstance(why, Mapping) else None
    calls = any(item["type"] == "function_call" for item in items)
    keys = ("temperature", "top_p", "max_output_tokens")
    began, ended = msg.time_ms(value.get("created_at")), msg.time_ms(value.get("completed_at"))
    reading.messages += [_compaction(item, t_ms=began) for item in items if item["type"] == "compaction"]
    reading.messages.append(
        msg.Message(
            "assistant",
            tuple(items),
            model=value["model"] if isinstance(value.get("model"), str) else None,
            usage=known_usage(counted, "openai-responses"),
            cost=msg.money(counted.get("cost")) if isinstance(counted, Mapping) else None,
            finish_reason=None if failed else finish_reason_of(reason or ("tool_calls" if calls else "stop")),
            error=None if failed is None else str(failed),
            params={key: value[key] for key in keys if value.get(key) is not None} or None,
            t_ms=ended if ended is not None else began,
            duration_ms=ended - began if began is not None and ended is not None and ended >= began else None,
            errors=errors,
            statuses_known=True,
        )
    )


def joined(messages: Sequence[Any]) -> list[Any]:
    """Replace the events of a streamed response by the response, which the last event repeats completely."""
    return [message for message in messages if not _is_event(message) or message["type"] in _ENDS]


def _is_event(message: Any) -> bool:
    kind = message.get("type") if isinstance(message, Mapping) else None
    return isinstance(kind, str) and kind.startswith("response.")


def encode(
    items: Sequence[Item], failed: Collection[str] = (), *, to_wire: Callable[[str], str] | None = None
) -> list[dict[str, Any]]:
    """Return items as input of the API.

    With `to_wire`, which maps tool names, they form a request: ids are sent in groups or omitted, because the API only
    accepts its own ids, and reasoning only together with the items that followed it. It then raises `NoeticConfigError`
    ``UNSUPPORTED_BY_API`` for items that the API cannot express.
    """
    if to_wire is not None:
        return _request(items, to_wire)
    made = []
    for place, item in enumerate(items):
        own = msg.native_form(item, "openai-responses")
        if own is None and (item["type"] in _FIELDS or is_base_type(item["type"])):
            own = _wire_item(item, place)
        if own:
            made.append(own)
    return made


def _wire_item(item: Item, place: int) -> dict[str, Any]:
    kind = item["type"]
    if kind == "compaction" and not isinstance(item.get("encrypted_content"), str):
        return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": item_text(item)}]}
    fields = _FIELDS.get(kind)
    if fields is None:
        return cast("dict[str, Any]", thaw(item))
    wire = {_SNAKE.get(key, key): thaw(value) for key, value in item.items() if key in fields and value is not None}
    content = wire.get("content")
    if kind == "message" and isinstance(content, list):
        wire["content"] = [_wire_part(part) for part in content]
        if item.get("role") == "assistant" and all(
            part.keys() <= _BARE and not part["annotations"] for part in content
        ):
            return {"type": kind, "role": "assistant", "content": "".join(part["text"] for part in content)}
    if not _has_provider_id(item):
        wire.pop("id", None)
        # Only these two kinds can be referenced by id alone.
        if kind == "reasoning" or item.get("role") == "assistant":
            wire["id"] = f"{'rs' if kind == 'reasoning' else 'msg'}_{place}"
    return wire


def _wire_part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "input_audio":  # name it, so that readers see that something was omitted
        return {"type": "input_text", "text": "[input_audio]"}
    kept = {_PARTS.get(key, key): value for key, value in part.items() if key != "citations"}
    return {**kept, "annotations": kept.get("annotations") or []} if kept.get("type") == "output_text" else kept


def _is_output(item: Item) -> bool:
    return item["type"] == "function_call" or (item["type"] == "message" and item.get("role") == "assistant")


def _has_provider_id(item: Item) -> bool:
    return isinstance(item.get("id"), str) and item["id"].startswith(_PROVIDER_IDS)


def _request(items: Sequence[Item], to_wire: Callable[[str], str]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    linked = False
    for position, item in enumerate(items):
        kind = item["type"]
        if kind == "reasoning":
            # A window or layer may have removed the item after the reasoning, which the API rejects on its own.
            follower = items[position + 1] if position + 1 < len(items) else None
            linked = _has_provider_id(item) and follower is not None and _is_output(follower)
            linked = linked and follower is not None and _has_provider_id(follower)
            if linked:
                sent.append(thaw(item))
            continue
        linked = linked and _is_output(item) and _has_provider_id(item)
        if kind == "function_call":
            name, call_id = to_wire(item["name"]), msg.sendable_id(item.get("callId"), _LONGEST_ID)
            wire = {"type": kind, "call_id": call_id, "name": name, "arguments": msg.sendable_arguments(item)}
            sent.append({**wire, "id": item["id"]} if linked else wire)
        elif kind == "function_call_output":
            call_id = msg.sendable_id(item.get("callId"), _LONGEST_ID)
            sent.append({"type": kind, "call_id": call_id, "output": item.get("output") or ""})
        elif kind == "message":
            sent.append(thaw(item) if linked else _request_message(item))
        elif kind == "compaction":
            own = isinstance(item.get("encrypted_content"), str)
            sent.append(
                _wire_item(item, position)
                if own
                else {
                    "role": "developer",
                    "content": [{"type": "input_text", "text": msg.sendable_summary(item, _API)}],
                }
            )
        elif not is_base_type(kind):  # the others belong to the provider's own tools, which it has already run
            raise msg.unsendable(
                f"an item of type {kind!r}", item, _API, "Turn it into a message in `project_history`."
            )
    return sent


def _request_message(item: Item) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content") or ()
    if role == "assistant":
        refusals = [part["refusal"] for part in content if part.get("type") == "refusal"]
        return {"role": role, "content": item_text(item) or "".join(refusals)}
    return {"role": role, "content": content if isinstance(content, str) else [_request_part(part) for part in content]}


def _request_part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "input_text" | "output_text":
            return {"type": "input_text", "text": part["text"]}
        case "input_image":
            return {"type": "input_image", "image_url": part.get("imageUrl"), "detail": part.get("detail") or "auto"}
        case "input_file":
            renamed = {"fileData": "file_data", "fileId": "file_id", "fileUrl": "file_url", "filename": "filename"}
            given = {wire: part.get(name) for name, wire in renamed.items()}
            return {"type": "input_file", **{wire: value for wire, value in given.items() if value is not None}}
    raise msg.unsendable(f"a part of type {part['type']!r}", part, _API, "Use text, images or files.")


_SNAKE: Final = {"callId": "call_id"}
_PARTS: Final = {"imageUrl": "image_url", "fileData": "file_data", "fileId": "file_id", "fileUrl": "file_url"}
_BARE: Final = frozenset({"type", "text", "annotations"})  # a part with only these fields is equivalent to its text
# The provider's id prefixes (API reference, "The response object"); ids made here begin with the kind's name.
_PROVIDER_IDS: Final = ("rs_", "msg_", "fc_", "cmp_")
# The API's fields of an item; it rejects all others.
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "message": frozenset({"type", "id", "role", "content", "status", "phase"}),
    "function_call": frozenset({"type", "id", "callId", "name", "arguments", "status", "namespace", "caller"}),
    "function_call_output": frozenset({"type", "id", "callId", "output", "status", "caller"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "compaction": frozenset({"type", "id", "encrypted_content"}),
}
