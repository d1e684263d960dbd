"""A frozen set as a test of an agent or of rules: exit code 1 where a run got worse, with its differences."""

from __future__ import annotations

from pathlib import Path

import pytest

import noetic_nb as nn
from tests.cli.conftest import Command

AGENT = '''
import noetic_nb as nn

def pay(amount: int) -> str:
    """Pay."""
    return "paid"

def agent(*replies):
    step = nn.react(model="m", tools=[nn.tool(pay)])
    return nn.AgentHarness(nn.AgentConfig(name="a", step=step), model=nn.ScriptedModel(list(replies)))

def same():
    return agent(nn.CallTool("pay", amount=1), "Done.")

def other_words(run):
    return agent(nn.CallTool("pay", amount=1), f"All done for {len(run.turns)}.")

def other_amount():
    return agent(nn.CallTool("pay", amount=2), "Done.")

def broken():
    return agent(nn.Fault("refusal"), nn.Fault("refusal"), nn.Fault("refusal"))

def no_payments():
    rules = nn.RuleBook()
    rules.at_most(0, "pay")
    return rules

def two_payments():
    rules = nn.RuleBook()
    rules.at_most(2, "pay")
    return rules

def answers(run):
    return bool(run.turns[-1].text)

def never(run):
    return False

nothing = 3
'''


@pytest.fixture
def made(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module with agents, in a folder with a set of one of their runs."""
    name = f"agents_{abs(hash(request.node.name))}"
    (folder / f"{name}.py").write_text(AGENT)
    monkeypatch.syspath_prepend(str(folder))
    harness = __import__(name).same()
    run = nn.record(harness)
    nn.run_sync(harness.execute("Pay one.", thread_id="t"))
    run.meta["outcome"] = True
    run.save("one.jsonl.gz")
    nn.open_runs(folder / "one.jsonl.gz").freeze("payments", why="The first one.")
    return name


@pytest.mark.parametrize("given", ["payments", "payments.runset.json"])
def test_an_agent_that_does_the_same_is_fine(command: Command, made: str, given: str) -> None:
    answer = command("check", given, "--agent", f"{made}:same")
    assert (answer.code, "1 runs, 0 got worse" in answer.out) == (0, True)
    assert command("check", given, "--agent", f"{made}:other_words").code == 0


@pytest.mark.parametrize(
    ("agent", "why", "what"),
    [
        ("other_amount", "other arguments", "tool call"),
        ("broken", "a turn failed", "outcome"),
        ("no_payments", "deny", "newly_denied"),
    ],
)
def test_a_run_that_got_worse_is_told_with_its_differences(
    command: Command, made: str, agent: str, why: str, what: str
) -> None:
    answer = command("check", "payments", "--agent", f"{made}:{agent}", "--json")
    assert answer.code == 1
    (finding,) = answer.data["findings"]
    assert why in finding["text"]
    assert what in {line["what"] for line in finding["differences"]}


def test_rules_that_let_a_good_run_pass_are_fine(command: Command, made: str, folder: Path) -> None:
    assert command("check", "payments", "--agent", f"{made}:two_payments").code == 0
    assert command("check", "payments", "--rules", "rules.yaml").code == 0


def test_rules_are_to_stop_the_failed_run_that_was_stopped(command: Command, made: str, folder: Path) -> None:
    module = __import__(made)
    step = nn.react(model="m", tools=[nn.tool(module.pay)])
    config = nn.AgentConfig(name="a", step=step, memory=[nn.steering(module.no_payments())])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([nn.CallTool("pay", amount=1), "No."]))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Pay one.", thread_id="t"))
    run.meta["outcome"] = False
    nn.open_runs([run]).freeze("attacks", why="They must stay denied.")

    assert command("check", "attacks", "--agent", f"{made}:no_payments").code == 0
    answer = command("check", "attacks", "--agent", f"{made}:two_payments")
    assert (answer.code, "no longer deny a call of a failed run" in answer.out) == (1, True)


def test_an_outcome_of_ones_own_says_what_is_worse(command: Command, made: str) -> None:
    asked = ("check", "payments", "--agent", f"{made}:other_amount", "--outcome")
    assert command(*asked, f"{made}:answers").code == 0
    assert command(*asked, f"{made}:never").code == 1


def test_a_run_whose_file_has_changed_is_told(command: Command, made: str, folder: Path) -> None:
    run = nn.load_run("one.jsonl.gz")
    run.notes = "Changed."
    run.save("one.jsonl.gz")
    answer = command("check", "payments", "--agent", f"{made}:same")
    assert (answer.code, "has changed since" in answer.out) == (1, True)
    (folder / "one.jsonl.gz").unlink()
    assert "is gone" in command("check", "payments", "--agent", f"{made}:same").out


@pytest.mark.parametrize("agent", ["nowhere:make", "json", "json:make", "{made}:nothing", "{made}:answers"])
def test_what_makes_no_agent_is_refused(command: Command, made: str, agent: str) -> None:
    answer = command("check", "payments", "--agent", agent.format(made=made))
    assert (
        answer.code,
        "module" in answer.err or "is neither an agent nor rules" in answer.err or "imported" in answer.err,
    ) == (
        2,
        True,
    )


def test_a_set_that_is_none_is_refused(command: Command, made: str) -> None:
    assert command("check", "nothing", "--agent", f"{made}:same").code == 2
