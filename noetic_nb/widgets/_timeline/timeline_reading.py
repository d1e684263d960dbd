"""Reads the spans of a run with their texts; a page gets one window at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf, isfinite, isnan
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import escape, heading
from noetic_nb.plots._scene.scene import Scene, series_data
from noetic_nb.plots._scene.svg import legend_html, to_html
from noetic_nb.plots._timeline_scene import KIND_NAMES, SERIES, TITLE, headline, span_line, timeline_scene
from noetic_nb.runs._palette import SPAN_COLOURS
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, plain_line, sendable
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import KINDS, MOMENTS, SIGNS, Span, duration_text
from noetic_nb.runs._timeline.span_window import QUIET, WHOLE, Wanted, Window, Windows
from noetic_nb.runs._timeline.turn_parts import TurnParts, parts_of_turns
from noetic_nb.widgets.base._feed import Reading
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed, named_row

EMPTY: Final = "Nothing has run yet. Turns, calls and hooks appear here as they run."
NO_CLOCK: Final = "This recording has no clock times: what is shown is the order of its events."
LISTED: Final = 8
LISTS: Final = {"problems": "Did not go well", "held": "Held back by rules, people or the regulator"}
"""The titles of a timeline's lists."""
_CHIPS: Final = {"problems": "✕ did not go well", "held": "⊘ held back"}
# Share of a turn below which a part is not worth looking at.
_LEAST_SHARE: Final = 0.01
# Most layers, rules or tools to name in a part.
_NAMED: Final = 4


def listed(timeline: Timeline) -> list[list[Any]]:
    """Return the non-empty `LISTS`: name, title, number of spans, and the number and line of the last ones."""
    found: list[list[Any]] = []
    for name, head in LISTS.items():
        numbers: list[int] = getattr(timeline, name)
        last = numbers[-LISTED:]
        if len(last) < len(numbers):
            head += f", the last {len(last)} of {len(numbers):,}"
        if numbers:
            found.append([name, head, len(numbers), [[at, _listed_line(timeline.spans[at])] for at in last]])
    return found


def listed_html(head: str, lines: Sequence[Sequence[Any]], *, is_live: bool = False) -> str:
    """Return one of `listed` as HTML; in a page, each line is a button that shows its span."""
    texts = [(at, escape(line)) for at, line in lines]
    if is_live:
        kind = 'type="button" class="nn-tl-problem"'
        texts = [(at, f'<button {kind} data-at="{at}">{text}</button>') for at, text in texts]
    entries = "".join([f"<li>{text}</li>" for _, text in texts])
    return f'<div><p class="nn-tl-label">{escape(head)}</p><ul class="nn-list nn-tl-problems">{entries}</ul></div>'


def _swatch(colour: str) -> str:
    look = 'class="nn-swatch" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"'
    return f'<svg {look}><path d="M0,0H12V12H0Z" fill="{colour}"/></svg>'


