"""What a durable store promises to one program."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_nb.storage._sqlite_connections as sqlite_writer
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.storage import InMemoryStorage, ScopedStorage, SQLiteStorage, StorageAdapter
from noetic_nb.storage._adapter import layer_prefix, write_together
from noetic_nb.storage._sqlite import Versioned
from noetic_nb.storage._sqlite_connections import Reader
from noetic_nb.storage._sqlite_file import prefix_range, storage_error


def test_importing_the_package_does_not_load_sqlite() -> None:
    code = "import sys, noetic_nb.storage as s; s.InMemoryStorage; print('sqlite3' in sys.modules); s.SQLiteStorage"
    root = Path(__file__).resolve().parents[2]

    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import noetic_nb.storage

    with pytest.raises(AttributeError, match="no attribute 'Sqlite'"):
        noetic_nb.storage.Sqlite


async def test_it_is_a_storage_adapter_and_serves_a_scope(store: SQLiteStorage) -> None:
    scoped = ScopedStorage(store, "notes", "t/1")

    await scoped.set("state", {"n": 1})

    assert isinstance(store, StorageAdapter)
    assert await store.list("") == ["layers/notes/t~11/state"]
    assert await scoped.get_many(["state", "none"]) == {"state": {"n": 1}}


async def test_what_was_written_is_there_after_reopening(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set("a", {"deep": [1, 2.5, None, True, "é"]})
        await store.set("b", 1)
        await store.delete("b")

    async with SQLiteStorage(path) as store:
        assert await store.list("") == ["a"]
        assert await store.get("a") == {"deep": [1, 2.5, None, True, "é"]}


async def test_closing_leaves_one_file(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set("a", 1)

    assert [file.name for file in path.parent.iterdir()] == ["desk.db"]


async def test_values_are_copies(store: SQLiteStorage) -> None:
    value = {"list": [1]}
    await store.set("a", value)
    value["list"].append(2)
    for _ in range(2):  # the second comes from the cache
        copy: Any = await store.get("a")
        copy["list"].append(3)

    assert await store.get("a") == {"list": [1]}


async def test_a_value_that_is_not_json_is_refused_and_nothing_is_written(store: SQLiteStorage) -> None:
    await store.set("a", 1)

    with pytest.raises(NoeticError, match="not JSON data") as caught:
        await store.set_many({"b": 2, "a": {"x": float("nan")}})

    assert caught.value.kind == "storage_failed"
    assert await store.get_many(["a", "b"]) == {"a": 1}


async def test_a_value_that_contains_itself_is_refused(store: SQLiteStorage) -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(NoeticError, match="not JSON data") as caught:
        await store.set("a", circle)

    assert (caught.value.kind, caught.value.key) == ("storage_failed", "a")
    assert await store.list("") == []


async def test_half_a_character_is_kept_in_a_value_and_refused_in_a_key(store: SQLiteStorage) -> None:
    await store.set("a", ["\ud800", "\U0001f600"])

    assert await store.get("a") == ["\ud800", "\U0001f600"]
    for action in (store.set("\ud800", 1), store.get("x\udfff"), store.list("\ud800"), store.delete("\ud800")):
        with pytest.raises(NoeticError, match="lone surrogate") as caught:
            await action
        assert caught.value.kind == "storage_failed"
    with pytest.raises(NoeticError, match="A key must be text"):
        await store.get(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("", ["%", "a", "a%", "aA", "a_b", "a\U0010ffff", "a\U0010ffffz", "b", "\ud7ff", "\ue000", "\U0010ffff"]),
        ("a", ["a", "a%", "aA", "a_b", "a\U0010ffff", "a\U0010ffffz"]),
        ("a\U0010ffff", ["a\U0010ffff", "a\U0010ffffz"]),
        ("\U0010ffff", ["\U0010ffff"]),
        ("\ud7ff", ["\ud7ff"]),
        ("%", ["%"]),
        ("a_", ["a_b"]),
        ("A", []),
    ],
)
async def test_a_prefix_finds_exactly_the_keys_that_begin_with_it(
    store: SQLiteStorage, prefix: str, found: list[str]
) -> None:
    keys = ["b", "a", "a%", "a_b", "aA", "a\U0010ffff", "a\U0010ffffz", "\U0010ffff", "\ud7ff", "\ue000", "%"]
    await store.set_many(dict.fromkeys(keys, 0))

    assert await store.list(prefix) == found


async def test_long_reads_are_whole(store: SQLiteStorage) -> None:
    values = {f"k{n:05}": n for n in range(2_500)}
    await store.set_many(values)

    assert await store.list("k") == list(values)
    assert await store.get_many(values) == values


async def test_list_is_answered_from_the_key_index_alone(store: SQLiteStorage, path: Path) -> None:
    first, end = prefix_range("layers/")
    connection = sqlite3.connect(path)

    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT key FROM entries WHERE key >= ? AND key < ? ORDER BY key LIMIT -1", (first, end)
    ).fetchall()
    connection.close()

    assert [row[3] for row in plan] == ["SEARCH entries USING COVERING INDEX entries_key (key>? AND key<?)"]


async def test_a_batch_happens_whole_and_deletes_first(store: SQLiteStorage) -> None:
    await store.set_many({"a": 1, "b": 2, "c": 3})

    await store.set_many({"a": 10}, delete=["a", "b", "none"])
    await store.set_many({}, delete=["c"])
    await store.set_many({})

    assert await store.get_many(["a", "b", "c"]) == {"a": 10}


async def test_a_group_whose_key_must_not_exist_is_refused_as_a_whole(store: SQLiteStorage) -> None:
    await store.set_many({"log/0": "mine"}, absent=["log/0"])
    await store.set("old", 1)

    with pytest.raises(NoeticError) as caught:
        await store.set_many({"log/0": "yours", "other": 1}, delete=["old"], absent=["log/0"])

    assert (caught.value.kind, caught.value.key) == ("state_conflict", "log/0")
    assert await store.get_many(["log/0", "old", "other"]) == {"log/0": "mine", "old": 1}


class Plain:
    """A store with the four methods only, which can fail at the n-th change."""

    def __init__(self, fail_at: int = 0) -> None:
        self.inner, self.changes, self.fail_at = InMemoryStorage(), 0, fail_at
        self.get, self.list = self.inner.get, self.inner.list

    def _count(self) -> None:
        self.changes += 1
        if self.changes == self.fail_at:
            raise OSError("full")

    async def set(self, key: str, value: Any) -> None:
        self._count()
        await self.inner.set(key, value)

    async def delete(self, key: str) -> None:
        self._count()
        await self.inner.delete(key)


@pytest.mark.parametrize(("fail_at", "left"), [(1, ["z"]), (2, ["b", "z"]), (3, ["a", "b", "z"]), (0, ["a", "b"])])
async def test_a_store_without_groups_is_written_in_order_the_values_first(fail_at: int, left: list[str]) -> None:
    plain = Plain(fail_at)
    await plain.inner.set("z", 0)

    with contextlib.suppress(OSError):
        await write_together(plain, {"b": 1, "a": 2}, delete=["z"], absent=["b"])

    assert await plain.list("") == left


@pytest.mark.parametrize("kind", [SQLiteStorage, Plain])
async def test_no_store_overwrites_a_key_that_must_not_exist(kind: type, path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        one: Any = await stack.enter_async_context(SQLiteStorage(path)) if kind is SQLiteStorage else Plain()
        await one.set("a", 1)

        with pytest.raises(NoeticError, match="Another writer has written 'a' already"):
            await write_together(one, {"b": 1, "a": 2}, absent=["b", "a"])

        assert (await one.get("a"), await one.get("b")) == (1, None)


@pytest.mark.parametrize("level", ["OFF", "NORMAL", "FULL"])
async def test_the_level_of_durability_is_the_one_asked_for(path: Path, level: Any) -> None:
    async with SQLiteStorage(path, synchronous=level) as store:
        found = store._writer._connection.execute("PRAGMA synchronous").fetchone()[0]
        mode = store._writer._connection.execute("PRAGMA journal_mode").fetchone()[0]

    assert (found, mode) == ({"OFF": 0, "NORMAL": 1, "FULL": 2}[level], "wal")


async def test_compare_and_set_reports_what_another_writer_did(store: SQLiteStorage) -> None:
    assert await store.get_versioned("n") == Versioned(None, None)
    first = await store.compare_and_set("n", None, 1)
    seen = await store.get_versioned("n")
    second = await store.compare_and_set("n", seen, 2)

    with pytest.raises(NoeticError) as caught:
        await store.compare_and_set("n", first, 3)

    assert seen == Versioned(1, first)
    assert caught.value.kind == "state_conflict"
    assert (caught.value.key, caught.value.expected_version, caught.value.found_version) == ("n", first, second)
    assert await store.get("n") == 2


async def test_a_key_made_again_never_looks_unchanged(store: SQLiteStorage) -> None:
    before = await store.compare_and_set("n", None, 1)
    await store.delete("n")
    await store.set("n", 1)

    with pytest.raises(NoeticError, match="changed by another writer"):
        await store.compare_and_set("n", before, 2)


async def test_compare_and_set_refuses_what_is_no_version(store: SQLiteStorage) -> None:
    for expected in ("text", True):
        with pytest.raises(NoeticConfigError) as caught:
            await store.compare_and_set("n", expected, 1)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_STORAGE_OPTION"


async def test_of_writers_at_once_exactly_one_wins_a_version(store: SQLiteStorage) -> None:
    outcomes = await asyncio.gather(*(store.compare_and_set("n", None, n) for n in range(20)), return_exceptions=True)

    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, int)]
    assert winners == [await store.get("n")]
    assert sum(isinstance(outcome, NoeticError) for outcome in outcomes) == 19


async def test_a_cached_value_is_dropped_when_another_connection_writes(path: Path) -> None:
    async with SQLiteStorage(path) as one, SQLiteStorage(path) as other:
        for n in range(5):
            await other.set("a", n)
            assert [await one.get("a"), await one.get("a")] == [n, n]
        await other.delete("a")
        assert await one.get("a") is None


async def test_a_repeated_read_comes_from_the_cache_and_stays_within_its_size(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        await store.set_many({"a": "x" * 100, "b": "y" * 100, "c": "z" * 100, "huge": "h" * 400})
        reader = Reader(store.path, cache_size=300)
        for key in ("a", "b", "c", "huge"):
            reader.get(key)
        kept = dict(reader._cache)
        reader.close()

    assert list(kept) == ["c"]
    assert sum(map(len, kept.values())) <= 300


async def test_an_awaited_write_waits_behind_a_queue_that_does_not_fit_one_transaction(path: Path) -> None:
    async with SQLiteStorage(path) as store:
        tasks = [asyncio.create_task(store.set(f"k{n % 1_700}", n)) for n in range(3_400)]
        await asyncio.sleep(0)
        await store.set("k1600", "last")
        await asyncio.gather(*tasks)

        assert await store.get_many(["k1600", "k1601"]) == {"k1600": "last", "k1601": 3_301}


async def test_the_loop_goes_on_and_reads_while_another_process_holds_the_lock(
    store: SQLiteStorage, path: Path
) -> None:
    await store.set("a", 1)
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")

    writing = asyncio.create_task(store.set("a", 2))
    seen = [await store.get("a") for _ in range(50)]
    was_done = writing.done()
    rival.execute("COMMIT")
    rival.close()
    await writing

    assert seen == [1] * 50
    assert not was_done
    assert await store.get("a") == 2


async def test_a_lock_that_is_never_released_is_a_clear_error_after_the_timeout(path: Path) -> None:
    async with SQLiteStorage(path, busy_timeout_ms=20) as store:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(store.set("a", 1), store.set_many({"b": 2}), return_exceptions=True)
        rival.close()
        await store.set("c", 3)

        assert await store.list("") == ["c"]
    for error in results:
        assert isinstance(error, NoeticError)
        assert (error.kind, error.path) == ("storage_failed", str(path))
        assert "kept the database locked" in str(error)
        assert "busy_timeout_ms" in error.hint


def busy_error(path: Path) -> sqlite3.OperationalError:
    """Return what SQLite says when it cannot go on without waiting."""
    holder, rival = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    holder.execute("BEGIN IMMEDIATE")
    try:
        rival.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return error
    finally:
        holder.close()
        rival.close()
    raise AssertionError("SQLite let two writers in.")


async def test_a_read_that_would_have_to_wait_leaves_the_loop(
    store: SQLiteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.set("a", 1)
    busy, readers = busy_error(path), []

    def get(reader: Reader, key: str) -> Any:
        readers.append(threading.current_thread())
        if len(readers) < 4:
            raise busy
        return Reader.get_versioned(reader, key)[0]

    monkeypatch.setattr(Reader, "get", get)

    assert await store.get("a") == 1
    assert readers[0] is threading.current_thread()
    assert threading.current_thread() not in readers[1:]


async def test_a_read_that_waited_too_long_is_a_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SQLiteStorage(path, busy_timeout_ms=5) as store:
        busy = busy_error(path)

        def get(reader: Reader, key: str) -> Any:
            raise busy

        monkeypatch.setattr(Reader, "get", get)
        with pytest.raises(NoeticError, match=r"Reading .* failed: Another process kept the database locked") as caught:
            await store.get("a")

    assert caught.value.reason == "SQLITE_BUSY"


async def test_a_cancelled_write_leaves_the_others_alone(store: SQLiteStorage, path: Path) -> None:
    with locked(path):
        first, second = asyncio.create_task(store.set("a", 1)), asyncio.create_task(store.set("b", 2))
        await asyncio.sleep(0)
        first.cancel()

        with pytest.raises(asyncio.CancelledError):
            await first
    await second

    assert await store.get("b") == 2


def size_of(path: Path) -> int:
    return path.stat().st_size


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be another process that is writing."""
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        rival.close()


