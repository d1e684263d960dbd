"""Comparison of two runs, turn by turn, or of two lists of runs or evaluations, in pairs."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_text, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.lab._checks import check_run
from noetic_nb.lab._comparing.paired_runs import PairedComparison, compare_evaluations, compare_paired
from noetic_nb.lab._replaying.replay_report import drops_of, known_part, sent_tokens, tokens_of
from noetic_nb.lab._rule_scores.evaluation import Evaluation
from noetic_nb.lab._statistics.labels import By
from noetic_nb.redact import Redaction, redact, redact_text
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import plain_line
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._run import said_of
from noetic_nb.runs._turns import TurnSummary
from noetic_nb.steering import RuleBook

if TYPE_CHECKING:
    import pandas


T = TypeVar("T")

# The text is for reading; the frame has every row.
_MOST_LINES: Final = 20
_MOST_TEXT: Final = 80
# Equal turns are found by comparing every pair, which takes seconds beyond this limit; then order decides.
_MOST_ALIKE: Final = 1_000_000
# Texts scanned together; if they contain a sign of a secret, each is scanned by itself.
_AT_ONCE: Final = 500
_COLUMNS: Final = ("turn", "what", "a", "b")


@with_card(shown="as HTML")
@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes
    ----------
    a, b : Run
        The runs.
    rows : tuple of (int, str, object, object)
        Index of the pair of turns, the compared property, and both values; None if a side has no such value.
    """

    a: Run
    b: Run
    rows: tuple[tuple[int, str, Any, Any], ...] = field(repr=False)

    @property
    def differences(self) -> tuple[tuple[int, str, Any, Any], ...]:
        """The rows in which the runs differ."""
        return tuple([row for row in self.rows if row[2] != row[3]])

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per compared property: ``turn, what, a, b``.

        If a side is a replay that is only known up to some point, ``a_known`` or ``b_known`` follow: the value of the
        same row up to that point (counts of a turn are counted up to it), None after it.
        """
        import pandas

        frame = pandas.DataFrame(self.rows, columns=_COLUMNS, dtype="object").astype({"turn": "int64"})
        for name, run in (("a", self.a), ("b", self.b)):
            if run.known_until:
                frame[f"{name}_known"] = pandas.Series(self._known(name), dtype="object")
        return frame

    def _known(self, name: str) -> list[Any]:
        """Return one side's value of each row as far as that run is known."""
        run = self.a if name == "a" else self.b
        cut = known_part(run)
        side = 2 if name == "a" else 3
        known: dict[tuple[int, str], list[Any]] = {}
        for row in _rows(*((cut, self.b) if name == "a" else (self.a, cut))):
            if row[side] is not None:
                known.setdefault(row[:2], []).append(row[side])
        found = []
        for row in self.rows:
            values = known.get(row[:2]) if row[side] is not None else None
            value = values.pop(0) if values else None
            found.append(value if row[1] in _NUMBERS or value == row[side] else None)
        return found

    def _title(self) -> str:
        count = len(self.differences)
        what = "no difference" if not count else "1 difference" if count == 1 else f"{count} differences"
        said = [said_of(run.known_until) for run in (self.a, self.b) if run.known_until]
        text = f"{plain_line(self.a.run_id)} and {plain_line(self.b.run_id)}: {what} in {len(self.rows)} rows"
        return ". ".join([text, *map(plain_line, said)])

    def __repr__(self) -> str:
        lines = [f"Comparison of {self._title()}"]
        for turn, what, a, b in self.differences[:_MOST_LINES]:
            lines.append(f"  {turn:>3}  {what:<10}  {_cell(a)}  |  {_cell(b)}")
        if len(self.differences) > _MOST_LINES:
            lines.append(f"  … {len(self.differences) - _MOST_LINES} more")
        return "\n".join(lines)

    def _card(self) -> Card:
        # As text, because the values may be of any type.
        rows = ((turn, what, _cell(a), _cell(b)) for turn, what, a, b in self.differences)
        return Card("Comparison", facts=[("", self._title())], table=Table(_COLUMNS, rows, len(self.differences), ""))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return plain_line(f"{value:,.6g}" if isinstance(value, float) else value, _MOST_TEXT)


