"""Rules in words and as a table: the lines of the editor's list, with hits, and what a saved notebook keeps of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, SteeringDecided
from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook, RuleChange, SteeringRule
from noetic_nb.steering.rules.rule_text import rule_text
from noetic_nb.widgets.base.assets import static_frame, style

__all__ = ["EMPTY", "RuleHits", "change_label", "refusal", "rule_label", "rules_html"]

# A saved notebook shows a rule's text, not a library pasted into it.
PAGE_LENGTH: Final = 20_000
EMPTY: Final = "No rule yet. A function decorated with @rules.rule(...) appears here."
COLUMNS: Final = ("Rule", "Where", "Enabled", "Hits", "Text")
_WORDS: Final = {"deny": "denied", "guide": "guided", "ask": "asked", "allow": "passed in spite of a failure"}


class RuleHits:
    """How often each rule decided something, by action; counted once for each event, however long the run is.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> hits = RuleHits([])
    >>> where = Where("t", "e", 1)
    >>> hits.take(SteeringDecided(where, 0.0, "steering", "before_tool_call", "pay", {}, "deny", None, ("large",), 0.1))
    True
    >>> hits.words("large"), hits.words("other")
    ('1 denied', '')
    """

    def __init__(self, runs: Any) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for run in runs:
            for event in tuple(run.events):
                self.take(event)

    def take(self, event: RunEvent) -> bool:
        """Count an event; returns whether it changed anything."""
        # A person's answer to a rule with the action "ask" is recorded too; it is not the rule's decision.
        if not isinstance(event, SteeringDecided) or not event.rule_ids or event.layer_id == "approval":
            return False
        for rule_id in event.rule_ids:
            self._counts[rule_id][event.action] += 1
        return True

    def words(self, rule_id: str) -> str:
        """Return a rule's hits for people; empty where it has none."""
        counts: Mapping[str, int] = self._counts.get(rule_id, {})
        return ", ".join(f"{counts[action]} {word}" for action, word in _WORDS.items() if counts.get(action))


def rule_label(at: int, rule: SteeringRule, hits: RuleHits) -> str:
    """Return a rule's line in the list; what a narrow list cuts off is where the rule applies, not what it did."""
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
