"""What the child processes of the storage tests do; the first argument says which part they play."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count

from noetic_nb import errors
from noetic_nb.storage import SQLiteStorage


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def work_until_killed(path: str) -> None:
    """Report each number once its writes were awaited; the parent kills at any moment."""
    say("ready")
    store = SQLiteStorage(path)
    start = await store.get("state/0") or {"n": 0}
    for n in count(start["n"] + 1):
        for layer in range(5):
            await store.set(f"state/{layer}", {"n": n, "text": "x" * 500})
        await store.set_many({"pair/a": n, "pair/b": n, f"log/{n % 50}": {"n": n, "text": "y" * 3_000}})
        say(str(n))


async def count_together(path: str, times: str) -> None:
    """Add one to a shared counter so many times, reading again after each conflict, and write keys of our own."""
    conflicts = 0
    async with SQLiteStorage(path) as store:
        for n in range(int(times)):
            while True:
                seen = await store.get_versioned("counter")
                try:
                    await store.compare_and_set("counter", seen, (seen.value or 0) + 1)
                    break
                except errors.NoeticError as error:
                    if error.kind != "state_conflict":
                        raise
                    conflicts += 1
            await store.set(f"own/{os.getpid()}", n + 1)
    say(str(conflicts))


async def write_alone(path: str, times: str) -> None:
    """Write a key of our own so many times, each awaited."""
    async with SQLiteStorage(path) as store:
        for n in range(int(times)):
            await store.set(f"own/{os.getpid()}/{n}", n)
    say("0")


async def leave_without_closing(path: str) -> None:
    store = SQLiteStorage(path)
    await store.set("last", "words")
    globals()["kept"] = store


async def fork_and_write(path: str) -> None:
    async with SQLiteStorage(path) as store:
        await store.set("n", 1)
        child = os.fork()
        if child == 0:
            try:
                await store.set("n", 2)
            except errors.NoeticError as error:
                say(str(error))
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        say(str(await store.get("n")))


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
