"""The effect of rules on recorded runs: a diff of decisions, without a model or a tool.

The past is not changed: a call that a candidate denies stays in the history of later calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from noetic_nb._core.long_work import Work
from noetic_nb.items import thaw
from noetic_nb.lab._checks import each_run
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of
from noetic_nb.lab._rule_trial import (
    OnUnknown,
    TrialResult,
    as_snapshot,
    candidate_snapshot,
    check_order,
    check_targets,
    try_rules,
)
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.models._client import ModelClient
from noetic_nb.redact import redact, redact_text
from noetic_nb.runs import Run
from noetic_nb.steering._evaluation.evaluate import OnError, OnUnparseable, Policy, RuleSnapshot

if TYPE_CHECKING:
    import pandas

_Content: TypeAlias = tuple[str | None, Any, str | None]
Change: TypeAlias = Literal["newly_denied", "newly_allowed", "guided", "asked", "unchanged", "errored"]
CHANGES: Final[tuple[Change, ...]] = ("newly_denied", "newly_allowed", "guided", "asked", "unchanged", "errored")
"""Possible differences of a decision, the most serious first."""

_NEW: Final[dict[SteeringAction, Change]] = {
    SteeringAction.DENY: "newly_denied",
    SteeringAction.ALLOW: "newly_allowed",
    SteeringAction.GUIDE: "guided",
    SteeringAction.ASK: "asked",
}

_COLUMNS: Final = (
    *("run_id", "thread_id", "execution_id", "turn", "seq", "t_ms", "hook", "tool_name", "args", "text"),
    *("before", "after", "change", "guidance", "rules_before", "rules_after", "error", "skipped"),
)


def _change(before: TrialResult, after: TrialResult) -> Change:
    # The same failure as before is not a change.
    if after.error is not None and after.error != before.error:
        return "errored"
    if before.decision.action is after.decision.action:
        return "unchanged"
    return _NEW[after.decision.action]


class Trials:
    """Recorded calls, prepared for several candidates; options are those of `steering`, and judges need a `judge`."""

    def __init__(
        self,
        runs: Run | Iterable[Run],
        *,
        on_error: OnError = "deny",
        on_unparseable: OnUnparseable = "allow",
        max_retries: int = 1,
        judge: ModelClient | None = None,
    ) -> None:
        self.calls = calls_of(runs)
        # A rule that raises is a row of the table, whatever the policy.
        self._policy = Policy("deny" if on_error == "raise" else on_error, on_unparseable, max_retries)
        self._judge = judge
        self._before: tuple[RuleSnapshot, list[TrialResult]] | None = None
        self._contents: list[_Content] | None = None

    def results(
        self, rules: Any, *, stop: Callable[[], bool] | None = None, work: Work | None = None
    ) -> list[TrialResult]:
        """Return the decisions of rules on each call, or on the first ones if the work was interrupted."""
        snapshot = as_snapshot(rules)
        return try_rules(snapshot, self.calls, policy=self._policy, judge=self._judge, stop=stop, work=work)

    def diff(self, rules: Any, candidate: Any, *, stop: Callable[[], bool] | None = None) -> pandas.DataFrame:
        snapshot = as_snapshot(rules)
        other = candidate_snapshot(snapshot, candidate)
        # The current rules are evaluated once; while a user types only the candidate changes.
        if self._before is None or self._before[0] is not snapshot:
            self._before = (snapshot, self.results(snapshot, stop=stop))
        after = self._before[1] if other is snapshot else self.results(other, stop=stop)
        if self._contents is None:  # independent of the candidate
            self._contents = [_content(call) for call in self.calls]
        return _frame(self.calls, self._contents, self._before[1], after)


def _frame(
    calls: tuple[RecordedCall, ...], contents: list[_Content], before: list[TrialResult], after: list[TrialResult]
) -> pandas.DataFrame:
    import pandas

    rows = [_row(*each) for each in zip(calls, contents, before, after, strict=True)]
    numbers = {"turn": "int64", "seq": "int64", "t_ms": "float64"}
    frame = pandas.DataFrame(rows, columns=_COLUMNS, dtype="object").astype(numbers)
    # All kinds in order, including zeros, so that summaries can be compared.
    counts = Counter(frame["change"])
    frame.attrs["summary"] = {change: counts.get(change, 0) for change in CHANGES}
    are_known = known_calls(calls, [each.decision for each in before], [each.decision for each in after])
    known = Counter(change for change, is_known in zip(frame["change"], are_known, strict=True) if is_known)
    frame.attrs["summary_known"] = {change: known.get(change, 0) for change in CHANGES}
    frame.attrs["skipped"] = sorted({rule_id for names in frame["skipped"] for rule_id in names})
    return frame


def known_calls(
    calls: Iterable[RecordedCall], before: Iterable[SteeringDecision], after: Iterable[SteeringDecision]
) -> Iterator[bool]:
    """Tell for each call whether it is known, that is, before the thread's first decision with another effect."""
    ended: set[tuple[str, str]] = set()
    for call, was, now in zip(calls, before, after, strict=True):
        key = call.run_id, call.where.thread_id
        yield key not in ended
        is_allowed = was.action is now.action is SteeringAction.ALLOW
        if not is_allowed and (was.action, was.guidance, was.rule_ids) != (now.action, now.guidance, now.rule_ids):
            ended.add(key)


