"""Make counters of rank files: those of the encodings that are known by name, and files of one's own."""

from __future__ import annotations

import functools
import os
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.tokenizers.encoding_tokenizer import EncodingTokenizer
from noetic_nb.tokenizers.encodings import ENCODINGS, encoding_of
from noetic_nb.tokenizers.framing import framing_of
from noetic_nb.tokenizers.rank_files import INSTALL, find_ranks, known_by_digest, ranks_in, read_rank_file
from noetic_nb.tokens import KNOWN_ERRORS

__all__ = ["encoding_tokenizer", "from_ranks"]


def encoding_tokenizer(name: str) -> EncodingTokenizer:
    """Return the counter of an encoding, or of a model that has one; raises as `get` does."""
    encoding = encoding_of(name)
    return _made(encoding.name, encoding.name if name == encoding.name else name.rpartition("/")[2])


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
