"""A run as a static HTML table of its turns: no script, no colours of its own, every text escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetic_nb.markup import escape
from noetic_nb.redact import redact_text
from noetic_nb.runs.turns import TurnSummary

if TYPE_CHECKING:
    from noetic_nb.runs.run import Run

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
    said = (_short(turn.query), _short(turn.text))
    return (turn.where.thread_id, turn.where.turn, *said, outcome, *tokens, len(turn.tool_calls), quality)


def turns_table(run: Run) -> str:
    """Return a table with one row per turn, at most 100 of them.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> turns_table(Run("<empty>"))
    '<table><caption>Run &lt;empty&gt;: no turns yet</caption></table>'
    """
    turns = run.turns
    name = escape(run.run_id)
    if not turns:
        return f"<table><caption>Run {name}: no turns yet</caption></table>"
    head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    rows = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in _cells(turn)) + "</tr>"
        for turn in turns[:_MOST_ROWS]
    )
    left = len(turns) - _MOST_ROWS
    more = f", the first {_MOST_ROWS} of {len(turns)}" if left > 0 else ""
    return (
        f"<table><caption>Run {name}: {len(run.events)} events, {len(turns)} turns{more}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
