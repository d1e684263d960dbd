"""A rule that names a tool or an argument that no tool has is reported wherever rules meet tools or runs."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import deny, parse_rules
from noetic_nb.steering._evaluation.rule_reading import UnknownTarget, unknown_targets
from noetic_nb.steering._predicates.sequence_rules import has_argument
from noetic_nb.widgets import Ledger


def send_money(recipient: str, amount: float = 1.0) -> str:
    """Send money."""
    return f"sent {amount:g} to {recipient}"


class Guest(BaseModel):
    email: str


@nn.tool
def invite(guests: list[Guest], note: dict[str, str] | None = None) -> str:
    """Invite some people."""
    return "invited"


def by_get(call: Any) -> Any:
    return deny("No.") if call.tool_args.get("recipent") == "EVIL" else None


def by_name(call: Any) -> Any:
    return deny("No.") if call.tool_name == "sendmoney" else None


def by_history(call: Any) -> Any:
    return None if any(past.name == "confrim" for past in call.history) else deny("Confirm first.")


WRITE: dict[str, Callable[[nn.RuleBook], object]] = {
    "argument of only_from_user": lambda rules: rules.only_from_user("send_money", "recipent"),
    "path of only_from_user": lambda rules: rules.only_from_user("invite", "guests.emial"),
    "tool of only_from_user": lambda rules: rules.only_from_user("sendmoney", "recipient"),
    "tool that is trusted": lambda rules: rules.only_from_user("send_money", "recipient", trust=["contcts.email"]),
    "tool before": lambda rules: rules.only("send_money", after="confrim"),
    "counted tool": lambda rules: rules.at_most(3, "serach"),
    "tools=": lambda rules: rules.rule("r", on="before_tool_call", tools=["serach"])(lambda call: None),
    "tools= of a condition": lambda rules: rules.when("true", id="r", tools=["send_money", "serach"]),
    "tool in a condition": lambda rules: rules.when("tool.name == 'sendmoney'", id="r"),
    "argument in a condition": lambda rules: rules.when("has(tool.args.recipent)", id="r", tools="send_money"),
    "argument in guidance": lambda rules: rules.at_most(0, "send_money", guidance="Not to {tool.args.recipent}."),
    "argument in a function": lambda rules: rules.rule(by_get, on="before_tool_call"),
    "tool in a function": lambda rules: rules.rule(by_name, on="before_tool_call"),
    "history in a function": lambda rules: rules.rule(by_history, on="before_tool_call"),
    "tools of a judge": lambda rules: rules.judge("Fair?", id="r", tools=["serach"], model="m"),
}


@pytest.fixture(params=WRITE)
def misspelt(request: pytest.FixtureRequest) -> nn.RuleBook:
    rules = nn.RuleBook()
    WRITE[request.param](rules)
    return rules


def desk(rules: Any, step: Any = None, **more: Any) -> nn.AgentHarness:
    step = nn.react(model="m", tools=[send_money, invite]) if step is None else step
    layers = [rules, *more.pop("memory", [])]
    return nn.AgentHarness(
        nn.AgentConfig(name="desk", step=step, memory=layers, **more), model=nn.ScriptedModel(["Hi."] * 9)
    )


def codes(reply: Any) -> list[str]:
    return [warning.code for warning in reply.warnings]


def correct() -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.only_from_user("send_money", "recipient", trust=["invite.email", "system", "layer:notes", "user"])
    rules.only_from_user("invite", "guests.email", "note.anything")
    rules.never("send_money", after="invite")
    rules.when("tool.name == 'send_money' && tool.args.amount > 3.0", id="large", guidance="{tool.args.recipient}")
    rules.rule("twin", on="before_tool_call", tools=["send_mоney"])(lambda call: None)  # guards the look-alike
    rules.rule("someone", on="before_tool_call")(lambda call: call.tool_args["note"] and call.ctx.clock.name == "Ann")
    rules.at_most(0, "serach", id="off")
    rules.disable("off")
    return rules


async def test_the_reply_the_run_the_ledger_and_the_view_say_so_at_the_first_turn(misspelt: nn.RuleBook) -> None:
    harness = desk(misspelt)
    run = nn.record(harness)

    first, second = await harness.execute("Hi."), await harness.execute("Hi.")

    assert codes(second) == []
    (warning,) = [each for each in first.warnings if each.code == "unknown_rule_target"]
    assert (warning.layer_id, warning.turn) == ("steering", 1)
    assert warning.text in list(run.to_frame("warnings").text)
    table = run.to_frame("ledger")
    assert list(table[table.action == "warn"].guidance) == [warning.text]
    with Ledger(run) as view:
        assert warning.text[:40] in view.to_text()


async def test_the_ledger_in_memory_has_an_entry() -> None:
    seen: list[Any] = []
    rules = nn.RuleBook()
    rules.only_from_user("send_money", "recipent")
    rules.rule("look", on="after_model_call")(lambda response: seen.append(response.state["ledger"][0]))

    await desk(rules).execute("Hi.")

    assert seen[0]["custom"]["unknownTarget"] == "recipent"


async def test_a_new_thread_and_an_edit_are_told_again() -> None:
    rules = correct()
    harness = desk(rules)
    assert codes(await harness.execute("Hi.")) == []
    rules.at_most(3, "serach")

    edited, after, other = [await harness.execute("Hi.", thread_id=name) for name in ("default", "default", "another")]

    assert (codes(edited), codes(after), codes(other)) == (["unknown_rule_target"], [], ["unknown_rule_target"])


async def test_rules_that_fit_are_no_warning_anywhere() -> None:
    rules, harness = correct(), desk(correct())

    assert codes(await harness.execute("Hi.")) == []
    assert not [finding for finding in harness.check() if finding.code.startswith("UNKNOWN")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.guard([send_money, invite], rules)


def test_check_lint_and_guard_say_so(misspelt: nn.RuleBook) -> None:
    harness = desk(misspelt)

    found = [finding.code for finding in harness.check()]

    assert {"UNKNOWN_TOOL", "UNKNOWN_ARGUMENT"} & set(found)
    assert {"unknown_tool", "unknown_argument"} & {
        finding.code for finding in lab.lint(misspelt, tools=[send_money, invite])
    }
    judges = nn.ScriptedModel(["ALLOW"])
    with pytest.warns(UnknownTarget, match="Rule '"):
        guarded = nn.guard([send_money, invite], misspelt, model=judges)
    assert list(guarded[0].run.to_frame("warnings").code) == ["unknown_rule_target"]


async def test_lint_alone_knows_the_tools_of_the_agent_that_the_rules_were_used_in(misspelt: nn.RuleBook) -> None:
    assert not [finding for finding in lab.lint(misspelt) if finding.code.startswith("unknown")]
    await desk(misspelt).execute("Hi.")

    assert [finding for finding in lab.lint(misspelt) if finding.code.startswith("unknown")]


def recorded() -> nn.Run:
    call = nn.CallTool("send_money", recipient="Ann")
    model = nn.ScriptedModel([call, "Done."])
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[send_money, invite])), model=model
    )
    run = nn.record(harness)
    nn.run_sync(harness.execute("Pay Ann."))
    run.meta["outcome"] = True
    return run


def test_evaluate_and_backtest_refuse(misspelt: nn.RuleBook) -> None:
    run = recorded()

    for ask in (
        functools.partial(lab.evaluate, misspelt, [run]),
        functools.partial(lab.backtest, misspelt, [run]),
        functools.partial(lab.backtest, [], [run], candidate=misspelt),
    ):
        with pytest.raises(NoeticConfigError) as caught:
            ask()
        assert caught.value.code in ("UNKNOWN_TOOL", "UNKNOWN_ARGUMENT")
        assert "on_unknown='warn'" in caught.value.hint
        with pytest.warns(UnknownTarget):
            ask(on_unknown="warn")
    with pytest.raises(NoeticConfigError, match="INVALID_OPTION"):
        lab.evaluate(misspelt, [run], on_unknown="ignore")


def test_what_a_tool_was_only_called_with_counts_where_nobody_recorded_its_definition() -> None:
    rules = nn.RuleBook()
    rules.only_from_user("send_money", "recipent")

    with pytest.raises(NoeticConfigError, match="recipient"):
        lab.evaluate(rules, lab.datasets.agentdojo("banking"))


def test_a_replay_warns(misspelt: nn.RuleBook) -> None:
    judge = nn.ScriptedModel(["ALLOW"] * 9)

    with pytest.warns(UnknownTarget, match="Rule '"):
        lab.replay(recorded(), rules=misspelt, model=judge)


def called_alone(tool: str) -> nn.Run:
    """Return an imported run whose only call is of this tool."""
    call = {"id": "c1", "function": {"name": tool, "arguments": "{}"}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}]
    return nn.import_run([*messages, {"role": "tool", "tool_call_id": "c1", "content": "done"}])


@pytest.mark.parametrize(
    ("called", "slip"), [("lookup", "lokup"), ("search", "serach"), ("send_reminder", "sendreminder")]
)
def test_a_replay_of_an_imported_run_warns_of_a_slip(called: str, slip: str) -> None:
    rules = nn.RuleBook()
    rules.at_most(0, slip)

    with pytest.warns(UnknownTarget, match=f"Did you mean '{called}'"):
        lab.replay(called_alone(called), rules=rules)


@pytest.mark.parametrize(
    ("called", "other"),
    [
        ("lookup", "refund"),
        ("lookup", "look_up_user"),
        ("get_scheduled_transactions", "schedule_transaction"),
        ("modify_pending_order_address", "modify_pending_order_items"),
    ],
)
def test_a_replay_of_an_imported_run_knows_that_it_did_not_call_every_tool(called: str, other: str) -> None:
    rules = nn.RuleBook()
    rules.at_most(0, other)

    lab.replay(called_alone(called), rules=rules)  # a warning would be an error here


STEPS: dict[str, Callable[[], Any]] = {
    "chosen by a function": lambda: nn.react(model="m", tools=lambda ctx: [nn.tool(send_money), invite]),
    "of a step that code runs": lambda: nn.step.run(
        "code", lambda value, ctx: ctx.run(nn.step.llm("ask", model="m", tools=[send_money, invite]), value)
    ),
    "of a child": lambda: nn.spawn("child", nn.react(model="m", tools=[send_money, invite])),
}


@pytest.mark.parametrize("kind", STEPS)
async def test_tools_that_are_known_only_while_the_agent_runs_count(kind: str) -> None:
    fitting, wrong = desk(correct(), STEPS[kind]()), nn.RuleBook()
    wrong.only_from_user("send_money", "recipent")
    misspelling = desk(wrong, STEPS[kind]())

    assert not [finding for finding in fitting.check() if finding.code.startswith("UNKNOWN")]
    assert codes(await fitting.execute("Hi.")) == []
    replies = [await misspelling.execute("Hi.") for _ in range(2)]
    assert list(map(codes, replies)) == [["unknown_rule_target"], []]


async def test_functions_of_layers_are_tools() -> None:
    rules = nn.RuleBook()
    rules.at_most(3, "working-memory/update")
    rules.at_most(3, "working-memory/updaet")

    reply = await desk(rules, memory=[nn.working_memory()]).execute("Hi.")

    assert [warning.text for warning in reply.warnings if "update'" in warning.text.partition("Did")[0]] == []
    assert codes(reply) == ["unknown_rule_target"]


def test_tools_of_other_frameworks_are_looked_at(misspelt: nn.RuleBook) -> None:
    class Tool:
        name = "send_money"
        params_json_schema = nn.tool(send_money).spec.parameters

        async def on_invoke_tool(self, ctx: Any, input: str) -> str:
            return input

    with pytest.warns(UnknownTarget):
        nn.guard([Tool(), invite], misspelt, model=nn.ScriptedModel(["ALLOW"]))


def test_a_tool_that_was_guarded_before_is_known() -> None:
    rules = correct()
    with pytest.warns(UnknownTarget):  # of the other one
        nn.guard(send_money, rules)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.guard(invite, rules)


def test_the_name_of_a_partial_is_that_of_its_function() -> None:
    rules = nn.RuleBook()
    rules.at_most(0, "send_money")
    partial = functools.partial(functools.partial(send_money, amount=3), "Ann")

    guarded = nn.guard(partial, rules, on_deny="return")

    assert "steering_denied" in guarded()
    assert nn.tool(functools.partial(send_money, amount=3)).spec.description == "Send money."


def test_a_lambda_is_refused_where_rules_go_by_names() -> None:
    rules = nn.RuleBook()
    assert nn.guard(lambda: "done", rules)() == "done"
    rules.at_most(0, "send_money")

    for make in (lambda: nn.guard(lambda: "done", rules), lambda: nn.tool(lambda: "done")):
        with pytest.raises(NoeticConfigError, match="has no name") as caught:
            make()
        assert caught.value.code == "INVALID_TOOL"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("guests", True),
        ("guests.email", True),
        ("guests.emial", False),
        ("note.anything", True),
        ("nothing", False),
        ("guests.email.more", False),
    ],
)
def test_a_path_is_looked_up_in_the_schema(path: str, there: bool) -> None:
    assert has_argument(invite.spec.parameters, path) is there


def test_a_schema_that_refers_to_itself_or_says_nothing_is_no_reason_to_warn() -> None:
    node = {"$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}, "$ref": "#/$defs/N"}
    rules = nn.RuleBook()
    rules.only_from_user("walk", ".".join(["next"] * 90))

    assert unknown_targets(rules, {"walk": node}) == ()
    assert unknown_targets(rules, {"walk": None}) == unknown_targets(rules, {"walk": {"type": "object"}}) == ()


MISSPELT: dict[str, Callable[[nn.RuleBook], object]] = {
    "argument": lambda rules: rules.only_from_user("send_money", "recipent"),
    "one of two": lambda rules: rules.only_from_user("send_money", "recipent", "amount"),
    "letters in another case": lambda rules: rules.only_from_user("send_money", "Recipient"),
    "links of it": lambda rules: rules.only_from_user("send_money", "recipent.links"),
    "path": lambda rules: rules.only_from_user("send_money", "recipient.iban"),
    "of both tools": lambda rules: rules.only_from_user(["send_money", "invite"], "recipent", "emial"),
    "of the other tool": lambda rules: rules.only_from_user(["send_money", "invite"], "guests.email"),
    "in a file": lambda rules: [rules.put(rule) for rule in parse_rules(WRITTEN)],
}
WRITTEN = """
version: 1
rules:
  - id: mine
    on: [before_tool_call]
    tools: [send_money]
    only_from_user: [recipent]
