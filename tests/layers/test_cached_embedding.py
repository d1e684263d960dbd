"""Vectors that are kept: asked for once, the same ever after, and said where something is wrong with them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.layers import CachedEmbedder, HashingEmbedder, hybrid_recall, semantic_recall
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from tests.items.strategies import JSON
from tests.layers.layer_driver import Conversation

PAGE = Path(nn.__file__).parents[1] / "docs" / "behaviour" / "layers.md"


class Counting:
    """Makes vectors of a size, and knows what it was asked for."""

    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        return [[len(text) / 3 + n for n in range(self.size)] for text in texts]


async def test_a_text_is_asked_for_once_also_by_the_next_process(tmp_path: Path) -> None:
    counting = Counting()
    first = CachedEmbedder(counting, tmp_path / "v.db", name="m")
    before = await first.embed(["tea", "cup", "tea"])
    await first.aclose()

    second = CachedEmbedder(counting, tmp_path / "v.db", name="m")
    after = await second.embed(["cup", "pot", "tea"])
    await second.aclose()

    assert counting.asked == [["tea", "cup"], ["pot"]]
    assert (before[0], before[0], before[1]) == (before[2], after[2], after[0])


async def test_two_models_in_one_file_do_not_mix() -> None:
    storage = InMemoryStorage()
    one, two = Counting(2), Counting(5)

    (short,) = await CachedEmbedder(one, storage, name="a/b").embed(["tea"])
    (long,) = await CachedEmbedder(two, storage, name="a").embed(["tea"])

    assert (len(short), len(long)) == (2, 5)


async def test_vectors_of_another_size_under_a_name_are_an_error_and_not_kept() -> None:
    storage = InMemoryStorage()
    await CachedEmbedder(Counting(3), storage, name="m").embed(["tea"])
    other = CachedEmbedder(Counting(4), storage, name="m")

    with pytest.raises(NoeticError, match="vectors of 4 numbers, and those kept under its name have 3") as caught:
        await other.embed(["tea", "cup"])

    assert caught.value.kind == "tool_failed"
    assert len(await storage.list("embeddings/m/")) == 2


async def test_the_first_vectors_of_two_processes_at_once_are_of_one_size() -> None:
    storage = InMemoryStorage()

    class Slow(Counting):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().embed(texts)

    done = await asyncio.gather(
        *(CachedEmbedder(Slow(size), storage, name="m").embed([f"text {size}"]) for size in (3, 4, 3)),
        return_exceptions=True,
    )

    assert [isinstance(one, NoeticError) for one in done] == [False, True, False]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([[float("nan"), 1.0]], "not finite"),
        ([[float("inf"), 1.0]], "not finite"),
        ([[1.0], [2.0]], "one for each text, and returned 2"),
        ([[]], "theirs are 0"),
        ([["a"]], "holds something else"),
        (None, "not NoneType"),
        ([[1e300, 1.0]], "a number that 32 bits cannot hold"),
    ],
    ids=ascii,
)
async def test_what_is_no_vector_is_said_and_never_kept(answer: Any, said: str) -> None:
    storage = InMemoryStorage()

    with pytest.raises(NoeticError, match=said) as caught:
        await CachedEmbedder(lambda texts: answer, storage, name="m").embed(["tea"])

    assert caught.value.kind == "tool_failed"
    assert await storage.list("") == []


async def test_what_was_answered_before_a_failure_is_kept() -> None:
    calls: list[int] = []

    def failing(texts: Sequence[str]) -> list[list[float]]:
        calls.append(len(texts))
        if len(calls) == 2:
            raise ConnectionError("no route")
        return [[1.0] for _ in texts]

    cached = CachedEmbedder(failing, InMemoryStorage(), name="m", batch_size=2)
    texts = ["a", "b", "c", "d", "e"]
    with pytest.raises(NoeticError, match="The embedder failed for 2 texts: ConnectionError: no route"):
        await cached.embed(texts)

    assert len(await cached.embed(texts)) == 5
    assert calls == [2, 2, 2, 1]


@given(st.lists(st.lists(st.floats(-1e30, 1e30), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_first_answer_is_that_of_all_later_ones(rows: list[list[float]]) -> None:
    async def run() -> None:
        texts = [str(n) for n in range(len(rows))]
        cached = CachedEmbedder(lambda asked: [rows[int(text)] for text in asked], InMemoryStorage(), name="m")
        first = await cached.embed(texts)

        assert await cached.embed(texts) == first
        assert first == [pytest.approx(row, rel=1e-6, abs=1e-37) for row in rows]

    asyncio.run(run())


@given(JSON, st.sampled_from(["size", "vector"]))
def test_whatever_stands_in_the_place_of_a_vector_is_never_taken_for_one(value: Any, place: str) -> None:
    async def run() -> None:
        storage = InMemoryStorage()
        cached = CachedEmbedder(Counting(), storage, name="m")
        (good,) = await cached.embed(["tea"])
        key = "embeddings/m/size" if place == "size" else next(k for k in await storage.list("") if "size" not in k)
        if value is None or value == await storage.get(key):
            return
        await storage.set(key, value)

        with pytest.raises(NoeticError, match="damaged") as caught:
            await cached.embed(["tea"])
        assert caught.value.kind == "storage_failed"
        assert good

    asyncio.run(run())


async def test_a_changed_number_is_found_by_its_checksum(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "v.db") as storage:
        cached = CachedEmbedder(Counting(), storage, name="m")
        await cached.embed(["tea"])
        (key,) = [key for key in await storage.list("embeddings/m/") if not key.endswith("size")]
        kept: Any = await storage.get(key)
        letter = "B" if kept["f32"][0] == "A" else "A"
        await storage.set(key, kept | {"f32": letter + kept["f32"][1:]})

        with pytest.raises(NoeticError, match=r"damaged: its size or its checksum") as caught:
            await cached.embed(["tea"])

    assert caught.value.key == key


def test_a_file_that_is_no_database_is_said_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    path.write_bytes(b"not a database at all, but longer than a header of SQLite, which is one hundred bytes long" * 3)

    with pytest.raises(NoeticError) as caught:
        CachedEmbedder(Counting(), path, name="m")

    assert caught.value.kind == "storage_failed"


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cached = CachedEmbedder(Counting(), tmp_path / "v.db", name="m")
        await cached.embed(["tea"])
        modes = modes_in(tmp_path)
    finally:
        os.umask(before)
    await cached.aclose()

    assert "v.db" in modes
    assert set(modes.values()) == {0o600}


WORKER = """
import asyncio, sys
from noetic_nb.layers import CachedEmbedder, HashingEmbedder

