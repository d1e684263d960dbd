"""How the views put numbers, reasons and other people's text before a reader; text as `noetic_nb.markup` does it for all."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from noetic_nb.markup import NAME_LENGTH, clip, plain, plain_data, plain_line
from noetic_nb.redact import redact_head

__all__ = ["NAME_LENGTH", "REASONS", "TEXT_LENGTH", "clip", "count", "plain", "plain_data", "plain_line", "sendable"]

# A guidance is read, but may not outgrow the message that carries it to the page.
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
"""Why an item was not sent, for people."""


def sendable(text: str) -> str:
    r"""Return a name as a page may be sent it: without secrets; half a surrogate pair is no UTF-8 and is spelled out."""
    text = redact_head(text, TEXT_LENGTH)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=4096)  # the same few numbers again at each event of a live view
def count(number: float | None) -> str:
    """Return a number of tokens for people; None is no limit."""
    return "no limit" if number is None else f"{round(number):,}"
