"""The stop button while an agent works in a real kernel: the cell ends, the agent stops, and the traceback is the cell's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60

SETUP = """
import asyncio, signal, threading
import noetic_nb as nn
from noetic_nb.widgets import RunTimeline, Workbench

calls, go, hit = [], threading.Event(), threading.Event()

def begin(n):
    calls.append(n)
    print("begun", flush=True)

def plain(n: int) -> str:
    "Work."
    begin(n)
    go.wait(60)
    return "did"

def blocking(n: int) -> str:
    "Work on the loop, until the stop button has been pressed."
    if threading.current_thread() is not threading.main_thread():
        return plain(n)
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *about: (hit.set(), before(*about)))
    try:
        begin(n)
        hit.wait(60)
    finally:
        signal.signal(signal.SIGINT, before)
    return "did"

async def waiting(n: int) -> str:
    "Work."
    begin(n)
    await asyncio.sleep(60)
    return "did"

def agent(work, *, live=False, one_by_one=False, **options):
    global harness, view
    for each in (calls, go, hit):
        each.clear()
    script = [nn.CallTool("work", n=n) for n in range(5)]
    if not one_by_one:
        script = [script]
    config = nn.AgentConfig(name="a", step=nn.react(model="m", tools=[nn.tool(work, name="work", **options)]))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([*script, "done"]))
    if live:
        view = RunTimeline(nn.record(harness))
        display(view)
    return harness

async def settled():
    go.set()
    while harness.status().state != "idle":
        await asyncio.sleep(0.01)
    return calls, [item["output"] for item in harness.log() if item["type"] == "function_call_output"]
"""

EXECUTE = "await agent({tool}).execute('go')"
WAYS = {
    "await": EXECUTE,
    "await, one call an answer": "await agent({tool}, one_by_one=True).execute('go')",
    "task": "task = asyncio.create_task(agent({tool}).execute('go'))\nawait task",
    "stream": "async for piece in agent({tool}).stream('go').text:\n    print(piece)",
    "reply of a stream": "await agent({tool}).stream('go').reply",
    "run_sync": "nn.run_sync(agent({tool}).execute('go'))",
    "patch": "nn.run_sync(agent({tool}).execute('go'), nested='patch')",
}
TOOLS = {"sync": "plain", "inline": "blocking, inline=True", "async": "waiting"}


class Kernel:
    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel()
        assert not self.run(SETUP)[0]

    def run(self, code: str, *, stop: bool = False) -> tuple[list[str], list[str]]:
        """Run a cell, pressing stop when a tool has begun; returns the traceback, and the kinds of messages since then."""
        asked = self.client.execute(code, stop_on_error=False)
        traceback: list[str] = []
        kinds: list[str] = []
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            kind, content = message["msg_type"], message["content"]
            kinds.append(kind)
            if kind == "stream" and "begun" in content["text"] and stop:
                stop = False
                kinds.clear()
                self.manager.interrupt_kernel()
            if message["parent_header"].get("msg_id") != asked:
                continue
            if kind == "error":
                traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"])).splitlines()
            if kind == "status" and content["execution_state"] == "idle":
                return traceback, kinds

    def value(self, code: str, expression: str) -> Any:
        answer = self.client.execute_interactive(
            code, timeout=PATIENCE_S, user_expressions={"it": expression}, output_hook=lambda message: None
        )["content"]
        assert answer["status"] == "ok", answer
        return ast.literal_eval(answer["user_expressions"]["it"]["data"]["text/plain"])

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.context.destroy(linger=0)


@pytest.fixture(scope="module")
def kernels() -> Iterator[dict[bool, Kernel]]:
    started: dict[bool, Kernel] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield started
    for each in started.values():
        each.close()


@pytest.mark.parametrize("is_live", [False, True], ids=["", "live view"])
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("way", WAYS)
def test_stop_ends_the_cell_and_the_agent(kernels: dict[bool, Kernel], way: str, tool: str, is_live: bool) -> None:
    is_patched = way == "patch"  # which changes asyncio for good: a kernel of its own
    kernel = kernels.get(is_patched) or kernels.setdefault(is_patched, Kernel())
    cell = WAYS[way].format(tool=TOOLS[tool] + ", live=True" * is_live)

    traceback, _ = kernel.run(cell, stop=True)
    calls, outputs = kernel.value("found = await settled()", "found")

    assert calls == [0]
    assert traceback[1].startswith("KeyboardInterrupt" if "run_sync" in cell else "CancelledError")
    assert not any(line.startswith("File ") for line in traceback), "the lines are those of the cell"
    assert len(traceback) < 12
    # A function that blocked the loop itself has ended, and is known to have.
    is_ended = tool == "inline" and way not in ("patch",)
    assert outputs[0] == "did" if is_ended else outputs[0].startswith("Error: cancelled; may have run")
    assert all(output.startswith("Error: not run, ") for output in outputs[1:])
    assert len(outputs) == (1 if "one_by_one" in cell else 5)


def test_a_workbench_and_views_are_alive_while_a_plain_function_works(kernels: dict[bool, Kernel]) -> None:
    kernel = kernels.get(False) or kernels.setdefault(False, Kernel())
    cell = """
with Workbench(agent(plain, live=True)) as bench:
    bench._answer({"do": "say", "text": "Go."})
    async with asyncio.timeout(60):
        while not calls:
            await asyncio.sleep(0.01)
        # What a page shows is read from the run: without the loop it would stand still.
        while "tool work" not in bench.reading.parts["progress"]:
            await asyncio.sleep(0.01)
        bench._answer({"do": "stop"})
        while harness.status().state != "idle":
            await asyncio.sleep(0.01)
    was_let_go = go.is_set()
"""

    traceback, kinds = kernel.run(cell)

    assert traceback == []
    assert "comm_msg" in kinds
    assert kernel.value("", "(was_let_go, calls)") == (False, [0])
    kernel.run("go.set()")
