"""The lines of the ledger as a page gets them, and as the static form has them: drawn from the same texts."""

from __future__ import annotations

import re
from typing import Any, Final

from noetic_nb.events import ErrorRaised, SteeringDecided
from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import plain
from noetic_nb.widgets.ledger.decision_text import OUTCOMES
from noetic_nb.widgets.ledger.ledger_index import Entry, Filter, Fold, LedgerIndex, Line

__all__ = ["COLUMNS", "EMPTY", "LedgerPicture", "wire"]

EMPTY: Final = "No steering decision yet. Each evaluation of the rules appears here."
COLUMNS: Final = {
    "Turn": "nn-turn",
    "Decision": "nn-action",
    "Call": "nn-text nn-tool",
    "About": "nn-text nn-about",
    "Guidance": "nn-text nn-guidance",
    "Rules": "nn-text nn-rules",
    "ms": "nn-ms",
}
"""Names of the columns, and the class that each is laid out by."""

# A saved page stays light; all rows are in the table of the run.
LINES_SHOWN: Final = 200
FOLDED_SHOWN: Final = 20
# Where a long name may break, none of which is part of an escaped character.
_SIGNS: Final = re.compile(r"[_.:/-](?!$)")


def wire(line: Line, index: LedgerIndex) -> dict[str, Any]:
    """Return a line of an index as a page gets it: a row, or how many allows are folded."""
    if isinstance(line, Fold):
        return {"fold": line.count, "first": line.first, "last": line.last}
    event = line.event
    return {
        "at": line.at,
        "plain": line.is_plain,
        "action": line.action,
        "outcome": _outcome(event),
        "faulty": line.is_faulty,
        "enforced": not isinstance(event, SteeringDecided) or event.enforced,
        **index.texts(line),
        "ms": _ms(event),
        "go": {
            # As other views know it; one that cannot be shown as it is may not be JSON, and the numbers say enough.
            "thread_id": event.where.thread_id if plain(event.where.thread_id) == event.where.thread_id else None,
            "turn": event.where.turn,
            "call": line.call,
            "item": line.item,
            "decision": line.seq,
        },
    }


def _ms(event: SteeringDecided | ErrorRaised) -> str:
    return f"{event.duration_ms:,.1f}" if isinstance(event, SteeringDecided) else ""


def _outcome(event: SteeringDecided | ErrorRaised) -> str:
    if isinstance(event, ErrorRaised):
        return plain(event.error_kind)
    return "" if event.outcome is None else OUTCOMES.get(event.outcome) or plain(event.outcome)


class LedgerPicture:
    """The static forms of an index.

    Examples
    --------
    >>> LedgerPicture(LedgerIndex(), "").to_text()
    'Ledger. No steering decision yet. Each evaluation of the rules appears here.'
    """

    def __init__(self, index: LedgerIndex, note: str, empty: str = EMPTY) -> None:
        self.empty = empty
        self.index = index
        self.note = note

    def headline(self) -> str:
        """Return the number of decisions of each label, in one line."""
        total = len(self.index.entries)
        counts = ", ".join([f"{number:,} {name}" for name, number in sorted(self.index.counts("chip"))])
        return f"{total:,} decision{'' if total == 1 else 's'}: {counts}"

    def _newest(self) -> tuple[list[Line], int]:
        lines = self.index.lines(Filter())
        return lines[-LINES_SHOWN:][::-1], max(0, len(lines) - LINES_SHOWN)

    def to_html(self) -> str:
        """Return the table as HTML without scripts."""
        head = '<p class="nn-title">Ledger</p>'
        note = f'<p class="nn-note">{escape(self.note)}</p>' if self.note else ""
        if not self.index.entries:
            return f'{head}<p class="nn-empty">{escape(self.empty)}</p>{note}'
        lines, earlier = self._newest()
        body = "".join([self._fold(line) if isinstance(line, Fold) else _row(line, self.index) for line in lines])
        if earlier:
            note += f'<p class="nn-note">{earlier:,} earlier lines are in <code>to_frame()</code>.</p>'
        return f'{head}<p class="nn-sub">{escape(self.headline())}</p><div class="nn-scroll">{_table(body)}</div>{note}'

    def _fold(self, fold: Fold) -> str:
        shown = self.index.entries[max(fold.first, fold.last - FOLDED_SHOWN + 1) : fold.last + 1][::-1]
        rows = "".join([_row(entry, self.index) for entry in shown])
        more = fold.count - len(shown)
        rest = f'<p class="nn-note">and {more:,} more</p>' if more > 0 else ""
        inside = f"<details><summary>{fold.count:,} allowed</summary>{_table(rows)}{rest}</details>"
        return f'<tr class="nn-fold"><td colspan="{len(COLUMNS)}">{inside}</td></tr>'

    def to_text(self) -> str:
        """Return the table as plain text."""
        note = [self.note] if self.note else []
        if not self.index.entries:
            return "\n".join([f"Ledger. {self.empty}", *note])
        lines, earlier = self._newest()
        texts = [f"Ledger. {self.headline()}", *note]
        for line in lines:
            texts.append(f"  {line.count:,} allowed" if isinstance(line, Fold) else f"  {_line(line, self.index)}")
        if earlier:
            texts.append(f"  {earlier:,} earlier lines are in to_frame().")
        return "\n".join(texts)


def _line(entry: Entry, index: LedgerIndex) -> str:
    row = wire(entry, index)
    because = f" by {row['rules']}" if row["rules"] else ""
    guidance = f": {row['guidance']}" if row["guidance"] else ""
    outcome = f" ({row['outcome']})" if row["outcome"] else ""
    would = "" if row["enforced"] else " (not enforced)"
    faults = "".join([f" [{plain(rule_id)}: {plain(why)}]" for rule_id, why in entry.faults if rule_id])
    about = " ".join("".join([text for text, _ in row["about"]]).split())
    what = f"{row['tool']} {about}".strip()
    return f"turn {row['go']['turn']}  {row['action']:<5}{outcome}{would}  {what}{because}{guidance}{faults}"


def _table(body: str) -> str:
    names = "".join([f'<th scope="col">{name}</th>' for name in COLUMNS])
    return f'<table class="nn-table nn-ledger"><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>'


def _row(entry: Entry, index: LedgerIndex) -> str:
    row = wire(entry, index)
    cells = (
        str(row["go"]["turn"]),
        _decision(row),
        _SIGNS.sub(r"\g<0><wbr>", escape(row["tool"])),
        "".join([f"<mark>{escape(text)}</mark>" if found else escape(text) for text, found in row["about"]]),
        escape(row["guidance"]),
        escape(row["rules"]),
        row["ms"],
    )
    html = []
    for (name, kind), inside in zip(COLUMNS.items(), cells, strict=True):
        tag, scope = ("th", ' scope="row"') if name == "Turn" else ("td", "")
        html.append(f'<{tag}{scope} class="{kind}" data-name="{name}">{inside}</{tag}>')
    return f"<tr>{''.join(html)}</tr>"


def _decision(row: dict[str, Any]) -> str:
    badge = f'<span class="nn-badge" data-action="{escape(row["action"])}">{escape(row["action"])}</span>'
    faulty = ' data-faulty="true"' if row["faulty"] else ""
    outcome = f' <span class="nn-outcome"{faulty}>{escape(row["outcome"])}</span>' if row["outcome"] else ""
    return badge + outcome + ("" if row["enforced"] else ' <span class="nn-outcome">not enforced</span>')
