"""The texts of imported conversations: redacted, counted, and parsed as answers, errors and arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from noetic_nb.errors import ItemValidationError
from noetic_nb.items import Item, freeze, item_text, item_tokens
from noetic_nb.items._build import content_tokens, with_own_call_ids
from noetic_nb.items._frozen import FLAT, FrozenDict, frozen_data
from noetic_nb.items._messages import Message
from noetic_nb.items._messages.message import Child, Compaction
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.redact import Redaction
from noetic_nb.redact._secret_names import secret_word
from noetic_nb.tokenizers._named import best_tokenizer
from noetic_nb.tokens import Tokenizer, system_tokens, tokenizer_name


class ChosenCounter:
    """The token counter for a run whose source reports no tokens: the best one known for its model.

    Examples
    --------
    >>> counter = ChosenCounter("gpt-4.1")
    >>> counter.name is None, counter.tokenizer is counter.tokenizer
    (True, True)
    """

    def __init__(self, model: str = "") -> None:
        self.model = model
        self._tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The counter, chosen on first use."""
        if self._tokenizer is None:
            self._tokenizer = best_tokenizer(self.model)
        return self._tokenizer

    @property
    def name(self) -> str | None:
        """The counter's name; None if nothing has been counted yet."""
        return None if self._tokenizer is None else tokenizer_name(self._tokenizer)


class ContextTokens:
    """The tokens of the whole input so far, counted on demand because most sources report them."""

    def __init__(self, counter: ChosenCounter, *, policy: str = "") -> None:
        self._counter = counter
        self._policy = policy
        self._waiting: list[Item] = []
        self._tokens = 0

    def add(self, items: Iterable[Item]) -> None:
        self._waiting += items

    def reset(self, items: Iterable[Item], tokens: int | None) -> None:
        """Start again with these items; `tokens` is their count if the source reports it."""
        self._policy, self._tokens = "", tokens or 0
        self._waiting = [*items] if tokens is None else []

    def sent(self) -> int:
        """Return the tokens of all added items, framing included."""
        counter = self._counter.tokenizer
        self._tokens += system_tokens(counter, self._policy)
        self._tokens += sum([item_tokens(item, counter) for item in self._waiting])
        self._policy, self._waiting = "", []
        return self._tokens

    def written(self, items: Iterable[Item]) -> int:
        counter = self._counter.tokenizer
        return sum([content_tokens(item, counter) for item in items])


_OURS: Final = frozenset({"message", "function_call", "function_call_output"})
# These keys never name secrets, so their texts can be checked one by one.
_PLAIN_KEYS: Final = frozenset(
    {"id", "type", "status", "role", "name", "callId", "arguments", "output", "content", "origin"}
)
_TEXT_KEYS: Final = {
    ("status", "type", "role", "content"): ("content",),
    ("status", "type", "callId", "name", "arguments"): ("callId", "name", "arguments"),
    ("status", "type", "callId", "output"): ("callId", "output"),
}
_PLAIN_PART: Final = frozenset({"type", "text", "annotations"})


def safe_items(
    policy: str, given: Sequence[Message | Compaction | Child], redaction: Redaction
) -> tuple[str, Sequence[Item]]:
    """Return a policy and all items of a conversation with secrets replaced and unique call ids."""
    items: Sequence[Item] = [item for one in given for item in items_of(one)]
    texts = [policy]
    # Check all texts at once, because most conversations have no sign of a secret.
    if not (_add_texts(items, texts) and redaction.are_plain(texts)):
        policy, items = redaction.text(policy), [_clean(item, redaction) for item in items]
    return policy, with_own_call_ids(items)


def items_of(one: Message | Compaction | Child) -> tuple[Item, ...]:
    if isinstance(one, Message):
        return one.items
    if isinstance(one, Child):
        return ()
    return (*(() if one.answer is None else one.answer.items), *one.items)


def _add_texts(items: Sequence[Item], texts: list[str]) -> bool:
    """Add the texts of items to `texts`; return whether nothing else in them can be secret."""
    for item in items:
        # Nearly all imported items have one of three shapes, so look up their keys instead of walking through them.
        keys = _TEXT_KEYS.get(tuple(item))
        if keys is None or item["status"] != "completed":
            if not _PLAIN_KEYS.issuperset(item):
                return False
            keys = tuple(item)
        for key in keys:
            value = item[key]
            if type(value) is str:
                texts.append(value)
            elif type(value) is not tuple:
                return False
            else:
                for part in value:
                    if type(part) is not FrozenDict or not _PLAIN_PART.issuperset(part) or part.get("annotations"):
                        return False
                    words = part.get("text")
                    if type(words) is not str:
                        return False
                    texts.append(words)
    return True


def _clean(item: Item, redaction: Redaction) -> Item:
    texts: list[str] = []
    if _add_texts((item,), texts) and all(redaction.text(text) is text for text in texts):
        return item
    found = redaction.data(dict(item))
    if "native" in found or item["type"] not in _OURS:  # provider-specific: may hold numbers that JSON cannot
        found = frozen_data(found)
    return item if found == item else ANY_ITEMS.parse(found)


def clean_meta(meta: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    texts = [*meta]
    for value in meta.values():
        if type(value) is str:
            texts.append(value)
        elif type(value) not in FLAT:
            break
    else:
        if not any(map(secret_word, meta)) and redaction.are_plain(texts):
            return meta
    cleaned: Mapping[str, Any] = redaction.data(dict(meta))
    return cleaned


def said(items: Sequence[Item]) -> str | None:
    """Return the text of messages, or None if they contain only empty text."""
    messages = [item for item in items if item["type"] == "message"]
    text = "".join(map(item_text, messages))
    # An image also counts as content.
    if text or any(part.get("text") != "" for item in messages for part in item.get("content") or ()):
        return text
    return None


def reads_as_error(output: str) -> bool:
    """Guess whether a call failed, where the format does not say."""
    if output.startswith(("Error", "error:", "Traceback (most recent call last)")):
        return True
    return output.startswith("{") and bool((read_object(output) or {}).get("error"))


def read_object(text: str) -> Mapping[str, Any] | None:
    """Return the arguments in a text, frozen; None if it has none."""
    return _known_object(text) if len(text) <= _SHORT_ARGUMENTS else _parsed_object(text)


def _parsed_object(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # malformed arguments are evidence, too: the item keeps the text
        return None
    if not isinstance(found, dict):
        return None
    try:
        # Freeze now, as a run would, so that it need not check its events again.
        return frozen_data(freeze(found))  # type: ignore[no-any-return]
    except ItemValidationError:  # NaN, infinity, or nested too deeply
        return None


# Agents repeat calls from run to run. The cached result depends only on the text and is immutable; the cache is bounded.
_SHORT_ARGUMENTS: Final = 1_000
_known_object: Final = lru_cache(maxsize=1_024)(_parsed_object)
