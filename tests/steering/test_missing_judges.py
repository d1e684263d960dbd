"""A judge without a client ends the turn; one that fails later leaves a record, and no verdict.

An asynchronous judge is not awaited: a missing client is detected at once, a model unknown to the provider only later.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import SteeringDecided
from noetic_nb.items import assistant_message
from noetic_nb.models._client import NO_USAGE, ModelResponse
from noetic_nb.steering import RuleBook
from noetic_nb.testing import FakeClock, SeededIds, drive_loop
from tests.steering.steering_helpers import Bench, settle
from tests.steering.test_late_verdicts import watcher

DONE: list[int] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@nn.tool
def pay(amount: int) -> str:
    """Pay someone."""
    DONE.append(amount)
    return "paid"


class Provider:
    """Answers for the agent; for the judge's model it gives a configured answer."""

    def __init__(self, error: Any, seconds: float = 0.0) -> None:
        self.agent = nn.ScriptedModel([nn.CallTool("pay", amount=1), "Paid."] * 3)
        self.error = error
        self.seconds = seconds

    async def complete(self, request: Any) -> Any:
        if request.purpose == "agent":
            return await self.agent.complete(request)
        await asyncio.sleep(self.seconds)
        if self.error is None:
            return ModelResponse((assistant_message("ALLOW"),), NO_USAGE)
        raise self.error


class SDKError(Exception):
    """An error as raised by a client library."""

    status_code = 404


def no_such_model() -> NoeticError:
    return NoeticError("llm_failed", "There is no such model.", reason="status", status=404, code="model_not_found")


SCRIPT = [nn.CallTool("pay", amount=1), "Paid."]
NO_CLIENTS = {
    "a bare list of replies": lambda: nn.ScriptedModel(SCRIPT),
    "a script without the name": lambda: nn.ScriptedModel({"m": SCRIPT}),
    "a mapping without the name": lambda: {"m": nn.ScriptedModel({"m": SCRIPT})},
    "a mapping to a bare list": lambda: {"m": nn.ScriptedModel(SCRIPT), "judge": nn.ScriptedModel(["ALLOW"])},
}
PROVIDERS = {
    "a provider without the model": lambda: Provider(no_such_model()),
    "a provider that says so after a while": lambda: Provider(no_such_model(), seconds=1.5),
    "a library that says so": lambda: Provider(SDKError("gone")),
}
CLIENTS = NO_CLIENTS | PROVIDERS


