"""Adds labels to the events of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from noetic_nb._core.arguments import explained
from noetic_nb.clock import SYSTEM_CLOCK
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, ModelCalled, RunEvent
from noetic_nb.redact import redact_text
from noetic_nb.runs._events.event_kinds import places_of
from noetic_nb.runs._events.run_log import GrowingEvents, numbered
from noetic_nb.runs._labels import Label, LabelStore, Value, agreed_value, codebook_of, in_force, shown_to

if TYPE_CHECKING:
    import pandas

T = TypeVar("T", bound="LabelledEvents")

_COLUMNS: Final = {
    **dict.fromkeys(("run_id", "name", "value", "thread_id"), "object"),
    **dict.fromkeys(("turn", "call", "item"), "Int64"),
    "by": "object",
    "t_ms": "float64",
}


class LabelledEvents(GrowingEvents):
    """Events with labels beside them."""

    if TYPE_CHECKING:  # declared by Run
        meta: dict[str, Any]

    def __init__(self, run_id: str, events: list[RunEvent]) -> None:
        super().__init__(run_id, events)
        self._label_store = LabelStore(run_id)

    @explained(by="Name the rater: run.label('good', True, by='ann').")
    def label(
        self,
        name: str,
        value: Value | None,
        *,
        turn: int | None = None,
        call: int | ModelCalled | None = None,
        item: int | None = None,
        by: str,
        thread_id: str | None = None,
    ) -> None:
        """Label the run, or a part of it.

        The label is stored beside the run's file in ``<file>.labels.jsonl``, secrets replaced; for a run without a file it stays
        in memory until `save`. If a rater labels the same part twice under one name, the last label counts.

        Parameters
        ----------
        name : str
            Such as ``"verdict"``; must be in the codebook if there is one.
        value : str, bool, int, float or None
            None removes the label.
        turn, call, item : int, optional
            The part of the run: the number of a turn; the index of one of the agent's model calls (negative from the end), or its
            event; the position of an item in its thread's log. Leave all out to label the whole run.
        by : str
            The rater; ``"consensus"`` for an agreed label.
        thread_id : str, optional
            The thread of the turn or item, if the run has several threads.

        Raises
        ------
        NoeticConfigError
            ``INVALID_LABEL`` for an invalid name, value, rater or part; ``UNKNOWN_LABEL`` for a label outside the codebook;
            ``UNKNOWN_THREAD``.
        NoeticError
            ``storage_failed`` if the label cannot be written.

        References
        ----------
        .. [1] docs/behaviour/labels.md

        Examples
        --------
        >>> import noetic_nb as nn
        >>> run = nn.lab.datasets.airline_run(26)
        >>> run.label("verdict", "wrong", call=-1, by="ann")
        >>> run.labels[["name", "value", "turn", "call", "by"]].values.tolist()
        [['verdict', 'wrong', 4, 29, 'ann']]
        """
        self._label_store.add(self._checked_label(name, value, by, SYSTEM_CLOCK.now_ms(), thread_id, turn, call, item))

    @property
    def labels(self) -> pandas.DataFrame:
        """The labels of all raters, oldest first, as a new frame.

        Columns: ``run_id``, ``name``, ``value``, ``thread_id``, ``turn``, ``call``, ``item`` (each missing if the label covers
        more than that), ``by`` and ``t_ms`` (when the label was given, milliseconds since 1970).
        """
        return labels_frame([self])

    def _checked_label(
        self,
        name: str,
        value: Value | None,
        by: str,
        t_ms: float,
        thread_id: str | None,
        turn: int | None,
        call: int | ModelCalled | None,
        item: int | None,
    ) -> Label:
        for given, what in ((name, "name"), (by, "rater")):
            if not isinstance(given, str) or not given.strip():
                raise _invalid(
                    f"The {what} of a label is a text.", given, "For example: run.label('verdict', True, by='ann')."
                )
        if getattr(value, "ndim", None) == 0:
            value = value.item()  # type: ignore[union-attr]  # of numpy, as in a row of a table
        if not isinstance(value, str | bool | int | float | None) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise _invalid(
                "The value of a label is a text, a number, True or False.", value, "None takes a label back."
            )
        target = self._target(thread_id, turn, call, item)
        book = codebook_of(self.meta, self._label_store.path)
        if book is not None:
            parts = [part for part, given in (("item", item), ("call", call), ("turn", turn)) if given is not None]
            book.check(name, value, parts[0] if parts else "run")
        clean = redact_text(value) if isinstance(value, str) else value
        return Label(redact_text(name), clean, redact_text(by), t_ms, *target)

    def _target(
        self, thread_id: str | None, turn: int | None, call: int | ModelCalled | None, item: int | None
    ) -> tuple[str | None, int | None, int | None, int | None]:
        if turn is None and call is None and item is None:
            return (None,) * 4
        for given, what in ((turn, "turn"), (item, "item")):
            if given is not None and (type(given) is not int or given < 0):
                raise _invalid(f"{what} is a whole number from 0 on.", given, "Turns begin with 1, items with 0.")
        if call is not None:
            calls = list(agent_calls(self))
            places = dict(calls)
            number = next((place for place, event in calls if event is call), None)
            if type(call) is int:
                number = call if call >= 0 else calls[call][0] if -call <= len(calls) else None
            if number not in places:
                hint = f"The run has {len(calls)} model calls of the agent: name one by its place, from 0, or pass its event."
                raise _invalid("There is no such call.", call, hint)
            where = places[number].where
            if thread_id not in (None, where.thread_id) or turn not in (None, where.turn):
                hint = f"It is in turn {where.turn} of {where.thread_id!r}; the call alone is enough."
                raise _invalid("The call is in another turn.", (thread_id, turn), hint)
            thread_id, turn, call = where.thread_id, where.turn, number
        thread_id = self._one_thread(thread_id)
        if item is not None:
            of_item = self._turn_of_item(thread_id, item)
            if of_item is None or turn not in (None, of_item):
                hint = "Items are numbered from 0 in the log of their thread; to_frame('items') shows their positions."
                raise _invalid(
                    f"There is no such item in {'the thread' if turn is None else f'turn {turn}'}.", item, hint
                )
            turn = of_item
        turns = [each.where.turn for each in self.turns if each.where.thread_id == thread_id]
        if turn not in turns and item is None:
            raise _invalid(
                "There is no such turn.", turn, f"Thread {thread_id!r} has the turns {', '.join(map(str, turns))}."
            )
        return thread_id, turn, call, item

    def _turn_of_item(self, thread_id: str, item: int) -> int | None:
        here = [event for event in self.select(ItemsAppended) if event.where.thread_id == thread_id]
        depth = min([event.where.depth for event in here], default=0)
        found = None
        for event in here:
            if event.where.depth == depth and event.start <= item < event.start + len(event.items):
                found = event.where.turn
        return found

    def _one_thread(self, thread_id: str | None) -> str:
        if thread_id is None and len(self.threads) == 1:
            return self.threads[0]
        if thread_id not in self.threads:
            hint = f"The run has {', '.join(map(repr, self.threads)) or 'none yet'}."
            raise NoeticConfigError("UNKNOWN_THREAD", "Name one of the threads.", given=thread_id, hint=hint)
        return str(thread_id)


def agent_calls(run: GrowingEvents) -> Iterator[tuple[int, ModelCalled]]:
    """Yield the agent's model calls in a run, each with its index among all that the run has had."""
    events, numbers, kinds = numbered(run)
    place = 0
    for at in places_of(kinds, (ModelCalled,)):
        event = events[at]
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            yield place if numbers is None else numbers[1][at], event
            place += 1


