"""A draft denies the one call it was made for, and the cause tells whether any rule evaluated that call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import SteeringDecided, ToolCalled
from noetic_nb.lab import datasets
from noetic_nb.testing import FakeClock, SeededIds
from noetic_nb.widgets import RuleEditor, Workbench

NOT_LOOKED = "No rule looked at this call."
NOT_RECORDED = "Whether a rule looked at this call is not recorded."
PAGE, USER, OTHER = "GB29NWBK60161331926819", "DE89370400440532013000", "FR7630006000011234567890189"


@nn.tool
def read_page(url: str) -> dict[str, Any]:
    """Read a page."""
    return {"iban": PAGE, "other": OTHER}


@nn.tool
def pay(recipient: str, amount: float = 0.0) -> str:
    """Pay."""
    return "paid"


def recorded(book: nn.RuleBook | None, *calls: Any) -> nn.Run:
    script = [nn.CallTool("read_page", url="a.example"), *calls, "Done."]
    memory = [] if book is None else [nn.steering(book)]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[read_page, pay]), memory=memory)
    harness = nn.AgentHarness(
        config, model=nn.ScriptedModel(script), clock=FakeClock(), ids=SeededIds(1), checkpoints=False
    )
    run = nn.record(harness)
    asyncio.run(harness.execute(f"Read a.example, pay 5 to {USER}", thread_id="t1", resource_id="ann"))
    return run


def paying(recipient: str, amount: float = 5) -> Any:
    return nn.CallTool("pay", recipient=recipient, amount=amount)


def limited() -> nn.RuleBook:
    book = nn.RuleBook()
    book.at_most(9, "pay")
    return book


def denying() -> nn.RuleBook:
    book = nn.RuleBook()
    book.only_from_user("pay", "recipient")
    return book


def judged(run: nn.Run, which: Any = -1) -> Any:
    return run.cause(which).attrs["judged"]


def short(call: ToolCalled) -> dict[str, Any]:
    return {
        name: value for name, value in (call.args or {}).items() if isinstance(value, int | float) or is_word(value)
    }


def is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 40


RUNS = {
    "no steering": lambda: recorded(None, paying(USER), paying(PAGE)),
    "empty book": lambda: recorded(nn.RuleBook(), paying(USER), paying(PAGE), paying(OTHER, 7)),
    "allowed": lambda: recorded(limited(), paying(PAGE), paying(PAGE, 9), paying(USER)),
    "denied": lambda: recorded(denying(), paying(PAGE), paying(USER), paying(USER, 6)),
    "imported 3": lambda: datasets.airline_run(3),
    "imported 26": lambda: datasets.airline_run(26),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_draft_for_any_call_denies_it_and_none_with_other_values(name: str) -> None:
    run = RUNS[name]()
    calls = [(at, event) for at, event in enumerate(run.events) if isinstance(event, ToolCalled)]
    assert calls

    for seq, event in calls:
        rule = nn.lab.draft_rule(run, seq=seq)

        table = nn.lab.backtest([], run, candidate=rule)
        denied = {int(row) for row in table.loc[table.change == "newly_denied", "seq"]}
        alike = [other for _, other in calls if other.name == event.name and short(other) == short(event)]
        assert seq in denied
        assert not table.error.notna().any()
        # Never more than the rule against its plain values would, or a ban for a tool without arguments.
        assert len(denied) <= len(alike)


def test_a_value_that_a_page_wrote_is_drafted_as_a_rule_about_the_user() -> None:
    run = recorded(None, paying(USER), paying(PAGE))

    rule = nn.lab.draft_rule(run, -1)

    assert rule.sequence is not None
    assert (rule.sequence.kind, rule.sequence.args) == ("only_from_user", ("recipient",))
    again = nn.lab.replay(run, rules=[rule])
    [denied] = [event for event in again.select(SteeringDecided) if event.action == "deny"]
    assert denied.args == {"recipient": PAGE, "amount": 5}


@pytest.mark.parametrize("which", [-1, -2, 0])
def test_a_draft_is_a_rule_of_a_book_that_an_editor_shows_and_a_file_keeps(which: int, tmp_path: Path) -> None:
    book = nn.RuleBook()
    rule = book.put(nn.lab.draft_rule(recorded(None, paying(USER), paying(PAGE)), which))

    with RuleEditor(book) as editor:
        assert rule.id in editor.code(rule.id)
        assert editor.save(tmp_path / "rules.json")
    assert [each.id for each in nn.RuleBook.load(tmp_path / "rules.json")] == [rule.id]


def test_the_cause_tells_whether_a_rule_looked() -> None:
    allowed = recorded(limited(), paying(PAGE))
    assert judged(allowed) == "Looked at by the rule at-most-9-pay."
    assert judged(allowed, 0) == NOT_LOOKED
    assert judged(recorded(denying(), paying(PAGE))) == "Looked at by the rule only-from-user-recipient-of-pay."
    assert judged(recorded(None, paying(PAGE))) == NOT_LOOKED


def test_a_run_that_cannot_tell_says_so() -> None:
    assert judged(datasets.airline_run(26)) == NOT_RECORDED
    # A run of an earlier version has decisions without times, as has one with an empty book.
    assert judged(recorded(nn.RuleBook(), paying(PAGE))) == NOT_RECORDED
    # The times in a replay are those of the recorded rules.
    assert judged(nn.lab.replay(recorded(limited(), paying(PAGE)), rules=[])) == NOT_RECORDED


def test_a_saved_run_tells_the_same(tmp_path: Path) -> None:
    for name in ("no steering", "empty book", "allowed", "denied"):
        run = RUNS[name]()
        run.save(tmp_path / f"{name}.json")
        loaded = nn.Run.load(tmp_path / f"{name}.json")
        assert [judged(loaded, at) for at in range(2)] == [judged(run, at) for at in range(2)]


def test_the_workbench_says_it_of_an_allowed_call() -> None:
    run = recorded(limited(), paying(PAGE))
    seqs = [at for at, event in enumerate(run.events) if isinstance(event, SteeringDecided) and event.tool_name]
    with Workbench(run, panels=[]) as bench:
        notes = [bench._answer({"what": "cause", "decision": seq})["data"]["note"] for seq in seqs]
    assert notes == [NOT_LOOKED, "Looked at by the rule at-most-9-pay."]


def test_calls_that_rules_do_not_see_are_refused() -> None:
    run = recorded(None, nn.CallTool("pay", wrong=1))
    for given in (99, -1):
        with pytest.raises(NoeticConfigError) as caught:
            nn.lab.draft_rule(run, given)
        assert caught.value.code == "UNKNOWN_CALL"


def test_a_draft_has_no_secret_of_the_call() -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwx"
    run = recorded(None, paying(USER), paying(secret), paying(secret + "yz"))
    for which in (1, 2, 3):
        assert secret not in nn.lab.draft_rule(run, which).model_dump_json()
