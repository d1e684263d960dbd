"""The stacked panels of a thread: the value of a turn that each shows, its style, its threshold and its handle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.plots._scene.scene import ALL, Series
from noetic_nb.plots._trends.trends_marks import FORMATS, steps_of
from noetic_nb.runs._palette import CATEGORY, DECISION_LOOKS, MEAN_COLOUR, OTHER_LOOK, QUALITY_COLOUR, TOKENS_COLOUR
from noetic_nb.runs._plain_text import plain, sendable
from noetic_nb.runs._regulation.thread_signals import TurnSignals

QUALITY_PX: Final = 124
TOTAL_PX: Final = 76
SMALL_PX: Final = 48
DECISIONS: Final = "decisions"
FALLS: Final = "falls"
UNKNOWN: Final = "This recording does not say below which mean quality counts as poor."
UNWATCHED: Final = (
    "No regulator watched this run, so no threshold is drawn. Pass regulator= to see what it would have decided."
)
GIVEN: Final = (
    "No regulator watched this run: the thresholds are those of the one that was passed, which decided nothing."
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: the value of a turn that it shows, its unit, and its threshold."""

    key: str
    title: str
    unit: str
    height: int
    look: str
    """``dots`` on a line, a ``line``, or ``bars``; its series has the panel's name."""
    value: Callable[[TurnSignals], float | None]
    rule: tuple[str, str] | None = None
    """Kind of predicate and name of its number."""
    top: float | None = None
    """The upper end of the axis; None to fit values and thresholds."""
    limit: str = "limit"
    """The label of its threshold on the axis."""


PANELS: Final = (
    Panel(
        "quality", "quality", "share", QUALITY_PX, "dots",
        lambda turn: turn.qualities[-1] if turn.qualities else None, ("quality_decline", "poor_mean"), 1, "poor",
    ),
    Panel(
        "spent", "output tokens so far", "whole", TOTAL_PX, "line",
        lambda turn: turn.total, ("cost_cap", "tokens_out"), limit="cap",
    ),
    Panel("tokens", "tokens a turn", "whole", SMALL_PX, "bars", lambda turn: turn.tokens),
    Panel(
        "tokens_in", "input tokens so far", "whole", SMALL_PX, "line",
        lambda turn: turn.totals.get("tokens_in"), ("cost_cap", "tokens_in"), limit="cap",
    ),
    Panel(
        "usd", "money so far", "usd", SMALL_PX, "line",
        lambda turn: turn.totals.get("usd"), ("cost_cap", "usd"), limit="cap",
    ),
    Panel(
        "wallclock_ms", "time in models so far", "ms", SMALL_PX, "line",
        lambda turn: turn.totals.get("wallclock_ms"), ("cost_cap", "wallclock_ms"), limit="cap",
    ),
    Panel(
        "drift", "drift", "share", SMALL_PX, "dots",
        lambda turn: turn.drift, ("scope_drift", "threshold"), 1,
    ),
    Panel(
        "confidence", "confidence", "share", SMALL_PX, "dots",
        lambda turn: turn.confidence, ("low_confidence", "threshold"), 1,
    ),
    Panel(
        "calls", "calls in a row", "whole", SMALL_PX, "bars",
        lambda turn: turn.calls_in_a_row, ("tool_loop", "threshold"),
    ),
)  # fmt: skip
"""The panels from top to bottom; small ones only appear if they have known values."""

BY_KEY: Final = {panel.key: panel for panel in PANELS}
TOKENS: Final = frozenset({"spent", "tokens"})
NOT_MEASURED: Final = "not measured"
# Panels of values that are always recorded; shown only if above zero, or capped.
IF_ANY: Final = frozenset({"usd", "wallclock_ms"})
IF_CAPPED: Final = frozenset({"tokens_in"})

