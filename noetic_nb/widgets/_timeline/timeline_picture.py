"""The timeline as HTML and SVG without scripts, and as plain text. Times lie in percent of the width, rows in pixels."""

from __future__ import annotations

from typing import Final

from noetic_nb.markup import escape
from noetic_nb.runs._palette import SPAN_COLOURS, ink_on
from noetic_nb.runs._plain_text import plain_line
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import SIGNS
from noetic_nb.runs._timeline.span_window import Bar, Lane, Window, Windows
from noetic_nb.runs._timeline.time_axis import duration_text
from noetic_nb.widgets._timeline.timeline_text import (
    KIND_NAMES,
    NO_CLOCK,
    SEVERITY_WORDS,
    TITLE,
    headline,
    problem_lines,
    span_line,
)

__all__ = ["static_html", "static_text"]

BINS: Final = 160
LANES: Final = 30
ROW_PX: Final = 20
THREAD_PX: Final = 18
AXIS_PX: Final = 18
CHILD_GAP_PX: Final = 5
# In shares of the width: bars with less have no room for words.
WORDY: Final = 0.06
SLOWEST: Final = 5


def static_html(timeline: Timeline, windows: Windows, empty: str, *, by_time: bool) -> str:
    """Return the picture of a whole run."""
    title = f'<p class="nn-title">{TITLE}</p>'
    if not timeline.spans:
        return f'{title}<p class="nn-empty">{escape(empty)}</p>'
    window = windows.window(by_time=by_time, bins=BINS, lanes=LANES)
    more = window.total - len(window.lanes)
    notes = [f"{more:,} more rows are in the live view."] if more else []
    if not timeline.is_timed:
        notes.append(NO_CLOCK)
    if window.pauses:
        notes.append(f"Shortened: {_pauses(window)}.")
    problems, besides = problem_lines(timeline)
    listed = "".join([f"<li>{escape(line)}</li>" for _, line in problems])
    if listed:
        last = f", the last {len(problems)}" if besides else ""
        listed = f'<p>Did not go well{last}:</p><ul class="nn-list">{listed}</ul>'
    said = "".join([f'<p class="nn-note">{escape(note)}</p>' for note in notes])
    return (
        f'{title}<p class="nn-sub">{escape(headline(timeline))}</p>{_legend(timeline)}{_picture(window, timeline)}'
        f"{listed}{said}"
    )


def _pauses(window: Window) -> str:
    texts = [text for _, text in window.pauses]
    return ", ".join(texts[:3]) + (" and others" if len(texts) > 3 else "")


def _legend(timeline: Timeline) -> str:
    entries = [
        f'<span class="nn-chip"><svg class="nn-swatch" width="12" height="12" aria-hidden="true">'
        f'<rect width="12" height="12" fill="{SPAN_COLOURS[kind]}"/></svg>{KIND_NAMES[kind]} {number:,}</span>'
        for kind, number in timeline.counts.items()
        if number
    ]
    entries += [
        f'<span class="nn-chip">{SIGNS[severity]} {SEVERITY_WORDS[severity]} {timeline.severities[severity]:,}</span>'
        for severity in (3, 2, 1)
        if timeline.severities[severity]
    ]
    return f'<div class="nn-toolbar">{"".join(entries)}</div>'


