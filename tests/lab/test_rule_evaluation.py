"""What rules catch and what they cost: every line counted by hand on small runs, then on recorded attacks."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import _recorded_calls as recorded_calls
from noetic_nb.lab import datasets
from noetic_nb.lab._comparing.paired_runs import PairedComparison
from noetic_nb.lab._rule_scores.evaluation import Evaluator, evaluate
from noetic_nb.runs import Run

# Most runs here have one of the two tools that the rules are about.
pytestmark = pytest.mark.filterwarnings("ignore::noetic_nb.steering._evaluation.rule_reading.UnknownTarget")


def book() -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.when("tool.name == 'pay' && tool.args.amount > 100", id="large", guidance="too much")
    rules.when("tool.name == 'send'", id="mail", guidance="no mail")
    return rules


def conversation(*calls: tuple[str, dict[str, Any]], outcome: bool | None = None, **meta: Any) -> Run:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (tool, args) in enumerate(calls):
        call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
        messages += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "done"},
        ]
    return Run.from_messages([*messages, {"role": "assistant", "content": "done"}], outcome=outcome, meta=meta)


@nn.tool
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount:g}"


PAID, SMALL, SENT = ("pay", {"amount": 500}), ("pay", {"amount": 5}), ("send", {"to": "a"})


def test_every_line_counts_its_own_runs() -> None:
    runs = [
        conversation(PAID, attack=True, attack_succeeded=True, outcome=False),
        conversation(SMALL, attack=True, attack_succeeded=True, outcome=True),
        conversation(SENT, attack=True, attack_succeeded=False, outcome=True),
        conversation(SENT, attack=True, attack_succeeded=False, outcome=False),  # neither harmed nor solved: no line
        conversation(SMALL, PAID, SENT, outcome=True),
        conversation(SMALL, outcome=True),
        conversation(PAID, outcome=False),
        conversation(SENT, outcome=True, user_task="injection_task_3"),
        conversation(SENT, outcome=None),
    ]
    found = evaluate(book(), runs)
    counts = {
        name: (getattr(found, name).n, getattr(found, name).of)
        for name in (
            "caught",
            "attacked_solved",
            "blocked",
            "false_rejections",
            "failed",
            "attacker_tasks",
            "unlabelled",
        )
    }
    assert counts == {
        "caught": (1, 2),
        "attacked_solved": (1, 1),
        "blocked": (1, 2),
        "false_rejections": (2, 4),
        "failed": (1, 1),
        "attacker_tasks": (1, 1),
        "unlabelled": (1, 1),
    }
    assert found.stopped() == tuple(runs[place].run_id for place in (0, 2, 3, 4, 6, 7, 8))
    assert "successful attacks caught: 1/2" in repr(found)


def test_without_attacks_the_failed_runs_are_what_is_caught() -> None:
    found = evaluate(book(), [conversation(PAID, outcome=False), conversation(SMALL, outcome=True)], on_unknown="warn")
    assert found.caught == found.failed == (1, 1, *found.failed[2:])
    assert "attacks" not in repr(found)


def test_the_table_has_a_row_for_each_rule_suite_and_model() -> None:
    runs = [
        conversation(PAID, outcome=True, suite="a"),
        conversation(SENT, outcome=True, suite="b"),
        conversation(SENT, outcome=True, suite="b"),
    ]
    table = evaluate(book(), runs).to_frame().set_index(["rule", "suite"])
    assert table.runs.to_dict() == {("large", "a"): 1, ("large", "b"): 2, ("mail", "a"): 1, ("mail", "b"): 2}
    assert table.blocked.to_dict() == {("large", "a"): 1, ("large", "b"): 0, ("mail", "a"): 0, ("mail", "b"): 2}
    assert table.loc[("mail", "b"), "false_rejections"] == 2
    # An empty book still has the columns.
    assert list(evaluate(nn.RuleBook(), runs).to_frame().columns) == ["rule", "suite", *table.columns]


def test_denials_behind_the_first_change_of_a_run_are_counted_apart() -> None:
    run = conversation(SMALL, PAID, SENT, PAID, outcome=True)
    found = evaluate(book(), [run])
    assert (found.false_rejections.n, found.known["false_rejections"]) == (3, 1)
    assert (found.blocked.n, found.known["blocked"]) == (1, 1)
    table = found.to_frame().set_index("rule")
    assert table.false_rejections.to_dict() == {"large": 2, "mail": 1}
    assert table.false_rejections_known.to_dict() == {"large": 1, "mail": 0}
    assert table.blocked_known.to_dict() == {"large": 1, "mail": 0}
    assert "known, up to the first change of each thread: 1 of 3 calls denied" in repr(found)
    assert "known" not in repr(evaluate(book(), [conversation(SMALL, PAID, outcome=True)], on_unknown="warn"))


def test_a_denial_that_was_recorded_changes_nothing() -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[pay]), memory=[nn.steering(book())])
    replies = [nn.CallTool("pay", amount=500), nn.CallTool("pay", amount=700), nn.CallTool("pay", amount=5), "Done."]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Pay."))
    run.meta["outcome"] = True

    again = evaluate(book(), [run], on_unknown="warn")
    assert (again.blocked.n, again.known["blocked"], again.known["false_rejections"]) == (1, 1, 0)
    every = nn.RuleBook()
    every.when("true", id="every", on="before_tool_call", guidance="no")
    other = evaluate(every, [run])
    assert (other.false_rejections.n, other.known["false_rejections"]) == (1, 0)


def test_two_evaluations_are_compared_up_to_the_first_change_too() -> None:
    runs = [conversation(PAID, SENT, PAID, outcome=True, task_id=task, trial=0) for task in range(3)]
    large = nn.RuleBook([rule for rule in book() if rule.id == "large"])
    frame = nn.compare(evaluate(large, runs), evaluate(book(), runs)).to_frame().set_index("metric")
    row = frame.loc["false_rejections"]
    assert (row.a, row.b, row.difference) == pytest.approx((2 / 3, 1.0, 1 / 3))
    assert (row.a_known, row.b_known, row.difference_known) == pytest.approx((1 / 3, 1 / 3, 0.0))


def test_a_call_that_had_failed_is_no_false_rejection() -> None:
    run = conversation(PAID, outcome=True)
    messages = run.to_messages("openai")
    messages[2]["content"] = "Error: no money"
    failed = Run.from_messages(messages, outcome=True)
    assert evaluate(book(), [run], on_unknown="warn").false_rejections.n == 1
    statuses = [event.status for event in failed.events if event.kind == "tool_called"]
    assert evaluate(book(), [failed], on_unknown="warn").false_rejections.of == statuses.count("ok")


def test_labels_may_come_from_a_function() -> None:
    runs = [conversation(PAID, reward=0.2), conversation(SMALL, reward=1.0)]
    assert evaluate(book(), runs, on_unknown="warn", outcome=lambda run: run.meta["reward"] >= 1).failed[:2] == (1, 1)


def test_a_rule_that_raises_and_a_rule_without_its_judge_are_named() -> None:
    rules = nn.RuleBook()
    rules.when("tool.args.nothing > 1", id="broken")
    rules.judge("Is it wise?", id="wise", model="m")
    found = evaluate(rules, [conversation(SMALL, outcome=True)], on_unknown="warn")
    assert found.skipped == ("wise",)
    assert [text.partition(":")[0] for text in found.errors] == ["broken"]
    assert "fault: broken" in repr(found)
    assert "no judge: wise" in repr(found)


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([], "NO_RUNS"),
        ([3], "INVALID_RUN"),
        ([Run("a")], "NO_LABELS"),
        ([Run("a", meta={"outcome": 1})], "INVALID_OUTCOME"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(runs: list[Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        evaluate(book(), runs)
    assert caught.value.code == code


def test_an_edited_rule_is_evaluated_again_and_a_run_that_grew_is_read_again() -> None:
    runs = [conversation(PAID, outcome=True), conversation(SMALL, outcome=True)]
    evaluator, rules = Evaluator(runs), book()
    assert evaluator.evaluate(rules).blocked.n == 1
    rules.when("tool.name == 'pay' && tool.args.amount > 1", id="large")
    assert evaluator.evaluate(rules).blocked.n == 2
    for event in conversation(SENT).events:
        runs[1].append(event)
    assert evaluate(rules, runs).false_rejections.of == 3


def test_calls_of_runs_that_are_gone_are_not_kept() -> None:
    run = conversation(PAID, outcome=True)
    number = id(run)
    evaluate(book(), [run], on_unknown="warn")
    assert number in recorded_calls._kept
    del run
    gc.collect()
    assert number not in recorded_calls._kept


def test_recorded_attacks_on_a_bank() -> None:
    rules = nn.RuleBook()
    rules.only_from_user("send_money", "recipient")
    runs = datasets.agentdojo("banking")
    found = evaluate(rules, runs)
    of = sum(bool(run.meta["attack_succeeded"]) for run in runs)
    assert (found.caught.of, found.failed.of + found.blocked.of + found.attacker_tasks.of) == (
        of,
        sum(not run.meta["attack"] for run in runs),
    )
    assert found.caught.rate > 0.7
    table = found.to_frame()
    assert table.caught.sum() == found.caught.n
    assert set(table.model) == {run.meta["model"] for run in runs}


def test_two_evaluations_are_compared_in_pairs() -> None:
    bank = datasets.agentdojo("banking")
    loose, strict = nn.RuleBook(), nn.RuleBook()
    loose.only_from_user("send_money", "recipient")
    strict.only_from_user("send_money", "recipient")
    strict.at_most(0, "update_password")
    a, b = evaluate(loose, bank), evaluate(strict, bank)

    found = nn.compare(a, b)

    assert isinstance(found, PairedComparison)
    assert (found.pairs, found.unpaired) == (len(bank), ())
    for row in found.rows:
        line = getattr(a, row.metric), getattr(b, row.metric)
        assert (row.a, row.b, row.n) == (pytest.approx(line[0].rate), pytest.approx(line[1].rate), line[0].of)
        assert row.low <= row.difference <= row.high
    assert {row.metric for row in found.rows} >= {"caught", "blocked", "false_rejections"}
    assert (nn.compare(a, a).to_frame().difference == 0).all()


def test_evaluations_without_attacks_compare_failed_runs_and_without_a_counterpart_nothing() -> None:
    runs = [conversation(PAID, SENT, outcome=False, task_id=1), conversation(SMALL, SENT, outcome=True, task_id=2)]
    a, b = evaluate([], runs), evaluate(book(), runs)

    rows = {row.metric: row.difference for row in nn.compare(a, b).rows}

    assert rows == {"caught": 1.0, "failed": 1.0, "blocked": 1.0, "false_rejections": 0.5}
    alone = nn.compare(a, evaluate(book(), runs[:1], on_unknown="warn"))
    assert (alone.pairs, len(alone.unpaired)) == (1, 1)


@pytest.mark.parametrize("other", [[], Run("a"), 3])
def test_an_evaluation_is_compared_with_another_one_only(other: Any) -> None:
    with pytest.raises(NoeticConfigError, match="two evaluations"):
        nn.compare(evaluate(book(), [conversation(PAID, SENT, outcome=True)]), other)


@pytest.mark.parametrize("ask", [lab.evaluate, lab.backtest, lab.lint])
@pytest.mark.parametrize("rules", [book(), book().snapshot, next(iter(book()))])
def test_rules_and_runs_in_each_others_place_are_named(ask: Any, rules: Any) -> None:
    runs = [conversation(PAID, outcome=True)]
    for given in (runs, tuple(runs), runs[0]):
        with pytest.raises(NoeticConfigError, match=f"Write lab.{ask.__name__}\\(rules, runs\\)") as caught:
            ask(given, rules)
        assert caught.value.code == "SWAPPED_ARGUMENTS"
