"""The texts of the timeline: of the whole run, of one span, and as a table."""

from __future__ import annotations

from math import isnan
from typing import Any, Final

from noetic_nb.plots._timeline_scene import span_line
from noetic_nb.runs._palette import SPAN_COLOURS
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, plain_line, sendable
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import MOMENTS, Span, duration_text
from noetic_nb.runs._timeline.turn_parts import TurnParts

EMPTY: Final = "Nothing has run yet. Turns, calls and hooks appear here as they run."
NO_CLOCK: Final = "This recording has no clock times: what is shown is the order of its events."
LISTED: Final = 8
LISTS: Final = {"problems": "Did not go well", "held": "Held back by rules, people or the regulator"}
"""The heads of the lists of a timeline."""
# Of a turn: less is nothing to look for.
_LEAST_SHARE: Final = 0.01
# Of the layers, rules or tools of a part: more is a list to read, not a glance.
_NAMED: Final = 4


def listed(timeline: Timeline) -> list[list[Any]]:
    """Return the lists of `LISTS` that have something: name, head, number of spans, and of the last ones number and line."""
    found: list[list[Any]] = []
    for name, head in LISTS.items():
        numbers: list[int] = getattr(timeline, name)
        last = numbers[-LISTED:]
        if len(last) < len(numbers):
            head += f", the last {len(last)} of {len(numbers):,}"
        if numbers:
            found.append([name, head, len(numbers), [[at, _listed_line(timeline.spans[at])] for at in last]])
    return found


def _listed_line(span: Span) -> str:
    why = f" ({plain_line(span.error, 160)})" if span.error else ""
    turn = "" if span.kind == "turn" else f"turn {span.where.turn}, " if span.where.turn > 0 else ""
    return f"{turn}{span_line(span)}{why}"


def go_of(span: Span) -> dict[str, Any]:
    """Return the selection that other views get when a span is chosen."""
    where = span.where
    return {
        "thread_id": sendable(where.thread_id),
        "turn": where.turn if where.turn >= 0 else None,
        "call": span.call,
        "item": span.item,
        # A tool call that nobody decided about stands for itself.
        "decision": span.seq if span.decision is None and span.kind == "tool" else span.decision,
    }


# Kinds of span have the colours that they have in the picture.
_PART_LOOKS: Final = {
    "model": ("models", SPAN_COLOURS["model"]),
    "tool": ("tools", SPAN_COLOURS["tool"]),
    "person": ("waiting for people", SPAN_COLOURS["wait"]),
    "hook": ("hooks", SPAN_COLOURS["hook"]),
    "rule": ("rules", SPAN_COLOURS["decision"]),
    "planning": ("planning", SPAN_COLOURS["child"]),
    "storage": ("storage", SPAN_COLOURS["warning"]),
    "own": ("overhead", SPAN_COLOURS["turn"]),
    "unsplit": ("not recorded what for", SPAN_COLOURS["step"]),
}


def parts_of(turn: TurnParts) -> list[list[Any]]:
    """Return where the time of a turn went, largest first: colour, percent, words, and the slowest spans by name.

    Examples
    --------
    >>> for part in parts_of(TurnParts("t1", 1, 10.0, {("model", "m"): 8.0, ("hook", "a"): 0.5, ("hook", "b"): 1.5}, {})):
    ...     print(part)
    ['#0072B2', 80.0, 'models 80%, 8 ms', '']
    ['#009E73', 20.0, 'hooks 20%, 2 ms', 'b 1.5 ms, a 0.5 ms']
    """
    whole, spent = turn.duration_ms, dict[str, list[tuple[float, str]]]()
    for (part, name), ms in turn.ms.items():
        if not isnan(ms):
            spent.setdefault(part, []).append((ms, name))
    if not whole:
        return []
    found = []
    for part, each in sorted(spent.items(), key=lambda item: -sum([ms for ms, _ in item[1]])):
        took = sum([ms for ms, _ in each])
        if took / whole < _LEAST_SHARE:
            continue
        words, colour = _PART_LOOKS[part]
        longest = sorted(each, reverse=True)[:_NAMED] if len(each) > 1 else []
        named = [f"{plain_line(name)} {duration_text(ms)}" for ms, name in longest if ms / whole >= _LEAST_SHARE]
        text = f"{words} {took / whole:.0%}, {duration_text(took)}"
        found.append([colour, round(100 * took / whole, 1), text, ", ".join(named)])
    return found


def detail_of(timeline: Timeline, span: Span) -> dict[str, Any]:
    """Return everything about a span, for a page."""
    facts = [["Status", plain(span.status)]]
    took = duration_text(span.duration_ms)
    if span.kind not in MOMENTS:
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
