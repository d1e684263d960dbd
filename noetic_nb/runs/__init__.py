"""Runs as data: the recorder that makes them, their tables and their files."""

from noetic_nb.runs._recording.recorder import Recorder, record
from noetic_nb.runs._recording.recover import recover
from noetic_nb.runs._run import Run, load_run

__all__ = ["Recorder", "Run", "load_run", "record", "recover"]


def __dir__() -> list[str]:
    return sorted(__all__)
