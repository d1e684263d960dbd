"""The conversation of a run, one row per turn: message, reply, denials and guidance, and grade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from noetic_nb.events import (
    ErrorRaised,
    QualityGiven,
    RegulatorDecided,
    RunEvent,
    SteeringDecided,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.markup import escape
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed

NO_TURN: Final = "No turn yet. Messages and answers appear here."
# A page starts with the newest rows, and requests this many others at a time.
ROWS: Final = 20
# Longest reply shown here; the transcript has the whole reply.
REPLY_LENGTH: Final = 1_000
# Words by action of a decision, and whether it was enforced.
_HELD: Final = {
    ("deny", True): "denied",
    ("deny", False): "would have been denied",
    ("guide", True): "guided",
    ("guide", False): "would have been guided",
}
_BEGINNING: Final = (SteeringDecided, RegulatorDecided, TurnCompleted)
_STOPPED: Final = "stopped by the regulator"


@dataclass(slots=True, eq=False)
class _Row:
    """One turn."""

    at: int
    where: Where
    said: str = ""
    done: TurnCompleted | None = None
    error: str = ""
    grade: str = ""
    held: list[tuple[int, str]] = field(default_factory=list)
    """The places of decisions that held something back, or would have, with their words."""


class Talk:
    """The turns of a run in starting order.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> talk, where = Talk(), Where("t1", "e1", 1)
    >>> [talk.take(TurnStarted(where, 0.0, "u", 0, 1, "Hi"), 0)]
    [0]
    >>> [talk.take(TurnCompleted(where, 1.0, "u", "success", 5.0, "Hello!", 5, 2, None, 1, 0), 1)]
    [0]
    >>> print(talk.to_text())
    1. Hi
       Hello!
    """

    reads: ClassVar = frozenset(
        {ErrorRaised, QualityGiven, RegulatorDecided, SteeringDecided, TurnCompleted, TurnStarted}
    )
    """The event types that it reads."""

    def __init__(self, moment: Moment = EVERYTHING) -> None:
        self._moment = moment
        self._rows: list[_Row] = []
        self._by: dict[tuple[str, int], _Row] = {}
        self._threads: set[str] = set()
        self.is_live = True
        """Whether the run is being recorded."""

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, event: RunEvent, seq: int) -> int | None:
        """Read one event; returns the index of the changed row."""
        if type(event) is RegulatorDecided and not event.stops:  # true for most events of a long run
            return None
        row = self._changed(event, seq)
        return None if row is None else row.at

    def _changed(self, event: RunEvent, seq: int) -> _Row | None:
        where = event.where
        begins = type(event) is TurnStarted
        row = self._by.get((where.thread_id, where.turn))
        # Imported runs do not always record the start of a turn.
        if begins or (row is None and where.turn > 0 and isinstance(event, _BEGINNING)):
            if not self._moment.shows(where):
                return None
            row = self._by[where.thread_id, where.turn] = _Row(len(self._rows), where)
            row.said = event.query if isinstance(event, TurnStarted) else ""
            self._rows.append(row)
            self._threads.add(where.thread_id)
        if row is None or begins:
            return row
        match event:
            case SteeringDecided() if (event.action, event.enforced) in _HELD:
                row.held.append((seq, _HELD[event.action, event.enforced]))
            case ErrorRaised():
                # A message was cancelled by a person, who needs no reason.
                why = "" if event.error_kind == "cancelled" else f" ({event.message})"
                row.error = f"{event.error_kind}{why}"
            case RegulatorDecided(stops=True):
                row.held.append((seq, _STOPPED))
            case QualityGiven():
                what = "whole conversation graded" if event.source == "reward" else "grade"
                row.grade = f"{what} {event.quality:.2f}"
            case TurnCompleted():
                row.done = event
            case _:
                return None
        return row

    @property
    def has_threads(self) -> bool:
        """Whether the turns are of several threads, so that each needs the name of its own."""
        return len(self._threads) > 1

    def row(self, at: int, *, is_live: bool = True) -> dict[str, Any]:
        """Return a turn as an entry of a list; a page gets buttons that choose it, and its first denial, guide or stop."""
        row = self._rows[at]
        reply, held, marks = _reply(row), ", ".join(_held(row)), " · ".join(_marks(row))
        said = plain(row.said, TEXT_LENGTH) or "(nothing said)"
        thread = f'<span class="nn-turn-thread">of {escape(plain(row.where.thread_id))}</span>'
        state = "" if reply else ' data-state="none"'
        texts = (
            f'class="nn-turn-number">{row.where.turn} {thread}',
            f'class="nn-said">{escape(said)}',
            f'class="nn-reply"{state}>{escape(reply or _state(row, self.is_live))}',
        )
        if is_live:
            inside = "".join([f"<span {text}</span>" for text in texts])
            turn = f'<button type="button" class="nn-turn">{inside}</button>'
            held = held and f'<button type="button" class="nn-why-button">{held}: why?</button>'
        else:
            turn = f'<div class="nn-turn">{"".join([f"<div {text}</div>" for text in texts])}</div>'
        more = " ".join([part for part in (held, escape(marks)) if part])
        marked = f'<p class="nn-turn-marks">{more}</p>' if more else ""
        return keyed(row.at, f"<li>{turn}{marked}</li>")

    def fields(self, at: int, *, decision: bool = False) -> dict[str, Any]:
        """Return the fields of a `Selection` for a row, or with `decision` for its first denial, else its first guide or stop."""
        row = self._rows[at]
        places = [place for word in (*_HELD.values(), _STOPPED) for place, held in row.held if held == word]
        first = places[0] if decision and places else None
        return {"thread_id": row.where.thread_id or None, "turn": row.where.turn, "decision": first}

    def chosen(self, fields: Mapping[str, Any]) -> int | None:
        """Return the index of the selected row, or None."""
        turn, thread = fields["turn"], fields["thread_id"]
        if turn is None:
            return None
        if thread is not None:
            row = self._by.get((thread, turn))
        else:
            row = next((row for row in reversed(self._rows) if row.where.turn == turn), None)
        return None if row is None else row.at

    def has_reply(self, thread_id: str) -> bool:
        last = (row for row in reversed(self._rows) if row.where.thread_id == thread_id)
        return any(row.done is not None for row in last)

    def newest(self, before: int | None = None, *, is_live: bool = True) -> list[dict[str, Any]]:
        """Return the entries before an index, or the last ones, oldest first."""
        stop = len(self._rows) if before is None else max(0, min(before, len(self._rows)))
        return [self.row(at, is_live=is_live) for at in range(max(0, stop - ROWS), stop)]

    def to_html(self) -> str:
        """Return the newest turns as HTML without scripts."""
        rows = self.newest(is_live=False)
        if not rows:
            return f'<p class="nn-empty">{NO_TURN}</p>'
        note = f'<p class="nn-note">The newest {len(rows)} of {len(self):,} turns.</p>' if len(self) > len(rows) else ""
        kind = f"nn-turns{' nn-several' if self.has_threads else ''}"
        return f'<ol class="{kind}">{"".join([row["html"] for row in rows])}</ol>{note}'

    def to_text(self) -> str:
        """Return the newest turns as plain text."""
        lines = []
        for row in self._rows[-ROWS:]:
            thread = f" of {plain(row.where.thread_id)}" if self.has_threads else ""
            marks = ", ".join([*_held(row), *_marks(row)])
            answer = _reply(row) or _state(row, self.is_live)
            lines.append(f"{row.where.turn}{thread}. {plain(row.said, TEXT_LENGTH)}")
            lines.append(f"   {answer}{f' [{marks}]' if marks else ''}")
        return "\n".join(lines) or "No turn yet."


def _reply(row: _Row) -> str:
    return "" if row.done is None else plain(row.done.text, REPLY_LENGTH)


def _state(row: _Row, is_live: bool) -> str:
    if row.done is None:
        return "answering …" if is_live else "no answer so far"
    if row.done.outcome == "success" and row.done.text:
        return ""
    return f"no answer: {plain(row.error or row.done.outcome, REPLY_LENGTH)}"


def _held(row: _Row) -> list[str]:
    numbers = Counter([word for _, word in row.held])
    held = [f"{numbers[word]} {word}" for word in _HELD.values() if word in numbers]
    return [*held, *([_STOPPED] if _STOPPED in numbers else [])]


def _marks(row: _Row) -> list[str]:
    marks = []
    if row.done is not None and row.done.outcome != "success":
        marks.append(plain(row.done.outcome))
    return [*marks, row.grade] if row.grade else marks
