"""What a cell shows of an object it ends with: one line of text, a small tree, or the same as HTML.

A class says what there is to see in ``_card``, as data; how it is laid out, cut, cleaned of secrets and escaped stands here and
nowhere else. Nothing is computed before it is looked at, and nothing in it raises: whoever looks at an object in trouble
needs to see something.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, TypeVar, overload

from noetic_nb.markup import NAME_LENGTH, escape, plain_data, plain_line
from noetic_nb.redact import REDACTED, is_secret_name

__all__ = ["Card", "Table", "card_html", "card_line", "card_of", "card_text", "with_card"]

_Class = TypeVar("_Class")

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
MAX_ROWS: Final = 100
MAX_BYTES: Final = 190_000  # escaped text may be six times as long as what is read
_LARGE: Final = 10**15

Cell: TypeAlias = Any
"""Text, or a number, which stands on the right; None is an empty cell."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a card.

    Parameters
    ----------
    columns : sequence of str
        What stands above them.
    rows : iterable of sequences of Cell
        Read no further than is shown.
    count : int, optional
        How many there are, where `rows` cannot tell.
    empty : str
        What is said where there are none.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    count: int | None = None
    empty: str = "nothing yet"


@dataclass(frozen=True, slots=True)
class Card:
    """What there is to see of an object.

    Parameters
    ----------
    title : str
        What it is: its class, in most cases.
    name : str
        Which one it is, in its own words.
    facts : sequence of (str, object)
        Names and values, the most important first; a fact without a name is a sentence.
    parts : sequence of (str, object)
        What it is made of: how each belongs to it, and a card or an object that has one.
    table : Table, optional
        Rows, shown in HTML only.
    notes : sequence of str
        Sentences below.
    """

    title: str
    name: str = ""
    facts: Sequence[tuple[str, Any]] = ()
    parts: Sequence[tuple[str, Any]] = ()
    table: Table | None = None
    notes: Sequence[str] = field(default=())


def _failed(value: object, error: Exception) -> Card:
    return Card(type(value).__name__, facts=[("", f"cannot be shown: {type(error).__name__}: {plain_line(error)}")])


def card_of(value: object) -> Card:
    """Return the card of an object: itself, what its class says, or its fields; for one that fails, the fault.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> card_of(Where("t1", "e1", 1)).facts[0]
    ('thread_id', 't1')
    """
    if isinstance(value, Card):
        return value
    make = getattr(type(value), "_card", _fields_card)
    try:
        card: Card = make(value)
    except Exception as exc:
        return _failed(value, exc)
    return card


def _fields_card(value: Any) -> Card:
    """Return the fields of a record; those that are as they were left are left out."""
    kind = type(value)
    if is_dataclass(kind):
        known = {each.name: each.default for each in fields(kind) if each.repr}
    elif hasattr(kind, "_fields"):
        known = {name: kind._field_defaults.get(name, _field_defaults) for name in kind._fields}
    elif hasattr(kind, "model_fields"):
        # Settings are a few numbers, and what one was left at is news.
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


# -- text -------------------------------------------------------------------------------------------------------------


def _words(name: str, value: object, length: int, *, quoted: bool = False) -> str:
    """Return a value as short text; what stands under the name of a secret is hidden."""
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
        plain_data(each, length) if _is_data(each) else _words("", each, length) for each in islice(value, MAX_LISTED)
    ]
    if len(value) > len(shown):
        shown.append(f"… {len(value) - len(shown):,} more")
    return plain_line(f"[{', '.join(shown)}]", length)


def _is_data(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) and not hasattr(type(value), "_card")


def _named(card: Card) -> str:
    return plain_line(card.name or (card_line(card) if card.facts or card.parts else card.title), MAX_CELL)


def card_line(card: Card) -> str:
    """Return a card as one line of some hundred characters.

    Examples
    --------
    >>> card_line(Card("Layer", "notes", [("slot", 100)], [("hook", Card("recall")), ("hook", Card("store"))]))
    "Layer('notes', slot=100, hook=[recall, store])"
    """
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
        f"{name.replace(' ', '_')}={_words(name, value, MAX_VALUE, quoted=True)}"
        if name
        else plain_line(value, MAX_CELL)
        for name, value in facts
    ]


