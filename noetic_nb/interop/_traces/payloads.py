"""Model requests and answers in traces, in the form of any provider or framework: messages, tokens, tool results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from noetic_nb._core.names import keys
from noetic_nb.interop._formats.sources import Keys
from noetic_nb.interop._spans.span_messages import ROLES, parsed, result_of
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._messages.message import count, is_odd_count, mapping, money, usage_of

_SENT: Final = ("messages", "contents", "input", "inputs", "prompts", "prompt", "message", "query", "question", "task")
_SYSTEM: Final = ("system", "instructions", "system_instruction", "systemInstruction")
_KEPT: Final = (
    "content", "parts", "tool_calls", "tool_call_id", "name", "status", "reasoning_content", "function_call", "finish_reason",
)  # fmt: skip
_CALLS: Final = frozenset(["function_call", "custom_tool_call", "mcp_call"])
_RESULTS: Final = frozenset(["function_call_output", "custom_tool_call_output"])
_FINISH: Final = ("finish_reason", "finishReason", "stop_reason", "done_reason")
_READ: Final = ("input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount", "inputTokens")
_WRITTEN: Final = (
    "output_tokens",
    "completion_tokens",
    "candidates_token_count",
    "candidatesTokenCount",
    "outputTokens",
)
_CACHED: Final = ("cache_read_input_tokens", "cached_content_token_count", "cachedContentTokenCount", "cached_tokens")
_STORED: Final = ("cache_creation_input_tokens", "cache_write_tokens")
_THOUGHT: Final = ("reasoning_tokens", "thoughts_token_count", "thoughtsTokenCount")
_USAGES: Final = ("usage", "usage_metadata", "usageMetadata", "token_usage", "metrics")
# The keys that are read of requests and answers; tokens by kind are added below.
PAYLOAD: Final = Keys(
    keys(
        _SENT, _SYSTEM, _KEPT, _FINISH, _READ, _WRITTEN, _CACHED, _STORED, _THOUGHT, _USAGES,
        "config role type text lc kwargs data additional_kwargs invalid_tool_calls refusal function index call_id id",
        "choices candidates generations generation_info response_metadata llm_output model model_name output_text completion",
        "response answer temperature top_p max_tokens seed thinking reasoning reasoning_text summary tool_use_id is_error",
        "total_tokens totalTokenCount total_token_count prompt_tokens_details completion_tokens_details",
        "input_tokens_details output_tokens_details input_token_details output_token_details prompt_token_details",
        "completion_token_details lc_source cache_read cache_creation cache_write cached cached_tokens",
        "cache_creation_tokens ephemeral_5m_input_tokens ephemeral_1h_input_tokens",
    ) - {"input", "inputs"},
    # Images and files are listed with their items.
    keys(
        "tools arguments args input inputs output outputs result",
        "image_url image source input_audio file inline_data inlineData file_data fileData",
    ),
    {"object": "the name of the form", "created": "a time once more", "requests": "a number of calls, of which each is one"},
)  # fmt: skip
USAGE_ATTRIBUTES: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_DUMPS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("model_dump", {"mode": "json", "by_alias": True}),
    ("to_dict", {}),
    ("dict", {}),
)
_DEEPEST: Final = 8


def first_of(value: Mapping[str, Any], *names: str) -> Any:
    """Return the first of some keys with a non-empty value."""
    return next((found for name in names if (found := value.get(name)) not in (None, "", [], {})), None)


def number(value: Any) -> float | None:
    """Return a number, which may be written as text."""
    if (isinstance(value, str) and len(value) < 40) or type(value).__name__ == "Decimal":
        try:
            value = float(value)
        except ValueError:
            return None
    return money(value)


def plain(value: Any) -> Any:
    """Return an object of a service's package, or its JSON, as data."""
    if isinstance(value, str):
        return parsed(value)
    if isinstance(value, Mapping):
        return value
    for name, options in _DUMPS:
        if callable(dump := getattr(value, name, None)):
            try:
                return dump(**options)
            except Exception:  # raised by an object of another package
                continue
    return value


