"""The card of an object: its display as data, returned by ``_card`` of its class, or else made from the fields of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, TypeAlias

from noetic_nb.markup import plain_line

Cell: TypeAlias = Any  # text, or a number, which is right-aligned; None is an empty cell


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a card, in HTML only, read no further than shown; `count` if rows have no length, `empty` in place of none."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    count: int | None = None
    empty: str = "nothing yet"


@dataclass(frozen=True, slots=True)
class Card:
    """The display of an object: its class (`title`), its own name, and its facts, the most important first.

    A fact without a name is a sentence. `parts` are pairs of a relation and a card, or an object that has one; the
    table is shown in HTML only; `notes` are sentences below.
    """

    title: str
    name: str = ""
    facts: Sequence[tuple[str, Any]] = ()
    parts: Sequence[tuple[str, Any]] = ()
    table: Table | None = None
    notes: Sequence[str] = field(default=())


def card_of(value: object) -> Card:
    """Return the card of an object: itself, the one from its class, or its fields; if that fails, a card with the error."""
    if isinstance(value, Card):
        return value
    make = getattr(type(value), "_card", fields_card)
    try:
        card: Card = make(value)
    except Exception as exc:
        what = f"cannot be shown: {type(exc).__name__}: {plain_line(exc)}"
        return Card(type(value).__name__, facts=[("", what)])
    return card


def fields_card(value: Any) -> Card:
    """Return a card of a record's fields, without fields that have their default value."""
    kind = type(value)
    if hasattr(kind, "__struct_fields__"):
        names, defaults = kind.__struct_fields__, kind.__struct_defaults__
        known = dict(zip(names, (*[_field_defaults] * (len(names) - len(defaults)), *defaults), strict=True))
    elif is_dataclass(kind):
        known = {each.name: each.default for each in fields(kind) if each.repr}
    elif hasattr(kind, "_fields"):
        known = {name: kind._field_defaults.get(name, _field_defaults) for name in kind._fields}
    elif hasattr(kind, "model_fields"):
        # Settings have few fields, so their defaults are shown, too.
        return Card(kind.__name__, facts=[(name, getattr(value, name)) for name in kind.model_fields])
    else:
        return Card(kind.__name__)
    return Card(kind.__name__, facts=list(_changed(value, known)))


_field_defaults: Final = object()


def _changed(value: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, default in known.items():
        found = getattr(value, name)
        if found is not default and not (type(found) is type(default) and found == default):
            yield name, found
