"""The common beginning of two requests: the sent part of an item, and how far two of them agree.

An item's id and status are this library's own: a layer's text has another id at every recall and is the same to a provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from noetic_nb.items._build import item_text
from noetic_nb.items._json_text import compact_json
from noetic_nb.tokens import UNITS_PER_TOKEN, Tokenizer, estimate_tokens, most_that_fit, utf16_units

_NOT_SENT: Final = frozenset({"id", "status"})


def sent_text(item: Mapping[str, Any]) -> str:
    """Return the part of an item that a provider reads, as compact JSON."""
    return compact_json({key: value for key, value in item.items() if key not in _NOT_SENT})


def sent_hash(item: Mapping[str, Any]) -> int:
    """Return a number that is the same for items that a provider reads the same, in any order of keys."""
    return hash(frozenset([pair for pair in item.items() if pair[0] not in _NOT_SENT]))


def same_when_sent(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether a provider reads the same in two items."""
    if one is other:
        return True
    # The text first: where it differs, as nearly always, nothing else has to be looked at.
    if one.get("content") != other.get("content") or one["type"] != other["type"]:
        return False
    if one.keys() != other.keys() and not (one.keys() ^ other.keys()) <= _NOT_SENT:
        return False
    return all(key in _NOT_SENT or other[key] == value for key, value in one.items())


def leading_text(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of an item, and the text of it that a provider reads: two of one kind may begin with the same text."""
    return f"{item['type']} {item.get('role') or ''}".strip(), item_text(item)


# A request is compared with the one before it, and with the nearest of all others, which nearly always is the same: the texts of
# the last pairs are kept until other pairs take their place.
@lru_cache(maxsize=8)
def _alike(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    return most_that_fit(min(len(one), len(other)), lambda size: one[:size] == other[:size])


def leading_tokens(one: str, other: str, most: int, tokenizer: Tokenizer = estimate_tokens) -> int:
    """Return how many tokens two different texts begin with alike, at most `most` less one: the last of them differs.

    The default count cuts a text into quarters of a known size, so that the number is exact. Of another tokenizer it is
    one less than it counts, as the last token may reach into what differs.
    """
    alike = one[: _alike(one, other)]
    if tokenizer is estimate_tokens:
        # Two characters of two units each may begin with the same one.
        first = [text[len(alike) : len(alike) + 1].encode("utf-16-le", "surrogatepass")[:2] for text in (one, other)]
        count = (utf16_units(alike) + (first[0] == first[1] != b"")) // UNITS_PER_TOKEN
    else:
        count = int(tokenizer(alike)) - 1
    return max(0, min(count, most - 1))
