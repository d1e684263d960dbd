"""A run as a static HTML table of its turns: no script, no colours of its own, every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetic_nb.markup import escape
from noetic_nb.redact import redact_text
from noetic_nb.runs.turns import TurnSummary

__all__ = ["turns_table"]

# A notebook page stays quick to open, and a cell stays readable.
_MOST_ROWS: Final = 100
_MOST_TEXT: Final = 120
_HEADINGS: Final = ("thread", "turn", "user", "reply", "outcome", "tokens in", "tokens out", "tools", "quality")


def _short(text: str) -> str:
    # Redacted before it is cut: half a credential no longer looks like one.
    line = " ".join(redact_text(text).split())
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"


def _cells(turn: TurnSummary) -> tuple[object, ...]:
    outcome: str = turn.outcome or "running"
    if turn.stopped is not None:
        reason = turn.stopped.get("reason")
        kind = reason.get("kind") if isinstance(reason, dict) else None
        outcome = f"stopped: {kind or turn.stopped.get('kind', 'unknown')}"
    quality = f"{turn.qualities[-1]:.2f}" if turn.qualities else ""
    tokens = (f"{turn.input_tokens:,}", f"{turn.output_tokens:,}")
    texts = (_short(turn.query), _short(turn.text))
    return (redact_text(turn.where.thread_id), turn.where.turn, *texts, outcome, *tokens, len(turn.tool_calls), quality)


def turns_table(run_id: str, turns: Sequence[TurnSummary]) -> str:
    """Return a table with one row per turn, at most 100 of them.

    Examples
    --------
    >>> turns_table("<empty>", ())
    '<table><caption>Run &lt;empty&gt;: no turns yet</caption></table>'
    """
    name = escape(redact_text(run_id))
    if not turns:
        return f"<table><caption>Run {name}: no turns yet</caption></table>"
    head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    rows = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in _cells(turn)) + "</tr>"
        for turn in turns[:_MOST_ROWS]
    )
    count = "1 turn" if len(turns) == 1 else f"{len(turns)} turns"
    more = f", the first {_MOST_ROWS} of them below" if len(turns) > _MOST_ROWS else ""
    return (
        f"<table><caption>Run {name}: {count}{more}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
