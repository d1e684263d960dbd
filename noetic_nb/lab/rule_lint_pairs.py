"""What two rules make of each other: one that an earlier one leaves nothing to do, two between which nothing passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from noetic_nb.lab.rule_lint_words import LintFinding
from noetic_nb.lab.rule_trial import Verdict
from noetic_nb.memory.steering_decision import SteeringAction
from noetic_nb.names import skeleton
from noetic_nb.steering import SteeringRule

__all__ = ["Solo", "pair_findings"]

# Two rules that happen to share out a handful of calls do not contradict each other.
ENOUGH: Final = 5


@dataclass(slots=True)
class Solo:
    """One rule asked alone: at which moments, and what it said."""

    rule: SteeringRule
    where: Sequence[int]
    verdicts: Sequence[Verdict]
    mean_ms: float
    fired: frozenset[int] = field(init=False)
    denied: frozenset[int] = field(init=False)
    unasked: bool = field(init=False)

    def __post_init__(self) -> None:
        pairs = list(zip(self.where, self.verdicts, strict=True))
        self.fired = frozenset([at for at, verdict in pairs if verdict.decision.action is not SteeringAction.ALLOW])
        denies = self.rule.action != "allow"
        self.denied = frozenset(
            [at for at, verdict in pairs if denies and verdict.decision.action is SteeringAction.DENY]
        )
        self.unasked = self.rule.llm_eval is not None


def _tools(rule: SteeringRule) -> frozenset[str] | None:
    return None if rule.tools is None else frozenset(map(skeleton, rule.tools))


def _covers(one: SteeringRule, other: SteeringRule) -> bool:
    """Tell whether a rule is asked wherever another one is."""
    mine, theirs = _tools(one), _tools(other)
    return set(other.applies_to) <= set(one.applies_to) and (mine is None or (theirs is not None and theirs <= mine))


def _denies_all(rule: SteeringRule) -> bool:
    if rule.action not in (None, "deny") or rule.llm_eval is not None:
        return False
    sentence = rule.sequence
    return (rule.when or "").strip() == "true" or (
        sentence is not None and sentence.kind == "at_most" and sentence.count == 0
    )


def _shadow(earlier: SteeringRule, later: SteeringRule, solos: tuple[Solo, Solo] | None) -> bool:
    if _denies_all(earlier) and _covers(earlier, later):
        return True
    if solos is None:
        return False
    first, second = solos
    # One moment that both are against is an accident, unless they say the same.
    enough = 1 if _same(earlier, later) else 2
    return later.action != "allow" and len(second.fired) >= enough and second.fired <= first.denied


def _same(one: SteeringRule, other: SteeringRule) -> bool:
    return (one.when, one.sequence, one.predicate) == (other.when, other.sequence, other.predicate)


def _opposed(one: SteeringRule, other: SteeringRule) -> str | None:
    """Return why no call can satisfy two sentences, or a sentence and a ban."""
    first, second = one.sequence, other.sequence
    if first is None or second is None:
        return None
    mine, theirs = _tools(one) or frozenset(), _tools(other) or frozenset()
    before = frozenset(map(skeleton, first.others))
    if first.kind == "only_after" and second.kind == "never_after" and mine & theirs:
        both = before & frozenset(map(skeleton, second.others))
        return f"one asks for {', '.join(sorted(both))} first, and the other forbids it" if both else None
    if first.kind == "only_after" and _denies_all(other) and before & theirs:
        return f"one asks for {', '.join(sorted(before & theirs))} first, which the other never lets happen"
    if first.kind == "only_after" and second.kind == "only_after" and mine & frozenset(map(skeleton, second.others)):
        return "each waits for the other" if theirs & before else None
    return None


def _contradicts(one: SteeringRule, other: SteeringRule, solos: tuple[Solo, Solo] | None) -> str | None:
    why = _opposed(one, other) or _opposed(other, one)
    if why is not None or solos is None:
        return why
    first, second = solos
    if one.action == "allow" or other.action == "allow":
        allowed, denied = (first.fired, second.denied) if one.action == "allow" else (second.fired, first.denied)
        return "one says it may happen, the other denies it, and a deny always wins" if allowed & denied else None
    shared = frozenset(first.where) & frozenset(second.where)
    if len(shared) < ENOUGH or not first.denied or not second.denied:
        return None
    parts = first.denied & shared, second.denied & shared
    if parts[0] and parts[1] and parts[0] | parts[1] == shared and not parts[0] & parts[1]:
        return f"between them nothing passes: each of {len(shared)} recorded moments is denied by exactly one of them"
    return None


def pair_findings(rules: Sequence[SteeringRule], solos: Sequence[Solo]) -> Iterable[LintFinding]:
    """Yield what is wrong between rules; a rule that is shadowed is not also said to contradict."""
    for place, later in enumerate(rules):
        shadowed = False
        for before, earlier in enumerate(rules[:place]):
            pair = (solos[before], solos[place]) if solos else None
            if not shadowed and _shadow(earlier, later, pair):
                shadowed = True
                yield LintFinding(
                    later.id,
                    "shadowed",
                    f"Whatever it is against is denied by {earlier.id!r} before it is asked.",
                    f"Remove it, or move it before {earlier.id!r}.",
                )
                continue
            why = _contradicts(earlier, later, pair)
            if why is not None:
                yield LintFinding(
                    later.id, "contradiction", f"It stands against {earlier.id!r}: {why}.", "Decide which one is meant."
                )
