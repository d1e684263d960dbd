"""Lists and tables as HTML, for static forms and for scripts that patch them on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from noetic_nb.markup import escape


def keyed(key: object, html: str, **more: Any) -> dict[str, Any]:
    """Return one list element for a page, which replaces its element with the same key.

    Examples
    --------
    >>> keyed("r3", "<li>42</li>", at=3)
    {'key': 'r3', 'html': '<li>42</li>', 'at': 3}
    """
    return {"key": key, "html": html, **more}


def named_row(columns: Mapping[str, str], cells: Iterable[str]) -> str:
    """Return a row of HTML cells, each with the name and class of its column; the first cell is the row header.

    Examples
    --------
    >>> named_row({"Turn": "nn-turn"}, ["3"])
    '<tr><th scope="row" class="nn-turn" data-name="Turn">3</th></tr>'
    """
    html = [
        f'class="{look}" data-name="{name}">{cell}' for (name, look), cell in zip(columns.items(), cells, strict=True)
    ]
    rest = "".join([f"<td {cell}</td>" for cell in html[1:]])
    return f'<tr><th scope="row" {html[0]}</th>{rest}</tr>'


def table(
    kind: str,
    columns: Iterable[str | tuple[str, str]],
    rows: Iterable[str | Sequence[str]],
    *,
    caption: str = "",
    scroll: str = "nn-scroll",
) -> str:
    """Return a table in a scrollable region, focusable by keyboard if it has a caption.

    A column is a name, or a name and the class of its cells. A row is HTML, or its cells as HTML, of which the first is
    the row header.

    Examples
    --------
    >>> table("nn-sums", ["Name", ("Value", "nn-text")], [["a", "1"]]).partition("<tbody>")[2].partition("</tbody>")[0]
    '<tr><th scope="row">a</th><td class="nn-text">1</td></tr>'
    """
    looks = [(each, "") if isinstance(each, str) else each for each in columns]
    classes = [f' class="{look}"' if look else "" for _, look in looks]
    heads = "".join(
        [f'<th scope="col"{look}>{escape(name)}</th>' for (name, _), look in zip(looks, classes, strict=True)]
    )
    body = "".join([row if isinstance(row, str) else _row(row, classes) for row in rows])
    region = f' tabindex="0" role="region" aria-label="{escape(caption)}"' if caption else ""
    inside = f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    name = f"nn-table {kind}".strip()
    return f'<div class="{scroll}"{region}><table class="{name}">{inside}</table></div>'


def _row(cells: Sequence[str], classes: Sequence[str]) -> str:
    first, *others = zip(cells, classes, strict=True)
    rest = "".join([f"<td{look}>{cell}</td>" for cell, look in others])
    return f'<tr><th scope="row"{first[1]}>{first[0]}</th>{rest}</tr>'
