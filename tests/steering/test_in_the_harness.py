"""Rules in a running agent: every path to a tool, every response, human approvals, edits between turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import RuleChanged, SteeringDecided
from noetic_nb.steering import RuleBook
from noetic_nb.testing import FakeClock, SeededIds, drive_loop
from tests.steering.steering_helpers import Bench

DONE: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@nn.tool
async def pay(amount: int) -> str:
    """Pay someone."""
    DONE.append({"pay": amount})
    return "paid"


@nn.tool
async def confirm() -> str:
    """Confirm a payment."""
    DONE.append({"confirm": True})
    return "confirmed"


def agent(rules: RuleBook, model: Any, *, memory: Any = (), step: Any = None, **options: Any) -> nn.AgentHarness:
    asking = nn.react(model="scripted", tools=[pay, confirm])
    config = nn.AgentConfig(name="desk", step=step or asking, memory=[*memory, nn.steering(rules)])
    scripted = nn.ScriptedModel(model) if isinstance(model, list) else model
    return nn.AgentHarness(config, model=scripted, clock=FakeClock(), ids=SeededIds(), **options)


def outputs(reply: nn.AgentReply) -> list[str]:
    return [item.output for item in reply.items if item["type"] == "function_call_output"]


@pytest.mark.parametrize(("make", "action"), [(nn.deny, "deny"), (nn.guide, "guide")])
def test_a_call_that_may_not_be_made_is_answered_with_a_structured_error(make: Callable[..., Any], action: str) -> None:
    rules = RuleBook()
    rules.rule("no_payments", on="before_tool_call", tools=["pay"])(lambda call: make("Not today."))
    harness = agent(rules, [nn.CallTool("pay", amount=3), "I may not."])

    reply = drive_loop(harness.execute("Pay 3"))

    assert DONE == []
    wanted = {"kind": "steering_denied", "action": action, "guidance": "Not today.", "ruleId": "no_payments"}
    assert [json.loads(text)["error"] for text in outputs(reply)] == [wanted]


def test_a_function_that_a_layer_provides_is_held_to_the_rules() -> None:
    rules = RuleBook()
    rules.rule("no_notes", on="before_tool_call", tools=["working-memory/update"])(lambda call: nn.deny("No notes."))
    script = [nn.CallTool("working-memory/update", note="hi"), "Not noted."]
    harness = agent(rules, script, memory=[nn.working_memory()])

    reply = drive_loop(harness.execute("Note this"))

    assert "No notes." in outputs(reply)[0]


def test_a_direct_tool_step_raises_what_the_rules_decided() -> None:
    rules = RuleBook()
    rules.rule("no_payments", on="before_tool_call")(lambda call: nn.deny("Not today."))
    harness = agent(rules, [], step=nn.step.tool("pay-now", tool=pay, args={"amount": 1}))

    with pytest.raises(NoeticError) as caught:
        drive_loop(harness.execute("go"))

    assert (caught.value.kind, caught.value.guidance, DONE) == ("steering_denied", "Not today.", [])


def test_rules_come_before_layers_of_a_lower_slot() -> None:
    asked: list[str] = []

    def other(params: Any) -> None:
        asked.append(params.tool_name)

    early = nn.MemoryLayer(id="early", slot=1, scope="execution", hooks=nn.MemoryHooks(before_tool_call=other))
    rules = RuleBook()
    rules.rule("no", on="before_tool_call")(lambda call: nn.deny())
    harness = agent(rules, [nn.CallTool("pay", amount=1), "No."], memory=[early])

    drive_loop(harness.execute("Pay"))

    assert asked == []


def test_a_denied_response_is_not_logged() -> None:
    rules = RuleBook()
    rules.when("response.text.contains('secret')", id="no_secrets", guidance="It holds a secret.")
    harness = agent(rules, ["The secret is 42."])

    with pytest.raises(NoeticError, match="It holds a secret") as caught:
        drive_loop(harness.execute("Tell me"))

    assert (caught.value.kind, caught.value.rule_id) == ("steering_denied", "no_secrets")
    assert [item["role"] for item in harness.log()] == ["user"]


def test_a_guided_response_is_requested_again_with_the_guidance() -> None:
    rules = RuleBook()
    rules.when("response.text.size() > 10", id="short", action="guide", guidance="At most 10 letters.")
    harness = agent(rules, ["Much too long an answer.", "Short."])

    reply = drive_loop(harness.execute("Tell me"))

    assert reply.text == "Short."
    assert [item.content[0].text for item in reply.items if item["role"] == "developer"] == ["At most 10 letters."]


def test_sequence_rules_follow_the_calls_of_the_execution() -> None:
    rules = RuleBook()
    rules.only("pay", after="confirm")
    rules.at_most(2, "pay")
    calls = [nn.CallTool("pay", amount=n) if n else nn.CallTool("confirm") for n in (1, 0, 2, 3, 4)]
    harness = agent(rules, [*calls, "Done."])

    drive_loop(harness.execute("Pay"))

    assert DONE == [{"confirm": True}, {"pay": 2}, {"pay": 3}]


@pytest.mark.parametrize(("scope", "done"), [("execution", []), ("thread", [{"pay": 1}]), ("global", [{"pay": 1}])])
def test_sequence_rules_look_as_far_back_as_the_scope_of_the_layer(scope: Any, done: list[Any]) -> None:
    rules = RuleBook()
    rules.only("pay", after="confirm")
    model = nn.ScriptedModel([nn.CallTool("confirm"), "Confirmed.", nn.CallTool("pay", amount=1), "Well."])
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="scripted", tools=[pay, confirm]),
        memory=[nn.steering(rules, scope=scope)],
    )
    storage = nn.InMemoryStorage()

    async def talk(text: str) -> None:
        await nn.AgentHarness(config, model=model, storage=storage).execute(text, thread_id="t1")

    drive_loop(talk("Confirm"))
    DONE.clear()
    drive_loop(talk("Pay"))

    assert done == DONE


def test_a_count_goes_on_through_the_turns_of_a_thread_and_not_into_another() -> None:
    rules = RuleBook()
    rules.at_most(2, "pay")
    script = [line for n in range(4) for line in (nn.CallTool("pay", amount=n), "Done.")]
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[pay]), memory=[nn.steering(rules, scope="thread")]
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(script))

    async def talk() -> None:
        for thread in ("a", "a", "a", "b"):
            await harness.execute("Pay", thread_id=thread)

    drive_loop(talk())

    assert DONE == [{"pay": 0}, {"pay": 1}, {"pay": 3}]


def test_a_child_is_held_to_what_its_parent_has_called() -> None:
    rules = RuleBook()
    rules.never("pay", after="confirm")

    async def run() -> list[str]:
        bench = await Bench(rules, scope="thread").start()
        await bench.stack.tool_outcome(
            bench.ctx, name="confirm", call_id="c", success=True, duration_ms=1.0, error=None
        )
        child = Bench([], layer=bench.layer, execution_id="child", depth=1)
        await bench.stack.spawn(bench.ctx, child.ctx)
        asked = await bench.stack.before_tool_call(child.ctx, tool_name="pay", tool_args={})
        return [asked.action.value, (await bench.call("pay")).action.value]

    # The bench calls without a history: the parent's calls are in its own history, which a harness passes.
    assert drive_loop(run()) == ["deny", "allow"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_judge_whose_model_does_not_exist_fails_the_turn_at_once(mode: Any) -> None:
    rules = RuleBook()
    rules.judge("Fine?", id="j", mode=mode, model="nobody")
    models = {"scripted": nn.ScriptedModel({"scripted": [nn.CallTool("pay", amount=1), "Paid."]})}
    harness = agent(rules, models)

    with pytest.raises(NoeticConfigError) as caught:
        drive_loop(harness.execute("Pay"))

    assert (caught.value.code, DONE) == ("MISSING_CALL_MODEL", [])


@pytest.mark.parametrize(
    ("answer", "done", "outcome"),
    [
        (True, True, "approved"),
        (False, False, "refused"),
        ("Too much.", False, "refused"),
        (1, False, "refused"),
        (None, False, "refused"),
        (RuntimeError("gone"), False, "error"),
    ],
)
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_person_is_asked_and_only_yes_is_yes(answer: Any, done: bool, outcome: str, asynchronous: bool) -> None:
    rules = RuleBook()
    rules.rule("large", on="before_tool_call", tools=["pay"])(lambda call: nn.ask("Pay 500?"))
    heard: list[Any] = []

    def decide(name: str, args: Any, question: str | None = None) -> Any:
        heard.append((name, dict(args), question))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def later(name: str, args: Any, question: str | None = None) -> Any:
        await asyncio.sleep(3_600)  # longer than any time limit of a hook
        return decide(name, args, question)

    harness = agent(
        rules,
        [nn.CallTool("pay", amount=500), "Well."],
        approve=later if asynchronous else decide,
        diagnostic=lambda *about: None,
    )
    run = nn.record(harness)

    reply = drive_loop(harness.execute("Pay"))

    assert heard == [("pay", {"amount": 500}, "Pay 500?")]
    assert bool(DONE) is done
    if isinstance(answer, str):
        assert answer in outputs(reply)[0]
    decided = run.select(SteeringDecided)
    assert [(event.action, event.outcome) for event in decided if event.tool_name] == [
        ("ask", None),
        ("allow" if done else "deny", outcome),
    ]
    assert all(event.rule_ids == ("large",) for event in decided if event.tool_name)


@pytest.mark.parametrize(("answer", "stands"), [(True, True), ("Rude.", False), (None, False)])
def test_a_person_is_asked_about_a_response_too(answer: Any, stands: bool) -> None:
    rules = RuleBook()
    rules.when("response.text.contains('promise')", id="promises", action="ask", guidance="May it promise?")
    heard: list[Any] = []
    harness = agent(
        rules,
        ["I promise."],
        approve=lambda name, args, question: heard.append((name, dict(args), question)) or answer,
    )
    run = nn.record(harness)

    if stands:
        assert drive_loop(harness.execute("Well?")).text == "I promise."
    else:
        with pytest.raises(NoeticError) as caught:
            drive_loop(harness.execute("Well?"))
        assert caught.value.kind == "steering_denied"

    assert heard == [("response", {"text": "I promise."}, "May it promise?")]
    assert [(event.hook, event.action) for event in run.select(SteeringDecided)] == [
        ("after_model_call", "ask"),
        ("after_model_call", "allow" if stands else "deny"),
    ]


def test_without_anybody_to_ask_the_answer_is_no_at_once() -> None:
    rules = RuleBook()
    rules.rule("large", on="before_tool_call", tools=["pay"])(lambda call: nn.ask("Pay?"))
    harness = agent(rules, [nn.CallTool("pay", amount=500), "Well."])
    run = nn.record(harness)

    reply = drive_loop(harness.execute("Pay"))

    assert DONE == []
    assert "nobody did" in outputs(reply)[0]
    assert [event.outcome for event in run.select(SteeringDecided) if event.layer_id == "approval"] == ["nobody"]


def test_an_approver_of_two_arguments_is_enough() -> None:
    rules = RuleBook()
    rules.rule("large", on="before_tool_call", tools=["pay"])(lambda call: nn.ask())
    harness = agent(rules, [nn.CallTool("pay", amount=5), "Paid."], approve=lambda name, args: True)

    drive_loop(harness.execute("Pay"))

    assert DONE == [{"pay": 5}]


def test_every_edit_is_recorded_between_turns_too_until_recording_ends() -> None:
    rules = RuleBook()
    harness = agent(rules, ["One.", "Two."])
    run = nn.record(harness)

    rules.when("tool.args.amount > 3", id="large", tools="pay")
    drive_loop(harness.execute("Hello"))
    rules.when("tool.args.amount > 5", id="large", tools="pay")
    rules.disable("large")
    run.stop_recording()
    rules.enable("large")

    changes = run.select(RuleChanged)
    assert [(event.change, event.version) for event in changes] == [("add", 1), ("replace", 2), ("disable", 3)]
    assert (changes[0].old, "amount > 3" in changes[0].new) == (None, True)
    assert "amount > 3" in changes[1].old
    assert "amount > 5" in changes[1].new
    assert run.threads == ("default",)
    assert len(run.turns) == 1


def test_an_edit_takes_effect_at_the_next_call_of_the_same_turn_and_is_in_the_ledger() -> None:
    rules = RuleBook()

    @rules.rule(on="before_tool_call", tools=["confirm"])
    def tighten(call: Any) -> None:
        rules.when("tool.args.amount > 3", id="large", tools="pay")

    ledgers: list[Any] = []

    def last_look(params: Any) -> None:
        ledgers.append(params.ctx.read_layer_state("steering")["ledger"])

    looker = nn.MemoryLayer(id="look", slot=500, scope="execution", hooks=nn.MemoryHooks(on_complete=last_look))
    script = [nn.CallTool("pay", amount=9), nn.CallTool("confirm"), nn.CallTool("pay", amount=9), "Done."]
    harness = agent(rules, script, memory=[looker])

    drive_loop(harness.execute("Pay"))

    assert DONE == [{"pay": 9}, {"confirm": True}]
    custom = [entry["custom"] for entry in ledgers[0] if entry["kind"] == "custom"]
    assert custom == [{"ruleChange": "add", "ruleId": "large", "version": 2}]


def test_a_recorded_edit_survives_saving_and_loading(tmp_path: Any) -> None:
    rules = RuleBook()
    run = nn.record(agent(rules, []))
    rules.when("tool.name == 'pay'", id="r")

    loaded = nn.load_run(run.save(tmp_path / "run.jsonl.gz"))

    assert loaded.select(RuleChanged) == run.select(RuleChanged)


def test_a_check_names_the_tools_of_sequence_rules_that_the_agent_does_not_have() -> None:
    rules = RuleBook()
    rules.only("pay", after="confrim")
    rules.at_most(2, "working-memory_update")
    harness = agent(rules, [], memory=[nn.working_memory()])

    messages = [finding.message for finding in harness.check() if finding.code == "UNKNOWN_TOOL"]

    assert len(messages) == 1
    assert "'confrim'" in messages[0]
