"""State that lives as long as the process. Nothing is ever shared with the caller: values are kept as JSON text, or as copies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.items.frozen import own_copy
from noetic_nb.items.json_text import encoding
from noetic_nb.storage.adapter import JsonValue

__all__ = ["InMemoryStorage", "encode", "json_text"]

# Circles end in a RecursionError all the same; to look for them costs a tenth of the writing.
encode: Final = encoding(
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
)
"""How the values of every store are written."""


def json_text(key: str, value: JsonValue) -> str:
    """Return a value as JSON text.

    A value whose class has a method ``json_text()`` writes itself, the same text to the byte: it may keep its parts.

    Raises `NoeticError` ``storage_failed`` if the value is not JSON data; nothing is written then.

    Examples
    --------
    >>> json_text("k", {"a": (1, 2)})
    '{"a":[1,2]}'
    """
    try:
        # Of the class: a mapping may offer its keys as attributes.
        write = getattr(type(value), "json_text", None)
        text: str = encode(value) if write is None else write(value)
        return text
    except (TypeError, ValueError, RecursionError) as exc:
        raise NoeticError(
            "storage_failed",
            f"The value under {key!r} is not JSON data: {exc}",
            given=value,
            hint="Keep text, finite numbers, booleans, None, lists and dicts; nothing was written.",
            key=key,
        ) from exc


class InMemoryStorage:
    """A `StorageAdapter` in a dictionary; the default of a harness.

    Parameters
    ----------
    initial : mapping, optional
        First contents.

    Examples
    --------
    >>> import asyncio
    >>> store = InMemoryStorage({"a": [1]})
    >>> value = asyncio.run(store.get("a")); value.append(2)
    >>> asyncio.run(store.get("a"))
    [1]
    """

    is_prompt: Final = True
    """What waits here waits for futures of the loop only: see `ThreadStore.is_prompt`."""

    def __init__(self, initial: Mapping[str, JsonValue] | None = None) -> None:
        # Or, in place of a text, data that nobody writes into and that it would be read as: most are replaced before they are
        # read.
        self._texts: dict[str, Any] = {key: json_text(key, value) for key, value in (initial or {}).items()}

    def get_now(self, key: str) -> JsonValue | None:
        """Return a copy of the value under a key, or None: `get` for who need not wait."""
        found = self._texts.get(key)
        if type(found) is str:
            return json.loads(found)
        return own_copy(found)

    def set_now(self, key: str, value: JsonValue, *, is_own: bool = False) -> None:
        """Keep a copy of a value, None to forget the key: `set` and `delete` for who need not wait.

        With `is_own` it is kept as it is: a mapping or a list of plain data that nobody will write into, and that is read
        back from its JSON text as it stands.
        """
        if value is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = value if is_own else json_text(key, value)

    async def get(self, key: str) -> JsonValue | None:
        """Return a copy of the value under a key, or None."""
        return self.get_now(key)

    async def get_text(self, key: str) -> str | None:
        """Return the JSON text under a key, or None."""
        found = self._texts.get(key)
        if found is not None and type(found) is not str:
            found = self._texts[key] = encode(found)
        return found

    async def get_many(self, keys: list[str]) -> dict[str, JsonValue]:
        """Return copies of the values that exist under several keys."""
        return {key: self.get_now(key) for key in keys if key in self._texts}

    async def set(self, key: str, value: JsonValue) -> None:
        """Keep a copy of a value."""
        self._texts[key] = json_text(key, value)

    async def delete(self, key: str) -> None:
        """Forget a key; a missing one is no error."""
        self._texts.pop(key, None)

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted."""
        return sorted(key for key in self._texts if key.startswith(prefix))

    def __repr__(self) -> str:
        return f"InMemoryStorage({len(self._texts)} keys)"
