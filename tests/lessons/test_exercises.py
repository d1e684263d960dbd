"""No check is fooled: kept wrong answers fail, kept right ones pass, and so do the solutions that the lessons give."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jupytext
import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.lab._dialogues import Evidence
from noetic_nb.lab._recall_quality.evidence_ladder import SentTexts
from noetic_nb.lab._recall_quality.word_senses import folded
from noetic_nb.lessons import EXERCISES
from noetic_nb.lessons._attack_exercises import Record, pair_shares
from noetic_nb.lessons._grading import examined
from noetic_nb.lessons._measuring_exercises import _evidence_cases, is_told
from noetic_nb.lessons._memory_exercises import sent_positions
from noetic_nb.lessons._token_exercises import cached_tokens, input_tokens
from noetic_nb.lessons._what_if_exercises import certain_calls, paired_difference
from noetic_nb.models import ScriptedModel
from noetic_nb.models.prompt_caching import cache_rules
from noetic_nb.testing import SimulatedProvider
from noetic_nb.tokens import estimate_tokens
from tests.lessons.kept_answers import RIGHT, WRONG
from tests.matrix import matrix

SOURCES = Path(__file__).parents[2] / "notebooks" / "sources"
MUST_FAIL = {"off by one", "inverted", "hard-coded", "right value by the wrong rule"}


@cache
def cells() -> tuple[Any, ...]:
    """Return the cells of all lessons, in their order."""
    return tuple(
        cell for source in sorted(SOURCES.glob("*.py")) for cell in jupytext.read(source, fmt="py:percent").cells
    )


def cells_with(tag: str) -> dict[str, str]:
    """Return the cells of all lessons that have a tag, by the exercise whose check follows."""
    found, waiting = {}, ""
    for cell in cells():
        tags = cell.metadata.get("tags", ())
        if tag in tags:
            waiting = cell.source
        if "check" in tags:
            found[re.findall(r'check\("([\d.]+)"', cell.source)[0]] = waiting
    return found


def answer_in(cell: str, name: str) -> Any:
    names: dict[str, Any] = {"nn": nn, "re": re, "ToolCalled": nn.events.ToolCalled}
    exec(compile(cell, "cell", "exec"), names)
    return names[name]


@pytest.mark.parametrize("exercise", RIGHT)
def test_right_answers_pass(exercise: str) -> None:
    found = {kind: examined(EXERCISES[exercise], answer) for kind, answer in RIGHT[exercise].items()}
    assert set(found.values()) <= {None}, found


@matrix("exercise", list(WRONG), keep=15)
def test_wrong_answers_fail(exercise: str) -> None:
    assert [kind for kind, answer in WRONG[exercise].items() if not examined(EXERCISES[exercise], answer)] == []


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_stub_of_the_lesson_fails_and_its_solution_passes(exercise: str) -> None:
    name = EXERCISES[exercise].answer

    assert examined(EXERCISES[exercise], answer_in(cells_with("exercise")[exercise], name))
    assert examined(EXERCISES[exercise], answer_in(cells_with("solution")[exercise], name)) is None


def test_every_exercise_has_the_answers_that_are_kept_for_each() -> None:
    assert set(EXERCISES) == set(WRONG) == set(RIGHT) == set(cells_with("exercise")) == set(cells_with("solution"))
    assert all(set(answers) >= MUST_FAIL for answers in WRONG.values())
    assert all(len(WRONG[exercise]) >= 10 for exercise in EXERCISES if exercise.startswith(("9.", "10.")))
    assert all(len(answers) >= 2 for answers in RIGHT.values())
    assert all(exercise.hints for exercise in EXERCISES.values())


@pytest.mark.parametrize("exercise", EXERCISES)
def test_nonsense_is_wrong_and_does_not_raise(exercise: str) -> None:
    for nonsense in (None, 3, "right", lambda *_: True, lambda: None):
        assert examined(EXERCISES[exercise], nonsense)


@pytest.mark.parametrize("room", [250, 300, 350])
async def test_the_planner_sends_what_exercise_1_1_says(room: int) -> None:
    policy = nn.ProjectionPolicy(token_budget=room, response_reserve=50, overflow="truncate")
    config = nn.AgentConfig(name="clerk", step=nn.react(model="scripted"), projection=policy)
    harness = nn.AgentHarness(config, model=ScriptedModel(lambda request: "ok"))
    run = nn.record(harness)
    for text in ("a " * 40, "b " * 90, "c", "d " * 10):
        await harness.execute(text)

    sizes = run.to_frame("items").sort_values("position").tokens.tolist()
    left_out = harness.preview().left_out()

    assert sorted(set(range(len(sizes))) - set(left_out)) == sent_positions(sizes, room - 50)
    assert left_out


async def test_a_provider_bills_what_exercise_2_1_says() -> None:
    instructions = "Be brief. " * 9
    config = nn.AgentConfig(name="desk", step=nn.react(model="simulated-gpt-4o", instructions=instructions))
    answers = ScriptedModel(["One.", "Two, and three.", "Four."])
    harness = nn.AgentHarness(config, model=SimulatedProvider(answers))
    run = nn.record(harness)
    for question in ("a " * 40, "b", "c " * 5):
        await harness.execute(question)

    sizes = run.to_frame("items").sort_values("position").tokens.tolist()
    turns = list(zip(sizes[::2], sizes[1::2], strict=True))

    billed = sum(call.input_tokens or 0 for call in run.select(nn.events.ModelCalled))
    assert billed == input_tokens(estimate_tokens(instructions), turns)


def test_a_provider_caches_what_exercise_2_2_says() -> None:
    rules = cache_rules("gpt-4o")

    assert rules
    for tokens in range(900, 1500):
        request = [("the whole request", tokens)]
        assert cached_tokens(request, request, rules.minimum, rules.block) == rules.whole(tokens)


def test_an_open_replay_denies_what_exercise_6_1_says() -> None:
    looks = nn.RuleBook()
    looks.at_most(2, "get_reservation_details")

    found = []
    for run in lab.datasets.airline():
        calls = [call.name for call in run.select(nn.events.ToolCalled)]
        decisions = lab.replay(run, rules=looks).select(nn.events.SteeringDecided)
        actions = [each.action for each in decisions if each.hook == "before_tool_call"]
        found.append((actions.index("deny") if "deny" in actions else len(calls), actions.count("deny")))
        assert found[-1] == certain_calls(
            calls, lambda name, before: name == "get_reservation_details" and before.count(name) >= 2
        )

    assert any(denied for _, denied in found)


def test_a_comparison_says_what_exercise_6_2_says() -> None:
    runs = lab.datasets.airline()
    others = [lab.replay(run) for run in runs]
    before = [None if at % 5 == 0 else float(at) for at in range(len(runs))]
    after = [None if at % 3 == 0 else float(at * at) for at in range(len(runs))]
    values = {id(run): value for run, value in zip([*runs, *others], [*before, *after], strict=True)}

    row = nn.compare(runs, others, metrics={"n": lambda run: values[id(run)]}).to_frame().iloc[0]

    assert (row.difference, row.n) == paired_difference(before, after)


def test_the_bench_finds_the_evidence_that_exercise_9_1_finds() -> None:
    """Where the bench differs, it is stricter: it takes nothing that is also said of somebody else."""
    for sent, owner, others, value in _evidence_cases():
        names = frozenset(f" {folded(name)} " for name in others)
        part = Evidence(None, value, (owner,), ("locker", "code", "pays", "has"))
        place = SentTexts(sent).place_of(part, names, frozenset())

        assert (place >= 0) is is_told(sent, owner, others, value), sent


def test_the_dojo_counts_pairs_as_exercise_10_1_does() -> None:
    rules = nn.RuleBook()
    rules.only_from_user("refund", "account", trust="get_order.account")
    result = lab.dojo(rules, suites=lab.environments.ServiceDesk(), adaptive=True)
    records: list[Record] = [
        (meta["user_task"], meta["injection_task"], not meta["attack_is_static"], meta["attack_succeeded"])
        for meta in [run.meta for run in result.runs]
        if meta["attack"]
    ]

    assert pair_shares(records) == (result.count("static_success").rate, result.count("attack_success").rate)