def _content(call: RecordedCall) -> _Content:
    """Return the tool, arguments and text of a call, redacted."""
    params = call.params
    if isinstance(params, BeforeToolCallParams):
        return redact_text(params.tool_name), redact(thaw(params.tool_args)), None
    return None, None, redact_text(params.text)


def _shown(text: str | None) -> str | None:
    return None if text is None else redact_text(text)


def _row(call: RecordedCall, content: _Content, before: TrialResult, after: TrialResult) -> tuple[Any, ...]:
    where = call.where
    names = map(redact_text, (call.run_id, where.thread_id, where.execution_id))
    return (
        *(*names, where.turn, call.seq, call.t_ms, call.point),
        *content,
        *(before.decision.action.value, after.decision.action.value, _change(before, after)),
        *(_shown(after.decision.guidance), before.decision.rule_ids, after.decision.rule_ids),
        *(_shown(after.error), after.skipped),
    )


def backtest(
    rules: Any,
    runs: Run | Iterable[Run],
    *,
    candidate: Any = None,
    judge: ModelClient | None = None,
    on_error: OnError = "deny",
    on_unparseable: OnUnparseable = "allow",
    max_retries: int = 1,
    on_unknown: OnUnknown = "error",
) -> pandas.DataFrame:
    """Evaluate rules on every recorded call and response, and return the changes made by a candidate.

    Parameters
    ----------
    rules : RuleBook, RuleSnapshot or iterable of rules
        The current rules. Without a candidate they are compared with no rules.
    runs : Run or iterable of Run
        Recorded runs.
    candidate : SteeringRule, mapping, function, RuleBook or iterable of rules, optional
        A rule replaces the one with its id, or is added last; a function replaces the predicate of the rule with its
        name; a book or a list replaces all rules.
    judge : ModelClient, optional
        Answers for judges, such as a `CassetteModel`. Without it, or for requests missing in the cassette, judges are
        skipped and named in the column ``skipped`` and in ``attrs["skipped"]``. Asynchronous judges never change a
        decision and are not called.
    on_error, on_unparseable, max_retries
        As for `noetic_nb.steering.steering`. A rule that raises gives a row marked ``errored``, never an exception.
    on_unknown : {"error", "warn"}
        How to treat a rule that names a tool or an argument that none of the runs has.

    Returns
    -------
    pandas.DataFrame
        One row per call at which rules are evaluated, with ``run_id``, ``thread_id``, ``execution_id``, ``turn``, ``seq``
        (the index of the event in its run), ``t_ms``, ``hook``, ``tool_name`` and ``args`` or ``text``; ``before`` and
        ``after`` (actions), ``change`` (one of `CHANGES`), ``guidance``, ``rules_before``, ``rules_after``, ``error`` and
        ``skipped``. ``attrs["summary"]`` counts the changes, ``attrs["summary_known"]`` those up to the first of each
        thread, after which the agent would have behaved differently. Secrets are redacted.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE``, ``RULE_DOES_NOT_COMPILE``, ``UNKNOWN_RULE``, ``UNKNOWN_TOOL``, ``UNKNOWN_ARGUMENT``,
        ``SWAPPED_ARGUMENTS`` or ``INVALID_RUN``.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> from noetic_nb.steering import SteeringRule
    >>> certificates = SteeringRule(id="gifts", applies_to="before_tool_call", tools="send_certificate", when="true")
    >>> table = backtest([], datasets.airline(), candidate=certificates)
    >>> table[table.change == "newly_denied"].tool_name.unique().tolist()
    ['send_certificate']
    """
    check_order("backtest", rules, runs)
    runs = tuple(each_run(runs, "Rules are tried on runs."))
    trials = Trials(runs, on_error=on_error, on_unparseable=on_unparseable, max_retries=max_retries, judge=judge)
    tried = as_snapshot(rules)
    others = () if candidate is None else candidate_snapshot(tried, candidate)
    check_targets([*tried, *[rule for rule in others if rule not in tried.rules]], runs, on_unknown)
    return trials.diff((), rules) if candidate is None else trials.diff(rules, candidate)
