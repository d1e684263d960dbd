"""Makes items, reads their text, and finds the common prefix of requests. Pure functions; ids come from the caller's `Ids`.

Servers that imitate an API may restart their call ids in every answer, or give parallel calls the same id. Outputs are
matched to calls by id, so the second call with an id would lose its output, or get the first one's: it gets a unique id
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items._frozen import MAPPINGS, FrozenDict
from noetic_nb.items._item import Item, content_count, remember_content
from noetic_nb.items._json_text import compact_json
from noetic_nb.tokens import UNITS_PER_TOKEN, Tokenizer, estimate_tokens, most_that_fit, utf16_units

_NOT_SENT: Final = frozenset({"id", "status"})


def sent_text(item: Mapping[str, Any]) -> str:
    """Return the part of an item that is sent to a provider, as compact JSON."""
    return compact_json({key: value for key, value in item.items() if key not in _NOT_SENT})


def sent_hash(item: Mapping[str, Any]) -> int:
    """Return a hash that is equal for items that are equal when sent, whatever the order of keys."""
    return hash(frozenset([pair for pair in item.items() if pair[0] not in _NOT_SENT]))


def same_when_sent(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two items are equal when sent to a provider."""
    if one is other:
        return True
    # Compare the text first: if it differs, as it usually does, nothing else needs comparing.
    if one.get("content") != other.get("content") or one["type"] != other["type"]:
        return False
    if one.keys() != other.keys() and not (one.keys() ^ other.keys()) <= _NOT_SENT:
        return False
    return all(key in _NOT_SENT or other[key] == value for key, value in one.items())


