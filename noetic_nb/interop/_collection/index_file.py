"""The index of a collection: an SQLite file with the facts of each run, and its text in a contentless FTS5 table.

Several processes may write to it at once. Files of runs are read outside a transaction and replaced within one. Row
numbers are never reused, because the contentless table keeps the words of replaced runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from noetic_nb._core.atomic_write import owner_only
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, ModelCalled, RegulatorDecided, SteeringDecided, ToolCalled
from noetic_nb.items import item_text
from noetic_nb.runs import Run

FACTS: Final[Mapping[str, str]] = {
    "run_id": "its name",
    "path": "its file; null where it has none",
    "place": "its place in the file, from 0",
    "source": "the format it was imported from",
    "task": "meta.task_id",
    "model": "of its last model call, else meta.model",
    "query": "the start of the user's first message",
    "turns": "how many",
    "threads": "how many",
    "model_calls": "how many",
    "tool_calls": "how many",
    "failed_calls": "tool calls that did not end well",
    "tools": "names of the tools that were called, sorted",
    "outcome": "true good, false failed, null unknown: the label on which raters agree, else meta.outcome",
    "cost": "US dollars",
    "tokens": "input and output tokens",
    "input_tokens": "of all model calls",
    "output_tokens": "of all model calls",
    "duration_ms": "of all turns",
    "decisions": "decisions of rules and regulators that let not everything pass, sorted",
    "denied": "calls and answers that rules denied",
    "labels": "of the whole run, by name",
    "meta": "short values of the run's meta, by key",
}
"""The facts that can be used in an expression, and the columns of a frame."""
_MOST_TEXT: Final = 400
_MOST_POINTS: Final = 32


def facts_of(run: Run) -> dict[str, Any]:
    """Return the facts of a run except its place and labels; ``context`` and ``costs`` are the points of sparklines."""
    turns = run.turns
    calls = run.select(ModelCalled)
    tools = run.select(ToolCalled)
    rules = run.select(SteeringDecided)
    regulated = [str(event.decision.get("kind")) for event in run.select(RegulatorDecided)]
    decisions = {event.action for event in rules} - {"allow"} | set(regulated) - {"continue", "None"}
    inputs = _sum([turn.input_tokens for turn in turns])
    outputs = _sum([turn.output_tokens for turn in turns])
    return {
        "run_id": run.run_id,
        "source": run.meta.get("source"),
        "task": run.meta.get("task_id"),
        "model": calls[-1].model if calls else run.meta.get("model"),
        "query": turns[0].query[:_MOST_TEXT] if turns else "",
        "turns": len(turns),
        "threads": len(run.threads),
        "model_calls": len(calls),
        "tool_calls": len(tools),
        "failed_calls": sum([call.status != "ok" for call in tools]),
        "tools": sorted({call.name for call in tools}),
        "cost": run.cost(),
        "tokens": None if inputs is None or outputs is None else inputs + outputs,
        "input_tokens": inputs,
        "output_tokens": outputs,
        "duration_ms": _sum([turn.duration_ms for turn in turns]),
        "decisions": sorted(decisions),
        "denied": sum([event.action == "deny" for event in rules]),
        "meta": {
            str(key): value
            for key, value in run.meta.items()
            if value is None
            or isinstance(value, bool | int | float)
            or (isinstance(value, str) and len(value) <= _MOST_TEXT)
        },
        "context": _points([call.input_tokens for call in calls if call.purpose == "agent"]),
        "costs": _points(list(accumulate([turn.cost or 0.0 for turn in turns]))),
    }


def texts_of(run: Run) -> str:
    """Return all text of a run: the items of every log, and its name."""
    found = [item_text(item) for event in run.select(ItemsAppended) for item in event.items]
    return "\n".join([run.run_id, *found])


def _sum(values: Sequence[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _points(values: Sequence[float]) -> list[float]:
    """Return a sample of the values, which always includes the last one."""
    step = max(1, -(-len(values) // _MOST_POINTS))
    return [round(value, 6) for value in values[::-1][::step][::-1]] if any(values) else []


NAME: Final = ".noetic-runs.sqlite"  # the index file in an indexed folder
SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = int.from_bytes(b"NNR1", "big")
_SCHEMA: Final = (
    "CREATE TABLE files (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, labelled TEXT NOT NULL)",
    "CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, place INTEGER NOT NULL, key TEXT,"
    " facts TEXT, labels TEXT NOT NULL, error TEXT, UNIQUE (path, place))",
    "CREATE VIRTUAL TABLE words USING fts5 (text, content='', tokenize='unicode61')",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_TABLES: Final = ("words", "runs", "files")
_WAIT_S: Final = 60.0
# Words of replaced runs stay in the index. Once they outnumber those of current runs, all files are read again.
_FEW: Final = 1_000
_PART: Final = re.compile(r'"([^"]*)"|(\S+)')

Key = tuple[str, int]  # a run: the path of its file relative to the base of the index, and its position in that file


class Entry(NamedTuple):
    """One run of a file, or one unreadable record, which has `error` set."""

    key: str | None = None
    facts: Mapping[str, Any] | None = None
    labels: Sequence[Any] = ()
    text: str = ""
    error: str | None = None


def cached_index(name: str) -> Path:
    """Return the index in the user's cache, for a folder that is not writable or for several files."""
    if os.name == "nt":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "noetic_nb" / "runs" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.sqlite"


