"""The form of a reply: a question back, steps, sections, code, or a direct answer.

Lengths are bytes and lines end at U+000A only, as in the original; two question marks inside code therefore read as a
clarifying question, as they do there.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal, TypeAlias

from noetic_nb.regulator.measures.word_patterns import any_of, folded, lexicon

__all__ = ["STRATEGY_LABELS", "Strategy", "classify_strategy"]

Strategy: TypeAlias = Literal["ClarifyFirst", "StepByStep", "StructuredAnalysis", "ExecuteTask", "DirectAnswer"]
"""Names as snapshots spell them."""

STRATEGY_LABELS: Final[dict[str, str]] = {
    "ClarifyFirst": "clarify-first",
    "StepByStep": "step-by-step",
    "StructuredAnalysis": "structured-analysis",
    "ExecuteTask": "execute-task",
    "DirectAnswer": "direct-answer",
}
"""Names as session signals spell them."""

_NUMBERED: Final = re.compile(r"\s*\d+[.)]\s")
_HEADING: Final = re.compile(r"#{1,4}\s")
# A block counts with its fences; an opening fence that is never closed is no block.
_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)


@cache
def _sequence_words() -> re.Pattern[str]:
    return re.compile(rf"{any_of(lexicon()['sequence_words'], whole=True)}|\bstep\s*\d+\b", re.IGNORECASE)


def classify_strategy(text: str) -> Strategy | None:
    r"""Return the strategy of a whole reply, None when it shows none: the first that matches, in the order of `Strategy`.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Strategy".

    Examples
    --------
    >>> classify_strategy("Which file? Which line?"), classify_strategy("It is 42.")
    ('ClarifyFirst', 'DirectAnswer')
    >>> classify_strategy("x" * 201) is None
    True
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    # The order of the rules is the result: a list of questions is a question first.
    questions = text.count("?")
    if questions >= 2 and size < 800:
        return "ClarifyFirst"
    shape = folded(text)
    lines = shape.split("\n")
    numbered = sum(1 for line in lines if _NUMBERED.match(line))
    if numbered >= 2 and len(_sequence_words().findall(shape)) >= 2:
        return "StepByStep"
    headings = sum(1 for line in lines if _HEADING.match(line))
    count = len(lines) - 1 if lines[-1] == "" else len(lines)
    if headings >= 3 or ("|" in text and count > 3):
        return "StructuredAnalysis"
    blocks = _BLOCK.findall(text)
    fenced = sum(len(block.encode("utf-8", "surrogatepass")) for block in blocks)
    if len(blocks) >= 3 or (blocks and fenced / size >= 0.4):
        return "ExecuteTask"
    if 0 < size <= 200 and not (questions or numbered or headings or blocks):
        return "DirectAnswer"
    return None
