"""A rule as the fields of an editor, and back. What the fields hold is checked where rules are checked, not here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering.predicates.sequence_rules import describe_sequence
from noetic_nb.steering.rules.rule import DEFAULT_JUDGE_MODEL, CelCondition, LLMEval, SequenceRule

__all__ = ["NEW_FORMS", "Draft", "draft_of", "new_rule", "rule_of"]

NewForm: TypeAlias = Literal["python", "cel", "judge"]

NEW_FORMS: Final[dict[str, NewForm]] = {"Python": "python", "Condition (CEL)": "cel", "Judge": "judge"}
"""What a new rule may be, for people."""

_TEMPLATE: Final = 'def {name}(call):\n    if call.tool_name == "...":\n        return deny("Say why.")\n'


@dataclass(frozen=True, slots=True)
class Draft:
    """The fields of an editor: `text` is source, condition, prompt or sentence."""

    form: str
    text: str
    action: str = "deny"
    guidance: str = ""
    mode: str = "sync"
    model: str = ""
    condition: str = ""


def draft_of(rule: SteeringRule) -> Draft:
    """Return what an editor shows of a rule.

    Examples
    --------
    >>> rule = SteeringRule(id="r", applies_to="before_tool_call", when="tool.name == 'pay'", action="ask")
    >>> draft_of(rule).text, draft_of(rule).action
    ("tool.name == 'pay'", 'ask')
    """
    action, guidance = rule.action or "deny", rule.guidance or ""
    match rule.decider, rule.llm_eval:
        case CelCondition() | LLMEval(), LLMEval() as judge:
            return Draft("judge", judge.prompt, mode=judge.mode, model=judge.model, condition=rule.when or "")
        case CelCondition(text), _:
            return Draft("cel", text, action, guidance)
        case SequenceRule() as sequence, _:
            return Draft("sequence", describe_sequence(rule, sequence), action, guidance)
    return Draft("python", rule.source or "")


def rule_of(rulebook: RuleBook, rule: SteeringRule, draft: Draft) -> SteeringRule:
    """Return the rule that the fields describe; it is not put into the book.

    Raises `NoeticConfigError` ``RULE_DOES_NOT_COMPILE`` with a `line`, or ``INVALID_RULE``.
    """
    if draft.form == "python":
        if rule.id in rulebook:
            return rulebook.draft(rule.id, draft.text)
        return RuleBook([rule]).draft(rule.id, draft.text)
    fields: dict[str, Any] = {name: getattr(rule, name) for name in type(rule).model_fields}
    if draft.form == "judge":
        fields |= {
            "when": draft.condition.strip() or None,
            "llm_eval": {"prompt": draft.text, "mode": draft.mode, "model": draft.model.strip()},
        }
    else:
        fields |= {"action": draft.action, "guidance": draft.guidance or None}
        if draft.form == "cel":
            fields["when"] = draft.text
    return SteeringRule(**fields)


def new_rule(rule_id: str, form: NewForm) -> SteeringRule:
    """Return a rule to begin with; it objects to nothing until it is edited.

    Raises `NoeticConfigError` ``INVALID_RULE`` for an empty name.
    """
    if form == "cel":
        return SteeringRule(id=rule_id, applies_to="before_tool_call", when="tool.name == '...'", guidance="Say why.")
    if form == "judge":
        judge = {"prompt": "Is this call what the user asked for?", "mode": "async", "model": DEFAULT_JUDGE_MODEL}
        return SteeringRule(id=rule_id, applies_to="before_tool_call", llm_eval=judge)
    name = rule_id if rule_id.isidentifier() else "rule"
    base = SteeringRule(id=rule_id, applies_to="before_tool_call", predicate=lambda call: None)
    return RuleBook([base]).draft(rule_id, _TEMPLATE.format(name=name))
