"""A folder with a rule file and a notebook that was handed in, in which the commands run, and a way to run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from noetic_nb.cli.main import main

RULES = """
version: 1
rules:
- id: no-transfer
  on: [before_tool_call]
  tools: [transfer_to_human_agents]
  at_most: 0
"""

NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}


class Answer(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The answer as JSON."""
        return json.loads(self.out)


Command = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "handed-in").mkdir()
    (tmp_path / "handed-in" / "ann.ipynb").write_text(json.dumps(NOTEBOOK))
    return tmp_path


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> Answer:
        try:
            code = main(arguments)
        except SystemExit as exit:  # argparse leaves so
            code = int(exit.code or 0)
        written = capsys.readouterr()
        return Answer(code, written.out, written.err)

    return run
