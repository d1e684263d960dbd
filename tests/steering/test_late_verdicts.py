"""Late verdicts: queued, delivered exactly once, carried over, never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticError
from noetic_nb.steering import SteeringRule, steering
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import drive_loop
from tests.steering.steering_helpers import Bench, settle


def watcher(rule_id: str = "watch", mode: str = "async") -> SteeringRule:
    return SteeringRule(
        id=rule_id,
        applies_to=("before_tool_call", "after_model_call"),
        llm_eval={"mode": mode, "prompt": "Polite?", "model": "judge"},
    )


async def judged(*replies: Any, **options: Any) -> Bench:
    bench = await Bench([watcher()], judge=list(replies), **options).start()
    for _ in replies:
        assert (await bench.call()).action.value == "allow"
    await settle()
    return bench


def test_an_async_verdict_never_blocks_and_comes_with_the_next_recall_once() -> None:
    async def run() -> list[str | None]:
        bench = await judged("DENY: rude", "ALLOW", "GUIDE: say please", "DENY")
        return [await bench.recalled(), await bench.recalled()]

    assert drive_loop(run()) == [
        "<steering_feedback>\n[watch] rude\n[watch] say please\n[watch] Rule watch: deny\n</steering_feedback>",
        None,
    ]


def test_only_an_explicit_not_sent_brings_a_verdict_back() -> None:
    async def run() -> list[str | None]:
        bench = await judged("DENY: rude")
        first = await bench.recalled()
        bench.stack.delivered(bench.ctx, [])
        second = await bench.recalled()
        third = await bench.recalled()
        return [first, second, third]

    first, second, third = drive_loop(run())

    assert first == second
    assert third is None


def test_a_verdict_that_was_sent_does_not_come_back() -> None:
    async def run() -> str | None:
        bench = await judged("DENY: rude")
        entries = await bench.stack.recall(bench.ctx, budgets={"steering": 500})
        bench.stack.delivered(bench.ctx, [entries[0].items[0].id])
        return await bench.recalled()

    assert drive_loop(run()) is None


def test_what_was_not_sent_comes_before_what_is_new() -> None:
    async def run() -> str | None:
        bench = await Bench([watcher()], judge=["DENY: one", "DENY: two"]).start()
        await bench.call()
        await settle()
        await bench.recalled()
        await bench.call()
        await settle()
        bench.stack.delivered(bench.ctx, [])
        return await bench.recalled()

    assert (drive_loop(run()) or "").splitlines()[1:3] == ["[watch] one", "[watch] two"]


@given(st.lists(st.sampled_from(["DENY: x", "GUIDE: y", "ALLOW", "junk"]), max_size=8), st.data())
def test_every_verdict_is_delivered_exactly_once_however_recalls_fall(replies: list[str], data: st.DataObject) -> None:
    """Some recalls are lost; the bookkeeping of the delivered ones must still be correct."""

    async def run() -> int:
        bench = await Bench([watcher()], judge=lambda question: replies[len(bench.asked) - 1], max_retries=0).start()
        arrived = 0
        for place in range(len(replies) + 1):
            if place < len(replies):
                await bench.call()
            if data.draw(st.booleans()):
                await settle()
            entries = await bench.stack.recall(bench.ctx, budgets={"steering": 500})
            sent = data.draw(st.booleans()) or place == len(replies)
            bench.stack.delivered(bench.ctx, [entry.items[0].id for entry in entries] if sent else [])
            if sent and entries:
                arrived += entries[0].items[0].content[0].text.count("[watch]")
        await settle()
        last = await bench.recalled()
        return arrived + (0 if last is None else last.count("[watch]"))

    assert drive_loop(run()) == sum(reply.startswith(("DENY", "GUIDE")) for reply in replies)


def test_verdicts_that_do_not_fit_wait_for_the_next_recall() -> None:
    async def run() -> list[int]:
        bench = await judged(*[f"DENY: {number} " + "word " * 20 for number in range(4)])
        return [(await bench.recalled(budget=60) or "").count("[watch]") for _ in range(5)]

    counts = drive_loop(run())

    assert sum(counts) == 4
    assert max(counts) < 4


def test_a_verdict_larger_than_the_budget_is_cut_and_delivered() -> None:
    async def run() -> list[str | None]:
        bench = await judged("DENY: " + "word " * 2_000)
        return [await bench.recalled(budget=40), await bench.recalled(budget=40)]

    first, second = drive_loop(run())

    assert first is not None
    assert "…" in first
    assert second is None


def chained(*replies: Any, **options: Any) -> Any:
    """Return a layer and a function that begins its executions one after another."""
    layer = steering([watcher()], **options)
    left = list(replies)

    async def begin(execution_id: str, thread_id: str = "t1", depth: int = 0, storage: Any = None) -> Bench:
        bench = Bench(
            [], layer=layer, judge=left, execution_id=execution_id, thread_id=thread_id, depth=depth, storage=storage
        )
        bench._judge = left
        return await bench.start()

    return begin


def test_what_is_left_at_the_end_goes_to_the_next_root_execution_of_the_thread() -> None:
    async def run() -> list[str | None]:
        begin = chained("DENY: rude")
        first = await begin("e1")
        await first.call()
        await settle()
        await first.end()
        other = await begin("e2", thread_id="t2")
        child = await begin("e3", depth=1)
        following = await begin("e4")
        return [await bench.recalled() for bench in (other, child, following)]

    other, child, following = drive_loop(run())

    assert (other, child) == (None, None)
    assert following is not None
    assert "[watch] rude" in following


def test_a_judge_still_running_at_the_end_reaches_the_execution_that_runs_then() -> None:
    async def run() -> list[str | None]:
        begin = chained(60.0)
        first = await begin("e1")
        await first.call()
        await settle()
        await first.end()
        second = await begin("e2")
        before = await second.recalled()
        await asyncio.sleep(120)
        return [before, await second.recalled(), await second.recalled()]

    before, after, again = drive_loop(run())

    assert (before, again) == (None, None)
    assert after is not None
    assert "too late" in after


def test_a_verdict_of_an_ended_execution_is_not_given_to_a_child() -> None:
    async def run() -> list[str | None]:
        begin = chained(60.0)
        first = await begin("e1")
        await first.call()
        await settle()
        await first.end()
        child = await begin("child", depth=1)
        root = await begin("e2")
        await asyncio.sleep(120)
        return [await child.recalled(), await root.recalled()]

    child, root = drive_loop(run())

    assert child is None
    assert root is not None


def test_a_judge_that_fails_in_the_background_is_a_diagnostic() -> None:
    fault = RuntimeError("down")

    async def run() -> Bench:
        return await judged(fault)

    assert [error for _, _, error in drive_loop(run()).diagnostics] == [fault]


def test_a_deny_after_the_time_limit_is_recorded_and_delivered() -> None:
    async def run() -> tuple[Any, str | None, Bench]:
        bench = await Bench([watcher("slow", "sync")], judge=[60.0]).start()
        decision = await bench.call(args={"amount": 7})
        await asyncio.sleep(120)
        return decision, await bench.recalled(), bench

    decision, feedback, bench = drive_loop(run())

    assert (decision.action.value, decision.rule_ids) == ("deny", ("slow",))
    assert [entry["failure"] for entry in bench.ledger] == ["timeout"]
    late = bench.decided[1]
    assert (late.action, late.outcome, late.rule_ids, late.args) == ("deny", "late", ("slow",), {"amount": 7})
    assert feedback is not None
    assert "[slow] too late" in feedback


@pytest.mark.parametrize("scope", ["thread", "resource", "global"])
def test_durable_verdicts_are_loaded_once_and_not_carried_over_as_well(scope: Any) -> None:
    async def run() -> list[int]:
        storage = InMemoryStorage()
        begin = chained("DENY: rude", scope=scope)
        first = await begin("e1", storage=storage)
        await first.call()
        await settle()
        await first.end()
        counts = []
        for name in ("e2", "e3"):
            bench = await begin(name, storage=storage)
            counts.append((await bench.recalled() or "").count("[watch]"))
            await bench.end()
        return counts

    assert drive_loop(run()) == [1, 0]


def test_a_child_starts_with_a_copy_of_the_ledger_and_an_empty_queue() -> None:
    async def run() -> tuple[Any, Bench]:
        bench = await judged("DENY: rude")
        child = Bench([], layer=bench.layer, judge=[], execution_id="e2", depth=1)
        passed = await bench.stack.spawn(bench.ctx, child.ctx)
        passed[0][1]["ledger"][0]["toolName"] = "changed"
        return passed[0][1], bench

    state, bench = drive_loop(run())

    assert (len(state["ledger"]), state["pendingAsync"]) == (1, [])
    assert bench.ledger[0]["toolName"] == "pay"


def nested(depth: int) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = [data]
    return data


CALL = {"name": "pay", "status": "ok"}


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        (3, "it is not an object"),
        ({}, "`ledger` is missing"),
        ({"ledger": 1}, "ledger is not a list"),
        ({"ledger": [1]}, r"ledger\[0\] is not an object"),
        ({"ledger": [{}, {"timestamp": 10**400}]}, r"ledger\[1\].timestamp is not a finite number"),
        ({"ledger": [{"timestamp": "noon"}]}, r"ledger\[0\].timestamp is not a finite number"),
        ({"ledger": [{"durationMs": True}]}, r"ledger\[0\].durationMs is not a finite number"),
        ({"ledger": [{"ruleIds": "r1"}]}, r"ledger\[0\].ruleIds is not a list of texts"),
        ({"ledger": [{"toolArgs": nested(300)}]}, "nested more than 200 deep"),
        ({"ledger": [], "pendingAsync": [{}]}, r"pendingAsync\[0\].ruleId is missing"),
        ({"ledger": [], "pendingAsync": [{"ruleId": "r", "guidance": 7}]}, r"pendingAsync\[0\].guidance is not text"),
        ({"ledger": [], "calls": [1]}, r"calls\[0\] is not an object"),
        ({"ledger": [], "calls": [{**CALL, "args": [1]}]}, r"calls\[0\].args is not an object"),
        ({"ledger": [], "made": [CALL, {**CALL, "status": None}]}, r"made\[1\].status is not text"),
    ],
    ids=str,
)
def test_a_damaged_durable_state_is_an_error_and_not_an_empty_ledger(stored: Any, place: str) -> None:
    async def run() -> None:
        storage = InMemoryStorage({"layers/steering/t1/state": stored})
        await Bench([watcher()], judge=[], scope="thread", storage=storage).start()

    with pytest.raises(NoeticError, match=f"'steering' is damaged: .*{place}") as raised:
        drive_loop(run())

    assert (raised.value.kind, raised.value.key) == ("storage_failed", "layers/steering/t1/state")
    assert "layers/steering/t1/state" in raised.value.hint
