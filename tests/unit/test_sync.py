"""Waiting without `await`, with and without a loop that is already running."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from noetic_nb.errors import NoeticConfigError
from noetic_nb.sync import run_sync

WHO = contextvars.ContextVar("WHO", default="nobody")


async def who_and_where() -> tuple[str, str]:
    await asyncio.sleep(0)
    return WHO.get(), threading.current_thread().name


def test_without_a_loop_it_runs_in_this_thread() -> None:
    assert run_sync(who_and_where())[1] == threading.current_thread().name


async def test_inside_a_running_loop_it_runs_beside_it_with_the_same_context() -> None:
    WHO.set("ann")

    assert run_sync(who_and_where()) == ("ann", "noetic_nb")


async def test_errors_pass_through() -> None:
    async def fail() -> None:
        raise KeyError("order")

    with pytest.raises(KeyError, match="order"):
        run_sync(fail())


async def test_background_work_stays_on_one_loop() -> None:
    async def loop_id() -> int:
        return id(asyncio.get_running_loop())

    assert run_sync(loop_id()) == run_sync(loop_id())


def test_background_work_may_call_run_sync_itself() -> None:
    async def deep(levels: int) -> int:
        await asyncio.sleep(0)
        return run_sync(deep(levels - 1)) + 1 if levels else 0

    async def main() -> None:
        found.append(run_sync(deep(3)))

    found: list[int] = []
    waiting = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    waiting.start()
    waiting.join(20)

    assert found == [3]


def test_the_stop_button_ends_a_wait_that_its_signal_did_not_reach() -> None:
    # A signal that another thread receives leaves the main thread waiting, as does one just before a wait begins.
    is_over, was_cancelled = threading.Event(), False

    async def work() -> None:
        nonlocal was_cancelled
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            was_cancelled = True
            raise
        finally:
            is_over.set()

    async def cell() -> None:
        run_sync(work())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have the suite ignore it
    try:
        with pytest.raises(KeyboardInterrupt), closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(cell())
    finally:
        signal.signal(signal.SIGINT, before)

    assert is_over.wait(60)
    assert was_cancelled


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_work_that_ends_the_program_ends_the_call_and_no_other_work(ends: type[BaseException]) -> None:
    found: list[Any] = []

    async def end() -> None:
        raise ends

    async def task() -> None:
        await asyncio.create_task(end())

    async def cell() -> None:
        for work in (end, task):
            try:
                run_sync(work())
            except ends as error:
                found.append(type(error))
        found.append(run_sync(who_and_where())[1])

    waiting = threading.Thread(target=lambda: asyncio.run(cell()), daemon=True)
    waiting.start()
    waiting.join(20)

    assert found == [ends, ends, "noetic_nb"]


def test_any_awaitable_will_do() -> None:
    class Answer:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield from asyncio.sleep(0).__await__()
            return 42

    assert run_sync(Answer()) == 42


def test_an_unknown_way_is_refused() -> None:
    coroutine = who_and_where()
    with pytest.raises(NoeticConfigError, match="'thread' or 'patch'"):
        run_sync(coroutine, nested="magic")  # type: ignore[arg-type]
    coroutine.close()


def test_a_patched_loop_runs_what_belongs_to_it() -> None:
    # In a process of its own: the patch changes asyncio for good.
    code = """
import asyncio, warnings
warnings.simplefilter("ignore")
from noetic_nb.sync import run_sync
async def main():
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, "ours")
    async def wait(): return await done
    return run_sync(wait(), nested="patch")
print(asyncio.new_event_loop().run_until_complete(main()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "ours"


async def test_without_the_maintained_fork_the_archived_package_is_used_and_its_limit_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Archived:
        @staticmethod
        def apply(loop: asyncio.AbstractEventLoop) -> None:
            raise KeyError(loop)

    monkeypatch.setitem(sys.modules, "nest_asyncio2", None)
    monkeypatch.setitem(sys.modules, "nest_asyncio", Archived)
    coroutine = who_and_where()
    with pytest.warns(RuntimeWarning, match="pip install nest-asyncio2"), pytest.raises(KeyError):
        run_sync(coroutine, nested="patch")
    coroutine.close()


def executed(client: Any) -> Any:
    """Return the next answer to a cell; a kernel that starts slowly answers late to those who asked whether it is there."""
    while (reply := client.get_shell_msg(timeout=60))["msg_type"] != "execute_reply":
        pass
    return reply


@pytest.mark.parametrize("nested", ["thread", "patch"])
def test_cells_that_are_queued_while_one_waits_run_after_it_and_in_order(
    nested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        cells = [
            "import asyncio\nfrom noetic_nb.sync import run_sync\nseen = []",
            *(
                # Long enough for the cells behind it to reach the kernel while it waits.
                f"seen.append('{name} begins'); run_sync(asyncio.sleep(0.1), nested='{nested}'); seen.append('{name} ends')"
                for name in "ab"
            ),
            "seen.append('c')",
        ]
        sent = [client.execute(cell) for cell in cells]
        replies = [executed(client) for _ in cells]
        seen = client.execute("", user_expressions={"seen": "seen"})
        shown = executed(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    assert [(reply["parent_header"]["msg_id"], reply["content"]["status"]) for reply in replies] == [
        (message, "ok") for message in sent
    ]
    assert shown["parent_header"]["msg_id"] == seen
    assert ast.literal_eval(shown["content"]["user_expressions"]["seen"]["data"]["text/plain"]) == [
        "a begins",
        "a ends",
        "b begins",
        "b ends",
        "c",
    ]


def test_a_virtual_loop_is_not_needed_for_a_harness_in_a_script() -> None:
    import noetic_nb as nn

    config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["one", "two"]))

    texts = [run_sync(harness.execute("hi")).text, run_sync(harness.execute("again")).text]

    assert texts == ["one", "two"]
