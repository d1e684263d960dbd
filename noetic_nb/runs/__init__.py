"""Everything that happened, as data: runs, the recorder that makes them, their tables and their files."""

from noetic_nb.runs.event_codec import SCHEMA_VERSION
from noetic_nb.runs.load import load_run
from noetic_nb.runs.recorder import Recordable, Recorder, record
from noetic_nb.runs.run import Events, Run
from noetic_nb.runs.turns import TurnSummary

__all__ = ["SCHEMA_VERSION", "Events", "Recordable", "Recorder", "Run", "TurnSummary", "load_run", "record"]
