"""The table of a collection: rows, search, filter, order and selection, and the workbench for a run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.interop._collection import index_file
from noetic_nb.interop._collection.index_file import RunIndex
from noetic_nb.lab import datasets
from noetic_nb.widgets import Runs
from noetic_nb.widgets._runs.runs import PAGE, line_of
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS
from tests.widgets.rows import texts
from tests.widgets.test_hostile_texts import check

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


def talk(text: str, **meta: Any) -> nn.Run:
    """Return a run of one turn."""
    said = [{"role": "user", "content": text}, {"role": "assistant", "content": f"About {text}."}]
    return nn.Run.from_messages(said, meta=meta)


def many(count: int) -> nn.RunCollection:
    """Return a collection of numbered runs; every third one failed."""
    return nn.open_runs([talk(f"order {at}", outcome=at % 3 > 0, task_id=f"t{at:03}") for at in range(count)])


def ask(view: Runs, **request: Any) -> dict[str, Any]:
    """Send a page's request; returns the answer."""
    page = {"what": "page", "text": "", "where": "", "sort": "", "descending": False, "start": 0}
    return view._answer(request if "do" in request else page | request)


def names(answer: dict[str, Any]) -> list[str]:
    return [texts(row)[1] for row in answer["data"]["rows"]]


def test_a_run_is_one_line_of_the_text_form_whatever_its_first_message() -> None:
    with Runs([talk("Where is\nmy parcel?"), talk("Thanks.")]) as view:
        lines = view.to_text().splitlines()

    assert [line.partition("  model")[0] for line in lines[1:]] == ["  Where is my parcel?", "  Thanks."]


def test_a_row_says_what_the_facts_of_its_run_say(tmp_path: Path) -> None:
    datasets.airline()[0].save(tmp_path / "run.jsonl.gz")
    run = nn.load_run(tmp_path / "run.jsonl.gz")
    run.label("verdict", "wrong", by="ann")
    run.label("tone", "curt", by="ann")
    run.label("tone", "polite", by="bob")
    runs = nn.open_runs(tmp_path)
    (facts,) = runs.rows()

    with Runs(runs) as view:
        (row,) = view.snapshot["rows"]
        cells = dict(zip([name for _, name, _ in view.snapshot["columns"]], texts(row)[1:], strict=True))

    assert cells["Tokens"] == f"{facts['tokens']:,}"
    assert cells["Turns"] == str(facts["turns"])
    assert cells["Tool calls"].split(",")[0] == str(facts["tool_calls"])
    assert cells["Outcome"] == {True: "good", False: "failed", None: ""}[facts["outcome"]]
    assert cells["Labels"] == "tone: raters differ, verdict: wrong"
    assert f'<path d="{line_of(facts["context"])}"' in row["html"]
    assert f"at most {max(facts['context']):,.0f} tokens" in row["html"]


@pytest.mark.parametrize("points", [[3.0], [0, 1e-6], [1e12, 5, 7.5], list(range(32))])
def test_a_small_picture_stays_in_its_frame(points: list[float]) -> None:
    places = [tuple(map(float, each.split())) for each in line_of(points)[1:].split("L")]

    assert (places[0][0], places[-1][0]) == (0, 72)
    assert all(1 <= y <= 15 for _, y in places)
    assert min(y for _, y in places) == 1
    assert line_of([]) == line_of([0, 0]) == ""


def test_pages_searches_filters_and_orders_are_those_of_the_collection() -> None:
    runs = many(2 * PAGE + 5)
    with Runs(runs) as view:
        assert len(view.snapshot["rows"]) == PAGE
        assert names(ask(view, start=2 * PAGE)) == [f"order {at}" for at in range(2 * PAGE, 2 * PAGE + 5)]
        assert names(ask(view, start=10**9)) == names(ask(view, start=2 * PAGE))

        found = ask(view, text="order", where="outcome == false", sort="task", descending=True, start=0)

        assert found["data"]["matched"] == len(runs.where("outcome == false"))
        assert names(found)[:2] == ["order 102", "order 99"]
        assert list(view.to_frame()["run_id"]) == [run.run_id for run in view.shown]
        rows = list(csv.DictReader(io.StringIO(view.to_csv())))
        assert [row["query"] for row in rows] == [run.turns[0].query for run in view.shown]
        assert view.to_text().startswith("Runs. 35 of 105 runs, search: order, where: outcome == false\n")

        assert ask(view, text="nowhere")["data"] | {"rows": []} == ask(view, text="nowhere")["data"]
        assert "0 of 105 runs" in view.to_html()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"where": "outcom == true"}, "Did you mean 'outcome'"),
        ({"where": "turns +"}, "cannot be read"),
        ({"text": '"'}, "contains no word"),
        ({"sort": "meta"}, "no order"),
        ({"start": "x"}, "does not know"),
    ],
)
def test_a_fault_is_a_sentence_and_changes_nothing(wrong: dict[str, Any], said: str) -> None:
    runs = nn.open_runs([talk("zebra"), datasets.airline()[0]])
    with Runs(runs) as view:
        before = ask(view, text="zebra")

        answer = ask(view, **wrong)

        assert said in answer["fault"]
        assert ask(view, text="zebra") == before
        assert len(view.shown) == 1


