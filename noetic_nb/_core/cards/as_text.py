"""A card as text: one line, or a tree of its parts.

Nested values are cut as a whole, and what stands under the name of a secret is hidden.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from noetic_nb._core.cards.card import Card, card_of
from noetic_nb.markup import NAME_LENGTH, plain_data, plain_line
from noetic_nb.redact import REDACTED, is_secret_name

# A line is taken in at a glance; of what stands in a list, as much as that.
MAX_LINE: Final = 400
MAX_LISTED: Final = 8
MAX_VALUE: Final = 80
MAX_WIDTH: Final = 120
MAX_FACTS: Final = 30
# A cell stays readable, and a notebook quick to open.
MAX_PARTS: Final = 40
MAX_DEPTH: Final = 8
MAX_CELL: Final = 160
_LARGE: Final = 10**15


def words(name: str, value: object, length: int, *, quoted: bool = False) -> str:
    """Return a value as short text; values under the name of a secret are hidden."""
    if is_secret_name(name) and isinstance(value, str | bytes | Mapping | list | tuple) and value:
        return REDACTED
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, str):
        text = plain_line(value, length)
        return repr(text) if quoted else text
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return repr(value) if quoted and -_LARGE < value < _LARGE else _number(value)
    if hasattr(type(value), "_card"):
        card = card_of(value)
        said = [(name, fact) for name, fact in card.facts if fact is not None]
        return plain_line(card.name or card_line(replace(card, facts=said)), 2 * length)
    if isinstance(value, Mapping | list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        return _several(value, 3 * length // 2)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return plain_line(value.__name__, length)
    return plain_line(_own(value), length)


def _own(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a class of the user's own
        return f"<{type(value).__name__}>"


def _number(value: float) -> str:
    if not -_LARGE < value < _LARGE:
        return plain_line(value, 24)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _several(value: Any, length: int) -> str:
    try:
        return plain_line(plain_data(value, length), length) if isinstance(value, Mapping) else _listed(value, length)
    except (TypeError, ValueError):  # keys that JSON lacks
        return f"{len(value):,} entries"


def _listed(value: Any, length: int) -> str:
    # What is nested deeper is data, which is cut as a whole.
    shown = [
        plain_data(each, length) if _is_data(each) else words("", each, length) for each in islice(value, MAX_LISTED)
    ]
    if len(value) > len(shown):
        shown.append(f"… {len(value) - len(shown):,} more")
    return plain_line(f"[{', '.join(shown)}]", length)


def _is_data(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) and not hasattr(type(value), "_card")


def _named(card: Card) -> str:
    return plain_line(card.name or (card_line(card) if card.facts or card.parts else card.title), MAX_CELL)


def card_line(card: Card) -> str:
    """Return a card as one line of some hundred characters."""
    shown = [repr(plain_line(card.name, NAME_LENGTH))] if card.name else []
    shown += _arguments(card.facts[:MAX_FACTS])
    groups: dict[str, list[Any]] = {}
    for label, part in card.parts:
        groups.setdefault(label, []).append(part)
    for label, group in groups.items():
        heads = [_named(card_of(part)) for part in group[:MAX_LISTED]]
        if len(group) > len(heads):
            heads.append(f"… {len(group) - len(heads):,} more")
        text = heads[0] if len(heads) == 1 else f"[{', '.join(heads)}]"
        shown.append(f"{label}={text}" if label else text)
    line = f"{plain_line(card.title)}({', '.join(shown)})"
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 2]}…)"


def _arguments(facts: Iterable[tuple[str, Any]]) -> list[str]:
    return [
        f"{name.replace(' ', '_')}={words(name, value, MAX_VALUE, quoted=True)}"
        if name
        else plain_line(value, MAX_CELL)
        for name, value in facts
    ]


def tree_of(card: Card) -> Iterator[tuple[int, bool, str, Card]]:
    """Yield the parts of a card: depth, whether it is the last of its kind, how it belongs, and its card."""
    left = MAX_PARTS

    def below(card: Card, depth: int, above: tuple[int, ...]) -> Iterator[tuple[int, bool, str, Card]]:
        nonlocal left
        for place, (label, part) in enumerate(card.parts):
            is_last = place == len(card.parts) - 1
            left -= 1
            if left < 0 or depth > MAX_DEPTH:
                yield depth, True, "", Card(f"… {len(card.parts) - place:,} more")
                return
            found = card_of(part)
            yield depth, is_last, label, found
            if id(part) not in above:  # a step inside itself
                yield from below(found, depth + 1, (*above, id(part)))

    return below(card, 0, ())


def card_text(card: Card) -> str:
    """Return a card as text: one line, or a tree of its parts."""
    if not card.parts:
        return card_line(card)
    lines = [_head(card)]
    bars: list[str] = []
    for depth, is_last, label, part in tree_of(card):
        del bars[depth:]
        lines.append(f"{''.join(bars)}{'└' if is_last else '├'} {f'{label}: ' if label else ''}{_head(part)}")
        bars.append("  " if is_last else "│ ")
    return "\n".join(lines)


def _head(card: Card) -> str:
    shown = [f"{plain_line(card.title)}{f' {plain_line(card.name)!r}' if card.name else ''}"]
    shown += _arguments(card.facts[:MAX_LISTED])
    return plain_line(", ".join(shown), MAX_WIDTH)
