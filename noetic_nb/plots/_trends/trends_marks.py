"""Decisions as marks in the lanes of their predicates, the state of a thread in words, and the scales of the trends.

Turns are equidistant, so that all panels of a thread share one axis. If there are too many, neighbouring turns share a
column, which shows the minimum and maximum of its values.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, log10
from typing import Any, Final

from noetic_nb.runs._plain_text import clip, count, plain
from noetic_nb.runs._regulation.thread_signals import Mark, ThreadSignals, TurnSignals

# An SVG is fast with up to about a thousand marks; each turn draws three.
COLUMNS_MOST: Final = 300
# Space above the highest value or threshold, for a number.
HEADROOM: Final = 1.05
_NICE: Final = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
# Most stops for dragging a threshold: finer than the pixels of a panel.
STEPS: Final = 100


def column_size(turns: int) -> int:
    """Return how many turns share a column: one, or the smallest power of two with which all columns fit.

    Examples
    --------
    >>> column_size(300), column_size(301), column_size(10_000)
    (1, 2, 64)
    """
    size = 1
    while turns > COLUMNS_MOST * size:
        size *= 2
    return size


def spread(values: Iterable[float | None]) -> list[float] | None:
    """Return the minimum, the maximum and the last of the known values; None if none is known.

    Examples
    --------
    >>> spread([0.5, None, 0.9, 0.7]), spread([0.4]), spread([None])
    ([0.5, 0.9, 0.7], [0.4], None)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) == 1:
        return [_short(known[0])]
    return [_short(min(known)), _short(max(known)), _short(known[-1])]


def _short(value: float) -> float:
    # Six digits are more precise than a pixel; whole numbers stay exact.
    return value if isinstance(value, int) else float(f"{value:.6g}")


def nice_top(highest: float) -> float:
    """Return a round upper end for an axis with this maximum.

    Examples
    --------
    >>> nice_top(0), nice_top(7), nice_top(2000), nice_top(0.031)
    (1, 8, 2500, 0.04)
    """
    if not 0 < highest < 1e300:
        return 1
    ten = 10.0 ** floor(log10(highest))
    top = next((step * ten for step in _NICE if step * ten >= HEADROOM * highest), 12 * ten)
    return ceil(top) if highest >= 1 else round(top, 9)


def steps_of(low: float, high: float, value: float, *, is_whole: bool) -> list[float]:
    """Return the stops for dragging a threshold, including `value`, the recorded one.

    Examples
    --------
    >>> steps_of(2, 6, 5, is_whole=True), len(steps_of(0, 1, 0.5, is_whole=False))
    ([2, 3, 4, 5, 6], 101)
    >>> steps_of(0, 2500, 2010, is_whole=True)[-23:-19]
    [1975, 2000, 2010, 2025]
    """
    step = (high - low) / STEPS
    if is_whole:
        step = max(1, ceil(step))
    count = floor((high - low) / step + 1e-9) if step > 0 else 0
    found: list[float] = [
        low + place * step if is_whole else float(f"{low + place * step:.6g}") for place in range(count + 1)
    ]
    for end in (high, value):
        if end not in found:
            insort(found, end)
    return found


def _share(value: float) -> str:
    return f"{value:.2f}"


def _money(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.3g}"


def _time(value: float) -> str:
    seconds = value / 1000
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


FORMATS: Final[dict[str, Callable[[float], str]]] = {"share": _share, "whole": count, "usd": _money, "ms": _time}
"""How values are formatted, by unit."""


# Keeps a message about one column below 2 kB.
MARKS_SENT: Final = 4
TIP_LENGTH: Final = 240
LANE_LETTERS: Final = 17
BREAK: Final = "circuit break: "

LANES: Final = {
    "cost_cap": "cost cap",
    "quality_decline": "quality decline",
    "tool_loop": "tool loop",
    "repeated_failure": "repeated failures",
    "call_budget": "call budget",
    "scope_drift": "scope drift",
    "low_confidence": "low confidence",
    "procedural_warning": "corrected before",
}
"""The lane of each kind of predicate, from top to bottom; its decisions have the same name."""


def lane_of(label: str) -> str:
    """Return the lane of a decision.

    Examples
    --------
    >>> lane_of("circuit break: cost cap"), lane_of("scope drift")
    ('cost cap', 'scope drift')
    """
    return clip(plain(label.removeprefix(BREAK)), LANE_LETTERS) or "(blank)"