def _chips(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the buttons of a page that show only spans of a kind, or of a list."""
    found = [
        ("kind", kind, _swatch(SPAN_COLOURS[kind]), KIND_NAMES[kind], timeline.counts[kind])
        for kind in KINDS
        if timeline.counts[kind]
    ]
    found += [("only", name, "", _CHIPS[name], number) for name, _, number, _ in listed(timeline)]
    return [
        keyed(
            name,
            f'<button type="button" class="nn-chip" data-{what}="{name}">{look}<span>{label} {number:,}</span></button>',
        )
        for what, name, look, label, number in found
    ]


def _listed_line(span: Span) -> str:
    why = f" ({plain_line(span.error, 160)})" if span.error else ""
    turn = "" if span.kind == "turn" else f"turn {span.where.turn}, " if span.where.turn > 0 else ""
    return f"{turn}{span_line(span)}{why}"


def go_of(span: Span) -> dict[str, Any]:
    """Return the selection for other views when a span is chosen."""
    where = span.where
    return {
        "thread_id": sendable(where.thread_id),
        "turn": where.turn if where.turn >= 0 else None,
        "call": span.call,
        "item": span.item,
        # A tool call without a decision stands for itself.
        "decision": span.seq if span.decision is None and span.kind == "tool" else span.decision,
    }


# The kinds of spans have the same colours as in the picture.
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
    """Return how the time of a turn was spent, largest part first: colour, percentage, words, and the slowest spans by name.

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


def detail_of(timeline: Timeline, span: Span, time: Sequence[Sequence[Any]] = ()) -> list[dict[str, Any]]:
    """Return everything about a span as parts of a page; `time` is where its time went, as of `parts_of`."""
    facts = [f"Status: {plain(span.status)}"]
    took = duration_text(span.duration_ms)
    if span.kind not in MOMENTS:
        facts.append(f"Duration: {took or ('still runs' if span.is_open else 'not known')}")
    if timeline.is_timed:
        since = span.start_ms - (timeline.time.origin or 0.0)
        facts.append(f"Began: {duration_text(max(0.0, since))} after the start")
    if span.where.turn > 0:
        facts.append(f"Turn: {span.where.turn}")
    facts.append(f"Thread: {plain(span.where.thread_id)}")
    if span.call is not None:
        facts.append(f"Model call: {span.call}")
    around, parent = "", span.parent
    while parent is not None:
        name = escape(plain_line(parent.name))
        around = f'<button type="button" class="nn-chip" data-at="{parent.at}">{name}</button>{around}'
        parent = parent.parent
    inside = f"<span>Inside of:</span>{around}" if around else ""
    parts = {
        "head": f'<p class="nn-tl-about-head">{escape(span_line(span))}</p>',
        "facts": f'<p class="nn-tl-facts">{" ".join([f"<span>{escape(fact)}</span>" for fact in facts])}</p>',
    }
    if time:
        parts |= _time_html(time)
    if span.error:
        parts["error"] = f'<p class="nn-tl-quote">{escape(plain(span.error, TEXT_LENGTH))}</p>'
    zoom = '<button type="button" data-zoom="true">Zoom to it</button>'
    parts["buttons"] = f'<div class="nn-toolbar">{zoom}{inside}</div>'
    return [keyed(key, html) for key, html in parts.items()]


def _time_html(time: Sequence[Sequence[Any]]) -> dict[str, str]:
    bars, entries, left = "", "", 0.0
    for colour, percent, text, named in time:
        bars += f'<path d="M{left:.4g},0h{percent}V1H{left:.4g}Z" fill="{colour}"/>'
        left += percent
        more = f'<span class="nn-tl-named">{escape(named)}</span>' if named else ""
        entries += f"<li>{_swatch(colour)}<span>{escape(text)}</span>{more}</li>"
    look = f'class="nn-tl-time" viewBox="0 0 {left:.4g} 1" preserveAspectRatio="none" aria-hidden="true"'
    return {
        "label": '<p class="nn-tl-label">Where its time went</p>',
        "time": f"<svg {look}>{bars}</svg>",
        "parts": f'<ul class="nn-tl-parts">{entries}</ul>',
    }


SLOWEST: Final = 5


def static_html(timeline: Timeline, window: Window, empty: str, *, by_time: bool) -> str:
    """Return the picture of a whole run, with its failures below."""
    title = heading(TITLE)
    if not timeline.spans:
        return f'{title}<p class="nn-empty">{escape(empty)}</p>'
    scene, more = timeline_scene(timeline, window, by_time=by_time), window.total - len(window.lanes)
    notes = [f"{more:,} more row{' is' if more == 1 else 's are'} in the live view."] if more else []
    if timeline.counts["hook"]:
        notes.append("Hooks that went well and decided nothing are in the live view.")
    if not timeline.is_timed:
        notes.append(NO_CLOCK)
    if window.pauses:
        notes.append(f"Shortened: {_pauses(window)}.")
    lists = "".join([listed_html(head, lines) for _, head, _, lines in listed(timeline)])
    said = "".join([f'<p class="nn-note">{escape(note)}</p>' for note in notes])
    return f'{title}<p class="nn-sub">{escape(headline(timeline))}</p>{legend_html(scene)}{to_html(scene)}{lists}{said}'


def _pauses(window: Window) -> str:
    texts = [text for _, text in window.pauses]
    return ", ".join(texts[:3]) + (" and others" if len(texts) > 3 else "")


def static_text(timeline: Timeline, empty: str) -> str:
    """Return the timeline as plain text: spans, failures, and slowest spans."""
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


_WORD: Final = "nn-text nn-word"
COLUMNS: Final = {
    "Turn": "",
    "Name": "nn-text",
    "Kind": _WORD,
    "Status": _WORD,
    "Why": "nn-text",
    "Began": "",
    "Took": "",
}
"""Names of the columns of the list of spans, and the classes of their cells."""

# A bar must be a few pixels wide to be clickable; more lanes than this fill a screen.
FIRST_BINS: Final = 160
MOST_BINS: Final = 400
LANES: Final = 30
PAGE: Final = 50
# Characters of the reason for a decision or failure, in a row.
WHY: Final = 120


class TimelineReading(Reading):
    """The spans of a run, grown event by event.

    Parameters
    ----------
    moment : Moment, optional
        The part of the run to draw.
    is_timed : bool, default True
        Whether the run's clock times are reliable.
    run : Run, optional
        The run, used to compute how the time of turns was spent.

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
        run: Any = None,
    ) -> None:
        self.moment = moment
        self._run = run
        self.asks = self.timeline = Timeline(is_timed=is_timed, shows=None if moment == EVERYTHING else moment.shows)
        self.windows = Windows(self.timeline)
        self.by_time = is_timed
        # The last message to the page, and the last selection of other views.
        self._told: tuple[int, dict[str, Any]] | None = None
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "note": "" if is_timed else NO_CLOCK,
            "timed": is_timed,
            "series": series_data(SERIES),
            "columns": list(COLUMNS),
            "total": 0,
            "chosen": None,
            "window": None,
        }

    @property
    def has_any(self) -> bool:
        return bool(self.timeline.spans)

    def growth(self) -> dict[str, Any] | None:
        """Return the new number of spans."""
        total = len(self.timeline.spans)
        if not self.is_followed or self.snapshot["total"] == total:
            return None
        self.snapshot["total"] = total
        # A page requests its window a few times a second, so messages do not grow with the run.
        return {"type": "grown", "total": total}

    def begin(self) -> None:
        super().begin()
        self.snapshot["total"] = len(self.timeline.spans)
        self.snapshot["window"] = self._wire(self.windows.window(bins=FIRST_BINS, lanes=LANES, wanted=QUIET))
        found = self.timeline.place_of(self.snapshot["selection"]) if self.snapshot.get("selection") else None
        self.snapshot["chosen"] = None if found is None else found.at

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Find the selected span; returns its number."""
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
        return Wanted(frozenset(kinds), only, text.strip().lower(), request.get("hooks") is True)

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
        total = len(self.timeline.spans)
        matched = "" if window.matched == total else f"{window.matched:,} of "
        pauses = ", ".join([text for _, text in window.pauses])
        return {
            "from": window.start,
            "to": window.stop,
            "end": self.windows.end(by_time=by_time),
            "scene": timeline_scene(self.timeline, window, by_time=by_time).data(),
            "first": window.first,
            "shown": len(window.lanes),
            "rows": window.total,
            "paused": f"Drawn shorter, at the thick lines: {pauses}." if pauses else "",
            "said": f"{matched}{total:,} spans",
            "head": headline(self.timeline) if total else "",
            "chips": _chips(self.timeline),
            "lists": [
                keyed(name, listed_html(head, lines, is_live=True)) for name, head, _, lines in listed(self.timeline)
            ],
        }

    def _span(self, span: Span, request: dict[str, Any]) -> dict[str, Any]:
        by_time = request.get("by_time") is not False
        start, stop = self.windows.extent(span, by_time=by_time)
        self._told = span.at, {**go_of(span)}
        lane = self.windows.lane_of(span, self._wanted(request))
        time: list[list[Any]] = []
        if span.kind == "turn" and self.timeline.is_timed and not span.is_open:
            place = span.where.thread_id, span.where.turn
            time = [part for turn in parts_of_turns(self._run, only=place) for part in parts_of(turn)]
        parts = detail_of(self.timeline, span, time)
        return {"at": span.at, "go": go_of(span), "parts": parts, "from": start, "to": stop, "lane": lane}

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = self._wanted(request)
        found = [span for span in self.timeline.spans if wanted == WHOLE or wanted.takes(span)]
        start, at = int(_number(request.get("start"), len(found))), request.get("at")
        if isinstance(at, int):  # the page already has this list
            start = bisect_left(found, at, key=lambda span: span.at) - PAGE // 2
        start = max(0, min(start, len(found) - PAGE))
        return {
            "start": start,
            "count": len(found),
            "rows": [self._row(span) for span in found[start : start + PAGE]],
        }

    def _row(self, span: Span) -> dict[str, Any]:
        origin = self.timeline.time.origin or 0.0
        began = duration_text(max(0.0, span.start_ms - origin)) if self.timeline.is_timed else f"{span.first:,}"
        sign = f"{SIGNS[span.severity]} " if span.severity else ""
        (kind, named), decided, why = span.look, span.decided, span.error or ""
        name = f"{'· ' * min(span.depth, 8)}{plain_line(named)}"
        turn = str(span.where.turn) if span.where.turn > 0 else ""
        if decided is not None:
            why = ": ".join([text for text in (", ".join(decided.rule_ids), decided.guidance) if text])
        took = duration_text(span.duration_ms)
        status = decided.action if decided is not None and kind == "decision" and not sign else span.status
        texts = (turn, name, kind, f"{sign}{plain(status)}", plain_line(why, WHY), began, took)
        return keyed(span.at, named_row(COLUMNS, map(escape, texts)))

    def _whole(self) -> Window:
        return self.windows.window(by_time=self.by_time, bins=FIRST_BINS, lanes=LANES, wanted=QUIET)

    def scene(self) -> Scene:
        """Return the picture of the whole run."""
        if not self.timeline.spans:
            return Scene(title=TITLE)
        return timeline_scene(self.timeline, self._whole(), by_time=self.by_time)

    def to_html(self) -> str:
        return static_html(self.timeline, self._whole(), self.snapshot["empty"], by_time=self.by_time)

    def to_text(self) -> str:
        return static_text(self.timeline, self.snapshot["empty"])


def _number(given: Any, default: float) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
    return float(given) if is_number else default
