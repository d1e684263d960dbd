"""Rules in words and as a table: what the editor's list says, and what a saved notebook keeps of it."""

from __future__ import annotations

from typing import Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook, RuleChange, SteeringRule
from noetic_nb.steering.rules.rule_text import rule_text
from noetic_nb.widgets.base.assets import static_frame, style
from noetic_nb.widgets.rules.rule_hits import RuleHits

__all__ = ["EMPTY", "change_label", "refusal", "rule_label", "rules_html"]

# A saved notebook shows a rule's text, not a library pasted into it.
PAGE_LENGTH: Final = 20_000
EMPTY: Final = "No rule yet. A function decorated with @rules.rule(...) appears here."
COLUMNS: Final = ("Rule", "Where", "Enabled", "Hits", "Text")


def rule_label(at: int, rule: SteeringRule, hits: RuleHits) -> str:
    """Return a rule's line in the list; what a narrow list cuts off is where the rule is asked, not what it did."""
    state = "" if rule.enabled else " (off)"
    name = f" · {plain(rule.name)}" if rule.name else ""
    found = hits.words(rule.id)
    return f"{at}. {plain(rule.id)}{name}{state}{f' · {found}' if found else ''} · {_places(rule)}"


def change_label(change: RuleChange) -> str:
    """Return a change's line in the history."""
    return f"version {change.version} · {change.change} {plain(change.rule_id)}"


def _places(rule: SteeringRule) -> str:
    points = ", ".join(point.replace("_", " ") for point in rule.applies_to)
    tools = "" if rule.tools is None else f": {plain(', '.join(plain(tool) for tool in rule.tools))}"
    return points + tools


def rules_html(rulebook: RuleBook, hits: RuleHits) -> str:
    """Return the rules and their texts as HTML without scripts."""
    rows = "".join(
        f'<tr><th scope="row">{at}. {escape(plain(rule.id))}</th><td class="nn-text">{escape(_places(rule))}</td>'
        f'<td class="nn-text">{"on" if rule.enabled else "off"}</td>'
        f'<td class="nn-text">{escape(hits.words(rule.id))}</td>'
        f'<td class="nn-text"><pre class="nn-code">{escape(plain(rule_text(rule), PAGE_LENGTH))}</pre></td></tr>'
        for at, rule in enumerate(rulebook, start=1)
    )
    head = "".join(f'<th scope="col" class="nn-text">{name}</th>' for name in COLUMNS)
    table = f'<table class="nn-table"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    title = f'<p class="nn-title">Rules, version {rulebook.version}</p>'
    shown = f'<div class="nn-scroll">{table}</div>' if rows else f'<p class="nn-empty">{escape(EMPTY)}</p>'
    return static_frame(title + shown, style("rules/rule_editor"))


def refusal(error: NoeticConfigError, text: str) -> str:
    """Return why an edit was not applied, with the line that failed."""
    line = error.facts.get("line")
    lines = text.splitlines()
    place = (
        f"\n{line:>4} | {plain(lines[line - 1], TEXT_LENGTH)}"
        if isinstance(line, int) and 0 < line <= len(lines)
        else ""
    )
    hint = f" {plain(error.hint, TEXT_LENGTH)}" if error.hint else ""
    return f"Not applied; the last good version stays in force. {plain(error.what, TEXT_LENGTH)}.{hint}{place}"
