"""Simple rules suggested by recorded calls, or drafted against one call: one tool, one condition, one readable sentence.

Names, values and limits come from the calls of the runs to fit on; denied calls are listed for all runs. The conditions
are computed here, a hundred times as fast as by the rule engine, but names are compared exactly, not by look-alikes.
The engine evaluates the chosen rules again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from noetic_nb._core.arguments import is_number
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.items._origins import Origin
from noetic_nb.lab._checks import check_run
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.lab._rule_backtest import Trials
from noetic_nb.memory._steering_decision import SteeringAction
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.redact import redact
from noetic_nb.runs import Run
from noetic_nb.runs._cause import place_asked, places_of_decisions
from noetic_nb.runs._events.selected import DecisionOrCall
from noetic_nb.steering._predicates.sequence_rules import describe_sequence, sequence_rule
from noetic_nb.steering._rules.rule import SteeringRule


def draft_rule(run: Run, decision_or_call: DecisionOrCall = None, *, seq: int | None = None) -> SteeringRule:
    """Draft a rule that denies one recorded call, and as few others of the run as a simple rule can.

    See docs/behaviour/runs.md, "The cause of a call".

    Parameters
    ----------
    run : Run
        Any run, including imported ones.
    decision_or_call : SteeringDecided, ToolCalled or int
        As for `Run.cause`.
    seq : int, optional
        Instead of that: the ``seq`` of a decision or call.

    Returns
    -------
    SteeringRule
        For a person to review and add to a rule book. Of rules that deny equally few calls, one about the author of an
        argument comes first, then a limit, the values of the call, the order of calls, and last a ban of the tool.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL`` or ``UNKNOWN_DECISION`` if the run has no such call or decision; ``UNKNOWN_CALL`` for a call
        that no rule can see: of an unknown tool, with arguments that did not fit, or a response. ``MISSING_PACKAGE`` if
        a condition is drafted without the package for it.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> run = datasets.airline_run(26)
    >>> rule = draft_rule(run, -1)
    >>> rule.tools == (run.to_frame("tools").tool_name.iloc[-1],)
    True
    """
    events = tuple(check_run(run, "A rule is drafted for a call of a run.").events)
    at = place_asked(events, decision_or_call, seq)
    at = {decided: call for call, decided in places_of_decisions(events).items()}.get(at, at)
    trials = Trials([run])
    places = [place for place, call in enumerate(trials.calls) if isinstance(call.params, BeforeToolCallParams)]
    own = next((place for place in places if trials.calls[place].seq == at), None)
    if own is None:
        raise NoeticConfigError(
            "UNKNOWN_CALL",
            "No rule can be drafted for this: rules about calls do not see it.",
            given=seq if decision_or_call is None else decision_or_call,
            hint="Name a tool call that reached its tool, or the rules.",
        )
    for rule in rules_against(tried_calls([run]), places.index(own)):
        try:
            result = trials.results([rule])[own]
        except NoeticConfigError as exc:
            if exc.code != "RULE_DOES_NOT_COMPILE":
                raise
            continue  # a number that conditions cannot express
        if result.error is None and result.decision.action is SteeringAction.DENY:
            return rule
    hint = "Write the rule by hand."
    raise NoeticConfigError("UNKNOWN_CALL", "No simple rule denies that call.", given=at, hint=hint)


MAX_COUNT: Final = 10
MAX_VALUES: Final = 8
MIN_TASKS: Final = 2
MAX_VALUE_LENGTH: Final = 40
LIMITS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
# Statuses of calls that were not executed, as in sequence rules.
_NOT_MADE: Final = frozenset({"denied", "guided", "invalid_args", "unknown"})


class TriedCall(NamedTuple):
    """One recorded tool call, with the values that candidates need."""

    run: int
    """The index of its run."""
    params: BeforeToolCallParams
    args: Mapping[str, Any]
    made: Mapping[str, int]
    """The number of earlier calls of each tool."""
    succeeded: frozenset[str]
    previous: str | None
    is_ok: bool
    """Whether the call succeeded."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule about a tool, and the indices of the calls that it denies."""

    rule: SteeringRule
    tool: str
    denied: frozenset[int]


