"""The events of a run as its readers see them, and the protocol of a retention policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, overload

from noetic_nb._core.cards import Card, Table, card_line, card_of, with_card
from noetic_nb.events import RunEvent


class Keeper(Protocol):
    """A retention policy: keeps a run within its bound, and saves it as it grows."""

    @property
    def problem(self) -> str | None:
        """Why the newest events are not saved, if they should be."""
        ...

    def begin(self, events: Sequence[RunEvent], /) -> Sequence[bool] | None:
        """Read the events of the run; returns for each whether it stays, None for all."""
        ...

    def is_due(self, event: RunEvent, count: int, /) -> bool:
        """Tell whether `take` is to be called now that this event has come, with which there are so many."""
        ...

    def take(self) -> Sequence[bool] | None:
        """Read the events that were added since; must not raise. Returns the same as `begin`."""
        ...

    def close(self) -> None:
        """Save the remaining events, and close the file."""
        ...


@with_card(shown="as HTML")
class Events(Sequence[RunEvent]):
    """The events of a run, read-only; grows with the run. Equal to any sequence of the same events."""

    __slots__ = ("_find",)
    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(self, find: Callable[[], list[RunEvent]]) -> None:
        # Looked up each time: a bounded run has a new list once it has dropped turns.
        self._find = find

    @property
    def _items(self) -> list[RunEvent]:
        return self._find()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[RunEvent]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> RunEvent: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RunEvent, ...]: ...
    def __getitem__(self, index: int | slice) -> RunEvent | tuple[RunEvent, ...]:
        return tuple(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Events):
            return self._items == other._items
        if isinstance(other, list | tuple):
            return self._items == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return f"<{len(self)} events>"

    def _card(self) -> Card:
        rows = (
            (seq, event.kind, event.where.thread_id, event.where.turn, _said(event)) for seq, event in enumerate(self)
        )
        table = Table(("seq", "kind", "thread", "turn", "what"), rows, len(self), "no events yet")
        return Card("Events", facts=[("", f"{len(self):,} event{'' if len(self) == 1 else 's'}")], table=table)


def _said(event: RunEvent) -> str:
    """Return the fields of an event, apart from its place, in one line."""
    facts = [fact for fact in card_of(event).facts if fact[0] not in ("where", "t_ms")]
    return card_line(Card("", facts=facts))[1:-1]
