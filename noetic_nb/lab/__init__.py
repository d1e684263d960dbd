"""Questions asked of recorded runs: data sets to ask them of, replay through another regulator, other rules."""

from noetic_nb.lab import datasets
from noetic_nb.lab.regulator_replay import first_stop, replay_regulator
from noetic_nb.lab.rule_backtest import backtest
from noetic_nb.lab.rule_lint import lint

__all__ = ["backtest", "datasets", "first_stop", "lint", "replay_regulator"]
