"""One message in a conversation, independent of its recorded format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

from noetic_nb._core.names import FinishReason
from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items._build import item_text
from noetic_nb.items._frozen import FrozenDict, freeze, thaw
from noetic_nb.items._item import Item
from noetic_nb.items._json_text import compact_json

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

# Enough to recognise a value, but a hostile source cannot fill the memory.
_CLIPPED: Final = 2_000
_MOST_TOKENS: Final = 2**53
# Content other than text in tool results; our outputs are text.
_MEDIA: Final = frozenset(
    {"image", "image_url", "input_image", "computer_screenshot", "document", "file", "input_file", "audio", "video"}
    | {"input_audio", "binary", "image-url", "audio-url", "video-url", "document-url", "uploaded-file"}
)


@dataclass(slots=True)
class Message:
    """One message as items in log order, without ids if the format has none, and its metadata.

    For an answer, as far as known: `usage` maps names of `models.Usage` to counts; `cost` is in US dollars. `t_ms` is
    the time of completion, since 1970. `errors` maps call ids to errors; `statuses_known` says whether the format
    records failed calls.
    """

    role: Role
    items: tuple[Item, ...]
    model: str | None = None
    usage: Mapping[str, int] | None = None
    cost: float | None = None
    finish_reason: FinishReason | None = None
    params: Mapping[str, Any] | None = None
    t_ms: float | None = None
    duration_ms: float | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    statuses_known: bool = False
    is_called: bool = True
    """Whether a model was called for an answer; False for a tool call made by the program itself."""
    is_kept: bool = True
    """Whether the items of an answer are part of the conversation; otherwise only the call has them."""
    error: str | None = None
    """The error of a failed model call."""
    children: Mapping[str, Child] = field(default_factory=dict)
    """Agents started by tool calls, by call id."""


@dataclass(slots=True)
class Child:
    """An agent started by another one: its name, and its conversation, whose first user message is its task."""

    name: str
    messages: Sequence[Message | Compaction | Child]
    failed: bool = False
    kind: str = "spawn"
    """Its kind of step: ``fork`` for another branch of the conversation, which no tool call started."""


@dataclass(slots=True)
class Compaction:
    """A point at which a part of the context was replaced; `ContextCompacted` describes the fields."""

    by: str
    items: tuple[Item, ...] = ()
    tokens_before: int | None = None
    tokens_after: int | None = None
    opaque: bool = False
    trigger: str | None = None
    items_removed: int | None = None
    answer: Message | None = None  # the model call that wrote the summary, if recorded
    model: str | None = None
    usage: Mapping[str, int] | None = None
    """Tokens billed by this model for the compaction, separately from all model calls."""
    t_ms: float | None = None


class Reading:
    """A conversation being read, with the values that cannot be mapped: listed, or raised as errors if `strict`."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.messages: list[Message | Compaction] = []
        self.unmapped: list[dict[str, Any]] = []
        self.searches: list[str] = []
        """Ids of calls whose outputs do not name them."""
        self.place = ""

    def skip(self, where: str, what: str, value: object, hint: str = "") -> None:
        """Report a value that cannot be mapped; `where` is its place inside the current message."""
        if self.strict:
            raise ItemValidationError(f"{self._at(where)}: {what}.", given=value, hint=hint)
        self.note(where, what, value)

    def note(self, where: str, what: str, value: object) -> None:
        """Report a value outside the messages, which does not affect the conversation."""
        if not self.strict:
            self.unmapped.append({"place": self._at(where), "what": what, "value": shown(value)})

    def _at(self, where: str) -> str:
        return f"{self.place}.{where}" if where else self.place

    def skip_keys(self, value: Mapping[str, Any], known: frozenset[str], where: str = "") -> None:
        """Report unread keys, unless they are empty."""
        for key, inner in value.items():
            if key not in known and inner not in (None, "", [], {}, ()):
                self.note(f"{where}.{key}" if where else str(key), "no place in a run", inner)


