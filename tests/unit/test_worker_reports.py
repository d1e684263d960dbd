"""What workers leave out of their reports is what nobody would have read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
@pytest.fixture
def bad_start(): raise KeyError("bad start")
@pytest.fixture
def bad_end():
    yield
    raise KeyError("bad end")
@pytest.fixture
def last_words():
    yield
    print("last words")
@pytest.mark.parametrize("number", range(3))
def test_good(number): pass
def test_never_begun(bad_start): pass
def test_badly_ended(bad_end): pass
@pytest.mark.skip(reason="left out")
def test_left_out(): pass
def test_bad(last_words): assert not "bad"
"""
BOTH = {"what is left out": [], "all of it": ["--durations=1"]}


@pytest.mark.parametrize("options", BOTH.values(), ids=list(BOTH))
def test_every_fault_is_reported_with_what_was_printed(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "test_them.py").write_text(TESTS)
    command = [
        "-q",
        "-rs",
        "-n",
        "1",
        "-p",
        "xdist",
        "-p",
        "tests.worker_reports",
        "--disable-plugin-autoload",
        *options,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path), *command, str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert re.search(r"1 failed, 4 passed, 1 skipped, 2 errors in", done.stdout), done.stdout + done.stderr
    assert all(
        said in done.stdout for said in ("KeyError: 'bad start'", "KeyError: 'bad end'", "last words", "left out")
    )
    assert ("teardown test_them.py" in done.stdout or "slowest" in done.stdout) == bool(options)
