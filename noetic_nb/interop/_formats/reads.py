"""The facts that each reader reads of its format: it declares them, and a test compares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FACTS: Final = (
    "turns", "model calls", "tool calls", "tokens", "cached", "written", "reasoning", "costs", "errors", "times", "labels",
    "children", "compactions", "system prompt", "tool definitions", "any size",
)  # fmt: skip
"""Tokens are those in and out; cached ones, those written to a cache and those of reasoning have a column each."""
EVERYTHING: Final = frozenset(FACTS)


def reads_table(formats: Iterable[tuple[str, frozenset[str]]]) -> str:
    """Return the facts of formats as a table in Markdown.

    Examples
    --------
    >>> print(reads_table([("atif", EVERYTHING - {"times"})]).splitlines()[11])
    | times | no |
    """
    known = list(formats)
    lines = [f"| Read | {' | '.join([f'`{name}`' for name, _ in known])} |", f"|---|{'---|' * len(known)}"]
    lines += [f"| {fact} | {' | '.join(['yes' if fact in read else 'no' for _, read in known])} |" for fact in FACTS]
    return "\n".join(lines)
