"""Recall by age, position and length, and the part of each layer in it."""

from __future__ import annotations

import math
from typing import Any

import pandas
import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_tokens


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
