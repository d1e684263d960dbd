"""``noetic-nb view``: a notebook with the workbench of a run, opened in JupyterLab."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noetic_nb._core.atomic_write import write_whole
from noetic_nb.cli._command import FINE, Command, Output
from noetic_nb.cli._run_arguments import add_sources, runs_of
from noetic_nb.errors import NoeticConfigError


def _add_arguments(parser: ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("--run", dest="only", metavar="RUN", help="which one: its id, or its place from 0")
    parser.add_argument("-o", "--output", type=Path, default=Path("run.ipynb"), help="the notebook (run.ipynb)")
    parser.add_argument("--no-open", action="store_true", help="only write the notebook and the run beside it")


def notebook(run_file: str) -> dict[str, Any]:
    """Return a notebook that shows the run of a file beside it, as JSON data."""
    cells = [
        f"import noetic_nb as nn\nfrom noetic_nb.widgets import Workbench\n\nrun = nn.load_run({run_file!r})\nrun",
        "bench = Workbench(run)\nbench",
    ]
    return {
        "cells": [
            {
                "cell_type": "code",
                "execution_count": None,
                "id": f"cell-{at}",
                "metadata": {},
                "outputs": [],
                "source": text,
            }
            for at, text in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _run(given: Namespace, output: Output) -> int:
    if not given.no_open and find_spec("jupyterlab") is None:
        hint = "pip install 'noetic_nb[lab]', or --no-open to write the notebook only."
        raise NoeticConfigError("MISSING_PACKAGE", "JupyterLab is not installed.", hint=hint)
    (run,), _ = runs_of(given, output, only=given.only, one=True)
    run_file = given.output.with_suffix(".jsonl.gz")
    if given.output.exists():
        hint = "Name another one with --output."
        raise NoeticConfigError("FILE_EXISTS", "The notebook is there already.", given=str(given.output), hint=hint)
    run.save(run_file)
    write_whole(given.output, json.dumps(notebook(run_file.name), indent=1) + "\n")
    output.text(f"{given.output}: shows {run_file.name}; run its cells")
    output.answer({"notebook": str(given.output), "run": str(run_file)})
    # Not ours to answer for: JupyterLab says itself what is wrong, and ends when the person ends it.
    return FINE if given.no_open else subprocess.call([sys.executable, "-m", "jupyterlab", str(given.output)])


VIEW = Command(
    "view",
    "Open the workbench of a run in JupyterLab.",
    "--data airline --run 0 --no-open",
    "0: the notebook is written; otherwise what JupyterLab exits with.",
    _add_arguments,
    _run,
)