def test_a_selection_is_a_collection_and_stays_while_others_are_shown() -> None:
    runs = many(PAGE + 1)
    with Runs(runs) as view:
        assert len(view.selected) == 0
        ask(view, do="select", rows=[PAGE, 4], on=True)
        ask(view, text="7")
        answer = ask(view, do="select", rows="all", on=True)
        assert [row["chosen"] for row in answer["data"]["rows"]] == [True]
        ask(view, do="select", rows=[4, -1, True, "x", 10**9], on=False)

        assert isinstance(view.selected, nn.RunCollection)
        assert [run.turns[0].query for run in view.selected] == ["order 7", f"order {PAGE}"]
        assert len(view.selected.where("outcome == true")) == 2

        ask(view, do="select", rows="all", on=False)
        assert len(view.selected) == 0


def test_a_row_opens_a_workbench_on_its_run_and_one_at_a_time() -> None:
    with Runs(many(3)) as view:
        answer = ask(view, do="open", at=2)
        first = view.bench
        assert first is not None
        assert answer["data"]["bench"] == first.model_id
        assert first.run.turns[0].query == "order 2"

        second = view.open_run(0)
        assert second.run.turns[0].query == "order 0"
        assert first.comm is None
        assert view.snapshot["bench"] == second.model_id

        ask(view, do="open", at=None)
        assert view.bench is None
        assert second.comm is None
        third = view.open_run(1)
        for wrong in (-1, 3, True):
            assert "no such run" in ask(view, do="open", at=wrong)["fault"]
            with pytest.raises(nn.NoeticConfigError, match="INVALID_OPTION"):
                view.open_run(wrong)
    assert third.comm is None


def test_a_run_that_cannot_be_read_any_more_is_a_fault_in_the_page(tmp_path: Path) -> None:
    talk("gone").save(tmp_path / "run.jsonl.gz")
    with Runs(tmp_path) as view:
        (tmp_path / "run.jsonl.gz").unlink()

        assert "run.jsonl.gz" in ask(view, do="open", at=0)["fault"]
        assert view.bench is None


def test_the_static_form_has_the_page_with_its_pictures() -> None:
    with Runs(many(PAGE + 2)) as view:
        html = view.to_html()
        assert html.count("<tr>") == 1 + PAGE
        assert "rows 1 to 50" in html
        assert "to_frame()" in html
    with Runs(datasets.airline()[:1]) as view:
        assert view.to_html().count("<path") == view.snapshot["rows"][0]["html"].count("<path")
        assert view.to_html().count("<path") >= 1
    with Runs([]) as view:
        assert "There is no run" in view.to_html()
        assert "There is no run" in view.to_text()


@matrix("text", HOSTILE_TEXTS, keep=12, start=6)
def test_hostile_names_stay_text(text: str) -> None:
    run = nn.Run.from_messages([{"role": "user", "content": text}], meta={"task_id": text, "model": text})
    run.label("note", text or "none", by="ann")
    with Runs([run]) as view:
        ask(view, text=f"note {text}", where=json.dumps(text) + " != task")
        check(view)


def test_secrets_are_redacted_in_every_form() -> None:
    run = nn.Run.from_messages([{"role": "user", "content": f"key {SECRET}"}], meta={"task_id": SECRET})
    run.label("note", SECRET, by="ann")
    with Runs([run]) as view:
        ask(view, text="key")
        forms = [view.to_html(), view.to_text(), view.to_csv(), view.to_page(), str(view.snapshot)]
    assert not [form for form in forms if SECRET in form]


@pytest.mark.parametrize("few", [0, 1_000])
def test_facts_of_a_part_are_read_for_it_alone(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, found = many(20), []
    monkeypatch.setattr(index_file, "_FEW", few)
    inner = RunIndex.facts
    monkeypatch.setattr(RunIndex, "facts", lambda self, keys: (found.append(row) or row for row in inner(self, keys)))

    part = runs[5:8].rows()

    assert part == runs.rows()[5:8]
    assert len(found) == 3 + 20


def test_a_rater_labels_runs_by_keys_and_does_not_see_the_labels_of_others(tmp_path: Path) -> None:
    book = {"verdict": {"values": ["right", "wrong"], "of": "run"}}
    for at in range(3):
        talk(f"order {at}", codebook=book).save(tmp_path / f"{at}.jsonl.gz")
    nn.load_run(tmp_path / "0.jsonl.gz").label("verdict", "wrong", by="bob")
    with Runs(nn.open_runs(tmp_path), by="ann") as view:
        places = [row["at"] for row in view.snapshot["rows"]]
        assert [texts(row)[-1] for row in view.snapshot["rows"]] == [""] * 3

        answer = ask(view, do="label", at=places[0], name=0, value=0)
        seen = texts(answer["data"]["rows"][0])[-1]
        refused = ask(view, do="label", at=places[0], name=0, value=7)
        taken = texts(ask(view, do="label", at=places[0], name=0, value=None)["data"]["rows"][0])[-1]

    assert sorted(seen.split(", ")) == ["verdict: right", "verdict: wrong (bob)"]  # both raters are done with this run
    assert "The codebook has no such value" in refused["fault"]
    assert "right" not in taken
    again = {
        tuple(nn.load_run(tmp_path / f"{at}.jsonl.gz").labels[["by", "value"]].itertuples(index=False))
        for at in range(3)
    }
    assert again == {(("bob", "wrong"),), ()}


def test_a_rater_without_a_codebook_is_refused() -> None:
    with pytest.raises(nn.errors.NoeticConfigError, match="NO_CODEBOOK"):
        Runs(many(2), by="ann")