CELLS: Final = (
    ("turn", "Turn", "Turn"),
    ("quality", "Quality", "quality"),
    ("mean", "Rolling mean", "rolling mean"),
    ("tokens", "Output tokens", "output tokens"),
    ("spent", "Output tokens so far", "output tokens so far"),
    ("tokens_in", "Input tokens so far", "input tokens so far"),
    ("usd", "Money so far", "money so far"),
    ("wallclock_ms", "Time in models so far", "time in models so far"),
    ("drift", "Drift", "drift"),
    ("confidence", "Confidence", "confidence"),
    ("calls", "Calls in a row", "calls in a row"),
    ("decisions", "Decisions", ""),
)
"""The table behind the panels: key and name of each cell, and its label in a sentence."""

# Labels for the numbers of predicates; others are labelled with their names.
NUMBER_NAMES: Final = {
    "poor_mean": "poor mean",
    "min_delta": "least fall",
    "tokens_out": "cap on output tokens",
    "tokens_in": "cap on input tokens",
    "usd": "cap on money",
    "wallclock_ms": "cap on time",
    "total": "most calls",
    "min_corrections": "least corrections",
    "min_tokens": "least tokens",
    "min_words": "least words",
    "min_earlier": "least earlier texts",
    "min_tool_texts": "least tool texts",
    "min_drift_tokens": "least drift words",
}
# Smallest valid values other than 0; predicates reject smaller ones.
LEAST: Final = {"tool_loop.threshold": 2, "quality_decline.window": 2, "cost_cap.window": 1, "repeated_failure.threshold": 1,
                "low_confidence.min_tokens": 1, "procedural_warning.min_corrections": 1}  # fmt: skip
MOST: Final = {"window": 20, "min_corrections": 20}
_SHARES: Final = frozenset({"poor_mean", "min_delta", "scope_drift.threshold", "low_confidence.threshold"})


_NIGHT_BLUE: Final = "#56B4E9"
_LINES: Final = {
    "quality": (QUALITY_COLOUR, 1.25), "spent": (TOKENS_COLOUR, 2.5), "tokens_in": (CATEGORY["tools"], 1.5),
    "usd": (CATEGORY["tools"], 1.5), "wallclock_ms": (CATEGORY["tools"], 1.5),
    "drift": (DECISION_LOOKS["scope_drift_warn"][0], 1.5), "confidence": (DECISION_LOOKS["low_confidence_spans"][0], 1.5),
}  # fmt: skip
_BARS: Final = {"tokens": TOKENS_COLOUR, "calls": OTHER_LOOK[0]}
_LOOKS: Final = {**DECISION_LOOKS, "other": OTHER_LOOK}
INSET: Final = 0.18


def _line(key: str, kind: str, **looks: Any) -> Series:
    colour, width = _LINES[key]
    night = _NIGHT_BLUE if key == "quality" else ""
    return Series(kind, key, colour, night, **{"width": width, "left": 0.5, **looks})


SERIES: Final[dict[str, Series]] = {
    "broken": Series("box", ALL, opacity=0.07),
    "poor": Series("box", "quality", MEAN_COLOUR, opacity=0.1),
    "lane": Series("step", DECISIONS, opacity=0.15, width=1),
    "half": Series("box", DECISIONS, MEAN_COLOUR, opacity=0.18),
    "met": Series("box", DECISIONS, MEAN_COLOUR, opacity=0.5),
    "held": Series("step", DECISIONS, opacity=0.3, width=2),
    **{f"rule-{panel.key}": Series("step", panel.key, opacity=0.65, width=1.5) for panel in PANELS if panel.rule},
    **{
        f"{key}-most": Series("box", key, colour, opacity=0.4, left=INSET, right=1 - INSET)
        for key, colour in _BARS.items()
    },
    **{key: Series("box", key, colour, left=INSET, right=1 - INSET) for key, colour in _BARS.items()},
    **{f"{key}-range": _line(key, "area", opacity=0.28, width=0) for key in _LINES},
    **{key: _line(key, "line") for key in _LINES},
    "mean": Series("line", "quality", MEAN_COLOUR, width=3, left=0.5),
    **{
        f"{key}-dot": _line(key, "dot", width=8 if key == "quality" else 5)
        for key in ("quality", "drift", "confidence")
    },
    "window": Series("line", FALLS, opacity=0.65, width=1.25),
    "fell": Series("line", FALLS, MEAN_COLOUR, width=1.75),
    "fall": Series("text", FALLS),
    "would-break": Series("box", ALL, width=1.25, dash="4 3"),
    **{kind: Series("shape", DECISIONS, colour, path=path, left=0.5) for kind, (colour, path) in _LOOKS.items()},
    **{
        f"would-{kind}": Series("shape", DECISIONS, width=1.25, dash="3 2", path=path)
        for kind, (_, path) in _LOOKS.items()
    },
}
"""Styles of marks, front ones last."""
PLACES: Final = {name: place for place, name in enumerate(SERIES)}


