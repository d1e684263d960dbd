"""Workers that are forks do what new processes would, have what their leader imported, and are replaced when they crash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_workers import TASKS

ROOT = Path(__file__).parents[2]
LEADER = """
import sys
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        sys.led = True
"""
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
TESTS = """
import atexit, os, random, sys
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range(12))
def test_process(number):
    said = Path("said", f"{os.getpid()}")
    atexit.register(said.with_suffix(".ended").touch)
    main = sys.modules["__main__"]
    with said.open("a") as file:
        print(hasattr(sys, "led"), *sys.argv, hasattr(main, "__file__"), random.random(), file=file)
"""
CRASH = """
import os, signal
def test_crash(): os.kill(os.getpid(), signal.SIGKILL)
"""
WARNS = """
import warnings
warnings.warn("look out", UserWarning)
def test_good(): pass
"""
IMPORTED = """
import sys
where = getattr(sys, "here", "worker")
def test_imported_by_the_leader(): assert where == "leader"
"""


def run(folder: Path, *options: str, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "said").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\nfilterwarnings = error\n")
    command = ["-q", "-n", "2", "-p", "xdist", "-p", "tests.forked_workers", "--import-mode=importlib", *options]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--disable-plugin-autoload", *command],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.skipif(not TASKS.exists(), reason="no forks on this system")
@pytest.mark.parametrize("start", ["", THREAD], ids=["forked", "new as the leader has threads"])
def test_workers_are_as_new(tmp_path: Path, start: str) -> None:
    said = run(tmp_path, conftest=LEADER + start, test_them=TESTS)

    assert re.search(r"^12 passed in", said, re.MULTILINE), said
    workers = [file for file in (tmp_path / "said").iterdir() if not file.suffix]
    lines = [line.split() for file in workers for line in file.read_text().splitlines()]
    assert {tuple(line[:-1]) for line in lines} == {(str(not start), "-c", "False")}
    assert len({line[-1] for line in lines}) == 12  # no two workers draw the same numbers
    assert all(file.with_suffix(".ended").exists() for file in workers)


def test_a_worker_that_crashed_is_reported_and_replaced(tmp_path: Path) -> None:
    said = run(tmp_path, conftest=LEADER, test_them=TESTS, test_crash=CRASH)

    assert re.search(r"^1 failed, 12 passed in", said, re.MULTILINE), said
    assert re.search(r"worker 'gw\d' crashed while running 'test_crash.py::test_crash'", said)


@pytest.mark.skipif(not TASKS.exists(), reason="no forks on this system")
def test_the_leader_imports_for_its_workers(tmp_path: Path) -> None:
    here = LEADER.replace("sys.led = True", "sys.here = 'leader'") + "    else:\n        sys.here = 'worker'\n"
    said = run(tmp_path, conftest=here, test_imported=IMPORTED)

    assert re.search(r"^1 passed in", said, re.MULTILINE), said


def test_what_warns_where_it_is_imported_is_reported(tmp_path: Path) -> None:
    said = run(tmp_path, conftest=LEADER, test_warns=WARNS, test_imported=IMPORTED.replace("assert", "return; assert"))

    assert "ERROR collecting test_warns.py" in said, said
    assert "UserWarning: look out" in said
