"""The end of an execution: hooks that wait and hooks that do not, context variables they set, and remaining work."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.testing import drive_loop

SET: ContextVar[str] = ContextVar("set_by_a_layer", default="")


def layer(name: str, slot: int, seen: list[str], *, waits: bool) -> MemoryLayer:
    """Return a layer whose hooks record and set a context variable."""

    def note(hook: str) -> None:
        seen.append(f"{name} {hook} {SET.get()}".rstrip())
        SET.set(name)

    def plain(p: Any) -> None:
        note("plain")

    async def waiting(p: Any) -> None:
        await asyncio.sleep(0.001)
        note("waited")

    hook = waiting if waits else plain
    return MemoryLayer(id=name, slot=slot, scope="thread", hooks=MemoryHooks(on_complete=hook, dispose=hook))


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ((False, False), ["a plain", "b plain a", "b plain b", "a plain b"]),
        ((False, True), ["a plain", "b waited a", "b waited b", "a plain b"]),
        ((True, False), ["a waited", "b plain a", "b plain b", "a waited b"]),
    ],
    ids=["none waits", "the second waits", "the first waits"],
)
def test_hooks_at_the_end_share_a_context_of_their_own(waits: tuple[bool, bool], expected: list[str]) -> None:
    seen: list[str] = []
    layers = [layer("a", 1, seen, waits=waits[0]), layer("b", 2, seen, waits=waits[1])]
    harness = nn.AgentHarness(
        nn.AgentConfig(name="a", step=nn.react(model="m"), memory=layers), model=nn.ScriptedModel(["Hello."])
    )

    async def run() -> str:
        await harness.execute("Hi")
        return SET.get()

    assert drive_loop(run()) == ""
    assert seen == expected


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after it waited"])
def test_all_is_disposed_of_whatever_ends_the_program_meanwhile(waits: bool) -> None:
    seen: list[str] = []

    async def stop(p: Any) -> None:
        await asyncio.sleep(0.001)
        raise KeyboardInterrupt

    def stop_at_once(p: Any) -> None:
        raise KeyboardInterrupt

    ends = MemoryHooks(on_complete=stop if waits else stop_at_once)
    layers = [
        MemoryLayer(id="ends", slot=1, scope="thread", hooks=ends),
        MemoryLayer(id="b", slot=2, scope="thread", hooks=MemoryHooks(dispose=lambda p: seen.append("disposed"))),
    ]
    harness = nn.AgentHarness(
        nn.AgentConfig(name="a", step=nn.react(model="m"), memory=layers), model=nn.ScriptedModel(["Hello."])
    )

    async def run() -> None:
        await harness.execute("Hi")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())
    assert seen == ["disposed"]
