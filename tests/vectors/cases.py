"""Load golden vectors: cases, and the few spellings JSON has no words for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def load(family: str) -> list[Any]:
    """Return the cases of a family as pytest parameters; divergent ones are left out and counted."""
    cases = json.loads((HERE / "runtime" / f"{family}.json").read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["name"]) for case in cases if not case.get("divergence")]


def tally(family: str) -> tuple[int, int]:
    """Return how many cases a family has, and how many of them are divergent."""
    cases = json.loads((HERE / "runtime" / f"{family}.json").read_text(encoding="utf-8"))["cases"]
    return len(cases), sum(bool(case.get("divergence")) for case in cases)


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
