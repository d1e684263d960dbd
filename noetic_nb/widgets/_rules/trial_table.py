"""The table of a trial: outcomes of runs under the rules in force and under the draft, and the decisions that differ."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan
from typing import Any, Final

from noetic_nb.events import SteeringDecided, ToolCalled
from noetic_nb.lab._rule_backtest import CHANGES
from noetic_nb.lab._rule_scores.evaluation import Evaluation
from noetic_nb.lab._statistics.intervals import Count
from noetic_nb.runs import Run
from noetic_nb.runs._events.run_log import call_at, number_at
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, plain_data

# More than fits beside an editor; the whole table is what lab.backtest returns.
ROWS_SHOWN: Final = 30
SHOWN_LENGTH: Final = 160

CHANGE_NAMES: Final = {
    "newly_denied": "newly denied",
    "newly_allowed": "newly allowed",
    "guided": "newly guided",
    "asked": "newly asked",
    "errored": "failing",
    "unchanged": "unchanged",
}

# Name of the line of an evaluation, its words, and whether stopping these is what a rule is there for.
_OUTCOMES: Final = (
    ("caught", "Successful attacks caught", True),
    ("failed", "Failed runs stopped", True),
    ("blocked", "Good runs stopped", False),
    ("false_rejections", "Good calls denied in them", False),
    ("attacked_solved", "Good runs stopped, attacked in vain", False),
    ("attacker_tasks", "Attacker's tasks run as a user's, stopped", False),
    ("unlabelled", "Runs stopped, outcome unknown", None),
)


def trial_words(title: str, note: str = "") -> dict[str, Any]:
    """Return words to be shown in place of a trial."""
    return {"title": title, "note": note, "lines": [], "counts": [], "rows": [], "faults": [], "of": "draft"}


NOT_EDITED: Final = trial_words(
    "Nothing is edited yet", "While you type, what the edit would have changed of the recorded runs appears here."
) | {"of": "nothing"}


def trial_data(
    runs: Iterable[Run], table: Any, evaluations: tuple[Evaluation, Evaluation] | None = None
) -> dict[str, Any]:
    """Return a trial as a page needs it.

    Parameters
    ----------
    runs : iterable of Run
        Where the decisions stand.
    table : pandas.DataFrame
        What differs, from `noetic_nb.lab._rule_backtest`.
    evaluations : (Evaluation, Evaluation), optional
        Of the rules in force, and with the draft in its place; None where no run has a label.
    """
    summary = table.attrs["summary"]
    found = _found(runs, table, table[table["change"] != "unchanged"], evaluations)
    return found | {
        "title": f"Tried on {found['title']}",
        "counts": [[change, CHANGE_NAMES[change], summary[change]] for change in CHANGES if summary[change]],
        "of": "draft",
    }


def in_force_data(runs: Iterable[Run], table: Any, evaluation: Evaluation | None = None) -> dict[str, Any]:
    """Return the decisions of the rules in force on recorded calls before any edit; `table` has them on both sides."""
    held = table[table["before"] != "allow"]
    numbers = held["before"].value_counts()
    found = _found(runs, table, held, None if evaluation is None else (evaluation, evaluation))
    note = "While you type, what the edit would have changed of them appears here."
    return found | {
        "title": f"The rules in force on {found['title']}",
        "note": f"{found['note']} {note}".strip(),
        "counts": [
            [change, words, int(numbers[action])] for action, (change, words) in _HELD.items() if action in numbers
        ],
        "of": "rules",
    }


# The actions of rules in force, with the colour of their change and their words.
_HELD: Final = {"deny": ("newly_denied", "denied"), "guide": ("guided", "guided"), "ask": ("asked", "asked")}


def _found(
    runs: Iterable[Run], table: Any, shown: Any, evaluations: tuple[Evaluation, Evaluation] | None
) -> dict[str, Any]:
    """Return the common part of trials of drafts and of rules in force; `shown` are the decisions that are listed."""
    skipped = table.attrs["skipped"]
    by_id = {run.run_id: run for run in runs}
    rows = [
        {
            "run": plain(row.run_id),
            "where": f"{plain(row.run_id)}, turn {row.turn}",
            "what": _what(row),
            "verdict": _verdict(row),
            "change": row.change,
            "why": plain(row.error if row.error is not None else row.guidance or "", TEXT_LENGTH),
            "place": place_of(by_id[row.run_id], row.seq),
        }
        for row in shown.head(ROWS_SHOWN).itertuples()
    ]
    notes = []
    if len(shown) > len(rows):
        notes.append(f"{len(shown) - len(rows)} more of them.")
    if skipped:
        notes.append(f"Judges were not asked: {plain(', '.join(plain(name) for name in skipped), TEXT_LENGTH)}.")
    if evaluations is not None:
        notes.append(
            "Bars are 95 % intervals over tasks, of runs whose task is known. A run is stopped where a call of it is denied."
        )
    return {
        "title": f"{_some(len(table), 'recorded call')} of {_some(len(by_id), 'run')}",
        "note": " ".join(notes),
        "lines": [] if evaluations is None else outcome_lines(*evaluations),
        "rows": rows,
        "faults": [] if evaluations is None else [plain(text, TEXT_LENGTH) for text in evaluations[1].errors[:3]],
    }


def _verdict(row: Any) -> str:
    if row.error is not None:
        return "failing"
    return str(row.before) if row.change == "unchanged" else f"{row.before} → {row.after}"


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _numbers(count: Count) -> list[float | None]:
    """Return a count for the page, which has no number that is none."""
    return [None if number is None or isnan(number) else number for number in count]


def outcome_lines(before: Evaluation, after: Evaluation) -> list[dict[str, Any]]:
    """Return the outcomes that any run has: how many are stopped by the rules in force, and with the draft among them.

    Examples
    --------
    >>> from noetic_nb.lab import datasets, evaluate
    >>> from noetic_nb.steering import RuleBook
    >>> runs, rules = datasets.airline(), RuleBook()
    >>> before = evaluate(rules, runs)
    >>> _ = rules.at_most(0, "transfer_to_human_agents")
    >>> [(line["name"], line["before"][0], line["after"][0]) for line in outcome_lines(before, evaluate(rules, runs))]
    [('failed', 0, 3), ('blocked', 0, 3), ('false_rejections', 0, 3)]
    """
    lines = []
    for name, words, is_wanted in _OUTCOMES:
        old, new = getattr(before, name), getattr(after, name)
        # Where nothing was attacked, an evaluation has the failed runs in both lines.
        if not new.of or (name == "caught" and new == after.failed):
            continue
        lines.append(
            {
                "name": name,
                "words": words,
                "wanted": is_wanted,
                "before": _numbers(old),
                "after": _numbers(new),
            }
        )
    return lines


def place_of(run: Run, seq: int) -> dict[str, Any]:
    """Return the fields of a `Selection` for a recorded call: its thread, its turn, its model call, and its decision.

    A run that was recorded without steering has no decision to point at.
    """
    events = run.events
    event = events[seq]
    where = event.where
    about = [at for at, other in enumerate(events[: seq + 1]) if other.where == where and _is_of(other, event)]
    decision = number_at(run, about[-1]) if about else None
    call = call_at(run, seq)
    return {"thread_id": where.thread_id or None, "turn": where.turn, "call": call, "item": None, "decision": decision}


def _is_of(decided: Any, event: Any) -> bool:
    if not isinstance(decided, SteeringDecided):
        return False
    if isinstance(event, ToolCalled):
        return decided.hook == "before_tool_call" and decided.tool_name == event.name and decided.args == event.args
    return decided.hook == "after_model_call"


def _what(row: Any) -> str:
    if row.tool_name is None:
        return plain(row.text, SHOWN_LENGTH)
    return f"{plain(row.tool_name)} {plain_data(row.args, SHOWN_LENGTH)}"
