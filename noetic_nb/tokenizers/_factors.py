"""Factors that explain the billed tokens of requests: nothing but arithmetic.

A request is a sum: its framing, and for each kind of item its text by the counter, times a factor. The factors are those that
explain the reported sums best, held near the one factor of all kinds together as long as little is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

LEAST_CALLS: Final = 8  # calls of a model from which factors are learned; again when there are twice as many
LEAST_OF_KIND: Final = 4  # calls that brought a kind, from which it has a factor of its own
FIXED: Final = ("instructions", "tools")  # kinds that every request begins with
# How strongly a factor is held near that of all kinds: as by one call that brought so many tokens of its kind.
PRIOR_TOKENS: Final = 100.0
LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
_FOLDS: Final = 4
# A call further off than this many medians of the others is left out: providers bill one in a hundred with hundreds of tokens
# that nobody sent. Fewer tokens than these are never too far.
OUTLIER_MEDIANS: Final = 6.0
LEAST_OUTLIER: Final = 24.0
_PASSES: Final = 3


class Tally(NamedTuple):
    """The parts of a request: tokens of texts by kind, and the framing around them."""

    counts: Mapping[str, int]
    framing: int = 0

    def has_all_of(self, other: Tally) -> bool:
        """Tell whether no kind has less than in another request."""
        return all(self.counts.get(kind, 0) >= tokens for kind, tokens in other.counts.items())

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        kinds = {*self.counts, *other.counts}
        return Tally(
            {kind: self.counts.get(kind, 0) + other.counts.get(kind, 0) for kind in kinds}, self.framing + other.framing
        )

    def __sub__(self, other: Tally) -> Tally:
        kinds = {*self.counts, *other.counts}
        return Tally(
            {kind: self.counts.get(kind, 0) - other.counts.get(kind, 0) for kind in kinds}, self.framing - other.framing
        )


class Factors(NamedTuple):
    """The factor of a count for each kind; `others` stands for kinds without one of their own.

    `calls` is how many calls they were learned from, 0 where there were too few. `known_error` is the mean absolute relative
    error of whole requests that they were not learned from, each quarter of the calls in turn. Kinds are those of
    `kind_of`, and ``instructions`` and ``tools``.
    """

    by_kind: Mapping[str, float] = {}
    others: float = 1.0
    calls: int = 0
    known_error: float | None = None

    def of(self, kind: str) -> float:
        return self.by_kind.get(kind, self.others)

    def total(self, tally: Tally) -> float:
        """Return the tokens that a request is expected to be billed at."""
        return tally.framing + sum([self.of(kind) * tokens for kind, tokens in tally.counts.items()])

    def as_data(self) -> dict[str, Any]:
        """Return them as JSON data, which `from_data` reads."""
        return {
            "byKind": dict(sorted(self.by_kind.items())),
            "others": self.others,
            "calls": self.calls,
            "knownError": self.known_error,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Factors:
        """Read the result of `as_data`; raises `KeyError`, `TypeError` or `ValueError` for any other data."""
        by_kind = {str(kind): _factor(value) for kind, value in data["byKind"].items()}
        error = data["knownError"]
        if error is not None and not (is_number(error) and error >= 0):
            raise ValueError(f"a known error must be a number of at least 0, not {error!r}")
        return cls(by_kind, _factor(data["others"]), whole(data["calls"]), error)


def is_number(value: object) -> bool:
    """Tell whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def whole(value: Any) -> int:
    """Return a value of JSON that is a whole number of at least 0; raises `ValueError` for anything else."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _factor(value: Any) -> float:
    if not is_number(value) or not LEAST_FACTOR <= value <= MOST_FACTOR:
        raise ValueError(f"a factor must be from {LEAST_FACTOR:g} to {MOST_FACTOR:g}, not {value!r}")
    return float(value)


class Observed(NamedTuple):
    """One call: its request, its billed tokens, and the same of the call before it in its conversation."""

    tally: Tally
    reported: int
    before: tuple[Tally, int] | None

    @property
    def row(self) -> tuple[Mapping[str, int], float]:
        """The new part since the call before, which tells kinds apart better than sums that hardly differ."""
        tally, reported = self.tally, self.reported
        if self.before is not None:
            tally, reported = tally - self.before[0], reported - self.before[1]
        return tally.counts, float(reported - tally.framing)


def learned(observed: Sequence[Observed]) -> Factors:
    """Return the factors that calls show, those of no calls at all where they are too few."""
    if len(observed) < LEAST_CALLS:
        return Factors()
    found = _in_turns(observed)
    errors: list[float] = []
    for fold in range(_FOLDS):
        partial = _in_turns([one for at, one in enumerate(observed) if at % _FOLDS != fold])
        errors += [
            abs(partial.total(one.tally) - one.reported) / one.reported
            for at, one in enumerate(observed)
            if at % _FOLDS == fold
        ]
    return found._replace(calls=len(observed), known_error=sum(errors) / len(errors))


def _in_turns(observed: Sequence[Observed]) -> Factors:
    """Return factors of kinds, and the one of the fixed beginning, seen in sums only, each learned beside the other."""
    fixed = 1.0
    for _ in range(_PASSES):
        rows = []
        for counts, target in [one.row for one in observed]:
            begun = sum([counts.get(kind, 0) for kind in FIXED])
            rows.append(({k: n for k, n in counts.items() if k not in FIXED}, target - fixed * begun))
        found = _fit(rows)
        shares = []
        for tally, reported, _ in observed:
            begun = sum([tally.counts.get(kind, 0) for kind in FIXED])
            if begun:
                items = sum([found.of(kind) * n for kind, n in tally.counts.items() if kind not in FIXED])
                shares.append((reported - tally.framing - items) / begun)
        if not shares:
            return found
        fixed = _within(sorted(shares)[len(shares) // 2])
    return found._replace(by_kind={**found.by_kind, **dict.fromkeys(FIXED, fixed)})


def _fit(rows: Sequence[tuple[Mapping[str, int], float]]) -> Factors:
    """Return the factors that explain rows best, but for the few that nothing explains."""
    found = _least_squares(rows)
    for _ in range(_PASSES):
        off = [abs(found.total(Tally(counts)) - target) for counts, target in rows]
        limit = max(LEAST_OUTLIER, OUTLIER_MEDIANS * sorted(off)[len(off) // 2])
        kept = [row for row, by in zip(rows, off, strict=True) if by <= limit]
        if len(kept) == len(rows) or 2 * len(kept) < len(rows):
            break
        found = _least_squares(kept)
    return found


def _least_squares(rows: Sequence[tuple[Mapping[str, int], float]]) -> Factors:
    """Return the factors of least squares with a prior: ridge regression towards the common factor.

    A. E. Hoerl and R. W. Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics 12 (1970).
    """
    counted = sum(sum(counts.values()) for counts, _ in rows)
    if counted <= 0:
        return Factors()
    others = _within(sum(target for _, target in rows) / counted)
    seen: dict[str, int] = {}
    for counts, _ in rows:
        for kind, tokens in counts.items():
            if tokens:
                seen[kind] = seen.get(kind, 0) + 1
    kinds = sorted(kind for kind, calls in seen.items() if calls >= LEAST_OF_KIND)
    matrix = [[0.0] * len(kinds) for _ in kinds]  # normal equations of what differs from the common factor
    right = [0.0] * len(kinds)
    for counts, target in rows:
        rest = target - others * sum(counts.values())
        values = [counts.get(kind, 0) for kind in kinds]
        for at, value in enumerate(values):
            if value:
                right[at] += value * rest
                row = matrix[at]
                for place, other in enumerate(values):
                    row[place] += value * other
    for at in range(len(kinds)):
        matrix[at][at] += PRIOR_TOKENS**2
    off = _solved(matrix, right)
    return Factors({kind: _within(others + by) for kind, by in zip(kinds, off, strict=True)}, others)


def _within(factor: float) -> float:
    return min(max(factor, LEAST_FACTOR), MOST_FACTOR)


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a symmetric positive definite system by elimination; a handful of unknowns, so that no library is loaded."""
    size = len(right)
    for at in range(size):
        for below in range(at + 1, size):
            part = matrix[below][at] / matrix[at][at]
            for place in range(at, size):
                matrix[below][place] -= part * matrix[at][place]
            right[below] -= part * right[at]
    for at in reversed(range(size)):
        right[at] = (right[at] - sum(matrix[at][k] * right[k] for k in range(at + 1, size))) / matrix[at][at]
    return right
