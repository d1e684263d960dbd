"""Where state is kept: the four-method protocol and the stores that implement it.

`SQLiteStorage` and `Versioned` load SQLite when they are first asked for, so that importing the package stays cheap.
"""

from typing import TYPE_CHECKING

from noetic_nb.lazy import lazily
from noetic_nb.storage.base import (
    JsonValue,
    ScopedStorage,
    StorageAdapter,
    escape_segment,
    get_many,
    layer_prefix,
    write_together,
)
from noetic_nb.storage.memory import InMemoryStorage

if TYPE_CHECKING:
    from noetic_nb.storage.sqlite import SQLiteStorage, Versioned

__all__ = [
    "InMemoryStorage",
    "JsonValue",
    "SQLiteStorage",
    "ScopedStorage",
    "StorageAdapter",
    "Versioned",
    "escape_segment",
    "get_many",
    "layer_prefix",
    "write_together",
]

__getattr__ = lazily(__name__, {"SQLiteStorage": "noetic_nb.storage.sqlite", "Versioned": "noetic_nb.storage.sqlite"})