def _tree(card: Card) -> Iterator[tuple[int, bool, str, Card]]:
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
    """Return a card as text: one line, or a tree of what it is made of.

    Examples
    --------
    >>> print(card_text(Card("Layer", "notes", [("slot", 100)], [("hook", Card("recall")), ("hook", Card("store"))])))
    Layer 'notes', slot=100
    ├ hook: recall
    └ hook: store
    """
    if not card.parts:
        return card_line(card)
    lines = [_head(card)]
    bars: list[str] = []
    for depth, is_last, label, part in _tree(card):
        del bars[depth:]
        lines.append(f"{''.join(bars)}{'└' if is_last else '├'} {f'{label}: ' if label else ''}{_head(part)}")
        bars.append("  " if is_last else "│ ")
    return "\n".join(lines)


def _head(card: Card) -> str:
    shown = [f"{plain_line(card.title)}{f' {plain_line(card.name)!r}' if card.name else ''}"]
    shown += _arguments(card.facts[:MAX_LISTED])
    return plain_line(", ".join(shown), MAX_WIDTH)


# -- HTML -------------------------------------------------------------------------------------------------------------

# Prices in one line are no formula: these classes keep MathJax 2 and 3 off.
_PLAIN: Final = "tex2jax_ignore mathjax_ignore"
# Colours come from the theme of Jupyter or VS Code, and elsewhere from the page around: no ground of its own, and lines and
# shades that are half transparent are right on any.
_STYLE: Final = """
.nn-card{--nn-card-line:var(--jp-border-color2,#8886);color:var(--jp-content-font-color1,var(--vscode-foreground,inherit));
font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);max-width:100%;overflow-wrap:anywhere}
.nn-card p.nn-card-head{margin:0 0 4px;font-size:13px}
.nn-card p.nn-card-note{margin:4px 0 0;font-size:12px}
.nn-card .nn-card-name{unicode-bidi:isolate}
.nn-card .nn-card-dim{opacity:.72}
.nn-card .nn-card-wide{overflow-x:auto;max-width:100%}
.nn-card table{border-collapse:collapse;border:0;margin:2px 0;font-size:12px;color:inherit;table-layout:auto;
font-variant-numeric:tabular-nums;display:table}
.nn-card table :is(tr,th,td){background:transparent;color:inherit;border:0;vertical-align:top;max-width:none;white-space:normal}
.nn-card table :is(th,td){padding:2px 10px 2px 0;unicode-bidi:isolate}
.nn-card table.nn-card-facts tbody tr:nth-child(n){background:transparent}
.nn-card table.nn-card-facts th{font-weight:400;opacity:.72;white-space:nowrap}
.nn-card table.nn-card-rows :is(th,td){padding:3px 10px 3px 2px;border-bottom:1px solid var(--nn-card-line);min-width:2.2em;
max-width:36em;overflow-wrap:break-word}
.nn-card table.nn-card-rows th{font-weight:600;white-space:nowrap}
.nn-card.nn-card ul.nn-card-tree{list-style:none;margin:0;padding:0 0 0 14px;border-left:1px solid var(--nn-card-line)}
.nn-card.nn-card li{margin:2px 0}
""".replace("\n", "")


def card_html(card: Card) -> str:
    """Return a card as HTML without scripts, of at most some 200 kB, in which every text is escaped.

    Examples
    --------
    >>> card_html(Card("Layer", "<notes>", [("slot", 100)])).split("</style>")[1]
    '<p class="nn-card-head"><strong>Layer</strong> <span ...>&lt;notes&gt;</span></p><table ...><tbody><tr><th ...>slot</th>...'
    """
    more, rows = _rows(card.table)
    tree = "".join(_branches(card))
    notes = "".join(f'<p class="nn-card-note">{_text(note, 4 * MAX_CELL)}</p>' for note in card.notes[:MAX_FACTS])
    return (
        f'<div class="nn-card {_PLAIN}"><style>{_STYLE}</style><p class="nn-card-head">{_heading(card)}{more}</p>'
        f"{_facts(card)}{tree}{rows}{notes}</div>"
    )


def _text(value: object, length: int = MAX_CELL) -> str:
    return escape(plain_line(value, length))


def _heading(card: Card) -> str:
    name = f' <span class="nn-card-name">{_text(card.name, NAME_LENGTH)}</span>' if card.name else ""
    said = ", ".join(_text(value) for name, value in card.facts[:MAX_FACTS] if not name)
    return f"<strong>{_text(card.title, NAME_LENGTH)}</strong>{name}{f': {said}' if said else ''}"


def _facts(card: Card) -> str:
    rows = [
        f'<tr><th scope="row" style="text-align:left">{_text(name, NAME_LENGTH)}</th>'
        f'<td style="text-align:left">{escape(_words(name, value, 2 * MAX_CELL))}</td></tr>'
        for name, value in card.facts[:MAX_FACTS]
        if name
    ]
    return f'<table class="nn-card-facts"><tbody>{"".join(rows)}</tbody></table>' if rows else ""


