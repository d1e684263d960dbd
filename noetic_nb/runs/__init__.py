"""Everything that happened, as data: runs, the recorder that makes them, their tables and their files."""

from noetic_nb.runs.files import load_run
from noetic_nb.runs.recorder import Recordable, Recorder, record
from noetic_nb.runs.run import SCHEMA_VERSION, Events, Run
from noetic_nb.runs.turns import TurnSummary

__all__ = ["SCHEMA_VERSION", "Events", "Recordable", "Recorder", "Run", "TurnSummary", "load_run", "record"]
