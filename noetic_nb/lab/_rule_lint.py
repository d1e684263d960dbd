"""Check rules: conditions that never or always hold, misspelt names, and conflicts between two rules.

Some findings come from the text of the rules, some from evaluating them on recorded runs. The latter only hold for that
data: a rule that never fires on it may be needed tomorrow.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from noetic_nb._core.names import looks_alike, skeleton
from noetic_nb.lab._checks import each_run
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of, schemas_of, tools_of
from noetic_nb.lab._rule_trial import TrialResult, as_snapshot, check_order, try_rules
from noetic_nb.memory._steering_decision import SteeringAction
from noetic_nb.runs import Run
from noetic_nb.steering import SequenceRule, SteeringRule
from noetic_nb.steering._evaluation.evaluate import Policy, RuleSnapshot
from noetic_nb.steering._evaluation.rule_reading import (
    KnownTools,
    StaticFacts,
    read_rule,
    unknown_targets,
)
from noetic_nb.steering._predicates.sequence_rules import has_argument
from noetic_nb.steering._rules.rule import CelCondition

if TYPE_CHECKING:
    import pandas

# Fewer calls than these may be a coincidence.
ENOUGH: Final = 5
# A response takes seconds, so the time that a rule adds to a call should be imperceptible. Mean in milliseconds.
SLOW_MS: Final = 5.0

LintCode: TypeAlias = Literal[
    "never_fires",
    "always_fires",
    "shadowed",
    "missing_guidance",
    "unknown_tool",
    "unknown_argument",
    "contradiction",
    "impure",
    "slow",
    "raises",
    "redundant",
    "overlap",
    "unread_tool",
    "unread_argument",
]
_OF_TEXT: Final = frozenset(
    {"missing_guidance", "unknown_tool", "unknown_argument", "impure", "unread_tool", "unread_argument"}
)
"""Findings that need no evaluation."""
NOTES: Final = frozenset({"overlap", "unread_tool", "unread_argument"})
"""Findings that are not mistakes in a rule."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A rule, its problem, the reason, and the remedy; without a rule if no rule is about a tool or its arguments."""

    rule_id: str
    code: LintCode
    why: str
    fix: str

    def __str__(self) -> str:
        return ": ".join([*([self.rule_id] if self.rule_id else ()), self.code, f"{self.why} {self.fix}"])


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """The effect of a rule on recorded calls: alone, and with the others."""

    rule_id: str
    calls: int
    """The number of calls to which it applies."""
    fires: int
    """The number of these that it would stop alone."""
    decides: int
    """The number of calls whose decision names it."""
    changes: int
    """The number of these that are decided differently without the rules that their decision names."""
    others: Mapping[str, int]
    """The rules that decide the other calls then, with counts."""


class LintFindings(tuple[LintFinding, ...]):
    """The findings, as a tuple; `effects` has the effect of each rule on the runs, in the order of the rules."""

    effects: tuple[RuleEffect, ...] = ()

    def to_frame(self) -> pandas.DataFrame:
        """Return the effects as a table: ``rule, calls, fires, decides, changes, others``."""
        import pandas

        rows = [(each.rule_id, *astuple(each)[1:]) for each in self.effects]
        return pandas.DataFrame(rows, columns=["rule", "calls", "fires", "decides", "changes", "others"])


@dataclass(slots=True)
class _RuleResults:
    """The result of evaluating one rule alone: the recorded calls it matched, and its decisions."""

    rule: SteeringRule
    places: Sequence[int]
    results: Sequence[TrialResult]
    mean_ms: float
    fired: frozenset[int] = field(init=False)
    denied: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        actions = [(at, found.decision.action) for at, found in zip(self.places, self.results, strict=True)]
        self.fired = frozenset([at for at, action in actions if action is not SteeringAction.ALLOW])
        denies = self.rule.action != "allow"
        self.denied = frozenset([at for at, action in actions if denies and action is SteeringAction.DENY])


def _evaluate_alone(rule: SteeringRule, calls: Sequence[RecordedCall], policy: Policy) -> _RuleResults:
    """Evaluate one rule alone, on every call to which it applies."""
    # Turn an "allow" rule into a denying one, to see where it matches.
    denying = rule.model_copy(update={"action": "deny"}) if rule.action == "allow" else rule
    snapshot = RuleSnapshot(0, (denying,))
    places = [place for place, call in enumerate(calls) if snapshot.applicable(call.point, call.tool_name)]
    start = time.perf_counter()
    results = try_rules(snapshot, [calls[place] for place in places], policy=policy)
    spent = (time.perf_counter() - start) * 1e3
    return _RuleResults(rule, places, results, spent / len(places) if places else 0.0)


