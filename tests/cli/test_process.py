"""The commands as a shell runs them: pipes, terminals, signals, what is imported, and what files hold."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import noetic_nb as nn
from noetic_nb.cli.main import main
from noetic_nb.interop import _importing as importing
from tests.cli.conftest import Command
from tests.matrix import matrix
from tests.redaction.shapes import SHAPES, made
from tests.widgets.hostile_texts import HOSTILE_TEXTS

PYTHON = [sys.executable, "-m", "noetic_nb"]


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys\nfrom noetic_nb.cli.main import main\n"
        "try: main(['import', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pandas', 'numpy', 'ipywidgets', 'IPython', 'matplotlib', 'openai', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_module_is_the_command() -> None:
    done = subprocess.run([*PYTHON, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("noetic_nb ")


def test_a_reader_that_has_enough_is_no_fault() -> None:
    # More than a pipe holds, and nobody reads it.
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*PYTHON, "import", "--data", "agentdojo:banking", "--json"], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_the_characters_gets_their_codes(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "hi"}]
    (tmp_path / "talk.json").write_text(json.dumps({"messages": talk, "model": "modèle-é"}))
    done = subprocess.run(
        [*PYTHON, "import", str(tmp_path)], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupt_ends_with_its_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("noetic_nb.lab.datasets.airline", interrupted)
    assert main(["import", "--data", "airline"]) == 130
    assert "interrupted" in capsys.readouterr().err


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=3)
def test_texts_of_sources_stay_texts(command: Command, folder: Path, name: str) -> None:
    text = HOSTILE_TEXTS[name]
    talk = {
        "messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}],
        "model": text,
        "id": text,
    }
    (folder / "talk.json").write_text(json.dumps(talk))
    assert command("report", "talk.json").code == 0
    html = (folder / "report.html").read_text(encoding="utf-8")
    # Pictures of our own stand as data: nothing in them is loaded or run.
    html = re.sub(r'<img alt="[^"<>]*" src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*"', "", html)
    for sign in ("<script", "<img", "onerror=alert(1)>", "<iframe"):
        assert sign not in html.lower()
    for arguments in (
        ["import", "talk.json"],
        ["import", "talk.json", "--json"],
        ["import", "talk.json", "-o", "kept"],
    ):
        answer = command(*arguments)
        assert answer.code == 0
        assert not set(answer.out) & set("\x00\x1b\x07\u202e")
    assert [path.parent for path in folder.rglob("*.jsonl.gz")] == [folder / "kept"]


@matrix("name", list(SHAPES), keep=11)
def test_secrets_stay_out_of_everything_that_is_written(command: Command, folder: Path, name: str) -> None:
    text, secret = made(name)
    messages = [{"role": "user", "content": f"look: {text}"}, {"role": "assistant", "content": text}]
    talk = {"messages": messages, "model": text}
    (folder / "talk.json").write_text(json.dumps(talk))
    answers = [command("import", "talk.json"), command("import", "talk.json", "--json"), command("report", "talk.json")]
    written = "".join([each.out + each.err for each in answers]) + (folder / "report.html").read_text()
    assert "look:" in written
    assert secret not in written


def test_an_interrupt_of_grading_leaves_the_notebooks_that_were_graded(tmp_path: Path) -> None:
    marker = tmp_path / "begun"
    (tmp_path / "in").mkdir()
    for name, code in (
        ("ann", "1"),
        ("bob", f"open({str(marker)!r}, 'w').close()\nimport time\nwhile True: time.sleep(0.01)"),
    ):
        cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None, "source": code}
        text = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]})
        (tmp_path / "in" / f"{name}.ipynb").write_text(text)
    command = [*PYTHON, "grade", str(tmp_path / "in"), "--json"]
    grading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not marker.exists() and grading.poll() is None:
        time.sleep(0.01)
    grading.send_signal(signal.SIGINT)
    out, err = grading.communicate()

    assert grading.returncode == 130, err
    assert [row["submission"] for row in json.loads(out)["submissions"]] == ["ann"]
    assert "the first 1 of 2 notebooks" in err
    assert "Traceback" not in err


@pytest.fixture
def three_talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three files of which the third is interrupted."""
    folder = tmp_path / "talks"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.json").write_text(json.dumps([{"role": "user", "content": name}]))
    read = importing.read_document

    def interrupted(path: Path) -> object:
        if path.name == "c.json":
            raise KeyboardInterrupt
        return read(path)

    monkeypatch.setattr(importing, "read_document", interrupted)
    return folder


def test_an_interrupt_of_an_import_leaves_the_runs_that_were_read(
    three_talks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(RuntimeWarning, match="the first 2 runs"):
        found = list(nn.import_runs(three_talks))
    told: list[object] = []
    with pytest.warns(RuntimeWarning):
        list(nn.import_runs(three_talks, progress=lambda *seen: told.append(seen)))
    with pytest.raises(KeyboardInterrupt):
        nn.import_run(three_talks / "c.json")

    assert [run.turns[0].query for run in found if isinstance(run, nn.Run)] == ["a", "b"]
    assert told == [(1, None), (2, None)]
    assert main(["import", str(three_talks), "-o", str(tmp_path / "out")]) == 1
    assert "import_runs was interrupted" in capsys.readouterr().err
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_command_that_judges_does_not_judge_a_part(
    three_talks: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "rules.yaml", str(three_talks), "--max-blocked", "1"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_caller_that_is_interrupted_between_two_runs_ends() -> None:
    def work() -> None:
        for _ in nn.import_runs([{"messages": [{"role": "user", "content": name}]} for name in "ab"]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
