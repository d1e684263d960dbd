"""Matrices: one assertion over many cases. The suite takes a sample of the cases, `make fuzz` takes all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pytest

IS_WHOLE: Final = os.environ.get("NOETIC_NB_WHOLE") == "1"
"""Set by `make fuzz`, which runs every test with the marker `matrix`."""


def several(few: int, many: int) -> int:
    """Return how many random cases a test tries: few, or many in `make fuzz`."""
    return many if IS_WHOLE else few


def sampled(cases: Iterable[Any], keep: int, start: int = 0) -> list[Any]:
    """Return so many of the cases, spread evenly from the first (moved on by `start`) to the last, or all in `make fuzz`."""
    every = list(cases)
    if IS_WHOLE or keep >= len(every):
        return every
    places = {(round(place * (len(every) - 1) / max(1, keep - 1)) + start) % len(every) for place in range(keep)}
    return [every[place] for place in sorted(places)]


def matrix(
    name: str | tuple[str, ...], cases: Iterable[Any], keep: int, start: int = 0, ids: Any = None
) -> Callable[[Any], Any]:
    """Mark a test that runs for each case; for cases given by name, the names are the ids and the test gets the values."""
    if isinstance(cases, Mapping):
        names = sampled(cases, keep, start)
        cases, ids = [cases[each] for each in names], names
    else:
        cases = sampled(cases, keep, start)
    parametrized = pytest.mark.parametrize(name, cases, ids=ids)

    def mark(test: Any) -> Any:
        return pytest.mark.matrix(parametrized(test))

    return mark