def _data_findings(results: _RuleResults) -> Iterator[LintFinding]:
    rule, count = results.rule, len(results.places)
    errors = [found.error for found in results.results if found.error is not None]
    if errors:
        why = f"It fails on {len(errors)} of {count} recorded calls: {errors[0]}"
        yield LintFinding(rule.id, "raises", why, "Correct it.")
        return
    if rule.llm_eval is not None:
        return
    fired = len(results.fired)
    if not count:
        tools = ", ".join(rule.tools or ("any tool",))
        why = f"No recorded call matches it ({tools})."
        yield LintFinding(rule.id, "never_fires", why, "Check its tools, or record runs with them.")
    elif fired == 0:
        why = (
            f"It denies none of {count} recorded calls."
            if rule.action != "allow"
            else f"Its condition is true of none of {count} recorded calls."
        )
        fix = "Look at its condition, or record a run that it is meant for."
        yield LintFinding(rule.id, "never_fires", why, fix)
    elif fired == count >= ENOUGH and not _is_ban(rule) and rule.action != "allow":
        fix = "Look at its condition; to forbid a tool, write rules.at_most(0, tool)."
        yield LintFinding(rule.id, "always_fires", f"It fires on all of {fired} recorded calls.", fix)
    if results.mean_ms > SLOW_MS:
        why = f"It takes {results.mean_ms:.1f} ms a call, during which nothing else can run."
        yield LintFinding(rule.id, "slow", why, "Do the work once, outside of the rule.")


def _is_ban(rule: SteeringRule) -> bool:
    match rule.decider:
        case SequenceRule(kind="at_most", count=0):
            return True
    return False


def _text_findings(rule: SteeringRule, facts: StaticFacts, tools: KnownTools) -> Iterator[LintFinding]:
    if facts.silent:
        why = "It denies calls without a reason."
        yield LintFinding(rule.id, "missing_guidance", why, "Give it guidance: the model will otherwise try again.")
    for what in dict.fromkeys(facts.impure):
        fix = "Decide from the call and its history only; time is in call.ctx.clock, the past in call.history."
        yield LintFinding(rule.id, "impure", f"It does more than decide: {what}.", fix)
    for target in unknown_targets([rule], tools, guesses=True) if tools else ():
        yield LintFinding(rule.id, target.code, target.why, target.fix)
    for name in sorted({*(rule.tools or ()), *facts.tools} - tools.keys()):
        if (twin := looks_alike(name, tools)) is not None:
            yield LintFinding(
                rule.id, "unknown_tool", f"{name!r} only looks like the tool {twin!r}.", f"Write {twin!r}."
            )


def _tools(rule: SteeringRule) -> frozenset[str] | None:
    return None if rule.tools is None else frozenset(map(skeleton, rule.tools))


def _covers(one: SteeringRule, other: SteeringRule) -> bool:
    """Return whether a rule is evaluated wherever another one is."""
    mine, theirs = _tools(one), _tools(other)
    return set(other.applies_to) <= set(one.applies_to) and (mine is None or (theirs is not None and theirs <= mine))


def _denies_all(rule: SteeringRule) -> bool:
    if rule.action not in (None, "deny") or rule.llm_eval is not None:
        return False
    match rule.decider:
        case CelCondition(text):
            return text.strip() == "true"
    return _is_ban(rule)


_Pair: TypeAlias = tuple[_RuleResults, _RuleResults]


def _shadows(earlier: SteeringRule, later: SteeringRule, on_data: _Pair | None) -> bool:
    if _denies_all(earlier) and _covers(earlier, later):
        return True
    if on_data is None:
        return False
    first, second = on_data
    # One call on which both fire may be a coincidence, unless both have the same decider.
    enough = 1 if earlier.decider == later.decider else 2
    return later.action != "allow" and len(second.fired) >= enough and second.fired <= first.denied


def _opposed(one: SteeringRule, other: SteeringRule) -> str | None:
    """Return why no call can satisfy two sequence rules, or one of them and a ban."""
    first, second = one.decider, other.decider
    if not isinstance(first, SequenceRule) or not isinstance(second, SequenceRule):
        return None
    mine, theirs = _tools(one) or frozenset(), _tools(other) or frozenset()
    before = frozenset(map(skeleton, first.others))
    if first.kind == "only_after" and second.kind == "never_after" and mine & theirs:
        both = before & frozenset(map(skeleton, second.others))
        return f"one requires {', '.join(sorted(both))} first, and the other forbids it" if both else None
    if first.kind == "only_after" and _denies_all(other) and before & theirs:
        return f"one requires {', '.join(sorted(before & theirs))} first, which the other never allows"
    if first.kind == "only_after" and second.kind == "only_after" and mine & frozenset(map(skeleton, second.others)):
        return "each waits for the other" if theirs & before else None
    return None


