"""Which cases do not bind, by name: a flag in the data alone may not turn a red case green."""

from __future__ import annotations

import pytest

from tests.vectors.cases import DIVERGENT, HERE, cases

FAMILIES = {
    "budgets": 136,
    "lifecycle": 100,
    "projection": 100,
    "restrictive": 82,
    "retry": 75,
    "scope": 51,
    "steering": 84,
    "tokens": 150,
    "until": 112,
    "verdicts": 136,
}
"""How many cases each family has."""


def test_every_family_is_here() -> None:
    assert {path.stem: len(cases(path.stem)) for path in (HERE / "runtime").glob("*.json")} == FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cases_that_do_not_bind_are_these(family: str) -> None:
    flagged = [case["name"] for case in cases(family) if case.get("divergence")]

    assert tuple(flagged) == DIVERGENT.get(family, ())