async def begun(writing: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a write as far as it goes without waiting."""
    task = asyncio.create_task(writing)
    await asyncio.sleep(0)
    return task


async def test_a_small_write_is_done_on_the_loop_and_what_may_take_long_by_the_thread(path: Path) -> None:
    async with SQLiteStorage(path) as store, SQLiteStorage(path, synchronous="FULL") as flushed:
        small = await begun(store.set("a", 1))
        group = await begun(store.set_many({"b": 2}, delete=["c"], absent=["b"]))
        large = await begun(store.set("d", "x" * 100_000))
        was_done = [small.done(), group.done(), large.done()]
        await large
        safe = await begun(flushed.set("e", 5))
        was_done.append(safe.done())
        await safe

        assert await store.list("") == ["a", "b", "d", "e"]
    assert was_done == [True, True, False, False]


async def test_no_write_overtakes_one_that_waits(store: SQLiteStorage, path: Path) -> None:
    with locked(path):
        first = await begun(store.set("a", 1))
        second = await begun(store.set("a", 2))
    await store.set("a", 3)
    await asyncio.gather(first, second)

    assert await store.get("a") == 3


async def test_others_get_on_while_somebody_writes_and_writes(store: SQLiteStorage) -> None:
    async def write() -> None:
        for number in range(1_000):
            await store.set("a", number)

    writing = asyncio.create_task(write())
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 10


async def test_a_disk_that_was_slow_is_left_to_the_thread_for_a_while(
    store: SQLiteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(100.0, 0.1)  # a tenth of a second passes with every look at the clock
    monkeypatch.setattr(sqlite_writer, "perf_counter", lambda: next(now))
    slow = await begun(store.set("a", 1))
    next_one = await begun(store.set("a", 2))
    was_done = [slow.done(), next_one.done()]
    await next_one
    while store._writer._queued:  # the thread answers first, then it counts
        await asyncio.sleep(0)
    now = itertools.count(200.0, 0.001)
    later = await begun(store.set("a", 3))

    assert [*was_done, later.done()] == [True, False, True]


async def test_the_log_is_moved_into_the_file_before_it_grows_long(
    store: SQLiteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "_MOST_PAGES", 100)
    before = size_of(path)

    for number in range(100):
        await store.set(f"k{number}", "x" * 5_000)
    await store.set("large", "x" * 100_000)  # by the thread, after all that it was given before

    assert size_of(path) > before + 80 * 5_000


async def test_where_writers_are_quicker_than_the_log_is_moved_they_wait(
    store: SQLiteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, seen = threading.Event(), []

    def move_log(connection: sqlite3.Connection) -> int:
        seen.append(store._writer._queued)
        if len(seen) == 2:
            may_end.wait()
        return 1_000_000

    monkeypatch.setattr(sqlite_writer.db, "move_log", move_log)
    store._writer._jobs.put("move the log")
    while len(seen) < 2:
        await asyncio.sleep(0)
    waiting = await begun(store.set("a", 1))
    was_done = waiting.done()
    may_end.set()
    await waiting
    while store._writer._queued:
        await asyncio.sleep(0)

    assert (seen, was_done) == ([0, 1], False)
    assert (await begun(store.set("a", 2))).done()


def test_one_store_serves_several_loops_in_several_threads(path: Path) -> None:
    store = SQLiteStorage(path)

    async def fill(name: str) -> None:
        await asyncio.gather(*(store.set(f"{name}/{n}", n) for n in range(100)))
        assert len(await store.list(f"{name}/")) == 100

    threads = [threading.Thread(target=lambda name=name: asyncio.run(fill(name))) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(asyncio.run(store.list(""))) == 400
    asyncio.run(store.aclose())


async def test_a_closed_store_says_so_and_may_be_closed_again(store: SQLiteStorage) -> None:
    await store.aclose()
    await store.aclose()

    for action in (store.get("a"), store.list(""), store.set("a", 1), store.get_many(["a"]), store.get_versioned("a")):
        with pytest.raises(NoeticError, match="is closed"):
            await action


async def test_a_forgotten_store_ends_its_thread_and_lets_go_of_the_file(path: Path) -> None:
    store = SQLiteStorage(path)
    await store.set("a", 1)
    thread = store._writer._thread
    del store
    gc.collect()
    thread.join()

    assert [file.name for file in path.parent.iterdir()] == ["desk.db"]
    async with SQLiteStorage(path) as again:
        assert await again.get("a") == 1


async def test_closing_finishes_the_writes_under_way(path: Path) -> None:
    store = SQLiteStorage(path)
    writing = [asyncio.create_task(store.set(f"k{n}", n)) for n in range(50)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*writing)

    async with SQLiteStorage(path) as again:
        assert len(await again.list("")) == 50


def test_a_program_may_leave_without_closing(path: Path, start_worker: Callable[..., subprocess.Popen[str]]) -> None:
    _, errors = start_worker("leave_without_closing", path).communicate()

    assert errors == ""
    assert asyncio.run(_get(path, "last")) == "words"


def test_a_forked_child_is_told_to_open_its_own(path: Path, start_worker: Callable[..., subprocess.Popen[str]]) -> None:
    output, _ = start_worker("fork_and_write", path).communicate()

    said, seen = output.splitlines()
    assert "before this process was forked" in said
    assert seen == "1"


async def _get(path: Path, key: str) -> Any:
    async with SQLiteStorage(path) as store:
        return await store.get(key)


async def test_the_repr_names_the_file_and_no_value(store: SQLiteStorage, path: Path) -> None:
    await store.set("secret", "hidden")

    assert repr(store) == f"SQLiteStorage({str(path)!r}, synchronous='NORMAL')"


async def test_null_reads_none_and_is_listed_as_in_memory(store: SQLiteStorage) -> None:
    memory = InMemoryStorage()
    for storage in (store, memory):
        await storage.set("a", None)

    assert await store.get("a") is None
    assert await store.list("") == await memory.list("") == ["a"]
    assert await store.get_many(["a"]) == await memory.get_many(["a"]) == {"a": None}


async def test_a_read_that_finds_the_file_busy_is_tried_again_elsewhere(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteStorage(path) as store:
        await store.set("a", 1)
    busy, tried = busy_error(path), []
    get, get_many, keys = Reader.get, Reader.get_many, Reader.keys

    def first_busy(read: Any) -> Any:
        def reading(reader: Reader, *args: Any) -> Any:
            tried.append((read.__name__, threading.current_thread() is threading.main_thread()))
            if len(tried) % 2:
                raise busy
            return read(reader, *args)

        return reading

    for read in (get, get_many, keys):
        monkeypatch.setattr(Reader, read.__name__, first_busy(read))
    async with SQLiteStorage(path) as store:
        assert await store.get("a") == 1
        assert await store.get_many(["a", "b"]) == {"a": 1}
        assert await store.list("") == ["a"]

    assert [is_main for _, is_main in tried[:2]] == [True, False], "the loop is not held up by the second try"


def test_an_error_of_the_database_names_file_operation_and_remedy() -> None:
    error = storage_error(sqlite3.OperationalError("strange"), "a.db", "Reading")

    assert str(error) == "Reading 'a.db' failed: strange. Look at the file and its disk, then try again."


def test_the_segments_of_a_key_are_escaped() -> None:
    assert layer_prefix("plan/x~y", "t1") == "layers/plan~1x~0y/t1/"