def mark_text(turn: TurnSignals, mark: Mark) -> str:
    """Describe a decision in a sentence.

    Examples
    --------
    >>> mark_text(TurnSignals(4), Mark("scope_drift_warn", "scope drift", "hotel not in the task", False, 2))
    'Turn 4, scope drift (2 times): hotel not in the task'
    """
    times = f" ({mark.times} times)" if mark.times > 1 else ""
    stopped = ", turn stopped" if mark.stops else ""
    fell = "" if mark.fall is None else f", quality {fall_text(mark.fall.before, mark.fall.after)}"
    return f"Turn {turn.turn}, {mark.label}{stopped}{times}{fell}" + (f": {mark.detail}" if mark.detail else "")


def fall_text(before: float, after: float) -> str:
    """Describe a change of quality.

    Examples
    --------
    >>> fall_text(0.82, 0.41)
    '0.82 -> 0.41'
    """
    return f"{before:.2f} -> {after:.2f}"


def marks_of(turns: Sequence[TurnSignals]) -> list[list[str]]:
    """Return the marks of the turns in one column: kind, label and sentence; equal ones are merged."""
    if len(turns) == 1:
        found = [[mark.kind, mark.label, mark_text(turns[0], mark)] for mark in turns[0].marks]
    else:
        alike: dict[tuple[str, str], list[tuple[TurnSignals, Mark]]] = {}
        for turn in turns:
            for mark in turn.marks:
                alike.setdefault((mark.kind, mark.label), []).append((turn, mark))
        found = [
            [
                kind,
                label,
                mark_text(*group[0])
                if len(group) == 1
                else f"Turns {group[0][0].turn} to {group[-1][0].turn}, {label} in {count(len(group))} turns",
            ]
            for (kind, label), group in alike.items()
        ]
    # Breaks first, so that they are never left out.
    found.sort(key=lambda mark: mark[0] != "circuit_break")
    left_out = len(found) - MARKS_SENT
    found = [[kind, label, clip(text, TIP_LENGTH)] for kind, label, text in found[:MARKS_SENT]]
    if left_out > 0:
        found[-1][2] += f" And {left_out} more."
    return found


def falls(thread: ThreadSignals, turns: Sequence[TurnSignals]) -> list[list[Any]]:
    """Return brackets over windows of grades: first and last turn, the grades at its ends, its text, whether it broke.

    These are the windows of the last three breaks by quality; without one, the window that the regulator currently uses.
    """
    broke = [mark.fall for turn in turns for mark in turn.marks if mark.fall is not None][-3:]
    if broke:
        return [
            [fall.first, fall.last, fall.before, fall.after, fall_text(fall.before, fall.after), True] for fall in broke
        ]
    now = thread.fall(thread.window)
    if now is None:
        return []
    return [[now.first, now.last, now.before, now.after, f"last {thread.window}", False]]


def headline(thread: ThreadSignals) -> str:
    """Describe the state of a thread; a grade that is not from its last turn names its turn.

    Examples
    --------
    >>> headline(ThreadSignals("t1", [TurnSignals(1, [0.4], None, 120)], [0.4], 1000.0, graded=[1]))
    'Turn 1 · thread t1: quality 0.40, 120 of 1,000 output tokens'
    >>> turns = [TurnSignals(1, [0.4], 0.4), TurnSignals(2, [], 0.4)]
    >>> headline(ThreadSignals("t1", turns, [0.4], poor=0.6, window=1, graded=[1]))
    'Turn 2 · thread t1: not graded, turn 1 was 0.40, mean of the last 1 0.40 (poor), 0 output tokens'
    """
    last = thread.turns[-1]
    parts = []
    if last.qualities:
        parts.append(f"quality {last.qualities[-1]:.2f}")
    elif thread.qualities:
        parts.append(f"not graded, turn {thread.graded[-1]} was {thread.qualities[-1]:.2f}")
    if last.mean is not None:
        is_poor = thread.poor is not None and last.mean < thread.poor
        parts.append(f"mean of the last {thread.window} {last.mean:.2f}{' (poor)' if is_poor else ''}")
    if last.total is None:
        parts.append("output tokens not measured")
    else:
        cap = "" if thread.cap is None else f" of {count(thread.cap)}"
        parts.append(f"{count(last.total)}{cap} output token{'s' * (bool(cap) or last.total != 1)}")
    if thread.reward is not None:
        parts.append(f"the whole conversation was graded {thread.reward:.2f}")
    return f"Turn {last.turn} · thread {thread.thread}: {', '.join(parts)}"
