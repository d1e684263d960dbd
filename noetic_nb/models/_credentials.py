"""Keep credentials of calls out of every repr, file and traceback."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from noetic_nb.errors import NoeticError
from noetic_nb.redact import REDACTED, redact_text

__all__ = ["Headers", "Secret", "mask", "shown_address"]

# A key of a few letters, as people give to their own servers, would blot out ordinary words.
_SHORTEST_KEY: Final = 6


class Secret:
    """A key that shows itself to nobody, and is not pickled.

    Examples
    --------
    >>> Secret("k-123")
    <hidden>
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | None) -> None:
        self._value = value

    def reveal(self) -> str | None:
        """Return the key itself, None where there is none."""
        return self._value

    def __repr__(self) -> str:
        return "<hidden>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles end up in caches and on other machines.
        raise TypeError("A key is not written anywhere. Make the OpenAIModel where it is used.")


class Headers(dict[str, str]):
    """Headers whose values stay out of every repr: one of them may be a credential.

    Examples
    --------
    >>> Headers({"X-Title": "lab", "Authorization": "k"})
    <headers Authorization, X-Title>
    """

    def __repr__(self) -> str:
        return f"<headers {', '.join(sorted(self))}>"


def shown_address(url: str) -> str:
    """Return an address without the name and password it may contain, and without its query.

    Examples
    --------
    >>> shown_address("https://me:secret@example.org/v1?key=abc")
    'https://example.org/v1'
    """
    parts = urlsplit(url)
    return redact_text(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))


def mask(error: NoeticError, key: str | None) -> None:
    """Take a key out of an error, wherever a server that repeats it has put it.

    Examples
    --------
    >>> error = NoeticError("llm_failed", "The provider said: bad key k-123456.", code="k-123456")
    >>> mask(error, "k-123456")
    >>> error.code, str(error)
    ('[redacted]', 'The provider said: bad key [redacted].')
    """
    if key is None or len(key) < _SHORTEST_KEY:
        return

    def clean(value: Any) -> Any:
        return value.replace(key, REDACTED) if isinstance(value, str) else value

    # `args` as well: it is what a traceback prints.
    error.args = tuple(map(clean, error.args))
    error.what, error.hint, error.given = clean(error.what), clean(error.hint), clean(error.given)
    error.facts = {name: clean(fact) for name, fact in error.facts.items()}
