"""Golden vectors of scope keys and scoped storage."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetic_nb.memory import ExecutionContext, resolve_scope_key
from noetic_nb.storage import InMemoryStorage, ScopedStorage
from tests.vectors.cases import load


class Recording(InMemoryStorage):
    """Remembers the keys it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def get(self, key: str) -> Any:
        self.asked.append(key)
        return await super().get(key)

    async def list(self, prefix: str) -> list[str]:
        self.asked.append(prefix)
        return await super().list(prefix)


def storage_keys(given: dict[str, Any]) -> dict[str, str]:
    store = Recording()
    scoped = ScopedStorage(store, given["layerId"], given["scopeKey"])

    async def ask() -> None:
        await scoped.get(given["key"])
        await scoped.list(given["key"])
        await scoped.list()

    asyncio.run(ask())
    return dict(zip(("storageKey", "listPrefix", "listPrefixWithoutArgument"), store.asked, strict=True))


async def run_program(given: dict[str, Any]) -> dict[str, Any]:
    store = InMemoryStorage(given["initial"])
    results: list[Any] = []
    for op in given["ops"]:
        scoped = ScopedStorage(store, op["layerId"], op["scopeKey"])
        match op["op"]:
            case "get":
                results.append(await scoped.get(op["key"]))
            case "set":
                results.append(await scoped.set(op["key"], op["value"]))
            case "delete":
                results.append(await scoped.delete(op["key"]))
            case "list":
                results.append(sorted(await scoped.list(*([op["prefix"]] if "prefix" in op else []))))
            case "getMany":
                results.append(await scoped.get_many(op["keys"]))
    return {"results": results, "stored": {key: await store.get(key) for key in await store.list("")}}


@pytest.mark.parametrize("case", load("scope"))
def test_scopes_resolve_and_store_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    match given["op"]:
        case "resolveScopeKey":
            ids = given["ctx"]
            ctx = ExecutionContext(
                execution_id=ids["executionId"], thread_id=ids["threadId"], resource_id=ids.get("resourceId")
            )
            assert resolve_scope_key(given["scope"], ctx) == expect["scopeKey"]
        case "storageKey":
            assert storage_keys(given) == expect
        case "storageProgram":
            assert asyncio.run(run_program(given)) == expect
        case other:
            pytest.fail(f"no adapter for {other!r}")
