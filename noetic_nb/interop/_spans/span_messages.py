"""Messages on spans, in any notation, as blocks: texts, reasoning, calls and results."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb._core.names import meanings
from noetic_nb.interop._spans.span_record import MAPPINGS
from noetic_nb.items._json_text import compact_json, parsed_json
from noetic_nb.items._messages.message import Role
from noetic_nb.items._origins import MODEL, ORIGIN_KINDS, Origin, origin_named

ROLES: Final[Mapping[str, Role]] = meanings(
    system="system developer",
    user="user human",
    assistant="assistant ai AIMessageChunk model",
    tool="tool function tool-response",
)
_TALKERS: Final = frozenset(["system", "user", "assistant", "tool"])
_CALLS: Final = frozenset(["tool_call", "tool_use", "function_call", "tool-call"])
_RESULTS: Final = frozenset(["tool_call_response", "tool_result", "tool-result", "function_call_output"])
_THOUGHTS: Final = frozenset(["reasoning", "thinking", "reasoning_text"])
_WORDS: Final = _THOUGHTS | {"text", "input_text", "output_text"}
_CALL_KEYS: Final = frozenset(["toolUse", "function_call", "functionCall"])
_WRAPPERS: Final = _CALL_KEYS | {"toolResult", "function_response", "functionResponse", "reasoningContent"}
# The start of a text that is a JSON list of blocks.
_BLOCKS: Final = ('[{"text"', '[{"toolUse"', '[{"toolResult"', '[{"type"', '[{"reasoningContent"')
_LONGEST_LITERAL: Final = 100_000


@dataclass(slots=True)
class Text:
    text: str
    is_thought: bool = False


@dataclass(slots=True)
class Call:
    """A call made by a model; `arguments` as written."""

    call_id: str | None
    name: str
    arguments: Any


@dataclass(slots=True)
class Result:
    """The result of a tool; `failed` is None if unknown."""

    call_id: str | None
    name: str | None
    output: str
    failed: bool | None = None


_MEDIA: Final = ("image", "audio", "video", "file", "document", "media", "blob", "uri")


@dataclass(slots=True)
class Other:
    """A block that a run has no place for."""

    value: Any

    @property
    def label(self) -> str:
        """Its placeholder in a message without other content: the kind of an image or file, "" for other blocks."""
        kind = self.value.get("type") if isinstance(self.value, Mapping) else None
        is_media = isinstance(kind, str) and any(name in kind for name in _MEDIA)
        return f"[{str(kind)[:50]}]" if is_media else ""


@dataclass(slots=True)
class SpanMessage:
    role: Role
    blocks: list[Text | Call | Result | Other] = field(default_factory=list)
    finish: str | None = None
    name: str | None = None  # of the participant; on our own spans the author, such as ``layer:notes``
    is_known: bool = True
    """Whether its role is a known one; otherwise the author is unknown."""

    @property
    def origin(self) -> Origin | None:
        """Its author, if the role does not imply it."""
        if not self.is_known:
            return MODEL
        is_author = self.name is not None and self.name.partition(":")[0] in ORIGIN_KINDS
        return origin_named(self.name) if is_author else None

    @property
    def text(self) -> str:
        """The text, without reasoning; if there is none, the kinds of its images and files."""
        words = "".join([block.text for block in self.blocks if type(block) is Text and not block.is_thought])
        return words or "".join([block.label for block in self.blocks if type(block) is Other])

    @property
    def calls(self) -> list[Call]:
        return [block for block in self.blocks if type(block) is Call]

    @property
    def results(self) -> list[Result]:
        return [block for block in self.blocks if type(block) is Result]


def parsed(value: Any) -> Any:
    """Return JSON text as data; any other value unchanged."""
    if not isinstance(value, str) or value[:1] not in _OPENING:
        return value
    try:
        return parsed_json(value)
    except (ValueError, RecursionError):
        return value


_OPENING: Final = frozenset(["{", "[", '"', " ", "\n"])


def read_messages(value: Any, role: str = "user") -> list[SpanMessage] | None:
    """Read messages from a list of them, one of them, or text; None for an empty value."""
    if isinstance(value, str):
        value = parsed(value)
    if type(value) is list and (not value or (type(value[0]) is dict and "role" in value[0])):  # the usual case
        return _each(value, role)
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return [_made(role, [Text(value)])]
    if isinstance(value, MAPPINGS):
        return [_message(value, role)]
    if not isinstance(value, list | tuple):
        return None
    if len(value) == 2 and isinstance(value[0], str) and value[0] in ROLES and isinstance(value[1], str):
        return [_made(value[0], [Text(value[1])])]
    if value and not any(map(_is_message, value)):
        return [_made(role, [_block(each) for each in value])]
    return _each(value, role)


def _each(values: Iterable[Any], role: str) -> list[SpanMessage]:
    found: list[SpanMessage] = []
    for each in values:
        if type(each) is dict:
            found.append(_message(each, role))
        else:
            found += read_messages(each, role) or []
    return found


def _is_message(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return True
    return isinstance(value, MAPPINGS) and ("role" in value or "lc" in value or isinstance(value.get("data"), Mapping))


def _made(role: str, blocks: list[Any], finish: Any = None, **about: Any) -> SpanMessage:
    known = ROLES.get(role, "user")
    # Some APIs put results in a user message.
    if known == "tool" and Result not in map(type, blocks):
        blocks = [Result(None, None, "".join([block.text for block in blocks if type(block) is Text]))]
    return SpanMessage(known, blocks, finish if isinstance(finish, str) and finish else None, **about)


# A message with only these keys is not wrapped, and has nothing besides its content.
OF_TODAY: Final = frozenset(["role", "parts", "content", "finish_reason"])


def _message(value: Mapping[str, Any], role: str) -> SpanMessage:
    is_of_today = OF_TODAY.issuperset(value)
    if not is_of_today:
        value = _unwrapped(value)
    elif type(who := value.get("role")) is str and who in _TALKERS and type(parts := value.get("parts")) is list:
        read = [_block(part) for part in parts]
        if who != "tool" or Result in map(type, read):
            finish = value.get("finish_reason")
            return SpanMessage(ROLES[who], read, finish if isinstance(finish, str) and finish else None)
    given = value["role"] if "role" in value else value.get("type")
    known = given if isinstance(given, str) and given in ROLES else role
    blocks: list[Any] = []
    content = value["parts"] if "parts" in value else value.get("content")
    if not is_of_today and isinstance(thoughts := value.get("reasoning_content"), str) and thoughts:
        blocks.append(Text(thoughts, is_thought=True))
    if isinstance(content, str):
        content = parsed(content) if content.startswith(_BLOCKS) else [content] if content else []
    if ROLES.get(known) == "tool" and not _has_results(content):
        failed = value.get("status") == "error" if "status" in value else None
        call_id = value.get("tool_call_id", value.get("id"))
        blocks.append(Result(_text(call_id), _text(value.get("name")), result_of(content), failed))
    elif isinstance(content, list | tuple):
        blocks += [_block(part) for part in content]
    elif isinstance(content, MAPPINGS):
        blocks.append(_block(content))
    about = {"name": _text(value.get("name")), "is_known": "role" not in value or known == given}
    if is_of_today:
        return _made(known, blocks, value.get("finish_reason"), **about)
    for call in value.get("tool_calls") or ():
        blocks.append(_call(call) or Other(call))
    legacy = value.get("function_call")
    if isinstance(legacy, Mapping) and legacy.get("name"):
        blocks.append(_call(legacy) or Other(legacy))
    return _made(known, blocks, value.get("finish_reason"), **about)


def _unwrapped(value: Mapping[str, Any]) -> Mapping[str, Any]:
    kwargs = value.get("kwargs", value.get("data"))
    if isinstance(kwargs, MAPPINGS) and ("lc" in value or "type" in value):  # a LangChain dump
        value = {**kwargs, "type": kwargs.get("type", value.get("type"))}
    inner = value.get("message")
    if isinstance(inner, MAPPINGS) and "role" not in value:  # a choice
        value = {**inner, "finish_reason": value.get("finish_reason")}
    return value


def _has_results(content: Any) -> bool:
    parts = [part for part in content if isinstance(part, MAPPINGS)] if isinstance(content, list | tuple) else ()
    return any(_kind(part) in _RESULTS or "toolResult" in part or "function_response" in part for part in parts)


def _kind(part: Mapping[str, Any]) -> str | None:
    kind = part.get("type")
    return kind if isinstance(kind, str) and kind else None


def _block(part: Any) -> Text | Call | Result | Other:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, MAPPINGS):
        return Other(part)
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        kind = None
    if not _WRAPPERS.isdisjoint(part) and (found := _wrapped(part, kind)) is not None:
        return found
    if kind is None or kind in _WORDS:
        for key in ("content", "text", "thinking"):
            if isinstance(text := part.get(key), str):
                return Text(text, is_thought=kind in _THOUGHTS or part.get("thought") is True)
    elif kind in _CALLS:
        return _call(part) or Other(part)
    elif kind in _RESULTS:
        return _result(part)
    return Other(part)


def _wrapped(part: Mapping[str, Any], kind: str | None) -> Text | Call | Result | Other | None:
    """Return a block that is nested below the key of its kind; None if it is not."""
    if not _CALL_KEYS.isdisjoint(part):
        return _call(part.get("toolUse") or part.get("function_call") or part.get("functionCall") or part) or Other(
            part
        )
    if kind in _CALLS:
        return None
    answer = part.get("toolResult") or part.get("function_response") or part.get("functionResponse")
    if isinstance(answer, MAPPINGS):
        return _result(answer)
    thought = part.get("reasoningContent")
    if kind in _RESULTS or not isinstance(thought, MAPPINGS):
        return None
    inner = thought.get("reasoningText")
    text = inner.get("text") if isinstance(inner, MAPPINGS) else None
    return Text(text, is_thought=True) if isinstance(text, str) else Other(part)


def _call(value: Any) -> Call | None:
    if not isinstance(value, MAPPINGS):
        return None
    inner = value.get("function")
    about = inner if isinstance(inner, MAPPINGS) else value
    name = about.get("name", about.get("toolName"))
    if not isinstance(name, str) or not name:
        return None
    call_id = _text(value.get("id")) or _first_text(value, "toolUseId", "toolCallId", "call_id")
    arguments = about.get("arguments")
    return Call(call_id, name, arguments if arguments is not None else _given(about, "args", "input", "parameters"))


def _given(value: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        if (found := value.get(key)) is not None:
            return found
    return None


def _first_text(value: Mapping[str, Any], *keys: str) -> str | None:
    for key in keys:
        if isinstance(found := value.get(key), str) and found:
            return found
    return None


def _result(value: Mapping[str, Any]) -> Result:
    call_id = _first_text(value, "id", "tool_use_id", "toolUseId", "tool_call_id", "toolCallId", "call_id")
    output = _given(value, "response", "result", "content", "output")
    failed: bool | None = None
    if isinstance(value.get("is_error"), bool):
        failed = value["is_error"]
    elif isinstance(value.get("status"), str):
        failed = value["status"] == "error"
    name = value.get("name", value.get("toolName"))
    return Result(call_id, _text(name), result_of(output), failed)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def result_of(value: Any) -> str:
    """Return a tool's result as the text that the model reads."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = value if isinstance(value, list | tuple) else None
    if parts and all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if parts and all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        return "".join([part["text"] for part in parts])
    try:
        return compact_json(value)
    except (ValueError, TypeError, RecursionError):
        return str(value)


def arguments_of(value: Any) -> Mapping[str, Any] | None:
    """Return arguments (a mapping, JSON or Python text) as a mapping; None for any other value."""
    if isinstance(value, MAPPINGS):
        return value
    if not isinstance(value, str) or value.lstrip()[:1] != "{":
        return None
    found = parsed(value)
    if isinstance(found, str) and len(found) <= _LONGEST_LITERAL:
        try:
            found = ast.literal_eval(found)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return found if isinstance(found, Mapping) else None


def words_of(messages: Iterable[SpanMessage] | None, role: str) -> str:
    """Return the text that one role wrote."""
    # Text that another author wrote in this role does not count.
    return "\n\n".join([msg.text for msg in messages or () if msg.role == role and msg.text and msg.origin is None])
