"""Collections of runs: equal to the runs of their sources, with an index that follows the files."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.interop._collection import member_files
from noetic_nb.interop._collection.index_file import NAME, Entry, RunIndex
from noetic_nb.lab import datasets

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


def talk(text: str, **meta: Any) -> nn.Run:
    """Return a run of one turn."""
    said = [{"role": "user", "content": text}, {"role": "assistant", "content": f"About {text}."}]
    return nn.Run.from_messages(said, meta=meta)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with run files, a foreign file with two runs, and a damaged file."""
    made = tmp_path / "runs"
    made.mkdir()
    for at, word in enumerate(["refund", "invoice", "gift card"]):
        talk(word, outcome=at != 1, task_id=f"t{at % 2}", domain="shop").save(made / f"{at}.jsonl.gz")
    lines = [{"messages": [{"role": "user", "content": text}]} for text in ("parcel", "refund later")]
    (made / "two.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (made / "zz.json").write_text("{nope")
    return made


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each file that is read is added."""
    found: list[str] = []
    inner: Callable[..., Any] = member_files.runs_of_file
    monkeypatch.setattr(
        member_files, "runs_of_file", lambda path, **more: (found.append(path.name), inner(path, **more))[1]
    )
    return found


def queries(runs: nn.RunCollection) -> list[str]:
    return [run.turns[0].query for run in runs]


def test_a_folder_is_a_sequence_of_the_runs_in_it(folder: Path) -> None:
    runs = nn.open_runs(folder)

    assert queries(runs) == ["refund", "invoice", "gift card", "parcel", "refund later"]
    assert list(runs)[:3] == [nn.load_run(folder / f"{at}.jsonl.gz") for at in range(3)]
    assert runs[-1].turns[0].query == "refund later"
    assert queries(runs[1:3]) == ["invoice", "gift card"]
    with pytest.raises(IndexError):
        runs[5]


def test_records_that_cannot_be_read_are_listed(folder: Path) -> None:
    for _ in range(2):  # first from the files, then from the index
        (failed,) = nn.open_runs(folder).failed
        assert failed.path == str(folder / "zz.json")
        assert "not JSON" in str(failed.error)
    assert "1 not read" in repr(nn.open_runs(folder))


def test_only_changed_files_are_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nn.open_runs(folder)
    read = reads(monkeypatch)
    assert len(nn.open_runs(folder)) == 5
    assert read == []

    talk("a letter").save(folder / "1.jsonl.gz")
    (folder / "0.jsonl.gz").unlink()
    runs = nn.open_runs(folder)

    assert read == ["1.jsonl.gz"]
    assert queries(runs) == ["a letter", "gift card", "parcel", "refund later"]
    assert len(runs.search("invoice")) == 0
    assert queries(runs.search("letter")) == ["a letter"]


def test_labels_are_followed_without_reading_the_run_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = nn.open_runs(folder)
    runs[0].label("outcome", False, by="ann")
    runs[4].label("verdict", "odd", by="ann")
    read = reads(monkeypatch)

    labelled = nn.open_runs(folder)

    assert read == []
    assert queries(labelled.where("outcome == false")) == ["refund", "invoice"]
    assert queries(labelled.where("labels.verdict == 'odd'")) == ["refund later"]


def test_damaged_labels_are_listed(folder: Path) -> None:
    nn.open_runs(folder)
    (folder / "0.jsonl.gz.labels.jsonl").write_text('{"run": 1}\n{}\n')

    runs = nn.open_runs(folder)

    assert len(runs) == 5
    assert ["no label" in str(each.error) for each in runs.failed] == [True, False]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("outcome == false", ["invoice"]),
        ("meta.domain == 'shop' && task == 't0'", ["refund", "gift card"]),
        ("meta.domain == null", ["parcel", "refund later"]),
        ("meta.domain.size() > 5", []),
        ("turns == 1 && query.startsWith('refund')", ["refund", "refund later"]),
        ("tools.exists(t, t == 'pay')", []),
        ("place == 1", ["refund later"]),
        ("meta['domain'] == 'shop' && task == 't1'", ["invoice"]),
        ('meta["domain"] == null', ["parcel", "refund later"]),
        ("['domain'].exists(key, meta[key] == 'shop')", ["refund", "invoice", "gift card"]),
        ("tools[0] == 'pay'", []),
        ("labels['needs review'] == true", ["gift card"]),
    ],
)
def test_an_expression_chooses_runs_of_which_it_is_true(folder: Path, expression: str, found: list[str]) -> None:
    nn.load_run(folder / "2.jsonl.gz").label(name="needs review", value=True, by="ann")
    assert queries(nn.open_runs(folder).where(expression)) == found


@pytest.mark.parametrize(
    "hostile",
    ["\ud800", 2**70, -(2**64), {"\udfff": ["\ud800", 2**63]}, 10**400],
    ids=["surrogate", "large", "negative", "nested", "huge"],
)
def test_a_value_that_the_language_does_not_know_leaves_the_rest_readable(hostile: Any) -> None:
    odd, plain = talk("odd", domain="shop", odd=hostile), talk("plain", domain="shop", odd=1)
    if isinstance(hostile, int):
        odd.label("size", hostile, by="ann")
    runs = nn.open_runs([odd, plain])

    assert queries(runs.where("meta.domain == 'shop' && !('verdict' in labels)")) == ["odd", "plain"]
    assert queries(runs.where("meta.domain == 'shop'")) == ["odd", "plain"]
    assert queries(runs.where("meta['odd'] == 1")) == ["plain"]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("outcom == true", "Did you mean 'outcome'"),
        ("meta.domian == 'shop'", "Did you mean 'domain'"),
        ("turns > 1 and true", "Write &&"),
        ("turns", "not true or false"),
        ("turns > 'one'", "fails for run"),
        ("origin(turns)", "not a function"),
        ("turns >", "cannot be read"),
        ("meta['domian'] == 'shop'", "Did you mean 'domain'"),
        ("labels['verdict'] == 'good'", "No run has labels.verdict"),
        ("1 / (turns - 1) == 1", "division by zero"),
        ("", "is a text"),
    ],
)
def test_an_expression_that_cannot_be_is_refused_with_its_reason(folder: Path, expression: str, says: str) -> None:
    with pytest.raises(nn.NoeticConfigError, match="INVALID_EXPRESSION") as caught:
        nn.open_runs(folder).where(expression)
    assert says in str(caught.value)


def test_a_word_that_is_repeated_is_looked_for_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, asked, rows = nn.open_runs(folder), [], RunIndex._rows
    monkeypatch.setattr(RunIndex, "_rows", lambda *given: asked.append(given[2:]) or rows(*given))

    assert queries(runs.search("refund later" + " refund" * 1_000)) == ["refund later"]
    assert (('"refund" "later"',),) in asked


def test_a_search_finds_words_phrases_and_beginnings(folder: Path) -> None:
    runs = nn.open_runs(folder)

    assert queries(runs.search("REFUND")) == ["refund", "refund later"]
    assert queries(runs.search("later refund")) == ["refund later"]
    assert queries(runs.search('"card gift"')) == []
    assert queries(runs.search("inv*")) == ["invoice"]
    assert queries(runs.search("a OR b) NEAR")) == []
    with pytest.raises(nn.NoeticConfigError, match="INVALID_SEARCH"):
        runs.search(' "" * ')
    with pytest.raises(nn.NoeticConfigError, match="INVALID_SEARCH"):
        runs.search(None)  # type: ignore[arg-type]


def test_a_sample_has_its_share_of_each_stratum_and_the_same_runs_for_a_seed() -> None:
    runs = nn.open_runs([talk(str(at), outcome=at % 10 == 0, task_id=at // 4) for at in range(40)])

    chosen = runs.sample(10, by="outcome", seed=3)

    assert chosen.to_frame()["outcome"].tolist().count(True) == 1
    assert queries(chosen) == queries(runs.sample(10, by="outcome", seed=3))
    assert queries(chosen) != queries(runs.sample(10, by="outcome", seed=4))
    assert len(runs.sample(100)) == 40
    first, second = runs.split(0.75, seed=1)
    assert len(first) == 28 or len(first) == 32
    assert not set(first.to_frame()["task"]) & set(second.to_frame()["task"])
    assert sorted(queries(first) + queries(second)) == sorted(queries(runs))


def test_runs_are_sorted_and_unknown_values_stand_last() -> None:
    runs = nn.open_runs([talk("a", score=2), talk("b"), talk("c", score=10)])

    assert queries(runs.sort("meta.score", descending=True)) == ["c", "a", "b"]
    assert queries(runs.sort("query", descending=True)) == ["c", "b", "a"]


def test_secrets_of_a_run_in_memory_are_in_no_index(tmp_path: Path) -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="a", step=nn.react(model="m")), model=nn.ScriptedModel(["ok"]))
    run = nn.record(harness)
    run.meta["note"] = SECRET
    nn.run_sync(harness.execute(f"my key is {SECRET}"))

    runs = nn.open_runs([run], index=tmp_path / "index.sqlite")

    assert runs[0] is run
    assert SECRET not in json.dumps(runs.rows())
    assert SECRET.lower().encode() not in (tmp_path / "index.sqlite").read_bytes().lower()
    assert len(runs.search("key")) == 1


def test_a_folder_that_cannot_be_written_has_its_index_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    (folder / NAME).mkdir()  # makes the folder's index unwritable

    assert len(nn.open_runs(folder)) == 5
    assert len(list((tmp_path / "cache").rglob("*.sqlite"))) == 1


def test_files_of_several_folders_and_runs_are_one_collection(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    talk("elsewhere").save(tmp_path / "one.jsonl.gz")

    assert len(nn.open_runs([folder, tmp_path / "one.jsonl.gz"])) == 6
    assert len(nn.open_runs([folder, talk("in memory")])) == 6
    assert queries(nn.open_runs(talk(word) for word in "ab")) == ["a", "b"]
    assert len(nn.open_runs([{"role": "user", "content": "hi"}])) == 1
    runs = nn.open_runs(folder)
    assert nn.open_runs(runs) is runs
    with pytest.raises(nn.NoeticConfigError, match="NO_RUNS"):
        nn.open_runs(tmp_path / "nowhere")


def test_an_index_of_another_version_is_made_again_and_a_foreign_file_is_left_alone(
    folder: Path, tmp_path: Path
) -> None:
    nn.open_runs(folder)
    with sqlite3.connect(folder / NAME) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("DROP TABLE runs")
    assert len(nn.open_runs(folder).search("refund")) == 2

    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE runs (mine)")
    with pytest.raises(nn.NoeticConfigError, match="INVALID_INDEX"):
        nn.open_runs(folder, index=other)
    text = tmp_path / "notes.txt"
    text.write_text("my notes " * 200)
    with pytest.raises(nn.NoeticError, match="not a database"):
        nn.open_runs(folder, index=text)
    assert text.read_text() == "my notes " * 200


def test_words_of_replaced_runs_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetic_nb.interop._collection.index_file._FEW", 3)
    for at in range(9):
        talk(f"word{at}").save(tmp_path / "one.jsonl.gz")
        nn.open_runs(tmp_path)

    runs = nn.open_runs(tmp_path)
    assert [len(runs.search("word8")), len(runs.search("word7"))] == [1, 0]
    with sqlite3.connect(tmp_path / NAME) as db:
        assert db.execute("SELECT max(id) FROM runs").fetchone()[0] < 7


def _open(folder: str, results: Any) -> None:
    results.put(len(nn.open_runs(folder, progress=False).search("refund")))


def test_two_processes_may_open_a_folder_at_once(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_open, args=(str(folder), results)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()

    assert found == [2, 2]
    assert len(nn.open_runs(folder)) == 5


def test_a_collection_outlives_another_one_that_reads_a_file_again(folder: Path) -> None:
    runs = nn.open_runs(folder)
    (folder / "two.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "only one"}]}) + "\n")
    nn.open_runs(folder)

    assert runs[0].turns[0].query == "refund"
    with pytest.raises(nn.NoeticError, match="Open the collection again"):
        runs[4]
    with pytest.raises(nn.NoeticError, match="Open the collection again"):
        runs.to_frame()


def test_a_frame_has_a_row_for_each_run(folder: Path) -> None:
    frame = nn.open_runs(folder).to_frame()

    assert frame["query"].tolist() == ["refund", "invoice", "gift card", "parcel", "refund later"]
    assert frame["outcome"].tolist() == [True, False, True, None, None]
    assert frame["place"].tolist() == [0, 0, 0, 0, 1]
    assert list(nn.open_runs([]).to_frame().columns) == list(frame.columns)


def test_a_parquet_file_has_plain_columns(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    runs = nn.open_runs(folder)

    table = parquet.read_table(runs.to_parquet(tmp_path / "runs.parquet")).to_pylist()

    assert [row["outcome"] for row in table] == [True, False, True, None, None]
    assert json.loads(table[0]["meta"])["domain"] == "shop"


def test_a_parquet_file_needs_pyarrow(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(nn.NoeticConfigError, match="pyarrow"):
        nn.open_runs(folder).to_parquet(tmp_path / "runs.parquet")


def test_a_set_is_frozen_with_its_reasons_and_hashes(folder: Path, tmp_path: Path) -> None:
    runs = nn.open_runs(folder)
    file = runs[:2].freeze(tmp_path / "bad", why="May")
    assert runs.where("place == 1").freeze(tmp_path / "bad", why="June") == file

    first, second = json.loads(file.read_text())["versions"]
    assert [first["why"], second["why"]] == ["May", "June"]
    assert [row["path"] for row in first["runs"]] == ["runs/0.jsonl.gz", "runs/1.jsonl.gz"]
    assert (second["version"], second["runs"][0]["place"], len(second["runs"][0]["sha256"])) == (2, 1, 64)
    for refused in (lambda: runs.freeze(tmp_path / "x", why=" "), lambda: runs[:0].freeze(tmp_path / "x", why="y")):
        with pytest.raises(nn.NoeticConfigError, match="INVALID_SET"):
            refused()
    (tmp_path / "y.runset.json").write_text("[]")
    with pytest.raises(nn.NoeticConfigError, match="not a set"):
        runs.freeze(tmp_path / "y", why="y")


@pytest.mark.parametrize(
    "ask",
    [
        lambda runs, rules: lab.evaluate(rules, runs, outcome="outcome", on_unknown="warn"),
        lambda runs, rules: lab.backtest((), runs, candidate=rules),
        lambda runs, rules: lab.lint(rules, runs),
        lambda runs, rules: lab.suggest(runs, outcome="outcome"),
        lambda runs, rules: lab.calibrate(lambda run: float(len(run.turns)), runs, outcome="outcome"),
        lambda runs, rules: lab.economics(lambda run: float(len(run.turns)), runs, outcome="outcome"),
        lambda runs, rules: lab.survival(runs),
        lambda runs, rules: lab.sweep(
            {"most": [1]}, runs, metrics={"turns": lambda run, most: float(len(run.turns))}, n_jobs=1
        ),
        lambda runs, rules: lab.compare(runs, runs),
        lambda runs, rules: lab.agreement(runs, "outcome"),
        lambda runs, rules: lab.disagreements(runs, "outcome"),
    ],
    ids=lambda ask: ask.__code__.co_names[1],
)
@pytest.mark.filterwarnings("ignore")
def test_a_collection_stands_where_a_list_of_runs_does(ask: Callable[[Any, Any], Any]) -> None:
    listed = datasets.airline()[:8]
    rules = nn.RuleBook()
    rules.at_most(1, "book_reservation")

    def asked(runs: Any) -> str:
        try:
            return str(ask(runs, rules))
        except nn.NoeticConfigError as error:
            return f"{error.code} {error.what}"

    assert asked(nn.open_runs(listed)) == asked(listed)


def test_an_index_is_all_or_nothing(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "index.sqlite")
    with pytest.raises(AttributeError):
        index.put([("a", "", "", [Entry("key", {})]), ("b", "", "", [None])])  # type: ignore[list-item]
    assert (index.files(), index.members()) == ({}, [])


@pytest.mark.parametrize("name", ["a\ud800b", "\udc00\ud800", "a\0b"])
def test_a_run_whose_name_is_no_unicode_is_a_member(name: str) -> None:
    runs = nn.open_runs([nn.Run(name, events=talk("parcel").events)])

    assert queries(runs.search("parcel")) == ["parcel"]
    assert runs[0].run_id == name


@pytest.mark.parametrize("source", [None, 5, [1, 2], [None]], ids=repr)
def test_a_source_without_any_run_is_an_error(source: Any) -> None:
    with pytest.raises(nn.errors.NoeticError) as raised:
        nn.open_runs(source)

    assert raised.value.kind == "invalid_run_file"


@pytest.mark.parametrize(
    ("text", "words"),
    [("turns >", "ends where a value is expected"), ("turns = 1", "Write == to compare"), ("(turns", "before a )")],
)
def test_an_expression_that_does_not_parse_is_told_in_plain_words(text: str, words: str) -> None:
    runs = nn.open_runs([nn.Run.from_messages([{"role": "user", "content": "Hi"}])], progress=False)
    with pytest.raises(nn.NoeticConfigError, match="INVALID_EXPRESSION") as told:
        runs.where(text)
    assert words in str(told.value)
    assert "expecting" not in str(told.value)
