"""Workers that are forks do what new processes would, have what their leader imported, and are replaced when they crash."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_workers
from tests.forked_workers import TASKS, Reader
from tests.matrix import matrix

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
CRASH_OF_A_PARENT = """
import os, signal
def test_crash():
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        signal.pause()
    open("child", "w").write(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
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
    with (folder / "output").open("w") as output:  # not a pipe, which ends when nobody has it open
        subprocess.run(
            [sys.executable, "-m", "pytest", "--disable-plugin-autoload", *command],
            stdout=output, stderr=output, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=100,
        )  # fmt: skip
    return (folder / "output").read_text()


@pytest.mark.skipif(not TASKS.exists(), reason="no forks on this system")
@matrix("start", {"forked": "", "new as the leader has threads": THREAD}, keep=1)
def test_workers_are_as_new(tmp_path: Path, start: str) -> None:
    said = run(tmp_path, conftest=LEADER + start, test_them=TESTS)

    assert re.search(r"^12 passed in", said, re.MULTILINE), said
    workers = [file for file in (tmp_path / "said").iterdir() if not file.suffix]
    lines = [line.split() for file in workers for line in file.read_text().splitlines()]
    assert {tuple(line[:-1]) for line in lines} == {(str(not start), "-c", "False")}
    assert len({line[-1] for line in lines}) == 12  # no two workers draw the same numbers
    assert all(file.with_suffix(".ended").exists() for file in workers)


@matrix("crash", {"with a child": CRASH_OF_A_PARENT, "alone": CRASH}, keep=1)
def test_a_worker_that_crashed_is_reported_also_while_its_child_lives_and_is_replaced(
    tmp_path: Path, crash: str
) -> None:
    try:
        said = run(tmp_path, conftest=LEADER, test_them=TESTS, test_crash=crash if TASKS.exists() else CRASH)
    finally:
        for file in tmp_path.glob("child"):
            os.kill(int(file.read_text()), signal.SIGKILL)

    assert re.search(r"^1 failed, 12 passed in", said, re.MULTILINE), said
    assert re.search(r"worker 'gw\d' crashed while running 'test_crash.py::test_crash'", said)


def test_a_worker_that_says_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_workers, "LOOK_MS", 1)
    (its_end, other_end), worker = os.pipe(), subprocess.Popen(["sleep", "100"])
    reader = Reader(its_end, worker.pid, lambda: worker.poll() is not None, silence_s=0.02)
    os.write(other_end, b"1234567")

    assert (reader.read(3), reader.read(4)) == (b"123", b"4567")
    assert not reader.is_silent
    with pytest.raises(EOFError, match="has ended"):  # though its pipe is open
        reader.read(1)

    assert reader.is_silent
    assert worker.wait(60) == -signal.SIGKILL
    for end in (its_end, other_end):
        os.close(end)


@pytest.mark.skipif(not TASKS.exists(), reason="no forks on this system")
def test_the_leader_imports_for_its_workers(tmp_path: Path) -> None:
    here = LEADER.replace("sys.led = True", "sys.here = 'leader'") + "    else:\n        sys.here = 'worker'\n"
    said = run(tmp_path, conftest=here, test_imported=IMPORTED)

    assert re.search(r"^1 passed in", said, re.MULTILINE), said


def test_what_warns_where_it_is_imported_is_reported(tmp_path: Path) -> None:
    said = run(tmp_path, conftest=LEADER, test_warns=WARNS, test_imported=IMPORTED.replace("assert", "return; assert"))

    assert "ERROR collecting test_warns.py" in said, said
    assert "UserWarning: look out" in said
