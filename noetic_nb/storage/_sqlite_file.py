"""The file behind `SQLiteStorage`: opening it, its schema, and user-facing errors for SQLite's errors.

A version is not a count of writes: a new key starts at a random 48-bit number and counts up from there, so that a key
that was deleted and created again never looks unchanged to a compare-and-set.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from noetic_nb._core.atomic_write import file_name, owner_only
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.storage._adapter import text_key

T = TypeVar("T")
Synchronous: TypeAlias = Literal["OFF", "NORMAL", "FULL"]

SCHEMA_VERSION: Final = 2
# Marks the file as ours, so that another program's database is never written to: "NNB" and a serial, in ASCII.
APPLICATION_ID: Final = int.from_bytes(b"NNB1", "big")

# A rowid table keeps 2 KB values out of the key index: lists read the index alone, and overwriting a value in place
# touches one page. Measured at half the cost of WITHOUT ROWID for both set and get.
_SCHEMA: Final = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT NOT NULL, version INTEGER NOT NULL, value TEXT NOT NULL)",
    # NULL in rows that were written before version 2.
    _ADD_CHECKSUM := "ALTER TABLE entries ADD COLUMN checksum INTEGER",
    "CREATE UNIQUE INDEX entries_key ON entries (key)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    _SET_VERSION := f"PRAGMA user_version = {SCHEMA_VERSION}",
)

UPSERT: Final = (
    "INSERT INTO entries (key, version, value, checksum) VALUES (?, random() & 0xFFFFFFFFFFFF, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET version = version + 1, value = excluded.value, checksum = excluded.checksum"
)
"""Takes the parameters of `row`."""
DELETE: Final = "DELETE FROM entries WHERE key = ?"


def checksum_of(key: str, text: str) -> int:
    """Return the checksum of a value and its key, which changes if any bit differs."""
    return zlib.crc32(text.encode(), zlib.crc32(key.encode()))


def row(key: str, text: str) -> tuple[str, str, int]:
    return key, text, checksum_of(key, text)


# Largest file whose index is checked when it is opened: about 50 ms.
_MOST_CHECKED: Final = 32 * 2**20
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_MEANING: Final[dict[int, tuple[str, str]]] = {
    sqlite3.SQLITE_FULL: ("The disk is full.", "Free space on it and try again; earlier data is intact."),
    sqlite3.SQLITE_READONLY: ("The file is read-only.", "Make the file and its folder writable, or use another path."),
    sqlite3.SQLITE_CORRUPT: (
        "The file is damaged.",
        "Close every program that has it open, keep a copy, and restore a backup or run `sqlite3 FILE .recover`.",
    ),
    sqlite3.SQLITE_NOTADB: ("The file is not an SQLite database.", "Use another path, or move that file away."),
    sqlite3.SQLITE_CANTOPEN: (
        "The file cannot be opened.",
        "Check that the folder exists and may be read and written.",
    ),
    sqlite3.SQLITE_PERM: ("The file may not be accessed.", "Check the permissions of the file and its folder."),
    sqlite3.SQLITE_IOERR: ("The disk reported an error.", "Check the disk, or whether the folder is still mounted."),
    sqlite3.SQLITE_TOOBIG: ("A value is too large for SQLite.", "Keep values below 1 GB; split this one over keys."),
    sqlite3.SQLITE_NOMEM: ("Memory ran out.", "Free memory and try again; nothing of this write was kept."),
}


def storage_error(exc: Exception, path: str, doing: str) -> NoeticError:
    """Return the error for an exception of the database: the file, the operation, and the remedy."""
    code = primary_code(exc)
    name = getattr(exc, "sqlite_errorname", type(exc).__name__)
    if code in _BUSY:
        what = "Another process kept the database locked."
        hint = "Let it finish, close a kernel that hangs inside a transaction, or raise `busy_timeout_ms`."
    else:
        what, hint = _MEANING.get(code, (str(exc), "Look at the file and its disk, then try again."))
    return NoeticError("storage_failed", f"{doing} {path!r} failed: {what}", hint=hint, path=path, reason=name)


def primary_code(exc: BaseException) -> int:
    """Return SQLite's primary result code; 0 for any other error."""
    code: int = getattr(exc, "sqlite_errorcode", 0)
    return code & 0xFF  # extended codes such as BUSY_RECOVERY keep the primary one in the low byte


def is_busy(exc: BaseException) -> bool:
    """Tell whether waiting may help."""
    return primary_code(exc) in _BUSY


def patiently(action: Callable[[], T], budget_ms: float) -> T:
    """Run an action until the database is free, with jittered pauses: SQLite's own busy handler is not always called."""
    waited_ms, pause_ms = 0.0, 0.25
    while True:
        try:
            return action()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or waited_ms >= budget_ms:
                raise
        nap_ms = min(pause_ms * random.uniform(0.5, 1.0), budget_ms - waited_ms)
        threading.Event().wait(nap_ms / 1000)
        waited_ms += nap_ms
        pause_ms = min(pause_ms * 2, 20.0)