def _contradicts(one: SteeringRule, other: SteeringRule, on_data: _Pair | None) -> str | None:
    why = _opposed(one, other) or _opposed(other, one)
    if why is not None or on_data is None:
        return why
    first, second = on_data
    if one.action == "allow" or other.action == "allow":
        allowed, denied = (first.fired, second.denied) if one.action == "allow" else (second.fired, first.denied)
        return "one allows it, the other denies it, and a deny always wins" if allowed & denied else None
    shared = frozenset(first.places) & frozenset(second.places)
    if len(shared) < ENOUGH or not first.denied or not second.denied:
        return None
    parts = first.denied & shared, second.denied & shared
    if parts[0] and parts[1] and parts[0] | parts[1] == shared and not parts[0] & parts[1]:
        return f"together they deny everything: each of {len(shared)} recorded calls is denied by exactly one of them"
    return None


def _pair_findings(rules: Sequence[SteeringRule], alone: Sequence[_RuleResults]) -> Iterator[LintFinding]:
    """Yield the problems between rules; a shadowed rule is not reported as a contradiction as well."""
    for place, later in enumerate(rules):
        shadowed = False
        for before, earlier in enumerate(rules[:place]):
            pair = (alone[before], alone[place]) if alone else None
            if not shadowed and _shadows(earlier, later, pair):
                shadowed = True
                why = f"Whatever it would deny is denied by {earlier.id!r} first."
                yield LintFinding(later.id, "shadowed", why, f"Remove it, or move it before {earlier.id!r}.")
                continue
            if (opposed := _contradicts(earlier, later, pair)) is not None:
                why = f"It contradicts {earlier.id!r}: {opposed}."
                yield LintFinding(later.id, "contradiction", why, "Keep the one that you mean.")


def _effects(
    snapshot: RuleSnapshot, calls: Sequence[RecordedCall], alone: Sequence[_RuleResults]
) -> Iterator[RuleEffect]:
    """Yield the effect of each rule by repeating each decision without the rules that it names."""
    policy = Policy(on_error="allow")
    named: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    actions: list[SteeringAction] = []
    for place, result in enumerate(try_rules(snapshot, calls, policy=policy)):
        actions.append(result.decision.action)
        if result.decision.action is not SteeringAction.ALLOW:
            named[result.decision.rule_ids].append(place)
    decides, changes = Counter[str](), Counter[str]()
    others: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for causes, places in named.items():
        without = RuleSnapshot(0, tuple([rule for rule in snapshot if rule.id not in causes]))
        again = try_rules(without, [calls[place] for place in places], policy=policy)
        for place, result in zip(places, again, strict=True):
            decides.update(causes)
            if result.decision.action is not actions[place]:
                changes.update(causes)
                continue
            for cause in causes:
                others[cause].update(result.decision.rule_ids)
    for one in alone:
        name = one.rule.id
        counts = len(one.places), len(one.fired), decides[name], changes[name]
        yield RuleEffect(name, *counts, dict(others[name].most_common()))


def _effect_findings(effects: Sequence[RuleEffect], found: Sequence[LintFinding]) -> Iterator[LintFinding]:
    """Yield the rules whose removal changes none, or only some, of the decisions that name them."""
    known = {finding.rule_id for finding in found if finding.code in ("shadowed", "raises")}
    for each in effects:
        if each.rule_id in known or not each.fires:
            continue
        stays = each.decides - each.changes
        named = ", ".join([f"{other!r} ({count})" for other, count in each.others.items()])
        if not each.changes and max(each.fires, each.decides) > 1:
            whose = f"{named} would decide them" if named else "other rules decide first"
            why = f"Without it no recorded decision changes: it stops {each.fires} calls, and {whose}."
            yield LintFinding(each.rule_id, "redundant", why, "Remove it, or look at the rules that overlap with it.")
        elif stays > 1:
            why = f"Of {each.decides} decisions that name it, {stays} stay without it: {named} would decide them."
            yield LintFinding(each.rule_id, "overlap", why, "Look at both: the model reads the reason of the first.")


def _looks_back(facts: StaticFacts, name: str) -> bool:
    """Tell whether a rule reads earlier calls of a tool, or trusts its results."""
    named = {*facts.tools, *facts.maybe, *facts.trusted, *[entry.rpartition(".")[0] for entry in facts.trusted]}
    return skeleton(name) in map(skeleton, named - facts.about)


