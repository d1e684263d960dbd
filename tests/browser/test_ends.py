"""Processes and requests of browser tests end, even if a page or a worker does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

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

# As when a kernel subshell ends while a message for it waits.
CLOSED = """
import asyncio, gc
class Kernel:
    async def {name}(self): pass
loop = asyncio.new_event_loop()
loop.create_task(Kernel().{name}())
loop.close()
del loop
gc.collect()
"""


def test_a_server_ends_with_what_started_it(tmp_path: Path) -> None:
    # Its child processes end with it.
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


@pytest.mark.parametrize(("task", "complains"), [("shell_main", False), ("turn", True)])
def test_a_task_that_ipykernel_drops_fails_no_test_and_any_other_does(
    task: str, complains: bool, notebook: Callable[..., LabNotebook]
) -> None:
    opened = notebook(CLOSED.format(name=task))

    with pytest.raises(AssertionError, match="Task was destroyed") if complains else nullcontext():
        opened.run_all()