@overload
def compare(a: Run, b: Run) -> Comparison: ...
@overload
def compare(a: Evaluation, b: Evaluation, *, by: By = "task") -> PairedComparison: ...
@overload
def compare(
    a: Iterable[Run], b: Iterable[Run], *, metrics: Mapping[str, Callable[[Run], Any]] | None = None, by: By = "task"
) -> PairedComparison: ...
def compare(
    a: Any, b: Any, *, metrics: Mapping[str, Callable[[Run], Any]] | None = None, by: By = "task"
) -> Comparison | PairedComparison:
    """Compare two runs turn by turn, two lists of runs in pairs, or two rule books on recorded runs.

    Threads are matched by name, the rest by order; turns by the user's text, or by order if that differs. Secrets are
    redacted first, so that a run equals its file. See docs/behaviour/lab.md, "Comparison".

    Parameters
    ----------
    a, b : Run, iterable of Run, or Evaluation
        Any runs: recorded, loaded, imported or replayed; or the results of `lab.evaluate` for two rule books.
    metrics : mapping of str to callable, optional
        For lists: functions of a run that return a number, or None if unknown.
    by : str or callable
        For lists and evaluations: the grouping of runs for the intervals. ``"task"``; ``"run"`` if each run is its own
        task; or a function of a run. If the task is unknown there is no interval.

    Returns
    -------
    Comparison or PairedComparison
        ``.to_frame()`` has ``turn, what, a, b``, or ``metric, a, b, difference, low, high, n, p`` with the p-value of
        the sign test over tasks; if outcomes are known, ``pass^k`` follows.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN`` for a value that is not a run, ``UNPAIRED_RUNS`` for unrelated lists, ``INVALID_METRIC``.

    Examples
    --------
    >>> one = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
    >>> other = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Good day."}])
    >>> [row for row in compare(one, other).differences if row[1] == "reply"]
    [(1, 'reply', 'Hello.', 'Good day.')]
    """
    if isinstance(a, Evaluation) and isinstance(b, Evaluation):
        if metrics is not None:
            raise _no_metrics(metrics)
        return compare_evaluations(a, b, by=by)
    for side in (a, b):
        if isinstance(side, RuleBook):
            hint = "Write compare(lab.evaluate(a, runs), lab.evaluate(b, runs))."
            raise NoeticConfigError("INVALID_RUN", "To compare rule books, pass runs as well.", given=side, hint=hint)
    if not any(isinstance(side, Run | Evaluation) for side in (a, b)):
        return compare_paired(a, b, metrics=metrics, by=by)
    for run in (a, b):
        check_run(run, "Compare two runs, two lists of runs, or two evaluations.")
    if metrics is not None:
        raise _no_metrics(metrics)
    return Comparison(a, b, tuple(_rows(a, b)))


def _no_metrics(given: object) -> NoeticConfigError:
    hint = "Pass compare([a], [b], metrics=...)."
    return NoeticConfigError("INVALID_METRIC", "Metrics only apply to lists of runs.", given=given, hint=hint)


def _rows(a: Run, b: Run) -> Iterator[tuple[int, str, Any, Any]]:
    requests = _requests(a), _requests(b)
    for number, sides in enumerate(turn_pairs(a.turns, b.turns), 1):
        for what, one, other in turn_rows(sides, requests):
            yield number, what, one, other