def labels_in(run: GrowingEvents) -> list[Label]:
    store: LabelStore | None = getattr(run, "_label_store", None)
    return [] if store is None else in_force(store.every())


def with_labels_of(made: T, run: GrowingEvents) -> T:
    """Copy the whole-run labels of `run` to a run made from it; return the new run."""
    whole = [label for label in labels_in(run) if label.target == (None,) * 4]
    made._label_store = LabelStore(made.run_id, labels=whole)
    return made


def outcome_of(run: LabelledEvents, name: str) -> Any:
    """Return the named outcome of a run: an agreed label, otherwise a key of meta; None if the raters disagree."""
    labels = labels_in(run)
    if not any(label.name == name and label.target == (None,) * 4 for label in labels):
        return run.meta.get(name)
    value = agreed_value(labels, name)
    book = codebook_of(run.meta, run._label_store.path)
    if value is None or book is None or name not in book or not book[name].good:
        return value
    return value in book[name].good


def labels_frame(runs: Iterable[GrowingEvents]) -> pandas.DataFrame:
    """Return the labels of several runs as `Run.labels` does."""
    import pandas

    rows = [
        (run.run_id, label.name, label.value, *label.target, label.by, label.t_ms)
        for run in runs
        for label in labels_in(run)
    ]
    return pandas.DataFrame(
        {
            name: pandas.Series([row[at] for row in rows], dtype=dtype)
            for at, (name, dtype) in enumerate(_COLUMNS.items())
        }
    )


def visible_labels(run: LabelledEvents, by: str | None) -> list[Label]:
    """Return the labels that a view shows to a rater; labels of others appear once both raters have labelled all parts."""
    book = codebook_of(run.meta, run._label_store.path)

    def units(name: str) -> Iterable[tuple[Any, ...]] | None:
        part = None if book is None or name not in book else book[name].of
        if part == "run":
            return [(None,) * 4]
        if part == "turn":
            return [(turn.where.thread_id, turn.where.turn, None, None) for turn in run.turns]
        if part == "call":
            return [(event.where.thread_id, event.where.turn, place, None) for place, event in agent_calls(run)]
        return None

    return shown_to(labels_in(run), by, units)


def label_beside(run: LabelledEvents, path: str, key: str) -> None:
    """Store the labels of a run beside the file it was loaded from, unless they already have a file."""
    if run._label_store.path is None:
        run._label_store.keep_beside(path, key)


def _invalid(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_LABEL", what, given=given, hint=hint)
