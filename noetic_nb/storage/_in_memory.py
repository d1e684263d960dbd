"""State that lives as long as the process. Nothing is shared that may change: values are kept as JSON text, or are frozen."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.items._frozen import own_copy
from noetic_nb.items._json_text import encoding
from noetic_nb.storage._adapter import JsonValue, key_taken

# Circles end in a RecursionError all the same; to look for them costs a tenth of the writing.
encode: Final = encoding(
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
)
"""How the values of every store are written."""
# Keys that are put in their places one by one; more are sorted together with those that are.
_MOST_NEW_KEYS: Final = 1_000


def json_text(key: str, value: JsonValue) -> str:
    """Return a value as JSON text, by its own ``json_text()`` if it has one; raises ``storage_failed`` for no JSON data."""
    try:
        # Of the class: a mapping may offer its keys as attributes.
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
        # Or, in place of a text, data that it would be read as, which nobody writes into.
        self._texts: dict[str, Any] = {key: json_text(key, value) for key, value in (initial or {}).items()}
        # The keys in order, None where that is not known, and those that were written since; some of both may be gone.
        self._order: list[str] | None = None
        self._new: list[str] = []
        self._ordered = self._texts

    def get_now(self, key: str) -> JsonValue | None:
        """Return a copy of the value under a key, or None: `get` for callers that need not wait."""
        found: Any = self._texts.get(key)
        return json.loads(found) if type(found) is str else own_copy(found)

    def set_now(self, key: str, value: JsonValue, *, is_own: bool = False) -> None:
        """Keep a copy of a value, None to forget the key: `set` and `delete` for callers that need not wait.

        With `is_own` it is kept as it is: its JSON text, or a mapping or a list of plain data that nobody will write into, and
        that is read back from its JSON text as it stands.
        """
        texts = self._texts
        if value is None:
            texts.pop(key, None)
            return
        if not is_own:
            value = json_text(key, value)
        is_new = key not in texts  # else it is among those in order, or the new ones, already
        texts[key] = value
        if is_new:
            self._new.append(key)
            if len(self._new) > _MOST_NEW_KEYS:
                self._forget_new()

    def write_now(
        self, values: Mapping[str, JsonValue], delete: Iterable[str] = (), absent: Iterable[str] = ()
    ) -> None:
        """Write several keys, all of them or none: `write_together` for callers that need not wait."""
        texts = self._texts
        for key in absent:
            if key in texts:
                raise key_taken(key)
        written = {key: json_text(key, value) for key, value in values.items()}
        texts.update(written)
        for key in delete:
            texts.pop(key, None)
        self._new += written
        if len(self._new) > _MOST_NEW_KEYS:
            self._forget_new()

    def has_under(self, prefix: str) -> bool:
        """Tell whether any key begins with a prefix."""
        texts, keys = self._texts, self._sorted_keys()
        for at in range(bisect_left(keys, prefix), len(keys)):
            if not keys[at].startswith(prefix):
                return False
            if keys[at] in texts:
                return True
        return False

    def _text(self, key: str) -> str | None:
        found = self._texts.get(key)
        if found is not None and type(found) is not str:
            found = self._texts[key] = json_text(key, found)
        return found

    def lacks(self, keys: Iterable[str]) -> bool:
        """Tell whether none of some keys is there."""
        return self._texts.keys().isdisjoint(keys)

    def _forget_new(self) -> None:
        # Many keys come and go with every turn, and others are written again and again.
        self._new = [key for key in dict.fromkeys(self._new) if key in self._texts]
        if len(self._new) > _MOST_NEW_KEYS // 2:
            self._new, self._order = [], None

    async def get(self, key: str) -> JsonValue | None:
        """Return a copy of the value under a key, or None."""
        return self.get_now(key)

    async def get_text(self, key: str) -> str | None:
        """Return the JSON text under a key, or None."""
        return self._text(key)

    async def get_many(self, keys: list[str]) -> dict[str, JsonValue]:
        """Return copies of the values that exist under several keys."""
        return {key: self.get_now(key) for key in keys if key in self._texts}

    async def set(self, key: str, value: JsonValue) -> None:
        """Keep a copy of a value."""
        self.set_now(key, json_text(key, value), is_own=True)

    async def delete(self, key: str) -> None:
        """Forget a key; a missing one is no error."""
        self._texts.pop(key, None)

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted."""
        texts, keys = self._texts, self._sorted_keys()
        start = bisect_left(keys, prefix)
        end = bisect_left(keys, True, start, key=lambda key: not key.startswith(prefix))
        return [key for key in keys[start:end] if key in texts]

    def _sorted_keys(self) -> Sequence[str]:
        """Return the keys in order, with some that are gone: there may be many threads, and each is looked for by itself."""
        texts, order = self._texts, self._order
        if order is None or self._ordered is not texts or len(order) > 2 * len(texts) + _MOST_NEW_KEYS:
            order, self._ordered = sorted(texts), texts
        else:
            new, start = sorted(texts.keys() & self._new), 0
            while start < len(new):
                # Together with those that come between the same two: most are of one thread.
                at = bisect_left(order, new[start])
                end = len(new) if at == len(order) else bisect_left(new, order[at], start)
                order[at:at] = new[start:end]
                start = end if end > start else start + 1  # it was there already
        self._order = order
        self._new.clear()
        return order

    def __repr__(self) -> str:
        return f"InMemoryStorage({len(self._texts)} keys)"