def turn_rows(
    sides: tuple[TurnSummary | None, TurnSummary | None],
    requests: tuple[Mapping[int, RecordedRequest], Mapping[int, RecordedRequest]],
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the compared values of a pair of turns; `requests` are those of both runs, by the ``id`` of their view."""
    yield "prompt", *_both(sides, lambda turn: redact_text(turn.query))
    sent = [[] if turn is None else _sent_requests(turn, known) for turn, known in zip(sides, requests, strict=True)]
    listed = {name: [[] if turn is None else read(turn) for turn in sides] for name, read in _LISTED.items()}
    for what, (left, right) in {"request": sent, **listed}.items():
        for one, other in _aligned(left, right):
            yield what, one, other
    for name, number_of in _NUMBERS.items():
        yield name, *_both(sides, number_of)
    yield "reply", *_both(sides, lambda turn: redact_text(turn.text))
    yield "outcome", *_both(sides, lambda turn: turn.outcome)


def _both(sides: tuple[TurnSummary | None, TurnSummary | None], read: Callable[[TurnSummary], Any]) -> tuple[Any, Any]:
    left, right = sides
    return None if left is None else read(left), None if right is None else read(right)


_NUMBERS: Final[Mapping[str, Callable[[TurnSummary], Any]]] = {
    "tokens": tokens_of,
    "sent tokens": lambda turn: sum([sent_tokens(view) for view in turn.views]) if turn.views else None,
    "drops": lambda turn: sum([drops_of(view) for view in turn.views]) if turn.views else None,
    "cost": lambda turn: turn.cost,
    "model calls": lambda turn: len(turn.model_calls),
}


class TurnLike(Protocol):
    """The attributes of a turn that are needed to match it."""

    @property
    def where(self) -> Any: ...

    @property
    def query(self) -> str: ...


Turn = TypeVar("Turn", bound=TurnLike)


def turn_pairs(a: Iterable[Turn], b: Iterable[Turn]) -> Iterator[tuple[Turn | None, Turn | None]]:
    """Yield the matching turns, thread by thread; None if one side has no counterpart."""
    threads: list[dict[str, list[Turn]]] = [{}, {}]
    for place, turns in enumerate((a, b)):
        for turn in turns:
            threads[place].setdefault(turn.where.thread_id, []).append(turn)
    shown = _shown_queries([turn for by_thread in threads for turns in by_thread.values() for turn in turns])
    left, right = threads
    waiting = iter([name for name in right if name not in left])
    pairs = [(name, name if name in right else next(waiting, None)) for name in left]
    for one, other in (*pairs, *[(None, name) for name in waiting]):
        mine = left.get(one, []) if one is not None else []
        others = right.get(other, []) if other is not None else []
        yield from _aligned(mine, others, key=lambda turn: shown[id(turn)])


def _shown_queries(turns: Sequence[TurnLike]) -> dict[int, str]:
    """Return the users' texts, redacted, by the ``id`` of the turn; most hold no sign of a secret."""
    shown: dict[int, str] = {}
    for start in range(0, len(turns), _AT_ONCE):
        some = turns[start : start + _AT_ONCE]
        are_plain = Redaction().are_plain([turn.query for turn in some])
        shown.update({id(turn): turn.query if are_plain else redact_text(turn.query) for turn in some})
    return shown


def _aligned(
    a: Sequence[T], b: Sequence[T], *, key: Callable[[Any], Hashable] = lambda each: each
) -> Iterator[tuple[T | None, T | None]]:
    """Pair equal turns in order, and the turns between such pairs by order."""
    old, new = [key(one) for one in a], [key(one) for one in b]
    start = _alike(old, new)
    stop = _alike(old[start:][::-1], new[start:][::-1])
    yield from zip(a[:start], b[:start], strict=True)
    left, right = old[start : len(old) - stop], new[start : len(new) - stop]
    counts = Counter(right)
    if sum([counts[name] for name in left]) > _MOST_ALIKE:
        codes = [("replace", 0, len(left), 0, len(right))]
    else:
        codes = list(difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    for _, begin, end, first, last in codes:
        for at in range(max(end - begin, last - first)):
            one = a[start + begin + at] if begin + at < end else None
            yield one, b[start + first + at] if first + at < last else None
    yield from zip(a[len(old) - stop :], b[len(new) - stop :], strict=True)


def _alike(a: Sequence[Any], b: Sequence[Any]) -> int:
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def _requests(run: Run) -> dict[int, RecordedRequest]:
    return {id(request.view): request for request in requests_of(run).requests if request.view is not None}


def _sent_requests(turn: TurnSummary, known: Mapping[int, RecordedRequest]) -> list[str]:
    """Return the requests of a turn as pairs of size and contents."""
    found = []
    for view in turn.views:
        items = view.history_items + len(view.layer_items)
        text = f"{items} item{'s' * (items != 1)}, {sent_tokens(view)} tokens"
        request = known.get(id(view))
        if request is not None:
            # Without ids, which always differ between two runs.
            contents = [redact_text(request.instructions or "")]
            for item in [sent.item for sent in request.items]:
                parts = () if item is None else (item["type"], str(item.get("role")), redact_text(item_text(item)))
                contents.append("\0".join(parts) or "?")
            text = f"{text}, {hashlib.sha256(repr(contents).encode()).hexdigest()[:8]}"
        found.append(text)
    return found


def _decisions(turn: TurnSummary) -> list[str]:
    found = []
    for event in turn.steering:
        rules = f" by {', '.join(event.rule_ids)}" if event.rule_ids else ""
        name = "response" if event.tool_name is None else redact_text(event.tool_name)
        found.append(f"{event.action} {name}{rules}")
    return found


def _calls(turn: TurnSummary) -> list[str]:
    found = []
    for event in turn.tool_calls:
        given = redact(thaw(event.args or {}))
        try:
            args = compact_json(given)
        except ValueError:  # a number that JSON lacks
            args = repr(given)
        found.append(f"{redact_text(event.name)}({args}) {event.status}")
    return found


def _regulated(turn: TurnSummary) -> list[str]:
    found = []
    for event in turn.decisions:
        reason = event.decision.get("reason")
        kind = reason.get("kind") if isinstance(reason, Mapping) else None
        found.append(f"{event.at}: {event.decision.get('kind')}{'' if kind is None else f' ({kind})'}")
    return found


_LISTED: Final[Mapping[str, Callable[[TurnSummary], list[str]]]] = {
    "decision": _decisions,
    "tool call": _calls,
    "tool result": lambda turn: [redact_text(event.output) for event in turn.tool_calls],
    "regulator": _regulated,
}
