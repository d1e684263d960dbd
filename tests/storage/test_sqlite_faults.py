"""Disks fill, files break, paths are wrong: what the user is told, and what is still there."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.storage import SQLiteStorage
from noetic_nb.storage._sqlite_file import SCHEMA_VERSION

BIG = "x" * 200_000


def limit_pages(store: SQLiteStorage, count: int) -> None:
    store._writer._connection.execute(f"PRAGMA max_page_count = {count}")


async def test_a_full_file_fails_the_write_and_keeps_what_was_there(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set("a", "before")
        limit_pages(store, 10)

        with pytest.raises(NoeticError, match="disk is full") as caught:
            await store.set("a", BIG)
        with pytest.raises(NoeticError, match="disk is full"):
            await store.set_many({"b": 1, "c": BIG})

        assert (caught.value.kind, caught.value.path, caught.value.reason) == (
            "storage_failed",
            str(path),
            "SQLITE_FULL",
        )
        assert "Free space" in caught.value.hint
        assert await store.get_many(["a", "b", "c"]) == {"a": "before"}


async def test_a_value_that_does_not_fit_fails_its_own_caller_only(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        limit_pages(store, 10)

        results = await asyncio.gather(
            store.set("a", 1), store.set("big", BIG), store.compare_and_set("b", None, 2), return_exceptions=True
        )

        assert results[0] is None
        assert isinstance(results[1], NoeticError)
        assert isinstance(results[2], int)
        assert await store.list("") == ["a", "b"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


async def _outcome(writing: Awaitable[None]) -> NoeticError | None:
    try:
        await writing
    except NoeticError as error:
        return error
    return None


async def test_a_full_disk_is_a_clear_error_and_the_store_works_on_when_there_is_room(tiny_disk: Path) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(b"x" * 500_000)
    async with SQLiteStorage(tiny_disk / "desk.db") as store:
        results = [await _outcome(store.set(f"k{n}", "x" * 5_000)) for n in range(150)]
        keys_when_full = await store.list("")
        filler.unlink()
        await store.set("after", 1)
        keys_after = await store.list("")

    failures = [result for result in results if result is not None]
    assert len(keys_when_full) == results.count(None) > 0
    assert len(failures) > 0
    for failure in failures:
        assert failure.kind == "storage_failed"
        assert "disk is full" in str(failure)
    assert keys_after == sorted(["after", *keys_when_full])


@pytest.fixture
def read_only_file() -> Iterator[Path]:
    """A database in a folder where nothing may be written; root may write anywhere, so it becomes somebody else."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    path = folder / "desk.db"
    asyncio.run(_close(SQLiteStorage(path)))
    path.chmod(0o444)
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65_534)
    yield path
    if was_root:
        os.seteuid(0)
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


async def _close(store: SQLiteStorage) -> None:
    await store.aclose()


def test_a_read_only_file_is_refused_when_it_is_opened(read_only_file: Path) -> None:
    with pytest.raises(NoeticError) as caught:
        SQLiteStorage(read_only_file)

    assert (caught.value.kind, caught.value.path) == ("storage_failed", str(read_only_file))
    assert "read-only" in str(caught.value)
    assert "writable" in caught.value.hint


@pytest.mark.parametrize("name", ["", ":memory:", "file:desk.db", b"desk.db", "missing/desk.db", "."])
def test_a_path_that_cannot_hold_a_database_is_a_fault_of_the_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(NoeticConfigError) as caught:
        SQLiteStorage(name)

    assert caught.value.code == "INVALID_STORAGE_PATH"
    assert caught.value.given == name
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"synchronous": "EXTRA"},
        {"busy_timeout_ms": -1},
        {"busy_timeout_ms": float("nan")},
        {"busy_timeout_ms": float("inf")},
        {"cache_size": -1},
    ],
)
def test_an_option_out_of_range_is_a_fault_of_the_set_up(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        SQLiteStorage(path, **options)

    assert caught.value.code == "INVALID_STORAGE_OPTION"
    assert not path.exists()


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("dear diary, " * 500)

    with pytest.raises(NoeticError, match="not an SQLite database") as caught:
        SQLiteStorage(path)

    assert (caught.value.kind, caught.value.path) == ("storage_failed", str(path))
    assert path.read_text() == "dear diary, " * 500


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)  # the header and the schema survive
    path.write_bytes(data)


async def test_a_damaged_file_is_a_clear_error_to_readers_and_writers(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set_many({f"k{n:04}": "x" * 500 for n in range(500)})
    damage(path)

    async with SQLiteStorage(path) as store:
        for action in (store.get("k0001"), store.list("k"), store.set("k0001", 1), store.get_many(["k0001"])):
            with pytest.raises(NoeticError, match="damaged") as caught:
                await action
            assert (caught.value.kind, caught.value.path) == ("storage_failed", str(path))
            assert "backup" in caught.value.hint


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set("a", 1)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()

    with pytest.raises(NoeticError, match="Upgrade noetic_nb") as caught:
        SQLiteStorage(path)

    assert (caught.value.found_version, caught.value.known_version) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
    assert caught.value.path == str(path)


def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(NoeticError, match="another program") as caught:
        SQLiteStorage(path)

    assert caught.value.kind == "storage_failed"
    assert path.read_bytes() == before


async def test_a_value_that_something_else_wrote_is_a_clear_error(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set_many({"a": 1, "b": 2})
        connection = sqlite3.connect(path)
        connection.execute("UPDATE entries SET value = '{half' WHERE key = 'a'")
        connection.commit()
        connection.close()

        with pytest.raises(NoeticError, match="not JSON") as caught:
            await store.get("a")

        assert (caught.value.key, caught.value.path) == ("a", str(path))
        assert await store.get("b") == 2


def test_a_refused_file_is_let_go(path: Path) -> None:
    path.write_text("dear diary, " * 500)
    for _ in range(3):
        with pytest.raises(NoeticError):
            SQLiteStorage(path)

    held = [link for link in Path("/proc/self/fd").iterdir() if str(path) in os.path.realpath(link)]
    assert held == []
