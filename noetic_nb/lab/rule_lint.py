"""Look rules over: what never happens, what always happens, what is misspelt, and what two rules make of each other.

Some findings come from reading the rules, some from asking them about recorded runs. What follows from data holds for that
data: a rule that never fires on it may be the one that is needed tomorrow.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from noetic_nb.lab.recorded_calls import Moment, moments
from noetic_nb.lab.rule_lint_pairs import Solo, pair_findings
from noetic_nb.lab.rule_lint_text import Reading, read_rule
from noetic_nb.lab.rule_lint_words import LintCode, LintFinding
from noetic_nb.lab.rule_trial import as_snapshot, try_rules
from noetic_nb.names import looks_alike, nearest, skeleton
from noetic_nb.runs import Run
from noetic_nb.steering import RuleSnapshot, SteeringRule
from noetic_nb.steering.evaluation.evaluate import Policy

__all__ = ["LintCode", "LintFinding", "lint"]

# Fewer than these are an accident rather than a pattern.
ENOUGH: Final = 5
# A response takes seconds; what a rule adds to each call should not be felt. Mean over the data, milliseconds.
SLOW_MS: Final = 5.0
# One call this long is a finding of the layer itself.
STUCK_MS: Final = 50.0

Schemas: TypeAlias = dict[str, frozenset[str] | None]
"""The arguments of each tool; None where they are not known."""


def _schemas(tools: Any) -> Schemas:
    """Return the argument names of tools given as records, specs, schemas by name, or names."""
    if isinstance(tools, Mapping):
        return {str(name): _properties(schema) for name, schema in tools.items()}
    found: Schemas = {}
    for tool in tools:
        spec = getattr(tool, "spec", tool)
        name = spec if isinstance(spec, str) else str(spec.name)
        found[name] = _properties(getattr(spec, "parameters", None))
    return found


def _properties(schema: Any) -> frozenset[str] | None:
    if not isinstance(schema, Mapping):
        return None if schema is None else frozenset(map(str, schema))
    properties = schema.get("properties")
    # A schema that leaves room for more says nothing about what else there may be.
    return (
        frozenset(properties)
        if isinstance(properties, Mapping) and schema.get("additionalProperties") is not True
        else None
    )


def _solo(rule: SteeringRule, found: Sequence[Moment], policy: Policy) -> Solo:
    """Ask one rule alone, about every moment at which it would be asked."""
    # Where a rule lets pass can only be seen by letting it deny.
    asked = rule.model_copy(update={"action": "deny"}) if rule.action == "allow" else rule
    snapshot = RuleSnapshot(0, (asked,))
    where = [
        place
        for place, moment in enumerate(found)
        if snapshot.applicable(moment.point, getattr(moment.params, "tool_name", None))
    ]
    start = time.perf_counter()
    verdicts = try_rules(snapshot, [found[place] for place in where], policy=policy)
    spent = (time.perf_counter() - start) * 1e3
    return Solo(rule, where, verdicts, spent / len(where) if where else 0.0)


def _on_data(solo: Solo) -> Iterable[LintFinding]:
    rule = solo.rule
    errors = [verdict.error for verdict in solo.verdicts if verdict.error is not None]
    if errors:
        yield LintFinding(
            rule.id,
            "raises",
            f"It fails on {len(errors)} of {len(solo.where)} recorded moments: {errors[0]}",
            "Mend it.",
        )
        return
    if solo.unasked:
        return
    fired = len(solo.fired)
    if not solo.where:
        tools = ", ".join(rule.tools or ("any tool",))
        yield LintFinding(
            rule.id,
            "never_fires",
            f"Nothing it is about was recorded ({tools}).",
            "Look at its tools, or record runs with them.",
        )
    elif fired == 0:
        yield LintFinding(
            rule.id,
            "never_fires",
            f"It has nothing against any of {len(solo.where)} recorded moments."
            if rule.action != "allow"
            else f"Its condition is true of none of {len(solo.where)} recorded moments.",
            "Look at its condition, or record a run that it is meant for.",
        )
    elif fired == len(solo.where) >= ENOUGH and not _is_ban(rule) and rule.action != "allow":
        yield LintFinding(
            rule.id,
            "always_fires",
            f"It is against all of {fired} recorded moments.",
            "Look at its condition; to forbid a tool, say so: rules.at_most(0, tool).",
        )
    if solo.mean_ms > SLOW_MS or (solo.mean_ms * len(solo.where) > STUCK_MS and len(solo.where) == 1):
        yield LintFinding(
            rule.id,
            "slow",
            f"It takes {solo.mean_ms:.1f} ms a call, during which nothing else can run.",
            "Do the work once, outside of the rule.",
        )


def _is_ban(rule: SteeringRule) -> bool:
    return rule.sequence is not None and rule.sequence.kind == "at_most" and rule.sequence.count == 0


def _on_text(rule: SteeringRule, reading: Reading, schemas: Schemas) -> Iterable[LintFinding]:
    if reading.silent:
        yield LintFinding(
            rule.id,
            "missing_guidance",
            "It keeps something from happening and does not say why.",
            "Give it guidance: the model will otherwise try again.",
        )
    for what in dict.fromkeys(reading.impure):
        yield LintFinding(
            rule.id,
            "impure",
            f"It does more than decide: {what}.",
            "Decide from the call and its history only; time is in call.ctx.clock, the past in call.history.",
        )
    if not schemas:
        return
    known = {skeleton(name): name for name in schemas}
    for name in sorted({*(rule.tools or ()), *reading.tools}):
        if skeleton(name) not in known:
            near = nearest(name, schemas)
            fix = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(schemas))}."
            yield LintFinding(rule.id, "unknown_tool", f"There is no tool {name!r}.", fix)
        elif looks_alike(name, schemas) is not None and name not in schemas:
            twin = looks_alike(name, schemas)
            yield LintFinding(
                rule.id, "unknown_tool", f"{name!r} only looks like the tool {twin!r}.", f"Write {twin!r}."
            )
    about = [known[skeleton(name)] for name in (*(rule.tools or ()), *reading.about) if skeleton(name) in known]
    arguments = [schemas[name] for name in about or schemas]
    if any(properties is None for properties in arguments) or "before_tool_call" not in rule.applies_to:
        return
    possible = frozenset().union(*[properties for properties in arguments if properties is not None])
    for argument in sorted(reading.arguments - possible):
        near = nearest(argument, possible)
        fix = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(possible)) or 'none'}."
        whose = ", ".join(sorted(set(about))) or "any tool"
        yield LintFinding(rule.id, "unknown_argument", f"{argument!r} is no argument of {whose}.", fix)


def lint(
    rules: Any,
    runs: Run | Iterable[Run] = (),
    *,
    tools: Any = (),
    only: Iterable[LintCode] | None = None,
) -> tuple[LintFinding, ...]:
    """Look rules over.

    Parameters
    ----------
    rules : RuleBook or iterable of rules
        Disabled rules are left out.
    runs : Run or iterable of Run, optional
        Recorded runs; without them only what can be read from the rules is found.
    tools : iterable of Tool, ToolSpec or str, or mapping of str to JSON Schema, optional
        What the agent has; without them tools and arguments are not checked.
    only : iterable of str, optional
        Only findings with these codes.

    Returns
    -------
    tuple of LintFinding
        In the order of the rules. Each says which rule, why, and what to do.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> _ = rules.when("tool.args.amont > 3", id="large", tools="pay", guidance="Too much.")
    >>> [str(finding) for finding in lint(rules, tools={"pay": {"properties": {"amount": {}}}})]
    ["large: unknown_argument: 'amont' is no argument of pay. Did you mean 'amount'?"]
    """
    snapshot = as_snapshot(rules)
    enabled = [rule for rule in snapshot if rule.enabled]
    found_moments = moments(runs)
    # A failing rule must not look like one that denies.
    policy = Policy(on_error="allow")
    schemas = _schemas(tools)
    solos = [_solo(rule, found_moments, policy) for rule in enabled] if found_moments else []
    found: list[LintFinding] = []
    for place, rule in enumerate(enabled):
        found += _on_text(rule, read_rule(rule), schemas)
        if solos:
            found += _on_data(solos[place])
    found += pair_findings(enabled, solos)
    order = {rule.id: place for place, rule in enumerate(enabled)}
    wanted = None if only is None else frozenset(only)
    kept = [finding for finding in found if wanted is None or finding.code in wanted]
    return tuple(sorted(kept, key=lambda finding: order[finding.rule_id]))
