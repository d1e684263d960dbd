"""Files that are written whole or not at all, and the calibrations that are saved as such."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb._core.atomic_write import read_form, save_form, write_whole
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab import Calibration
from noetic_nb.models._cassette_file import Tape, TapeSecrets, write_cassette
from noetic_nb.tokenizers import TokenCalibration

WRITERS: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: write_whole(path, "new"),
    "form": lambda path: save_form(path, "orders 1", {"ids": []}),
    "run": lambda path: nn.Run().save(path),
    "tape": lambda path: write_cassette(path, Tape(TapeSecrets(), [])),
    "tokens": lambda path: TokenCalibration().save(path),
    "detectors": lambda path: Calibration(None, None, {}, {}, (), 0, {}, (), ()).save(path),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_is_written_whole_or_not_at_all(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    write_whole(path, "old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises((NoeticConfigError, NoeticError), match="No space left"):
        WRITERS[writer](path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_stays_a_link_and_its_target_is_replaced(writer: str, tmp_path: Path) -> None:
    path, link = tmp_path / "kept", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)

    WRITERS[writer](link)

    assert link.is_symlink()
    assert path.read_bytes() != b"old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    path = save_form(tmp_path / "orders.json", "orders 1", {"ids": ["A17"]})

    with pytest.raises(ValueError, match="orders 1"):
        read_form(path, "orders 2")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_or_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)

    for path in (pipe, link):
        with pytest.raises(NoeticConfigError, match="this is not a regular file"):
            write_whole(path, "text")
        assert pipe.is_fifo()
        assert len([*tmp_path.iterdir()]) == 2
