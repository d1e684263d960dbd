"""Read the spans out of a run; a page is sent one window at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from math import inf, isfinite
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent
from noetic_nb.markup import escape, heading
from noetic_nb.runs._palette import SPAN_COLOURS, ink_on
from noetic_nb.runs._plain_text import plain, plain_line
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import KINDS, SIGNS, Span, duration_text
from noetic_nb.runs._timeline.span_window import WHOLE, Bar, Lane, Wanted, Window, Windows
from noetic_nb.runs._timeline.turn_parts import parts_of_turns
from noetic_nb.widgets._timeline.timeline_text import (
    EMPTY,
    KIND_NAMES,
    LISTS,
    NO_CLOCK,
    SEVERITY_WORDS,
    TITLE,
    detail_of,
    go_of,
    headline,
    listed,
    parts_of,
    span_line,
)
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._moment import EVERYTHING, Moment

ROW_PX: Final = 20
THREAD_PX: Final = 18
AXIS_PX: Final = 18
CHILD_GAP_PX: Final = 5
# In shares of the width: bars with less have no room for words.
WORDY: Final = 0.06
SLOWEST: Final = 5


def static_html(timeline: Timeline, windows: Windows, empty: str, *, by_time: bool) -> str:
    """Return the picture of a whole run."""
    title = heading(TITLE)
    if not timeline.spans:
        return f'{title}<p class="nn-empty">{escape(empty)}</p>'
    window = windows.window(by_time=by_time, bins=FIRST_BINS, lanes=LANES)
    more = window.total - len(window.lanes)
    notes = [f"{more:,} more rows are in the live view."] if more else []
    if not timeline.is_timed:
        notes.append(NO_CLOCK)
    if window.pauses:
        notes.append(f"Shortened: {_pauses(window)}.")
    lists = ""
    for _, head, _, lines in listed(timeline):
        entries = "".join([f"<li>{escape(line)}</li>" for _, line in lines])
        lists += f'<p>{escape(head)}:</p><ul class="nn-list">{entries}</ul>'
    said = "".join([f'<p class="nn-note">{escape(note)}</p>' for note in notes])
    return (
        f'{title}<p class="nn-sub">{escape(headline(timeline))}</p>{_legend(timeline)}{_picture(window, timeline)}'
        f"{lists}{said}"
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
    bars = [_bar_html(bar, y) for bar in lane.bars]
    # Signs on top: a bar next to it would cover one that is wider than its own.
    signs = [
        f'<text class="nn-tl-ground" x="{100 * bar.start:.3f}%" dx="1" y="{y + 14:g}" font-size="11" font-weight="700" '
        f'fill="currentColor">'
        f"{SIGNS[bar.severity]}</text>"
        for bar in lane.bars
        if bar.severity and bar.stop - bar.start < WORDY
    ]
    return "".join([*bars, *signs])


def _bar_html(bar: Bar, y: float) -> str:
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
    for _, head, _, entries in listed(timeline):
        lines += [f"{head}:", *[f"  {line}" for _, line in entries]]
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


# Narrower bars than a few pixels cannot be pointed at; more lanes than these fill a screen.
FIRST_BINS: Final = 160
MOST_BINS: Final = 400
LANES: Final = 30
NAME_LENGTH: Final = 60
PAGE: Final = 50


class TimelineReading(Reading):
    """The spans of a run, grown event by event.

    Parameters
    ----------
    moment : Moment, optional
        Which part of the run is drawn.
    is_timed : bool, default True
        Whether the clock of the run is to be believed.
    events : callable, optional
        Returns the events of the run, to say where the time of a turn went.

    Examples
    --------
    >>> TimelineReading().to_text()
    'Run timeline. Nothing has run yet. Turns, calls and hooks appear here as they run.'
    """

    counted = "tool_called", "tool calls"
    reads = Timeline.reads
    nothing = "{part} has nothing that ran."

    def __init__(
        self,
        moment: Moment = EVERYTHING,
        *,
        is_timed: bool = True,
        events: Callable[[], Iterable[RunEvent]] = tuple,
    ) -> None:
        self.moment = moment
        self._shows_all = moment == EVERYTHING
        self._events = events
        self.timeline = Timeline(is_timed=is_timed)
        self.windows = Windows(self.timeline)
        self.by_time = is_timed
        # What a page was told of last, and what other views were told then.
        self._told: tuple[int, dict[str, Any]] | None = None
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "note": "" if is_timed else NO_CLOCK,
            "timed": is_timed,
            "kinds": [[kind, KIND_NAMES[kind], SPAN_COLOURS[kind], ink_on(SPAN_COLOURS[kind])] for kind in KINDS],
            "signs": list(SIGNS),
            "words": list(SEVERITY_WORDS),
            "total": 0,
            "chosen": None,
            "window": None,
        }

    @property
    def has_any(self) -> bool:
        """Whether there is something to show."""
        return bool(self.timeline.spans)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns how many spans there are where one has changed."""
        if not (self._shows_all or self.moment.shows(event.where)):
            return None
        if not self.timeline.take(event, place.seq, place.call):
            return None
        self.snapshot["total"] = len(self.timeline.spans)
        # A page asks for what it shows, a few times a second: a message does not grow with the run.
        return {"type": "grown", "total": self.snapshot["total"]} if self.is_followed else None

    def begin(self) -> None:
        """Make the first picture: a page asks for later changes."""
        super().begin()
        self.snapshot["window"] = self._wire(self.windows.window(bins=FIRST_BINS, lanes=LANES))
        found = self.timeline.place_of(self.snapshot["selection"]) if self.snapshot.get("selection") else None
        self.snapshot["chosen"] = None if found is None else found.at

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Find the span that was chosen; returns its number."""
        found = self.timeline.place_of(fields)
        if self._told is not None and self._told[1] == fields:
            found = self.timeline.spans[self._told[0]]
        self.snapshot["chosen"] = None if found is None else found.at
        return {"type": "chosen", "at": self.snapshot["chosen"]}

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``window``, ``span`` with ``at``, ``problem`` with ``at`` and ``back``, and ``list`` with ``start``.

        Raises `NoeticConfigError` ``INVALID_WINDOW`` or ``UNKNOWN_REQUEST``.
        """
        spans = self.timeline.spans
        match request:
            case {"what": "window"}:
                return self._window(request)
            case {"what": "span", "at": int(at)} if 0 <= at < len(spans):
                return self._span(spans[at], request)
            case {"what": "problem", "at": int(at)} if self.timeline.problems or self.timeline.held:
                return self._span(spans[self._next_problem(at, back=request.get("back") is True)], request)
            case {"what": "list"}:
                return self._list(request)
        return super().answer(request)

    def _next_problem(self, at: int, *, back: bool) -> int:
        problems = sorted([*self.timeline.problems, *self.timeline.held])
        place = bisect_left(problems, at) - 1 if back else bisect_right(problems, at)
        return problems[place % len(problems)]

    def _wanted(self, request: dict[str, Any]) -> Wanted:
        kinds, text = request.get("kinds") or (), request.get("text") or ""
        only = request.get("only") or ""
        are_texts = isinstance(text, str) and isinstance(only, str) and isinstance(kinds, list | tuple)
        if not are_texts or only not in ("", *LISTS) or not set(map(str, kinds)) <= set(KINDS):
            raise NoeticConfigError(
                "INVALID_WINDOW",
                "That part of the timeline cannot be shown.",
                given=request,
                hint="Load the page again.",
            )
        return Wanted(frozenset(kinds), only, text.strip().lower())

    def _window(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = self._wanted(request)
        start, stop = (_number(request.get(name), default) for name, default in (("from", 0.0), ("to", inf)))
        bins, first = (int(_number(request.get(name), default)) for name, default in (("bins", 160), ("first", 0)))
        by_time = request.get("by_time") is not False
        window = self.windows.window(
            start, stop, by_time=by_time, bins=max(1, min(bins, MOST_BINS)), first=first, lanes=LANES, wanted=wanted
        )
        return self._wire(window, by_time=by_time)

    def _wire(self, window: Window, *, by_time: bool = True) -> dict[str, Any]:
        names: dict[str, int] = {}
        lanes = [
            [plain_line(lane.thread), lane.depth, lane.level, [_bar(bar, names) for bar in lane.bars]]
            for lane in window.lanes
        ]
        return {
            "from": window.start,
            "to": window.stop,
            "end": self.windows.end(by_time=by_time),
            "lanes": lanes,
            "first": window.first,
            "rows": window.total,
            "names": list(names),
            "ticks": [[round(100 * place, 3), text] for place, text in window.ticks],
            "pauses": [[round(100 * place, 3), text] for place, text in window.pauses],
            "matched": window.matched,
            "total": len(self.timeline.spans),
            "head": headline(self.timeline) if self.timeline.spans else "",
            "counts": [self.timeline.counts[kind] for kind in KINDS],
            "lists": listed(self.timeline),
        }

    def _span(self, span: Span, request: dict[str, Any]) -> dict[str, Any]:
        by_time = request.get("by_time") is not False
        start, stop = self.windows.extent(span, by_time=by_time)
        self._told = span.at, {**go_of(span)}
        lane = self.windows.lane_of(span, self._wanted(request))
        detail = detail_of(self.timeline, span)
        if span.kind == "turn" and self.timeline.is_timed and not span.is_open:
            place = span.where.thread_id, span.where.turn
            events = [event for event in self._events() if (event.where.thread_id, event.where.turn) == place]
            detail["time"] = [part for turn in parts_of_turns(events) for part in parts_of(turn)]
        return {**detail, "from": start, "to": stop, "lane": lane}

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = self._wanted(request)
        found = [span for span in self.timeline.spans if wanted == WHOLE or wanted.takes(span)]
        start = max(0, min(int(_number(request.get("start"), 0)), len(found) - 1))
        return {
            "start": start,
            "count": len(found),
            "rows": [self._row(span) for span in found[start : start + PAGE]],
        }

    def _row(self, span: Span) -> list[Any]:
        origin = self.timeline.time.origin or 0.0
        began = duration_text(max(0.0, span.start_ms - origin)) if self.timeline.is_timed else f"{span.first:,}"
        sign = f"{SIGNS[span.severity]} " if span.severity else ""
        name = f"{'· ' * min(span.depth, 8)}{plain_line(span.name)}"
        turn = str(span.where.turn) if span.where.turn > 0 else ""
        return [span.at, name, span.kind, began, duration_text(span.duration_ms), f"{sign}{plain(span.status)}", turn]

    def to_html(self) -> str:
        """Return the whole run as HTML without scripts."""
        return static_html(self.timeline, self.windows, self.snapshot["empty"], by_time=self.by_time)

    def to_text(self) -> str:
        """Return the whole run as plain text."""
        return static_text(self.timeline, self.snapshot["empty"])


def _number(given: Any, default: float) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
    return float(given) if is_number else default


def _bar(bar: Bar, names: dict[str, int]) -> list[Any]:
    """Return a bar as a page gets it: where, its span, how many it stands for, its kind, and how it ended.

    Names are sent once and named by their number.
    """
    span = bar.span
    place = [round(100 * bar.start, 3), round(100 * (bar.stop - bar.start), 3), span.at]
    kind = KINDS.index(bar.kind)
    if bar.size > 1:
        return [*place, bar.size, kind, bar.severity]
    name, status = (
        names.setdefault(text, len(names)) for text in (plain_line(span.name, NAME_LENGTH), plain(span.status))
    )
    return [*place, 1, kind, bar.severity, name, status, duration_text(span.duration_ms)]
