"""Classes whose objects show themselves as cards, in a terminal and in a cell; nothing in it raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, overload

from noetic_nb._core.cards.card import Card, card_of, fields_card

_Class = TypeVar("_Class")

Shown: TypeAlias = Literal["everywhere", "in cells", "as HTML"]


def _failure(value: object, error: Exception) -> str:
    return f"<{type(value).__name__}: cannot be shown, {type(error).__name__}>"


# How cards are laid out is read where one is first looked at: classes are made by every import.
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
    from rich.text import Text  # whoever asks has it

    return Text(_text_of(self))


def _no_fields(self: Any) -> None:
    """Say that there are no fields to go through: inside of lists the repr is shown."""


@overload
def with_card(cls: type[_Class], /) -> type[_Class]: ...
@overload
def with_card(*, shown: Shown) -> Callable[[type[_Class]], type[_Class]]: ...
def with_card(cls: Any = None, /, *, shown: Shown = "everywhere") -> Any:
    """Let the objects of a class show themselves as cards: those of their ``_card()``, or the fields of records without one.

    A decorator, put above ``@dataclass``, and no base class: named tuples have no bases, and a dataclass writes its repr over
    an inherited one. Shown "everywhere", the card replaces the repr by one line, in `rich.print` too. "in cells" keeps the
    whole repr, of records that are data, for all but the end of a cell; "as HTML" keeps the text of a terminal, too.
    """

    def decorate(cls: Any) -> Any:
        if not hasattr(cls, "_card"):
            cls._card = fields_card
        cls._repr_html_ = _html
        if shown != "as HTML":
            cls._repr_pretty_ = _pretty
        if shown == "everywhere":
            cls.__repr__ = _line
            # `rich.print` would go through the fields, however many and however secret.
            cls.__rich__, cls.__rich_repr__ = _rich, _no_fields
        return cls

    return decorate if cls is None else decorate(cls)
