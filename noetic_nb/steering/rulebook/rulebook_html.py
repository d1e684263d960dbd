"""A rule book as a table for notebooks: plain HTML, in which everything is text."""

from __future__ import annotations

from collections.abc import Iterable

from noetic_nb.markup import escape
from noetic_nb.steering.predicates.sequence_rules import words_of
from noetic_nb.steering.rules.rule import SteeringRule

__all__ = ["rules_table"]

# A table is read at a glance; the whole text is in the editor.
MAX_TEXT = 160


def _decides(rule: SteeringRule) -> str:
    parts = []
    if rule.predicate is not None:
        parts.append("Python")
    if rule.when is not None:
        parts.append(f"when {rule.when}")
    if rule.sequence is not None:
        parts.append(words_of(rule))
    if rule.llm_eval is not None:
        parts.append(f"{rule.llm_eval.model} judges: {rule.llm_eval.prompt}")
    elif rule.when is not None:
        parts.append(f"→ {rule.action or 'deny'}")
    text = " ".join(" ".join(parts).split())
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def rules_table(version: int, rules: Iterable[SteeringRule]) -> str:
    """Return rules in order, what they are about and what decides them.

    Examples
    --------
    >>> rule = SteeringRule(id="<b>", applies_to="before_tool_call", when="tool.name == 'pay'")
    >>> "<b>" in rules_table(1, [rule]), "&lt;b&gt;" in rules_table(1, [rule])
    (False, True)
    """
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:left">{escape(cell)}</td>'
            for cell in (
                place,
                rule.id,
                ", ".join(point.replace("_", " ") for point in rule.applies_to),
                "every tool" if rule.tools is None else ", ".join(rule.tools),
                _decides(rule),
                "" if rule.enabled else "off",
            )
        )
        + "</tr>"
        for place, rule in enumerate(rules, start=1)
    )
    names = ("", "Rule", "Where", "Tools", "Decides", "")
    head = "".join(f'<th style="text-align:left">{name}</th>' for name in names)
    body = rows or f'<tr><td colspan="{len(names)}">no rules yet</td></tr>'
    return f"<table><caption>Rule book, version {version}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
