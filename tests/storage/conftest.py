from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from noetic_nb.storage import SQLiteStorage

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "desk.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStorage]:
    async with SQLiteStorage(path) as opened:
        yield opened


@pytest.fixture
def start_worker() -> Callable[..., subprocess.Popen[str]]:
    """Start `worker.py` in a process of its own."""

    def start(*arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