def _branches(card: Card) -> Iterator[str]:
    depth = -1
    for at, _, label, part in _tree(card):
        # An item stays open for the list below it.
        yield '<ul class="nn-card-tree">' if at > depth else f"</li>{'</ul></li>' * (depth - at)}"
        depth = at
        said = [f'<span class="nn-card-dim">{_text(label, NAME_LENGTH)}</span>'] if label else []
        facts = ", ".join(
            f"{_text(name, NAME_LENGTH)}={escape(_words(name, value, MAX_CELL, quoted=True))}"
            for name, value in part.facts[:MAX_FACTS]
            if name
        )
        said += [_heading(part), f'<span class="nn-card-dim">{facts}</span>' if facts else ""]
        yield f"<li>{' '.join(filter(None, said))}"
    yield "</li></ul>" * (depth + 1)


def _rows(table: Table | None) -> tuple[str, str]:
    """Return what the heading says of rows that are left out, and the table itself."""
    if table is None:
        return "", ""
    shown: list[str] = []
    size = 0
    is_cut = False
    for row in table.rows:
        cells = "".join(map(_cell, row))
        size += len(cells.encode())
        if len(shown) >= MAX_ROWS or size > MAX_BYTES:
            is_cut = True
            break
        shown.append(f"<tr>{cells}</tr>")
    if not shown:
        return "", f'<p class="nn-card-note">{_text(table.empty)}</p>' if table.empty else ""
    # A column of numbers has its name above them.
    head = "".join(f'<th scope="col" style="text-align:left">{_text(name)}</th>' for name in table.columns)
    count = "" if table.count is None else f" of {table.count:,}"
    more = f", the first {len(shown)} of them below" if is_cut and table.count is None else ""
    more = f", the first {len(shown)}{count} below" if is_cut and table.count is not None else more
    rows = f'<table class="nn-card-rows"><thead><tr>{head}</tr></thead><tbody>{"".join(shown)}</tbody></table>'
    return more, f'<div class="nn-card-wide nn-scroll">{rows}</div>'


def _cell(value: Cell) -> str:
    if value is None:
        return '<td style="text-align:left"></td>'
    side = "right" if isinstance(value, int | float) else "left"
    return f'<td style="text-align:{side}">{escape(_words("", value, MAX_CELL))}</td>'


# -- on a class -------------------------------------------------------------------------------------------------------

Shown: TypeAlias = Literal["everywhere", "in cells", "as HTML"]


def _failure(value: object, error: Exception) -> str:
    return f"<{type(value).__name__}: cannot be shown, {type(error).__name__}>"


def _guarded(make: Callable[[Card], str]) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        try:
            return make(card_of(self))
        except Exception as exc:
            return _failure(self, exc)

    return shown


_line, _text_of = _guarded(card_line), _guarded(card_text)


def _html(self: Any) -> str:
    try:
        return card_html(card_of(self))
    except Exception as exc:
        return escape(_failure(self, exc))


def _pretty(self: Any, printer: Any, cycle: bool) -> None:
    # Within a list, one line each.
    is_alone = len(getattr(printer, "stack", ())) <= 1
    printer.text(_text_of(self) if is_alone and not cycle else _line(self))


@overload
def with_card(cls: type[_Class], /) -> type[_Class]: ...
@overload
def with_card(*, shown: Shown) -> Callable[[type[_Class]], type[_Class]]: ...
def with_card(cls: Any = None, /, *, shown: Shown = "everywhere") -> Any:
    """Let the objects of a class show themselves as cards, which their ``_card()`` returns; records without one, as their fields.

    A decorator and no base class: named tuples have no bases, and a dataclass writes its repr over an inherited one.

    Parameters
    ----------
    cls : type
        Any class; put it above ``@dataclass``.
    shown : {"everywhere", "in cells", "as HTML"}
        "everywhere" replaces the repr by one line. "in cells" keeps the whole repr, of records that are data; a cell that ends
        with one shows the card all the same. "as HTML" keeps the text of the class in a terminal, too.

    Examples
    --------
    >>> @with_card
    ... @dataclass
    ... class Order:
    ...     id: str
    ...     note: str
    >>> Order("A17", "x" * 1_000)
    Order(id='A17', note='xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxx…')
    """

    def decorate(cls: Any) -> Any:
        if not hasattr(cls, "_card"):
            cls._card = _fields_card
        cls._repr_html_ = _html
        if shown != "as HTML":
            cls._repr_pretty_ = _pretty
        if shown == "everywhere":
            cls.__repr__ = _line
        return cls

    return decorate if cls is None else decorate(cls)