"""


async def sends(rules: nn.RuleBook, way: str) -> tuple[int, str]:
    """Return how often the money is sent, and the result that the model receives."""
    sent: list[str] = []

    def send_money(recipient: str, amount: float = 1.0) -> str:
        sent.append(recipient)
        return "sent"

    if way == "guard":
        with pytest.warns(UnknownTarget):
            guarded = nn.guard([send_money, invite], rules, on_deny="return")[0]
        return len(sent), guarded(recipient="Ann")
    inner = nn.react(model="m", tools=[send_money, invite])
    step = nn.spawn("child", inner) if way == "child" else inner
    memory = [] if way in ("replay", "backtest") else [rules]
    model = nn.ScriptedModel([nn.CallTool("send_money", recipient="Ann"), "Done."])
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=step, memory=memory), model=model)
    run = nn.record(harness)
    if way == "stream":
        await harness.stream("Pay Ann 1.").reply
    else:
        await harness.execute("Pay Ann 1.")
    if way == "backtest":
        with pytest.warns(UnknownTarget):
            table = lab.backtest(rules, [run], on_unknown="warn")
        return list(table[table.hook == "before_tool_call"].after).count("allow"), " ".join(map(str, table.guidance))
    if way == "replay":
        with pytest.warns(UnknownTarget):
            run = await asyncio.to_thread(lab.replay, run, rules=rules)
        return 0, " ".join(map(str, run.to_frame("ledger").guidance))
    [call] = run.to_frame("tools").itertuples()
    return len(sent), str(call.output)


@pytest.mark.parametrize("way", ["agent", "child", "stream", "guard", "replay", "backtest"])
@pytest.mark.parametrize("kind", MISSPELT)
async def test_a_rule_whose_argument_the_tool_does_not_have_refuses_the_call(kind: str, way: str) -> None:
    rules = nn.RuleBook()
    MISSPELT[kind](rules)

    count, output = await sends(rules, way)

    assert count == 0
    assert "send_money has no such argument" in output


async def test_each_of_several_tools_needs_one_of_the_arguments_and_optional_ones_may_be_missing() -> None:
    rules = nn.RuleBook()
    rules.only_from_user(["send_money", "invite"], "recipient", "guests.email", "note")
    invited = nn.CallTool("invite", guests=[{"email": "bo@example.org"}])
    model = nn.ScriptedModel([nn.CallTool("send_money", recipient="Ann"), invited, "Done."])
    step = nn.react(model="m", tools=[send_money, invite])
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=step, memory=[rules]), model=model)
    run = nn.record(harness)

    reply = await harness.execute("Pay Ann 1 and invite bo@example.org.")

    assert list(run.to_frame("tools").status) == ["ok", "ok"]
    assert codes(reply) == []
