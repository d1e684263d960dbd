"""What a linter says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["LintCode", "LintFinding"]

LintCode: TypeAlias = Literal[
    "never_fires",
    "always_fires",
    "shadowed",
    "missing_guidance",
    "unknown_tool",
    "unknown_argument",
    "contradiction",
    "impure",
    "slow",
    "raises",
]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """Which rule, what is wrong, why, and what to do about it.

    Examples
    --------
    >>> print(LintFinding("large", "never_fires", "It lets all pass.", "Look at its condition."))
    large: never_fires: It lets all pass. Look at its condition.
    """

    rule_id: str
    code: LintCode
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.rule_id}: {self.code}: {self.why} {self.fix}"
