from ._adapter import JsonValue as JsonValue
from ._adapter import ScopedStorage as ScopedStorage
from ._adapter import StorageAdapter as StorageAdapter
from ._in_memory import InMemoryStorage as InMemoryStorage
from ._sqlite import SQLiteStorage as SQLiteStorage
