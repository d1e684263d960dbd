"""A card as HTML, without scripts and with every text escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noetic_nb._core.cards.as_text import MAX_CELL, MAX_FACTS, tree_of, words
from noetic_nb._core.cards.card import Card, Cell, Table
from noetic_nb.markup import NAME_LENGTH, escape, plain_line

# A notebook stays quick to open.
MAX_ROWS: Final = 100
MAX_BYTES: Final = 190_000  # escaped text may be six times as long as what is read

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
    """Return a card as HTML without scripts, of at most some 200 kB, in which every text is escaped."""
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
        # An item stays open for the list below it.
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
    """Return the note of the heading about omitted rows, and the table."""
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
    return f'<td style="text-align:{side}">{escape(words("", value, MAX_CELL))}</td>'
