"""The interface of a store: four methods over text keys and JSON values.

Keys of layer state are ``layers/<layer id>/<scope key>/<user key>``. Layer id and scope key are escaped as in JSON
Pointer (RFC 6901), so that no id can reach into another's namespace; the user key is stored verbatim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from noetic_nb.errors import NoeticError

JsonValue: TypeAlias = Any
"""Text, finite numbers, booleans, None, lists and dicts with text keys, nested."""


@runtime_checkable
class StorageAdapter(Protocol):
    """A key-value store. Values are copied on the way in and out; reading a missing key returns None.

    A store may also have ``get_many(keys)`` and ``set_many(values, *, delete=(), absent=())``, as `SQLiteStorage` does,
    see `get_many` and `write_together`; and ``get_text(key)``, the JSON text of a value, see `ScopedStorage.get_text`.
    """

    async def get(self, key: str) -> JsonValue | None:
        """Return the value under a key, or None."""

    async def set(self, key: str, value: JsonValue) -> None:
        """Store a value under a key, replacing the old one."""

    async def delete(self, key: str) -> None:
        """Delete a key; a missing one is not an error."""

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted."""


async def get_many(storage: StorageAdapter, keys: Iterable[str]) -> dict[str, JsonValue]:
    """Return the existing values of several keys, through the store's own ``get_many`` if it has one."""
    wanted = list(dict.fromkeys(keys))
    if not wanted:
        return {}
    # Optional rather than part of the protocol: your own store only needs the four methods.
    many = getattr(storage, "get_many", None)
    if many is not None:
        found: Mapping[str, JsonValue] = await many(wanted)
        return dict(found)
    values = await asyncio.gather(*(storage.get(key) for key in wanted))
    return {key: value for key, value in zip(wanted, values, strict=True) if value is not None}


async def write_together(
    storage: StorageAdapter, values: Mapping[str, JsonValue], *, delete: Iterable[str] = (), absent: Iterable[str] = ()
) -> None:
    """Write several keys as one; atomically if the store has ``set_many``.

    `delete` are keys to delete, distinct from those in `values`; `absent` are keys that must not exist: if one does,
    raises `NoeticError` ``state_conflict`` with `key`, and nothing is written. Other stores are written key by key,
    first the values in their order, then the deletions in theirs; the caller chooses a safe order.
    """
    many = set_many_of(storage)
    if many is not None:
        await many(values, delete=delete, absent=absent)
        return
    # Another writer may interfere; four methods cannot prevent that.
    for key in absent:
        if await storage.get(key) is not None:
            raise key_taken(key)
    for key, value in values.items():
        await storage.set(key, value)
    for key in delete:
        await storage.delete(key)


def set_many_of(storage: StorageAdapter) -> Any:
    """Return the store's ``set_many``, or None: a subclass may do more when a single key is written."""
    writing = {"set", "delete", "set_many"}
    first = next((kind for kind in type(storage).__mro__ if not writing.isdisjoint(vars(kind))), None)
    return None if first is not None and "set_many" not in vars(first) else getattr(storage, "set_many", None)


def key_taken(key: str) -> NoeticError:
    """Return the error for a key that exists but must not."""
    hint = "Read it and decide which state wins; nothing was written."
    return NoeticError("state_conflict", f"Another writer has written {key!r} already.", hint=hint, key=key)


def text_key(key: str) -> str:
    """Return a key; raises `NoeticError` ``storage_failed`` for no text."""
    if not isinstance(key, str):
        raise NoeticError("storage_failed", "A key must be text.", given=key, hint="Use str(key).", key=key)
    return key


def escape_segment(segment: str) -> str:
    """Escape one segment of a key as JSON Pointer does (RFC 6901, section 3): ``~`` as ``~0``, ``/`` as ``~1``."""
    return text_key(segment).replace("~", "~0").replace("/", "~1")


def layer_prefix(layer_id: str, scope_key: str) -> str:
    """Return the namespace of one layer in one scope."""
    return f"layers/{escape_segment(layer_id)}/{escape_segment(scope_key)}/"


class ScopedStorage:
    """A view of a store that is limited to one layer's namespace.

    Parameters
    ----------
    storage : StorageAdapter
        The underlying store.
    layer_id, scope_key : str
        Layer and scope of the namespace; see `layer_prefix`.

    Examples
    --------
    >>> import asyncio
    >>> from noetic_nb.storage import InMemoryStorage
    >>> store = InMemoryStorage()
    >>> asyncio.run(ScopedStorage(store, "notes", "t1").set("state", {"n": 1}))
    >>> asyncio.run(store.list(""))
    ['layers/notes/t1/state']
    """

    __slots__ = ("layer_id", "scope_key", "storage")

    def __init__(self, storage: StorageAdapter, layer_id: str, scope_key: str) -> None:
        self.storage = storage
        self.layer_id = layer_id
        self.scope_key = scope_key

    @property
    def prefix(self) -> str:
        """The namespace: the prefix of all keys in the store."""
        # Computed on demand: state that lives only as long as an execution is seldom stored, and each has its own key.
        return layer_prefix(self.layer_id, self.scope_key)

    async def get(self, key: str) -> JsonValue | None:
        """Return the value under a key of this namespace, or None."""
        return await self.storage.get(self.prefix + text_key(key))

    async def get_text(self, key: str) -> str | None:
        """Return the JSON text under a key of this namespace, or None: cheaper to compare than the value."""
        read = getattr(self.storage, "get_text", None)
        if read is None:
            return None
        text: str | None = await read(self.prefix + text_key(key))
        return text

    async def get_many(self, keys: Iterable[str]) -> dict[str, JsonValue]:
        """Return the existing values of several keys in this namespace."""
        prefix = self.prefix
        found = await get_many(self.storage, [prefix + text_key(key) for key in keys])
        return {key.removeprefix(prefix): value for key, value in found.items()}

    async def set(self, key: str, value: JsonValue) -> None:
        """Store a value in this namespace."""
        await self.storage.set(self.prefix + text_key(key), value)

    async def delete(self, key: str) -> None:
        """Delete a key of this namespace."""
        await self.storage.delete(self.prefix + text_key(key))

    async def list(self, prefix: str = "") -> list[str]:
        """Return the keys of this namespace that begin with a prefix, without the namespace."""
        own = self.prefix
        return [key.removeprefix(own) for key in await self.storage.list(own + text_key(prefix))]

    def __repr__(self) -> str:
        return f"ScopedStorage({self.prefix!r})"