def harness(rules: RuleBook, client: Any, step: Any = None, **options: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(
        name="desk", step=step or nn.react(model="m", tools=[pay]), memory=[nn.steering(rules, **options)]
    )
    return nn.AgentHarness(config, model=client, clock=FakeClock(), ids=SeededIds(), diagnostic=lambda *about: None)


def judged(mode: str, point: str = "before_tool_call") -> RuleBook:
    rules = RuleBook()
    rules.judge("Fine?", id="j", mode=mode, model="judge", on=point)  # type: ignore[arg-type]
    return rules


@pytest.mark.parametrize("point", ["before_tool_call", "after_model_call"])
@pytest.mark.parametrize("on_error", ["deny", "allow", "raise"])
@pytest.mark.parametrize(
    ("client", "mode"), [(client, "sync") for client in CLIENTS] + [(client, "async") for client in NO_CLIENTS]
)
def test_a_judge_that_nobody_answers_ends_the_turn_and_nothing_has_run(
    client: str, mode: str, on_error: str, point: str
) -> None:
    agent = harness(judged(mode, point), CLIENTS[client](), on_error=on_error)

    with pytest.raises(NoeticConfigError) as caught:
        drive_loop(agent.execute("Pay 1"))

    assert caught.value.code == "MISSING_CALL_MODEL"
    assert DONE == []
    assert agent.log()[0].content[0].text == "Pay 1"


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("shape", ["spawn", "fork", "started", "tool step", "child as a tool"])
def test_it_ends_the_turn_out_of_every_child(shape: str, mode: str) -> None:
    inner = nn.react(model="m", tools=[pay])
    steps: dict[str, Any] = {
        "spawn": lambda: nn.step.spawn("child", inner),
        "fork": lambda: nn.step.fork("paths", mode="all", paths=[inner], merge=lambda results: "x"),
        "started": lambda: nn.step.run("go", started),
        "tool step": lambda: nn.step.tool("pay-now", tool=pay, args={"amount": 1}, takes_input=False),
        "child as a tool": lambda: nn.react(model="m", tools=[delegate]),
    }

    async def started(value: Any, ctx: Any) -> Any:
        return await ctx.start(inner, "Pay 1").result()

    @nn.tool
    async def delegate(amount: int, ctx: Any) -> str:
        return str(await ctx.run(nn.step.tool("inner", tool=pay, args={"amount": 1}, takes_input=False), None))

    client = nn.ScriptedModel([nn.CallTool("delegate", amount=1), "Done."] if shape == "child as a tool" else SCRIPT)
    rules = RuleBook()
    rules.judge("Fine?", id="j", mode=mode, model="judge", tools=["pay"])  # type: ignore[arg-type]
    agent = harness(rules, client, steps[shape]())

    with pytest.raises((NoeticConfigError, NoeticError)) as caught:
        drive_loop(agent.execute("Pay 1"))

    assert getattr(caught.value, "code", caught.value) == "MISSING_CALL_MODEL"
    assert DONE == []


def test_hooks_without_a_provider_see_that_there_is_none() -> None:
    seen: list[Any] = []
    layer = nn.MemoryLayer(
        id="look", slot=1, scope="execution", hooks=nn.MemoryHooks(recall=lambda p: seen.append(p.ctx.call_model))
    )
    step = nn.step.run("noop", lambda value, ctx: "done")
    config = nn.AgentConfig(name="desk", step=nn.step.llm("ask", model="m"), memory=[layer])

    with pytest.raises(NoeticConfigError, match="NO_LLM_PROVIDER"):
        drive_loop(nn.AgentHarness(config).execute("Hello"))
    drive_loop(nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."])).execute("Hello"))

    assert [call_model is None for call_model in seen] == [True, False]
    assert step.kind == "run"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_without_a_model_a_direct_tool_step_is_refused(mode: str) -> None:
    step = nn.step.tool("pay-now", tool=pay, args={"amount": 1}, takes_input=False)

    with pytest.raises(NoeticConfigError) as caught:
        drive_loop(harness(judged(mode), None, step).execute("go"))

    assert (caught.value.code, DONE) == ("MISSING_CALL_MODEL", [])


@pytest.mark.parametrize("client", NO_CLIENTS)
def test_a_check_lists_the_judges_that_nobody_answers(client: str) -> None:
    rules = judged("async")
    rules.judge("Fine?", id="off", model="judge")
    rules.disable("off")

    found = [finding for finding in harness(rules, CLIENTS[client]()).check() if finding.code == "MISSING_CALL_MODEL"]

    assert [("'j'" in finding.message, finding.level) for finding in found] == [(True, "error")]


def test_a_check_is_content_with_a_judge_that_is_answered() -> None:
    client = nn.ScriptedModel({"m": SCRIPT, "judge": ["ALLOW"]})

    assert harness(judged("sync"), client).check() == ()


@pytest.mark.parametrize("point", ["before_tool_call", "after_model_call"])
@pytest.mark.parametrize("on_error", ["deny", "allow", "raise"])
@pytest.mark.parametrize("client", PROVIDERS)
def test_a_provider_without_the_model_of_a_judge_ends_this_turn_or_the_next(
    client: str, on_error: str, point: str
) -> None:
    agent = harness(judged("async", point), CLIENTS[client](), on_error=on_error)
    ends: list[Any] = []

    async def run() -> None:
        for _ in range(2):
            try:
                ends.append((await agent.execute("Pay 1")).text)
            except NoeticConfigError as exc:
                ends.append(exc.code)
            await asyncio.sleep(60)

    drive_loop(run())

    at_once = client != "a provider that says so after a while"
    assert ends == (["MISSING_CALL_MODEL"] * 2 if at_once else ["Paid.", "MISSING_CALL_MODEL"])
    assert agent.log()[0].content[0].text == "Pay 1"


def test_an_execution_that_code_holds_open_ends_with_the_error_of_its_judge() -> None:
    agent = harness(judged("async"), Provider(no_such_model()))

    async def run() -> None:
        async with agent.execution() as ctx:
            await ctx.run(nn.step.tool("pay-now", tool=pay, args={"amount": 1}, takes_input=False))

    with pytest.raises(NoeticConfigError, match="MISSING_CALL_MODEL"):
        drive_loop(run())


@pytest.mark.parametrize("error", [None, no_such_model()])
def test_no_call_waits_for_a_judge_in_the_background(error: Any) -> None:
    agent = harness(judged("async"), Provider(error, seconds=60.0))

    async def run() -> float:
        await agent.execute("Pay 1")
        return asyncio.get_running_loop().time()

    assert drive_loop(run()) == 0.0
    assert DONE == [1]


def test_a_model_that_turns_out_not_to_exist_fails_the_next_call_at_once_and_is_asked_again_after_that() -> None:
    client = Provider(no_such_model(), seconds=10.0)
    agent = harness(judged("async"), client)

    async def run() -> list[str]:
        ends = []
        for _ in range(3):
            try:
                ends.append((await agent.execute("Pay 1")).text)
            except NoeticConfigError as exc:
                ends.append(exc.code)
                client.error = None  # available by now
                client.agent = nn.ScriptedModel([nn.CallTool("pay", amount=1), "Paid."])
            await asyncio.sleep(20)
        return ends

    assert drive_loop(run()) == ["Paid.", "MISSING_CALL_MODEL", "Paid."]
    assert DONE == [1, 1]


LATE_FAULTS: dict[str, tuple[Any, str]] = {
    "it raises": (RuntimeError("down"), "error"),
    "it is cancelled by itself": (asyncio.CancelledError(), "error"),
    "its answer cannot be read": ("Hmm.", "unparseable"),
}


@pytest.mark.parametrize("on_unparseable", ["allow", "deny"])
@pytest.mark.parametrize("fault", LATE_FAULTS)
def test_a_judge_that_fails_later_marks_its_row(fault: str, on_unparseable: str) -> None:
    reply, reason = LATE_FAULTS[fault]

    async def run() -> tuple[Bench, str | None]:
        bench = await Bench([watcher()], judge=[reply], max_retries=0, on_unparseable=on_unparseable).start()
        assert (await bench.call(args={"amount": 7})).action.value == "allow"
        await settle()
        return bench, await bench.recalled()

    bench, feedback = drive_loop(run())

    row = bench.ledger[0]
    assert (len(bench.ledger), row["action"], row["fault"], row["ruleIds"]) == (1, "allow", reason, ["watch"])
    late = bench.decided[-1]
    assert (late.outcome, late.rule_ids, late.args) == ("late_fault", ("watch",), {"amount": 7})
    assert late.action == ("deny" if on_unparseable == "deny" else "allow")
    assert (feedback is not None and "[watch]" in feedback) is (on_unparseable == "deny")
    assert len(bench.diagnostics) == (reason == "error")


def test_a_late_fault_does_not_change_what_another_rule_decided() -> None:
    guided = nn.SteeringRule(id="g", applies_to="before_tool_call", predicate=lambda call: nn.guide("Slower."))

    async def run() -> Bench:
        bench = await Bench([watcher(), guided], judge=[RuntimeError("down")]).start()
        await bench.call()
        await settle()
        return bench

    row = drive_loop(run()).ledger[0]

    assert (row["action"], row["guidance"], row["ruleIds"], row["fault"]) == (
        "guide",
        "Slower.",
        ["g", "watch"],
        "error",
    )


def test_a_late_fault_is_in_the_run_of_a_turn() -> None:
    agent = harness(judged("async"), Provider(RuntimeError("down"), seconds=5.0))
    run = nn.record(agent)

    async def talk() -> None:
        await agent.execute("Pay 1")
        await asyncio.sleep(60)

    drive_loop(talk())

    assert DONE == [1]
    assert [(event.action, event.outcome) for event in run.select(SteeringDecided) if event.tool_name] == [
        ("allow", None),
        ("allow", "late_fault"),
    ]
