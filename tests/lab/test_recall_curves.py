"""Recall by age, position and length, and the contribution of each layer to it."""

from __future__ import annotations

import math
from typing import Any

import pandas
import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import assistant_message, input_message, item_tokens
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question


@pytest.fixture(scope="module")
def table() -> pandas.DataFrame:
    sets: dict[str, Any] = {"plain": [], "keywords": lambda: nn.hybrid_recall(False)}
    return lab.memory_bench(sets, lab.made_dialogues(8), budgets=[800])


def test_history_forgets_what_is_old_and_recall_does_not(table: pandas.DataFrame) -> None:
    curves = lab.recall_curve(table, bins=3).set_index("layers")

    plain, keywords = curves.loc["plain"], curves.loc["keywords"]
    assert plain.age.is_monotonic_increasing
    assert plain.recall.iloc[0] > plain.recall.iloc[-1] == 0.0
    assert keywords.recall.min() > 0.6
    assert plain.questions.sum() == table.questions[1]
    assert (curves.low <= curves.recall).all()


@pytest.mark.parametrize("by", ["age", "age_tokens", "position", "length"])
def test_groups_together_are_the_row_of_the_table(by: str, table: pandas.DataFrame) -> None:
    for (layers, _), curve in lab.recall_curve(table, by=by, rung="owned").groupby(["layers", "budget"]):
        row = table[(table.layers == layers) & (table.rung == "owned")].iloc[0]
        assert (curve.recall * curve.questions).sum() / curve.questions.sum() == pytest.approx(row.recall)
        assert len(curve) <= 8


def test_filler_puts_evidence_out_of_the_history_of_one_session() -> None:
    short = lab.made_dialogues(3)
    long = lab.with_filler(short, 8_000)

    for one, other in zip(short, long, strict=True):
        assert sum(item_tokens(item) for session in other.sessions for item in session) >= 8_000
        assert one.questions == other.questions
        assert (other.sessions[0], other.sessions[-1]) == (one.sessions[0], one.sessions[-1])
    assert lab.with_filler(short, 10) == short
    tables = [lab.memory_bench({"k": nn.hybrid_recall(False)}, some, budgets=[800]) for some in (short, long)]
    lengths = [lab.recall_curve(one, by="length", bins=1).length[0] for one in tables]
    assert lengths[0] < 5_000 < 8_000 <= lengths[1]


def test_shares_sum_to_what_all_layers_add() -> None:
    layers = {"window": nn.history_window(2), "keywords": nn.hybrid_recall(False), "episodes": nn.episodic_memory()}

    shares = lab.layer_shares(layers, lab.made_dialogues(3), budget=600, rung="answerable")

    recall = shares.attrs["recall"]
    assert len(recall) == 8
    assert shares.shapley.sum() == pytest.approx(recall["episodes + keywords + window"] - recall[""])
    by_name = shares.set_index("layer")
    assert by_name.alone["keywords"] == pytest.approx(recall["keywords"] - recall[""])
    assert by_name.left_out["keywords"] == pytest.approx(
        recall["episodes + keywords + window"] - recall["episodes + window"]
    )
    assert by_name.shapley.idxmax() == "keywords"


def told(name: str, *sessions: list[str], ask: list[tuple[str, str]]) -> Dialogue:
    """Return a dialogue with an answer to each user message, and questions about values and their messages."""
    said = [[(f"{name}-{number}-{at}", text) for at, text in enumerate(texts)] for number, texts in enumerate(sessions)]
    place = {text: item for session in said for item, text in session}
    return Dialogue(
        name,
        tuple(
            tuple(
                one
                for item, text in session
                for one in (input_message(text, item_id=item), assistant_message("Fine.", item_id=f"{item}-a"))
            )
            for session in said
        ),
        tuple(Question("Which code, badge or shelf?", (Evidence(place[text], value),)) for text, value in ask),
    )


CODE, BADGE, SHELF = "The code is A17-B.", "The badge is C99-D.", "The shelf is E55-F."


def test_a_window_of_one_turn_knows_the_last_turn_whatever_was_asked_before() -> None:
    asked = [(CODE, "A17-B"), (BADGE, "C99-D"), (SHELF, "E55-F")]
    window = {"window": nn.history_window(3)}  # including the question
    for order in (asked, asked[::-1]):
        table = lab.memory_bench(window, [told("d", [CODE, BADGE, SHELF], ask=order)], budgets=[9_000])
        by_age = lab.recall_curve(table, bins=3)
        by_place = lab.recall_curve(table, by="position", bins=3)

        assert by_age[["age", "recall"]].to_numpy().tolist() == [[1.0, 1.0], [2.0, 0.0], [3.0, 0.0]]
        assert by_place.recall.tolist() == [0.0, 0.0, 1.0]
        assert by_place.position[0] == 0.0


def test_filler_pushes_out_what_a_layer_of_few_entries_kept() -> None:
    short = told("d", [CODE], ["Hello."], ask=[(CODE, "A17-B")])
    few = {"few": lambda: nn.hybrid_recall(False, max_entries=6), "many": lambda: nn.hybrid_recall(False)}
    found = {tokens: lab.memory_bench(few, lab.with_filler([short], tokens), budgets=[9_000]) for tokens in (0, 1_000)}
    shares = {
        (layers, tokens): lab.recall_curve(table[table.layers == layers], by="length", bins=1)
        .set_index("layers")
        .recall[layers]
        for tokens, table in found.items()
        for layers in few
    }
    assert shares == {("few", 0): 1.0, ("many", 0): 1.0, ("few", 1_000): 0.0, ("many", 1_000): 1.0}


def test_shares_of_two_notes_are_those_computed_by_hand() -> None:
    one = told("d", [CODE, BADGE], ["Hello."], ask=[(CODE, "A17-B"), (BADGE, "C99-D")])
    # Nothing without notes, half with the first, all with the second, all with both.
    notes = {"first": nn.static_content("A17-B", id="first"), "second": nn.static_content("A17-B C99-D", id="second")}

    shares = lab.layer_shares(notes, [one], budget=9_000)

    assert shares.to_numpy().tolist() == [["first", 0.5, 0.0, 0.25], ["second", 1.0, 0.5, 0.75]]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda table: lab.recall_curve(pandas.DataFrame()), "INVALID_FRAME"),
        (lambda table: lab.recall_curve(table, by="colour"), "UNKNOWN_AXIS"),
        (lambda table: lab.recall_curve(table, rung="top"), "INVALID_RUNG"),
        (lambda table: lab.recall_curve(table, bins=0), "INVALID_BINS"),
        (lambda table: lab.layer_shares({}, budget=5), "INVALID_LAYERS"),
        (lambda table: lab.layer_shares({str(n): [] for n in range(7)}, budget=5), "INVALID_LAYERS"),
        (lambda table: lab.layer_shares({"a": []}, budget=5, rung="top"), "INVALID_RUNG"),
        (lambda table: lab.with_filler(lab.made_dialogues(1), -1), "INVALID_FILLER"),
        (lambda table: lab.with_filler(lab.made_dialogues(1), math.inf), "INVALID_FILLER"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused(call: Any, code: str, table: pandas.DataFrame) -> None:
    with pytest.raises(NoeticConfigError, match=code):
        call(table)