def _is_about(rule: SteeringRule, facts: StaticFacts, name: str, schema: Any) -> bool:
    """Tell whether a rule decides about calls of a tool."""
    if "before_tool_call" not in rule.applies_to:
        return False
    if rule.tools is not None or facts.about:
        return skeleton(name) in map(skeleton, rule.tools or facts.about)
    arguments = facts.arguments | facts.demanded
    return facts.reads_all or not arguments or schema is None or any(has_argument(schema, path) for path in arguments)


def _unread(rules: Sequence[SteeringRule], tools: KnownTools) -> Iterator[LintFinding]:
    """Yield tools that no rule is about, and arguments that none of a tool's rules reads."""
    read = [(rule, read_rule(rule)) for rule in rules]
    for name, schema in sorted(tools.items()):
        about = [(rule, facts) for rule, facts in read if _is_about(rule, facts, name, schema)]
        back = [rule for rule, facts in read if _looks_back(facts, name)]
        if not about and not back:
            why = f"No rule is about {name}: every call of it passes."
            yield LintFinding("", "unread_tool", why, "Keep it so if it can do no harm, or write a rule.")
            continue
        # It is unknown which arguments of earlier calls a condition or a function reads.
        if any(facts.reads_all or _denies_all(rule) for rule, facts in about) or any(
            rule.form != "sequence" for rule in back
        ):
            continue
        paths = {path for _, facts in about for path in facts.arguments | facts.demanded}
        heads = {path.partition(".")[0] for path in paths} | paths
        unread = [argument for argument in (schema or {}).get("properties") or () if argument not in heads]
        if unread:
            why = f"No rule reads {', '.join(unread)} of {name}."
            yield LintFinding("", "unread_argument", why, "Keep it so if it can do no harm, or write a rule.")


def lint(
    rules: Any, runs: Run | Iterable[Run] = (), *, tools: Any = (), only: Iterable[LintCode] | None = None
) -> LintFindings:
    """Check rules for mistakes, and for tools, arguments and calls that they do not cover.

    Parameters
    ----------
    rules : RuleBook or iterable of rules
        Disabled rules are left out.
    runs : Run or iterable of Run, optional
        Recorded runs; without them, only findings from the text of the rules are possible.
    tools : iterable of callable, Tool, ToolSpec or str, or mapping of str to JSON Schema, optional
        The agent's tools. By default the tools that the runs say were offered, or else those of the agent that last
        used the rule book.
    only : iterable of str, optional
        Only findings with these codes; rules are evaluated on the runs only if one of these needs it.

    Returns
    -------
    tuple of LintFinding
        In the order of the rules, each with the rule, the reason, and the remedy; then unread tools and arguments. Its
        `effects` have the number of recorded decisions that change without each rule; `to_frame` has them as a table.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> _ = rules.when("tool.args.amont > 3", id="large", tools="pay", guidance="Too much.")
    >>> [str(finding) for finding in lint(rules, tools={"pay": {"properties": {"amount": {}}}})]
    ["large: unknown_argument: 'amont' is not an argument of pay. Did you mean 'amount'?"]
    """
    check_order("lint", rules, runs)
    enabled = [rule for rule in as_snapshot(rules) if rule.enabled]
    runs = tuple(each_run(runs, "Rules are tried on runs."))
    calls = calls_of(runs)
    known = schemas_of(tools) or tools_of(runs, called=False) or getattr(rules, "known_tools", {})
    wanted = None if only is None else frozenset(only)
    found: list[LintFinding] = []
    for rule in enabled:
        found += _text_findings(rule, read_rule(rule), known)
    effects: tuple[RuleEffect, ...] = ()
    if wanted is None or not wanted <= _OF_TEXT:
        # Errors allow the call here, so that a failing rule does not look like one that denies.
        alone = [_evaluate_alone(rule, calls, Policy(on_error="allow")) for rule in enabled] if calls else []
        for results in alone:
            found += _data_findings(results)
        found += _pair_findings(enabled, alone)
        effects = tuple(_effects(RuleSnapshot(0, tuple(enabled)), calls, alone)) if alone else ()
        found += _effect_findings(effects, found)
    order = {rule.id: place for place, rule in enumerate(enabled)}
    found.sort(key=lambda finding: order[finding.rule_id])
    # The arguments that a misspelt rule reads are only known once it is corrected.
    if not any(finding.code in ("unknown_tool", "unknown_argument") for finding in found):
        found += _unread(enabled, known)
    kept = LintFindings([finding for finding in found if wanted is None or finding.code in wanted])
    kept.effects = effects
    return kept
