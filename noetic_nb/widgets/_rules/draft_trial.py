"""Tries drafts on recorded runs: the changes shown beside an editor, their table, and the calls for checking a new version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of
from noetic_nb.lab._rule_backtest import CHANGES, Trials
from noetic_nb.lab._rule_scores.evaluation import Evaluation, Evaluator
from noetic_nb.lab._rule_trial import candidate_snapshot, try_rules
from noetic_nb.lab._statistics.intervals import Count
from noetic_nb.lab._statistics.labels import Outcome
from noetic_nb.markup import escape
from noetic_nb.runs import Run
from noetic_nb.runs._cause import places_of_decisions
from noetic_nb.runs._events.run_log import call_at, number_at
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, plain_data
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._evaluation.evaluate import Policy, RuleSnapshot
from noetic_nb.steering._evaluation.rule_reading import read_rule
from noetic_nb.steering._predicates.python_source import check_on_samples
from noetic_nb.widgets._rules.debounced import LiveTrial
from noetic_nb.widgets._rules.draft import Draft, rule_of
from noetic_nb.widgets.base._table import keyed

# More rows than fit beside an editor; lab.backtest returns the whole table.
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

# The name of an evaluation line, its label, and whether rules are meant to stop these calls.
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
    return {"title": title, "note": note, "lines": [], "counts": [], "rows": [], "faults": [], "of": "draft"}


NOT_EDITED: Final = trial_words(
    "Nothing is edited yet", "While you type, the effect of the edit on the recorded runs appears here."
) | {"of": "nothing"}


def trial_data(
    runs: Iterable[Run], table: Any, evaluations: tuple[Evaluation, Evaluation] | None = None
) -> dict[str, Any]:
    """Return a trial for a page: the runs, the table of `lab._rule_backtest`, and the decisions that differ.

    `evaluations` compare the rules in force without and with the draft; None if no run has a label.
    """
    summary = table.attrs["summary"]
    found = _found(runs, table, table[table["change"] != "unchanged"], evaluations)
    return found | {
        "title": f"Tried on {found['title']}",
        "counts": [[change, CHANGE_NAMES[change], summary[change]] for change in CHANGES if summary[change]],
        "of": "draft",
    }


def in_force_data(runs: Iterable[Run], table: Any, evaluation: Evaluation | None = None) -> dict[str, Any]:
    """Return what the rules in force decide on recorded calls before any edit; `table` has the same rules on both sides."""
    held = table[table["before"] != "allow"]
    numbers = held["before"].value_counts()
    found = _found(runs, table, held, None if evaluation is None else (evaluation, evaluation))
    note = "While you type, the effect of the edit on them appears here."
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
    """Return the common data of trials of drafts and of rules in force; `shown` are the listed decisions."""
    skipped = table.attrs["skipped"]
    by_id = {run.run_id: run for run in runs}
    listed = list(shown.head(ROWS_SHOWN).itertuples())
    decided = {name: places_of_decisions(tuple(by_id[name].events)) for name in {row.run_id for row in listed}}
    rows = [
        {
            "run": plain(row.run_id),
            "where": f"{plain(row.run_id)}, turn {row.turn}",
            "what": _what(row),
            "verdict": _verdict(row),
            "change": row.change,
            "why": plain(row.error if row.error is not None else row.guidance or "", TEXT_LENGTH),
            "place": place_of(by_id[row.run_id], row.seq, decided[row.run_id]),
        }
        for row in listed
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
    """Return a count for the page; JSON has no NaN."""
    return [None if number is None or isnan(number) else number for number in count]


def outcome_lines(before: Evaluation, after: Evaluation) -> list[dict[str, Any]]:
    """Return the outcomes that occur: how many calls are stopped by the rules in force, without and with the draft.

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
        # Without attacks, an evaluation counts the failed runs in both lines.
        if not new.of or (name == "caught" and new == after.failed):
            continue
        lines.append(
            {"name": name, "words": words, "wanted": is_wanted, "before": _numbers(old), "after": _numbers(new)}
        )
    return lines


