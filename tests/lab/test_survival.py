"""Facts removed by a compaction: which are reported, which call needed them, and how many survive by kind."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.events import ContextCompacted, ItemsAppended, ModelCalled, Where
from noetic_nb.items import function_call, function_call_output, input_message, item_text
from noetic_nb.lab._recall_quality.facts import KnownFacts, facts_of
from noetic_nb.models import CallTool
from tests.lab.compacted_talks import STATES, SUMMARISERS, Compacted, Planted, Summariser, Talk, compacted, talk
from tests.lab.said_preferences import QUESTIONS, SMALL_TALK, Asked

PARTS = ["FITTED", "HELD_OUT"]


def talks(summarise: Summariser, part: str, seeds: range) -> list[Compacted]:
    made = []
    for seed in seeds:
        rng = random.Random(seed)
        made.append(compacted(talk(rng, STATES[part]), summarise, rng))
    return made


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("summarise", SUMMARISERS, ids=lambda one: one.__name__)
def test_what_a_summary_lost_is_named_and_nothing_else(summarise: Summariser, part: str) -> None:
    missed: list[Planted] = []
    planted = 0
    for made in talks(summarise, part, range(12)):
        losses = lab.lost(made.run, -1)

        planted += len(made.gone)
        missed += [fact for fact in made.gone if not any(fact.text in loss.fact for loss in losses)]
        kept = [fact for fact in made.kept if any(loss.fact in fact.said for loss in losses)]
        assert kept == []
        assert all(any(loss.fact in fact.said for fact in made.gone) for loss in losses)
        assert {loss.reason for loss in losses} <= {"compacted"}
    assert len(missed) <= 0.05 * planted, missed


@pytest.mark.parametrize("summarise", SUMMARISERS, ids=lambda one: one.__name__)
def test_survival_is_the_share_that_the_summary_has(summarise: Summariser) -> None:
    made = talks(summarise, "FITTED", range(12))

    table = lab.survival([one.run for one in made]).set_index("kind")

    for kind in ("path", "command"):  # some likes contain names, numbers and decisions
        kept = sum([fact.kind == kind for one in made for fact in one.kept])
        gone = sum([fact.kind == kind for one in made for fact in one.gone])
        assert (table.n[kind], table.of[kind]) == (kept, kept + gone)
        assert table.low[kind] <= table.rate[kind] <= table.high[kind]
    assert {"name", "preference", "decision", "number"} <= set(table.index)
    assert (table.n / table.of == table.rate).all()


@pytest.mark.parametrize("part", PARTS)
def test_likes_habits_and_states_are_facts(part: str) -> None:
    missed = [
        said
        for said, core in STATES[part]
        if not any(fact.kind == "preference" and core in fact.text for fact in facts_of([said])[0])
    ]

    assert len(missed) <= 0.1 * len(STATES[part]), missed


@pytest.mark.parametrize("part", PARTS)
def test_small_talk_is_no_fact(part: str) -> None:
    found = [said for said in SMALL_TALK[part] if facts_of([said])[0]]

    assert len(found) <= 0.05 * len(SMALL_TALK[part]), found


@pytest.mark.parametrize(
    ("said", "summary", "is_told"),
    [
        ("I'm allergic to peanuts.", "The user has a peanut allergy.", True),
        ("I'm allergic to peanuts.", "The user asked about peanuts.", False),
        ("I no longer eat meat.", "Customer is vegetarian now.", True),
        ("I no longer eat meat.", "They spoke about meat.", False),
        ("My sister can't stand coriander.", "The user's sister dislikes coriander.", True),
        ("I prefer aisle seats.", "Preferences: aisle seats.", True),
        ("I prefer aisle seats.", "They spoke about travel.", False),
        ("Never call me before noon.", "No calls before noon.", True),
    ],
)
def test_a_state_is_told_in_other_words_only_with_its_sense(said: str, summary: str, is_told: bool) -> None:
    [[fact]] = facts_of([said])

    assert (fact in KnownFacts([summary])) == is_told


@pytest.mark.parametrize("part", PARTS)
def test_a_question_in_other_words_is_found(part: str) -> None:
    missed: list[Asked] = []
    wrong: list[Asked] = []
    for asked in QUESTIONS[part]:
        made = compacted(
            Talk([asked.said, asked.beside], []), SUMMARISERS[-1], random.Random(0), ("Thanks.", asked.question)
        )
        losses = lab.lost(made.run, -2)
        named = {loss.sentence: loss.asked_later for loss in losses if loss.asked_later is not None}
        if named.get(asked.said) != 4:
            missed.append(asked)
        if asked.beside in named:
            wrong.append(asked)

    assert len(missed) <= 0.25 * len(QUESTIONS[part]), missed
    assert len(wrong) <= 0.1 * len(QUESTIONS[part]), wrong


def test_the_call_that_answers_the_question_needed_the_fact() -> None:
    talked = Talk(["My order is A17-B.", "I live near the harbour."], [])
    run = compacted(talked, SUMMARISERS[-1], random.Random(0), ("Thanks.", "Which purchase was mine?")).run

    [loss] = [loss for loss in lab.lost(run, 2) if loss.fact == "A17-B"]

    assert (loss.asked_later, loss.needed_by) == (4, 3)
    assert lab.lost(run, 2).to_frame().set_index("fact").needed_by["A17-B"] == 3


def test_a_call_that_looks_a_fact_up_again_needed_it() -> None:
    def find(name: str) -> str:
        """Find an order."""
        return f"Order of {name}: QX-7001, {'nothing else is known of it. ' * 40}"

    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="scripted", tools=[nn.tool(find)]),
        memory=[nn.tool_result_clearing(threshold=200, keep=0, clear_at_least=1)],
    )
    calls = [CallTool("find", name="Ines"), "Done.", "Sure.", CallTool("find", name="Ines"), "QX-7001."]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(calls))
    run = nn.record(harness)

    async def play() -> None:
        for text in ("Look for it.", "Thanks.", "Once more please."):
            await harness.execute(text, thread_id="t")

    asyncio.run(play())
    [loss] = [loss for loss in lab.lost(run, 2) if loss.fact == "QX-7001"]

    assert (loss.reason, loss.needed_by) == ("compacted", 3)


def test_the_summaries_of_an_own_agent_are_compared_as_well() -> None:
    rng = random.Random(3)
    turns = [turn for _ in range(4) for turn in talk(rng, STATES["FITTED"]).turns]

    def write(request: nn.ModelRequest) -> str:
        lines = item_text(request.items[0]).removeprefix("Summary of what came before: ").split("\n")
        return "\n".join([line for line in lines if "euros" in line])

    policy = nn.ProjectionPolicy(token_budget=700, response_reserve=0, overflow="summarize", overflow_model="writer")
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), projection=policy)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel({"scripted": ["Noted."] * len(turns), "writer": write}))
    run = nn.record(harness)

    async def play() -> None:
        for text in turns:
            await harness.execute(text, thread_id="t")

    asyncio.run(play())
    losses = lab.lost(run, -1)
    table = lab.survival(run).set_index("kind")

    [told] = losses.retellings
    assert {loss.reason for loss in losses} == {"compacted"}
    assert not any(loss.fact in told.text for loss in losses)
    assert table.rate["number"] == 1
    assert table.rate["path"] == table.rate["command"] == 0
    assert table.low.isna().all()


def compaction(**fields: object) -> nn.Run:
    where = Where("t1", "e1", 1)
    said = [input_message(text) for text in ("My order is A17-B.", "My sister lives in Graz.")]
    return nn.Run(
        events=[
            ItemsAppended(where, 0.0, 0, tuple(said), "user"),
            ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok"),
            ContextCompacted(where, 0.0, "other", **fields),  # type: ignore[arg-type]
            ModelCalled(where, 0.0, 1, "m", "agent", 1.0, "ok"),
        ]
    )


def test_of_a_compaction_that_nobody_can_read_nothing_is_named() -> None:
    for run in (compaction(opaque=True), compaction(items_removed=1)):
        losses = lab.lost(run, -1)

        assert losses == ()
        assert losses.unknown == 1
        assert "unreadable" in repr(losses)
        assert lab.lost(run, 0).unknown == 0
        table = lab.survival([run])
        assert table.empty
        assert table.attrs == {"runs": 0, "unknown": 1}


def test_what_a_readable_summary_left_out_of_an_unreadable_one_is_lost() -> None:
    run = compaction(opaque=True)
    where = Where("t1", "e1", 1)
    summary = ContextCompacted(where, 0.0, "other", items=(input_message("Order A17-B."),))
    later = ModelCalled(where, 0.0, 2, "m", "agent", 1.0, "ok")

    losses = lab.lost(nn.Run(events=[*run.events, summary, later]), -1)

    assert [loss.fact for loss in losses] == ["Graz"]
    assert losses.unknown == 0


def test_a_fact_is_lost_where_one_of_several_summaries_lost_it() -> None:
    where = Where("t1", "e1", 1)
    first = ContextCompacted(where, 0.0, "other", items=(input_message("Order A17-B, and nothing else."),))
    again = ItemsAppended(where, 0.0, 2, (input_message("Graz it is."),), "user")
    second = ContextCompacted(where, 0.0, "other", items=(input_message("A17-B, Graz."),))

    table = lab.survival(nn.Run(events=[*compaction(items=()).events[:2], first, again, second])).set_index("kind")

    assert (table.n["id"], table.of["id"]) == (1, 1)
    assert (table.n["name"], table.of["name"]) == (0, 1)


def test_system_messages_stay_and_other_threads_are_other_logs() -> None:
    where, other = Where("t1", "e1", 1), Where("t2", "e1", 1)
    system = input_message("Call the desk under +49 30 1234567.", "system")
    run = nn.Run(
        events=[
            ItemsAppended(where, 0.0, 0, (system, input_message("My order is A17-B.")), "user"),
            ItemsAppended(other, 0.0, 0, (input_message("My order is B22-C."),), "user"),
            ContextCompacted(where, 0.0, "other", items=(input_message("They talked."),)),
            ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok"),
            ModelCalled(other, 0.0, 0, "m", "agent", 1.0, "ok"),
        ]
    )

    assert [loss.fact for loss in lab.lost(run, 0)] == ["A17-B"]
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.lost(run, 1)
    assert caught.value.code == "NOT_RECORDED"


def test_imported_sessions_are_read_with_their_summaries(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Plan it. The list is in docs/plan_7.md, my seat is always at the window."},
        {"role": "assistant", "content": [{"type": "text", "text": "I will run `make plan-3` later."}]},
        {"role": "user", "content": "Read the guide."},
        {
            "role": "assistant",
            "content": [
                {"type": "compaction", "content": "The user plans something; see docs/plan_7.md."},
                {"type": "text", "text": "Done."},
            ],
        },
        {"role": "user", "content": "Which command did you name?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I do not know."}]},
    ]
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(messages))

    losses = lab.lost(nn.import_run(path), -1)

    assert [(loss.kind, loss.fact, loss.asked_later) for loss in losses] == [("command", "make plan-3", 3)]
    assert lab.survival(nn.import_runs(path)).set_index("kind").n.to_dict() == {"path": 1, "command": 0}


def test_what_is_no_run_is_refused() -> None:
    for given in (7, ["a run"]):
        with pytest.raises(nn.NoeticConfigError) as caught:
            lab.survival(given)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_RUNS"
    assert lab.survival([]).empty


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("It is in /etc/desk/main.yaml.", "path", "/etc/desk/main.yaml"),
        ("See src/app/core.py:42, please", "path", "src/app/core.py"),
        ("Open C:\\Users\\ines\\notes.txt now", "path", "C:\\Users\\ines\\notes.txt"),
        ("Then git push --force origin main, it works", "command", "git push --force origin main"),
        ("$ cargo test --all", "command", "cargo test --all"),
        ("```sh\nls -la\n```", "command", "ls -la"),
        ('{"command": "cat prices.csv | head", "why": "look"}', "command", "cat prices.csv | head"),
    ],
)
def test_paths_and_commands_are_facts(said: str, kind: str, text: str) -> None:
    assert (kind, text) in [(fact.kind, fact.text) for fact in facts_of([said])[0]]


@pytest.mark.parametrize("said", ["he/she and/or km/h", "Node.js is nice, e.g. here", "make it so", "find the time"])
def test_words_with_strokes_and_points_are_neither(said: str) -> None:
    assert not [fact for fact in facts_of([said])[0] if fact.kind in ("path", "command")]


def test_likes_are_those_of_people_and_not_of_tools() -> None:
    where = Where("t1", "e1", 1)
    page = function_call_output("c1", "I'm allergic to peanuts.")
    items = (input_message("Read it."), function_call("read", "{}", "c1"), page)
    run = nn.Run(
        events=[
            ItemsAppended(where, 0.0, 0, items, "user"),
            ContextCompacted(where, 0.0, "other", items=(input_message("They talked."),)),
            ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok"),
        ]
    )

    assert lab.lost(run, 0) == ()
