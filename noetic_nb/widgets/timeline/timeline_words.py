"""What the timeline says: of the whole run, of one span, and as a table."""

from __future__ import annotations

from math import isnan
from typing import Any, Final

from noetic_nb.runs.drawn_time import duration_text
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain, plain_line, sendable
from noetic_nb.runs.run_spans import Timeline
from noetic_nb.runs.span import SIGNS, Span
from noetic_nb.runs.turn_parts import TurnParts

__all__ = [
    "EMPTY", "KIND_NAMES", "NO_CLOCK", "SEVERITY_WORDS", "TITLE", "detail_of", "go_of", "headline",
    "parts_line", "problem_lines", "span_line",
]  # fmt: skip

TITLE: Final = "Run timeline"
EMPTY: Final = "Nothing has run yet. Turns, calls and hooks appear here as they run."
NO_CLOCK: Final = "This recording has no clock times: what is shown is the order of its events."
KIND_NAMES: Final = {
    "turn": "turns", "step": "steps", "child": "children", "model": "model calls", "tool": "tool calls", "hook": "hooks",
    "decision": "decisions", "wait": "waits", "regulator": "regulator", "error": "errors", "warning": "warnings",
}  # fmt: skip
SEVERITY_WORDS: Final = ("", "held back", "out of time", "failed")
LISTED: Final = 8
# Of a turn: less is nothing to look for, and the line is to stay one.
_LEAST_SHARE: Final = 0.01


def headline(timeline: Timeline) -> str:
    """Return the run in one line.

    Examples
    --------
    >>> from noetic_nb.events import ToolCalled, Where
    >>> timeline = Timeline()
    >>> _ = timeline.take(ToolCalled(Where("t1", "e1", 1), 40.0, "pay", "c1", {}, "", 40.0, "error"), 0)
    >>> headline(timeline)
    '1 span in 40 ms; 1 failed'
    """
    spans, turns = len(timeline.spans), timeline.counts["turn"]
    said = f"{turns:,} turn{'s' * (turns != 1)}, " if turns else ""
    said += f"{spans:,} span{'s' * (spans != 1)}"
    if timeline.is_timed:
        time = timeline.time
        said += f" in {duration_text(time.until - (time.origin or 0.0))}"
    problems = [
        f"{timeline.severities[severity]:,} {SEVERITY_WORDS[severity]}"
        for severity in (3, 2, 1)
        if timeline.severities[severity]
    ]
    if problems:
        said += f"; {', '.join(problems)}"
    if timeline.waited_ms:
        said += f"; {duration_text(timeline.waited_ms)} spent waiting for a person"
    return said


def span_line(span: Span, *, length: int = 80) -> str:
    """Return a span in one line: what it is, how long it took, and how it ended."""
    kind = "" if span.kind == "turn" else f"{span.kind} "
    took = duration_text(span.duration_ms)
    said = ", ".join([text for text in (took, plain(span.status)) if text])
    sign = f"{SIGNS[span.severity]} " if span.severity else ""
    return f"{sign}{kind}{plain_line(span.name, length)}: {said}"


def problem_lines(timeline: Timeline, most: int = LISTED) -> tuple[list[tuple[Span, str]], int]:
    """Return the last spans that did not go well, each in a line with its error, and how many there are besides."""
    numbers = timeline.problems
    found = [timeline.spans[at] for at in numbers[-most:]]
    lines = []
    for span in found:
        why = f" ({plain_line(span.error, 160)})" if span.error else ""
        turn = "" if span.kind == "turn" else f"turn {span.where.turn}, " if span.where.turn > 0 else ""
        lines.append((span, f"{turn}{span_line(span)}{why}"))
    return lines, len(numbers) - len(found)


def go_of(span: Span) -> dict[str, Any]:
    """Return what other views are told when a span is chosen."""
    where = span.where
    return {
        "thread_id": sendable(where.thread_id),
        "turn": where.turn if where.turn >= 0 else None,
        "call": span.call,
        "item": span.item,
        "decision": span.decision,
    }


_PART_NAMES: Final = {
    "model": "models", "tool": "tools", "person": "waiting for people", "hook": "hooks", "rule": "rules", "planning": "planning",
    "storage": "storage", "own": "overhead", "unsplit": "not recorded what for",
}  # fmt: skip


def parts_line(turn: TurnParts) -> str:
    """Return where the time of a turn went, the most first; empty where nobody knows.

    Examples
    --------
    >>> parts_line(TurnParts("t1", 1, 10.0, {("model", "m"): 8.0, ("hook", "a"): 1.0, ("hook", "b"): 1.0}, {}))
    'models 80%, hooks 20%'
    """
    spent = dict.fromkeys(_PART_NAMES, 0.0)
    for (part, _), ms in turn.ms.items():
        spent[part] += 0.0 if isnan(ms) else ms
    whole = turn.duration_ms
    if not whole:
        return ""
    shares = sorted([(ms / whole, part) for part, ms in spent.items()], reverse=True)
    return ", ".join([f"{_PART_NAMES[part]} {share:.0%}" for share, part in shares if share >= _LEAST_SHARE])


def detail_of(timeline: Timeline, span: Span) -> dict[str, Any]:
    """Return everything about a span, for a page."""
    facts = [["Status", plain(span.status)]]
    took = duration_text(span.duration_ms)
    if span.kind not in ("error", "warning", "regulator"):
        facts.append(["Duration", took or ("still runs" if span.is_open else "not known")])
    if timeline.is_timed:
        since = span.start_ms - (timeline.time.origin or 0.0)
        facts.append(["Began", f"{duration_text(max(0.0, since))} after the start"])
    if span.where.turn > 0:
        facts.append(["Turn", str(span.where.turn)])
    facts.append(["Thread", plain(span.where.thread_id)])
    if span.call is not None:
        facts.append(["Model call", str(span.call)])
    around, parent = [], span.parent
    while parent is not None:
        around.append([parent.at, plain_line(parent.name)])
        parent = parent.parent
    return {
        "at": span.at,
        "title": span_line(span),
        "severity": span.severity,
        "facts": facts,
        "error": plain(span.error, TEXT_LENGTH) if span.error else "",
        "around": around[::-1],
        "go": go_of(span),
    }
