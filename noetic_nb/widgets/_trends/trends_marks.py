"""Decisions as marks: their names, the marks that share a column, and the lane in which each has room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.runs._plain_text import clip, count
from noetic_nb.runs._regulation.thread_signals import Mark, ThreadSignals, TurnSignals
from noetic_nb.widgets._trends.trends_scales import centre

LANE_PX: Final = 20
LANES: Final = 3
NARROW_PX: Final = 320
# A label takes about this much for each letter, and for the shape before it.
LETTER_PX: Final = 6.6
SHAPE_PX: Final = 22
# A message about one column stays below 2 kB.
MARKS_SENT: Final = 4
TIP_LENGTH: Final = 240
MARK_SIZES: Final = {
    "lane": LANE_PX,
    "lanes": LANES,
    "narrow": NARROW_PX,
    "letter": LETTER_PX,
    "shape": SHAPE_PX,
}
"""What the page places marks by."""


def mark_text(turn: TurnSignals, mark: Mark) -> str:
    """Return a decision as a sentence.

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
    """Return from where to where quality went.

    Examples
    --------
    >>> fall_text(0.82, 0.41)
    '0.82 -> 0.41'
    """
    return f"{before:.2f} -> {after:.2f}"


def marks_of(turns: Sequence[TurnSignals]) -> list[list[str]]:
    """Return the marks of the turns of one column: kind, label and sentence; alike ones are one."""
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
    # A break first: it must not be among those that are left out.
    found.sort(key=lambda mark: mark[0] != "circuit_break")
    left_out = len(found) - MARKS_SENT
    found = [[kind, label, clip(text, TIP_LENGTH)] for kind, label, text in found[:MARKS_SENT]]
    if left_out > 0:
        found[-1][2] += f" And {left_out} more."
    return found


def falls(thread: ThreadSignals, turns: Sequence[TurnSignals]) -> list[list[Any]]:
    """Return brackets over windows of grades: first and last turn, the grades at its ends, its text, whether it broke.

    The window of each of the last three breaks by quality; where there is none, the window that the regulator looks at now.
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
    """Return where a thread stands.

    Examples
    --------
    >>> headline(ThreadSignals("t1", [TurnSignals(1, [0.4], None, 120)], [0.4], 1000.0))
    'Turn 1 · thread t1: quality 0.40, 120 of 1,000 output tokens'
    >>> headline(ThreadSignals("t1", [TurnSignals(1, [0.4], 0.4)], [0.4], poor=0.6, window=1))
    'Turn 1 · thread t1: quality 0.40, mean of the last 1 0.40 (poor), 0 output tokens'
    """
    last = thread.turns[-1]
    parts = []
    if thread.qualities:
        parts.append(f"quality {thread.qualities[-1]:.2f}")
    if last.mean is not None:
        is_poor = thread.poor is not None and last.mean < thread.poor
        parts.append(f"mean of the last {thread.window} {last.mean:.2f}{' (poor)' if is_poor else ''}")
    if last.total is None:
        parts.append("output tokens not measured")
    else:
        cap = "" if thread.cap is None else f" of {count(thread.cap)}"
        parts.append(f"{count(last.total)}{cap} output tokens")
    return f"Turn {last.turn} · thread {thread.thread}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A mark in its lane; `label` is empty where there is no room for it."""

    kind: str
    text: str
    x: float
    lane: int
    label: str
    left: bool
    small: bool = False


def lanes(columns: Sequence[Sequence[Sequence[str]]]) -> list[Placed]:
    """Return where the marks of some columns go on a narrow page: with labels, or without where words would be covered."""
    placed, covered = _lanes(columns, words=True)
    if covered:
        placed, covered = _lanes(columns, words=False)
    return _by_kind(columns) if covered else placed


def _by_kind(columns: Sequence[Sequence[Sequence[str]]]) -> list[Placed]:
    """Return marks that are too many for lanes of their own: small ones, a lane for each kind."""
    kinds = list(dict.fromkeys(kind for marks in columns for kind, _, _ in marks))
    # Breaks are in the first lane, and kinds beyond the lanes share the last one.
    kinds.sort(key=lambda kind: kind != "circuit_break")
    return [
        Placed(kind, text, centre(at, len(columns)), min(kinds.index(kind), LANES - 1), "", False, small=True)
        for at, marks in enumerate(columns)
        for kind, _, text in marks
    ]


def _lanes(columns: Sequence[Sequence[Sequence[str]]], *, words: bool) -> tuple[list[Placed], bool]:
    placed: list[Placed] = []
    covered = False
    ends = [-1.0] * LANES
    for at, marks in enumerate(columns):
        x = centre(at, len(columns))
        for kind, name, text in marks:
            wide = 100 * (len(name) * LETTER_PX + SHAPE_PX) / NARROW_PX
            left = x > 55  # past the middle, words go towards the roomier side
            begin, end = (x - wide, x + 3) if left else (x - 3, x + wide)
            inside = words and begin + 3 >= 0 and end <= 103
            lane = next((lane for lane in range(LANES) if inside and ends[lane] <= begin), None)
            label = name
            if lane is None:
                # No lane has room for words: the shape alone, and its words stay in the list below.
                label, end = "", x + 3
                lane = next((lane for lane in range(LANES) if ends[lane] <= x - 3), None)
                covered = covered or lane is None
            ends[lane or 0] = max(ends[lane or 0], end)
            placed.append(Placed(kind, text, x, lane or 0, label, left))
    return placed, covered
