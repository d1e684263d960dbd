"""The costs of durable state, beside aiosqlite and plain sqlite3 doing the same in the same run.

Run ``python -m benchmarks.storage``. Every side encodes or decodes the same 2 KB value and writes over keys that exist. Waiting
for the disk and for the other thread is part of the work here, so that the time of the wall is compared.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.comparing import Lines, alternate, parser
from noetic_nb.storage import SQLiteStorage

KEYS: Final = [f"layers/notes/t{n}/state" for n in range(1_000)]
REST: Final = [f"other/{n:05}" for n in range(9_000)]
VALUE: Final[dict[str, Any]] = {
    "notes": [
        {"id": n, "text": "The order A17 was packed on Monday.", "done": bool(n % 2), "score": round(n / 7, 3)}
        for n in range(20)
    ],
    "version": 3,
    "summary": "x" * 330,
}
# A log that still grows costs twice the fsync of one that is written over, which begins after 1 000 pages.
LOADS: Final = 3
TABLE: Final = "CREATE TABLE kv (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
INSERT: Final = "INSERT OR REPLACE INTO kv (key, value) VALUES (?, ?)"
SELECT: Final = "SELECT value FROM kv WHERE key = ?"
# The work measured, by name, its peer, and the most that the ratio may be.
CONTESTS: Final[dict[str, tuple[str, str, float | None]]] = {
    "flush of 100 keys (set_many, one transaction) / 100 aiosqlite sets, a commit each": (
        "set_many",
        "peer sets",
        0.25,
    ),
    "flush of 100 keys (set_many, one transaction) / one aiosqlite executemany and commit": (
        "set_many",
        "peer executemany",
        1.0,
    ),
    "flush of 100 keys (set_many, one transaction) / one executemany and commit of sqlite3 itself": (
        "set_many",
        "plain executemany",
        None,
    ),
    "100 sets at once, awaited together / 100 aiosqlite sets, awaited together": ("sets", "peer sets at once", None),
    "get of a key that was read before / aiosqlite get": ("warm get", "peer get", None),
    "get of a key, nothing kept / aiosqlite get": ("cold get", "peer get", None),
    "awaited set / aiosqlite set and commit": ("set", "peer set", None),
    "awaited set, synchronous FULL / sqlite3 itself, FULL": ("FULL set", "plain FULL set", None),
    "list of 1 000 keys of 10 000 / aiosqlite": ("list", "peer list", None),
}
LINES: Final = {what: goal for what, (_, _, goal) in CONTESTS.items()}


def _filled(path: Path, synchronous: str) -> sqlite3.Connection:
    """Return a connection to a database of plain rows."""
    made = sqlite3.connect(path)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute(f"PRAGMA synchronous = {synchronous}")
    made.execute(TABLE)
    for _ in range(LOADS):
        made.executemany(INSERT, [(key, json.dumps(VALUE)) for key in [*KEYS, *REST]])
        made.commit()
    return made


async def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each operation in each round."""
    import aiosqlite

    store = SQLiteStorage(folder / "ours.db")
    cold = SQLiteStorage(folder / "ours.db", cache_size=0)
    full = SQLiteStorage(folder / "full.db", synchronous="FULL")
    _filled(folder / "peer.db", "NORMAL").close()
    peer = await aiosqlite.connect(folder / "peer.db")
    await peer.execute("PRAGMA synchronous = NORMAL")
    plain, plain_full = _filled(folder / "plain.db", "NORMAL"), _filled(folder / "plain-full.db", "FULL")
    for _ in range(LOADS):
        for storage in (store, full):
            await storage.set_many(dict.fromkeys([*KEYS, *REST], VALUE))
    turns = itertools.count()

    def hundred() -> list[str]:
        # SQLite skips the write, and its fsync, when a row is overwritten with itself.
        turn = next(turns)
        VALUE["version"] = turn
        return [KEYS[(turn * 100 + n) % len(KEYS)] for n in range(100)]

    async def peer_set(key: str) -> None:
        await peer.execute(INSERT, (key, json.dumps(VALUE)))
        await peer.commit()

    async def peer_sets() -> None:
        for key in hundred():
            await peer_set(key)

    async def peer_executemany() -> None:
        await peer.executemany(INSERT, [(key, json.dumps(VALUE)) for key in hundred()])
        await peer.commit()

    async def peer_get() -> Any:
        async with peer.execute(SELECT, (KEYS[7],)) as cursor:
            row = await cursor.fetchone()
        assert row is not None
        return json.loads(row[0])

    async def peer_list() -> list[str]:
        query = "SELECT key FROM kv WHERE key >= ? AND key < ? ORDER BY key"
        async with peer.execute(query, ("layers/", "layers0")) as cursor:
            return [row[0] for row in await cursor.fetchall()]

    def plain_executemany() -> None:
        with plain:
            plain.executemany(INSERT, [(key, json.dumps(VALUE)) for key in hundred()])

    def plain_set() -> None:
        with plain_full:
            plain_full.execute(INSERT, (hundred()[0], json.dumps(VALUE)))

    many = {
        "set_many": lambda: store.set_many(dict.fromkeys(hundred(), VALUE)),
        "sets": lambda: asyncio.gather(*[store.set(key, VALUE) for key in hundred()]),
        "peer sets": peer_sets,
        "peer sets at once": lambda: asyncio.gather(*[peer_set(key) for key in hundred()]),
        "peer executemany": peer_executemany,
        "plain executemany": plain_executemany,
        "list": lambda: store.list("layers/"),
        "peer list": peer_list,
    }
    single = {
        "peer set": lambda: peer_set(hundred()[0]),
        "set": lambda: store.set(hundred()[0], VALUE),
        "plain FULL set": plain_set,
        "FULL set": lambda: full.set(hundred()[0], VALUE),
        "peer get": peer_get,
        "cold get": lambda: cold.get(KEYS[7]),
    }
    found = await alternate(many, rounds=rounds, clock=perf_counter)
    found |= await alternate(single, rounds=rounds, times=10, clock=perf_counter)
    await store.get(KEYS[7])
    # Reads without a write between them, which would empty what is kept.
    found |= await alternate(
        {"warm get": lambda: store.get(KEYS[7]), "peer get": peer_get}, rounds=rounds, times=10, clock=perf_counter
    )
    for storage in (store, cold, full):
        await storage.aclose()
    await peer.close()
    plain.close()
    plain_full.close()
    return found


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, rounds=60).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cost = asyncio.run(measure(Path(folder), options.rounds))
    lines = Lines(LINES)
    for name, (mine, other, _) in CONTESTS.items():
        lines.ratio(name, cost[mine], cost[other])
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
