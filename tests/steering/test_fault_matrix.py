"""Form x fault x enforcement point x policy: no cell lets anything pass unrecorded."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import SteeringDecided, ToolCalled
from noetic_nb.memory._enforcement import FAILED_GUIDANCE
from noetic_nb.steering import SteeringRule
from noetic_nb.steering._predicates import conditions
from noetic_nb.steps import loop, until
from noetic_nb.testing import drive_loop
from tests.matrix import matrix
from tests.runtime.test_resumed_turns import Cut, Once
from tests.steering.steering_helpers import Bench

POINTS: Final = ("before_tool_call", "after_model_call")
HANG_S: Final = 3_600.0
LATER_S: Final = 0.01


class Boom(Exception):
    """The exception of a broken rule."""


def raises(params: Any) -> Any:
    raise Boom("broken")


def returns(value: Any) -> Callable[[Any], Any]:
    return lambda params: value


async def hangs(params: Any) -> Any:
    await asyncio.sleep(HANG_S)


async def raises_later(params: Any) -> Any:
    await asyncio.sleep(LATER_S)
    raise Boom("broken")


async def answers_nonsense_later(params: Any) -> Any:
    await asyncio.sleep(LATER_S)
    return "fine"


def judge(**more: Any) -> dict[str, Any]:
    return {"llm_eval": {"mode": "sync", "prompt": "?", "model": "judge"}} | more


# fault -> (fields of the rule, the judge's answer)
FAULTS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "python raises": ({"predicate": raises}, None),
    "python recurses for ever": ({"predicate": lambda params: (f := lambda g: g(g)) and f(f)}, None),
    "python answers True": ({"predicate": returns(True)}, None),
    "python answers False": ({"predicate": returns(False)}, None),
    "python answers 'allow'": ({"predicate": returns("allow")}, None),
    "python answers 0": ({"predicate": returns(0)}, None),
    "python answers a list": ({"predicate": returns([])}, None),
    "python answers no action": ({"predicate": returns({})}, None),
    "python answers an unknown action": ({"predicate": returns({"action": "permit"})}, None),
    "python answers guidance that is not text": ({"predicate": returns({"action": "guide", "guidance": 3})}, None),
    "python makes guidance that is not text": ({"predicate": lambda params: nn.guide(3)}, None),  # type: ignore[arg-type]
    "python takes no argument": ({"predicate": lambda: None}, None),
    "async python raises": ({"predicate": raises_later}, None),
    "async python answers nonsense": ({"predicate": answers_nonsense_later}, None),
    "async python hangs": ({"predicate": hangs}, None),
    "condition is no truth": ({"when": "history.size()"}, None),
    "condition misses a key": ({"when": "ctx.depth == 0 && history[3].ok"}, None),
    "condition divides by zero": ({"when": "1 / ctx.depth == 1"}, None),
    "condition compares what cannot be": ({"when": "ctx.depth > 'a'"}, None),
    "isolated condition fails": ({"when": "1 / ctx.depth == 1", "isolate": True}, None),
    "judge raises": (judge(), Boom("down")),
    "judge refuses": (judge(), NoeticError("llm_refused", "no")),
    "judge hangs": (judge(), HANG_S),
    "judge behind a broken predicate": (judge(predicate=raises), "ALLOW"),
    "judge behind a broken condition": (judge(when="1 / ctx.depth == 1"), "ALLOW"),
}

TIMEOUTS: Final = {"async python hangs", "judge hangs"}
REAL_TIME: Final = {"isolated condition fails"}


def drive(fault: str, coroutine: Any) -> Any:
    # Another process takes real time, so a loop with virtual time would run ahead of it.
    return asyncio.run(coroutine) if fault in REAL_TIME else drive_loop(coroutine)


@matrix("fault,on_error,point", product(FAULTS, ["deny", "allow", "raise"], POINTS), keep=60)
def test_a_faulty_rule_passes_nothing_unrecorded(fault: str, on_error: str, point: str) -> None:
    fields, reply = FAULTS[fault]
    rule = SteeringRule(id="faulty", applies_to=POINTS, **fields)
    late = SteeringRule(id="late", applies_to=POINTS, predicate=returns(None))
    seen: list[Any] = []

    async def run() -> Bench:
        bench = await Bench(
            [rule, late], judge=[reply] if reply is not None else [], on_error=on_error, max_retries=0
        ).start()
        try:
            seen.append(await bench.at(point))
        except Exception as exc:
            seen.append(exc)
        return bench

    bench = drive(fault, run())
    outcome = seen[0]

    # Every cell leaves one entry in the ledger, one decision in the run and one diagnostic.
    assert len(bench.ledger) == 1
    assert len(bench.decided) == 1
    assert len(bench.diagnostics) >= 1
    entry, event = bench.ledger[0], bench.decided[0]
    wanted = "timeout" if fault in TIMEOUTS else "error"
    assert event.outcome == wanted
    if on_error == "raise":
        assert isinstance(outcome, Exception)
        assert entry["failure"] == wanted
        return
    action = "allow" if on_error == "allow" else "deny"
    assert outcome.action.value == entry["action"] == event.action == action
    if action == "deny":
        assert outcome.guidance == FAILED_GUIDANCE
    if fault not in TIMEOUTS:
        assert entry["faults"] == [{"ruleId": "faulty", "reason": "error"}]
    assert event.rule_ids == ("faulty",)
    assert entry["ruleId"] == "faulty"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(["python raises", "judge raises"], 2)))
def test_under_allow_a_failing_rule_does_not_spare_the_others(first: str, second: str, point: str) -> None:
    rules = [SteeringRule(id=name, applies_to=POINTS, **FAULTS[name][0]) for name in (first, second)]
    rules.append(SteeringRule(id="deny", applies_to=POINTS, predicate=returns(nn.deny("still"))))

    async def run() -> tuple[Any, Bench]:
        bench = await Bench(rules, judge=[Boom("down")], on_error="allow").start()
        return await bench.at(point), bench

    decision, bench = drive_loop(run())

    assert (decision.action.value, decision.rule_ids) == ("deny", ("deny",))
    assert [fault["ruleId"] for fault in bench.ledger[0]["faults"]] == [first, second]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("on_error", ["deny", "allow", "raise"])
def test_steering_that_was_never_initialised_counts_as_the_policy_says(point: str, on_error: str) -> None:
    rule = SteeringRule(id="fine", applies_to=POINTS, predicate=returns(None))
    seen: list[Any] = []

    async def run() -> Bench:
        bench = Bench([rule], on_error=on_error)
        for _ in range(2):  # the second time there is a ledger, but still no initialisation
            try:
                seen.append(await bench.at(point))
            except Exception as exc:
                seen.append(exc)
        return bench

    bench = drive_loop(run())

    assert [entry["failure"] for entry in bench.ledger] == ["uninitialised", "error"]
    assert len(bench.diagnostics) == len(bench.decided) == 2
    assert [event.outcome for event in bench.decided] == ["uninitialised", "error"]
    for outcome in seen:
        if on_error == "raise":
            assert isinstance(outcome, Exception)
        else:
            assert outcome.action.value == on_error


def test_a_synchronous_predicate_that_hangs_in_a_thread_is_denied_on_time() -> None:
    import threading

    release = threading.Event()

    def stuck(call: Any) -> Any:
        release.wait(30)

    rule = SteeringRule(id="stuck", applies_to="before_tool_call", predicate=stuck, isolate="thread")

    complaints: list[Any] = []

    async def run() -> tuple[Any, float, Bench]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        bench = await Bench([rule], timeouts={"before_tool_call": 50}).start()
        start = time.perf_counter()
        decision = await bench.call()
        seconds = time.perf_counter() - start
        release.set()  # a late answer is ignored
        left = [thread for thread in threading.enumerate() if thread.name.startswith("noetic_nb stuck")]
        await asyncio.to_thread(lambda: [thread.join(10) for thread in left])
        await asyncio.sleep(0)
        return decision, seconds, bench

    decision, seconds, bench = asyncio.run(run())

    assert (decision.action.value, decision.rule_ids) == ("deny", ("stuck",))
    assert seconds < 5
    assert complaints == []
    assert any("was abandoned" in str(error) for _, _, error in bench.diagnostics)


def test_a_condition_that_runs_for_ever_in_its_process_is_denied_on_time() -> None:
    endless = "tool.args.n.all(a, tool.args.n.all(b, tool.args.n.all(c, tool.args.n.all(d, a + b + c + d >= 0))))"
    rule = SteeringRule(id="endless", applies_to="before_tool_call", when=endless, isolate=True)

    async def run() -> tuple[list[Any], float]:
        bench = await Bench([rule], timeouts={"before_tool_call": 3_000}).start()
        start = time.perf_counter()
        decision = await bench.call(args={"n": list(range(300))})
        seconds = time.perf_counter() - start
        short = await Bench([], layer=bench.layer, execution_id="e2").start()
        return [decision, await short.call(args={"n": [-1]})], seconds

    (endless_decision, next_decision), seconds = asyncio.run(run())

    assert (endless_decision.action.value, endless_decision.rule_ids) == ("deny", ("endless",))
    assert seconds < 10
    assert next_decision.action.value == "allow"


SLOW_WORKER = """
import runpy, time
while time.process_time() < 1.2:
    pass
