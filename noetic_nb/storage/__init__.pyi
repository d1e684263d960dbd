from .adapter import JsonValue as JsonValue
from .adapter import ScopedStorage as ScopedStorage
from .adapter import StorageAdapter as StorageAdapter
from .in_memory import InMemoryStorage as InMemoryStorage
from .sqlite import SQLiteStorage as SQLiteStorage
