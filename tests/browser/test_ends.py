"""What tests in a browser start and ask comes to an end, also where a page or a worker does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.browser.lab import FOLLOW
from tests.browser.window import LabNotebook

OWNER = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1].format(parent=os.getpid())])
os._exit(0)
"""
SERVER = """
while True:
    signal.pause()
"""


def test_a_server_ends_with_what_started_it(tmp_path: Path) -> None:
    # What it has open ends with it.
    owner = subprocess.run(
        [sys.executable, "-S", "-c", OWNER, FOLLOW + SERVER], stdout=subprocess.PIPE, timeout=60, check=True
    )

    assert owner.stdout == b""


def test_a_page_of_a_test_that_failed_is_asked_nothing_and_not_used_again(tmp_path: Path) -> None:
    said: list[str] = []
    lab = SimpleNamespace(root=tmp_path, window=None)
    window = SimpleNamespace(
        lab=lab, page=None, shared=None, close=lambda: said.append("closed"), leave=lambda: said.append("asked") or True
    )
    lab.window = window

    LabNotebook(window, "one", []).close(is_suspect=True)
    assert (said, lab.window) == (["closed"], None)
    lab.window = window
    LabNotebook(window, "two", []).close()
    assert (said, lab.window) == (["closed", "asked"], window)
