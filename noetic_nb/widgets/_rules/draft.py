"""A rule as the fields of an editor, and back. The fields are checked where rules are checked, not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._predicates.sequence_rules import sequence_rule
from noetic_nb.steering._rules.rule import DEFAULT_JUDGE_MODEL, SequenceRule
from noetic_nb.widgets._rules.rule_fields import FORMS, as_count, as_names, as_text, fields_of, names_text

_TEMPLATE: Final = 'def {name}(call):\n    if call.tool_name == "...":\n        return deny("Say why.")\n'


@dataclass(frozen=True, slots=True)
class Draft:
    """The contents of the fields of one rule, all as text."""

    form: str
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Source, condition or prompt; empty where the form has none."""
        return self.values.get("text", "")

    def changed(self, values: Mapping[str, object]) -> Draft:
        """Return it with other values in some fields.

        Raises `NoeticConfigError` ``INVALID_FIELD`` for a field that the form does not have, or that holds no text.
        """
        for name in values:
            if name not in self.values:
                raise NoeticConfigError(
                    "INVALID_FIELD", "The rule has no such field.", given=name, hint=f"It has {', '.join(self.values)}."
                )
        return replace(self, values={**self.values, **{name: as_text(value, name) for name, value in values.items()}})


def form_of(rule: SteeringRule) -> str:
    """Return the form as the editor has it: the kind of a sequence rule, ``"judge"`` where there is a judge.

    Examples
    --------
    >>> rules = RuleBook()
    >>> form_of(rules.at_most(3, "search")), form_of(rules.judge("Kind?", id="kind", when="true"))
    ('at_most', 'judge')
    """
    if isinstance(rule.decider, SequenceRule):
        return rule.decider.kind
    if rule.form == "none":  # nothing decides it yet: a function may
        return "python"
    return "judge" if rule.form == "cel" and rule.llm_eval is not None else rule.form


def draft_of(rule: SteeringRule) -> Draft:
    """Return a rule as an editor shows it.

    Examples
    --------
    >>> rule = SteeringRule(id="r", applies_to="before_tool_call", when="tool.name == 'pay'", action="ask")
    >>> draft_of(rule).text, draft_of(rule).values["action"]
    ("tool.name == 'pay'", 'ask')
    """
    form, sequence, judge = form_of(rule), rule.sequence, rule.llm_eval
    found: dict[str, str] = {
        "on": ",".join(sorted(rule.applies_to, reverse=True)),
        "tools": names_text(rule.tools),
        "action": rule.action or "deny",
        "guidance": rule.guidance or "",
        "text": rule.source or "",
    }
    if form == "cel":
        found["text"] = rule.when or ""
    elif form == "judge" and judge is not None:
        found |= {"text": judge.prompt, "mode": judge.mode, "model": judge.model, "condition": rule.when or ""}
    elif sequence is not None:
        found |= {name: names_text(getattr(sequence, name)) for name in ("others", "args", "trust")}
        found["count"] = "" if sequence.count is None else str(sequence.count)
    return Draft(form, {each.name: found[each.name] for each in fields_of(form)})


def rule_of(rulebook: RuleBook, rule: SteeringRule, draft: Draft) -> SteeringRule:
    """Return the rule that the fields describe; it is not put into the book.

    Raises `NoeticConfigError` ``RULE_DOES_NOT_COMPILE`` with a `line`, ``INVALID_RULE`` or ``INVALID_FIELD``.
    """
    values = draft.values
    fields: dict[str, Any] = {name: getattr(rule, name) for name in type(rule).model_fields}
    if "on" in values:
        fields["applies_to"] = as_names(values["on"])
    if "tools" in values:
        fields["tools"] = as_names(values["tools"]) or None
    if "action" in values:
        # "deny" is what no action means: a rule that names none is not changed by being looked at.
        action = None if rule.action is None and values["action"] == "deny" else values["action"]
        fields |= {"action": action, "guidance": values["guidance"] or None}
    if rule.sequence is not None:
        fields["sequence"] = {
            "kind": rule.sequence.kind,
            "count": as_count(values["count"]) if "count" in values else None,
            **{name: as_names(values.get(name, "")) for name in ("others", "args", "trust")},
        }
    elif draft.form == "cel":
        fields["when"] = draft.text
    elif draft.form == "judge":
        judge = {"prompt": draft.text, "mode": values["mode"], "model": values["model"].strip()}
        fields |= {"when": values["condition"].strip() or None, "llm_eval": judge}
    # A text that nobody changed need not be known: a rule typed at a prompt has none.
    elif draft.text != (rule.source or ""):
        is_there = rule.id in rulebook and rulebook[rule.id].form in ("python", "none")
        new = (rulebook if is_there else RuleBook([rule])).draft(rule.id, draft.text)
        fields |= {"predicate": new.predicate, "source": new.source}
    return SteeringRule(**fields)


def new_rule(rule_id: str, form: str, *, tool: str = "tool") -> SteeringRule:
    """Return a rule to begin with; it objects to nothing until it is edited and enabled.

    Raises `NoeticConfigError` ``INVALID_RULE`` for an empty name, ``INVALID_FORM`` for a form that is none of `FORMS`.
    """
    base: dict[str, Any] = {"id": rule_id, "applies_to": "before_tool_call", "enabled": False}
    match form:
        case "cel":
            return SteeringRule(**base, when="tool.name == '...'", guidance="Say why.")
        case "judge":
            judge = {"prompt": "Is this call what the user asked for?", "mode": "async", "model": DEFAULT_JUDGE_MODEL}
            return SteeringRule(**base, llm_eval=judge)
        case "python":
            name = rule_id if rule_id.isidentifier() else "rule"
            blank = SteeringRule(**base, predicate=lambda call: None)
            return RuleBook([blank]).draft(rule_id, _TEMPLATE.format(name=name))
        case "at_most":
            rule = sequence_rule(form, tool, count=3, id=rule_id)
        case "never_after" | "only_after":
            rule = sequence_rule(form, tool, others="another_tool", id=rule_id)
        case "only_from_user":
            rule = sequence_rule(form, tool, id=rule_id)
        case _:
            raise NoeticConfigError(
                "INVALID_FORM", "There is no such form of a rule.", given=form, hint=f"Forms are {', '.join(FORMS)}."
            )
    return rule.model_copy(update={"enabled": False})