def check_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path that can hold a database; raises ``INVALID_STORAGE_PATH``."""
    # Checked despite the annotation: notebooks are not type-checked.
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or text in {"", ":memory:"} or text.startswith("file:"):
        what = "SQLite storage needs the name of a file."
        hint = "Pass a path such as 'desk.db'; use InMemoryStorage for state that need not last."
        raise NoeticConfigError("INVALID_STORAGE_PATH", what, given=path, hint=hint)
    try:
        target = Path(file_name(text)).expanduser().absolute()
    except OSError as exc:
        what = f"The database cannot be made: {exc.strerror}."
        raise NoeticConfigError("INVALID_STORAGE_PATH", what, given=text, hint="Use another path.") from exc
    if target.is_dir():
        hint = "Name a file inside it, such as 'desk.db'."
        raise NoeticConfigError("INVALID_STORAGE_PATH", "The path is a folder.", given=text, hint=hint)
    if not target.parent.is_dir():
        what = "The folder of the database does not exist."
        hint = f"Create {str(target.parent)!r} first, or use another path."
        raise NoeticConfigError("INVALID_STORAGE_PATH", what, given=text, hint=hint)
    return str(target)


def check_key(key: str) -> str:
    """Return a key that can be stored; raises ``storage_failed`` if it is not text, or has a lone surrogate."""
    if not text_key(key).isascii():
        try:
            key.encode()
        except UnicodeEncodeError as exc:
            what = f"The key holds a lone surrogate at position {exc.start}."
            hint = "Decode the text it came from with the right encoding, or escape it."
            raise NoeticError("storage_failed", what, given=key, hint=hint, key=key) from exc
    return key


def prefix_range(prefix: str) -> tuple[str, str | None]:
    """Return the first key with a prefix and the first after all of them, or None: UTF-8 sorts like code points."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1])
        if point < sys.maxunicode:
            # U+D800 to U+DFFF are not characters: U+E000 follows U+D7FF.
            following = 0xE000 if point == 0xD7FF else point + 1
            return prefix, prefix[: end - 1] + chr(following)
    return prefix, None


def open_writer(path: str, synchronous: Synchronous, budget_ms: float) -> sqlite3.Connection:
    """Open the writing connection, creating or checking the file; raises ``storage_failed``."""
    try:
        # Readable by its owner only, as are the log and the index beside it. Only if there is no file yet: closing a
        # second descriptor would drop the locks that this process holds on the first.
        with contextlib.suppress(OSError):  # SQLite reports any problem with the path
            os.close(owner_only(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        connection = _connect(path)
        try:
            patiently(lambda: _prepare(connection, path, synchronous), budget_ms)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as exc:
        raise storage_error(exc, path, "Opening") from exc
    return connection


def open_reader(path: str) -> sqlite3.Connection:
    """Open a read-only connection; raises `NoeticError` ``storage_failed`` if the file cannot be opened."""
    try:
        connection = _connect(path)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as exc:
        raise storage_error(exc, path, "Opening") from exc
    return connection


def open_mover(path: str, synchronous: Synchronous) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def move_log(connection: sqlite3.Connection) -> int:
    """Move the write-ahead log into the file as far as possible while others read and write; returns its remaining pages."""
    # Pages in the log, and the number of them in the file; -1 if another process is doing the same.
    pages, moved = map(int, connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1:])
    return max(0, pages - moved)


def _connect(path: str) -> sqlite3.Connection:
    # timeout=0: `patiently` does all waiting, so that a read on the event loop never sleeps there. Python's thread
    # check is off because our own locks limit each connection to one thread at a time.
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _check_index(connection: sqlite3.Connection, path: str) -> None:
    """Check that every row can be found: a damaged key would look like a missing value, which no checksum detects."""
    size = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] if size <= _MOST_CHECKED else "ok"
    # Page errors are reported when the page is read.
    if "index" in found or "out of order" in found:
        what = f"Opening {path!r} failed: The file is damaged ({found})."
        hint = _MEANING[sqlite3.SQLITE_CORRUPT][1]
        raise NoeticError("storage_failed", what, hint=hint, path=path, reason="SQLITE_CORRUPT")


def _prepare(connection: sqlite3.Connection, path: str, synchronous: Synchronous) -> None:
    # A single statement sees one consistent state: another process may be creating this very file.
    application_id, found, tables = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), "
        "(SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    if application_id != APPLICATION_ID and tables:
        what = f"{path!r} is a database of another program; nothing was changed."
        raise NoeticError("storage_failed", what, hint="Use another path.", path=path)
    if found > SCHEMA_VERSION:
        what = f"{path!r} has schema version {found}; this version of noetic_nb knows up to {SCHEMA_VERSION}."
        hint = "Upgrade noetic_nb, or use another path; nothing was changed."
        raise NoeticError(
            "storage_failed", what, hint=hint, path=path, found_version=found, known_version=SCHEMA_VERSION
        )
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        what = f"The file system of {path!r} does not allow a write-ahead log (journal mode is {mode!r})."
        hint = "Put the database on a local disk; network folders often lack shared memory."
        raise NoeticError("storage_failed", what, hint=hint, path=path)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    _check_index(connection, path)
    # Taking the write lock detects a read-only file now rather than at the first write.
    connection.execute("BEGIN IMMEDIATE")
    try:
        known = connection.execute("PRAGMA user_version").fetchone()[0]
        for statement in _SCHEMA if not known else (_ADD_CHECKSUM, _SET_VERSION) if known < SCHEMA_VERSION else ():
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
