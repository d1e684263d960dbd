"""Formats numbers, reasons, compactions and untrusted text for views; `noetic_nb.markup` cleans the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from noetic_nb.events import ContextCompacted
from noetic_nb.items import Item, item_text
from noetic_nb.items._json_text import compact_json
from noetic_nb.markup import NAME_LENGTH, clip, plain, plain_data, plain_line
from noetic_nb.redact import redact_head

__all__ = ["NAME_LENGTH", "REASONS", "TEXT_LENGTH", "clip", "count", "plain", "plain_data", "plain_line", "sendable"]

OPAQUE: Final = "An opaque block of the provider: only its models can read it."
_LEFT_OUT: Final = "Nothing: the part was left out."


def size_words(event: ContextCompacted) -> str:
    """Return the tokens before and after; empty if both are unknown.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> size_words(ContextCompacted(Where("t1", "e1", 1), 0.0, "codex", tokens_before=31900, tokens_after=2735))
    '31,900 → 2,735 tokens'
    """
    before, after = event.tokens_before, event.tokens_after
    if before is None and after is None:
        return ""
    return f"{'?' if before is None else count(before)} → {'?' if after is None else count(after)} tokens"


def heading_words(event: ContextCompacted) -> str:
    """Return the mechanism, its cause, and the size in one line.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> heading_words(ContextCompacted(Where("t1", "e1", 1), 0.0, "codex", trigger="auto", tokens_before=900))
    'Context compacted by codex (auto): 900 → ? tokens'
    """
    cause = f" ({plain(event.trigger, NAME_LENGTH)})" if event.trigger else ""
    size = size_words(event)
    return f"Context compacted by {plain(event.by, NAME_LENGTH)}{cause}{f': {size}' if size else ''}"


def compaction_parts(event: ContextCompacted, log_item: Callable[[int], Item | None]) -> Iterator[tuple[str, str]]:
    """Yield the removed items and their replacement as pairs of heading and text; `log_item` returns an item of the log."""
    number = "" if event.items_removed is None else f"{event.items_removed:,} item{'s' * (event.items_removed != 1)}"
    places = ", ".join([f"{first} to {stop - 1}" if stop - first > 1 else str(first) for first, stop in event.replaced])
    if places:
        went = [log_item(place) for first, stop in event.replaced for place in range(first, stop)]
        yield (
            f"What went: {number or 'items'} ({places} of the log)",
            "\n".join([_words(item) for item in went if item]),
        )
    else:
        yield f"What went: {number or 'a part of the context'}; which one is not recorded, the log keeps all", ""
    texts = [_words(item) for item in event.items if not is_opaque(item)]
    if event.opaque:
        texts.append(OPAQUE)
    yield "In its place", "\n".join(texts) or _LEFT_OUT


def is_opaque(item: Item) -> bool:
    """Tell whether only the provider can read an item that replaces a part of the context."""
    return item.get("type") == "compaction" and bool(item.get("encrypted_content"))


def _words(item: Item) -> str:
    parts = [part for part in item.get("summary") or () if isinstance(part, Mapping)]  # of a file, it may be anything
    summary = "".join([str(part.get("text", "")) for part in parts])
    return item_text(item) or summary or compact_json(item)


# Guidance is shown in full as far as possible, but must not make messages to the page too large.
TEXT_LENGTH: Final = 600

REASONS: Final = {
    "over_budget": "over the budget",
    "outside_window": "outside the window",
    "unresolved_call": "a call without its output",
    "over_allocation": "over the layer's allocation",
    "trimmed": "trimmed to fit",
    "forced": "sent although over the budget",
    "hidden": "hidden by a layer",
    "compacted": "replaced by a compaction",
}
"""Why an item was not sent, in plain English."""


def sendable(text: str) -> str:
    r"""Make a name safe to send to a page: secrets replaced, and lone surrogates escaped because UTF-8 cannot encode them."""
    text = redact_head(text, TEXT_LENGTH)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=4096)  # each event of a live view formats the same few numbers
def count(number: float | None) -> str:
    """Format a number of tokens; None is "no limit"."""
    return "no limit" if number is None else f"{round(number):,}"