def tried_calls(runs: Sequence[Run]) -> list[TriedCall]:
    """Return the tool calls of some runs at which rules are evaluated, in order."""
    found = []
    for place, run in enumerate(runs):
        for call in calls_of(run):
            params = call.params
            if not isinstance(params, BeforeToolCallParams):
                continue
            history = params.history
            found.append(
                TriedCall(
                    place,
                    params,
                    thaw(params.tool_args),
                    Counter([past.name for past in history if past.status not in _NOT_MADE]),
                    frozenset([past.name for past in history if past.status == "ok"]),
                    history[-1].name if history else None,
                    call.succeeded,
                )
            )
    return found


def describe_rule(rule: SteeringRule) -> str:
    return describe_sequence(rule, rule.sequence) if rule.sequence is not None else str(rule.guidance)


def rule_candidates(
    calls: Sequence[TriedCall], tasks: Sequence[Hashable], fitted: Container[int], good: Container[int]
) -> Iterator[Candidate]:
    """Yield simple rules from the runs in `fitted` that allow the calls of `good` ones, the least strict first."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        places[call.params.tool_name].append(place)
    found: list[tuple[str, SteeringRule, _Test]] = []
    for tool, own in sorted(places.items()):
        seen = [calls[place] for place in own if calls[place].run in fitted]
        if seen:
            usual = [call for call in seen if call.run in good]
            found += [(tool, *rule) for rule in _rules_of(tool, seen, usual, tasks)]
    # A ban explains the least: if another rule denies as much, that one is chosen.
    for tool, rule, violates in sorted(found, key=lambda each: _is_ban(each[1])):
        yield Candidate(rule, tool, frozenset([place for place in places[tool] if violates(calls[place])]))


def rules_against(calls: Sequence[TriedCall], place: int) -> list[SteeringRule]:
    """Return the simple rules that deny one call of a run, ordered by how few others of its tool they deny."""
    wrong = calls[place]
    tool = wrong.params.tool_name
    seen = [call for call in calls if call.params.tool_name == tool]
    found = [*_rules_of(tool, seen, [call for call in seen if call is not wrong], [wrong.run]), *_same(tool, wrong)]
    ranked = [
        (sum(map(violates, seen)), _rank(rule), at, rule)
        for at, (rule, violates) in enumerate(found)
        if violates(wrong)
    ]
    return [each[-1] for each in sorted(ranked, key=lambda each: each[:3])]


def _rank(rule: SteeringRule) -> int:
    if rule.sequence is None:
        return 2 if rule.id.endswith("-as-here") else 1
    return 4 if _is_ban(rule) else 0 if rule.sequence.kind == "only_from_user" else 3


def _same(tool: str, call: TriedCall) -> Iterator[tuple[SteeringRule, _Test]]:
    """Yield the rule that forbids the values of one call; secrets are never written into a rule."""
    args = {
        name: value for name, value in call.args.items() if _is_plain(value) and redact({name: value}) == {name: value}
    }
    if args:
        texts = {name: json.dumps(value, ensure_ascii=False) for name, value in args.items()}
        when = " && ".join([f"{json.dumps(name)} in tool.args && {_reference(name)} == {texts[name]}" for name in args])
        words = " and ".join([f"{name} {text}" for name, text in texts.items()])
        rule = _condition(tool, f"{tool}-as-here", when, f"must not be called with {words}.")
        yield rule, _test("values", {name: _key(value) for name, value in args.items()})


_Test = Callable[[TriedCall], bool]


def _is_ban(rule: SteeringRule) -> bool:
    return rule.sequence is not None and rule.sequence.count == 0


def _rules_of(
    tool: str, seen: Sequence[TriedCall], usual: Sequence[TriedCall], tasks: Sequence[Hashable]
) -> Iterator[tuple[SteeringRule, _Test]]:
    """Yield rules about one tool: its arguments, then earlier calls."""
    for arg in sorted({name for call in seen for name in call.args}):
        yield from _writers(tool, arg, usual)
        values = [value for call in seen if (value := call.args.get(arg)) is not None]
        if values and all(map(is_number, values)):
            yield from _ranges(tool, arg, values)
        if values and all(map(_is_plain, values)):
            yield from _sets(tool, arg, values, usual, tasks)
    yield from _orders(tool, seen)


def _orders(tool: str, seen: Sequence[TriedCall]) -> Iterator[tuple[SteeringRule, _Test]]:
    """Yield rules about earlier calls: their number, the required ones, and the last one."""
    before = sorted({name for call in seen for name in call.made} - {tool})
    for other in before:
        yield sequence_rule("never_after", tool, others=other), _test("after", other)
    for other in before:
        yield sequence_rule("only_after", tool, others=other), _test("not after", other)
    for other in sorted({call.previous for call in seen if call.previous is not None}):
        when = f"size(history) > 0 && history[size(history) - 1].name == {json.dumps(other)}"
        rule = _condition(tool, f"{tool}-right-after-{other}", when, f"must not be called right after {other}.")
        yield rule, _test("right after", other)
    for count in range(min(MAX_COUNT, max(call.made.get(tool, 0) for call in seen)) + 1):
        yield sequence_rule("at_most", tool, count=count), _test("beyond", tool, count)


def _writers(tool: str, arg: str, usual: Sequence[TriedCall]) -> Iterator[tuple[SteeringRule, _Test]]:
    """Yield rules about the author of an argument; they trust the result fields from which good runs took it."""
    title = f"only-from-user-{arg}-of-{tool}"
    fields: Counter[str] = Counter()
    for call in usual:
        if arg in call.args and _TESTS["untrusted"](arg, ("user",), call):
            fields.update({name for origin in call.params.origins(call.args[arg]) if (name := _trust(origin))})
    often = tuple(sorted(name for name, count in fields.items() if count > 1))
    for suffix, trust in (("", ()), ("-or-often-from", often), ("-or-from", tuple(sorted(fields)))):
        if not suffix or trust:
            rule = sequence_rule("only_from_user", tool, args=[arg], trust=trust, id=title + suffix)
            yield rule, _test("untrusted", arg, ("user", *trust))
    origin = f"{json.dumps(arg)} in tool.args && origin({_reference(arg)})"
    title, words = f"{arg}-of-{tool}", f"must not be called with the {arg} that"
    rule = _condition(tool, f"{title}-from-no-tool", f'{origin}.startsWith("tool:")', f"{words} a tool's result gave.")
    yield rule, _test("by", arg, "tool")
    rule = _condition(tool, f"{title}-not-made-up", f'{origin} == "model"', f"{words} nobody gave.")
    yield rule, _test("by", arg, "model")


def _trust(origin: Origin) -> str | None:
    """Return the source to trust for values of this origin, or None if that would be any source."""
    match origin.kind:
        case "tool":
            return None if origin.field is None else f"{origin.name}.{origin.field}"
        case "system" | "layer":
            return str(origin)
    return None


def _ranges(tool: str, arg: str, values: Iterable[float]) -> Iterator[tuple[SteeringRule, _Test]]:
    """Yield rules about the largest and the smallest value."""
    ordered = sorted(values)
    reference = _reference(arg)
    number = f"{json.dumps(arg)} in tool.args && type({reference}) in [int, double] && {reference}"
    limits = {ordered[int(share * (len(ordered) - 1))] for share in LIMITS}
    for limit in sorted(int(each) if each == int(each) else each for each in limits):
        title, text = f"{arg}-of-{tool}", json.dumps(limit)
        words = f"must not be called with {arg}"
        rule = _condition(tool, f"{title}-at-most-{text}", f"{number} > {text}", f"{words} above {text}.")
        yield rule, _test("above", arg, limit)
        rule = _condition(tool, f"{title}-at-least-{text}", f"{number} < {text}", f"{words} below {text}.")
        yield rule, _test("under", arg, limit)


def _sets(
    tool: str, arg: str, values: Iterable[Any], usual: Iterable[TriedCall], tasks: Sequence[Hashable]
) -> Iterator[tuple[SteeringRule, _Test]]:
    """Yield rules about a value from a small set: only the values of good runs, and all but one."""
    known = {_key(value): json.dumps(value) for value in values}
    allowed: defaultdict[tuple[str, Any], set[Hashable]] = defaultdict(set)
    for call in usual:
        if call.args.get(arg) is not None:
            allowed[_key(call.args[arg])].add(tasks[call.run])
    # A value that only one task uses identifies an object of that task, so other tasks have other values.
    if len(known) > MAX_VALUES or not allowed or min(map(len, allowed.values())) < MIN_TASKS:
        return
    title = f"{arg}-of-{tool}"
    reference = _reference(arg)
    given = f"{json.dumps(arg)} in tool.args && {reference} != null"
    if allowed.keys() < known.keys():
        names = ", ".join(sorted(known[key] for key in allowed))
        words = f"may be called only with {arg} out of {names}."
        rule = _condition(tool, f"{title}-is-known", f"{given} && !({reference} in [{names}])", words)
        yield rule, _test("unknown", arg, frozenset(allowed))
    for key, text in sorted(known.items(), key=lambda pair: pair[1]):
        words = f"must not be called with {arg} {text}."
        name = f"{title}-is-not-{key[1]!s}"
        yield _condition(tool, name, f"{given} && {reference} == {text}", words), _test("value", arg, key)


def _condition(tool: str, name: str, when: str, words: str) -> SteeringRule:
    # Braces in a guidance are placeholders.
    guidance = f"{tool} {words}".replace("{", "(").replace("}", ")")
    return SteeringRule(id=name, applies_to="before_tool_call", tools=tool, when=when, guidance=guidance)


def _reference(arg: str) -> str:
    return f"tool.args[{json.dumps(arg)}]"


_TESTS: Final[Mapping[str, Callable[..., bool]]] = {
    "after": lambda other, call: other in call.made,
    "not after": lambda other, call: other not in call.succeeded,
    "right after": lambda other, call: call.previous == other,
    "beyond": lambda tool, count, call: call.made.get(tool, 0) >= count,
    "untrusted": lambda arg, trusted, call: not call.params.is_vouched(call.args.get(arg), trusted),
    "by": lambda arg, kind, call: arg in call.args and call.params.origin(call.args[arg]).kind == kind,
    "above": lambda arg, limit, call: is_number(value := call.args.get(arg)) and value > limit,
    "under": lambda arg, limit, call: is_number(value := call.args.get(arg)) and value < limit,
    "unknown": lambda arg, allowed, call: call.args.get(arg) is not None and _key(call.args[arg]) not in allowed,
    "value": lambda arg, key, call: call.args.get(arg) is not None and _key(call.args[arg]) == key,
    "values": lambda keys, call: all(name in call.args and _key(call.args[name]) == key for name, key in keys.items()),
}
"""The conditions of rules; the last call is the one to decide, which is denied if the condition holds."""


def _test(name: str, *args: Any) -> _Test:
    return partial(_TESTS[name], *args)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool) or is_number(value) or (isinstance(value, str) and len(value) <= MAX_VALUE_LENGTH)


def _key(value: Any) -> tuple[str, Any]:
    """Return the key by which conditions compare values: True is not 1, and 1 equals 1.0."""
    if is_number(value):
        return ("number", value)
    return (type(value).__name__, value if isinstance(value, str | bool) else repr(value))
