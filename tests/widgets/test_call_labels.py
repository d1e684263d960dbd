"""Labels of calls in a transcript, on the kernel side: given, removed, hidden from the other rater."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import datasets
from noetic_nb.runs import Run
from noetic_nb.widgets import Transcript

BOOK = {
    "verdict": {"values": ["right", "wrong"], "of": "call"},
    "count": {"values": [*range(12)]},
    "done": {"values": [True, False], "of": "run"},
}


def judged() -> Run:
    run = datasets.airline_run(26)
    run.meta["codebook"] = BOOK
    return run


def page(view: Transcript, at: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = view.reading.answer({"what": "call", "at": at})["labels"]
    return found


def test_a_page_gives_labels_by_their_places_and_takes_them_back() -> None:
    run = judged()
    with Transcript(run, by="ann") as view:
        names = view.reading.snapshot["labels"]["names"]
        assert [(each["name"], len(each["values"])) for each in names] == [("verdict", 2), ("count", 9)]
        given = view.reading.answer({"what": "label", "at": 3, "name": 0, "value": 1})

        assert given == page(view, 3) == view.reading.answer({"what": "labels", "at": 3})
        assert [each["own"] for each in given] == [1, None]
        assert given[0]["done"] == "1 of 30"
        assert run.labels[["value", "call", "by"]].values.tolist() == [["wrong", 3, "ann"]]
        view.reading.answer({"what": "label", "at": 3, "name": 0, "value": None})
        assert run.labels.empty


def test_labels_of_the_other_rater_are_seen_when_both_are_done() -> None:
    run = judged()
    for call in range(30):
        run.label("verdict", "wrong", call=call, by="bob")
    with Transcript(run, by="ann") as view:
        for call in range(30):
            assert page(view, call)[0]["others"] == []
            view.reading.answer({"what": "label", "at": call, "name": 0, "value": 0})
        assert page(view, 5)[0]["others"] == ["bob: wrong"]


def test_a_rater_needs_a_name_and_a_codebook_for_calls() -> None:
    bare = datasets.airline_run(26)
    other = datasets.airline_run(26)
    other.meta["codebook"] = {"done": BOOK["done"]}
    for run, by in ((bare, "ann"), (other, "ann"), (judged(), " "), (judged(), 3)):
        with pytest.raises(NoeticConfigError) as caught:
            Transcript(run, by=by)  # type: ignore[arg-type]
        assert caught.value.code == "NO_CODEBOOK"


def test_a_transcript_without_a_rater_has_no_labels() -> None:
    run = judged()
    run.label("verdict", "right", call=0, by="bob")
    with Transcript(run) as view:
        assert view.reading.snapshot["labels"] == {"looks": True}
        assert page(view, 0) == []


@pytest.mark.parametrize("last", ["Thanks.", None])
def test_the_step_to_look_at_first_is_named_with_the_call_that_has_it(last: str | None) -> None:
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Hello?"},
    ]
    said += [] if last is None else [{"role": "assistant", "content": last}]
    run = nn.import_run(said, progress=False)
    with Transcript(run) as view:
        found = view.reading.answer({"what": "first"})

    if last is not None:
        assert found["fields"] is None
    else:
        assert found["text"].startswith("no answer: ")
        assert (found["fields"]["item"], found["fields"]["call"]) == (2, 0)