class RunIndex:
    """An index, in memory without a path; raises ``storage_failed``, or ``INVALID_INDEX`` for a foreign file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            if path is not None and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(owner_only(str(path), os.O_RDWR | os.O_CREAT))
            self._db = sqlite3.connect(
                ":memory:" if path is None else path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (OSError, ValueError, sqlite3.Error) as error:  # ValueError: no name of a file
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> NoeticError:
        hint = "Name another file: nn.open_runs(source, index=path). An index can be deleted at any time."
        return NoeticError("storage_failed", f"The index cannot be used: {error}.", given=str(self.path), hint=hint)

    def _prepare(self) -> None:
        with self.writing() as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables and application != _APPLICATION_ID:
                hint = "Use a separate file for the index."
                what = "The file is not an index of runs."
                raise NoeticConfigError("INVALID_INDEX", what, given=str(self.path), hint=hint)
            live, last = 0, 0
            if version == SCHEMA_VERSION and tables:
                live, last = db.execute("SELECT count(*), coalesce(max(id), 0) FROM runs").fetchone()
            if version != SCHEMA_VERSION or last > 2 * live + _FEW:
                for table in _TABLES if tables else ():
                    db.execute(f"DROP TABLE IF EXISTS {table}")
                for line in _SCHEMA:
                    db.execute(line)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock; all changes are committed, or none."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def files(self) -> dict[str, tuple[str, str]]:
        """Return the stamps of the indexed files, and of their labels."""
        return {
            path: (stamp, labelled) for path, stamp, labelled in self._rows("SELECT path, stamp, labelled FROM files")
        }

    def put(self, files: Iterable[tuple[str, str, str, Iterable[Entry]]]) -> None:
        """Replace the runs of some files, each given as its path, its stamp, the stamp of its labels, and entries."""
        with self.writing() as db:
            for path, stamp, labelled, entries in files:
                db.execute("DELETE FROM runs WHERE path = ?", (path,))
                db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (path, stamp, labelled))
                for place, each in enumerate(entries):
                    facts = None if each.facts is None else _storable(json.dumps(each.facts, default=str))
                    key, error = [None if text is None else _storable(text) for text in (each.key, each.error)]
                    row = (path, place, key, facts, json.dumps(list(each.labels)), error)
                    at = db.execute(
                        "INSERT INTO runs (path, place, key, facts, labels, error) VALUES (?, ?, ?, ?, ?, ?)", row
                    ).lastrowid
                    db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (at, _storable(each.text)))

    def relabel(self, path: str, labelled: str, labels: Mapping[str, Sequence[Any]]) -> None:
        with self.writing() as db:
            db.execute("UPDATE files SET labelled = ? WHERE path = ?", (labelled, path))
            for at, key in db.execute("SELECT id, key FROM runs WHERE path = ?", (path,)).fetchall():
                db.execute("UPDATE runs SET labels = ? WHERE id = ?", (json.dumps(list(labels.get(key, ()))), at))

    def forget(self, paths: Iterable[str]) -> None:
        """Remove deleted files from the index."""
        with self.writing() as db:
            for path in paths:
                db.execute("DELETE FROM runs WHERE path = ?", (path,))
                db.execute("DELETE FROM files WHERE path = ?", (path,))

    def members(self) -> list[tuple[Key, str | None]]:
        """Return all runs ordered by path and position, each with its error if it cannot be read."""
        return [
            ((path, at), error)
            for path, at, error in self._rows("SELECT path, place, error FROM runs ORDER BY path, place")
        ]

    def facts(self, keys: Sequence[Key]) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Yield the facts of the readable runs; ``labels`` are lists of a label's fields."""
        query = "SELECT path, place, facts, labels FROM runs WHERE error IS NULL"
        if len(keys) <= _FEW:
            found = [row for key in keys for row in self._rows(f"{query} AND path = ? AND place = ?", key)]
        else:
            asked = set(keys)
            found = [row for row in self._rows(query) if (row[0], row[1]) in asked]
        for path, at, facts, labels in found:
            yield (path, at), {**json.loads(facts), "labels": json.loads(labels)}

    def search(self, text: str) -> set[Key]:
        """Return the runs that contain all words of a text; quotes ("two words") match a phrase, word* a prefix."""
        words = _PART.finditer(text if isinstance(text, str) else "")
        parts = [(match[1] if match[1] is not None else match[2]) or "" for match in words]
        asked = [
            f'"{part.rstrip("*").replace(chr(34), "")}"' + ("*" if part.endswith("*") else "") for part in parts if part
        ]
        if not any(re.search(r"\w", part) for part in asked):
            hint = "For example: search('refund gift card'), search('\"gift card\"') or search('refund*')."
            raise NoeticConfigError("INVALID_SEARCH", "The search text contains no word.", given=text, hint=hint)
        query = "SELECT path, place FROM runs WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?)"
        # SQLite would look for each repetition again.
        return {(path, at) for path, at in self._rows(query, (_storable(" ".join(dict.fromkeys(asked))),))}


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