def trial_parts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a trial as parts of a page: outcomes before and after, counts, the decisions that differ, and notes.

    Examples
    --------
    >>> [part["key"] for part in trial_parts(NOT_EDITED)]
    ['title', 'note']
    """
    parts = {"title": f'<p class="nn-title" role="status">{escape(found["title"])}</p>'}
    if found["lines"]:
        parts["outcomes"] = f'<div role="list">{"".join(map(_outcome, found["lines"]))}</div>'
        if found["of"] == "draft":
            parts["key"] = f'<p class="nn-key">{_dot("before", "in force")}{_dot("after", "with the draft")}</p>'
    if found["counts"]:
        counts = [f'<li data-change="{change}">{count} {name}</li>' for change, name, count in found["counts"]]
        parts["counts"] = f'<ul class="nn-counts">{"".join(counts)}</ul>'
    if found["rows"]:
        label = 'role="group" aria-label="Decisions that differ"'
        rows = "".join([_change(at, row) for at, row in enumerate(found["rows"])])
        parts["rows"] = f'<div class="nn-changes nn-scroll nn-tall" {label}>{rows}</div>'
    parts["note"] = f'<p class="nn-note">{escape(found["note"])}</p>'
    if found["faults"]:
        parts["faults"] = f'<p class="nn-note nn-fault">Faults: {escape("; ".join(found["faults"]))}</p>'
    return [keyed(key, html) for key, html in parts.items()]


def _dot(kind: str, words: str) -> str:
    return (
        '<span><svg class="nn-swatch" width="22" height="12" viewBox="0 0 22 12" aria-hidden="true">'
        f'<path class="nn-whisker nn-{kind}" d="M1,6H21"/><path class="nn-dot nn-{kind}" d="M11,2V10"/></svg>{words}</span>'
    )


def _outcome(line: Mapping[str, Any]) -> str:
    before, after, is_wanted = line["before"], line["after"], line["wanted"]
    by = after[0] - before[0]
    change = "same" if not by else "more" if is_wanted is None else "better" if (by > 0) is is_wanted else "worse"
    said = f"{abs(by)} {'fewer' if by < 0 else 'more'}{'' if change == 'more' else f', {change}'}" if by else "as now"
    was = f" · in force {_share(before)}" if by else ""
    marks = ""
    for kind, y, (_, _, rate, low, high, *_) in (("before", 6, before), ("after", 14, after)):
        left, right = 100 * (rate if low is None else low), 100 * (rate if high is None else high)
        marks += (
            f'<path class="nn-whisker nn-{kind}" d="M{left:.4g},{y}H{right:.4g}"/>'
            f'<path class="nn-dot nn-{kind}" d="M{100 * rate:.4g},{y - 4}V{y + 4}"/>'
        )
    return (
        f'<div class="nn-outcome" role="listitem" data-change="{change}">'
        f'<span class="nn-outcome-name">{line["words"]}</span>'
        '<svg class="nn-interval" viewBox="0 0 100 22" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="nn-axis" d="M0,21H100"/>{marks}</svg>'
        f'<span class="nn-number">{_share(after)}</span><span class="nn-was">{said}{was}</span></div>'
    )


def _share(count: Sequence[Any]) -> str:
    number, of, rate, low, high, *_ = count
    ends = "" if low is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{number}/{of} · {100 * rate:.1f} %{ends}"


def _change(at: int, row: Mapping[str, Any]) -> str:
    place = f'data-at="{at}"' if row["place"] else 'aria-disabled="true"'
    cells = "".join(
        [f'<span class="nn-{name}">{escape(row[name])}</span>' for name in ("verdict", "where", "what", "why")]
    )
    return f'<button type="button" class="nn-change" data-change="{escape(row["change"])}" {place}>{cells}</button>'


def place_of(run: Run, seq: int, decided: Mapping[int, int]) -> dict[str, Any]:
    """Return the fields of a `Selection` for a recorded call: its thread, turn, model call, and decision.

    `decided` maps the places of calls to those of their decisions; a run recorded without steering has none.
    """
    where, about = run.events[seq].where, decided.get(seq)
    decision, call = None if about is None else number_at(run, about), call_at(run, seq)
    return {"thread_id": where.thread_id or None, "turn": where.turn, "call": call, "item": None, "decision": decision}


def _what(row: Any) -> str:
    if row.tool_name is None:
        return plain(row.text, SHOWN_LENGTH)
    return f"{plain(row.tool_name)} {plain_data(row.args, SHOWN_LENGTH)}"


# The user waits after pressing Apply: enough calls to find a bad case, few enough to be quick.
MOST_CALLS: Final = 200
# Added to the limit of a trial: the first rule that asks for origins reads every text of a run.
S_PER_CALL: Final = 0.001
_IN_THE_TEXT: Final = frozenset({"RULE_DOES_NOT_COMPILE", "INVALID_RULE", "INVALID_FIELD"})


class DraftTrial:
    """Tries drafts of one rule book on some runs, which may still grow.

    ``report(data, error)`` is called with the trial data for a page, and with the error of a draft that does not compile.
    """

    def __init__(
        self,
        rulebook: RuleBook,
        runs: Sequence[Run],
        report: Callable[[dict[str, Any], NoeticConfigError | None], object],
        *,
        outcome: Outcome = "outcome",
    ) -> None:
        self._rulebook = rulebook
        self._runs = runs
        self._outcome = outcome
        self._report = report
        self._live: LiveTrial[dict[str, Any]] = LiveTrial(self._done)
        self._recorded: _Recorded | None = None
        self._known: tuple[RuleSnapshot, dict[str, Any]] | None = None

    def try_later(self, rule: SteeringRule, draft: Draft, *, even_if_impure: bool = False) -> None:
        """Try a draft after a pause, replacing an earlier draft that still waits."""
        # Compiling Python text runs its top-level code, so text with side effects is stopped first.
        acts = [] if draft.form != "python" or even_if_impure else _acts(rule, draft.text)
        if acts:
            self._live.cancel()
            why = f"It does more than decide: {plain(acts[0], TEXT_LENGTH)}. Press Try."
            self._report(trial_words("Not tried while you type", why), None)
            return
        rules = self._rulebook.snapshot

        def work(stop: Callable[[], bool]) -> dict[str, Any]:
            # Tried even if not enabled: the user may enable it next.
            candidate = rule_of(self._rulebook, rule, draft).model_copy(update={"enabled": True})
            recorded = self._recorded
            assert recorded is not None
            return recorded.data(rules, candidate, stop)

        self._live.later(work, first=lambda: self._read(rules))

    @property
    def in_force(self) -> dict[str, Any]:
        is_known = self._known is not None and self._known[0] is self._rulebook.snapshot
        return self._known[1] if self._known is not None and is_known else NOT_EDITED

    def try_in_force(self) -> None:
        """Evaluate the rules in force, unless a draft is tried meanwhile."""
        rules = self._rulebook.snapshot

        def work(stop: Callable[[], bool]) -> dict[str, Any]:
            assert self._recorded is not None
            self._known = rules, self._recorded.in_force(rules)
            return self._known[1]

        self._live.later(work, first=lambda: self._read(rules))

    def cancel(self) -> None:
        self._live.cancel()

    def _read(self, rules: RuleSnapshot) -> float:
        """Read the recorded calls, and evaluate the rules in force; returns the time limit for a draft, in seconds."""
        # The slow part of a first trial; typing does not affect it.
        sizes = tuple([len(run.events) for run in self._runs])
        if self._recorded is None or self._recorded.sizes != sizes:
            self._recorded = _Recorded(self._runs, sizes, self._outcome)
        return self._recorded.prepare(rules)

    def _done(self, data: dict[str, Any] | None, error: Exception | None) -> None:
        if error is None:
            self._report(data or NOT_EDITED, None)
        elif isinstance(error, NoeticConfigError) and error.code in _IN_THE_TEXT:
            self._report(trial_words("Not tried", "It does not compile yet."), error)
        else:
            self._report(trial_words("Not tried", plain(f"{type(error).__name__}: {error}", TEXT_LENGTH)), None)


class _Recorded:
    """The recorded calls, prepared for many drafts."""

    def __init__(self, runs: Sequence[Run], sizes: tuple[int, ...], outcome: Outcome) -> None:
        self.sizes = sizes
        self._runs = runs
        self._trials = Trials(runs)
        self._evaluator: Evaluator | None
        try:
            self._evaluator = Evaluator(runs, outcome=outcome)
        except NoeticConfigError as exc:
            if exc.code != "NO_LABELS":
                raise
            self._evaluator = None
        self._before: tuple[RuleSnapshot, Evaluation | None] | None = None

    def prepare(self, rules: RuleSnapshot) -> float:
        """Evaluate the rules in force once for all drafts; returns the time limit for a draft, in seconds."""
        if self._before is None or self._before[0] is not rules:
            self._trials.diff(rules, ())
            self._before = (rules, None if self._evaluator is None else self._evaluator.evaluate(rules))
        return S_PER_CALL * len(self._trials.calls)

    def in_force(self, rules: RuleSnapshot) -> dict[str, Any]:
        assert self._before is not None
        return in_force_data(self._runs, self._trials.diff(rules, rules), self._before[1])

    def data(self, rules: RuleSnapshot, candidate: SteeringRule, stop: Callable[[], bool]) -> dict[str, Any]:
        diff = self._trials.diff(rules, candidate, stop=stop)
        assert self._before is not None
        before = self._before[1]
        if self._evaluator is None or before is None:
            return trial_data(self._runs, diff)
        after = self._evaluator.evaluate(candidate_snapshot(rules, candidate), stop=stop)
        return trial_data(self._runs, diff, (before, after))


def _acts(rule: SteeringRule, text: str) -> list[str]:
    """Return the side effects of a text, including its top level, because compiling runs it."""
    import ast

    found = read_rule(rule.model_copy(update={"source": text, "predicate": rule.predicate or print})).impure
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls = [node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(isinstance(part, ast.Call) for node in calls for part in ast.walk(node)):
        found = [*found, "it calls something beside its function"]
    return found


def sample_calls(runs: Sequence[Run], rule: SteeringRule) -> tuple[RecordedCall, ...]:
    """Return the newest recorded calls and responses that a rule applies to, oldest first, at most 200.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> rule = SteeringRule(id="r", applies_to="before_tool_call", tools=("think",), predicate=lambda call: None)
    >>> [call.params.tool_name for call in sample_calls([datasets.airline_run(26)], rule)]
    ['think', 'think']
    """
    alone = _alone(rule)
    found = [call for call in calls_of(runs) if alone.applicable(call.point, call.tool_name)]
    return tuple(found[-MOST_CALLS:])


def check_draft(rule: SteeringRule, calls: Sequence[RecordedCall]) -> None:
    """Evaluate a rule of any form on recorded calls; its judge, if any, is not called.

    Raises ``RULE_FAILS_ON_SAMPLE``, with the `line` of a failed Python rule if known.
    """
    check_on_samples(rule, [call.params for call in calls])
    for call, result in zip(calls, try_rules(_alone(rule), calls, policy=Policy()), strict=True):
        if result.error is not None:
            raise NoeticConfigError(
                "RULE_FAILS_ON_SAMPLE",
                f"Rule {rule.id!r} was not replaced: on a recorded call it failed with {result.error}",
                given=getattr(call.params, "tool_name", "a response"),
                hint="Correct the text; the last good version stays in force.",
                rule_id=rule.id,
                line=None,
            )


def _alone(rule: SteeringRule) -> RuleSnapshot:
    # Tried even if not enabled: the user may enable it next.
    return RuleSnapshot(0, (rule.model_copy(update={"enabled": True}),))
