"""The versions of a rule, from the changes that its rule book keeps: content, differences, and restoring one."""

from __future__ import annotations

import difflib
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs._plain_text import plain
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._rules.file_schema import rule_data, rule_text

# Older changes are in `rulebook.changes`; a list of them all would grow with every pause.
VERSIONS_SHOWN: Final = 50
# A diff of more is no page any more.
LINES_SHOWN: Final = 400
PAGE_LENGTH: Final = 20_000


def version_rows(rulebook: RuleBook, rule_id: str) -> list[dict[str, Any]]:
    """Return the versions of one rule as a page needs them, newest first; the first content is version 0.

    Examples
    --------
    >>> rules = RuleBook()
    >>> _ = rules.when("tool.args.n > 3", id="few")
    >>> rules.disable("few")
    >>> [(row["version"], row["words"]) for row in version_rows(rules, "few")]
    [(2, 'switched off'), (1, 'added')]
    """
    words = {"add": "added", "replace": "edited", "remove": "removed", "enable": "switched on", "undo": "taken back"}
    words["disable"] = "switched off"
    own = [change for change in rulebook.changes if change.rule_id == rule_id and change.change != "move"]
    rows = [{"version": each.version, "words": words[each.change], "gone": each.new is None} for each in reversed(own)]
    if own and own[0].old is not None:
        rows.append({"version": 0, "words": "as it began", "gone": False})
    return rows[:VERSIONS_SHOWN]


def removed_rules(rulebook: RuleBook) -> list[dict[str, Any]]:
    """Return the rules that are no longer in the book, the last removed first, with the version that had them last."""
    present = {rule.id for rule in rulebook}
    found: dict[str, int] = {}
    for change in reversed(rulebook.changes):
        if change.rule_id not in present:
            found.setdefault(change.rule_id, change.version)
    return [{"id": name, "label": plain(name), "version": found[name]} for name in list(found)[:VERSIONS_SHOWN]]


def rule_at(rulebook: RuleBook, rule_id: str, version: int) -> SteeringRule:
    """Return a rule as of a version of its book; of one that was removed there, the rule before. Raises ``UNKNOWN_VERSION``."""
    own = [change for change in rulebook.changes if change.rule_id == rule_id]
    at = [change for change in own if change.version <= version]
    rule = (at[-1].new or at[-1].old) if at else (own[0].old if own else None)
    if rule is None and version >= 0 and not own and rule_id in rulebook:
        rule = rulebook[rule_id]
    if rule is None:
        raise NoeticConfigError(
            "UNKNOWN_VERSION",
            f"The rule {rule_id!r} was not there then.",
            given=version,
            hint=f"It has the versions {', '.join(str(change.version) for change in own) or 'none'}.",
        )
    return rule


def whole_text(rule: SteeringRule) -> str:
    """Return all of a rule as text; the fields beside the source of a Python rule come first."""
    if rule.source is None:
        return rule_text(rule)
    facts = [f"# {key}: {value}" for key, value in rule_data(rule).items() if key not in ("id", "python")]
    return "\n".join([*facts, rule.source])


def text_diff(old: str, new: str) -> list[list[str]]:
    r"""Return the lines of two texts, each with ``"-"``, ``"+"`` or ``" "`` in front.

    Examples
    --------
    >>> text_diff("a\nb", "a\nc")
    [[' ', 'a'], ['-', 'b'], ['+', 'c']]
    """
    before, after = plain(old, PAGE_LENGTH).splitlines(), plain(new, PAGE_LENGTH).splitlines()
    lines = [[line[0], line[2:]] for line in difflib.ndiff(before, after) if line[0] in " -+"]
    return lines[:LINES_SHOWN]
