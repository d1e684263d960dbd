"""Classes whose objects display themselves as cards, in a terminal and in a cell; nothing here raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, overload

from noetic_nb._core.cards.card import Card, card_of, fields_card

_Class = TypeVar("_Class")

Shown: TypeAlias = Literal["everywhere", "in cells", "as HTML"]


def _failure(value: object, error: Exception) -> str:
    return f"<{type(value).__name__}: cannot be shown, {type(error).__name__}>"


# The layout module is imported on first display, because every import creates classes.
def _line(self: Any) -> str:
    from noetic_nb._core.cards.shown_forms import card_line

    return _guarded(card_line, self)


def _text_of(self: Any) -> str:
    from noetic_nb._core.cards.shown_forms import card_text

    return _guarded(card_text, self)


def _guarded(make: Callable[[Card], str], self: Any) -> str:
    try:
        return make(card_of(self))
    except Exception as exc:
        return _failure(self, exc)


def _html(self: Any) -> str:
    from noetic_nb._core.cards.shown_forms import card_html
    from noetic_nb.markup import escape

    try:
        return card_html(card_of(self))
    except Exception as exc:
        return escape(_failure(self, exc))


def _pretty(self: Any, printer: Any, cycle: bool) -> None:
    is_alone = len(getattr(printer, "stack", ())) <= 1  # within a list, one line each
    printer.text(_text_of(self) if is_alone and not cycle else _line(self))


def _rich(self: Any) -> Any:
    from rich.text import Text  # only called by rich

    return Text(_text_of(self))


def _no_fields(self: Any) -> None:
    """Yield no fields to rich: inside lists it then shows the repr."""


@overload
def with_card(cls: type[_Class], /) -> type[_Class]: ...
@overload
def with_card(*, shown: Shown) -> Callable[[type[_Class]], type[_Class]]: ...
def with_card(cls: Any = None, /, *, shown: Shown = "everywhere") -> Any:
    """Let objects of a class display themselves as cards: those of ``_card()``, or else the fields of a record.

    A decorator, placed above ``@dataclass``, rather than a base class: named tuples have no bases, and a dataclass overwrites
    an inherited repr. Shown "everywhere", the card replaces the repr by one line, also in `rich.print`. "in cells" keeps the
    whole repr of data records except at the end of a cell; "as HTML" also keeps the text form at the end of a cell.
    """

    def decorate(cls: Any) -> Any:
        if not hasattr(cls, "_card"):
            cls._card = fields_card
        cls._repr_html_ = _html
        if shown != "as HTML":
            cls._repr_pretty_ = _pretty
        if shown == "everywhere":
            cls.__repr__ = _line
            # `rich.print` would otherwise show all fields, however many and however secret.
            cls.__rich__, cls.__rich_repr__ = _rich, _no_fields
        return cls

    return decorate if cls is None else decorate(cls)
