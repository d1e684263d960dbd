"""The trends as HTML without scripts, and as plain text: picture, decisions, and table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from noetic_nb.markup import escape, heading
from noetic_nb.plots._scene.scene import Mark
from noetic_nb.plots._scene.svg import legend_html, to_html
from noetic_nb.plots._trends.trends_chart import ThreadChart
from noetic_nb.plots._trends.trends_marks import headline, mark_text
from noetic_nb.plots._trends.trends_panels import CELLS
from noetic_nb.runs._regulation.thread_signals import TurnSignals
from noetic_nb.widgets.base._table import table

EMPTY: Final = "No turn yet. Grades, costs and decisions appear here as they come."
# A longer list of decisions would fill the page.
LISTED: Final = 8
LIST_LENGTH: Final = 200
NO_DECISION: Final = "No decision to warn, change or stop."


def turns_table(
    keys: Sequence[str], rows: Iterable[Mapping[str, Any]], *, caption: str = "", is_live: bool = False
) -> str:
    """Return columns of turns as a table of the cells that `keys` name; on a page a turn can be chosen in it if `is_live`."""
    shown = [at for at, (key, *_) in enumerate(CELLS) if key in keys]
    names: list[str] = [CELLS[at][1] for at in shown]
    columns = [(name, "nn-text" if name == "Decisions" else "") for name in names]
    cells = [[escape(row["cells"][at]) for at in shown] for row in rows]
    if is_live:
        cells = [[f'<button type="button" data-turn="{turn}">{turn}</button>', *rest] for turn, *rest in cells]
    return table("", columns, cells, caption=caption, scroll="nn-scroll nn-tall")


def _decided(turns: Sequence[TurnSignals]) -> list[str]:
    return [mark_text(turn, mark).replace("->", "→") for turn in turns for mark in turn.marks]


def _decisions(turns: Sequence[TurnSignals]) -> str:
    found = _decided(turns)
    if not found:
        return f'<p class="nn-note">{NO_DECISION}</p>'
    is_open = " open" if len(found) <= LISTED else ""
    more = f"<li>And {len(found) - LIST_LENGTH} more.</li>" if len(found) > LIST_LENGTH else ""
    entries = "".join(f"<li>{escape(text)}</li>" for text in found[:LIST_LENGTH])
    return f'<details{is_open}><summary>Decisions: {len(found)}</summary><ul class="nn-list">{entries}{more}</ul></details>'


def static_html(
    empty: str, chart: ThreadChart | None, others: Sequence[str], over: Sequence[Mark] = (), more: Sequence[str] = ()
) -> str:
    """Return the pictures of one thread as HTML without scripts, with its table below; `empty` if there is none."""
    head = heading("Regulator trends")
    if chart is None or not chart.turns:
        return f'{head}<p class="nn-empty">{escape(empty)}</p>'
    scene = chart.scene(over)
    notes = (
        [f"Each column is {chart.size} turns: the least and the greatest of their values."] if chart.size > 1 else []
    )
    notes += [*([chart.about["note"]] if chart.about["note"] else []), *more]
    if others:
        notes.append(f"Other threads of this run: {', '.join(others[:10])}{'…' if len(others) > 10 else ''}")
    rows = turns_table(chart.about["cells"], chart.rows())
    return (
        f'{head}<p class="nn-sub">{escape(headline(chart.thread))}</p>{legend_html(scene)}{to_html(scene)}'
        + "".join(f'<p class="nn-note">{escape(note)}</p>' for note in notes)
        + _decisions(chart.turns)
        + f"<details{' open' if len(chart.rows()) <= 20 else ''}><summary>Table</summary>{rows}</details>"
    )


def static_text(empty: str, chart: ThreadChart | None) -> str:
    """Return one thread as plain text; `empty` if there is none."""
    if chart is None or not chart.turns:
        return f"Regulator trends. {empty}"
    lines = [f"Regulator trends. {headline(chart.thread)}", "  turn  quality       mean  tokens so far"]
    for row in chart.rows():
        turn, quality, mean, _, spent, *_ = row["cells"]
        lines.append(f"  {turn:>4}  {quality:>7}  {mean:>9}  {spent:>13}")
    lines += [chart.about["note"]] if chart.about["note"] else []
    decided = [mark_text(turn, mark) for turn in chart.turns for mark in turn.marks]
    return "\n".join([*lines, *decided[:LIST_LENGTH]])
