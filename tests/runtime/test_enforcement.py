"""Rules and the regulator in a turn: denied, guided and stopped calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from tests.runtime.factories import lookup, make_harness, outputs, record_events, texts


def ruled(replies: Any, rules: nn.RuleBook, **more: Any) -> nn.AgentHarness:
    return make_harness(replies, memory=[nn.steering(rules)], **more)


@pytest.mark.parametrize(("decide", "action"), [(nn.deny, "deny"), (nn.guide, "guide")])
async def test_a_refused_call_does_not_run_and_the_model_reads_a_structured_error(decide: Any, action: str) -> None:
    ran: list[str] = []

    @nn.tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    rules = nn.RuleBook()
    rules.rule("small_only", on="before_tool_call", tools=["pay"])(lambda call: decide("Ask first."))
    reply = await ruled([nn.CallTool("pay", amount=3), "I will ask."], rules, tools=[pay]).execute("pay")

    error = json.loads(outputs(reply.items)[0])["error"]
    assert ran == []
    assert error == {"kind": "steering_denied", "action": action, "guidance": "Ask first.", "ruleId": "small_only"}
    assert reply.text == "I will ask."


async def test_an_allowed_call_runs() -> None:
    rules = nn.RuleBook()
    rules.rule(on="before_tool_call")(lambda call: nn.allow())

    reply = await ruled([nn.CallTool("lookup", order_id="A"), "ok"], rules).execute("go")

    assert "packed" in outputs(reply.items)[0]


async def test_a_rule_that_raises_denies() -> None:
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    def broken(call: Any) -> Any:
        return call.tool_args["nope"]

    harness = ruled([nn.CallTool("lookup", order_id="A"), "ok"], rules, diagnostic=lambda *_: None)

    error = json.loads(outputs((await harness.execute("go")).items)[0])["error"]

    assert (error["kind"], error["action"]) == ("steering_denied", "deny")


async def test_a_denied_response_is_an_error_is_not_logged_and_is_paid_for() -> None:
    rules = nn.RuleBook()
    rules.rule("polite", on="after_model_call")(lambda response: nn.deny("Too rude."))
    harness = ruled(["Go away."], rules)
    events = record_events(harness)

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("hi")

    assert (caught.value.kind, caught.value.guidance) == ("steering_denied", "Too rude.")
    assert list(texts(harness.log())) == ["user: hi"]
    assert events.of("turn_completed")[0].output_tokens > 0


async def test_a_denied_response_runs_none_of_its_calls() -> None:
    ran: list[str] = []

    @nn.tool
    def act() -> str:
        """Act."""
        ran.append("acted")
        return "done"

    rules = nn.RuleBook()
    rules.rule(on="after_model_call")(lambda response: nn.deny("No."))

    with pytest.raises(nn.NoeticError):
        await ruled([nn.CallTool("act")], rules, tools=[act]).execute("go")

    assert ran == []


async def test_a_guided_response_is_asked_for_again_with_the_guidance() -> None:
    rules = nn.RuleBook()

    @rules.rule(on="after_model_call")
    def short(response: Any) -> Any:
        return nn.guide("Be brief.") if len(str(response.response.items[0]["content"][0]["text"])) > 5 else None

    model = nn.ScriptedModel(["A long answer.", "Short"])
    reply = await ruled(model, rules).execute("hi")

    assert reply.text == "Short"
    assert list(texts(reply.items)) == ["user: hi", "developer: Be brief.", "assistant: Short"]


async def test_a_response_that_is_still_guided_after_three_retries_is_denied() -> None:
    rules = nn.RuleBook()
    rules.rule(on="after_model_call")(lambda response: nn.guide("Again."))
    model = nn.ScriptedModel(lambda request: "same")
    harness = ruled(model, rules)

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("hi")

    assert caught.value.kind == "steering_denied"
    assert len(model.requests) == 4
    assert "assistant: same" not in list(texts(harness.log()))


async def test_rules_see_the_canonical_name_of_a_tool() -> None:
    seen: list[str] = []
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    def note(call: Any) -> None:
        seen.append(call.tool_name)

    @nn.tool(name="plan/update")
    def update() -> str:
        """Update."""
        return "ok"

    await ruled([nn.CallTool("plan_update"), "ok"], rules, tools=[update]).execute("go")

    assert seen == ["plan/update"]


async def test_a_direct_tool_step_is_steered_too() -> None:
    rules = nn.RuleBook()
    rules.rule("never", on="before_tool_call", tools=["lookup"])(lambda call: nn.deny("Never."))
    harness = ruled([], rules, step=nn.step.tool("find", lookup, {"order_id": "A"}))

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("go")

    assert (caught.value.kind, caught.value.guidance) == ("steering_denied", "Never.")


async def test_a_call_that_needs_approval_is_denied_where_nobody_is_asked() -> None:
    ran: list[int] = []

    @nn.tool(needs_approval=True)
    def wire(amount: int) -> str:
        """Send money."""
        ran.append(amount)
        return "sent"

    async def yes(name: str, args: Any) -> bool:
        return args["amount"] < 10

    alone = make_harness([nn.CallTool("wire", amount=3), "ok"], tools=[wire])
    asked = make_harness(
        [nn.CallTool("wire", amount=3), nn.CallTool("wire", amount=30), "ok"], tools=[wire], approve=yes
    )

    first = await alone.execute("go")
    second = await asked.execute("go")

    assert "steering_denied" in outputs(first.items)[0]
    assert ran == [3]
    assert [("steering_denied" in text) for text in outputs(second.items)] == [False, True]


def regulated(replies: Any, cap: int, **more: Any) -> nn.AgentHarness:
    regulator = nn.Regulator.for_user("ann").with_cost_cap(cap)
    return make_harness(replies, memory=[nn.regulation(regulator, **more)])


def costly(text: str, tokens_out: int) -> nn.Reply:
    return nn.Reply(text, usage={"input_tokens": 10, "output_tokens": tokens_out})


async def test_a_circuit_break_stops_the_turn_with_its_suggestion() -> None:
    harness = regulated([costly("a", 90), costly("b", 90), costly("c", 90)], 100, grader=lambda reply: 0.1)
    events = record_events(harness)

    for text in ("one", "two"):
        await harness.execute(text)
    reply = await harness.execute("three")

    assert reply.stopped is not None
    assert reply.stopped["kind"].lower().replace("_", "") == "circuitbreak"
    assert reply.text != "c"
    assert reply.text
    assert events.of("turn_completed")[-1].outcome == "aborted"


async def test_a_broken_circuit_stays_broken_until_the_task_is_reset() -> None:
    model = nn.ScriptedModel(lambda request: costly("x", 90))
    harness = regulated(model, 100, grader=lambda reply: 0.1)
    for _ in range(3):
        await harness.execute("go")
    asked = len(model.requests)

    latched = await harness.execute("again")
    await harness.reset_task()
    fresh = await harness.execute("new task")

    assert latched.stopped is not None
    assert len(model.requests) == asked + 1, "the latched turn asked no model"
    assert (fresh.stopped, fresh.text) == (None, "x")


async def test_one_threads_break_does_not_stop_another() -> None:
    harness = regulated(lambda request: costly("x", 90), 100, grader=lambda reply: 0.1)
    for _ in range(4):
        stopped = await harness.execute("go", thread_id="t1")

    other = await harness.execute("go", thread_id="t2")

    assert stopped.stopped is not None
    assert other.stopped is None


async def test_feedback_counts_as_quality_and_a_correction_is_recalled_next_time() -> None:
    model = nn.ScriptedModel(lambda request: "Use telemetry.")
    harness = regulated(model, 10_000)
    events = record_events(harness)
    for _ in range(3):
        await harness.execute("Add telemetry to the parser module", resource_id="ann")
        await harness.correct("default", "no telemetry please")
    await harness.feedback("default", quality=0.4)

    await harness.execute("Add telemetry to the parser module", resource_id="ann")

    assert "no telemetry please" in " ".join(texts(model.requests[-1].items))
    assert events.of("quality_given")[0].quality == 0.4


@pytest.mark.parametrize(("given", "grade"), [(5, 1.0), (-1, 0.0)])
async def test_a_grade_outside_the_scale_is_recorded_as_its_end(given: float, grade: float) -> None:
    harness = make_harness(["x"])
    events = record_events(harness)
    await harness.execute("hi")

    await harness.feedback("default", quality=given)

    assert [each.quality for each in events.of("quality_given")] == [grade]


@pytest.mark.parametrize("quality", [float("nan"), float("inf"), True, "good", None])
async def test_quality_is_a_finite_number(quality: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        await make_harness(["x"]).feedback("default", quality=quality)

    assert caught.value.code == "INVALID_FEEDBACK"


@pytest.mark.parametrize("message", ["", "  ", None, 3])
async def test_a_correction_is_a_text(message: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        await make_harness(["x"]).correct("default", message)

    assert caught.value.code == "INVALID_FEEDBACK"
