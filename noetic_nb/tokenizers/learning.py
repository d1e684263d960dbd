"""Learn from reported usage how far a counter is off, for each model and kind of item; nothing but arithmetic.

A request is a sum: its framing, and for each kind of item its text by the counter, times a factor. The factors are those that
explain the reported sums best, held near the one factor of all kinds together as long as little is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetic_nb.items.item import Item, remember_tally, tally_of
from noetic_nb.tokenizers.framing import Framing, counted_text, framing_of, kind_of
from noetic_nb.tokens import KNOWN_ERRORS, Tokenizer, estimate_tokens, known_error, tokenizer_name

__all__ = ["LEAST_CALLS", "CalibratedTokenizer", "Factors", "Tally", "TokenCalibration", "learned"]

LEAST_CALLS: Final = 8
"""Calls of a model from which factors are learned; again when there are twice as many."""
LEAST_OF_KIND: Final = 4
"""Calls that brought a kind, from which it has a factor of its own."""
FIXED: Final = ("instructions", "tools")
"""Kinds that every request begins with."""
MAX_CALLS: Final = 512
"""The newest calls of a model that are kept."""
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
    """What a request is made of: tokens of texts by kind, and the framing around them."""

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
    """By kind, what a count is multiplied by; `others` stands for kinds without one of their own.

    `calls` is how many calls they were learned from, 0 where there were too few. `known_error` is the mean absolute relative
    error of whole requests that they were not learned from, each quarter of the calls in turn. Kinds are those of
    `kind_of`, and ``instructions`` and ``tools``.
    """

    by_kind: Mapping[str, float] = {}
    others: float = 1.0
    calls: int = 0
    known_error: float | None = None

    def of(self, kind: str) -> float:
        """Return the factor of a kind."""
        return self.by_kind.get(kind, self.others)

    def total(self, tally: Tally) -> float:
        """Return the tokens that a request is expected to be billed at."""
        return tally.framing + sum([self.of(kind) * tokens for kind, tokens in tally.counts.items()])


class _Observed(NamedTuple):
    tally: Tally
    reported: int
    before: tuple[Tally, int] | None

    @property
    def row(self) -> tuple[Mapping[str, int], float]:
        """What was new since the call before, which tells kinds apart better than sums that hardly differ."""
        tally, reported = self.tally, self.reported
        if self.before is not None:
            tally, reported = tally - self.before[0], reported - self.before[1]
        return tally.counts, float(reported - tally.framing)


def learned(observed: Sequence[_Observed]) -> Factors:
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


def _in_turns(observed: Sequence[_Observed]) -> Factors:
    """Return factors of kinds of items, and the one of what every request begins with, each learned beside the other.

    What is the same in every request is seen in few differences, but in every sum.
    """
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

    References
    ----------
    .. [1] A. E. Hoerl and R. W. Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics
       12 (1970).
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
    # Normal equations of what differs from the common factor.
    matrix = [[0.0] * len(kinds) for _ in kinds]
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


class CalibratedTokenizer:
    """A counter whose counts are multiplied by learned factors; made by a `TokenCalibration` and never changed.

    Attributes
    ----------
    name : str
        The counter below it, and what was learned: how many calls of which model, or that they are too few.
    known_error : float or None
        As of `Factors`; that of the counter below while nothing was learned.
    """

    __slots__ = ("base", "calibration", "factors", "framing", "known_error", "model", "name")

    def __init__(self, calibration: TokenCalibration, model: str, factors: Factors, seen: int) -> None:
        self.calibration = calibration
        self.base = calibration.base
        self.model = model
        self.factors = factors
        self.framing: Framing = getattr(self.base, "framing", None) or framing_of(model)
        if factors.calls:
            self.known_error: float | None = factors.known_error
            what = f"{factors.calls} calls of {model}"
        else:
            self.known_error = KNOWN_ERRORS.get(f"calibrated({tokenizer_name(self.base)})", known_error(self.base))
            what = f"as it is: {seen} of {LEAST_CALLS} calls of {model} seen" if model else "as it is: no call seen"
        self.name = f"calibrated({tokenizer_name(self.base)}, {what})"

    def __call__(self, text: str) -> int:
        """Count the tokens of a text of no known kind."""
        return _times(self.base(text), self.factors.others)

    def count_content(self, item: Mapping[str, Any]) -> int:
        """Count the text of an item."""
        kind, count = self._counted(item)
        return _times(count, self.factors.of(kind))

    def count_item(self, item: Mapping[str, Any]) -> int:
        """Count an item as it is billed."""
        kind, count = self._counted(item)
        return _times(count, self.factors.of(kind)) + self.framing.item(kind)

    def count_system(self, text: str) -> int:
        """Count the instructions as they are billed."""
        return _times(self.base(text), self.factors.of("instructions")) + self.framing.message + self.framing.reply

    def count_tools(self, tools: Iterable[Any]) -> int:
        """Count tools' definitions."""
        return _times(self.framing.definitions(tools, self.base), self.factors.of("tools"))

    def tally(self, items: Iterable[Mapping[str, Any]], *, instructions: str = "", tools: Iterable[Any] = ()) -> Tally:
        """Return what a request is made of, by the counter below."""
        counts: dict[str, int] = {}
        framing = 0
        for item in items:
            kind, count = self._counted(item)
            counts[kind] = counts.get(kind, 0) + count
            framing += self.framing.item(kind)
        if instructions:
            counts["instructions"] = self.base(instructions)
            framing += self.framing.message + self.framing.reply
        defined = self.framing.definitions(tools, self.base)
        if defined:
            counts["tools"] = defined
        return Tally(counts, framing)

    def _counted(self, item: Mapping[str, Any]) -> tuple[str, int]:
        if type(item) is not Item:
            kind = kind_of(item)
            return kind, self.base(counted_text(item, kind))
        known = tally_of(item, self.base)
        if known is None:
            kind = kind_of(item)
            known = (self.base, kind, self.base(counted_text(item, kind)))
            remember_tally(item, known)
        return known[1], known[2]

    def __repr__(self) -> str:
        return f"<tokenizer {self.name}>"


