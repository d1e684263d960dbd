"""Reads two runs for a comparison: totals and the number of turns first, pairs when the page requests them."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from noetic_nb.events import ModelCalled, RunEvent, ToolCalled, TurnCompleted, TurnStarted, ViewAssembled, Where
from noetic_nb.lab._comparing.comparison import turn_pairs, turn_rows
from noetic_nb.lab._replaying.replay_report import sent_tokens
from noetic_nb.markup import escape, heading
from noetic_nb.plots._compare_scene import SERIES, TITLE, PairNumbers, pairs_scene
from noetic_nb.plots._scene.scene import PAD_PX, Scene, series_data
from noetic_nb.plots._scene.svg import legend_html, to_html
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._turns import TurnBook, TurnSummary
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed, table
from noetic_nb.widgets.base._text_diff import parts_html, parts_text, text_parts

Row: TypeAlias = tuple[str, Any, Any]
"""The name of the compared value, and both sides."""

# Turns and request items compared in one step, so that a step takes a fraction of a second.
GO_TURNS: Final = 100
GO_ITEMS: Final = 20_000


@dataclass(slots=True, eq=False)
class TurnPart:
    """One turn of one run; its events are evaluated on demand."""

    where: Where
    query: str = ""
    begun: bool = False
    events: list[RunEvent] = field(default_factory=list)
    last: int = -1
    """The number of its last event in the run."""
    context: float | None = None
    """The tokens of its largest request."""
    _known: tuple[int, tuple[float | None, ...]] = (-1, ())

    def summary(self) -> TurnSummary:
        return TurnBook().read(self.events)[0]

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """Its part of the totals, from the same source as the table of turns."""
        if self._known[0] != len(self.events):
            kinds = Counter(map(type, self.events))
            ends = (event for event in reversed(self.events) if isinstance(event, TurnCompleted))
            turn = next(ends) if kinds[TurnCompleted] else self.summary()
            counts = 1, turn.outcome not in (None, "success"), kinds[ModelCalled], kinds[ToolCalled]
            self._known = len(self.events), (*counts, turn.input_tokens, turn.output_tokens, turn.cost)
        return self._known[1]


Pair: TypeAlias = tuple[TurnPart | None, TurnPart | None]


class Side:
    """The turns of one run so far, and their totals."""

    def __init__(self) -> None:
        self.turns: list[TurnPart] = []
        self._by: dict[tuple[str, int], TurnPart] = {}
        self._index = RequestIndex()
        # Requests are reconstructed when a pair is viewed, so that long runs open quickly.
        self._unread: deque[tuple[RunEvent, int, int | None]] = deque()
        self._requests: dict[int, RecordedRequest] = {}

    def take(self, event: RunEvent, seq: int, call: int | None, *, shows: bool) -> bool:
        """Read one event; returns whether a turn began or ended with it."""
        kind = type(event)
        if kind in RequestIndex.reads:
            self._unread.append((event, seq, call))
        where = event.where
        if not shows or where.turn < 1:
            return False
        part = self._by.get((where.thread_id, where.turn))
        # A second start with the same number is a separate turn, as in `Run.turns`.
        if part is None or (kind is TurnStarted and part.begun):
            part = self._by[where.thread_id, where.turn] = TurnPart(where)
            self.turns.append(part)
        part.events.append(event)
        part.last = seq
        if isinstance(event, ViewAssembled):
            part.context = max(part.context or 0, sent_tokens(event))
        if kind is TurnStarted and isinstance(event, TurnStarted):
            part.where, part.query, part.begun = where, event.query, True
            return True
        return kind is TurnCompleted

    def requests_of(self, part: TurnPart | None) -> dict[int, RecordedRequest]:
        """Return the requests up to and including a turn, by the ``id`` of their view."""
        last = -1 if part is None else part.last
        while self._unread and self._unread[0][1] <= last:
            event, seq, call = self._unread.popleft()
            at = self._index.take(event, seq=seq, call=call)
            if at is not None and isinstance(event, ViewAssembled):
                self._requests[id(event)] = self._index.requests[at]
        return self._requests

    @property
    def totals(self) -> list[float | None]:
        """The sums over all turns; if one turn is unknown, so is the sum."""
        each = zip(*[part.numbers for part in self.turns], strict=True) if self.turns else [(0,)] * len(TOTALS)
        return [None if None in numbers else sum(numbers) for numbers in each]


TOTALS: Final = ("turns", "turns that failed", "model calls", "tool calls", "tokens in", "tokens out", "cost")


class ComparedTurns:
    """The paired turns of two sides, compared on demand.

    Examples
    --------
    >>> sides = Side(), Side()
    >>> for side, query in zip(sides, ("Hi", "Hello"), strict=True):
    ...     _ = side.take(TurnStarted(Where("t1", "e1", 1), 0.0, "u1", 0, 1, query), 0, None, shows=True)
    >>> turns = ComparedTurns(*sides)
    >>> turns.rows(0)[0]
    ('prompt', 'Hi', 'Hello')
    """

    def __init__(self, a: Side, b: Side) -> None:
        self.sides = a, b
        self._pairs: list[Pair] | None = None
        self._known: dict[tuple[int, int], tuple[int, int, list[Row]]] = {}

    def grown(self) -> None:
        """Note that a turn began or ended."""
        self._pairs = None

    @property
    def pairs(self) -> list[Pair]:
        if self._pairs is None:
            self._pairs = list(turn_pairs(*[side.turns for side in self.sides]))
        return self._pairs

    def rows(self, at: int) -> list[Row]:
        """Return all compared values of a pair."""
        pair = self.pairs[at]
        sizes = [0 if part is None else len(part.events) for part in pair]
        key = id(pair[0]), id(pair[1])
        known = self._known.get(key)
        if known is None or known[:2] != (sizes[0], sizes[1]):
            one, other = [None if part is None else part.summary() for part in pair]
            requests = self.sides[0].requests_of(pair[0]), self.sides[1].requests_of(pair[1])
            rows = list(turn_rows((one, other), requests))
            known = self._known[key] = (sizes[0], sizes[1], rows)
        return known[2]

    def differing(self, at: int) -> list[Row]:
        return [row for row in self.rows(at) if row[1] != row[2]]

    def stop_after(self, start: int) -> int:
        """Return where a step that starts at a pair ends."""
        items = 0
        for at in range(start, min(start + GO_TURNS, len(self.pairs))):
            events = [event for part in self.pairs[at] if part is not None for event in part.events]
            items += sum([event.history_items for event in events if isinstance(event, ViewAssembled)])
            if items > GO_ITEMS:
                return at + 1
        return min(start + GO_TURNS, len(self.pairs))

    def place_of(self, thread_id: str | None, turn: int) -> int | None:
        """Return the index of the pair with a turn of the first run."""
        for at, (one, _) in enumerate(self.pairs):
            if one is not None and one.where.turn == turn and thread_id in (None, one.where.thread_id):
                return at
        return None


EMPTY: Final = "No turn yet. Turns of both runs appear here side by side."

# As much as a reader without a kernel scrolls through; `to_frame()` has everything.
PAIRS_SHOWN: Final = 10
GOES: Final = 3


def turn_text(pair: Pair) -> str:
    """Return the turn numbers of a pair, once if they are equal."""
    a, b = ["—" if part is None else f"{part.where.turn}" for part in pair]
    return a if a == b else f"{a} | {b}"


def said_of(counts: Sequence[int], of: int) -> str:
    """Describe how many of the compared pairs differ.

    Examples
    --------
    >>> said_of([0, 2, 1], 3), said_of([0, 2], 1_000)
    ('2 of 3 pairs of turns differ', '1 of the first 2 pairs of turns differ; there are 1,000')
    """
    differ, looked = sum(count > 0 for count in counts), len(counts)
    first, rest = ("the first ", f"; there are {of:,}") if looked < of else ("", "")
    return f"{differ:,} of {first}{looked:,} pairs of turns differ{rest}"


def pair_rows(pair: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [(row["what"], parts_html(row["a"]), parts_html(row["b"])) for row in pair["rows"]]
    if pair["more"] or not rows:
        rows.append(("", f"and {pair['more']:,} more row{'s' * (pair['more'] > 1)}" if rows else "nothing differs", ""))
    threads = " | ".join(dict.fromkeys([name for name in pair["threads"] if name is not None]))
    title = f' title="thread {escape(threads)}"' if threads else ""
    html = [
        f'<tr{"" if at else " data-first"}><th scope="row"{title}>{"" if at else escape(pair["turn"])}</th>'
        f'<td class="nn-what">{escape(what)}</td><td class="nn-side">{a}</td><td class="nn-side">{b}</td></tr>'
        for at, (what, a, b) in enumerate(rows)
    ]
    return [keyed(f"{pair['at']} {at}", row) for at, row in enumerate(html)]


# Pairs per page, and rows per pair; the frame has all rows of a turn with hundreds of tool calls.
PAGE: Final = 10
ROWS: Final = 60
CELL_LENGTH: Final = 600
_HASH: Final = re.compile(", [0-9a-f]{8}$")
# Values compared word by word; all others are compared as a whole.
_WORDS: Final = frozenset({"prompt", "tool call", "tool result", "reply"})


class CompareReading(Reading):
    """Two runs side by side, with their names; `moment` limits the compared part of both."""

    nothing = "No turns to compare in {part}."

    def __init__(self, names: tuple[str, str], moment: Moment = EVERYTHING) -> None:
        self.moment = moment
        self._shows_all = moment == EVERYTHING
        self.sides = Side(), Side()
        self.turns = ComparedTurns(*self.sides)
        self._looked = 0
        self.names = [f"{side}: {plain(name)}" for side, name in zip("ab", names, strict=True)]
        self.snapshot = {
            "names": self.names,
            "empty": EMPTY,
            "page": PAGE,
            "news": 0,
            "series": series_data(SERIES),
            "pad": PAD_PX,
        }
        self._total()

    def _total(self) -> dict[str, Any]:
        """Put the totals into the snapshot, and return them."""
        totals = {"hasAny": self.has_any, "totals": [keyed("totals", self._totals_html())]}
        self.snapshot |= totals
        return totals

    def _totals_html(self) -> str:
        rows = ([escape(cell) for cell in row] for row in total_rows(*self.sides))
        return table("nn-totals", ("", *self.names, "Difference"), rows, caption="Totals of both runs")

    @property
    def has_any(self) -> bool:
        return any(side.turns for side in self.sides)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event of the first run; returns the message about a turn that began or ended."""
        return self.take_of(0, event, place)

    def take_of(self, side: int, event: RunEvent, place: Place) -> dict[str, Any] | None:
        shows = self._shows_all or self.moment.shows(event.where)
        if not self.sides[side].take(event, place.seq, place.call, shows=shows):
            return None
        self.turns.grown()
        if not self.is_followed:
            return None
        self.snapshot["news"] += 1
        return {"type": "grown", "news": self.snapshot["news"], **self._total()}

    def begin(self) -> None:
        super().begin()
        self._total()

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``{what: "picture", start}`` and ``{what: "pairs", start, only, kind, turn, thread}``.

        The picture has the pairs up to `start`, and those of the step that begins there.

        Raises `NoeticConfigError` ``UNKNOWN_REQUEST``.
        """
        match request:
            case {"what": "picture", "start": int(start)} if start >= 0:
                self._looked = max(self._looked, self.turns.stop_after(min(start, self._looked)))
                of = len(self.turns.pairs)
                about = {"looked": self._looked, "of": of, "said": said_of(self.counts(), of)}
                return {**about, **self.scene().data()}
            case {"what": "pairs"}:
                page = self.page(request)
                pairs = [{"go": pair["go"], "rows": pair_rows(pair)} for pair in page["pairs"]]
                return {**page, "pairs": pairs}
        return super().answer(request)

    def page(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the next pairs, up to a full page or the end of the step; ``next`` is where the following page begins."""
        start, turn, kind = request.get("start"), request.get("turn"), request.get("kind")
        wanted = None
        if type(turn) is int:
            wanted = self.turns.place_of(request.get("thread"), turn)
        at = wanted if wanted is not None else start if type(start) is int and start > 0 else 0
        found: list[dict[str, Any]] = []
        first, stop = at, self.turns.stop_after(at)
        while at < stop and len(found) < PAGE:
            rows = [row for row in self.turns.rows(at) if not kind or row[0] == kind]
            shown = [row for row in rows if row[1] != row[2]] if request.get("only") is True else rows
            if shown or at == wanted:
                found.append(self._pair(at, shown, len(rows)))
            at += 1
        if first <= self._looked:
            self._looked = max(self._looked, at)
        of = len(self.turns.pairs)
        return {"start": first, "pairs": found, "next": at if at < of else None, "of": of}

    def _pair(self, at: int, rows: list[Row], compared: int) -> dict[str, Any]:
        pair = self.turns.pairs[at]
        return {
            "at": at,
            "turn": turn_text(pair),
            "threads": [None if part is None else plain(part.where.thread_id) for part in pair],
            "go": _go(pair[0]),
            "rows": [row_data(row) for row in rows[:ROWS]],
            "more": max(0, len(rows) - ROWS),
            "same": compared - len(rows),
        }

    def counts(self) -> list[int]:
        """Return how many rows differ in each compared pair; compares at least one step."""
        self._looked = max(self._looked, self.turns.stop_after(0))
        return [len(self.turns.differing(at)) for at in range(min(self._looked, len(self.turns.pairs)))]

    def scene(self) -> Scene:
        """Return the picture of both runs: contexts, costs, and the differences compared so far."""
        numbers = []
        for pair, differences in zip_longest(self.turns.pairs, self.counts()):
            one, other = [(None, None) if part is None else (part.context, part.numbers[-1]) for part in pair]
            context, cost = zip(one, other, strict=True)
            numbers.append(PairNumbers(turn_text(pair), context, cost, differences))
        return pairs_scene(numbers, self.names)

    def _first(self) -> list[dict[str, Any]]:
        pairs: list[dict[str, Any]] = []
        start: int | None = 0
        for _ in range(GOES):
            page = self.page({"start": start, "only": True})
            pairs += page["pairs"]
            start = page["next"]
            if start is None or len(pairs) >= PAIRS_SHOWN:
                break
        return pairs[:PAIRS_SHOWN]

    def to_html(self) -> str:
        head = heading(TITLE)
        if not self.has_any:
            return f'{head}<p class="nn-empty">{escape(self.snapshot["empty"])}</p>'
        found = self._first()
        pairs = table(
            "nn-compared",
            ("Turn", "Part", *self.names),
            [row["html"] for pair in found for row in pair_rows(pair)],
        )
        scene = self.scene()
        picture = f"{legend_html(scene)}{to_html(scene)}" if scene.panels else ""
        return f'{head}{picture}{self._totals_html()}<p class="nn-sub">{escape(self._said)}</p>{pairs if found else ""}'

    def to_text(self) -> str:
        if not self.has_any:
            return f"Compare. {self.snapshot['empty']}"
        lines = [f"Compare. {', '.join(self.names)}. {self._said}"]
        lines += [f"  {name}: {a} | {b}{f' ({more})' if more else ''}" for name, a, b, more in total_rows(*self.sides)]
        for pair in self._first():
            lines.append(f"Turn {pair['turn']}")
            lines += [f"  {row['what']}: {parts_text(row['a'])} | {parts_text(row['b'])}" for row in pair["rows"]]
        return "\n".join(lines)

    @property
    def _said(self) -> str:
        return f"{said_of(self.counts(), len(self.turns.pairs))}."


