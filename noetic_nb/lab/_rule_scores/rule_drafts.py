"""One rule against one recorded call, as a first draft."""

from __future__ import annotations

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._rule_backtest import Trials
from noetic_nb.lab._rule_scores.rule_candidates import rules_against, tried_calls
from noetic_nb.memory._steering_decision import SteeringAction
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.runs import Run
from noetic_nb.runs._cause import place_asked, places_of_decisions
from noetic_nb.runs._events.selected import DecisionOrCall
from noetic_nb.steering._rules.rule import SteeringRule


def draft_rule(run: Run, decision_or_call: DecisionOrCall = None, *, seq: int | None = None) -> SteeringRule:
    """Draft a rule that denies one recorded call, and as few others of the run as a simple rule can.

    Parameters
    ----------
    run : Run
        Any run, an imported one as well.
    decision_or_call : SteeringDecided, ToolCalled or int
        As for `Run.cause`.
    seq : int, optional
        In place of it: the ``seq`` of a decision or call.

    Returns
    -------
    SteeringRule
        To be read by a person, and put into a rule book. Where several rules deny equally few calls, one about the author of
        an argument comes first, then a limit, the values of the call, the order of calls, and a ban of the tool last.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL``, ``UNKNOWN_DECISION`` where the run has none such; ``UNKNOWN_CALL`` for a call that no rule can see:
        one of an unknown tool, with arguments that did not fit, or a response. ``MISSING_PACKAGE`` where a condition is drafted
        without the package for it.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "The cause of a call".

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> run = datasets.airline_run(26)
    >>> rule = draft_rule(run, -1)
    >>> rule.tools == (run.to_frame("tools").tool_name.iloc[-1],)
    True
    """
    events = tuple(run.events)
    at = place_asked(events, decision_or_call, seq)
    at = {decided: call for call, decided in places_of_decisions(events).items()}.get(at, at)
    trials = Trials([run])
    places = [place for place, call in enumerate(trials.calls) if isinstance(call.params, BeforeToolCallParams)]
    own = next((place for place in places if trials.calls[place].seq == at), None)
    if own is None:
        raise NoeticConfigError(
            "UNKNOWN_CALL",
            "No rule can be drafted for that: rules about calls do not see it.",
            given=seq if decision_or_call is None else decision_or_call,
            hint="Name a tool call that reached its tool, or the rules.",
        )
    for rule in rules_against(tried_calls([run]), places.index(own)):
        try:
            result = trials.results([rule])[own]
        except NoeticConfigError as exc:
            if exc.code != "RULE_DOES_NOT_COMPILE":
                raise
            continue  # a number that conditions do not have
        if result.error is None and result.decision.action is SteeringAction.DENY:
            return rule
    hint = "Write the rule by hand."
    raise NoeticConfigError("UNKNOWN_CALL", "No simple rule denies that call.", given=at, hint=hint)
