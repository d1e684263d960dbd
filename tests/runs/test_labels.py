"""Labels of runs: their targets, their files, and concurrent raters."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab import datasets
from noetic_nb.runs._labelled import agent_calls, visible_labels
from noetic_nb.runs._labels import Codebook, labels_of_file, labels_path

BOOK = {
    "verdict": {"values": ["right", "wrong"], "description": "As the policy says?", "of": "call", "good": ["right"]}
}


def rows(run: nn.Run) -> list[list[Any]]:
    frame = run.labels[["name", "value", "turn", "call", "item", "by"]].astype(object)
    return frame.where(frame.notna(), None).values.tolist()


def talk(folder: Path) -> Path:
    file = folder / "talks.jsonl"
    said = [
        {"messages": [{"role": "user", "content": f"Hi {n}"}, {"role": "assistant", "content": "Yes."}]} for n in (1, 2)
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in said))
    return file


def test_a_label_knows_the_turn_of_its_call_and_item() -> None:
    run = datasets.airline_run(26)
    number, event = list(agent_calls(run))[-1]

    run.label("verdict", "wrong", call=-1, by="ann")
    run.label("verdict", "right", call=event, by="bob")
    run.label("odd", True, item=3, by="ann")
    run.label("length", 2.5, turn=1, by="ann")
    run.label("done", False, by="ann")

    assert rows(run) == [
        ["verdict", "wrong", 4, number, None, "ann"],
        ["verdict", "right", 4, number, None, "bob"],
        ["odd", True, 2, None, 3, "ann"],
        ["length", 2.5, 1, None, None, "ann"],
        ["done", False, None, None, None, "ann"],
    ]


def test_the_last_label_of_a_rater_counts_and_none_takes_it_back() -> None:
    run = datasets.airline_run(26)
    for value in ("right", "wrong"):
        run.label("verdict", value, call=0, by="ann")
    run.label("verdict", "right", call=0, by="bob")
    run.label("verdict", None, call=0, by="bob")

    assert [row[1] for row in rows(run)] == ["wrong"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": ""}, "INVALID_LABEL"),
        ({"by": " "}, "INVALID_LABEL"),
        ({"value": ["right"]}, "INVALID_LABEL"),
        ({"value": float("nan")}, "INVALID_LABEL"),
        ({"call": 30}, "INVALID_LABEL"),
        ({"call": -31}, "INVALID_LABEL"),
        ({"call": True}, "INVALID_LABEL"),
        ({"item": 10_000}, "INVALID_LABEL"),
        ({"item": -1}, "INVALID_LABEL"),
        ({"item": 3, "turn": 1}, "INVALID_LABEL"),
        ({"call": 0, "turn": 4}, "INVALID_LABEL"),
        ({"turn": 99}, "INVALID_LABEL"),
        ({"turn": 1, "thread_id": "other"}, "UNKNOWN_THREAD"),
    ],
)
def test_a_label_of_nothing_is_refused(given: dict[str, Any], code: str) -> None:
    run = datasets.airline_run(26)
    with pytest.raises(NoeticConfigError) as caught:
        run.label(**{"name": "verdict", "value": "right", "by": "ann", **given})

    assert caught.value.code == code
    assert run.labels.empty


def test_labels_of_a_run_without_a_file_are_saved_with_it_and_stay_beside_it(tmp_path: Path) -> None:
    run = datasets.airline_run(26)
    run.label("verdict", "wrong", by="ann")
    file = run.save(tmp_path / "a.jsonl.gz")
    run.label("verdict", "right", by="bob")
    again = nn.load_run(file)
    again.label("verdict", "right", by="cid")
    again.save(tmp_path / "b.jsonl.gz")
    again.save(tmp_path / "b.jsonl.gz")

    assert [row[5] for row in rows(run)] == [row[5] for row in rows(nn.load_run(file))] == ["ann", "bob", "cid"]
    assert rows(nn.load_run(tmp_path / "b.jsonl.gz")) == rows(run)
    assert len(labels_path(tmp_path / "b.jsonl.gz").read_text().splitlines()) == 3
    assert rows(pickle.loads(pickle.dumps(again))) == rows(again.copy()) == rows(run)


def test_imported_runs_have_their_labels_beside_the_file_that_holds_several(tmp_path: Path) -> None:
    file = talk(tmp_path)
    for n, run in enumerate(nn.import_runs(file)):
        assert isinstance(run, nn.Run)
        run.label("place", n, by="ann")
    Codebook(BOOK).save(tmp_path)

    found = [run for run in nn.import_runs(tmp_path) if isinstance(run, nn.Run)]
    assert [rows(run) for run in found] == [[["place", n, None, None, None, "ann"]] for n in (0, 1)]


async def test_labels_of_a_recorded_run_are_beside_its_file_and_are_not_those_of_another_run(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl.gz"
    config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."]))
    run = nn.record(harness, autosave=file)
    await harness.execute("Hi")
    run.label("verdict", "right", turn=1, by="ann")
    run.stop_recording()

    assert rows(nn.load_run(file)) == [["verdict", "right", 1, None, None, "ann"]]
    datasets.airline_run(26).save(file)
    assert nn.load_run(file).labels.empty


def test_secrets_are_replaced(tmp_path: Path) -> None:
    run = nn.load_run(datasets.airline_run(26).save(tmp_path / "a.jsonl.gz"))
    secret = "sk-" + "a1B2" * 10
    run.label("why", f"It wrote {secret}.", by="ann")

    assert secret not in labels_path(tmp_path / "a.jsonl.gz").read_text()
    assert secret not in run.labels.to_string()


def test_two_processes_label_at_once_and_no_line_is_lost_or_mixed(tmp_path: Path) -> None:
    file = datasets.airline_run(26).save(tmp_path / "a.jsonl.gz")
    code = (
        "import sys, noetic_nb as nn\nrun = nn.load_run(sys.argv[1])\n"
        "for n in range(200): run.label(f'n{n}', 'x' * 3000, by=sys.argv[2])"
    )
    raters = [subprocess.Popen([sys.executable, "-c", code, str(file), name]) for name in ("ann", "bob")]
    assert [each.wait() for each in raters] == [0, 0]

    labels = labels_of_file(file)["airline-26"]
    assert sorted((label.by, label.name) for label in labels) == sorted(
        (by, f"n{n}") for by in ("ann", "bob") for n in range(200)
    )


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_a_killed_process_left_is_passed_over_and_then_replaced(tmp_path: Path, cut: int) -> None:
    run = nn.load_run(datasets.airline_run(26).save(tmp_path / "a.jsonl.gz"))
    run.label("verdict", "right", by="ann")
    file = labels_path(tmp_path / "a.jsonl.gz")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:cut])

    assert len(run.labels) == 1
    run.label("verdict", "wrong", by="bob")
    assert [row[5] for row in rows(run)] == ["ann", "bob"]
    assert file.read_bytes().startswith(whole + b"{")


def test_a_last_line_without_an_end_counts_where_it_is_whole(tmp_path: Path) -> None:
    run = nn.load_run(datasets.airline_run(26).save(tmp_path / "a.jsonl.gz"))
    run.label("verdict", "right", by="ann")
    file = labels_path(tmp_path / "a.jsonl.gz")
    file.write_bytes(file.read_bytes()[:-1])
    run.label("verdict", "wrong", by="bob")

    assert [row[5] for row in rows(run)] == ["ann", "bob"]


@pytest.mark.parametrize(
    "line", ["{}", "[1]", '{"run": "airline-26", "name": "a", "by": "b", "t_ms": 1, "value": [1]}', "{"]
)
def test_a_damaged_line_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    run = nn.load_run(datasets.airline_run(26).save(tmp_path / "a.jsonl.gz"))
    run.label("verdict", "right", by="ann")
    file = labels_path(tmp_path / "a.jsonl.gz")
    file.write_text(f"{file.read_text()}{line}\n{file.read_text()}")

    with pytest.raises(NoeticError, match="line 2") as caught:
        run.labels
    assert caught.value.kind == "invalid_run_file"


def test_labels_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    run = nn.load_run(datasets.airline_run(26).save(tmp_path / "a.jsonl.gz"))
    labels_path(tmp_path / "a.jsonl.gz").mkdir()

    with pytest.raises(NoeticError) as caught:
        run.label("verdict", "right", by="ann")
    assert caught.value.kind == "storage_failed"


# Codebooks


def test_a_codebook_of_the_folder_refuses_other_labels(tmp_path: Path) -> None:
    run = nn.load_run(datasets.airline_run(26).save(tmp_path / "a.jsonl.gz"))
    book = Codebook(BOOK)
    book.save(tmp_path)

    run.label("verdict", "right", call=0, by="ann")
    for name, value, more in (
        ("verdcit", "right", {"call": 0}),
        ("verdict", "good", {"call": 0}),
        ("verdict", "right", {}),
    ):
        with pytest.raises(NoeticConfigError) as caught:
            run.label(name, value, by="ann", **more)  # type: ignore[arg-type]
        assert caught.value.code == "UNKNOWN_LABEL"
    with pytest.raises(NoeticConfigError, match=r"Did you mean 'verdict'\?"):
        book.check("verdcit", "right")
    assert Codebook.load(tmp_path).data == Codebook.load(tmp_path / "codebook.json").data == BOOK
    assert len(run.labels) == 1


def test_true_is_not_the_number_one() -> None:
    book = Codebook({"done": {"values": [True, False]}, "count": {"values": [0, 1]}})

    for name, value in (("done", 1), ("count", True)):
        with pytest.raises(NoeticConfigError):
            book.check(name, value)


@pytest.mark.parametrize(
    "names",
    [
        {},
        [],
        {"a": []},
        {"": {}},
        {"a": {"value": ["x"]}},
        {"a": {"values": [["x"]]}},
        {"a": {"values": "xy"}},
        {"a": {"values": ["x", "x"]}},
        {"a": {"values": ["x"], "good": ["y"]}},
        {"a": {"values": [True], "good": [1]}},
        {"a": {"of": "message"}},
        {"a": {"description": 1}},
        {"a": {"values": [object()]}},
    ],
)
def test_no_codebook_is_refused(names: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        Codebook(names)
    assert caught.value.code == "INVALID_CODEBOOK"


def test_a_second_rater_sees_first_labels_when_both_are_done() -> None:
    run = datasets.airline_run(26)
    run.meta["codebook"] = BOOK
    calls = [number for number, _ in agent_calls(run)]
    seen = []
    for by in ("ann", "bob"):
        for call in calls:
            run.label("verdict", "wrong", call=call, by=by)
            seen.append({label.by for label in visible_labels(run, by)})

    assert seen[:-1] == [{"ann"}] * len(calls) + [{"bob"}] * (len(calls) - 1)
    assert seen[-1] == {"ann", "bob"} == {label.by for label in visible_labels(run, "ann")}
    assert {label.by for label in visible_labels(run, "cid")} == set()
    assert len(visible_labels(run, None)) == 2 * len(calls)
