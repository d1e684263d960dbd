"""The live view of the ledger: steering decisions as a table.

Initially, consecutive allows are folded to one line, and everything else is shown. The kernel searches and filters all
decisions, and a page gets one page of them at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import traitlets

from noetic_nb.items._json_text import compact_json
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._recorded_origins import RunOrigins
from noetic_nb.runs._run_source import RunLike, run_of
from noetic_nb.widgets._ledger.ledger_reading import LedgerReading
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import Moment, Selection


class Ledger(RunView):
    """Show the steering decisions, newest first.

    Denials, guidance, questions and faults are rows; consecutive allows share one line that can be opened. The page
    searches and filters all decisions, and shows the details of the chosen one.

    Parameters
    ----------
    run : Run or object with a ``run``
        A growing run, or one that was loaded or replayed.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared with other views: choosing a row selects its call, its item in the log, and its decision.

    Attributes
    ----------
    only : str
        Show only this action, such as ``"deny"``; empty for all.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
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
    scripts = ("ledger/ledger",)

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
        source = run_of(run)
        origins, note = RunOrigins(source).at, _skipped(source)
        reading = LedgerReading(moment, origins=origins, rule_texts=lambda: _rule_texts(source), note=note)
        super().__init__(run, reading, moment=moment, selection=selection)


def _rule_texts(run: RunLike) -> Mapping[str, str]:
    """Return the texts of the rules that a run was made with, as far as known."""
    bundle = getattr(run, "bundle", None) or {}
    texts: dict[str, str] = {}
    for rule in (bundle.get("rules") or {}).get("rules", ()):
        texts[rule.get("id", "")] = compact_json(rule)
    return texts | dict(bundle.get("sources") or {})


def _skipped(run: RunLike) -> str:
    skipped = getattr(run, "meta", {}).get("rules_skipped") or ()
    names = ", ".join([plain(rule_id) for rule_id in skipped])
    return f"Not evaluated, as they need a model or have to wait: {names}." if names else ""
