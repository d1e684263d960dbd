"""One message of one party of a conversation, in any recorded format."""

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

# Long enough to recognise what it was, short enough that a hostile source fills no memory.
_CLIPPED: Final = 2_000
_MOST_TOKENS: Final = 2**53
# What a tool may answer with beside text; our outputs are text.
_MEDIA: Final = frozenset(
    {"image", "image_url", "input_image", "computer_screenshot", "document", "file", "input_file", "audio", "video"}
    | {"input_audio", "binary", "image-url", "audio-url", "video-url", "document-url", "uploaded-file"}
)


@dataclass(slots=True)
class Message:
    """One message as items in the order of the log, without ids where the format has none, and the facts about it.

    Those of an answer as far as they are known: `usage` has the known counts of `models.Usage` by name; `cost` is
    in US dollars. `t_ms` is when it was complete, since 1970. `errors` are those of calls, by
    call id; `statuses_known` is whether the format says which calls failed.
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
    """Whether a model was called for an answer; False for a call of a tool that the program made by itself."""
    is_kept: bool = True
    """Whether the items of an answer stand in the conversation; those of a call beside it stand in the call alone."""
    error: str | None = None
    """Of a model call that failed."""
    children: Mapping[str, Child] = field(default_factory=dict)
    """Agents that the calls of tools started, by call id."""


@dataclass(slots=True)
class Child:
    """An agent that another one started: its name, and its conversation, whose first user message is its task."""

    name: str
    messages: Sequence[Message | Compaction | Child]
    failed: bool = False
    kind: str = "spawn"
    """Its kind of step: ``fork`` for another way that the conversation took, which no call of a tool started."""


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
    answer: Message | None = None  # the model call that wrote the summary, where the source shows it
    model: str | None = None
    usage: Mapping[str, int] | None = None
    """Tokens of this model that were billed for it beside those of all model calls."""
    t_ms: float | None = None


class Reading:
    """A conversation while it is read, and the values that have no place in it: listed, or raised where it is `strict`."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.messages: list[Message | Compaction] = []
        self.unmapped: list[dict[str, Any]] = []
        self.searches: list[str] = []
        """Ids of calls whose outputs name no call."""
        self.place = ""

    def skip(self, where: str, what: str, value: object, hint: str = "") -> None:
        """Note that something cannot be mapped; `where` is inside the message that is being read."""
        if self.strict:
            raise ItemValidationError(f"{self._at(where)}: {what}.", given=value, hint=hint)
        self.note(where, what, value)

    def note(self, where: str, what: str, value: object) -> None:
        """Note a value beside a message: it does no harm to a conversation that goes on."""
        if not self.strict:
            self.unmapped.append({"place": self._at(where), "what": what, "value": shown(value)})

    def _at(self, where: str) -> str:
        return f"{self.place}.{where}" if where else self.place

    def skip_keys(self, value: Mapping[str, Any], known: frozenset[str], where: str = "") -> None:
        """Note the keys that nobody reads, unless they hold nothing."""
        for key, inner in value.items():
            if key not in known and inner not in (None, "", [], {}, ()):
                self.note(f"{where}.{key}" if where else str(key), "no place in a run", inner)


