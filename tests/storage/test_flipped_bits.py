"""One flipped bit of a file is an error, or changes nothing: never another text, and never a value that is not there."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.errors import NoeticError
from noetic_nb.storage import SQLiteStorage

VALUES: dict[str, Any] = {
    **{f"threads/t{n % 4}/part/{n:04d}": {"items": [{"text": f"order A{n} " * 20}], "turn": n} for n in range(40)},
    **{f"layers/notes/{n}": {"text": f"note {n}"} for n in range(20)},
}


async def write(path: Path) -> None:
    async with SQLiteStorage(path) as storage:
        for key, value in VALUES.items():
            await storage.set(key, value)


async def read(path: Path) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    async with SQLiteStorage(path) as storage:
        keys = await storage.list("")
        return keys, {key: await storage.get(key) for key in VALUES}, await storage.get_many(keys)


async def outcome(path: Path) -> Any:
    try:
        return await read(path)
    except NoeticError as error:
        return error.kind


def test_no_flipped_bit_is_taken(tmp_path: Path) -> None:
    path, seed = tmp_path / "whole.db", random.Random(4)
    asyncio.run(write(path))
    content, refused = path.read_bytes(), 0

    for number in range(150):
        place = seed.randrange(len(content) * 8)
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        damaged = tmp_path / f"{number}.db"
        damaged.write_bytes(flipped)
        found = asyncio.run(outcome(damaged))
        refused += found == "storage_failed"
        assert found in ("storage_failed", (sorted(VALUES), VALUES, VALUES)), f"byte {place // 8}, bit {place % 8}"
        for each in tmp_path.glob(f"{number}.db*"):
            each.unlink()
    assert refused > 40


@pytest.mark.parametrize("column", ["value", "checksum"])
async def test_a_changed_row_names_its_key_and_others_can_be_read(column: str, tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    await write(path)
    connection = sqlite3.connect(path)
    changed = "replace(value, 'note', 'nose')" if column == "value" else "checksum + 1"
    connection.execute(f"UPDATE entries SET {column} = {changed} WHERE key = 'layers/notes/3'")
    connection.commit()
    connection.close()

    async with SQLiteStorage(path) as storage:
        for ask in (
            storage.get,
            storage.get_text,
            storage.get_versioned,
            lambda key: storage.get_many([key, "layers/notes/4"]),
        ):
            with pytest.raises(NoeticError, match="damaged") as caught:
                await ask("layers/notes/3")
            assert caught.value.key == "layers/notes/3"
        assert await storage.get("layers/notes/4") == VALUES["layers/notes/4"]
        await storage.set("layers/notes/3", {"text": "new"})
        assert await storage.get("layers/notes/3") == {"text": "new"}


async def test_a_file_without_checksums_is_read_and_gets_them_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await write(path)
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE entries DROP COLUMN checksum")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()

    keys, values, many = await read(path)
    async with SQLiteStorage(path) as storage:
        await storage.set("layers/notes/3", {"text": "new"})

    assert (keys, values, many) == (sorted(VALUES), VALUES, VALUES)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT key FROM entries WHERE checksum IS NOT NULL").fetchall() == [("layers/notes/3",)]
    connection.close()