def _picture(window: Window, timeline: Timeline) -> str:
    y, parts = float(AXIS_PX), [_axis(window)]
    for lane in window.lanes:
        if lane.thread:
            name = escape(f"thread {plain_line(lane.thread, 60)}")
            parts.append(f'<text x="0" y="{y + 13}" font-size="12" font-weight="600" fill="currentColor">{name}</text>')
            y += THREAD_PX
        if lane.depth and not lane.level:
            y += CHILD_GAP_PX
        parts.append(_lane(lane, y))
        y += ROW_PX
    label = escape(f"{TITLE}: {headline(timeline)}")
    return (
        f'<svg class="nn-tl-static" role="img" aria-label="{label}" width="100%" height="{y + 4:g}" '
        f'style="height:{y + 4:g}px" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _axis(window: Window) -> str:
    shown = [tick for tick in window.ticks if tick[0] <= 0.94]
    return "".join(
        [
            f'<rect x="{100 * place:.3f}%" y="0" width="1" height="100%" fill="currentColor" opacity="0.14"/>'
            f'<text x="{100 * place:.3f}%" dx="3" y="12" font-size="11" fill="currentColor">{escape(text)}</text>'
            for place, text in shown
        ]
    )


def _lane(lane: Lane, y: float) -> str:
    bars = [_bar(bar, y) for bar in lane.bars]
    # Signs on top: a bar next to it would cover one that is wider than its own.
    signs = [
        f'<text class="nn-tl-ground" x="{100 * bar.start:.3f}%" dx="1" y="{y + 14:g}" font-size="11" font-weight="700" '
        f'fill="currentColor">'
        f"{SIGNS[bar.severity]}</text>"
        for bar in lane.bars
        if bar.severity and bar.stop - bar.start < WORDY
    ]
    return "".join([*bars, *signs])


def _bar(bar: Bar, y: float) -> str:
    wide = 100 * (bar.stop - bar.start)
    fill = SPAN_COLOURS[bar.kind]
    tip = span_line(bar.span) if bar.size == 1 else f"{bar.size:,} spans, most time in {KIND_NAMES[bar.kind]}"
    # A frame where something went wrong, beside the sign: the colour is that of the kind.
    frame = ' stroke="#D55E00" stroke-width="2"' if bar.severity > 1 else ""
    pale = ' opacity="0.8"' if bar.size > 1 else ""
    size = f'x="{100 * bar.start:.3f}%" width="{max(wide, 0.12):.3f}%"'
    look = f'rx="2" fill="{fill}"{frame}{pale}><title>{escape(tip)}</title></rect>'
    if bar.size > 1 or bar.stop - bar.start < WORDY:
        return f'<rect class="nn-mark" {size} y="{y + 1:g}" height="{ROW_PX - 3}" {look}'
    sign = f"{SIGNS[bar.severity]} " if bar.severity else ""
    words = escape(sign + plain_line(bar.span.name, max(3, round(wide * 1.4))))
    # Around both, so that the words end where the bar does.
    return (
        f'<svg {size} y="{y:g}" height="{ROW_PX}" overflow="hidden">'
        f'<rect class="nn-mark" width="100%" y="1" height="{ROW_PX - 3}" {look}'
        f'<text x="4" y="14" font-size="11" fill="{ink_on(fill)}">{words}</text></svg>'
    )


def static_text(timeline: Timeline, empty: str) -> str:
    """Return the timeline as plain text: the spans, the failures, and the slowest spans."""
    if not timeline.spans:
        return f"{TITLE}. {empty}"
    lines = [f"{TITLE}: {headline(timeline)}"]
    if not timeline.is_timed:
        lines.append(NO_CLOCK)
    lines.append(", ".join([f"{KIND_NAMES[kind]} {number:,}" for kind, number in timeline.counts.items() if number]))
    problems, besides = problem_lines(timeline)
    if problems:
        lines.append(f"Did not go well{f' (and {besides:,} before)' if besides else ''}:")
        lines += [f"  {line}" for _, line in problems]
    took = [span for span in timeline.spans if span.duration_ms and span.kind not in ("turn", "step", "child")]
    if took:
        lines.append("Longest:")
        took.sort(key=lambda span: -(span.duration_ms or 0.0))
        for span in took[:SLOWEST]:
            lines.append(f"  turn {span.where.turn}, {span_line(span)}")
    else:
        lines.append("How long anything took is not known.")
    if timeline.time.pauses:
        lines.append(f"Longest pause: {duration_text(max(pause[2] for pause in timeline.time.pauses))}")
    return "\n".join(lines)