def shown(value: object) -> Any:
    """Return a value that cannot be mapped as data to look at: cut where it is long, in words where it is no JSON."""
    try:
        text = compact_json(value)
        return json.loads(text) if len(text) <= _CLIPPED else text[:_CLIPPED]
    except (ValueError, TypeError, RecursionError):
        pass
    try:
        return repr(value)[:_CLIPPED]
    except Exception:  # nested without end, a number of thousands of digits, or a repr of its own
        return f"a {type(value).__name__}"


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def records(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list, none for any other value."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def input_text(text: str) -> FrozenDict:
    """Make a part of a message that goes to the model."""
    return FrozenDict(type="input_text", text=text)


def output_text(text: str) -> FrozenDict:
    """Make a part of a message that came from the model."""
    return FrozenDict(type="output_text", text=text, annotations=())


def has_sound(part: Mapping[str, Any]) -> bool:
    """Tell whether a part of recorded sound holds any."""
    sound = part.get("input_audio")
    return isinstance(sound, Mapping) and isinstance(sound.get("data"), str)


def text_message(role: str, parts: tuple[FrozenDict, ...], **fields: Any) -> Item:
    """Make a message without an id."""
    return Item({"status": "completed", "type": "message", "role": role, **fields, "content": parts})


def thought(text: object, **own: Any) -> Item:
    """Make reasoning without an id; no text leaves it empty."""
    parts = (FrozenDict(type="reasoning_text", text=text),) if isinstance(text, str) and text else ()
    return Item(type="reasoning", summary=(), content=parts, **own)


def call(name: str, arguments: object, call_id: str, **own: Any) -> Item:
    """Make a call without an id of its own; arguments that are no text are written as JSON."""
    text = arguments if isinstance(arguments, str) else "{}" if arguments is None else _json(arguments)
    return Item(status="completed", type="function_call", callId=call_id, name=name, arguments=text, **own)


def call_output(call_id: str, output: str, **own: Any) -> Item:
    """Make the output of a call, without an id of its own."""
    return Item(status="completed", type="function_call_output", callId=call_id, output=output, **own)


def _json(value: object) -> str:
    try:
        return compact_json(value)
    except ValueError:  # NaN: no JSON, but what was recorded
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def result_text(content: object) -> tuple[str, bool]:
    """Return the result of a tool as text, and whether that is all of it: pictures and files are named only."""
    if content is None or isinstance(content, str):
        return content or "", True
    texts = []
    whole = True
    for part in content if isinstance(content, list | tuple) else [content]:
        found: Any = part  # data of a tool's own may have a text, too, and more beside it
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
    """Return the field of an item that keeps data only its provider understands; `native_form` gives it back."""
    return {"native": FrozenDict(format=format, value=freeze(value))}


def native_form(item: Mapping[str, Any], format: str) -> Any:
    """Return the provider's form of an item, as plain data; None if the item is not of this format."""
    found = item.get("native")
    return thaw(found.get("value")) if isinstance(found, Mapping) and found.get("format") == format else None


def sendable_summary(item: Item, api: str) -> str:
    """Return the text of a compaction of another provider; one without text raises `unsendable`."""
    if text := item_text(item):
        return text
    hint = "Leave it out in `project_history`: the items before it are still in the log."
    raise unsendable("a compaction that only its provider can read.", item, api, hint)


def sendable_arguments(call: Item) -> str:
    """Return the arguments of an earlier call as a server takes them: none of half a call, which would be refused for ever."""
    return "{}" if call.get("status") == "incomplete" else call.get("arguments") or "{}"


def sendable_id(call_id: Any, longest: int) -> Any:
    """Return the id of a call as an API takes it: one that is too long is cut, and still its own."""
    if not isinstance(call_id, str) or len(call_id) <= longest:
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{call_id[: longest - 17]}_{digest}"


def unsendable(what: str, given: object, api: str, hint: str) -> NoeticConfigError:
    """Make the error for something an API has no form for."""
    return NoeticConfigError("UNSUPPORTED_BY_API", f"The {api} API cannot take {what}", given=given, hint=hint)


def count(value: object) -> int | None:
    """Return a number of tokens, or None for any other value."""
    if type(value) is int and 0 <= value <= _MOST_TOKENS:
        return value
    found = money(value)
    # More tokens than a float counts exactly are nobody's.
    return None if found is None or found > _MOST_TOKENS else int(found)


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
    """Return counted tokens by the names of `models.Usage`, None for no count; `add` are sent ones that `read` leaves out."""
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
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return found if isfinite(found) and found >= 0 else None


def time_ms(value: object) -> float | None:
    """Return a time as milliseconds since 1970: of ISO text (UTC where it names no zone), a datetime, or seconds."""
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
"""Types of items that only their provider can read: they go back to it as they came, and to no other."""
