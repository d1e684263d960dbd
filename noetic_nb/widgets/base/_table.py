"""Tables of static forms as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noetic_nb.markup import escape


def table(
    kind: str,
    columns: Iterable[str | tuple[str, str]],
    rows: Iterable[str | Sequence[str]],
    *,
    caption: str = "",
    scroll: str = "nn-scroll",
) -> str:
    """Return a table in a part that scrolls by itself.

    A column is a name, or a name and the class of its cells. A row is HTML, or the HTML of its cells, of which the first names
    it.

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
    above = f'<caption class="nn-hidden">{escape(caption)}</caption>' if caption else ""
    inside = f"{above}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    name = f"nn-table {kind}".strip()
    return f'<div class="{scroll}"><table class="{name}">{inside}</table></div>'


def _row(cells: Sequence[str], classes: Sequence[str]) -> str:
    first, *others = zip(cells, classes, strict=True)
    rest = "".join([f"<td{look}>{cell}</td>" for cell, look in others])
    return f'<tr><th scope="row"{first[1]}>{first[0]}</th>{rest}</tr>'
