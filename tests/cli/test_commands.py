"""Each command: what it answers, and how it exits."""

from __future__ import annotations

import io
import json
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import noetic_nb as nn
from noetic_nb import cli
from noetic_nb.cli import _commands
from noetic_nb.cli.main import COMMANDS
from noetic_nb.lab import datasets
from tests.cli.conftest import Command

# Of each command: the keys of its answer as JSON.
KEYS = {
    "import": "runs unread saved",
    "export": "runs unread saved",
    "report": "path runs shown unread",
    "view": "notebook run",
    "lint": "rules runs findings unread",
    "backtest": "runs decisions summary changes skipped unread",
    "evaluate": "runs caught failed blocked false_rejections attacked_solved attacker_tasks unlabelled "
    "errors skipped stopped missed unread",
    "check": "files findings",
    "grade": "submissions",
}
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]


@pytest.fixture(scope="module", autouse=True)
def packaged_runs_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("agentdojo", "airline"):
            patch.setattr(datasets, name, cache(getattr(datasets, name)))
        yield


@pytest.mark.parametrize("name", [each.name for each in COMMANDS])
def test_the_example_of_each_command_runs(command: Command, name: str) -> None:
    own = next(each for each in COMMANDS if each.name == name)
    answer = command(name, *own.example.split())
    assert answer.code in (0, 1), answer.err
    assert answer.out
    assert "Example: noetic-nb" in command(name, "--help").out


@pytest.mark.parametrize("name", [each.name for each in COMMANDS])
def test_an_answer_as_json_is_one_document_with_the_same_keys(command: Command, name: str) -> None:
    own = next(each for each in COMMANDS if each.name == name)
    assert set(command(name, *own.example.split(), "--json").data) == set(KEYS[name].split())


def test_every_command_is_offered_and_on_its_page() -> None:
    page = (Path(cli.__file__).parents[2] / "docs/behaviour/cli.md").read_text(encoding="utf-8")

    assert {each.run.__module__ for each in COMMANDS} == {
        f"{_commands.__name__}.{found.name}" for found in pkgutil.iter_modules(_commands.__path__)
    }
    assert [each.name for each in COMMANDS if f"\n| `{each.name} " not in page] == []


def test_runs_of_any_format_are_listed_and_kept(command: Command, folder: Path) -> None:
    (folder / "talk.json").write_text(json.dumps(TALK))
    answer = command("import", "talk.json", "--data", "airline", "--output", "kept", "--json")
    assert answer.code == 0
    assert len(answer.data["saved"]) == len(answer.data["runs"]) == 1 + len(datasets.airline())
    again = [nn.load_run(path) for path in answer.data["saved"]]
    assert [run.run_id for run in again] == [run["run_id"] for run in answer.data["runs"]]
    assert again[0].turns[0].text == "Hello."


def test_the_standard_input_is_a_source(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(TALK).encode())))
    assert command("import", "-", "--json").data["runs"][0]["turns"] == 1


def test_records_that_cannot_be_read_are_named_and_the_others_are_used(command: Command, folder: Path) -> None:
    (folder / "runs").mkdir()
    (folder / "runs" / "a.json").write_text(json.dumps(TALK))
    (folder / "runs" / "b.json").write_text("{")
    answer = command("import", "runs", "--json")
    assert answer.code == 1
    assert len(answer.data["runs"]) == 1
    assert answer.data["unread"][0]["path"].endswith("b.json")
    assert "b.json" in answer.err


def test_lint_exits_with_1_where_it_finds_something(command: Command, folder: Path) -> None:
    assert command("lint", "rules.yaml").code == 0
    (folder / "tools.json").write_text('["transfer"]')
    answer = command("lint", "rules.yaml", "--tools", "tools.json", "--json")
    assert answer.code == 1
    assert [each["code"] for each in answer.data["findings"]] == ["unknown_tool"]


@pytest.mark.parametrize("text", ["{", "3", "[1]"])
def test_lint_refuses_tools_that_are_none(command: Command, folder: Path, text: str) -> None:
    (folder / "tools.json").write_text(text)
    answer = command("lint", "rules.yaml", "--tools", "tools.json")
    assert answer.code == 2
    assert "INVALID_TOOLS" in answer.err


def test_a_backtest_exits_with_1_where_more_changes_than_may(command: Command) -> None:
    answer = command("backtest", "rules.yaml", "--data", "airline", "--json")
    denied = answer.data["summary"]["newly_denied"]
    assert answer.code == 1
    assert len(answer.data["changes"]) == denied == 6
    assert command("backtest", "rules.yaml", "--data", "airline", "--max-changes", str(denied)).code == 0
    assert command("backtest", "rules.yaml", "--data", "airline", "--against", "rules.yaml").code == 0


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ([], 0),
        (["--min-caught", "0.5"], 1),
        (["--min-caught", "0"], 0),
        (["--max-blocked", "0"], 0),
        (["--max-false-rejections", "0"], 0),
    ],
)
def test_evaluate_exits_by_the_limits(command: Command, limit: list[str], code: int) -> None:
    answer = command("evaluate", "rules.yaml", "--data", "agentdojo:banking", *limit)
    assert answer.code == code
    assert ("limit not kept" in answer.out) == bool(code)