runpy.run_path({worker!r}, run_name="__main__")
"""


def test_the_start_of_the_process_does_not_count_as_compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "worker.py"
    slow.write_text(SLOW_WORKER.format(worker=str(conditions._WORKER)))
    monkeypatch.setattr(conditions, "_WORKER", slow)
    monkeypatch.setattr(conditions, "COMPILE_MS", 1_000.0)

    assert conditions.CelProcess("1 == 1").compile_error() is None
    assert "Syntax error" in str(conditions.CelProcess("1 = 1").compile_error())


def test_a_process_that_ends_at_its_start_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit(1)")
    monkeypatch.setattr(conditions, "_WORKER", broken)

    assert "ended" in str(conditions.CelProcess("1 == 1").compile_error())


def test_a_slow_synchronous_rule_is_noted_in_the_ledger() -> None:
    async def run() -> Bench:
        bench = Bench([SteeringRule(id="slow", applies_to=POINTS, predicate=lambda call: bench.clock.advance(51))])
        await bench.start()
        await bench.call()
        return bench

    assert drive_loop(run()).ledger[0]["slow"] is True


def test_cancelling_the_agent_cancels_the_evaluation() -> None:
    async def run() -> None:
        bench = await Bench([SteeringRule(id="h", applies_to=POINTS, predicate=hangs)]).start()
        task = asyncio.ensure_future(bench.call())
        await asyncio.sleep(1)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        drive_loop(run())


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": "ignore"},
        {"on_unparseable": "raise"},
        {"max_ledger_entries": -1},
        {"max_retries": True},
        {"max_retries": 1.5},
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        nn.steering([], **options)

    assert caught.value.code == "INVALID_STEERING"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_ledger_keeps_so_many_of_the_newest_entries(count: int) -> None:
    async def run() -> list[Any]:
        bench = await Bench([], max_ledger_entries=count).start()
        for tool in "abcde":
            await bench.call(tool)
        return [entry["toolName"] for entry in bench.ledger]

    assert drive_loop(run()) == list("abcde")[5 - count :]


# The same faults on every path to a call or a response.

DONE: Final[list[int]] = []


@nn.tool
def pay(amount: int) -> str:
    """Pay someone."""
    DONE.append(amount)
    return "paid"


def asking(**options: Any) -> Any:
    return nn.react(model="m", **({"tools": [pay]} | options))


async def start_beside(value: Any, ctx: Any) -> Any:
    return await ctx.start(asking(), "Pay 1").result()


# path -> (the agent's step, the layers besides steering, the tool that the model calls)
PATHS: Final[dict[str, Callable[[], tuple[Any, list[Any], nn.CallTool]]]] = {
    "turn": lambda: (asking(), [], nn.CallTool("pay", amount=1)),
    "spawned child": lambda: (nn.step.spawn("child", asking()), [], nn.CallTool("pay", amount=1)),
    "fork path": lambda: (
        nn.step.fork("fork", mode="all", paths=[asking()], merge=lambda results, *_: results[0]),
        [],
        nn.CallTool("pay", amount=1),
    ),
    "started step": lambda: (nn.step.run("go", start_beside), [], nn.CallTool("pay", amount=1)),
    "structured output": lambda: (
        nn.step.llm("ask", model="m", tools=[pay], output=int),
        [],
        nn.CallTool("pay", amount=1),
    ),
    "tools chosen at run time": lambda: (asking(tools=lambda ctx: [pay]), [], nn.CallTool("pay", amount=1)),
    "function of a layer": lambda: (
        asking(tools=None),
        [nn.working_memory()],
        nn.CallTool("working-memory/update", note="hi"),
    ),
    "stream": lambda: (asking(), [], nn.CallTool("pay", amount=1)),
    # A resumed turn has a completed step: the first of these two.
    "resumed turn": lambda: (
        loop("whole", [nn.step.run("first", lambda value, ctx: value), asking()], until=until.max_steps(1)),
        [],
        nn.CallTool("pay", amount=1),
    ),
}

PATH_FAULTS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    name: FAULTS[name]
    for name in (
        "python raises",
        "python answers True",
        "async python raises",
        "async python hangs",
        "condition is no truth",
        "judge raises",
        "judge hangs",
    )
} | {"python cancels itself": ({"predicate": lambda params: _cancels()}, None)}


def _cancels() -> Any:
    raise asyncio.CancelledError


def _harness(
    rule: SteeringRule,
    path: str,
    reply: Any,
    on_error: str,
    *,
    storage: Any = None,
    dies: Callable[[], None] = lambda: None,
) -> tuple[nn.AgentHarness, list[Any], str]:
    """Return an agent that takes a path to a call, the requests of its model, and the name of the tool."""
    step, layers, call = PATHS[path]()
    seen: list[Any] = []

    async def line(request: Any) -> Any:
        if request.purpose == "judge":
            if reply == HANG_S:
                await asyncio.sleep(HANG_S)
            return reply
        dies()
        seen.append(request)
        # By the sent items, not by counting: a resumed turn is further than a script would be.
        return "7" if any(item["type"] == "function_call_output" for item in request.items) else call

    memory = [*layers, nn.steering([rule], on_error=on_error, max_retries=0)]  # type: ignore[arg-type]
    config = nn.AgentConfig(name="desk", step=step, memory=memory)
    options = {} if storage is None else {"storage": storage, "checkpoints": True}
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(line), diagnostic=lambda *about: None, **options)
    return harness, seen, call.name


@matrix("path,fault,on_error,point", product(PATHS, PATH_FAULTS, ["deny", "allow", "raise"], POINTS), keep=80)
def test_a_faulty_rule_passes_nothing_unrecorded_on_any_path(path: str, fault: str, on_error: str, point: str) -> None:
    DONE.clear()
    fields, reply = PATH_FAULTS[fault]
    rule = SteeringRule(id="faulty", applies_to=point, **fields)
    once = Once()
    if path == "resumed turn":
        first, _, _ = _harness(rule, path, reply, on_error, storage=once.store, dies=once.now)
        with pytest.raises((NoeticError, Cut)):
            drive_loop(first.execute("Pay 1"))
    harness, seen, tool_name = _harness(rule, path, reply, on_error, storage=once.disk)
    rows: list[Any] = []
    known: dict[str, int] = {}
    written = harness._engine.stack.state.set

    def look(execution_id: str, layer_id: str, state: Any, **more: Any) -> Any:
        if layer_id == "steering":
            ledger = state["ledger"]
            rows.extend(ledger[known.get(execution_id, 0) :])
            known[execution_id] = len(ledger)
        return written(execution_id, layer_id, state, **more)

    harness._engine.stack.state.set = look  # type: ignore[method-assign]
    run = nn.record(harness)

    async def talk() -> Any:
        if path == "resumed turn":
            return await harness.resume((await harness.unfinished())[0])
        if path != "stream":
            return await harness.execute("Pay 1")
        stream = harness.stream("Pay 1")
        async for _ in stream.text:
            pass
        return await stream.reply

    error: BaseException | None = None
    try:
        drive_loop(talk())
    except Exception as exc:
        error = exc

    called = [event for event in run.events if isinstance(event, ToolCalled)]
    decided = [event for event in run.events if isinstance(event, SteeringDecided) and event.hook == point]
    wanted = "timeout" if fault in TIMEOUTS else "error"
    # One event per decision, and each names the failed rule.
    assert decided
    assert {event.outcome for event in decided} == {wanted}
    assert {event.rule_ids for event in decided} == {("faulty",)}
    assert {event.action for event in decided} == ({"allow"} if on_error == "allow" else {"deny"})
    # One row as well, with the same action; a child has its own.
    kind = "tool_call" if point == "before_tool_call" else "model_turn"
    judged = [row for row in rows if row["kind"] == kind]
    assert judged
    assert all(row["action"] == decided[0].action and row["ruleIds"] == ["faulty"] for row in judged)
    assert all(bool(row.get("faults")) or row["failure"] == wanted for row in judged)
    if point == "before_tool_call":
        assert [event.tool_name for event in decided] == [tool_name]
    runs = on_error == "allow" if point == "before_tool_call" else None
    if runs is not None and tool_name == "pay":
        assert ([1] if runs else []) == DONE
    if on_error == "raise" or (point == "after_model_call" and on_error == "deny"):
        assert error is not None  # a rejected response ends the turn
        return
    assert error is None
    if point == "before_tool_call":
        assert [event.status for event in called] == (["ok"] if runs else ["denied"])
        told = [item.output for item in seen[-1].items if item["type"] == "function_call_output"]
        assert len(told) == 1
        assert (FAILED_GUIDANCE in told[0]) is (on_error == "deny")
        assert "broken" not in told[0]
