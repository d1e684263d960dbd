"""A rule as text for people: the source of a predicate, or the data of every other rule as a rule file holds it."""

from __future__ import annotations

import json
from typing import Any

from noetic_nb.steering._rules.rule import PythonPredicate, SequenceRule, SteeringRule


def rule_data(rule: SteeringRule) -> dict[str, Any]:
    """Return a rule as plain data, in the keys of a rule file; a predicate is only named."""
    data: dict[str, Any] = {"id": rule.id}
    if rule.name is not None:
        data["name"] = rule.name
    data["on"] = list(rule.applies_to)
    if rule.tools is not None:
        data["tools"] = list(rule.tools)
    decider = rule.decider
    if isinstance(decider, PythonPredicate):
        data["python"] = rule.id
    for key in ("when", "action", "guidance", "isolate"):
        value = getattr(rule, key)
        if value is not None:
            data[key] = value
    if isinstance(decider, SequenceRule):
        if decider.kind == "only_from_user":
            data[decider.kind] = list(decider.args)
            if decider.trust:
                data["trust"] = list(decider.trust)
        else:
            data[decider.kind] = decider.count if decider.kind == "at_most" else list(decider.others)
    if rule.llm_eval is not None:
        data["judge"] = rule.llm_eval.model_dump()
    if rule.history:
        data["history"] = True
    if not rule.enabled:
        data["enabled"] = False
    return data


def rule_text(rule: SteeringRule) -> str:
    """Return the text of a rule."""
    # A predicate without its text (typed at a prompt) is shown as data, by its name.
    if rule.source is not None:
        return rule.source
    return json.dumps(rule_data(rule), ensure_ascii=False, indent=2)
