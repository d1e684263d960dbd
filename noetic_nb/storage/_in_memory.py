"""State that lives as long as the process. Values are stored as JSON text, so that no mutable data is shared."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final

from noetic_nb.errors import NoeticError
from noetic_nb.items._json_text import encoding
from noetic_nb.storage._adapter import JsonValue, key_taken, text_key

# Cycles end in a RecursionError anyway; checking for them takes a tenth of the writing time.
encode: Final = encoding(
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
)
"""Encodes the values of every store."""


def json_text(key: str, value: JsonValue) -> str:
    """Return a value as JSON text, by its own ``json_text()`` if it has one; raises ``storage_failed`` if it is not JSON data."""
    try:
        # Looked up on the class: a mapping may offer its keys as attributes.
        write = getattr(type(value), "json_text", None)
        text: str = encode(value) if write is None else write(value)
        return text
    except (TypeError, ValueError, RecursionError) as exc:
        what = f"The value under {key!r} is not JSON data: {exc}"
        hint = "Keep text, finite numbers, booleans, None, lists and dicts; nothing was written."
        raise NoeticError("storage_failed", what, given=value, hint=hint, key=key) from exc


class InMemoryStorage:
    """A `StorageAdapter` in a dictionary; the default of a harness.

    Parameters
    ----------
    initial : mapping, optional
        Initial contents.

    Examples
    --------
    >>> import asyncio
    >>> store = InMemoryStorage({"a": [1]})
    >>> value = asyncio.run(store.get("a")); value.append(2)
    >>> asyncio.run(store.get("a"))
    [1]
    """

    def __init__(self, initial: Mapping[str, JsonValue] | None = None) -> None:
        self._texts = {key: json_text(text_key(key), value) for key, value in (initial or {}).items()}
        # Every turn lists the keys of its thread; without an order it would read the keys of all threads.
        self._keys = sorted(self._texts)

    def _put(self, key: str, text: str) -> None:
        if key not in self._texts:
            insort(self._keys, key)
        self._texts[key] = text

    def _drop(self, key: str) -> None:
        if self._texts.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def get(self, key: str) -> JsonValue | None:
        """Return a copy of the value under a key, or None."""
        text = self._texts.get(text_key(key))
        return None if text is None else json.loads(text)

    async def get_text(self, key: str) -> str | None:
        """Return the JSON text under a key, or None."""
        return self._texts.get(text_key(key))

    async def get_many(self, keys: list[str]) -> dict[str, JsonValue]:
        """Return copies of the existing values of several keys."""
        return {key: json.loads(self._texts[key]) for key in keys if key in self._texts}

    async def set(self, key: str, value: JsonValue) -> None:
        """Store a copy of a value."""
        self._put(key, json_text(text_key(key), value))

    async def delete(self, key: str) -> None:
        """Delete a key; a missing one is not an error."""
        self._drop(text_key(key))

    async def set_many(
        self, values: Mapping[str, JsonValue], *, delete: Iterable[str] = (), absent: Iterable[str] = ()
    ) -> None:
        """Write several keys, all of them or none, as `SQLiteStorage` does."""
        for key in absent:
            if key in self._texts:
                raise key_taken(key)
        written = {key: json_text(key, value) for key, value in values.items()}
        for key in delete:
            self._drop(key)
        for key, text in written.items():
            self._put(key, text)

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted."""
        keys = self._keys
        start = bisect_left(keys, text_key(prefix))
        return keys[start : bisect_left(keys, True, start, key=lambda key: not key.startswith(prefix))]

    def __repr__(self) -> str:
        return f"InMemoryStorage({len(self._texts)} keys)"