def _go(part: TurnPart | None) -> dict[str, Any] | None:
    if part is None:
        return None
    thread = part.where.thread_id
    return {"thread_id": thread if plain(thread) == thread else None, "turn": part.where.turn}


def number_text(value: float | None) -> str:
    """Format a number; None is unknown.

    Examples
    --------
    >>> number_text(1234), number_text(0.0125), number_text(None)
    ('1,234', '0.0125', 'not known')
    """
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**15 else f"{float(value):,.4g}"


def total_rows(a: Side, b: Side) -> list[list[str]]:
    """Return the totals of both runs: name, both sums, and the increase in the second."""
    rows = []
    for name, one, other in zip(TOTALS, a.totals, b.totals, strict=True):
        more = "" if one is None or other is None else "same" if one == other else _signed(other - one)
        rows.append([name, number_text(one), number_text(other), more])
    return rows


def _signed(number: float) -> str:
    return f"{'+' if number > 0 else '−'}{number_text(abs(number))}"


def row_data(row: Row) -> dict[str, Any]:
    """Return a row for a page: name, whether it is equal, and both sides in parts with signs."""
    what, a, b = row
    is_same = a == b
    if what == "request":
        # Hashes distinguish contents for programs, but tell a reader nothing.
        one, other = (side if side is None else _HASH.sub("", side) for side in (a, b))
        a, b = one, f"{other}, other texts" if not is_same and one == other else other
    if not is_same and what in _WORDS and isinstance(a, str) and isinstance(b, str):
        parts = text_parts(a, b)
        left, right = [part for part in parts if part[0] != "+"], [part for part in parts if part[0] != "-"]
    else:
        # A missing side has nothing to strike out or underline.
        left = [["" if is_same or a is None else "-", _cell(a)]]
        right = [["" if is_same or b is None else "+", _cell(b)]]
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        if numbers and not is_same:
            right.append(["", f" ({_signed(b - a)})"])
    sides = [[[sign, plain(text, CELL_LENGTH)] for sign, text in parts] for parts in (left, right)]
    return {"what": what, "same": is_same, "a": sides[0], "b": sides[1], "lacks": [a is None, b is None]}


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else number_text(value) if isinstance(value, int | float) else str(value)
