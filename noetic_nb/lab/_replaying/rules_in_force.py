"""The rules that a run was made with, version by version, as far as the run knows them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RuleChanged
from noetic_nb.lab._replaying.ledger_replay import MAX_ENTRIES
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook, parse_rules
from noetic_nb.steering._evaluation.evaluate import Policy
from noetic_nb.steering._evaluation.rule_snapshot import RuleSnapshot
from noetic_nb.steering._layer import policy_of, rulebook_of
from noetic_nb.steering._rulebook.rulebook import RuleChange

__all__ = ["RulesInForce", "recorded_rules"]


@dataclass(frozen=True)
class RulesInForce:
    """Rules from a place of the run on, and the policy of their layer.

    `versions` has, for each, where in the run it begins; None stands for rules that nobody knows any more.
    """

    versions: tuple[tuple[int, RuleSnapshot | None], ...]
    policy: Policy
    scope: str
    max_entries: int = MAX_ENTRIES

    def at(self, seq: int) -> RuleSnapshot | None:
        """Return the rules at a place of the run."""
        found = None
        for start, rules in self.versions:
            if start > seq:
                break
            found = rules
        return found


def recorded_rules(run: Run) -> RulesInForce | None:
    """Return the rules of a run: those of its agent in this process, or of its bundle; None where it does not have them.

    Examples
    --------
    >>> recorded_rules(Run("no rules")) is None
    True
    """
    edits = [(seq, event) for seq, event in enumerate(run.events) if isinstance(event, RuleChanged)]
    for layer in getattr(run._config, "memory", ()):
        book = rulebook_of(layer)
        if book is not None:
            options = {} if layer.made_by is None else layer.made_by.options
            most = options.get("max_ledger_entries", MAX_ENTRIES)
            return RulesInForce(_versions(book, edits), policy_of(layer) or Policy(), layer.scope, most)
    bundle = run.bundle
    if bundle is None or not bundle.get("rules"):
        return None
    try:
        rules: RuleSnapshot | None = parse_rules(json.dumps(bundle["rules"]), format="json").snapshot
    except (NoeticConfigError, TypeError, ValueError):
        return None  # rules that are code of another process
    options = _options(bundle.get("config"))
    known = {name: options[name] for name in ("on_error", "on_unparseable", "max_retries") if name in options}
    scope = options.get("scope", "execution")
    versions = ((0, None), (edits[-1][0] + 1, rules)) if edits else ((0, rules),)
    scope = scope if scope in get_args(MemoryScope) else "execution"
    return RulesInForce(versions, Policy(**known), scope, options.get("max_ledger_entries", MAX_ENTRIES))


def _options(config: Any) -> dict[str, Any]:
    match config:
        case {"memory": list() | tuple() as layers}:
            for layer in layers:
                match layer:
                    case {"kind": "steering", "options": dict() as options}:
                        return {key: value for key, value in options.items() if isinstance(value, str | int)}
    return {}


def _versions(book: RuleBook, edits: Iterable[tuple[int, RuleChanged]]) -> tuple[tuple[int, RuleSnapshot | None], ...]:
    """Walk back from the rules as they are now, one change after the other."""
    places = {event.version: seq for seq, event in edits}
    if not places:
        return ((0, book.snapshot),)
    rules: tuple[Any, ...] | None = book.snapshot.rules
    found: list[tuple[int, RuleSnapshot | None]] = []
    for change in reversed(book.changes):
        if change.version in places:
            known = None if rules is None else RuleSnapshot(change.version, rules)
            found.append((places[change.version] + 1, known))
        if change.version < min(places):
            break
        rules = None if rules is None else _before(rules, change)
    first = None if rules is None else RuleSnapshot(min(places) - 1, rules)
    return ((0, first), *reversed(found))


def _before(rules: tuple[Any, ...], change: RuleChange) -> tuple[Any, ...] | None:
    """Return the rules before a change; None where their order is not known, which decides the first denial."""
    if change.old is None:
        return tuple([rule for rule in rules if rule.id != change.rule_id])
    if change.new is None and change.change == "undo":
        return (*rules, change.old)  # what is taken back had been added last
    if change.new is None or change.change == "move" or change.old == change.new:
        return None
    return tuple([change.old if rule.id == change.rule_id else rule for rule in rules])