def leading_text(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of an item, and its sent text: only items of one kind can share the beginning of a text."""
    return f"{item['type']} {item.get('role') or ''}".strip(), item_text(item)


# A request is compared with the previous one and with the nearest of all others, which is usually the same one, so a
# small cache is enough.
@lru_cache(maxsize=8)
def _alike(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    return most_that_fit(min(len(one), len(other)), lambda size: one[:size] == other[:size])


def leading_tokens(one: str, other: str, most: int, tokenizer: Tokenizer = estimate_tokens) -> int:
    """Return the tokens of the common prefix of two different texts, minus one for a tokenizer whose last token may extend."""
    alike = one[: _alike(one, other)]
    if tokenizer is estimate_tokens:
        # Two characters outside the BMP may share their first surrogate.
        first = [text[len(alike) : len(alike) + 1].encode("utf-16-le", "surrogatepass")[:2] for text in (one, other)]
        count = (utf16_units(alike) + (first[0] == first[1] != b"")) // UNITS_PER_TOKEN
    else:
        count = int(tokenizer(alike)) - 1
    return max(0, min(count, most - 1))


_CALL: Final = "function_call"
_OUTPUT: Final = "function_call_output"
# Fields that identify an item or a part, without its content.
_FRAME: Final = frozenset({"id", "type", "status", "role", "callId"})
_PICTURE: Final = ("image_generation_call", "result")


def input_message(
    text: str,
    role: Literal["user", "developer", "system"] = "user",
    *,
    ids: Ids = SYSTEM_IDS,
    item_id: str | None = None,
) -> Item:
    """Make an input message for the model.

    Parameters
    ----------
    text : str
        The text of its only part.
    role : {"user", "developer", "system"}
        The role of the message.
    ids : Ids, optional
        Source of the id.
    item_id : str, optional
        The id itself, instead of a generated one.

    Examples
    --------
    >>> input_message("hi", item_id="m1")["content"]
    ({'type': 'input_text', 'text': 'hi'},)
    """
    if item_id is None:
        item_id = ids.new("item")
    part = FrozenDict(type="input_text", text=text)
    return Item(id=item_id, status="completed", type="message", role=role, content=(part,))


def assistant_message(text: str, *, ids: Ids = SYSTEM_IDS, item_id: str | None = None) -> Item:
    """Make a message from the model.

    Examples
    --------
    >>> assistant_text([assistant_message("hello", item_id="m2")])
    'hello'
    """
    if item_id is None:
        item_id = ids.new("item")
    part = FrozenDict(type="output_text", text=text, annotations=())
    return Item(id=item_id, status="completed", type="message", role="assistant", content=(part,))


def function_call(
    name: str, arguments: str, call_id: str, *, ids: Ids = SYSTEM_IDS, item_id: str | None = None
) -> Item:
    """Make a tool call; `arguments` is JSON text, as written by the model."""
    item_id = ids.new("item") if item_id is None else item_id
    return Item(id=item_id, status="completed", type=_CALL, callId=call_id, name=name, arguments=arguments)


def function_call_output(call_id: str, output: str, *, ids: Ids = SYSTEM_IDS, item_id: str | None = None) -> Item:
    """Make the output of a call; `output` is text."""
    item_id = ids.new("item") if item_id is None else item_id
    return Item(id=item_id, status="completed", type=_OUTPUT, callId=call_id, output=output)


def _parts(item: Mapping[str, Any], key: str = "content") -> Sequence[Mapping[str, Any]]:
    parts = item.get(key)
    return [part for part in parts if isinstance(part, MAPPINGS)] if isinstance(parts, (list, tuple)) else ()


def _output_text(item: Mapping[str, Any]) -> str:
    texts = [part.get("text") for part in _parts(item) if part.get("type") == "output_text"]
    return "".join([text for text in texts if isinstance(text, str)])


def item_text(item: Mapping[str, Any]) -> str:
    """Return the text of an item: all text parts of a message or reasoning, the output of a call, or the arguments of a call.

    Examples
    --------
    >>> item_text({"type": "function_call_output", "callId": "c", "output": "42"})
    '42'
    """
    get = item.get
    kind = get("type")
    if kind == _CALL:
        return f"{get('name') or ''}{get('arguments') or ''}"
    if kind == _OUTPUT:
        output = get("output")
        return output if isinstance(output, str) else ""
    parts = [*_parts(item), *_parts(item, "summary")]
    return "".join([part["text"] for part in parts if isinstance(part.get("text"), str)])


def content_tokens(item: Mapping[str, Any], tokenizer: Tokenizer = estimate_tokens) -> int:
    """Count the tokens of an item's text without the surrounding JSON, because a layer only controls the text."""
    if type(item) is not Item:
        return _count_content(item, tokenizer)
    known = content_count(item, tokenizer)
    if known is None:
        remember_content(item, (tokenizer, known := _count_content(item, tokenizer)))
    return known


def _count_content(item: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    count = getattr(tokenizer, "count_content", None)
    if count is not None:
        counted: int = count(item)
        return counted
    text = item_text(item)
    if text or item.get("type") in ("message", _CALL, _OUTPUT, "reasoning"):
        return tokenizer(text)
    return tokenizer(compact_json(item))


def assistant_text(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the joined text of the last assistant message; empty if there is none.

    Examples
    --------
    >>> assistant_text([])
    ''
    """
    for item in reversed([*items]):
        if item.get("role") == "assistant" and item.get("type") == "message":
            return _output_text(item)
    return ""


def output_texts(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one text per assistant message, without empty ones."""
    texts = (_output_text(i) for i in items if i.get("type") == "message" and i.get("role") == "assistant")
    return [text for text in texts if text]


def response_text(items: Iterable[Mapping[str, Any]]) -> str:
    """Return all texts of a response, one line per message; calls are left out, because they are judged when made."""
    said: list[str] = []
    data: list[str] = []
    thought: list[str] = []
    for item in items:
        kind = item.get("type")
        if kind == _CALL:
            continue
        if kind != "message" and kind != "reasoning":
            # An image has no words.
            data += _words(
                [value for key, value in item.items() if key not in _FRAME and (kind, key) != _PICTURE], has_keys=True
            )
            continue
        texts: list[str] = []
        for part in (*_listed(item.get("content")), *_listed(item.get("summary"))):
            if not isinstance(part, Mapping):
                texts += _words(part)
                continue
            for key, value in part.items():
                if key == "text":
                    texts += _words(value)
                elif key not in _FRAME:
                    data += _words(value, has_keys=key != "annotations")
        (thought if kind == "reasoning" else said).append("".join(texts))
    return "\n".join([line for line in (*said, *data, *thought) if line])


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _words(value: Any, *, has_keys: bool = False) -> list[str]:
    """Return the texts and numbers in a value, and also its keys if those are data."""
    if isinstance(value, Mapping):
        return [
            word
            for key, inner in value.items()
            for word in (*((str(key),) if has_keys else ()), *_words(inner, has_keys=has_keys))
        ]
    if isinstance(value, list | tuple):
        return [word for inner in value for word in _words(inner, has_keys=has_keys)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def input_texts(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one text per message of any role and per call output, without empty ones."""
    found = []
    for item in items:
        kind = item.get("type")
        if kind == "message":
            text = "".join(part["text"] for part in _parts(item) if isinstance(part.get("text"), str))
        elif kind == _OUTPUT:
            text = item_text(item)
        else:
            continue
        if text:
            found.append(text)
    return found


def unresolved_positions(items: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the positions of calls without output and of outputs without call, considering only `items`."""
    calls = {item.get("callId") for item in items if item.get("type") == _CALL}
    outputs = {item.get("callId") for item in items if item.get("type") == _OUTPUT}
    if not calls and not outputs:
        return set()
    return {
        position
        for position, item in enumerate(items)
        if (item.get("type") == _CALL and item.get("callId") not in outputs)
        or (item.get("type") == _OUTPUT and item.get("callId") not in calls)
    }


def strip_unresolved(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Remove every call without output and every output without call; the order is kept.

    Examples
    --------
    >>> call = function_call("lookup", "{}", "c1", item_id="a")
    >>> strip_unresolved([call])
    []
    """
    # Find all first, then remove them together: removing one must not make another unresolved.
    gone = unresolved_positions(items)
    return [item for position, item in enumerate(items) if position not in gone]


def with_own_call_ids(items: Sequence[Item], is_taken: Callable[[str], bool] = lambda call_id: False) -> Sequence[Item]:
    """Return frozen items in which every call has a unique id; the same sequence if they already are unique.

    A repeated id, or one for which `is_taken` is true, gets a counter, as in ``call_1~2``, and the call keeps the
    server's id as ``serverCallId``. A call without an id gets that of its item. Outputs must follow their calls, and
    are matched to them: within one answer, in the order of its calls.
    """
    calls: list[Any] = [item.get("callId") for item in items if item["type"] == _CALL]
    # The common case: every answer and every message comes here.
    if not calls or (len(set(calls)) == len(calls) and all(calls) and not any(map(is_taken, calls))):
        return items
    used: set[str] = set()
    # By server id, the calls that have no output yet, each with the number of its answer.
    waiting: dict[str, list[tuple[int, str]]] = {}
    made: list[Item] = []
    answer, changed, in_calls = 0, False, False
    for item in items:
        kind = item["type"]
        if kind == _CALL:
            answer += not in_calls
            given = item.get("callId") or item.get("id") or "call"
            own, count = given, 1
            while own in used or is_taken(own):
                count += 1
                own = f"{given}~{count}"
            used.add(own)
            waiting.setdefault(given, []).append((answer, own))
            if own != given:
                item = Item({**item, "callId": own, "serverCallId": given})
            elif item.get("callId") != own:
                item = Item({**item, "callId": own})
        elif kind == _OUTPUT and (open_calls := waiting.get(item.get("callId") or "")):
            # Use the last waiting answer, because an earlier one may never get its outputs.
            latest = open_calls[-1][0]
            place = next(place for place, (number, _) in enumerate(open_calls) if number == latest)
            own = open_calls.pop(place)[1]
            if item["callId"] != own:
                item = Item({**item, "callId": own})
        in_calls = kind == _CALL
        changed = changed or item is not items[len(made)]
        made.append(item)
    return tuple(made) if changed else items
