"""Fits factors that explain the billed tokens of requests; pure arithmetic.

The tokens of a request are its framing plus, for each kind of item, the counted text times a factor. The factors are
those that best explain the reported sums, kept near the common factor of all kinds while there is little data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetic_nb._core.arguments import is_number

LEAST_CALLS: Final = 8  # minimum calls of a model for learning factors; learned again whenever the number doubles
LEAST_OF_KIND: Final = 4  # minimum calls that added items of a kind, for a factor of its own
FIXED: Final = ("instructions", "tools")  # kinds at the start of every request
# Strength of the prior towards the common factor, as one call with this many tokens of the kind.
PRIOR_TOKENS: Final = 100.0
LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
_FOLDS: Final = 4
# Ignore calls that are further off than this many medians of the others: providers bill one call in a hundred for
# hundreds of tokens that were not sent. A difference of fewer tokens than this is always accepted.
OUTLIER_MEDIANS: Final = 6.0
LEAST_OUTLIER: Final = 24.0
_PASSES: Final = 3


class Tally(NamedTuple):
    """The parts of a request: tokens of texts by kind, and the framing around them."""

    counts: Mapping[str, int]
    framing: int = 0

    def has_all_of(self, other: Tally) -> bool:
        """Tell whether every kind has at least as many tokens as in another request."""
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
    """The factor of each kind; `others` applies to kinds without a factor of their own.

    `calls` is the number of calls they were learned from, 0 if too few. `known_error` is the mean absolute relative
    error of whole requests in cross-validation over quarters of the calls. Kinds are those of `kind_of`,
    ``instructions`` and ``tools``.
    """

    by_kind: Mapping[str, float] = {}
    others: float = 1.0
    calls: int = 0
    known_error: float | None = None

    def of(self, kind: str) -> float:
        return self.by_kind.get(kind, self.others)

    def total(self, tally: Tally) -> float:
        """Return the expected billed tokens of a request."""
        return tally.framing + sum([self.of(kind) * tokens for kind, tokens in tally.counts.items()])

    def as_data(self) -> dict[str, Any]:
        """Return them as JSON data for `from_data`."""
        return {
            "byKind": dict(sorted(self.by_kind.items())),
            "others": self.others,
            "calls": self.calls,
            "knownError": self.known_error,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Factors:
        """Parse the result of `as_data`; raises `KeyError`, `TypeError` or `ValueError` for other data."""
        by_kind = {str(kind): _factor(value) for kind, value in data["byKind"].items()}
        error = data["knownError"]
        if error is not None and not (is_number(error) and error >= 0):
            raise ValueError(f"a known error must be a number of at least 0, not {error!r}")
        return cls(by_kind, _factor(data["others"]), whole(data["calls"]), error)


def whole(value: Any) -> int:
    """Return a JSON value that is an integer of at least 0; raises `ValueError` for other values."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _factor(value: Any) -> float:
    if not is_number(value) or not LEAST_FACTOR <= value <= MOST_FACTOR:
        raise ValueError(f"a factor must be from {LEAST_FACTOR:g} to {MOST_FACTOR:g}, not {value!r}")
    return float(value)


class Observed(NamedTuple):
    """One call: its request, its billed tokens, and the same for the previous call in its conversation."""

    tally: Tally
    reported: int
    before: tuple[Tally, int] | None

    @property
    def row(self) -> tuple[Mapping[str, int], float]:
        """The part added since the previous call, which separates kinds better than nearly equal sums."""
        tally, reported = self.tally, self.reported
        if self.before is not None:
            tally, reported = tally - self.before[0], reported - self.before[1]
        return tally.counts, float(reported - tally.framing)


def learned(observed: Sequence[Observed]) -> Factors:
    """Return the factors learned from calls; neutral factors if there are too few."""
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
    """Return the factors of kinds, and of the fixed beginning (seen only in sums), learned alternately."""
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
    """Return the factors that best explain rows, ignoring a few outliers."""
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
    matrix = [[0.0] * len(kinds) for _ in kinds]  # normal equations of the differences from the common factor
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
    """Solve a symmetric positive definite system by elimination; it has few unknowns, so no library is needed."""
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
