"""Comparison of two runs, and of lists of runs in pairs."""

from __future__ import annotations

import asyncio
import itertools
import random
from math import isnan
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import datasets, replay
from noetic_nb.lab._statistics.intervals import Cluster, mean_interval
from noetic_nb.runs import Run


def said(*texts: str, **meta: Any) -> Run:
    """Return a run in which user and assistant alternate."""
    roles = ("user", "assistant")
    return Run.from_messages(
        [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)], meta={"task_id": None, **meta}
    )


def rows(found: Any, what: str) -> list[tuple[Any, ...]]:
    return [(turn, a, b) for turn, name, a, b in found.rows if name == what]


def test_turns_belong_together_by_what_the_user_wrote() -> None:
    a = said("hi", "Hello.", "where is A17?", "Packed.", "bye", "Bye.")
    b = said("hi", "Good day.", "one more thing", "Yes?", "where is A17?", "Sent.", "bye", "Bye.")

    found = nn.compare(a, b)

    assert rows(found, "prompt") == [
        (1, "hi", "hi"),
        (2, None, "one more thing"),
        (3, "where is A17?", "where is A17?"),
        (4, "bye", "bye"),
    ]
    assert rows(found, "reply")[2] == (3, "Packed.", "Sent.")
    frame = found.to_frame()
    assert list(frame.columns) == ["turn", "what", "a", "b"]
    assert len(frame) == len(found.rows)
    assert "Packed." in repr(found)
    assert "Bye." not in repr(found)  # equal rows are left out
    assert not nn.compare(a, a).differences


def test_turns_whose_texts_differ_belong_together_by_their_order() -> None:
    found = nn.compare(said("hi", "Hello."), said("hallo", "Guten Tag."))
    assert rows(found, "prompt") == [(1, "hi", "hallo")]


def test_hostile_text_is_no_markup() -> None:
    html = nn.compare(said("hi", "<script>x</script>"), said("hi", "y"))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


async def test_a_replay_beside_its_run_shows_the_decisions_that_differ() -> None:
    run = datasets.airline_run(26)
    rules = nn.RuleBook()
    rules.at_most(2, "get_reservation_details", id="look")
    once, twice = replay(run, rules=[]), replay(run, rules=rules)
    found = nn.compare(once, twice)
    assert {(a, b) for _, what, a, b in found.differences if what == "decision"} == {
        ("allow get_reservation_details", "deny get_reservation_details by look")
    }
    assert {what for _, what, _, _ in found.differences} == {"decision"}


