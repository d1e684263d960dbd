"""The rules of one version, in order, and found by enforcement point and tool. A snapshot never changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from noetic_nb.names import skeleton
from noetic_nb.steering.evaluation.prepared_rule import Asked, askable
from noetic_nb.steering.rules.rule import Point, SteeringRule

__all__ = ["RuleSnapshot"]

_Key: TypeAlias = tuple[Point, str | None]
_Prepared: TypeAlias = tuple[tuple[Asked, ...], frozenset[str]]

# Tool names come from models: names that mean nothing must not fill memory.
MAX_FOUND: Final = 1024


@dataclass(frozen=True)
class RuleSnapshot:
    """The rules of one version."""

    version: int
    rules: tuple[SteeringRule, ...]
    _prepared: dict[_Key, _Prepared] = field(default_factory=dict, init=False, repr=False, compare=False)

    def applicable(self, point: Point, tool_name: str | None) -> tuple[SteeringRule, ...]:
        """Return the enabled rules for a point and, before a call, a tool.

        A rule about a tool is also about every tool whose name cannot be told from it.
        """
        return tuple([asked.rule for asked in self.prepared(point, tool_name)[0]])

    def prepared(self, point: Point, tool_name: str | None) -> _Prepared:
        """Return the same rules ready to be asked, and what their conditions need bound."""
        key = (point, tool_name)
        found = self._prepared.get(key)
        if found is None:
            seen = None if tool_name is None else skeleton(tool_name)
            found = askable(
                [
                    rule
                    for rule in self.rules
                    if rule.enabled
                    and point in rule.applies_to
                    and (rule.tools is None or seen is None or any(skeleton(tool) == seen for tool in rule.tools))
                ]
            )
            if len(self._prepared) < MAX_FOUND:
                self._prepared[key] = found
        return found

    def isolated(self, rule_id: str) -> str | None:
        """Return where a rule runs, None where it runs inline or is not there any more."""
        return next((rule.isolate for rule in self.rules if rule.id == rule_id), None)

    def __iter__(self) -> Iterator[SteeringRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)
