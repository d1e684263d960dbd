"""A card as text, one line or a tree, and as HTML without scripts: escaped, cut, and without secrets."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from noetic_nb._core.cards.card import Card, Cell, Table, card_of
from noetic_nb.markup import NAME_LENGTH, escape, plain_data, plain_line
from noetic_nb.redact import REDACTED, is_secret_name

# Limits that keep a line readable at a glance.
MAX_LINE: Final = 400
MAX_LISTED: Final = 8
MAX_VALUE: Final = 80
MAX_WIDTH: Final = 120
MAX_FACTS: Final = 30
# Limits that keep a cell readable, and a notebook fast to open.
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
    except Exception:  # a user's class
        return f"<{type(value).__name__}>"


def _number(value: float) -> str:
    if not -_LARGE < value < _LARGE:
        return plain_line(value, 24)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _several(value: Any, length: int) -> str:
    try:
        return plain_line(plain_data(value, length), length) if isinstance(value, Mapping) else _listed(value, length)
    except (TypeError, ValueError):  # keys that JSON does not allow
        return f"{len(value):,} entries"


def _listed(value: Any, length: int) -> str:
    # Deeper nesting is data, which is cut as a whole.
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
    """Return a card as one line of up to a few hundred characters."""
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
    """Yield the parts of a card: depth, whether it is the last sibling, its relation, and its card."""
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


MAX_ROWS: Final = 100
MAX_BYTES: Final = 190_000  # escaping can make text six times as long

# Dollar amounts in one line are not a formula: these classes turn off MathJax 2 and 3.
_PLAIN: Final = "tex2jax_ignore mathjax_ignore"
# Colours come from the theme of Jupyter or VS Code, or else from the page: no own background, and half-transparent
# lines and shades, which fit any background.
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
.nn-card table :is(th,td){padding:2px 10px 2px 0;unicode-bidi:plaintext}
.nn-card table.nn-card-facts tbody tr:nth-child(n){background:transparent}
.nn-card table.nn-card-facts th{font-weight:400;opacity:.72;white-space:nowrap}
.nn-card table.nn-card-rows :is(th,td){padding:3px 10px 3px 2px;border-bottom:1px solid var(--nn-card-line);min-width:2.2em;
max-width:36em;overflow-wrap:break-word}
.nn-card table.nn-card-rows th{font-weight:600;white-space:nowrap}
.nn-card.nn-card ul.nn-card-tree{list-style:none;margin:0;padding:0 0 0 14px;border-left:1px solid var(--nn-card-line)}
.nn-card.nn-card li{margin:2px 0}
""".replace("\n", "")


def card_html(card: Card) -> str:
    """Return a card as HTML without scripts, at most about 200 kB, with every text escaped."""
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
        f'<td style="text-align:left">{escape(words(name, value, 2 * MAX_CELL))}</td></tr>'
        for name, value in card.facts[:MAX_FACTS]
        if name
    ]
    return f'<table class="nn-card-facts"><tbody>{"".join(rows)}</tbody></table>' if rows else ""


def _branches(card: Card) -> Iterator[str]:
    depth = -1
    for at, _, label, part in tree_of(card):
        yield '<ul class="nn-card-tree">' if at > depth else f"</li>{'</ul></li>' * (depth - at)}"
        depth = at
        said = [f'<span class="nn-card-dim">{_text(label, NAME_LENGTH)}</span>'] if label else []
        facts = ", ".join(
            f"{_text(name, NAME_LENGTH)}={escape(words(name, value, MAX_CELL, quoted=True))}"
            for name, value in part.facts[:MAX_FACTS]
            if name
        )
        said += [_heading(part), f'<span class="nn-card-dim">{facts}</span>' if facts else ""]
        yield f"<li>{' '.join(filter(None, said))}"
    yield "</li></ul>" * (depth + 1)


def _rows(table: Table | None) -> tuple[str, str]:
    """Return the heading's note about omitted rows, and the table."""
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
    # A column of numbers has its heading above them.
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
    return f'<td style="text-align:{side}">{escape(words("", value, MAX_CELL))}</td>'