def kind_of(predicate: str) -> str:
    """Return the kind of a predicate, given its name among others of its kind.

    Examples
    --------
    >>> kind_of("tool_loop(by=call, across_turns)"), kind_of("cost_cap #2")
    ('tool_loop', 'cost_cap')
    """
    return predicate.partition("(")[0].partition(" #")[0]


def _sendable(thresholds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((sendable(predicate), numbers) for predicate, numbers in thresholds.items())


def lines_of(
    thresholds: Mapping[str, Any], *, poor: float | None = None, cap: float | None = None
) -> dict[str, list[Any]]:
    """Return the threshold of each panel: predicate, name of the number, and the number.

    `poor` and `cap` are used if a recording has no thresholds.

    Examples
    --------
    >>> lines_of({"scope_drift": {"threshold": 0.5}}, cap=2000)
    {'drift': ['scope_drift', 'threshold', 0.5], 'spent': ['', '', 2000]}
    """
    found: dict[str, list[Any]] = {}
    for predicate, numbers in _sendable(thresholds):
        kind = kind_of(predicate)
        if not isinstance(numbers, Mapping) or (
            kind == "tool_loop" and (numbers.get("period", 1) != 1 or "by=result" in predicate)
        ):
            continue
        for panel in PANELS:
            if panel.rule is None or panel.rule[0] != kind or panel.key in found:
                continue
            number = numbers.get(panel.rule[1])
            if isinstance(number, int | float) and not isinstance(number, bool):
                found[panel.key] = [predicate, panel.rule[1], number]
    if "quality" not in found and poor is not None:
        predicate = next((sendable(name) for name in thresholds if kind_of(name) == "cost_cap"), "")
        found["quality"] = [predicate, "poor_mean", poor]
    if "spent" not in found and cap is not None:
        found["spent"] = ["", "", cap]
    return found


def handles_of(
    thresholds: Mapping[str, Any], lines: Mapping[str, Sequence[Any]], tops: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return every draggable number of the thresholds in force, in the order of the predicates.

    Each has its stops with their labels, so that a page needs no scale and no format.
    """
    drawn = {(line[0], line[1]): key for key, line in lines.items()}
    found: list[dict[str, Any]] = []
    for predicate, numbers in _sendable(thresholds):
        if not isinstance(numbers, Mapping):
            continue
        kind = kind_of(predicate)
        for name, value in numbers.items():
            if name == "period" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            key = drawn.get((predicate, name))
            is_share = name in _SHARES or f"{kind}.{name}" in _SHARES
            unit = BY_KEY[key].unit if key else "share" if is_share else "usd" if name == "usd" else "whole"
            most = 1 if is_share else MOST.get(name, max(10, 2 * value))
            while not is_share and most < (tops or {}).get(key or "", 0):
                most *= 2  # leaves room, so that it seldom changes while a run grows
            label = f"{kind.replace('_', ' ')}: {plain(NUMBER_NAMES.get(name, name))}"
            apart = "" if kind == predicate else predicate
            values = steps_of(LEAST.get(f"{kind}.{name}", 0), most, value, is_whole=unit in ("whole", "ms"))
            found.append(
                {"predicate": predicate, "name": sendable(name), "label": label, "apart": apart, "panel": key,
                 "at": values.index(value), "values": values, "texts": [FORMATS[unit](each) for each in values]}
            )  # fmt: skip
    return found
