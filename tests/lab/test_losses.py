"""Facts that were not sent with a call: which are reported, and which turn asks for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.lab._recall_quality.facts import KnownFacts, facts_of
from noetic_nb.lab._recall_quality.losses import Losses, fact_text
from noetic_nb.lab._recall_quality.normal_forms import date_keys, number_keys
from noetic_nb.lab._recall_quality.word_senses import folded
from noetic_nb.runs._requests.recorded_requests import recorded_request
from tests.lab.planted_facts import FITTED, HELD_OUT, Dialogue, with_fillers
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS


def talk(texts: Sequence[str], memory: Sequence[Any] = (), answers: Sequence[str] = (), **options: Any) -> nn.Run:
    """Record an agent that receives some texts, one per turn, and answers briefly."""
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=list(memory), **options)
    replies = [*answers, *["Noted."] * (len(texts) - len(answers))]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies))
    run = nn.record(harness)

    async def play() -> None:
        for text in texts:
            await harness.execute(text, thread_id="t")

    asyncio.run(play())
    return run


def named(losses: Losses, value: str) -> bool:
    return any(value in loss.fact or folded(value) == folded(loss.fact) for loss in losses)


def check_nothing_invented(run: nn.Run, losses: Losses) -> None:
    """Check that every loss is in its item, which was not sent, and in no sent text."""
    request = recorded_request(run, -1)
    shown = {one.position for one in request.items}
    sent = [fact_text(one.item) for one in request.items if one.item is not None]
    known = KnownFacts(sent)
    for loss in losses:
        assert loss.position not in shown
        assert request.log_item(loss.position) is loss.item
        assert loss.fact in fact_text(loss.item) or loss.kind == "number"
        assert not any(folded(loss.fact) == folded(text) for text in sent)
        [facts] = facts_of([loss.fact])
        assert not any(fact in known for fact in facts if fact.kind == loss.kind and fact.text == loss.fact)


@pytest.mark.parametrize("style", [*FITTED, *HELD_OUT], ids=lambda style: style.__name__)
def test_nearly_all_planted_facts_are_named(style: Any) -> None:
    missed, total = [], 0
    for seed in range(12):
        rng = random.Random(seed)
        made: Dialogue = style(rng)
        run = talk(with_fillers(made, rng, 3), [nn.history_window(2)])

        losses = lab.lost(run, -1)

        check_nothing_invented(run, losses)
        total += len(made.planted)
        missed += [(kind, value) for _, kind, value in made.planted if not named(losses, value)]

    assert len(missed) <= 0.05 * total, missed


@given(seed=st.integers(0, 10**6), window=st.integers(2, 12), style=st.sampled_from([*FITTED, *HELD_OUT]))
def test_what_is_still_in_the_window_is_not_lost(seed: int, window: int, style: Any) -> None:
    rng = random.Random(seed)
    made: Dialogue = style(rng)
    run = talk(with_fillers(made, rng, rng.randint(0, 3)), [nn.history_window(window)])

    losses = lab.lost(run, -1)

    check_nothing_invented(run, losses)
    shown = {one.position for one in recorded_request(run, -1).items}
    # A turn is two items: the user's text and the answer.
    for turn, kind, value in made.planted:
        if 2 * (turn - 1) in shown:
            assert not any(loss.fact == value and loss.kind == kind for loss in losses)


@pytest.mark.parametrize("style", [*FITTED, *HELD_OUT], ids=lambda style: style.__name__)
def test_nothing_is_lost_where_everything_is_sent(style: Any) -> None:
    rng = random.Random(5)

    assert lab.lost(talk(with_fillers(style(rng), rng, 4)), -1) == ()


def test_small_talk_has_no_facts() -> None:
    rng = random.Random(1)
    run = talk(with_fillers(Dialogue(), rng, 30), [nn.history_window(2)])

    assert lab.lost(run, -1) == ()


@pytest.mark.parametrize(
    ("said", "summary"),
    [
        ("It cost $1,200.00.", "The price was 1200."),
        ("Es kostet 1.200,00 €.", "The price was $1,200."),
        ("It is due on 2026-03-12.", "Due 12 March 2026."),
        ("Wir sehen uns am 12. März.", "The date is March 12th, 2026."),
        ("Please ask Zoë Müller.", "they asked ZOE MUELLER"),
        ("The order is AB-1234.", "order ab 1234"),
        ("Meet me at 2:30 pm.", "They meet at 14:30."),
        ("We decided to cancel the blue tent today.", "Decided: the blue tent is to be cancelled today."),
        ("المبلغ ١٢٥٠ ريال", "It is 1,250."),
    ],
    ids=["price", "european", "iso", "no-year", "umlaut", "hyphen", "clock", "decision", "digits"],
)
def test_a_fact_that_a_layer_tells_in_another_form_is_not_lost(said: str, summary: str) -> None:
    told = nn.static_content(lambda: summary)

    without = lab.lost(talk([said, *["Thanks."] * 3], [nn.history_window(2)]), -1)
    beside = lab.lost(talk([said, *["Thanks."] * 3], [nn.history_window(2), told]), -1)

    assert without != ()
    assert beside == ()


def test_the_turn_that_asks_is_named() -> None:
    texts = ["My order is A17-B.", "My sister lives in Graz.", "Thanks.", "What was my order number?", "Bye now."]
    run = talk(texts, [nn.history_window(2)])

    assert {loss.fact: loss.asked_later for loss in lab.lost(run, 1)} == {"A17-B": 4}
    assert {loss.fact: loss.asked_later for loss in lab.lost(run, 3)} == {"A17-B": 4, "Graz": None}
    assert {loss.fact: loss.asked_later for loss in lab.lost(run, 4)} == {"A17-B": None, "Graz": None}


@pytest.mark.parametrize(
    ("said", "question", "fact"),
    [
        ("Mein Termin ist am 12. März.", "Wann war mein Termin?", "12. März"),
        ("Dr. Baker treats my knee.", "Who treats my knee?", "Dr. Baker"),
        ("The rent is $950.", "How much is the rent?", "$950"),
        ("Moya sobaka - Рекс, код 4455.", "Какой код?", "4455"),
    ],
    ids=["german", "who", "how-much", "cyrillic"],
)
def test_a_question_is_told_by_its_words(said: str, question: str, fact: str) -> None:
    run = talk([said, "Thanks.", "Sure.", question], [nn.history_window(2)])

    assert next(loss.asked_later for loss in lab.lost(run, -1) if loss.fact == fact) == 4


def test_a_summary_is_compared_with_its_source() -> None:
    def observe(texts: Sequence[str]) -> list[str]:
        return ["Order A17-B, paid 1200, by Bruno Keller."]

    layer = nn.observational_memory(observe, buffer_threshold=5)
    run = talk(["Order A17-B for Anna Novák cost $1,200.00.", *["Thanks."] * 3], [layer, nn.history_window(2)])

    losses = lab.lost(run, -1)

    [told] = losses.retellings
    assert told.origin == "layer:observational-memory"
    assert set(told.kept) == {"A17-B", "$1,200.00"}
    assert told.dropped == ("Anna Novák",)
    assert told.added == ("Bruno Keller",)
    assert [loss.fact for loss in losses] == ["Anna Novák"]


def test_the_summary_of_the_policy_is_compared_with_its_source() -> None:
    policy = nn.ProjectionPolicy(token_budget=400, response_reserve=0, overflow="summarize")
    texts = [
        f"Room {100 + at} belongs to guest G{at}-X, who is a friend of the house and stays a while." for at in range(9)
    ]
    model = nn.ScriptedModel({"scripted": ["Noted."] * 9, "writer": ["Guests G0-X and G1-X stay; so does G99-X."] * 9})
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="scripted"),
        projection=nn.ProjectionPolicy(**{**policy.model_dump(), "overflow_model": "writer"}),
    )
    harness = nn.AgentHarness(config, model=model)
    run = nn.record(harness)

    async def play() -> None:
        for text in texts:
            await harness.execute(text, thread_id="t")

    asyncio.run(play())
    losses = lab.lost(run, -1)

    [told] = losses.retellings
    assert told.origin == "layer:summary"
    assert {"G0-X", "G1-X"} <= set(told.kept)
    assert told.added == ("G99-X",)
    assert "100" in told.dropped
    assert {loss.fact for loss in losses} == set(told.dropped) - {"friend"}


def test_facts_in_data_are_read_field_by_field() -> None:
    [facts] = facts_of(['{"user": {"name": "Sara Doe", "city": "Bergen"}, "ids": ["A-1", "Z9"], "total": 12.50}'])

    assert [(fact.kind, fact.text) for fact in facts] == [
        ("name", "Sara Doe"),
        ("name", "Bergen"),
        ("id", "A-1"),
        ("id", "Z9"),
        ("number", "12.50"),
    ]


@given(st.lists(st.text(max_size=80), max_size=6))
def test_any_text_can_be_read(texts: list[str]) -> None:
    known = KnownFacts(texts)
    for text, facts in zip(texts, facts_of(texts), strict=True):
        for fact in facts:
            assert fact in known, (text, fact)


@pytest.mark.parametrize(
    "text",
    [
        "a-" * 100_000 + "1",
        "x" * 200_000 + "@1",
        "1 000" * 40_000,
        "(" * 100_000 + "1",
        "A. " * 60_000,
        '[1, "' * 40_000,
    ],
    ids=["hyphens", "mail", "groups", "brackets", "initials", "data"],
)
def test_long_texts_of_one_kind_are_read_in_their_length(text: str) -> None:
    # Look-ahead to the end of the text at every position would exceed the time limit of a test.
    [facts] = facts_of([text])
    known = KnownFacts([text])

    assert all(fact in known for fact in facts[:50])


@matrix("text", HOSTILE_TEXTS, keep=12, start=1)
def test_hostile_texts_are_read_and_hide_nothing(text: str) -> None:
    run = talk([text, f"My order is A17-B. {text[:200]}", "Thanks.", "Sure."], [nn.history_window(2)])

    losses = lab.lost(run, -1)

    check_nothing_invented(run, losses)
    assert any("A17-B" in loss.fact for loss in losses)


@given(st.integers(0, 10**9), st.sampled_from([",", ".", "'", "\u202f", " ", ""]))
def test_grouped_numbers_have_one_form(number: int, mark: str) -> None:
    assert number_keys(f"{number:,}".replace(",", mark)) == (str(number),)


@given(st.dates(min_value=date(1970, 1, 1)))
def test_written_dates_have_one_form(day: Any) -> None:
    keys = {date_keys(f"{day:{form}}") for form in ("%Y-%m-%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y")}

    assert len(keys) == 1
    assert day.isoformat() in date_keys(f"{day:%d/%m/%Y}")


def test_a_call_without_its_request_is_refused() -> None:
    run = lab.datasets.airline(1)[0]

    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.lost(run, 0)
    assert caught.value.code == "NOT_RECORDED"
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.lost(run, 999)
    assert caught.value.code == "UNKNOWN_CALL"
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.lost("a run", 0)  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_RUN"


def test_losses_are_a_table() -> None:
    run = talk(["My order is A17-B.", "Thanks.", "Sure."], [nn.history_window(2)])

    table = lab.lost(run, -1).to_frame()

    assert table.columns.tolist() == [
        "fact",
        "kind",
        "position",
        "asked_later",
        "reason",
        "item",
        "sentence",
        "needed_by",
    ]
    assert table.loc[0, "reason"] == "hidden"
    assert table.asked_later.isna().all()
    assert lab.lost(run, 0).to_frame().empty