def test_a_limit_on_what_nobody_can_count_is_not_kept(command: Command) -> None:
    # The sample of telecom has labels, and no attack and no call that was attacked: nothing is unknown but this.
    answer = command("evaluate", "rules.yaml", "--data", "agentdojo:banking", "--min-caught", "2")
    assert answer.code == 2
    assert "not a rate" in answer.err


def test_runs_without_labels_are_refused(command: Command, folder: Path) -> None:
    (folder / "talk.json").write_text(json.dumps(TALK))
    answer = command("evaluate", "rules.yaml", "talk.json")
    assert (answer.code, answer.out) == (2, "")
    assert "NO_LABELS" in answer.err


def test_check_tells_files_apart(command: Command, folder: Path) -> None:
    datasets.airline()[0].save(folder / "run.jsonl.gz")
    (folder / "agent.json").write_text('{"name": "desk", "step": {"kind": "llm", "id": "ask", "model": "m"}}')
    (folder / "none.json").write_text('{"name": "desk", "step": {"kind": "no such"}}')
    (folder / "rules.json").write_text('{"version": 1, "rules": [{"id": "a"}]}')
    fine = command("check", "run.jsonl.gz", "agent.json", "rules.yaml", "--json")
    assert (fine.code, fine.data["findings"]) == (0, [])
    answer = command("check", "run.jsonl.gz", "none.json", "rules.json", "missing.json", "--json")
    assert answer.code == 1
    assert [each["path"] for each in answer.data["findings"]] == ["none.json", "rules.json", "missing.json"]


def test_a_report_is_one_page_without_scripts_and_other_hosts(command: Command, folder: Path) -> None:
    assert command("report", "--data", "airline", "--most", "2").code == 0
    html = (folder / "report.html").read_text()
    assert html.count("<article") == 2
    assert html.count("<tr><td>") >= len(datasets.airline())
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("<meta http-equiv", "")
    # Before anything else that a browser would act on.
    policy = re.search(
        r'<head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="([^"]*)">', html
    )
    assert policy is not None
    assert set(policy[1].split("; ")) >= {"default-src 'none'", "img-src data:", "style-src 'unsafe-inline'"}
    assert "script-src" not in policy[1]


def test_a_notebook_shows_the_run_beside_it(command: Command, folder: Path) -> None:
    assert command("view", "--data", "airline", "--run", "airline-4", "--no-open", "-o", "one.ipynb").code == 0
    assert nn.load_run(folder / "one.jsonl.gz").run_id == "airline-4"
    cells = json.loads((folder / "one.ipynb").read_text())["cells"]
    for cell in cells:
        compile(cell["source"], "cell", "exec")
    assert "'one.jsonl.gz'" in cells[0]["source"]
    (folder / "one.ipynb").write_text("mine")
    assert command("view", "--data", "airline", "--run", "0", "--no-open", "-o", "one.ipynb").code == 2
    assert (folder / "one.ipynb").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import"], "NO_RUNS"),
        (["import", "missing.json"], "NO_RUNS"),
        (["import", "rules.yaml", "--format", "no such"], "UNKNOWN_FORMAT"),
        (["lint", "missing.yaml"], "INVALID_RULE_FILE"),
        (["lint", "rules.txt"], "INVALID_FORMAT"),
        (["report", "--data", "airline", "--run", "no such"], "UNKNOWN_RUN"),
        (["report", "--data", "airline", "--run", "20"], "UNKNOWN_RUN"),
        (["report", "--data", "airline", "--run", "0", "-o", "no/such/folder.html"], "CANNOT_WRITE"),
        (["view", "--data", "airline", "--no-open"], "SEVERAL_RUNS"),
        (["import", "--data", "airline", "-o", "rules.yaml"], "CANNOT_WRITE"),
        (["evaluate", "rules.yaml", "--data", "airline", "--outcome", "no such"], "NO_LABELS"),
        (["evaluate", "rules.yaml", "--data", "airline", "--max-blocked", "nan"], "not a rate"),
        (["report", "--data", "airline", "--most", "0"], "not a number"),
        (["no-such"], "invalid choice"),
        ([], "required"),
    ],
)
def test_wrong_use_is_one_line_and_the_exit_code_2(command: Command, arguments: list[str], words: str) -> None:
    answer = command(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert "Traceback" not in answer.err