def shown(value: object) -> Any:
    """Return an unmapped value for display: shortened, or described if it is not JSON."""
    try:
        text = compact_json(value)
        return json.loads(text) if len(text) <= _CLIPPED else text[:_CLIPPED]
    except (ValueError, TypeError, RecursionError):
        pass
    try:
        return repr(value)[:_CLIPPED]
    except Exception:  # endless nesting, a number of thousands of digits, or a custom repr
        return f"a {type(value).__name__}"


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def records(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def input_text(text: str) -> FrozenDict:
    """Make an input part of a message."""
    return FrozenDict(type="input_text", text=text)


def output_text(text: str) -> FrozenDict:
    """Make an output part of a message."""
    return FrozenDict(type="output_text", text=text, annotations=())


def has_sound(part: Mapping[str, Any]) -> bool:
    """Tell whether a recorded audio part has data."""
    sound = part.get("input_audio")
    return isinstance(sound, Mapping) and isinstance(sound.get("data"), str)


def text_message(role: str, parts: tuple[FrozenDict, ...], **fields: Any) -> Item:
    """Make a message without an id."""
    return Item({"status": "completed", "type": "message", "role": role, **fields, "content": parts})


def thought(text: object, **own: Any) -> Item:
    """Make reasoning without an id; it is empty if there is no text."""
    parts = (FrozenDict(type="reasoning_text", text=text),) if isinstance(text, str) and text else ()
    return Item(type="reasoning", summary=(), content=parts, **own)


def call(name: str, arguments: object, call_id: str, **own: Any) -> Item:
    """Make a call without an item id; arguments that are not text are converted to JSON."""
    text = arguments if isinstance(arguments, str) else "{}" if arguments is None else _json(arguments)
    return Item(status="completed", type="function_call", callId=call_id, name=name, arguments=text, **own)


def call_output(call_id: str, output: str, **own: Any) -> Item:
    """Make the output of a call, without an item id."""
    return Item(status="completed", type="function_call_output", callId=call_id, output=output, **own)


def _json(value: object) -> str:
    try:
        return compact_json(value)
    except ValueError:  # NaN, which JSON lacks
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def result_text(content: object) -> tuple[str, bool]:
    """Return the result of a tool as text, and whether the text is complete: images and files are only named."""
    if content is None or isinstance(content, str):
        return content or "", True
    texts = []
    whole = True
    for part in content if isinstance(content, list | tuple) else [content]:
        found: Any = part  # a tool's own data may have a text besides other fields
        if isinstance(part, Mapping) and part.get("type") in ("text", "input_text", "output_text", "text-plain"):
            found = part.get("text")
        if isinstance(found, str):
            texts.append(found)
        elif isinstance(part, Mapping) and str(part.get("type", part.get("kind"))) in _MEDIA:
            texts.append(f"[{part.get('type', part.get('kind'))}]")
            whole = False
        else:
            return _json(content), True
    return "".join(texts), whole


def native(format: str, value: object) -> dict[str, Any]:
    """Return the item field with data that only its provider understands; `native_form` reads it."""
    return {"native": FrozenDict(format=format, value=freeze(value))}


def native_form(item: Mapping[str, Any], format: str) -> Any:
    """Return the provider's form of an item, as plain data; None if the item is from another format."""
    found = item.get("native")
    return thaw(found.get("value")) if isinstance(found, Mapping) and found.get("format") == format else None


def sendable_summary(item: Item, api: str) -> str:
    """Return the text of another provider's compaction; raises `unsendable` if it has no text."""
    if text := item_text(item):
        return text
    hint = "Leave it out in `project_history`: the items before it are still in the log."
    raise unsendable("a compaction that only its provider can read.", item, api, hint)


def sendable_arguments(call: Item) -> str:
    """Return an earlier call's arguments in a form that servers accept: truncated JSON would always be rejected."""
    return "{}" if call.get("status") == "incomplete" else call.get("arguments") or "{}"


def sendable_id(call_id: Any, longest: int) -> Any:
    """Return a call id that the API accepts: a long one is shortened, but stays unique."""
    if not isinstance(call_id, str) or len(call_id) <= longest:
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{call_id[: longest - 17]}_{digest}"


def unsendable(what: str, given: object, api: str, hint: str) -> NoeticConfigError:
    """Return the error for content that the API cannot express."""
    return NoeticConfigError("UNSUPPORTED_BY_API", f"The {api} API cannot take {what}", given=given, hint=hint)


def count(value: object) -> int | None:
    """Return a number of tokens, or None for any other value."""
    if type(value) is int and 0 <= value <= _MOST_TOKENS:
        return value
    found = money(value)
    # No real count exceeds the integers that a float represents exactly.
    return None if found is None or found > _MOST_TOKENS or not found.is_integer() else int(found)


def is_odd_count(value: object) -> bool:
    """Tell whether a value stands for a number of tokens and is none: a sum without it would be too small."""
    return value is not None and count(value) is None


def usage_of(
    value: object,
    *,
    read: str,
    written: str,
    cached: object = None,
    stored: object = None,
    reasoning: object = None,
    add: int = 0,
) -> dict[str, int] | None:
    """Map token counts to the names of `models.Usage`, or None; `add` has sent tokens that `read` excludes."""
    if not isinstance(value, Mapping):
        return None
    sent = count(value.get(read))
    found = {
        "input_tokens": None if sent is None else sent + add,
        "output_tokens": count(value.get(written)),
        "cached_tokens": count(cached),
        "cache_write_tokens": count(stored),
        "reasoning_tokens": count(reasoning),
    }
    return {name: number for name, number in found.items() if number is not None} or None


def money(value: object) -> float | None:
    """Return an amount of money, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return found if isfinite(found) and found >= 0 else None


def time_ms(value: object) -> float | None:
    """Return a time in milliseconds since 1970, from ISO text (UTC if it has no zone), a datetime, or seconds."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000
    seconds = money(value)
    return None if seconds is None else seconds * 1_000


UNREADABLE: Final = frozenset(
    {"compaction", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "additional_tools"}
)
"""Types of items that only their provider can read: they are sent back unchanged, and to no other provider."""