async def test_a_request_with_another_text_is_another_request() -> None:
    async def asked(text: str) -> Run:
        step = nn.react(model="scripted", instructions="Work.")
        config = nn.AgentConfig(name="desk", step=step, memory=[nn.static_content(text)])
        run = nn.record(harness := nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."])))
        await harness.execute("hi")
        return run

    one, same, other = await asyncio.gather(asked("red"), asked("red"), asked("tan"))
    assert not [row for row in nn.compare(one, same).differences if row[1] == "request"]
    assert [row for row in nn.compare(one, other).differences if row[1] == "request"]


def test_lists_are_paired_by_task_and_trial_with_intervals_by_task() -> None:
    rng = random.Random(4)
    a, b = [], []
    for task in range(6):
        for trial in range(2):
            texts = ["hi", "Hello."] * (1 + rng.randrange(3))
            a.append(said(*texts, task_id=task, trial=trial))
            b.append(said(*texts, *["more", "Yes."] * rng.randrange(3), task_id=task, trial=trial))
    lone = said("hi", "Hello.", task_id=77, trial=0)
    shuffled = rng.sample(b, len(b))

    found = nn.compare([*a, lone], shuffled)

    (row,) = [row for row in found.rows if row.metric == "turns"]
    gaps = [len(y.turns) - len(x.turns) for x, y in zip(a, b, strict=True)]
    assert (found.paired_by, found.pairs, found.unpaired) == ("task and trial", 12, (lone.run_id,))
    assert (row.n, row.difference) == (12, pytest.approx(sum(gaps) / 12))
    by_task = mean_interval(gaps, [Cluster(i // 2) for i in range(12)])
    assert (row.low, row.high) == pytest.approx(by_task)
    assert list(found.to_frame().columns) == ["metric", "a", "b", "difference", "low", "high", "n", "p"]
    assert "12 pairs by task and trial; 1 without a counterpart" in repr(found)


def test_lists_without_tasks_are_paired_by_position_and_what_is_not_known_counts_nowhere() -> None:
    a = [said("hi", "Hello.") for _ in range(3)]
    b = [said("hi", "Hello.", "more", "Yes.") for _ in range(3)]
    numbers = iter([1.0, 2.0, None, 5.0, 1.0, 4.0])
    found = nn.compare(a, b, metrics={"own": lambda run: next(numbers)})
    (row,) = found.rows
    assert found.paired_by == "position"
    assert (row.n, row.a, row.b, row.difference) == (2, 1.0, 3.0, 2.0)
    empty = nn.compare(a, b, metrics={"none": lambda run: None}).rows[0]
    assert empty.n == 0
    assert isnan(empty.difference)


def test_what_cannot_be_compared_is_refused() -> None:
    run = said("hi", "Hello.")
    for code, call in {
        "INVALID_RUN": lambda: nn.compare(run, [run]),  # type: ignore[call-overload]
        "UNPAIRED_RUNS": lambda: nn.compare([run], [run, run]),
        "NO_RUNS": lambda: nn.compare([], []),
        "INVALID_METRIC": lambda: nn.compare([run], [run], metrics={"bad": lambda run: 1 / 0}),
    }.items():
        with pytest.raises(NoeticConfigError) as caught:
            call()
        assert caught.value.code == code
    with pytest.raises(NoeticConfigError, match="INVALID_METRIC"):
        nn.compare([run], [run], metrics=["turns"])  # type: ignore[call-overload]
    with pytest.raises(NoeticConfigError, match="INVALID_RULE"):
        nn.lab.backtest([{1: 2}], run)


def test_two_rule_books_are_evaluated_before_they_are_compared() -> None:
    books = nn.RuleBook(), nn.RuleBook()
    books[0].at_most(1, "pay")
    for pair in (books, books[::-1], (books[0], [Run()])):
        with pytest.raises(NoeticConfigError, match=r"compare\(lab.evaluate\(a, runs\), lab.evaluate\(b, runs\)\)"):
            nn.compare(*pair)


def graded(outcomes: dict[int, list[bool]]) -> list[Run]:
    return [
        said("hi", "Hello.", task_id=task, trial=trial, outcome=good)
        for task, trials in outcomes.items()
        for trial, good in enumerate(trials)
    ]


def test_all_of_k_trials_succeed_as_often_as_can_be_counted() -> None:
    outcomes = {1: [True, True, True, False], 2: [True, False, False, False], 3: [True] * 4}
    found = nn.compare(graded(outcomes), graded({task: [True] * 4 for task in outcomes}))

    rows = {row.metric: row for row in found.rows}
    for k in (2, 3, 4):
        draws = {task: [all(some) for some in itertools.combinations(trials, k)] for task, trials in outcomes.items()}
        expected = sum(sum(some) / len(some) for some in draws.values()) / len(draws)
        assert rows[f"pass^{k}"].a == pytest.approx(expected)
        assert (rows[f"pass^{k}"].b, rows[f"pass^{k}"].n) == (1.0, 3)
    assert "pass^5" not in rows
    assert not any(name.startswith("pass^") for name in (row.metric for row in nn.compare(a_run(), a_run()).rows))


def a_run() -> list[Run]:
    return [said("hi", "Hello.", outcome=True)]


@pytest.mark.parametrize("better", [0, 3, 6, 8])
def test_the_sign_test_is_that_of_scipy_over_tasks(better: int) -> None:
    from scipy.stats import binomtest

    a = graded({task: [task >= better] * 2 for task in range(8)})
    b = graded({task: [task < better] * 2 for task in range(8)})

    (row,) = [row for row in nn.compare(a, b).rows if row.metric == "outcome"]

    assert row.p == pytest.approx(binomtest(better, 8).pvalue)
    assert "sign test p" in repr(nn.compare(a, b))


@pytest.mark.parametrize(("tasks", "injections", "groups"), [(9, 3, 3), (3, 9, 3), (9, 1, 9), (1, 9, 9)])
def test_the_sign_test_counts_the_fewer_of_crossed_tasks_and_injections(
    tasks: int, injections: int, groups: int
) -> None:
    before, after = (
        [
            Run(
                f"{task}-{injection}-{outcome}", meta={"task_id": task, "injection_task": injection, "outcome": outcome}
            )
            for task in range(tasks)
            for injection in range(injections)
        ]
        for outcome in (False, True)
    )

    row = nn.compare(before, after).to_frame().set_index("metric").loc["outcome"]

    assert row.p == pytest.approx(2 * 0.5**groups)


def test_the_interval_of_a_difference_of_shares_ends_at_one() -> None:
    before = [Run(f"before-{task}", meta={"task_id": task, "outcome": False}) for task in range(4)]
    after = [Run(f"after-{task}", meta={"task_id": task, "outcome": task > 0}) for task in range(4)]

    row = nn.compare(before, after).to_frame().set_index("metric").loc["outcome"]

    assert row.high == 1


def test_one_pair_of_many_that_differs_is_no_difference() -> None:
    before = [Run(f"before-{task}", meta={"task_id": task, "outcome": task > 9}) for task in range(20)]
    after = [Run(f"after-{task}", meta={"task_id": task, "outcome": task > 8}) for task in range(20)]

    row = nn.compare(before, after).to_frame().set_index("metric").loc["outcome"]

    assert row.difference == pytest.approx(0.05)
    assert row.low < 0 < row.high
    assert row.p == 1


def test_pairs_that_never_differ_leave_room_for_a_difference() -> None:
    same = graded({task: [True, False] for task in range(20)})

    (row,) = [
        row for row in nn.compare(same, graded({t: [True, False] for t in range(20)})).rows if row.metric == "outcome"
    ]

    assert row.difference == 0
    assert 0.05 < row.high < 0.3
    assert row.low == -row.high
    assert row.p == 1.0


def test_pairs_without_a_task_have_no_interval_unless_each_counts_for_itself() -> None:
    a, b = ([said("hi", "Hello.", outcome=bool(at % 3)) for at in range(9)] for _ in range(2))

    unknown, known = nn.compare(a, b), nn.compare(a, b, by="run")

    assert all(isnan(row.low) and isnan(row.p) for row in unknown.rows)
    assert 'pass by="run"' in repr(unknown)
    assert not any(isnan(row.low) for row in known.rows if row.metric == "outcome")
    assert not any(isnan(row.p) for row in known.rows)
    assert "do not name their task" not in repr(nn.compare(a[:1], b[:1], by="run"))


def test_amounts_that_never_differ_have_no_interval() -> None:
    a = [said("hi", "Hello.", task_id=task) for task in range(9)]
    rows = {row.metric: row for row in nn.compare(a, a, metrics=None).rows}

    assert {"turns", "tool calls", "denied", "tokens"} <= set(rows)  # all 0, all 1, and larger
    assert all(isnan(row.low) and isnan(row.high) for row in rows.values())
    assert "no interval" in repr(nn.compare(a, a))
    assert "do not name their task" not in repr(nn.compare(a, a))
    (share,) = nn.compare(a, a, metrics={"answered": lambda run: len(run.turns) == 1}).rows
    assert 0 < share.high < 1


def test_the_interval_of_a_count_is_not_cut_at_one() -> None:
    a = [said("hi", "Hello.", task_id=task) for task in range(4)]
    b = [Run(f"b{task}", meta={"task_id": task}) if task else a[0] for task in range(4)]
    (row,) = [row for row in nn.compare(b, a).rows if row.metric == "turns"]

    assert row.difference == 0.75
    assert row.high > 1
