"""A window of a timeline as a scene: bars for one or several spans, long pauses, and the axis of time or order."""

from __future__ import annotations

from math import floor, log10
from typing import Final

from noetic_nb.plots._scene.scene import Mark, Panel, Scene, Series
from noetic_nb.runs._palette import SPAN_COLOURS
from noetic_nb.runs._plain_text import plain, plain_line
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import KINDS, SIGNS, Span, duration_text
from noetic_nb.runs._timeline.span_window import Bar, Window

TITLE: Final = "Run timeline"
KIND_NAMES: Final = {
    "turn": "turns", "step": "steps", "child": "children", "model": "model calls", "tool": "tool calls", "hook": "hooks",
    "decision": "decisions", "wait": "waits", "compaction": "compactions",
    "regulator": "regulator", "error": "errors", "warning": "warnings",
}  # fmt: skip
SEVERITY_WORDS: Final = ("", "held back", "out of time", "failed")

SPANS: Final = "what ran when"
ROW_PX: Final = 20
NAME_LENGTH: Final = 60
PAUSES: Final = "pauses"
# The labels of two pauses closer than this share of the width would overlap.
APART: Final = 0.25
# Patterns for kinds whose fills have the same brightness, for readers who cannot use the colours.
_HATCHES: Final = {"hook": "////", "child": "\\\\\\\\", "wait": "xxxx", "regulator": "...."}
SERIES: Final = {
    "grid": Series("box", SPANS, opacity=0.16, width=1),
    "pause": Series("box", SPANS, opacity=0.6, width=3),
    "words": Series("text", SPANS),
    "sign": Series("text", SPANS, path="M0,0"),
    # In front: otherwise the next bar would cover a short model call.
    **{kind: Series("bar", SPANS, SPAN_COLOURS[kind], hatch=_HATCHES.get(kind, ""))
       for kind in sorted(KINDS, key="model".__eq__)},
}  # fmt: skip


def headline(timeline: Timeline) -> str:
    """Describe the run in one line.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> headline(Timeline.of(datasets.airline_run(26)))
    '4 turns, 61 spans; 1 held back'
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


def span_line(span: Span) -> str:
    """Describe a span in one line: name, duration and outcome."""
    look, name = span.look
    kind = "" if look == "turn" else f"{look} "
    took = duration_text(span.duration_ms)
    said = ", ".join([text for text in (took, plain(span.status)) if text])
    sign = f"{SIGNS[span.severity]} " if span.severity else ""
    return f"{sign}{kind}{plain_line(name, 80)}: {said}"


def timeline_scene(timeline: Timeline, window: Window, *, by_time: bool = True) -> Scene:
    """Return a window as a scene; positions are counted from its start, in drawn milliseconds or in events.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> from noetic_nb.runs._timeline.span_window import Windows
    >>> timeline = Timeline.of(datasets.airline_run(26))
    >>> timeline_scene(timeline, Windows(timeline).window()).marks[-1].text
    'tool update_reservation_flights: ok'
    """
    wide = window.stop - window.start
    digits = 5 - floor(log10(wide))

    def x(share: float) -> float:
        return round(share * wide, digits)

    marks = [Mark("grid", [x(at), None, x(at), None]) for at, _ in window.ticks]
    pauses = [(x(at), text) for at, text in window.pauses if 0 < at < 1]
    marks += [Mark("pause", [at, None, at, None]) for at, _ in pauses]
    lanes, ended = [], -wide
    for at, text in pauses:
        if at - ended > APART * wide:
            lanes, ended = [PAUSES], at
            marks.append(Mark("words", [at, PAUSES], text))
    for row, lane in enumerate(window.lanes, window.first):
        if lane.thread:
            lanes.append(f"thread {row}")
            marks.append(Mark("words", [0, lanes[-1]], f"thread {plain_line(lane.thread, NAME_LENGTH)}"))
        lanes.append(f"{row}")
        marks += [_mark(bar, [x(bar.start), lanes[-1], x(bar.stop)]) for bar in lane.bars]
    return Scene(
        [Panel(SPANS, ROW_PX * max(1, len(lanes)), lanes=lanes)], marks, 0, wide, SERIES,
        [(x(at), text) for at, text in window.ticks], "time" if by_time and timeline.is_timed else "order of events", (),
        f"{TITLE}: {headline(timeline)}", _legend(timeline, marks), 0,
    )  # fmt: skip


def _mark(bar: Bar, points: list[float | str]) -> Mark:
    span, sign = bar.span, SIGNS[bar.severity]
    tone = "bad" if bar.severity > 1 else ""
    if bar.size == 1:
        return Mark(
            bar.kind, points, span_line(span), plain_line(span.look[1], NAME_LENGTH), sign, tone, f"{span.at}"
        )  # fmt: skip
    worst = f", the worst: {SEVERITY_WORDS[bar.severity]} {sign}" if sign else ""
    tip = f"{bar.size:,} spans close together, most time in {KIND_NAMES[bar.kind]}{worst}."
    return Mark(bar.kind, points, tip, "", sign, f"many {tone}".strip(), f"{span.at}+{bar.size - 1}")


def _legend(timeline: Timeline, marks: list[Mark]) -> list[tuple[str, str]]:
    numbers = {kind: number for kind, number in timeline.counts.items() if number}
    if not any(mark.series == "hook" for mark in marks):  # hooks are usually left out
        numbers.pop("hook", None)
    found = [(kind, f"{KIND_NAMES[kind]} {number:,}") for kind, number in numbers.items()]
    signs = [(SIGNS[at], SEVERITY_WORDS[at], timeline.severities[at]) for at in (3, 2, 1) if timeline.severities[at]]
    return found + [("sign", f"{sign} {words} {number:,}") for sign, words, number in signs]
