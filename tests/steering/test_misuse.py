"""Almost correct uses of the API: each enforces, or is refused; none disables enforcement."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._predicates import in_thread as threads
from noetic_nb.testing import FakeClock, SeededIds, drive_loop
from tests.steering.steering_helpers import Bench

DONE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def pay(amount: int) -> str:
    """Pay someone."""
    DONE.append(amount)
    return "paid"


def no_payments(call: Any) -> Any:
    return nn.deny("Not today.")


def book() -> RuleBook:
    rules = RuleBook()
    rules.rule(no_payments, on="before_tool_call", tools="pay")
    return rules


def harness(**options: Any) -> nn.AgentHarness:
    fields = {"name": "desk", "step": nn.react(model="m", tools=[pay])} | options
    script = [nn.CallTool("pay", amount=1), "Done."]
    return nn.AgentHarness(nn.AgentConfig(**fields), model=nn.ScriptedModel(script), clock=FakeClock(), ids=SeededIds())


def test_a_function_made_a_tool_with_options_keeps_them() -> None:
    made = nn.tool(pay, needs_approval=True, name="wire", description="Wires.")

    assert (made.name, made.description, made.needs_approval) == ("wire", "Wires.", True)


def test_a_function_given_to_rule_is_a_rule_at_once() -> None:
    rules = RuleBook()

    returned = rules.rule(no_payments, on="before_tool_call", tools=["pay"])

    assert returned is no_payments
    assert [(rule.id, rule.tools, rule.predicate) for rule in rules] == [("no_payments", ("pay",), no_payments)]


@pytest.mark.parametrize(
    "memory", [lambda rules: [rules], lambda rules: rules, lambda rules: nn.steering(rules), lambda r: nn.memory([r])]
)
def test_a_rule_book_as_memory_is_enforced(memory: Any) -> None:
    drive_loop(harness(memory=memory(book())).execute("Pay"))

    assert DONE == []


@pytest.mark.parametrize("place", ["spawn", "react"])
def test_a_rule_book_as_memory_of_a_child_is_enforced(place: str) -> None:
    inner = nn.react(model="m", tools=[pay])
    steps = {
        "spawn": nn.step.spawn("child", inner, context_in="inherit", memory=[book()]),
        "react": nn.react(model="m", tools=[pay], memory=[book()]),
    }

    drive_loop(harness(step=steps[place]).execute("Pay"))

    assert DONE == []


def test_a_rule_book_beside_its_own_layer_is_refused() -> None:
    rules = book()

    with pytest.raises(NoeticConfigError) as caught:
        harness(memory=[rules, nn.steering(rules)])

    assert caught.value.code == "DUPLICATE_LAYER_ID"


@pytest.mark.parametrize("one", [pay, nn.tool(pay)], ids=["function", "tool"])
@pytest.mark.parametrize("place", ["agent", "llm", "react"])
def test_one_tool_stands_for_a_list_of_one(place: str, one: Any) -> None:
    fields: dict[str, Any] = {
        "agent": {"step": nn.react(model="m"), "tools": one},
        "llm": {"step": nn.step.llm("ask", model="m", tools=one)},
        "react": {"step": nn.react(model="m", tools=one)},
    }[place]

    drive_loop(harness(**fields).execute("Pay"))

    assert DONE == [1]


@pytest.mark.parametrize("chosen", [pay, nn.tool(pay), [pay]], ids=["function", "tool", "list"])
def test_a_function_of_the_context_still_chooses_tools(chosen: Any) -> None:
    drive_loop(harness(step=nn.step.llm("ask", model="m", tools=lambda ctx: chosen)).execute("Pay"))

    assert DONE == [1]


def test_a_rule_book_that_nothing_uses_is_a_finding() -> None:
    rules = book()

    rules.at_most(1, "pay", id="only_here")

    def found(agent: nn.AgentHarness) -> list[str]:
        return [f.message for f in agent.check() if f.code == "UNUSED_RULE_BOOK" and "'only_here'" in f.message]

    assert len(found(harness())) == 1
    assert found(harness(memory=[rules])) == []


@pytest.mark.parametrize("name", ["working-memory/update", "working-memory_update", "wоrking-memory/update"])
@pytest.mark.parametrize("chosen", [False, True])
def test_a_tool_named_like_a_function_of_a_layer_is_refused(name: str, chosen: bool) -> None:
    mine = nn.tool(pay, name=name)
    step = nn.step.llm("ask", model="m", tools=(lambda ctx: [mine]) if chosen else [mine])
    agent = harness(step=step, memory=[nn.working_memory()])

    with pytest.raises(NoeticConfigError) as caught:
        drive_loop(agent.execute("Pay"))

    assert (caught.value.code, DONE) == ("TOOL_NAME_COLLISION", [])
    assert chosen or [finding.code for finding in agent.check()] == ["TOOL_NAME_COLLISION"]


class Unusual(BaseException):
    """Neither an `Exception` nor an exception that ends a program."""


ENDS: dict[str, BaseException] = {"Ctrl-C": KeyboardInterrupt(), "end of the program": SystemExit(3)}
OWN: dict[str, BaseException] = {
    "its own cancellation": asyncio.CancelledError(),
    "the end of a generator": GeneratorExit(),
    "a stop": StopIteration(4),
    "no exception": Unusual(),
}
POINTS = ("before_tool_call", "after_model_call")


def raising(error: BaseException, form: str) -> SteeringRule:
    def at_once(params: Any) -> Any:
        raise error

    async def later(params: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return SteeringRule(
        id="r",
        applies_to=POINTS,
        predicate=later if form == "async" else at_once,
        isolate="thread" if form == "thread" else None,
    )


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("form", ["inline", "async"])
@pytest.mark.parametrize("error", ENDS)
def test_what_ends_the_program_goes_on_and_leaves_a_row(error: str, form: str, point: str) -> None:
    benches: list[Bench] = []

    async def run() -> None:
        benches.append(await Bench([raising(ENDS[error], form)], on_error="allow").start())
        await benches[0].at(point)

    with pytest.raises(type(ENDS[error])):
        asyncio.run(run())

    row, event = benches[0].ledger[0], benches[0].decided[0]
    assert (row["failure"], row["ruleIds"], event.outcome, event.rule_ids) == ("error", ["r"], "error", ("r",))


@pytest.mark.parametrize("on_error", ["deny", "allow", "raise"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("error", "form"),
    [
        (error, form)
        for error in OWN
        for form in ("inline", "async", "thread")
        # Python closes a coroutine with `GeneratorExit`, so a rule's own cannot be distinguished.
        if (error, form) != ("the end of a generator", "async")
    ],
)
def test_what_a_rule_raises_itself_is_a_fault(error: str, form: str, point: str, on_error: str) -> None:
    outcome: list[Any] = []

    async def run() -> Bench:
        bench = await Bench([raising(OWN[error], form)], on_error=on_error).start()
        try:
            outcome.append((await bench.at(point)).action.value)
        except Exception as exc:
            outcome.append(exc)
        return bench

    bench = asyncio.run(run())

    row, event = bench.ledger[0], bench.decided[0]
    assert (len(bench.ledger), event.outcome) == (1, "error")
    if on_error == "raise":
        assert isinstance(outcome[0], Exception)
        assert row["failure"] == "error"
    else:
        assert outcome == [on_error]
        assert (row["faults"], event.rule_ids) == ([{"ruleId": "r", "reason": "error"}], ("r",))


@pytest.mark.parametrize("form", ["predicate", "judge"])
def test_the_end_of_the_task_goes_on_and_leaves_a_row(form: str) -> None:
    async def hangs(params: Any) -> Any:
        await asyncio.sleep(3_600)

    judge = {"mode": "sync", "prompt": "?", "model": "judge"}
    rule = SteeringRule(
        id="r", applies_to=POINTS, **({"predicate": hangs} if form == "predicate" else {"llm_eval": judge})
    )

    async def run() -> tuple[bool, Bench]:
        bench = await Bench([rule], judge=[3_600.0], on_error="allow").start()
        task = asyncio.ensure_future(bench.call())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), bench

    cancelled, bench = drive_loop(run())

    assert cancelled
    assert [(row["failure"], row["ruleIds"]) for row in bench.ledger] == [("cancelled", ["r"])]
    assert [(event.outcome, event.rule_ids) for event in bench.decided] == [("cancelled", ("r",))]


def test_a_judge_whose_client_cancels_itself_is_a_fault() -> None:
    rule = SteeringRule(id="j", applies_to=POINTS, llm_eval={"mode": "sync", "prompt": "?", "model": "judge"})

    async def run() -> tuple[Any, Bench]:
        bench = await Bench([rule], judge=[asyncio.CancelledError()]).start()
        return await bench.call(), bench

    decision, bench = drive_loop(run())

    assert (decision.action.value, bench.ledger[0]["faults"]) == ("deny", [{"ruleId": "j", "reason": "error"}])


def test_an_error_of_the_set_up_from_a_rule_leaves_a_row() -> None:
    rule = raising(NoeticConfigError("INVALID_RULE", "No."), "inline")
    benches: list[Bench] = []

    async def run() -> None:
        benches.append(await Bench([rule], on_error="raise").start())
        await benches[0].call()

    with pytest.raises(NoeticConfigError):
        drive_loop(run())

    assert [row["failure"] for row in benches[0].ledger] == ["error"]


def test_rules_that_hang_hold_so_many_threads_and_then_deny_at_once() -> None:
    release = threading.Event()
    rule = SteeringRule(
        id="stuck", applies_to=POINTS, predicate=lambda call: release.wait(60) and None, isolate="thread"
    )

    def held() -> int:
        return sum(thread.name.startswith("noetic_nb stuck") for thread in threading.enumerate())

    def ended() -> None:
        for thread in threading.enumerate():
            if thread.name.startswith("noetic_nb stuck"):
                thread.join(10)

    async def run() -> tuple[list[Bench], int, Any]:
        benches = [
            await Bench([rule], timeouts={"before_tool_call": 200}, execution_id=f"e{n}").start() for n in range(40)
        ]
        decisions = await asyncio.gather(*[bench.call() for bench in benches])
        assert {decision.action.value for decision in decisions} == {"deny"}
        most = held()
        patient = await Bench([rule], timeouts={"before_tool_call": 60_000}).start()
        decision = await asyncio.wait_for(patient.call(), 20)  # immediately, without waiting for its own time limit
        benches.append(patient)
        assert decision.action.value == "deny"
        release.set()
        await asyncio.to_thread(ended)
        again = await Bench([rule], timeouts={"before_tool_call": 60_000}).start()
        after = await again.call()
        await asyncio.to_thread(ended)  # a thread hands over its result before it ends
        return benches, most, after

    benches, most, after = asyncio.run(run())

    assert most == threads.MAX_THREADS
    assert benches[-1].ledger[0]["faults"] == [{"ruleId": "stuck", "reason": "error"}]
    assert (after.action.value, held()) == ("allow", 0)


def test_more_rules_than_threads_wait_for_their_turn() -> None:
    gate = threading.Barrier(threads.MAX_THREADS)

    def meet(call: Any) -> None:
        gate.wait(30)

    rule = SteeringRule(id="meet", applies_to=POINTS, predicate=meet, isolate="thread")

    async def run() -> list[str]:
        benches = [
            await Bench([rule], timeouts={"before_tool_call": 60_000}, execution_id=f"e{n}").start()
            for n in range(3 * threads.MAX_THREADS)
        ]
        return [decision.action.value for decision in await asyncio.gather(*[bench.call() for bench in benches])]

    assert set(asyncio.run(run())) == {"allow"}
