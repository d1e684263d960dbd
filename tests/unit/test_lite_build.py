"""The build of the site that needs no server says how far it is, and an interrupt keeps what was fetched."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lite import build

NAMES = ("alpha", "beta", "gamma")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of three wheels, and the folder that they are fetched into."""
    lock = tmp_path / "wheels.txt"
    lock.write_text("".join(f"{name}==1.0 --hash=sha256:{sha256(name.encode()).hexdigest()}\n" for name in NAMES))
    monkeypatch.setattr(build, "LOCK", lock)
    return tmp_path / "files"


def pip(monkeypatch: pytest.MonkeyPatch, *, interrupted_at: str | None = None) -> list[str]:
    """Stand in for pip: as it does, it puts files into place when all of a call are fetched."""
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> Any:
        into = Path(command[command.index("--dest") + 1])
        names = [
            line.split("==")[0] for line in Path(command[command.index("--requirement") + 1]).read_text().split("\n")
        ]
        names = [name for name in names if name]
        asked.extend(names)
        if interrupted_at in names:
            raise KeyboardInterrupt
        for name in names:
            (into / f"{name}-1.0-py3-none-any.whl").write_text(name)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_an_interrupt_keeps_what_was_fetched_and_the_next_build_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pip(monkeypatch, interrupted_at="gamma")
    monkeypatch.setattr("sys.argv", ["build.py", "--files", str(folder), "--out", str(folder.parent / "site")])

    assert build.main() == 130

    told = capsys.readouterr()
    assert [path.name.split("-")[0] for path in sorted(folder.iterdir())] == ["alpha", "beta"]
    assert f"What was fetched is kept in {folder}" in told.err
    assert [line for line in told.out.splitlines() if line.startswith("fetching")] == [
        f"fetching wheel {number} of 3: {name} 1.0" for number, name in enumerate(NAMES, 1)
    ]
    asked = pip(monkeypatch)
    assert sorted(build.fetched(build.LOCK, folder)) == list(NAMES)
    assert asked == ["gamma"]
