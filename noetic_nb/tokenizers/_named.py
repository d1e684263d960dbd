"""Creates a counter from a name, or from the tokenizer argument of a harness."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.arguments import closest, is_number
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items._json_text import compact_json
from noetic_nb.tokenizers._encoding_tokenizer import OFFLINE, EncodingTokenizer, offline_tokenizer
from noetic_nb.tokenizers._from_files import encoding_tokenizer
from noetic_nb.tokenizers._learning import CalibratedTokenizer, TokenCalibration
from noetic_nb.tokens import Tokenizer, estimate_tokens, known_error, tokenizer_name


class FallbackTokenizer:
    """Counts with another counter, or with the default estimate if that one fails; `fault` is its first failure."""

    __slots__ = ("_inner", "fault", "name")

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self.name = tokenizer_name(inner)
        self.fault: str | None = None

    @property
    def known_error(self) -> float | None:  # documented above
        return known_error(self._inner if self.fault is None else estimate_tokens)

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        try:
            count = self._inner(text)
            if is_number(count) and count >= 0:
                return count
            problem = f"it answered {count!r}"
        except Exception as exc:
            problem = f"{type(exc).__name__}: {exc}"
        if self.fault is None:
            self.fault = problem[:200]
        return estimate_tokens(text)

    def count_item(self, item: Mapping[str, Any]) -> int:
        """Count an item: with the other counter if possible, otherwise its compact JSON."""
        count = getattr(self._inner, "count_item", None)
        if count is not None:
            try:
                return int(count(item))
            except Exception as exc:
                self.fault = self.fault or f"{type(exc).__name__}: {exc}"[:200]
        return self(compact_json(item))

    def __repr__(self) -> str:
        return f"<tokenizer {self.name}>"


CALIBRATED: Final = "calibrated"
DEFAULT: Final = "estimate"


def get(name: str) -> Tokenizer:
    """Return a counter by name.

    Parameters
    ----------
    name : str
        An encoding (``"o200k_base"``, ``"cl100k_base"``), a model (``"gpt-4.1"``, ``"openai/gpt-4o-mini"``),
        ``"estimate"`` for the default, ``"calibrated-offline"`` for a counter close to o200k_base that needs no
        vocabulary, or ``"calibrated"`` for one that starts as the default and learns.

    Returns
    -------
    callable
        Maps text to a number of tokens; has ``name`` and ``known_error``: the mean absolute relative error of a whole
        request against reported usage, on public runs; None if not measured.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_TOKENIZER`` with the nearest names, ``MISSING_EXTRA`` or ``MISSING_RANKS`` if the library or its rank
        file is not installed, ``DAMAGED_RANKS``.

    References
    ----------
    .. [1] docs/behaviour/tokens.md and docs/studies/token_counts.md.

    Examples
    --------
    >>> get("estimate")("eight ch"), get("calibrated").name
    (2, 'calibrated(noetic_nb.tokens.estimate_tokens, as it is: no call seen)')
    """
    if name == CALIBRATED:
        return calibrated()
    if name == DEFAULT:
        return estimate_tokens
    if name == OFFLINE:
        return offline_tokenizer()
    return encoding_tokenizer(name)


def calibrated(base: str | Tokenizer = estimate_tokens) -> CalibratedTokenizer:
    """Return a counter that starts as another one and learns from the usage in the harness that uses it.

    Parameters
    ----------
    base : str or callable
        The base counter: a name for `get`, or a function.

    Examples
    --------
    >>> calibrated()("eight ch")
    2
    """
    return TokenCalibration(as_tokenizer(base)).tokenizer()


@functools.lru_cache(maxsize=64)
def best_tokenizer(model: str = "") -> Tokenizer:
    """Return the counter closest to a model's bill: its vocabulary, otherwise o200k_base, if installed."""
    for name in (model, "o200k_base"):
        try:
            return encoding_tokenizer(name)
        except NoeticConfigError:  # no vocabulary is published, or none is installed
            continue
    return offline_tokenizer()


def asked_tokenizer(given: str | TokenCalibration | Tokenizer | None) -> Tokenizer | None:
    """Return the counter for a recorded run, from a name, object or function; raises ``INVALID_TOKENIZER``, and as `get`."""
    if isinstance(given, str | TokenCalibration):
        counter: Tokenizer = as_tokenizer(given)
        return counter
    if given is not None and not callable(given):
        raise NoeticConfigError(
            "INVALID_TOKENIZER",
            "A tokenizer must be a function of a text, or the name of a tokenizer.",
            given=given,
            hint="Pass the one that the harness was given.",
        )
    return given


def as_tokenizer(given: Any) -> Any:
    """Return the counter given to a harness as a name, a `TokenCalibration`, or a function.

    A user-defined function is wrapped: if it raises, the default estimate counts instead.

    Raises
    ------
    NoeticConfigError
        As `get`, and ``UNKNOWN_TOKENIZER`` with the nearest names.
    """
    if isinstance(given, str):
        try:
            return get(given)
        except NoeticConfigError as exc:
            if exc.code != "UNKNOWN_TOKENIZER":
                raise
            near = closest(given, [CALIBRATED, DEFAULT, OFFLINE])
            if not near:
                raise
            raise NoeticConfigError(
                "UNKNOWN_TOKENIZER", "There is no tokenizer of this name.", given=given, hint=near
            ) from exc
    if isinstance(given, TokenCalibration):
        return given.tokenizer()
    if given is estimate_tokens or isinstance(given, EncodingTokenizer | CalibratedTokenizer | FallbackTokenizer):
        return given
    return FallbackTokenizer(given)
