"""Load golden vectors: cases, and the few spellings JSON has no words for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

HERE = Path(__file__).parent
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


# What the recorded system does and this one does not, on purpose: the data say why, case by case. A case that is flagged
# without a line here fails `test_the_cases_that_do_not_bind_are_these`.
DIVERGENT: Final[Mapping[str, tuple[str, ...]]] = {
    "budgets": (
        "budgets-131-infinity-minus-infinity",
        "budgets-132-inverted-range",
        "budgets-133-negative-number",
        "budgets-134-zero-headroom-infinite-total",
    ),
    "lifecycle": (
        "lifecycle-009-recall-over-budget",
        "lifecycle-021-steering-errors-and-timeouts",
        "lifecycle-029-eventual-store-invalidates",
        "lifecycle-030-eventual-stale-null-serves-old-value",
        "lifecycle-031-eventual-ignores-other-writes",
        "lifecycle-048-recall-over-budget",
        "lifecycle-060-steering-errors-and-timeouts",
        "lifecycle-068-eventual-store-invalidates",
        "lifecycle-069-eventual-stale-null-serves-old-value",
        "lifecycle-070-eventual-ignores-other-writes",
    ),
    "projection": (
        "projection-005-random-summarize",
        "projection-008-random-truncate",
        "projection-031-random-sliding_window-window",
        "projection-035-random-summarize",
        "projection-045-random-sliding_window-window",
        "projection-051-random-sliding_window-window",
        "projection-057-random-summarize",
        "projection-059-random-summarize",
        "projection-060-random-summarize-window",
    ),
    "retry": ("retry-035-retry-zero-attempts",),
    "scope": ("scope-051-slash-collision",),
    "steering": (
        "steering-057-predicate-raises",
        "steering-062-not-initialised",
        "steering-073-not-initialised",
        "steering-079-predicate-raises",
        "steering-084-not-initialised",
    ),
    "until": ("until-036-combined-all-2", "until-063-combined-all-3", "until-076-combined-any-3"),
    "verdicts": (
        "verdicts-126-model-error",
        "verdicts-127-model-error-on-retry",
        "verdicts-135-model-error",
        "verdicts-136-model-error-on-retry",
    ),
}


def cases(family: str) -> list[dict[str, Any]]:
    """Return every case of a family."""
    found: list[dict[str, Any]] = json.loads((HERE / "runtime" / f"{family}.json").read_text(encoding="utf-8"))["cases"]
    return found


def load(family: str) -> list[Any]:
    """Return the cases of a family as pytest parameters, without those that are known not to bind."""
    return [pytest.param(case, id=case["name"]) for case in cases(family) if not case.get("divergence")]


def number(value: Any) -> Any:
    """Return the float a spelling stands for; anything else as it is."""
    return _FLOATS.get(value, value) if isinstance(value, str) else value


def close(got: float, expected: Any) -> bool:
    """Compare two numbers, infinities included, to a relative 1e-9."""
    want = number(expected)
    return got == want or math.isclose(got, want, rel_tol=1e-9, abs_tol=0.0)


def snake(name: str) -> str:
    """Return the snake_case form of a camelCase name."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def camel(name: str) -> str:
    """Return the camelCase form of a snake_case name."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
