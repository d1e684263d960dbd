"""Names: those of tools, of which two that look the same are equal, and why an answer ended in the words of its provider.

A rule about ``pay`` that a tool named with a Cyrillic letter slips past would be no rule: names are compared by a skeleton.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeAlias

LAMBDA: Final = "<lambda>"  # what Python calls a function without a name

# Letters of other scripts that look like Latin ones in common fonts: the Cyrillic and Greek lines of Unicode's confusables.
_FOREIGN: Final = "аеорсухіјѕһԁԛԝАВЕКМНОРСТУХІЈЅԚԜανορτυκχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
_LATIN: Final = "aeopcyxijshdqwABEKMHOPCTYXIJSQWavoptukxABEZHIKMNOPTYX"
_TWINS: Final = str.maketrans(_FOREIGN, _LATIN)
# ASCII but for letters, digits, _ and -: names in other scripts stay apart from each other.
_NOT_WIRE: Final = re.compile(r"[\x00-,./:-@\[-^`{-\x7f]")


@lru_cache(maxsize=4096)
def skeleton(name: str) -> str:
    """Return a tool's name, canonical or as it travels, in the form that a reader and a provider see.

    It is equal for names that look the same (Unicode Technical Standard 39, section 4): compatibility forms and case folded,
    invisible characters and space around the name left out, Cyrillic and Greek twins of Latin letters replaced, and characters
    that providers refuse as an underscore.
    """
    if name.isascii() and name.isprintable():
        return _NOT_WIRE.sub("_", name.strip()).lower()
    import unicodedata  # a megabyte that a program with plain names never needs

    folded = unicodedata.normalize("NFKC", name)
    seen = "".join(char for char in folded if unicodedata.category(char) not in ("Cf", "Mn", "Cc"))
    return _NOT_WIRE.sub("_", seen.translate(_TWINS).strip()).casefold()


def looks_alike(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another one could be taken for, or None if there is none or it is that name."""
    wanted = skeleton(name)
    return next((other for other in known if other != name and skeleton(other) == wanted), None)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None if none is near."""
    import difflib  # only ever wanted for an error message

    known = list(known)
    # A name that looks the same is nearer than any spelling distance can show.
    if (twin := looks_alike(name, known)) is not None:
        return twin
    lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return lower[found[0]] if found else None


def function_name(function: Any) -> str:
    """Return the name of a function; of ``functools.partial``, that of the function inside."""
    inner = inside_partial(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def inside_partial(function: Any) -> Any:
    """Return the function in ``functools.partial``, where its name, annotations and docstring are."""
    while isinstance(function, partial):
        function = function.func
    return function


def keys(*names: str | Iterable[str]) -> frozenset[str]:
    """Return names, some of them in a text with blanks between them."""
    return frozenset(name for each in names for name in (each.split() if isinstance(each, str) else each))


def meanings(**words: str) -> dict[str, Any]:
    """Return each of some words with its meaning; those of one meaning stand in a text."""
    return {word: meaning for meaning, text in words.items() for word in text.split()}


FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why an answer ended: it was complete, it calls tools, the limit of generated tokens was reached, or a filter ended it."""

# As providers, servers that imitate the OpenAI API, and routers name them.
_REASONS: Final[Mapping[str, FinishReason]] = meanings(
    stop="stop end_turn stop_sequence eos",
    tool_calls="tool_calls tool_use tool_call function_call",
    length="length max_tokens max_output_tokens model_length model_context_window_exceeded",
    content_filter="content_filter content_filtered safety refusal",
)


def finish_reason_of(given: object) -> FinishReason | None:
    """Return a provider's finish reason as one of ours; None for an unknown one."""
    return _REASONS.get(given.lower()) if isinstance(given, str) else None
