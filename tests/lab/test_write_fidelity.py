"""The texts kept by layers, compared with what was stated."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import assistant_message, input_message
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question
from noetic_nb.layers import observational_memory


def talk(name: str = "d", *said: str) -> Dialogue:
    items = [input_message(text, item_id=f"{name}-{at}") for at, text in enumerate(said)]
    answered = [one for item in items for one in (item, assistant_message("Fine.", item_id=f"{item['id']}-a"))]
    return Dialogue(name, (tuple(answered),), (Question("Hm?", (Evidence(items[0]["id"]),)),))


ORDER, BADGE = "My order is A17-B.", "Please note that the badge is C99-D."


def fidelity(layer: Any, *dialogues: Dialogue) -> Any:
    return lab.write_fidelity({"it": layer}, dialogues or [talk("d", ORDER, BADGE)]).iloc[0]


@pytest.mark.parametrize(
    ("told", "recall", "precision"),
    [
        ("The order is a17 b.", 0.5, 1.0),
        ("The order is A17-B, and the badge C99-D.", 1.0, 1.0),
        ("The order is A17-B, and the badge C99-E.", 0.5, 0.5),
        ("The order is A17-B, the code Q11-X, the key Q12-X.", 0.5, 1 / 3),
        ("- [2026-01-01T12:01:00Z] The order is A17-B.", 0.5, 1.0),
    ],
)
def test_shares_are_those_of_facts_that_were_said_and_kept(told: str, recall: float, precision: float) -> None:
    row = fidelity(nn.static_content(told))

    assert (row.said, row.recall, row.precision) == (2, recall, pytest.approx(precision))


def test_a_layer_keeps_more_than_it_sends() -> None:
    def layer() -> Any:
        return observational_memory(buffer_threshold=1, budget={"min": 0, "max": 8})

    row = fidelity(layer, *[talk(name, ORDER, BADGE) for name in "ab"])

    assert (row.said, row.kept, row.recall, row.precision) == (4, 4, 1.0, 1.0)
    assert 0 < row.recall_low < row.recall_high == 1.0


def test_history_keeps_nothing_and_nothing_has_no_precision() -> None:
    row = fidelity([])

    assert (row.said, row.kept, row.recall) == (2, 0, 0.0)
    assert pandas.isna(row.precision)


@pytest.mark.parametrize(
    ("layers", "dialogues", "code"),
    [({}, None, "INVALID_LAYERS"), ({"a": 5}, None, "INVALID_LAYERS"), ({"a": []}, [], "NO_DIALOGUES")],
)
def test_what_cannot_be_played_is_refused(layers: Any, dialogues: Any, code: str) -> None:
    with pytest.raises(NoeticConfigError) as refused:
        lab.write_fidelity(layers, dialogues)
    assert refused.value.code == code
