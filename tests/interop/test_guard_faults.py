"""Form of tool x fault x policy x answer: no cell lets a call pass unrecorded, as in our own harness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import product
from typing import Any, Final

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import SteeringDecided, ToolCalled
from noetic_nb.interop._guards.guarded_calls import Guard
from noetic_nb.memory._enforcement import FAILED_GUIDANCE
from noetic_nb.steering import SteeringRule
from tests.interop.guard_tools import DONE, FORMS, pay, pay_later
from tests.matrix import matrix
from tests.steering.test_fault_matrix import FAULTS, HANG_S, TIMEOUTS


def _raise(error: BaseException) -> Callable[[Any], Any]:
    def predicate(call: Any) -> Any:
        raise error

    return predicate


async def _raise_later() -> Any:
    await asyncio.sleep(0)
    raise asyncio.CancelledError


# The faults of the harness tests, and exceptions that only seem to end the task or the program.
CASES: Final[dict[str, tuple[dict[str, Any], Any]]] = FAULTS | {
    "python cancels itself": ({"predicate": _raise(asyncio.CancelledError())}, None),
    "async python cancels itself": ({"predicate": lambda call: _raise_later()}, None),
    "python raises GeneratorExit": ({"predicate": _raise(GeneratorExit())}, None),
    "python raises a BaseException": ({"predicate": _raise(BaseExceptionGroup("two", [KeyError("a")]))}, None),
    "python in a thread raises": ({"predicate": _raise(KeyError("a")), "isolate": "thread"}, None),
}
REPRESENTATIVE: Final = (
    "function",
    "async function",
    "own tool",
    "own tool, checked call",
    "LangChain invoke",
    "LangChain ainvoke",
    "pydantic-ai with a context",
    "OpenAI Agents",
    "MCP",
)
FEW: Final = (
    "python raises",
    "python answers True",
    "python cancels itself",
    "async python cancels itself",
    "async python hangs",
    "condition is no truth",
    "judge raises",
)


@pytest.fixture(autouse=True)
def nothing_done() -> Any:
    DONE.clear()
    with nn.guard_session("t1"):
        yield


def judge_of(reply: Any) -> Any:
    async def answer(request: Any) -> Any:
        if reply == HANG_S:
            await asyncio.sleep(HANG_S)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    return nn.ScriptedModel(answer)


def check(form: str, fault: str, on_error: str, on_deny: str) -> None:
    fields, reply = CASES[fault]
    # Hanging code is cut off soon; failing code gets as much time as a slow machine may need.
    limit = {"before_tool_call": 20 if fault in TIMEOUTS else 20_000}
    rule = SteeringRule(id="faulty", applies_to="before_tool_call", **fields)
    late = SteeringRule(id="late", applies_to="before_tool_call", predicate=lambda call: None)
    make, call = FORMS[form]
    guarded = nn.guard(
        make(),
        [rule, late],
        model=None if reply is None else judge_of(reply),
        on_error=on_error,  # type: ignore[call-overload]
        on_deny=on_deny,
        timeouts=limit,
    )
    value, error = None, None
    try:
        value = call(guarded, 1)
    except Exception as exc:
        error = exc

    events = guarded.run.events
    (decision,) = [event for event in events if isinstance(event, SteeringDecided)]
    called = [event for event in events if isinstance(event, ToolCalled)]
    assert decision.outcome == ("timeout" if fault in TIMEOUTS else "error")
    assert decision.rule_ids == ("faulty",)
    assert decision.action == ("allow" if on_error == "allow" else "deny")
    assert ([1] if on_error == "allow" else []) == DONE
    if on_error == "raise":
        assert error is not None
        assert called == []
    elif on_error == "allow":
        assert error is None
        assert [event.status for event in called] == ["ok"]
    else:
        assert [event.status for event in called] == ["denied"]
        if on_deny == "raise":
            assert isinstance(error, NoeticError)
            assert (error.kind, error.facts["guidance"]) == ("steering_denied", FAILED_GUIDANCE)
        else:
            assert FAILED_GUIDANCE in str(value)
            assert "broken" not in str(value)


@matrix("fault,form,on_error", product(CASES, ["function", "async function"], ["deny", "allow", "raise"]), keep=60)
def test_a_faulty_rule_passes_nothing_unrecorded(fault: str, form: str, on_error: str) -> None:
    check(form, fault, on_error, "raise")


@matrix("form,fault,on_deny", product(REPRESENTATIVE, FEW, ["raise", "return"]), keep=45)
def test_in_every_form_of_tool(form: str, fault: str, on_deny: str) -> None:
    check(form, fault, "deny", on_deny)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
@pytest.mark.parametrize("form", ["function", "async function"])
def test_what_ends_the_program_goes_on_but_leaves_a_row(form: str, error: BaseException) -> None:
    make, call = FORMS[form]
    guarded = nn.guard(make(), [SteeringRule(id="end", applies_to="before_tool_call", predicate=_raise(error))])

    # Driven by hand, because a loop would let such an error bypass the test.
    run = (lambda: call(guarded, 1)) if form == "function" else (lambda: guarded(1).send(None))
    with pytest.raises(type(error)):
        run()

    assert DONE == []
    (decision,) = [event for event in guarded.run.events if isinstance(event, SteeringDecided)]
    assert (decision.action, decision.rule_ids) == ("deny", ("end",))


def test_cancelling_the_agent_while_a_rule_thinks_runs_nothing_and_leaves_a_row() -> None:
    begun = asyncio.Event()
    earlier: list[Any] = []

    async def thinks(call: Any) -> None:
        earlier.append(len(call.history))
        if call.tool_args["amount"] == 1:
            begun.set()
            await asyncio.sleep(HANG_S)

    guarded = nn.guard(pay_later, [SteeringRule(id="thinks", applies_to="before_tool_call", predicate=thinks)])

    async def run() -> None:
        task = asyncio.ensure_future(guarded(1))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await guarded(2)

    asyncio.run(run())

    assert DONE == [2]
    assert earlier == [0, 0]  # a call without a completed decision does not count
    rows = [event for event in guarded.run.events if isinstance(event, SteeringDecided)]
    assert [(row.action, row.outcome) for row in rows] == [("deny", "cancelled"), ("allow", None)]


def test_cancelling_the_agent_while_a_person_thinks_runs_nothing() -> None:
    begun = asyncio.Event()

    async def approve(name: str, args: Any) -> bool:
        begun.set()
        await asyncio.sleep(HANG_S)
        return True

    book = nn.RuleBook()
    book.when("true", id="ask", action="ask")
    guarded = nn.guard(pay_later, book, approve=approve)

    async def run() -> None:
        task = asyncio.ensure_future(guarded(1))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())

    assert DONE == []


@pytest.mark.parametrize("form", ["function", "async function"])
def test_an_approver_that_fails_is_a_no(form: str) -> None:
    make, call = FORMS[form]
    book = nn.RuleBook()
    book.when("true", id="ask", action="ask")
    guarded = nn.guard(make(), book, approve=lambda name, args: 1 / 0, on_deny="return")

    assert "nobody did" in call(guarded, 1)
    assert DONE == []


def test_a_cancelled_tool_keeps_its_place_in_the_history() -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.sleep(HANG_S)

    seen: list[Any] = []
    look = SteeringRule(
        id="look",
        applies_to="before_tool_call",
        predicate=lambda call: seen.append([past.status for past in call.history]),
    )
    slow, quick = nn.guard([hang, pay], [look])

    async def run() -> None:
        task = asyncio.ensure_future(slow())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        quick(1)

    asyncio.run(run())

    assert seen == [[], ["cancelled"]]


def test_rules_that_were_never_initialised_deny(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, ctx: Any) -> None: ...

    monkeypatch.setattr("noetic_nb.memory._stack.LayerStack.init", nothing)
    guarded = nn.guard(pay, [], on_deny="return")

    assert FAILED_GUIDANCE in guarded(1)
    assert DONE == []
    (row,) = [event for event in guarded.run.events if isinstance(event, SteeringDecided)]
    assert row.outcome == "uninitialised"


def test_a_synchronous_tool_inside_a_loop_waits_for_rules_that_wait() -> None:
    async def thinks(call: Any) -> Any:
        await asyncio.sleep(0)
        return nn.deny("no") if call.tool_args["amount"] > 100 else None

    guarded = nn.guard(pay, [SteeringRule(id="thinks", applies_to="before_tool_call", predicate=thinks)])

    async def run() -> None:
        guarded(1)
        with pytest.raises(NoeticError):
            guarded(700)

    asyncio.run(run())

    assert DONE == [1]


def test_a_predicate_that_sets_context_variables_and_waits_leaves_the_caller_as_it_was() -> None:
    async def thinks(call: Any) -> None:
        await asyncio.to_thread(time.sleep, 0)

    guarded = nn.guard(pay, [SteeringRule(id="thinks", applies_to="before_tool_call", predicate=thinks)])

    assert [guarded(amount) for amount in range(3)] == [f"paid {amount} to bank" for amount in range(3)]


def test_what_a_guard_cannot_record_does_not_change_what_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, event: Any) -> int:
        raise OSError("disk full")

    deny = SteeringRule(id="deny", applies_to="before_tool_call", predicate=lambda call: nn.deny("no"))
    guarded = nn.guard(pay, [deny], on_deny="return")
    monkeypatch.setattr(nn.Run, "append", full)

    assert "no" in guarded(1)
    assert DONE == []


def test_a_rule_may_run_a_loop_or_start_a_task_of_its_own() -> None:
    tasks: list[Any] = []

    async def other() -> Any:
        await asyncio.sleep(0)
        harness = nn.AgentHarness(
            nn.AgentConfig(name="other", step=nn.react(model="m", tools=[nn.tool(pay_later)])),
            model=nn.ScriptedModel([nn.CallTool("pay_later", amount=5), "Done."]),
        )
        return (await harness.execute("Go.")).text

    def starts(call: Any) -> Any:
        if call.tool_args["amount"] == 1:
            tasks.append(asyncio.get_running_loop().create_task(other()))
            return None
        return None if asyncio.run(other()) == "Done." else nn.deny("no")

    guarded = nn.guard(pay, [SteeringRule(id="starts", applies_to="before_tool_call", predicate=starts)])

    async def run() -> Any:
        guarded(1)
        return await tasks[0]

    assert asyncio.run(run()) == "Done."
    assert DONE == [1, 5]
    assert guarded(2) == "paid 2 to bank"
    assert DONE == [1, 5, 5, 2]


def guard_of(guarded: Any) -> Guard:
    """Return the guard in a function's closure, at any depth."""
    held = [cell.cell_contents for cell in guarded.__closure__ or ()]
    for value in held:
        if isinstance(value, Guard):
            return value
    return next(guard_of(value) for value in held if getattr(value, "__closure__", None))


def test_a_guard_that_nobody_holds_is_collected() -> None:
    import gc
    import weakref

    guarded = nn.guard(pay, [], model=nn.ScriptedModel([]))
    guarded(1)
    found = weakref.ref(guard_of(guarded))
    del guarded
    gc.collect()

    assert found() is None


def test_a_session_that_nobody_holds_is_forgotten() -> None:
    import gc

    guarded = nn.guard(pay, [])
    guard = guard_of(guarded)
    for _ in range(3):
        with nn.guard_session():
            guarded(1)
    gc.collect()

    guarded(1)

    assert len(guard._trees) == 1
    assert len(guard.stack.state._states) == 1


def test_tools_and_rules_in_each_others_place_are_told_so() -> None:
    rules = nn.RuleBook()
    rule = rules.at_most(1, "pay")
    for swapped in (rules, rule):
        with pytest.raises(nn.NoeticConfigError, match="guard takes the tools first, then the rules") as caught:
            nn.guard(swapped, [lambda: None])
        assert caught.value.code == "SWAPPED_ARGUMENTS"
