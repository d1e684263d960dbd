"""Experiments on recorded runs: data sets, replay through another regulator, other rules."""

from noetic_nb.lab import datasets
from noetic_nb.lab.caching_changes import what_if_cached
from noetic_nb.lab.detection.calibration import Calibration
from noetic_nb.lab.detection.stopping_value import economics
from noetic_nb.lab.detection.threshold_search import calibrate
from noetic_nb.lab.regulator_replay import first_stop, replay_regulator
from noetic_nb.lab.remembering.losses import Losses, lost
from noetic_nb.lab.remembering.memory_benches import memory_bench
from noetic_nb.lab.remembering.near_misses import near_misses
from noetic_nb.lab.replaying.comparison import Comparison, compare
from noetic_nb.lab.replaying.forks import fork
from noetic_nb.lab.replaying.regulator_readings import RegulatorReadings
from noetic_nb.lab.replaying.replays import replay
from noetic_nb.lab.rule_backtest import backtest
from noetic_nb.lab.rule_lint import lint
from noetic_nb.lab.rule_scores.evaluation import Evaluation, evaluate
from noetic_nb.lab.rule_scores.rule_suggestions import Suggestion, Suggestions, suggest
from noetic_nb.lab.sweeping.pareto_front import pareto
from noetic_nb.lab.sweeping.sweeps import sweep
from noetic_nb.lab.time_profile import profile
from noetic_nb.lazy import moved_names

__all__ = [
    "Calibration",
    "Comparison",
    "Evaluation",
    "Losses",
    "RegulatorReadings",
    "Suggestion",
    "Suggestions",
    "backtest",
    "calibrate",
    "compare",
    "datasets",
    "economics",
    "evaluate",
    "first_stop",
    "fork",
    "lint",
    "lost",
    "memory_bench",
    "near_misses",
    "pareto",
    "profile",
    "replay",
    "replay_regulator",
    "suggest",
    "sweep",
    "what_if_cached",
]

__getattr__ = moved_names(__name__)
