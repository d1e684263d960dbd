"""The encoding of each model, and the parts of an encoding: data, with source and date.

The rank tables themselves are files (see `rank_files`); their digests are here, so that a damaged or foreign file is found
before it counts anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError

SOURCE: Final = "github.com/openai/tiktoken, tiktoken/model.py and tiktoken_ext/openai_public.py of release 0.14.0"
AS_OF: Final = "2026-11-22"
"""When the data of this file were read at `SOURCE`."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """One vocabulary: how text is split before pairs are merged, and the rank file of the merges.

    `url` is where the file was published, which is also what the cache of `tiktoken` names it by; `sha256` is the digest of
    its content.
    """

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
"""Encodings by the name of a model."""

PREFIXES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("o1-", "o3-", "o4-mini-", "gpt-5", "gpt-4.5-", "gpt-4.1-", "chatgpt-4o-", "gpt-4o-", "ft:gpt-4o"), "o200k_base"
    ),
    **dict.fromkeys(("gpt-4-", "gpt-3.5-turbo-", "gpt-35-turbo-", "ft:gpt-4", "ft:gpt-3.5-turbo"), "cl100k_base"),
}
"""Encodings by how the name of a model begins, longest beginning first in use."""

# Their providers publish no vocabulary for current models: they count on a server, or not at all.
_UNPUBLISHED: Final = ("claude", "gemini", "grok", "command", "nova")


def encoding_of(name: str) -> Encoding:
    """Return the encoding of a name: its own, a model's, or a model's with its provider before it (``openai/gpt-4.1``).

    Raises `NoeticConfigError` ``UNKNOWN_TOKENIZER`` with the nearest names.
    """
    if not isinstance(name, str):
        raise NoeticConfigError("UNKNOWN_TOKENIZER", "A tokenizer is named by a text.", given=name, hint=_known())
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
