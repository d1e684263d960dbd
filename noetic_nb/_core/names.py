"""Comparison of tool names that look alike, and normalisation of providers' finish reasons.

A tool name with a Cyrillic letter must not slip past a rule about ``pay``, so names are compared by a skeleton.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeAlias

LAMBDA: Final = "<lambda>"  # Python's name for a function without one

# Letters of other scripts that look like Latin ones in common fonts: the Cyrillic and Greek lines of Unicode's confusables.
_FOREIGN: Final = "аеорсухіјѕһԁԛԝАВЕКМНОРСТУХІЈЅԚԜανορτυκχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
_LATIN: Final = "aeopcyxijshdqwABEKMHOPCTYXIJSQWavoptukxABEZHIKMNOPTYX"
_TWINS: Final = str.maketrans(_FOREIGN, _LATIN)
# ASCII except letters, digits, _ and -, so that names in other scripts stay distinct.
_NOT_WIRE: Final = re.compile(r"[\x00-,./:-@\[-^`{-\x7f]")


@lru_cache(maxsize=4096)
def skeleton(name: str) -> str:
    """Return a tool's name, canonical or wire form, as a reader and a provider see it.

    It is equal for names that look the same (Unicode Technical Standard 39, section 4): compatibility forms and case
    are folded, invisible characters and surrounding space removed, Cyrillic and Greek twins of Latin letters replaced,
    and characters that providers reject become an underscore.
    """
    if name.isascii() and name.isprintable():
        return _NOT_WIRE.sub("_", name.strip()).lower()
    import unicodedata  # a megabyte that programs with plain names never need

    folded = unicodedata.normalize("NFKC", name)
    seen = "".join(char for char in folded if unicodedata.category(char) not in ("Cf", "Mn", "Cc"))
    return _NOT_WIRE.sub("_", seen.translate(_TWINS).strip()).casefold()


def looks_alike(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another name could be mistaken for, or None if there is none or it is that name."""
    wanted = skeleton(name)
    return next((other for other in known if other != name and skeleton(other) == wanted), None)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None if none is similar."""
    import difflib  # only needed for an error message

    known = list(known)
    # A name that looks the same is closer than any spelling distance shows.
    if (twin := looks_alike(name, known)) is not None:
        return twin
    lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return lower[found[0]] if found else None


def function_name(function: Any) -> str:
    """Return the name of a function; for ``functools.partial``, that of the inner function."""
    inner = inside_partial(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def inside_partial(function: Any) -> Any:
    """Return the function inside ``functools.partial``, which has the name, annotations and docstring."""
    while isinstance(function, partial):
        function = function.func
    return function


def keys(*names: str | Iterable[str]) -> frozenset[str]:
    """Return a set of names; a text may contain several, separated by blanks."""
    return frozenset(name for each in names for name in (each.split() if isinstance(each, str) else each))


def meanings(**words: str) -> dict[str, Any]:
    """Map each word to its meaning; the words for one meaning are given as one text."""
    return {word: meaning for meaning, text in words.items() for word in text.split()}


FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why an answer ended: it was complete, it calls tools, the token limit was reached, or a filter ended it."""

# Names used by providers, servers that imitate the OpenAI API, and routers.
_REASONS: Final[Mapping[str, FinishReason]] = meanings(
    stop="stop end_turn stop_sequence eos",
    tool_calls="tool_calls tool_use tool_call function_call",
    length="length max_tokens max_output_tokens model_length model_context_window_exceeded",
    content_filter="content_filter content_filtered safety refusal",
)


def finish_reason_of(given: object) -> FinishReason | None:
    """Return a provider's finish reason as one of ours; None for an unknown one."""
    return _REASONS.get(given.lower()) if isinstance(given, str) else None
