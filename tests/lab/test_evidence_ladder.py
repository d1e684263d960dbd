"""The rungs of evidence: words alone reach the lower two, short notes reach all; the overlap only changes questions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import input_message, item_text
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question
from noetic_nb.lab._recall_quality.evidence_ladder import RUNGS, Ladder, SentTexts
from noetic_nb.lab._recall_quality.synthetic_dialogues import NAMES, SUBJECTS
from noetic_nb.lab._recall_quality.word_senses import FoldedTexts, folded
from noetic_nb.layers._helpers.embedding import words_of
from tests.matrix import several

ROOM = {"min": 0, "max": 100_000}


def parts_of(one: Dialogue, *, outdated: bool = False) -> list[Evidence]:
    found = [part for question in one.questions for part in (*question.needs, *question.evidence)]
    gone = [part for question in one.questions for part in question.outdated] if outdated else []
    return list(dict.fromkeys([*gone, *found]))


def recall_of(dialogues: Iterable[Dialogue], told: Callable[[Dialogue], str]) -> dict[str, float]:
    """Return the mean recall by rung if only a text is sent besides the last two messages."""
    found: dict[str, list[float]] = {rung: [] for rung in RUNGS}
    for one in dialogues:
        layers = [nn.history_window(2), nn.static_content(told(one), budget=ROOM)]
        table = lab.memory_bench({"told": layers}, [one], budgets=[200_000]).set_index("rung")
        for rung in RUNGS:
            found[rung].append(float(table.recall[rung]))
    return {rung: math.fsum(shares) / len(shares) for rung, shares in found.items()}


def words(one: Dialogue) -> list[str]:
    said = [item_text(item) for session in one.sessions for item in session]
    return list(dict.fromkeys(word for text in said for word in re.findall(r"[\w-]+", text)))


def owners(one: Dialogue) -> list[str]:
    return list(dict.fromkeys(part.owner[0] for part in parts_of(one) if part.owner))


def unowned(one: Dialogue) -> list[str]:
    names = {form for part in parts_of(one, outdated=True) for name in part.owner for form in folded(name).split()}
    return [word for word in words(one) if not set(folded(word).split()) & names]


CHEATS: dict[str, Callable[[Dialogue], str]] = {
    "words in a line": lambda one: " ".join(unowned(one)),
    "words in lines": lambda one: "\n".join(unowned(one)),
    "sorted, with names": lambda one: " ".join(sorted(words(one))),
    "as they were said, with names": lambda one: " ".join(words(one)),
    "values": lambda one: ", ".join([part.value or "" for part in parts_of(one, outdated=True)]),
    "values with their attributes": lambda one: "\n".join(
        [f"{part.attribute[0]} {part.value}." for part in parts_of(one, outdated=True)]
    ),
    "every value of everybody": lambda one: "\n".join(
        [f"{who}: {part.attribute[0]} {part.value}" for who, part in product(owners(one), parts_of(one))]
    ),
    "all words under every name": lambda one: "\n".join([f"# {who}\n{' '.join(unowned(one))}" for who in owners(one)]),
}


@pytest.mark.matrix
@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_words_without_owners_do_not_reach_the_upper_rungs(cheat: str, overlap: float) -> None:
    found = recall_of(lab.made_dialogues(several(3, 5), overlap=overlap), CHEATS[cheat])

    assert found["value"] >= 0.75  # a date is two words
    assert found["owned"] <= 0.1
    assert found["answerable"] <= 0.1


NOTES: dict[str, Callable[[Evidence], str]] = {
    "sentence": lambda part: f"The {part.attribute[0]} of {part.owner[0]} is {part.value}.",
    "colon": lambda part: f"- {part.owner[0]}: {part.attribute[0]} = {part.value}",
    "heading": lambda part: f"## {part.owner[0]}\n- {part.attribute[0]}: {part.value}",
    "user's": lambda part: f"{part.attribute[0].upper()} — {part.owner[0]}'s — {part.value}",
}


@pytest.mark.matrix
@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_perfect_notes_reach_every_rung_but_the_first(note: str, overlap: float) -> None:
    found = recall_of(
        lab.made_dialogues(several(3, 5), overlap=overlap),
        lambda one: "\n".join([NOTES[note](part) for part in parts_of(one)]),
    )

    assert min(found["value"], found["owned"], found["answerable"]) >= 0.95
    assert found["verbatim"] <= 0.1


def test_a_rung_nobody_has_marked_is_not_a_number() -> None:
    talk = (input_message("My cat is grey.", item_id="a"), input_message("It is late.", item_id="b"))
    questions = (Question("Cat?", (Evidence("a"),)), Question("Gone?", ()))

    table = lab.memory_bench({"plain": []}, [Dialogue("d", (talk,), questions)], budgets=[1_000]).set_index("rung")

    assert table.recall["verbatim"] == 1.0
    assert table.recall[["value", "owned", "answerable"]].isna().all()
    assert table.questions.tolist() == [1, 0, 0, 0]


def part(value: str, who: str, item: str = "a") -> Evidence:
    return Evidence(item, value, (who,), ("locker",))


def places(texts: str, question: Question) -> dict[str, float]:
    one = Dialogue("d", ((input_message("x", item_id="a"),),), (question, Question("?", (part("99", "Bo"),))))
    return Ladder(one, lambda _: "x").scores(question, SentTexts([texts]))


@pytest.mark.parametrize(
    ("text", "owned"),
    [
        ("Ann has the locker 17.", 1.0),
        ("Ann has the locker. 17 is a number.", 0.0),
        ("Bo has the locker 17.", 0.0),
        ("Ann and Bo have the locker 17.", 0.0),
        ("The locker is 17.", 0.0),
        ("Ann has 17.", 0.0),
        ("Ann:\n\nThe locker is 17.", 0.0),
        ("Ann:\nThe locker is 17.", 1.0),
        ("Ann has the locker 17. Bo has the locker 17.", 0.0),
        ("Ann has the locker 117.", 0.0),
    ],
)
def test_a_statement_says_a_value_of_its_owner(text: str, owned: float) -> None:
    assert places(text, Question("?", (part("17", "Ann"),)))["owned"] == owned


@pytest.mark.parametrize(
    ("text", "answerable"),
    [
        ("Ann has the locker 18.", 1.0),
        ("Ann has the locker 17.\nAnn has the locker 18.", 1.0),
        ("Ann has the locker 18.\nAnn has the locker 17.", 0.0),
        ("Ann has the locker 17.", 0.0),
    ],
)
def test_what_is_outdated_may_stand_before_what_holds(text: str, answerable: float) -> None:
    question = Question("?", (part("18", "Ann"),), "", (part("17", "Ann"),))

    assert places(text, question)["answerable"] == answerable


def test_all_parts_must_be_there() -> None:
    question = Question("?", (part("17", "Ann"), part("18", "Ann")))

    found = places("Ann has the locker 17.", question)

    assert (found["value"], found["owned"], found["answerable"]) == (0.5, 0.5, 0.0)
    needed = Question(
        "?",
        (Evidence("a", "17", ("Ann", "my aunt"), ("locker",)),),
        needs=(Evidence("a", "Ann", ("my aunt",), ("aunt",)),),
    )
    assert places("Ann has the locker 17.", needed)["answerable"] == 0.0
    assert places("My aunt is Ann. Ann has the locker 17.", needed)["answerable"] == 1.0


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one.attribute[0])
def test_the_near_question_shares_words_with_each_statement_and_the_far_one_none(subject: Any) -> None:
    near, far = [set(words_of(form.format(who=""))) for form in (subject.near, subject.far)]
    for form in (*subject.told, *subject.changed, *subject.disputed):
        statement = set(words_of(form.format(who="", value="")))
        assert statement & near
        assert not statement & far
        assert statement & set(subject.attribute)


@given(seed=st.integers(0, 10**6))
def test_made_dialogues_say_what_they_ask_for(seed: int) -> None:
    for near, far in zip(lab.made_dialogues(2, seed=seed), lab.made_dialogues(2, seed=seed, overlap=0), strict=True):
        items = [item for session in near.sessions for item in session]
        texts = {str(item["id"]): item_text(item) for item in items}
        order = {item: at for at, item in enumerate(texts)}
        assert near.sessions == far.sessions
        for question, other in zip(near.questions, far.questions, strict=True):
            assert (question.evidence, question.outdated, question.kind) == (other.evidence, other.outdated, other.kind)
            assert bool(question.evidence) == (question.kind not in ("deleted", "unanswerable"))
            assert bool(question.outdated) == (question.kind in ("changed", "deleted"))
            for said in (*question.evidence, *question.outdated):
                assert said.value is not None
                assert [item for item, text in texts.items() if FoldedTexts([text]).has(said.value)] == [said.item]
                assert not FoldedTexts([question.text]).has(said.value)
                assert said.item is not None
                told = texts[said.item]
                if question.kind != "looked up":  # a page of a register is long
                    assert not set(words_of(told)) & set(words_of(other.text))
                assert set(words_of(told)) & set(words_of(question.text))
            for old, new in product(question.outdated, question.evidence):
                assert order[str(old.item)] < order[str(new.item)]
            assert bool(other.needs) == bool(question.evidence)
            assert not question.needs


def test_a_dial_between_keeps_the_questions_of_a_smaller_one() -> None:
    ends = [{q.text for one in lab.made_dialogues(9, overlap=at) for q in one.questions} for at in (0, 1)]
    halves = [[q.text for one in lab.made_dialogues(9, overlap=at) for q in one.questions] for at in (0.3, 0.6)]

    near = [[text in ends[1] for text in texts] for texts in halves]
    assert 0 < sum(near[0]) < sum(near[1]) < len(near[1])
    assert all(later for earlier, later in zip(*near, strict=True) if earlier)


def test_kinds_are_chosen() -> None:
    found = lab.made_dialogues(2, kinds=["deleted", "told"])

    assert {question.kind for one in found for question in one.questions} == {"told", "deleted"}
    assert {question.kind for one in lab.made_dialogues(1) for question in one.questions} == {
        "told", "changed", "disputed", "looked up", "deleted", "unanswerable"
    }  # fmt: skip


def test_what_is_asked_for_is_told_of_somebody_else_as_well() -> None:
    for one in lab.made_dialogues(5):
        texts = [item_text(item) for session in one.sessions for item in session]
        for asked in (part for question in one.questions for part in question.evidence):
            about = [text for text in texts if set(words_of(text)) & set(asked.attribute)]
            assert len({who for who in NAMES for text in about if who in text}) >= 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"n": 0}, "INVALID_COUNT"),
        ({"n": True}, "INVALID_COUNT"),
        ({"overlap": 1.5}, "INVALID_OVERLAP"),
        ({"overlap": "1"}, "INVALID_OVERLAP"),
        ({"overlap": math.nan}, "INVALID_OVERLAP"),
        ({"kinds": "told"}, "UNKNOWN_KIND"),
        ({"kinds": []}, "UNKNOWN_KIND"),
        ({"kinds": ["tlod"]}, "UNKNOWN_KIND"),
    ],
    ids=repr,
)
def test_bad_options_are_refused(options: Any, code: str) -> None:
    with pytest.raises(NoeticConfigError, match=code):
        lab.made_dialogues(**options)
