"""What steering decided, as a table: the live view of the ledger.

Every evaluation is a row, allowed ones too. The newest are on top, because that is where one looks while an agent runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import traitlets

from noetic_nb.events import RunEvent, SteeringDecided
from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain, plain_data
from noetic_nb.widgets.base.assets import script, style
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.base.selection import Selection

__all__ = ["Ledger", "LedgerReading"]

EMPTY: Final = "No steering decision yet. Each evaluation of the rules appears here."
# A page stays quick with some hundred rows; all are in `run.to_frame("ledger")`.
ROWS_SHOWN: Final = 200
ARGS_LENGTH: Final = 200
COLUMNS: Final = {
    "Turn": "nn-turn",
    "Where": "nn-text nn-where",
    "Tool": "nn-text nn-tool",
    "Arguments": "nn-text",
    "Action": "nn-action",
    "Guidance": "nn-text",
    "Rules": "nn-text nn-rules",
}
"""Names of the columns, and the class that each is laid out by."""


class LedgerReading(Reading):
    """The decisions of a run as the page needs them: the newest `ROWS_SHOWN`, and how many there were.

    Examples
    --------
    >>> LedgerReading().to_text()
    'Ledger. No steering decision yet. Each evaluation of the rules appears here.'
    """

    def __init__(self, moment: Moment = EVERYTHING) -> None:
        self.moment = moment
        # Everything read so far, grown in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "columns": list(COLUMNS),
            "classes": list(COLUMNS.values()),
            "most": ROWS_SHOWN,
            "total": 0,
            "counts": {},
            "rows": [],
        }

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about a new decision."""
        if not isinstance(event, SteeringDecided) or not self.moment.shows(event.where):
            return None
        row = [
            str(event.where.turn),
            plain(event.hook.replace("_", " ")),
            "" if event.tool_name is None else plain(event.tool_name),
            _arguments(event.args),
            plain(event.action),
            "" if event.guidance is None else plain(event.guidance, TEXT_LENGTH),
            plain(", ".join(plain(rule_id) for rule_id in event.rule_ids), TEXT_LENGTH),
        ]
        data = self.snapshot
        data["rows"].append(row)
        del data["rows"][:-ROWS_SHOWN]
        data["total"] += 1
        data["counts"][row[4]] = data["counts"].get(row[4], 0) + 1
        return {"type": "row", "total": data["total"], "row": row}

    def headline(self) -> str:
        """Return the decisions by action in one line."""
        counts = ", ".join(f"{number} {action}" for action, number in sorted(self.snapshot["counts"].items()))
        total = self.snapshot["total"]
        return f"{total} decision{'' if total == 1 else 's'}: {counts}"

    def to_html(self) -> str:
        """Return the table as HTML without scripts."""
        head = '<p class="nn-title">Ledger</p>'
        data = self.snapshot
        if not data["rows"]:
            return f'{head}<p class="nn-empty">{EMPTY}</p>'
        names = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
        body = "".join(f"<tr>{_cells(row)}</tr>" for row in reversed(data["rows"]))
        earlier = data["total"] - len(data["rows"])
        note = f'<p class="nn-note">{earlier} earlier decisions are in run.to_frame("ledger").</p>' if earlier else ""
        return (
            f'{head}<p class="nn-sub">{escape(self.headline())}</p><div class="nn-scroll"><table class="nn-table nn-ledger">'
            f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>{note}"
        )

    def to_text(self) -> str:
        """Return the table as plain text."""
        if not self.snapshot["rows"]:
            return f"Ledger. {EMPTY}"
        lines = [f"Ledger. {self.headline()}"]
        for turn, hook, tool, args, action, guidance, rules in reversed(self.snapshot["rows"]):
            what = f"{tool} {args}".strip() or hook
            because = "".join([f" by {rules}" if rules else "", f": {guidance}" if guidance else ""])
            lines.append(f"  turn {turn}  {action:<5}  {what}{because}")
        return "\n".join(lines)


def _cells(row: list[str]) -> str:
    cells = []
    for (name, kind), text in zip(COLUMNS.items(), row, strict=True):
        tag, scope = ("th", ' scope="row"') if name == "Turn" else ("td", "")
        action = f' data-action="{escape(text)}"' if name == "Action" else ""
        cells.append(f'<{tag}{scope} class="{kind}" data-name="{name}"{action}>{escape(text)}</{tag}>')
    return "".join(cells)


def _arguments(args: Mapping[str, Any] | None) -> str:
    return "" if args is None else plain_data(args, ARGS_LENGTH)


class Ledger(RunView):
    """Show what steering decided, newest first.

    Parameters
    ----------
    run : Run or object with a ``run``
        A run that grows, or one that was loaded or replayed.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, 1 for the first of a thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        What someone points at, shared with other views.

    Attributes
    ----------
    only : str
        Show only this action, such as ``"deny"``; empty for all.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` where `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with Ledger(Run()) as view:
    ...     view
    Ledger. No steering decision yet. Each evaluation of the rules appears here.
    """

    table = "ledger"
    only = traitlets.Unicode("").tag(sync=True)
    _esm = script("ledger/ledger")
    _css = style("ledger/ledger")

    def __init__(
        self,
        run: Any,
        *,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        super().__init__(run, LedgerReading(moment), moment=moment, selection=selection)