def sent(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a request, whose system prompt may be separate."""
    value = parsed(value)
    if not isinstance(value, Mapping) or _is_message(value):
        return _messages(value, "user")
    inner = first_of(value, *_SENT)
    system = first_of(value, *_SYSTEM) or first_of(mapping(value.get("config")), *_SYSTEM)
    made = [] if system is None else _messages(system, "system")
    return made + _messages(_words(value) if inner is None else inner, "user")


def _words(value: Mapping[str, Any]) -> str:
    """Return a mapping of unknown form as text: its only text, or else its JSON."""
    held = [each for each in value.values() if each not in (None, "", [], {})]
    if len(held) == 1 and isinstance(held[0], str):
        return held[0]
    return result_of(value) if held else ""


def _is_message(value: Mapping[str, Any]) -> bool:
    return "role" in value or "lc" in value or _kind(value) in ROLES


def _messages(value: Any, role: str, depth: int = 0) -> list[dict[str, Any]]:
    value = value if isinstance(value, list | tuple) else plain(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value else []
    if isinstance(value, Mapping):
        return [_message(value, role)]
    if not isinstance(value, list | tuple) or depth > _DEEPEST:
        return []
    value = [each if isinstance(each, str | list | tuple) else plain(each) for each in value]
    if len(value) == 2 and isinstance(value[0], str) and value[0] in ROLES:  # a LangChain pair
        return _messages(value[1], value[0], depth + 1)
    if value and not any(isinstance(each, list | tuple) or _names_itself(each) for each in value):
        if all(isinstance(each, str) for each in value):  # prompts, or the texts of one message
            return [made for each in value for made in _messages(each, role)]
        return [{"role": role, "content": list(value)}]  # parts of one message
    return [made for each in value for made in _messages(each, role, depth + 1)]


def _names_itself(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    kind = _kind(value)
    is_item = (kind in _CALLS | _RESULTS and "call_id" in value) or (kind == "reasoning" and "id" in value)
    return is_item or _is_message(value)


def _kind(value: Mapping[str, Any], name: str = "type") -> str:
    """Return the type or role of a message, "" if it is not text."""
    return kind if isinstance(kind := value.get(name), str) else ""


def _message(value: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return a message with the relevant keys, from an API message, a Responses item or a LangChain dump."""
    kind = _kind(value)
    inner = value.get("kwargs", value.get("data"))
    if isinstance(inner, Mapping) and ("lc" in value or "type" in value):
        path = value.get("id")
        name = str(path[-1] if isinstance(path, list) and path else kind)
        kind = _kind(inner) or name.removesuffix("Chunk").removesuffix("Message").lower()
        value = inner
    if kind in _CALLS and "role" not in value:
        arguments = value.get("arguments", value.get("input"))
        call = {"type": "tool_call", "id": value.get("call_id", value.get("id")), "name": value.get("name")}
        return {"role": "assistant", "content": [{**call, "arguments": arguments}]}
    if kind in _RESULTS and "role" not in value:
        part = {"type": "tool_call_response", "id": value.get("call_id"), "response": value.get("output")}
        return {"role": "tool", "content": [part]}
    if kind == "reasoning" and "role" not in value:
        texts = [mapping(part).get("text") for name in ("summary", "content") for part in value.get(name) or ()]
        return {"role": "assistant", "content": [{"type": "reasoning", "content": str(text)} for text in texts if text]}
    said = _kind(value, "role")
    known = said if said in ROLES else kind if kind in ROLES else role
    beside = mapping(value.get("additional_kwargs"))
    is_summary = beside.get("lc_source") == "summarization"  # in the user role
    if is_summary:
        known = "system"
    made = {name: each for name in _KEPT if (each := value.get(name) or beside.get(name)) is not None}
    if is_summary or (said and said not in ROLES):  # the author differs from the message's role
        made["name"] = "model"
    if isinstance(invalid := value.get("invalid_tool_calls"), list) and invalid:
        made["tool_calls"] = [*(made.get("tool_calls") or ()), *invalid]
    if "content" not in made and "parts" not in made:
        made["content"] = value.get("refusal") or value.get("text") or ""
    return {**made, "role": known}


class Answer(NamedTuple):
    """The messages of an answer, its finish reason, its model (None if not given), and its other choices."""

    messages: list[dict[str, Any]] | None
    finish: str | None = None
    model: str | None = None
    others: tuple[Any, ...] = ()


def answered(value: Any) -> Answer:
    """Return the answer in a model's response, without request messages that it repeats."""
    value = parsed(value)
    if value in (None, "", [], {}):
        return Answer(None)
    if not isinstance(value, Mapping):
        return Answer(_last(_messages(value, "assistant")))
    inner: Any = value
    others: list[Any] = []
    for _ in range(_DEEPEST):  # choices, candidates and generations are in lists, some in nested lists
        if isinstance(inner, list | tuple) and inner:
            others += inner[1:]
            inner = inner[0]
        elif (found := first_of(mapping(inner), "choices", "candidates", "generations")) is not None:
            inner = found
        else:
            break
    choice = mapping(inner)
    said = choice.get("message")
    content = choice.get("content")
    if isinstance(said, Mapping):
        messages = [_message(said, "assistant")]
    elif isinstance(content, Mapping):
        messages = [_message(content, "assistant")]
    elif choice is not value:
        messages = _messages(inner if _is_message(choice) else choice.get("text"), "assistant")
    elif _is_message(value) or "content" in value or "tool_calls" in value:
        messages = [_message(value, "assistant")]
    else:
        found = first_of(
            value, "output", "messages", "output_text", "completion", "response", "text", "answer", "result"
        )
        messages = _last(_messages(_words(value) if found is None else found, "assistant"))
    places = list(_places(value))
    finish = next((found for place in places if isinstance(found := first_of(place, *_FINISH), str)), None)
    model = next((found for place in places if isinstance(found := first_of(place, "model", "model_name"), str)), None)
    return Answer(messages, None if finish is None else finish.lower(), model, tuple(others))


def _last(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the assistant messages at the end."""
    start = len(messages)
    while start and ROLES.get(messages[start - 1]["role"]) == "assistant":
        start -= 1
    return messages[start:]


def _places(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings of a response that hold its facts, for all providers and frameworks."""
    if isinstance(value, list | tuple) and value and depth < _DEEPEST:
        yield from _places(value[0], depth + 1)
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return
    yield value
    for name in (
        "choices", "candidates", "generations", "generation_info", "message", "kwargs", "response_metadata", "llm_output"
    ):  # fmt: skip
        if name in value:
            yield from _places(value[name], depth + 1)


def called(messages: list[dict[str, Any]] | None) -> Iterator[str]:
    """Yield the names of the tools that an answer calls."""
    for msg in messages or ():
        calls = msg.get("tool_calls")
        content = msg.get("content")
        for each in [*(calls if isinstance(calls, list) else ()), *(content if isinstance(content, list) else ())]:
            name = mapping(mapping(each).get("function", each)).get("name")
            if isinstance(name, str):
                yield name


def unread(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each part of a request or an answer that no reader uses."""
    value = parsed(value)
    if isinstance(value, Mapping) and PAYLOAD.read.isdisjoint(value) and PAYLOAD.inside.isdisjoint(value):
        return
    yield from PAYLOAD.unread(value)
    # Elsewhere these keys hold a tool's arguments and result.
    for name in (
        ("input", "inputs", "output", "outputs") if isinstance(value, Mapping) and not _is_message(value) else ()
    ):
        yield from PAYLOAD.unread(parsed(value.get(name)), name)


def usage_in(response: Any) -> dict[str, int]:
    """Return the tokens that a response names, each from the first mapping that has it."""
    found: dict[str, int] = {}
    for place in _places(parsed(response)):
        for name in _USAGES:
            if name in place:
                found = {**(tokens(place[name]) or {}), **found}
    return found


def tokens(value: Any) -> dict[str, int] | None:
    """Return token counts of a provider, of LangChain or in a service's own form, by the names of `models.Usage`."""
    value = mapping(value)
    read = next((name for name in _READ if count(value.get(name)) is not None), "")
    written = next((name for name in _WRITTEN if count(value.get(name)) is not None), "")
    parts: dict[str, dict[str, int]] = {"in": {}, "out": {}}
    for name, inner in value.items():
        if isinstance(inner, Mapping) and "detail" in str(name):
            side = parts["in" if str(name).startswith(("input", "prompt")) else "out"]
            side.update({str(key): known for key, each in inner.items() if (known := count(each)) is not None})
    above = {str(name): known for name, each in value.items() if (known := count(each)) is not None}
    cached = _part(parts["in"], "cache_read", "cached_tokens", "cached")
    stored = _part(parts["in"], "cache_creation", "cache_write_tokens", "cache_creation_tokens", "cache_write")
    brief = [each for name, each in parts["in"].items() if name.startswith("ephemeral_")]
    stored = max(sum(brief), stored or 0) if brief else stored
    thought = _part(parts["out"], "reasoning", "reasoning_tokens")
    apart = 0
    if cached is None and stored is None:
        cached, stored = _part(above, *_CACHED), _part(above, *_STORED)
        beside = (above.get("cache_read_input_tokens") or 0) + (above.get("cache_creation_input_tokens") or 0)
        # Anthropic counts cached tokens apart from the input and gives no total; services add them up.
        if read == "input_tokens" and ("total_tokens" not in above or above[read] < beside):
            apart = beside
            if any(
                is_odd_count(value.get(name)) for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
            ):
                read = ""
    thought = _part(above, *_THOUGHT) if thought is None else thought
    made = usage_of(value, read=read, written=written, cached=cached, stored=stored, reasoning=thought, add=apart)
    if made and written.startswith("candidates") and thought:  # Gemini counts reasoning tokens apart from the answer
        made["output_tokens"] += thought
    return made


def _part(values: Mapping[str, int], *names: str) -> int | None:
    """Return the first of some counts; the name may have a service tier as prefix."""
    for name in names:
        if (found := [each for key, each in values.items() if key in (name, f"flex_{name}", f"priority_{name}")]) != []:
            return sum(found)
    return None


class Outcome(NamedTuple):
    """The result of a tool: its text, and further facts in a LangChain message."""

    text: str | None
    call_id: str | None = None
    failed: bool = False


def outcome(value: Any) -> Outcome:
    """Return the result of a tool."""
    inner = value["output"] if isinstance(value, Mapping) and value.keys() == {"output"} else value
    inner = inner if isinstance(inner, str) else plain(inner)
    if inner in (None, {}):
        return Outcome(None)
    if isinstance(inner, Mapping) and _is_message(inner):
        made = _message(inner, "tool")
        if ROLES.get(made["role"]) == "tool":
            call_id = made.get("tool_call_id")
            return Outcome(
                result_of(made.get("content")),
                call_id if isinstance(call_id, str) else None,
                made.get("status") == "error",
            )
    return Outcome(result_of(inner))


def arguments(value: Any) -> Any:
    """Return the arguments of a tool, without LangChain's wrapping around a text."""
    value = parsed(value)
    if isinstance(value, Mapping) and value.keys() == {"input"} and str(value["input"]).lstrip()[:1] == "{":
        return value["input"]
    return compact_json(value) if isinstance(value, list) else value
