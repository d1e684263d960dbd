"""Write-behind: readable at once, coalesced, durable at flush, never lost in silence."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.errors import NoeticError
from noetic_nb.storage import SQLiteStorage

NEVER_MS = 60_000.0  # so long that only a flush, an awaited write or closing writes


def in_file(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT key, value FROM entries ORDER BY key").fetchall()
    connection.close()
    return dict(rows)


async def test_a_put_is_readable_at_once_and_durable_after_flush(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        await store.set_many({"a": 1, "b": 2})
        store.put("a", 10)
        store.put("c", None)
        store.put_delete("b")

        assert await store.get("a") == 10
        assert await store.get("b") is None
        assert await store.list("") == ["a", "c"]
        assert await store.get_many(["a", "b", "c"]) == {"a": 10, "c": None}
        assert in_file(path) == {"a": "1", "b": "2"}

        await store.flush()

        assert in_file(path) == {"a": "10", "c": "null"}


async def test_of_many_puts_of_one_key_only_the_last_is_written(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        before = await store.compare_and_set("a", None, "start")
        for n in range(100):
            store.put("a", n)
        seen = await store.get_versioned("a")

    assert seen.value == 99
    assert seen.version == before + 1


async def test_a_put_keeps_the_value_as_it_was(path: Path) -> None:
    value = {"list": [1]}
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        store.put("a", value)
        value["list"].append(2)
        copy: Any = await store.get("a")
        copy["list"].append(3)
        await store.flush()

        assert await store.get("a") == {"list": [1]}


async def test_a_put_is_written_in_the_background_without_a_flush(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=1) as store:
        loop, is_written = asyncio.get_running_loop(), asyncio.Event()
        store._writer._connection.set_trace_callback(lambda _: loop.call_soon_threadsafe(is_written.set))
        store.put("a", 1)
        async with asyncio.timeout(10):
            await is_written.wait()
        await store.flush()  # for the end of the statement that has begun by itself

        assert in_file(path) == {"a": "1"}


async def test_puts_and_awaited_writes_keep_the_order_they_were_given_in(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        store.put("a", 1)
        await store.set("a", 2)
        assert await store.get("a") == 2
        setting = asyncio.create_task(store.set("b", 1))
        await asyncio.sleep(0)
        store.put("b", 2)
        await setting
        await store.flush()

        assert await store.get_many(["a", "b"]) == {"a": 2, "b": 2}


async def test_a_put_waits_behind_a_queue_that_does_not_fit_one_transaction(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=0) as store:
        tasks = [asyncio.create_task(store.set(f"k{n % 1_700}", n)) for n in range(3_400)]
        await asyncio.sleep(0)
        store.put("k1600", "last")
        await asyncio.gather(*tasks)
        await store.flush()

        assert await store.get("k1600") == "last"
        assert await store.get("k1601") == 3_301


async def test_a_later_put_of_another_key_does_not_let_an_older_one_pass_a_write(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        store.put("a", 1)
        store.put("z", "old")
        setting = asyncio.create_task(store.set("z", "new"))
        await asyncio.sleep(0)
        store.put("a", 2)
        await setting
        await store.flush()

        assert await store.get_many(["a", "z"]) == {"a": 2, "z": "new"}


async def test_a_put_stays_in_sight_while_it_is_being_written(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=0) as store:
        await store.set("a", "old")
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        loop, is_under_way = asyncio.get_running_loop(), asyncio.Event()
        store._writer._connection.set_trace_callback(lambda _: loop.call_soon_threadsafe(is_under_way.set))
        store.put("a", "new")
        async with asyncio.timeout(10):
            await is_under_way.wait()

        seen = (await store.get("a"), await store.get_many(["a"]), await store.list(""))
        rival.execute("COMMIT")
        rival.close()

        assert seen == ("new", {"a": "new"}, ["a"])


async def test_with_write_behind_set_and_delete_return_before_the_file_changes(path: Path) -> None:
    async with SQLiteStorage(path, write_behind=True, write_delay_ms=NEVER_MS) as store:
        await store.set("a", 1)
        await store.set("b", 1)
        await store.delete("b")
        assert (await store.list(""), in_file(path)) == (["a"], {})
        await store.flush()
        assert in_file(path) == {"a": "1"}


async def test_compare_and_set_sees_what_was_put_before(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        version = await store.compare_and_set("a", None, 1)
        store.put("a", 2)

        with pytest.raises(NoeticError) as caught:
            await store.compare_and_set("a", version, 3)

        assert caught.value.kind == "state_conflict"
        assert await store.get("a") == 2


async def test_closing_writes_what_was_put(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS) as store:
        store.put("a", 1)

    assert in_file(path) == {"a": "1"}


async def test_flush_without_puts_does_not_wait_for_anybody(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        await store.flush()
        assert rival.in_transaction
        rival.close()


async def test_a_bad_put_is_refused_where_it_is_made(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        for key, value in (("a", {1, 2}), ("\udcff", 1)):
            with pytest.raises(NoeticError) as caught:
                store.put(key, value)
            assert caught.value.kind == "storage_failed"
        with pytest.raises(NoeticError):
            store.put_delete("\udcff")

        assert await store.list("") == []


async def test_a_failure_in_the_background_is_told_and_raised_at_flush_and_nothing_is_lost(path: Path) -> None:
    told: asyncio.Queue[NoeticError] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(error: NoeticError) -> None:
        loop.call_soon_threadsafe(told.put_nowait, error)

    async with SQLiteStorage(path, busy_timeout_ms=5, write_delay_ms=0, on_error=tell) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        store.put("a", 1)
        async with asyncio.timeout(10):
            first = await told.get()
        seen = await store.get("a")
        with pytest.raises(NoeticError) as caught:
            await store.flush()
        rival.execute("COMMIT")
        rival.close()
        await store.flush()

    assert seen == 1
    assert first.kind == caught.value.kind == "storage_failed"
    assert caught.value.path == str(path)
    assert in_file(path) == {"a": "1"}


async def test_without_a_callback_the_failure_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with SQLiteStorage(path, busy_timeout_ms=5, write_delay_ms=NEVER_MS) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        store.put("a", 1)
        with pytest.raises(NoeticError):
            await store.flush()
        rival.close()

    assert "1 value(s) in the background" in caplog.text


async def test_a_callback_that_fails_stops_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: NoeticError) -> Any:
        raise RuntimeError("of my own")

    async with SQLiteStorage(path, busy_timeout_ms=5, write_delay_ms=NEVER_MS, on_error=fail) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        store.put("a", 1)
        with pytest.raises(NoeticError):
            await store.flush()
        rival.close()
        await store.flush()

    assert "of my own" in caplog.text
    assert in_file(path) == {"a": "1"}


async def test_closing_raises_when_what_was_put_is_lost(path: Path) -> None:
    store = SQLiteStorage(path, busy_timeout_ms=5, write_delay_ms=NEVER_MS, on_error=lambda _: None)
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    store.put("a", 1)

    with pytest.raises(NoeticError, match=r"1 value\(s\) are lost") as caught:
        await store.aclose()
    rival.close()

    assert caught.value.kind == "storage_failed"
    await store.aclose()


async def test_a_later_awaited_write_settles_a_put_that_failed(path: Path) -> None:
    async with SQLiteStorage(path, write_delay_ms=NEVER_MS, on_error=lambda _: None) as store:
        await store.set("a", "start")
        store._writer._connection.execute("PRAGMA max_page_count = 5")
        store.put("a", "x" * 100_000)
        with pytest.raises(NoeticError):
            await store.flush()
        await store.set("a", "small")
        await store.flush()

        assert await store.get("a") == "small"