async def main(path, start):
    cached = CachedEmbedder(HashingEmbedder(16), path, name="hash", batch_size=3)
    print(await cached.embed([f"text number {n}" for n in range(start, start + 30)]) != [])
    await cached.aclose()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(path), str(start)], stdout=subprocess.PIPE, text=True)
        for start in (0, 10, 20)
    ]
    assert [worker.communicate()[0] for worker in workers] == ["True\n"] * 3

    async def read() -> list[list[float]]:
        cached = CachedEmbedder(counting, path, name="hash")
        found = await cached.embed([f"text number {n}" for n in range(50)])
        await cached.aclose()
        return found

    counting = Counting(16)
    found = asyncio.run(read())

    assert counting.asked == []
    assert found[7] == pytest.approx(HashingEmbedder(16).embed(["text number 7"])[0], abs=1e-6)


async def test_layers_use_it_and_making_one_asks_for_nothing() -> None:
    counting = Counting()
    cached = CachedEmbedder(counting, InMemoryStorage(), name="m")
    talk = Conversation(semantic_recall(cached, skip_recent=0))
    assert counting.asked == []

    await talk.turn("I like tea.", "Noted.")

    assert "I like tea." in await talk.begin("tea?")
    assert counting.asked == [["I like tea.", "Noted."], ["tea?"]]


def test_in_json_it_is_a_reference() -> None:
    config = nn.AgentConfig(
        name="a",
        step=nn.react(model="m"),
        memory=[hybrid_recall(CachedEmbedder(Counting(), InMemoryStorage(), name="m"))],
    )

    with pytest.raises(NoeticConfigError, match="embedder"):
        nn.dump_config(config)


@pytest.mark.parametrize(
    "options",
    [{"name": ""}, {"name": 7}, {"name": "m", "batch_size": 0}, {"name": "m", "batch_size": 1.5}],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        CachedEmbedder(Counting(), InMemoryStorage(), **options)

    assert caught.value.code == "INVALID_LAYER_OPTION"


def test_what_is_no_embedder_is_refused_and_one_text_is_no_list() -> None:
    with pytest.raises(NoeticConfigError):
        CachedEmbedder(7, InMemoryStorage(), name="m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a list of texts"):
        asyncio.run(CachedEmbedder(Counting(), InMemoryStorage(), name="m").embed("tea"))


class _Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rows = HashingEmbedder(8).embed(asked["input"])
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        body = json.dumps({"object": "list", "model": asked["model"], "data": data, "usage": {}}).encode()
        self.server.asked += asked["input"]  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_recipe_for_an_endpoint_works_as_it_is_written(
    endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{endpoint.server_port}/v1")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    recipe = next(block for block in blocks if "CachedEmbedder(" in block)
    names: dict[str, Any] = {}
    exec(recipe, names)

    talk = Conversation(names["layer"])
    await talk.turn("My locker is 4711.", "Noted.")
    await names["client"].close()

    assert endpoint.asked == ["My locker is 4711.", "Noted."]
    assert (tmp_path / "vectors.db").exists()
