"""Dialogues of public benchmarks, read from a file, an archive or a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import item_text
from noetic_nb.lab import datasets
from noetic_nb.lab._dialogues import Evidence
from noetic_nb.layers import semantic_recall


def sample(**changes: Any) -> dict[str, Any]:
    talk = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a dog"},
            {"speaker": "Bob", "dia_id": "D1:2", "text": "Nice."},
        ],
        "session_10": [{"speaker": "Bob", "dia_id": "D10:1", "text": "Later."}],
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "Again."}],
    }
    qa = [
        {"question": "What?", "answer": "a dog", "evidence": ["D1:1"], "category": 1},
        {"question": "When?", "answer": 2023, "evidence": ["D2:1; D:10:01", "D"], "category": 2},
        {"question": "Why?", "adversarial_answer": "so", "evidence": ["D1:2"], "category": 5},
        {"question": "Where?", "answer": "there", "evidence": ["D9:9"], "category": 4},
    ]
    return {"sample_id": "conv-1", "conversation": talk, "qa": qa, **changes}


def written(tmp_path: Path, data: Any, name: str = "locomo10.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize("nested", [True, False])
def test_locomo_keeps_sessions_dates_ids_answers_and_categories(nested: bool, tmp_path: Path) -> None:
    entry = sample()
    if not nested:
        entry = {**entry.pop("conversation"), **entry}

    (one,) = datasets.load_locomo(written(tmp_path, [entry]))

    assert [[item["id"] for item in session] for session in one.sessions] == [["D1:1", "D1:2"], ["D2:1"], ["D10:1"]]
    assert item_text(one.sessions[0][0]) == "Ann: Look!\n[picture: a dog]"
    assert [item["role"] for item in one.sessions[0]] == ["user", "assistant"]
    assert one.dates_ms == (1_683_554_160_000.0, None, None)
    assert [question.kind for question in one.questions] == [f"category {n}" for n in (1, 2, 5, 4)]
    assert [question.answer for question in one.questions] == ["a dog", "2023", None, "there"]
    # Two keys in one text, one with too many colons and one invalid; unanswerable questions have no evidence.
    assert [question.evidence for question in one.questions] == [
        (Evidence("D1:1", "a dog"),), (Evidence("D2:1"), Evidence("D10:1")), (), ()
    ]  # fmt: skip


def correction(**changes: Any) -> dict[str, Any]:
    fixed = {
        "question_id": "locomo_0_qa0",
        "question": "What?",
        "correct_evidence": ["D10:1"],
        "correct_answer": "no dog",
    }
    return {**fixed, **changes}


@pytest.mark.parametrize("folder", [True, False])
def test_corrected_keys_are_laid_over(folder: bool, tmp_path: Path) -> None:
    audit = written(tmp_path, [correction()], "errors.json")

    (one,) = datasets.load_locomo(written(tmp_path, [sample()]), audit=tmp_path if folder else audit)

    assert one.questions[0].evidence == (Evidence("D10:1"),)
    assert one.questions[0].answer == "no dog"
    assert one.questions[1].answer == "2023"


@pytest.mark.parametrize(
    ("changes", "index"),
    [
        ({"question": "Who?"}, 0),
        ({"question_id": "locomo_0"}, 0),
        ({"correct_evidence": "D1:1"}, 0),
        ({"question_id": "locomo_0_qa7"}, None),
    ],
    ids=["another", "id", "text", "nowhere"],
)
def test_corrections_of_another_file_are_refused(changes: dict[str, Any], index: int | None, tmp_path: Path) -> None:
    audit = written(tmp_path, [correction(**changes)], "errors.json")

    with pytest.raises(NoeticError) as caught:
        datasets.load_locomo(written(tmp_path, [sample()]), audit=audit)

    assert (caught.value.kind, caught.value.index, caught.value.path) == ("invalid_run_file", index, str(audit))


def test_an_archive_and_a_folder_hold_a_file_for_each_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "locomo10.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("data/", "")
        for name in ("9", "10", "more"):
            archive.writestr(f"data/{name}.json", json.dumps(sample()["conversation"]))
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("9", "10"):
        written(folder, sample(sample_id=name), f"{name}.json")

    assert [one.name for one in datasets.load_locomo(path)] == ["locomo-conv-9", "locomo-conv-10", "locomo-more"]
    assert [one.name for one in datasets.load_locomo(folder)] == ["locomo-9", "locomo-10"]
    with pytest.raises(NoeticConfigError, match="NO_QUESTIONS"):
        lab.memory_bench({"plain": []}, datasets.load_locomo(path), budgets=[250])
    for damaged in (path.read_bytes()[:-30], b"PK\x03\x04"):
        path.write_bytes(damaged)
        with pytest.raises(NoeticError, match="not a whole archive"):
            datasets.load_locomo(path)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locomo10.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("1.json", " " * 100_000)

    with pytest.raises(NoeticError, match="more than 50,000 bytes"):
        datasets.load_locomo(path, max_bytes=50_000)


@pytest.mark.parametrize("loader", ["load_locomo", "load_longmemeval", "load_memory_agent_bench"])
def test_what_holds_nothing_is_refused(loader: str, tmp_path: Path) -> None:
    load = getattr(datasets, loader)
    empty = tmp_path / "empty"
    empty.mkdir()
    with ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("readme.md", "")
    for path in (
        empty,
        tmp_path / "empty.zip",
        tmp_path / "missing.json",
        written(tmp_path, 5),
        written(tmp_path, [5]),
    ):
        with pytest.raises(NoeticError) as caught:
            load(path)
        assert caught.value.kind == "invalid_run_file"


@pytest.mark.parametrize(
    "changes",
    [
        {"conversation": {}},
        {"qa": 5},
        {"qa": [5]},
        {"conversation": {"speaker_a": "a", "speaker_b": "b", "session_1": [{"speaker": "c"}]}},
        {"conversation": {"speaker_a": "a", "speaker_b": "b", "session_1": [{"speaker": "c", "text": "x"}]}},
        {"conversation": {"speaker_a": "a", "speaker_b": "b", "session_1": 5}},
    ],
)
def test_a_dialogue_of_another_form_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NoeticError) as caught:
        datasets.load_locomo(written(tmp_path, [sample(), sample(**changes)]))

    assert (caught.value.kind, caught.value.index) == ("invalid_run_file", 1)


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which colour is my new cat?",
        "answer": "grey",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/21 (Sun) 02:21", "2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [
            [{"role": "user", "content": "It rains."}, {"role": "assistant", "content": "Take a coat."}],
            [
                {"role": "user", "content": "My new cat is grey.", "has_answer": True},
                {"role": "assistant", "content": "Nice."},
            ],
        ],
        **changes,
    }


def test_longmemeval_is_played_by_its_dates(tmp_path: Path) -> None:
    found = datasets.load_longmemeval(written(tmp_path, [entry(), entry(question_id="q2_abs")]))

    table = lab.memory_bench({"plain": [], "semantic": semantic_recall(skip_recent=0)}, found, budgets=[2_000])

    rows = table.set_index(["layers", "rung"]).recall
    assert [rows["plain", "verbatim"], rows["semantic", "verbatim"], rows["semantic", "value"]] == [0.0, 1.0, 1.0]
    assert rows[:, "owned"].isna().all()
    assert table.attrs["by_kind"]["plain"][2_000]["verbatim"]["single-session-user"] == 0.0
    assert [item_text(session[0]) for session in found[0].sessions] == ["My new cat is grey.", "It rains."]
    assert found[0].dates_ms == tuple(sorted(date for date in found[0].dates_ms if date is not None))
    assert found[0].questions[0].when_ms == 1_685_490_000_000.0
    assert (found[1].questions[0].kind, found[1].questions[0].evidence) == ("abstention", ())


@pytest.mark.parametrize(
    "changes",
    [{"question": None}, {"haystack_sessions": [3]}, {"haystack_sessions": [[{"role": "user"}]]}],
    ids=["no-question", "number", "no-content"],
)
def test_entries_of_another_form_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NoeticError) as caught:
        datasets.load_longmemeval(written(tmp_path, [entry(), entry(**changes)]))
    assert (caught.value.kind, caught.value.index) == ("invalid_run_file", 1)


def row(**changes: Any) -> dict[str, Any]:
    return {
        "context": "The lamp is green. " * 300 + "The door is blue. " + "It rains. " * 400,
        "questions": ["Which colour has the door?", "And the roof?"],
        "answers": [["azure", "blue"], ["red"]],
        "metadata": {"source": "ruler_qa1"},
        **changes,
    }


def test_memory_agent_bench_is_played_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row(metadata=None)) + "\n", encoding="utf-8")

    found = datasets.load_memory_agent_bench(path)

    assert len(found) == 2
    texts = [item_text(item) for item in found[0].sessions[0]]
    assert max(map(len, texts)) <= 2_000
    assert " ".join(texts).split() == row()["context"].split()
    assert [question.evidence for question in found[0].questions] == [(Evidence(None, "blue"),), ()]
    assert [question.kind for question in found[0].questions] == ["ruler_qa1"] * 2
    table = lab.memory_bench({"semantic": semantic_recall(skip_recent=0)}, found, budgets=[2_000]).set_index("rung")
    assert table.recall["value"] == 1.0
    assert table.recall[["verbatim", "owned", "answerable"]].isna().all()


@pytest.mark.parametrize(
    "changes", [{"context": ""}, {"questions": "?"}, {"questions": [5, 6]}, {"answers": [["one"]]}], ids=repr
)
def test_rows_of_another_form_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NoeticError) as caught:
        datasets.load_memory_agent_bench(written(tmp_path, [row(), row(**changes)]))
    assert (caught.value.kind, caught.value.index) == ("invalid_run_file", 1)


def test_a_table_says_what_it_is_read_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas

    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")

    def without(*_: object) -> None:
        raise ImportError("no engine")

    monkeypatch.setattr(pandas, "read_parquet", without)
    with pytest.raises(NoeticConfigError, match="pyarrow"):
        datasets.load_memory_agent_bench(path)
    monkeypatch.setattr(pandas, "read_parquet", lambda _: pandas.DataFrame([row()]))
    assert datasets.load_memory_agent_bench(path)[0].questions[0].evidence == (Evidence(None, "blue"),)
