"""Labels in the files of other tools: export, import, and files written by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import datasets, load_labels, save_labels
from noetic_nb.runs import Run

FORMATS = ("csv", "openinference", "inspect")


def rows(runs: list[Run]) -> list[list[Any]]:
    frames = [run.labels.astype(object) for run in runs]
    return [row for frame in frames for row in frame.where(frame.notna(), None).values.tolist()]


def labelled() -> list[Run]:
    runs = datasets.airline(3)
    for run in runs[:2]:
        for by, value in (("ann", 'wrong, he said\n"so"'), ("bob", "right")):
            run.label("verdict", value, call=1, by=by)
        run.label("tone", 0.5, turn=1, by="ann")
        run.label("odd", True, item=3, by="ann")
        run.label("count", 3, by="bob")
        run.label("verdict", "wrong", by="consensus")
        run.label("gone", "x", by="ann")
        run.label("gone", None, by="ann")
    return runs


@pytest.mark.parametrize("format", FORMATS)
def test_labels_come_back_as_they_were(tmp_path: Path, format: str) -> None:
    runs, again = labelled(), datasets.airline(3)
    file = save_labels(runs, tmp_path / "labels", format=format)

    assert load_labels(again, file, format=format) == 12
    assert rows(again) == rows(runs)
    assert load_labels(again, file, format=format) == 0


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("value", [np.float64(0.5), np.int64(3), np.bool_(True), np.str_("q"), np.array(2)], ids=repr)
def test_values_of_numpy_are_those_of_python(tmp_path: Path, value: Any, format: str) -> None:
    (run,), (again,) = datasets.airline(1), datasets.airline(1)
    run.label("x", value, by="ann")

    load_labels([again], save_labels([run], tmp_path / "labels", format=format), format=format)

    found = again.labels.value.iloc[0]
    assert (type(found), found) == (type(value.item()), value.item())


@pytest.mark.parametrize("format", FORMATS)
def test_runs_whose_names_change_with_each_import_are_told_by_their_place(tmp_path: Path, format: str) -> None:
    talks = [
        {"messages": [{"role": "user", "content": f"Hi {n}"}, {"role": "assistant", "content": "Yes."}]} for n in (1, 2)
    ]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "talks.json").write_text(json.dumps(talks))

    def imported(folder: str) -> list[Run]:
        found = nn.import_runs(tmp_path / folder / "talks.json", progress=False)
        return [run for run in found if isinstance(run, Run)]

    runs = imported("one")
    runs[1].label("verdict", "right", by="ann")
    file = save_labels(runs, tmp_path / "labels", format=format)

    assert load_labels(imported("two"), file, format=format) == 1
    assert [len(run.labels) for run in imported("two")] == [0, 1]


def test_annotations_and_scores_of_others_are_read(tmp_path: Path) -> None:
    run = datasets.airline_run(26)
    run.meta.update(task_id="t7", trial=2)
    session = {"session_id": run.threads[0]}
    notes = [
        {**session, "name": "good", "annotator_kind": "LLM", "result": {"score": 0.5}},
        {**session, "name": "tone", "annotator_kind": "HUMAN", "identifier": "ann", "result": {"label": "curt"}},
    ]
    (tmp_path / "notes.json").write_text(json.dumps({"data": notes}))
    scores = {"match": {"value": "C"}, "model_graded": {"value": 1, "history": []}}
    (tmp_path / "log.json").write_text(json.dumps({"samples": [{"id": "t7", "epoch": 2, "scores": scores}]}))

    assert load_labels(run, tmp_path / "notes.json") == 2
    assert load_labels(run, tmp_path / "log.json", format="inspect") == 2
    assert run.labels[["name", "value", "by"]].values.tolist() == [
        ["good", 0.5, "llm"],
        ["tone", "curt", "ann"],
        ["match", "C", "inspect"],
        ["model_graded", 1, "inspect"],
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_label_of_another_run_or_part_leaves_all_as_it_was(tmp_path: Path, format: str) -> None:
    runs = labelled()
    file = save_labels(runs, tmp_path / "labels", format=format)
    for given, code in (([datasets.airline_run(26)], "UNKNOWN_RUN"), (datasets.airline(1), "UNKNOWN_RUN")):
        with pytest.raises(NoeticConfigError) as caught:
            load_labels(given, file, format=format)
        assert caught.value.code == code
        assert given[0].labels.empty
    wrong = datasets.airline(3)
    wrong[1].meta["codebook"] = {"verdict": {"values": ["right"]}}
    with pytest.raises(NoeticConfigError) as caught:
        load_labels(wrong, file, format=format)
    assert caught.value.code == "UNKNOWN_LABEL"
    assert rows(wrong) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"data": [{}]}', '{"samples": [{"id": 1, "scores": {"a": {}}}]}', "run_id,value\n1,2\n"]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels").write_text(text)
    for format in FORMATS[1:] if text else FORMATS[1:2]:
        with pytest.raises(NoeticConfigError, match="INVALID_LABEL_FILE"):
            load_labels(datasets.airline_run(26), tmp_path / "labels", format=format)
    for name in ("xml", ["csv"]):
        with pytest.raises(NoeticConfigError, match=r"UNKNOWN_FORMAT.*`format` does not take this value"):
            save_labels(datasets.airline_run(26), tmp_path / "labels", format=name)  # type: ignore[arg-type]
