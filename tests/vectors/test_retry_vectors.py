"""Golden vectors of retries and of channels, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.runtime import channel
from noetic_nb.runtime._execution.child import Child
from noetic_nb.steps import step
from noetic_nb.testing import drive_loop
from tests.vectors.cases import close, load, snake
from tests.vectors.test_until_vectors import error_data

CASES = load("retry")
RETRIES = [case for case in CASES if case.values[0]["given"]["op"] == "retry"]
CHANNELS = [case for case in CASES if case.values[0]["given"]["op"] == "channel"]


def failure(kind: str, number: int) -> BaseException:
    """Return what attempt `number` raises."""
    match kind:
        case "noetic":
            return NoeticError("channel_closed", f"attempt {number}", channel_name="q")
        case "config":
            return NoeticConfigError("CANNED", f"attempt {number}")
        case "cancelled":
            return NoeticError("cancelled", "stop", reason="stop")
    return RuntimeError(f"attempt {number}")


def fits(error: BaseException, wanted: dict[str, Any]) -> bool:
    got = error_data(error)
    return all(got.get(snake(key), got.get(key)) == value for key, value in wanted.items())


@pytest.mark.parametrize("case", RETRIES)
def test_steps_are_tried_again_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    times: list[float] = []

    async def main() -> Any:
        harness = nn.AgentHarness(nn.AgentConfig(name="vectors"))

        async def attempt(value: Any, ctx: Any) -> Any:
            times.append(asyncio.get_running_loop().time() * 1000)
            kind = given["attempts"][min(len(times), len(given["attempts"])) - 1]
            if len(times) == given.get("abortDuringAttempt"):
                ctx.abort("stop")
            if kind == "ok":
                return f"value-{len(times)}"
            raise failure(kind, len(times))

        tried = step.run("R", attempt, retry=given.get("retry"))
        async with harness.execution() as ctx:
            return await harness.run(tried, None, ctx)

    if "value" in expect:
        assert drive_loop(main()) == expect["value"]
    else:
        with pytest.raises((NoeticError, NoeticConfigError)) as caught:
            drive_loop(main())
        assert fits(caught.value, expect["error"])
        if "cause" in expect:
            assert caught.value.cause is caught.value.__cause__
            cause = {
                key: value for key, value in expect["cause"].items() if key != "message" or value.startswith("att")
            }
            assert fits(caught.value.cause, cause)
    assert len(times) == expect["attempts"]
    for waited, wanted in zip([b - a for a, b in itertools.pairwise(times)], expect.get("delays", []), strict=False):
        assert close(waited, wanted) or abs(waited - wanted) < 1e-6


@pytest.mark.parametrize("case", CHANNELS)
def test_channels_carry_messages_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]

    async def main() -> None:
        harness = nn.AgentHarness(nn.AgentConfig(name="vectors"))
        pipe = channel(**given["channel"])
        opened = harness.execution()
        root = await opened.__aenter__()
        handle = harness.channel_handle(pipe, root.id) if pipe.external else None
        contexts: dict[str, Any] = {"": root}
        tasks: dict[str, asyncio.Task[Any]] = {}
        told_of: set[str] = set()

        def context(signal: str) -> Any:
            if signal not in contexts:
                contexts[signal] = Child(root.engine, root.engine, root, "s", "fork", root.item_log.fork()).ctx
            return contexts[signal]

        def start(op: dict[str, Any]) -> None:
            ctx = context(op.get("signal", ""))
            waits = {} if "timeout" not in op else {"timeout_ms": op["timeout"]}
            call = ctx.send(pipe, op["value"], **waits) if op["op"] == "send" else ctx.recv(pipe, **waits)
            tasks[op["as"]] = asyncio.get_running_loop().create_task(call)

        for number, (op, wanted) in enumerate(zip(given["ops"], expect["steps"], strict=True)):
            got: dict[str, Any] = {}
            try:
                match op["op"]:
                    case "send" | "recv":
                        start(op)
                    case "tryRecv":
                        value = root.try_recv(pipe)
                        got["value"] = None if value is channel.EMPTY else value
                    case "handleSend":
                        handle.send(op["value"])
                        got["ok"] = True
                    case "handleClosed":
                        got["closed"] = handle.closed
                    case "close":
                        await opened.__aexit__(None, None, None)
                        got["ok"] = True
                    case "abort":
                        context(op["signal"]).abort(op["reason"])
                    case "wait":
                        await asyncio.sleep(op["ms"] / 1000)
            except NoeticError as exc:
                got["error"] = exc
            for _ in range(5):
                await asyncio.sleep(0)
            check(number, wanted, got, tasks, told_of)
        for task in tasks.values():
            task.cancel()

    def check(number: int, wanted: Any, got: Any, tasks: Any, told_of: set[str]) -> None:
        for key in ("value", "ok", "closed"):
            assert got.get(key) == wanted.get(key), f"op {number}"
        assert ("error" in wanted) == ("error" in got), f"op {number}"
        if "error" in wanted:
            assert fits(got["error"], wanted["error"])
        settled = {name for name, task in tasks.items() if task.done()} - told_of
        told_of |= settled
        assert settled == {entry["as"] for entry in wanted.get("settled", ())}, f"op {number}"
        for entry in wanted.get("settled", ()):
            task = tasks[entry["as"]]
            if "error" in entry:
                assert fits(task.exception(), entry["error"]), f"op {number}"
            else:
                assert task.result() == entry.get("value"), f"op {number}"
        assert {name for name, task in tasks.items() if not task.done()} == set(wanted["pending"]), f"op {number}"

    drive_loop(main())
