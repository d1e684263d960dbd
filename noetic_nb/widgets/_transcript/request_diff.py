"""The differences between the requests of two model calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from noetic_nb.widgets._transcript.request_rows import RequestRow

Change: TypeAlias = Literal["", "added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One row of the compared request, or one that only the other request has."""

    row: RequestRow
    change: Change = ""
    other: RequestRow | None = None
    """The same item in the other request: sent or absent there; None where it has no such item."""
    own: bool = True
    """Whether `row` is of the compared request; False for what only the other one sent."""


def request_diff(rows: Sequence[RequestRow], others: Sequence[RequestRow]) -> list[DiffRow]:
    """Return the rows of a request, each with its differences from another one, and the removed rows between them.

    An item is the same where it has the same id; without one, where origin, role and text are equal; and where only
    one text of the same layer, the system or a tool is left on both sides, it has changed. What was not sent in
    one of both counts as not there.

    Examples
    --------
    >>> from noetic_nb.widgets._transcript.request_rows import RequestRow
    >>> one, two = RequestRow("history", "user", "Hello", item_id="i1"), RequestRow("history", "user", "Bye", item_id="i2")
    >>> [(found.row.text, found.change) for found in request_diff([two], [one])]
    [('Bye', 'added'), ('Hello', 'removed')]
    """
    partners = _partners(rows, others)
    of_others = {other: at for at, other in partners.items()}
    found: list[DiffRow] = []
    begun = 0

    def gone(stop: int) -> Iterator[DiffRow]:
        for at in range(begun, stop):
            if at not in of_others and others[at].is_sent:
                yield DiffRow(others[at], "removed", None, own=False)

    for at, row in enumerate(rows):
        place = partners.get(at)
        if place is not None and place >= begun:
            found += gone(place)
            begun = place + 1
        other = None if place is None else others[place]
        found.append(DiffRow(row, _change(row, other), other))
    found += gone(len(others))
    return found


def _change(row: RequestRow, other: RequestRow | None) -> Change:
    was_sent = other is not None and other.is_sent
    if row.is_sent != was_sent:
        return "added" if row.is_sent else "removed"
    return "changed" if was_sent and other is not None and other.text != row.text else ""


def _partners(rows: Sequence[RequestRow], others: Sequence[RequestRow]) -> dict[int, int]:
    """Return which row of the other request is which of these, by their places."""
    partners: dict[int, int] = {}
    left, right = list(range(len(rows))), list(range(len(others)))
    for name in (_by_id, _by_text, _by_origin):
        mine, theirs = _places(left, rows, name), _places(right, others, name)
        for key, places in mine.items():
            found = theirs.get(key, [])
            if name is not _by_origin or len(places) == len(found) == 1:
                partners.update(zip(places, found, strict=False))
        taken = set(partners.values())
        left, right = [at for at in left if at not in partners], [at for at in right if at not in taken]
    return partners


def _places(
    places: Sequence[int], rows: Sequence[RequestRow], name: Callable[[RequestRow], Hashable]
) -> dict[Hashable, list[int]]:
    named: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at in places:
        key = name(rows[at])
        if key is not None:
            named[key].append(at)
    return named


def _by_id(row: RequestRow) -> Hashable:
    return None if row.item_id is None else (row.origin, row.layer, row.item_id)


def _by_text(row: RequestRow) -> Hashable:
    return row.origin, row.layer, row.role, row.text


def _by_origin(row: RequestRow) -> Hashable:
    # A layer writes its text anew at every call, under a new id; each item of a conversation is one for itself.
    return (row.origin, row.layer, row.tool) if row.origin in ("system", "tools", "layer", "framing") else None
