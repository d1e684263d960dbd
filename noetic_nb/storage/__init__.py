"""Where state is kept: the four-method protocol and the stores that implement it."""

from noetic_nb.storage.base import JsonValue, ScopedStorage, StorageAdapter, escape_segment, get_many, layer_prefix
from noetic_nb.storage.memory import InMemoryStorage

__all__ = [
    "InMemoryStorage",
    "JsonValue",
    "ScopedStorage",
    "StorageAdapter",
    "escape_segment",
    "get_many",
    "layer_prefix",
]