def _times(count: int, factor: float) -> int:
    """Multiply a count; what is something stays something."""
    return max(1, int(count * factor + 0.5)) if count else 0


class TokenCalibration:
    """What is learned about a counter from the usage that models report.

    Pass it to a harness, ``tokenizer=calibration``, which plans by it and goes on learning; two harnesses may share one.
    Factors are learned when a model has answered eight calls, again at sixteen, and so on by doubling, so that a conversation
    is counted anew a few times only. The same calls in the same order always give the same factors.

    Parameters
    ----------
    base : callable, optional
        What counts; the default estimate, or what `get` returns.

    Examples
    --------
    >>> calibration = TokenCalibration()
    >>> for size in range(1, 9):
    ...     _ = calibration.observe("m", Tally({"user": 100 * size}, 4), 200 * size + 4)
    >>> calibration.tokenizer("m").name, calibration.tokenizer("m")("x" * 400)
    ('calibrated(noetic_nb.tokens.estimate_tokens, 8 calls of m)', 200)
    """

    def __init__(self, base: Tokenizer = estimate_tokens) -> None:
        self.base = base
        self._observed: dict[str, list[_Observed]] = {}
        self._seen: dict[str, int] = {}
        self._made: dict[str, CalibratedTokenizer] = {}

    def observe(
        self, model: str, tally: Tally, reported: int, *, before: tuple[Tally, int] | None = None
    ) -> Tally | None:
        """Learn from one call; returns the tally where something can be learned from it.

        Parameters
        ----------
        model : str
            Which answered.
        tally : Tally
            What it was sent.
        reported : int
            Its input tokens, as billed.
        before : pair of Tally and int, optional
            The call of the same conversation before it: what both have in common then teaches nothing twice.
        """
        if reported <= 0 or (before is not None and reported < before[1] and tally.has_all_of(before[0])):
            return None
        kept = self._observed.setdefault(model, [])
        kept.append(_Observed(tally, reported, before))
        del kept[:-MAX_CALLS]
        seen = self._seen[model] = self._seen.get(model, 0) + 1
        if seen < LEAST_CALLS:
            self._made.pop(model, None)
        elif seen & (seen - 1) == 0:
            self._made[model] = CalibratedTokenizer(self, model, learned(kept), seen)
        return tally

    def calls(self, model: str) -> int:
        """Return how many calls of a model were learned from."""
        return self._seen.get(model, 0)

    def learn(self) -> None:
        """Learn from all calls at once, however many they are."""
        for model, kept in self._observed.items():
            self._made[model] = CalibratedTokenizer(self, model, learned(kept), self._seen[model])

    def tokenizer(self, model: str = "") -> CalibratedTokenizer:
        """Return the counter of a model as it is now; the same one until more was learned."""
        made = self._made.get(model)
        if made is None:
            made = self._made[model] = CalibratedTokenizer(self, model, Factors(), self._seen.get(model, 0))
        return made

    @property
    def models(self) -> tuple[str, ...]:
        """The models that calls were seen of."""
        return tuple(self._observed)

    def factors(self, model: str) -> Factors:
        """Return what was learned about a model."""
        return self.tokenizer(model).factors

    def __repr__(self) -> str:
        seen = ", ".join(f"{model}: {calls}" for model, calls in self._seen.items())
        return f"<TokenCalibration of {tokenizer_name(self.base)}; calls seen: {seen or 'none'}>"
