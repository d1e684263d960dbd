"""Make a counter from a name, a rank file, or whatever a harness was given."""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from noetic_nb.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.tokenizers.encoding_tokenizer import EncodingTokenizer
from noetic_nb.tokenizers.encodings import ENCODINGS, Encoding, encoding_of
from noetic_nb.tokenizers.fallback import FallbackTokenizer
from noetic_nb.tokenizers.framing import framing_of
from noetic_nb.tokenizers.learning import CalibratedTokenizer, TokenCalibration
from noetic_nb.tokenizers.rank_files import INSTALL, find_ranks, known_by_digest, ranks_in, read_rank_file
from noetic_nb.tokens import KNOWN_ERRORS, Tokenizer, estimate_tokens

__all__ = ["CALIBRATED", "DEFAULT", "as_tokenizer", "calibrated", "from_ranks", "get"]

CALIBRATED: Final = "calibrated"
DEFAULT: Final = "estimate"


def get(name: str) -> Tokenizer:
    """Return a counter by name.

    Parameters
    ----------
    name : str
        An encoding (``"o200k_base"``, ``"cl100k_base"``), a model (``"gpt-4.1"``, ``"openai/gpt-4o-mini"``),
        ``"estimate"`` for the default, or ``"calibrated"`` for one that starts as the default and learns.

    Returns
    -------
    callable
        From text to tokens, with ``name`` and ``known_error``: the mean absolute relative error of a whole request against
        the usage that was reported, on public runs; None where nobody has measured it.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_TOKENIZER`` with the nearest names, ``MISSING_EXTRA`` or ``MISSING_RANKS`` where the library or its rank
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
    encoding = encoding_of(name)
    return _made(encoding.name, _framing_name(name, encoding))


def _framing_name(name: str, encoding: Encoding) -> str:
    return encoding.name if name == encoding.name else name.rpartition("/")[2]


@functools.cache
def _encode_of(name: str) -> Any:
    encoding = ENCODINGS[name]
    _library()  # before its rank file is looked for: without it the file is of no use
    return _encoder(encoding.name, encoding.pattern, find_ranks(encoding))


@functools.lru_cache(maxsize=64)
def _made(name: str, model: str) -> EncodingTokenizer:
    return EncodingTokenizer(name, _encode_of(name), framing_of(model), KNOWN_ERRORS.get(name))


def from_ranks(path: str | os.PathLike[str], *, like: str | None = None, name: str | None = None) -> EncodingTokenizer:
    """Return a counter of the ranks in a file, plain or gzip: a line for each token, its bytes in base64 and its number.

    Parameters
    ----------
    path : str or path
        The file.
    like : str, optional
        The encoding, or a model that has it, whose way of splitting text is used; needed where the file is not one of those
        that are known by their digest.
    name : str, optional
        What the counter is called; that of the known encoding, or the name of the file.

    Raises
    ------
    NoeticConfigError
        ``MISSING_RANKS``, ``DAMAGED_RANKS``, ``MISSING_EXTRA``; ``UNKNOWN_TOKENIZER`` where `like` is needed or unknown.
    """
    content, digest = read_rank_file(path)
    known = known_by_digest(digest)
    if known is None and like is None:
        raise NoeticConfigError(
            "UNKNOWN_TOKENIZER",
            "This rank file is none of those that are known.",
            given=str(path),
            hint="Say how its texts are split: from_ranks(path, like='o200k_base').",
        )
    encoding = known if like is None else encoding_of(like)
    assert encoding is not None
    called = name or (known.name if known is not None else os.path.basename(os.fspath(path)))
    encode = _encoder(called, encoding.pattern, ranks_in(content, str(path)))
    error = KNOWN_ERRORS.get(known.name) if known is not None and encoding is known else None
    return EncodingTokenizer(called, encode, framing_of(encoding.name), error)


def _library() -> Any:
    try:
        import tiktoken
    except ImportError as exc:
        raise NoeticConfigError(
            "MISSING_EXTRA",
            "Counting with a provider's vocabulary needs the library tiktoken.",
            hint=f"Install the extra: {INSTALL}.",
        ) from exc
    return tiktoken


def _encoder(name: str, pattern: str, ranks: dict[bytes, int]) -> Any:
    try:
        # No special tokens: a text that looks like one is text.
        encoding = _library().Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except NoeticConfigError:
        raise
    except Exception as exc:
        hint = "Name the file of another encoding."
        raise NoeticConfigError("DAMAGED_RANKS", f"These ranks make no encoding: {exc}", given=name, hint=hint) from exc
    return encoding.encode_ordinary


def calibrated(base: str | Tokenizer = estimate_tokens) -> CalibratedTokenizer:
    """Return a counter that starts as another one and learns from the usage of the harness that it is given to.

    Parameters
    ----------
    base : str or callable
        What counts: a name for `get`, or a counter.

    Examples
    --------
    >>> calibrated()("eight ch")
    2
    """
    return TokenCalibration(as_tokenizer(base)).tokenizer()


def asked_tokenizer(given: str | TokenCalibration | Tokenizer | None) -> Tokenizer | None:
    """Return what is to count the tokens of a recorded run: by name, a `TokenCalibration` or a function; None as it is.

    Raises
    ------
    NoeticConfigError
        ``INVALID_TOKENIZER`` for what counts nothing, and as `get`.

    Examples
    --------
    >>> asked_tokenizer(len)("four"), asked_tokenizer(None)
    (4, None)
    """
    if isinstance(given, str | TokenCalibration):
        counter: Tokenizer = as_tokenizer(given)
        return counter
    if given is not None and not callable(given):
        raise NoeticConfigError(
            "INVALID_TOKENIZER",
            "A tokenizer is a function of a text, or the name of one.",
            given=given,
            hint="Pass the one that the harness was given.",
        )
    return given


def as_tokenizer(given: Any) -> Any:
    """Return the counter that a harness was given: by name, a `TokenCalibration`, or a function.

    A function of someone else is wrapped: where it raises, the default estimate counts instead.

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
            near = closest(given, [CALIBRATED, DEFAULT])
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
