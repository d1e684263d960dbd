"""Values that last are written as text when they are read, or when too many of them wait."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb.storage._in_memory as in_memory
from noetic_nb.storage import InMemoryStorage


class Lasting:
    """Data that lasts, and how often it was written."""

    lasts = True

    def __init__(self, number: int) -> None:
        self.number = number
        self.written = 0

    def json_text(self) -> str:
        self.written += 1
        return f'{{"number":{self.number}}}'


def test_it_is_written_only_when_it_is_read() -> None:
    store, value = InMemoryStorage(), Lasting(1)

    store.write_now({"a": value})

    assert value.written == 0
    assert store.get_now("a") == {"number": 1}
    assert value.written == 1


async def test_every_way_to_read_it_gives_a_copy_of_the_same() -> None:
    store = InMemoryStorage()
    store.write_now({"a": Lasting(1), "b": {"plain": True}})

    found: Any = await store.get("a")
    found["number"] = 2

    assert await store.get_many(["a", "b"]) == {"a": {"number": 1}, "b": {"plain": True}}
    assert await store.get_text("a") == '{"number":1}'
    assert await store.list("") == ["a", "b"]
    assert await store.get("a") == {"number": 1}


def test_what_is_replaced_or_deleted_is_never_written() -> None:
    store, replaced, deleted = InMemoryStorage(), Lasting(1), Lasting(2)
    store.write_now({"a": replaced, "b": deleted})

    store.write_now({"a": {"new": 1}}, delete=["b"])

    assert (store.get_now("a"), store.get_now("b")) == ({"new": 1}, None)
    assert (replaced.written, deleted.written) == (0, 0)


def test_the_oldest_are_written_where_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "_MOST_LATE", 3)
    store, values = InMemoryStorage(), [Lasting(number) for number in range(6)]

    for number, value in enumerate(values):
        store.write_now({str(number): value}, delete=["1"])

    assert [value.written for value in values] == [1, 0, 1, 0, 0, 0]
    assert [store.get_now(str(number)) for number in (0, 1, 2, 5)] == [
        {"number": 0},
        None,
        {"number": 2},
        {"number": 5},
    ]
