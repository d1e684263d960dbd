"""The table of rules: one row per rule with its form, hooks, state, hits by turn, and version."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from noetic_nb.events import RunEvent, SteeringDecided
from noetic_nb.markup import escape, heading
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._rules.file_schema import rule_text
from noetic_nb.widgets._rules.draft import form_of
from noetic_nb.widgets._rules.rule_fields import FORMS
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed, table

# A saved notebook shows a rule's text, but not a whole library pasted into it.
PAGE_LENGTH: Final = 20_000
# A sparkline is as wide as a word; more bars than this would merge.
BARS: Final = 40
LEAST_BARS: Final = 8
EMPTY: Final = "No rule yet. A function decorated with @rules.rule(...) appears here."
SHOWN: Final = ("Rule", "Form", "Where", "Hits", "Version")
_WORDS: Final = {"deny": "denied", "guide": "guided", "ask": "asked", "allow": "passed in spite of a failure"}


class RuleHits:
    """How often each rule decided something in a part of the runs, by action and by turn.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> hits = RuleHits()
    >>> where = Where("t", "e", 2)
    >>> hits.take(SteeringDecided(where, 0.0, "steering", "before_tool_call", "pay", {}, "deny", None, ("large",), 0.1))
    ('large',)
    >>> hits.words("large"), hits.bars("large"), hits.words("other")
    ('1 denied', [0, 1], '')
    """

    def __init__(self, moment: Moment = EVERYTHING) -> None:
        self.moment = moment
        self.turns = 1
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._by_turn: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def take(self, event: RunEvent) -> tuple[str, ...]:
        """Count an event; returns the rules whose hits changed."""
        # A user's answer to a rule with the action "ask" is recorded as well, but is not the rule's decision.
        if not isinstance(event, SteeringDecided) or not event.rule_ids or event.layer_id == "approval":
            return ()
        if not self.moment.shows(event.where):
            return ()
        turn = max(1, event.where.turn)
        self.turns = max(self.turns, turn)
        for rule_id in event.rule_ids:
            self._counts[rule_id][event.action] += 1
            self._by_turn[rule_id][turn] += 1
        return tuple(event.rule_ids)

    def count(self, rule_id: str) -> int:
        """Return how often a rule decided something."""
        return sum(self._counts[rule_id].values()) if rule_id in self._counts else 0

    def words(self, rule_id: str) -> str:
        """Describe a rule's hits; empty if it has none."""
        counts = self._counts.get(rule_id, Counter())
        return ", ".join(f"{counts[action]} {word}" for action, word in _WORDS.items() if counts.get(action))

    @property
    def per(self) -> int:
        """The number of turns per bar."""
        per = 1
        while per * BARS < self.turns:
            per *= 2
        return per

    def bars(self, rule_id: str) -> list[int]:
        """Return the hits by turn, one bar per `per` turns, up to the last non-empty bar."""
        found = self._by_turn.get(rule_id)
        if not found:
            return []
        per = self.per
        bars = [0] * ((max(found) - 1) // per + 1)
        for turn, count in found.items():
            bars[(turn - 1) // per] += count
        return bars

    @property
    def wide(self) -> int:
        """The number of bars that fit in every sparkline."""
        return max((self.turns - 1) // self.per + 1, LEAST_BARS)

    def row(self, rule_id: str) -> dict[str, str]:
        """Return a rule's hits for its row: in words, as an SVG path of height 1, and the maximum."""
        bars, words, per = self.bars(rule_id), self.words(rule_id), self.per
        most = max(bars, default=0)
        marks = [f"M{at + 0.1:g},1v-{hits / most:.3g}h0.8V1Z" for at, hits in enumerate(bars) if hits]
        first = bars.index(most) * per + 1 if bars else 0
        when = f"turn {first}" if per == 1 else f"turns {first} to {first + per - 1}"
        said = f"{words}; most in {when}, {most}" if bars else "no hits"
        return {"words": words, "spark": "".join(marks), "most": said}


def rule_places(rule: SteeringRule) -> str:
    """Describe where a rule applies."""
    points = ", ".join(point.replace("_", " ") for point in rule.applies_to)
    tools = "" if rule.tools is None else f": {plain(', '.join(plain(tool) for tool in rule.tools))}"
    return points + tools


def _versions(rulebook: RuleBook) -> dict[str, int]:
    """Return the version in which each rule last changed; 0 for initial rules."""
    return {change.rule_id: change.version for change in rulebook.changes if change.change != "move"}


def rule_rows(rulebook: RuleBook, hits: RuleHits) -> list[dict[str, Any]]:
    """Return the rules as rows for a page, in evaluation order."""
    versions, rows = _versions(rulebook), []
    for rule in rulebook:
        row = {
            "id": rule.id,
            "label": plain(rule.id),
            "name": plain(rule.name or ""),
            "form": _form(rule),
            "where": rule_places(rule),
            "enabled": rule.enabled,
            "version": versions.get(rule.id, 0),
        }
        rows.append(with_hits(row, hits))
    return rows


def with_hits(row: Mapping[str, Any], hits: RuleHits) -> dict[str, Any]:
    row = {**row, **hits.row(row["id"])}
    return row | keyed(row["id"], _row(row, hits.wide))


def _row(row: Mapping[str, Any], wide: int) -> str:
    name, *others = _cells(row, wide)
    rest = "".join(
        [f'<td class="nn-text" data-name="{at}">{cell}</td>' for at, cell in zip(SHOWN[1:], others, strict=True)]
    )
    said = f"{row['label']}: {row['most']}. Version {row['version']}."
    return (
        f'<tr data-on="{"yes" if row["enabled"] else "no"}" data-readout="{escape(said)}"><td data-name="On">'
        f'<input type="checkbox" aria-label="{escape(row["label"])} is evaluated"></td>'
        f'<th scope="row"><button type="button" class="nn-pick">{name}</button></th>{rest}</tr>'
    )


def _cells(row: Mapping[str, Any], wide: int) -> list[str]:
    name = " · ".join(filter(None, [row["label"], row["name"]]))
    hits = f"{_sparkline(row['spark'], wide)}<span>{escape(row['words'] or 'no hits')}</span>"
    return [escape(name), escape(row["form"]), escape(row["where"]), hits, f"{row['version']}"]


def _form(rule: SteeringRule) -> str:
    if rule.form == "none":
        return "decides nothing"
    return FORMS[form_of(rule)] + (" and judge" if rule.form == "python" and rule.llm_eval is not None else "")


def rules_frame(rulebook: RuleBook, hits: RuleHits) -> Any:
    """Return one row per rule: ``id, form, hooks, enabled, hits, version, text``.

    Examples
    --------
    >>> rules = RuleBook()
    >>> _ = rules.at_most(3, "search", id="few")
    >>> rules_frame(rules, RuleHits()).iloc[0].to_dict()["form"]
    'sequence'
    """
    import pandas

    versions = _versions(rulebook)
    rows = [
        (
            rule.id,
            rule.form,
            rule.applies_to,
            rule.enabled,
            hits.count(rule.id),
            versions.get(rule.id, 0),
            rule_text(rule),
        )
        for rule in rulebook
    ]
    return pandas.DataFrame(rows, columns=["id", "form", "hooks", "enabled", "hits", "version", "text"])


def rules_html(rulebook: RuleBook, rows: Iterable[dict[str, Any]], hits: RuleHits) -> str:
    """Return the rules and their texts as HTML without scripts."""
    cells = [
        [
            *(shown := _cells(row, hits.wide))[:3],
            "on" if row["enabled"] else "off",
            *shown[3:],
            f'<pre class="nn-code">{escape(plain(rule_text(rule), PAGE_LENGTH))}</pre>',
        ]
        for row, rule in zip(rows, rulebook, strict=True)
    ]
    title = heading(f"Rules, version {rulebook.version}")
    if not cells:
        return f'{title}<p class="nn-empty">{escape(EMPTY)}</p>'
    return title + table(
        "nn-rule-texts", [(name, "nn-text") for name in (*SHOWN[:3], "State", *SHOWN[3:], "Text")], cells
    )


def _sparkline(path: str, wide: int) -> str:
    if not path:
        return ""
    return (
        f'<svg class="nn-spark" viewBox="0 0 {wide} 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M0,1H{wide}"/><path d="{path}"/></svg>'
    )


def rules_text(rulebook: RuleBook, rows: Iterable[dict[str, Any]]) -> str:
    lines = []
    for at, row in enumerate(rows, start=1):
        facts = [row["label"], row["name"], row["words"], plain(row["where"], TEXT_LENGTH)]
        facts[0] += "" if row["enabled"] else " (off)"
        lines.append(f"{at}. {' · '.join(filter(None, facts))}")
    return "\n".join([f"Rules, version {rulebook.version}.", *(lines or [EMPTY])])
