"""Questions asked of recorded runs: data sets to ask them of, replay through another regulator, other rules."""

from noetic_nb.lab import datasets, replay
from noetic_nb.lab.backtest import backtest
from noetic_nb.lab.lint import lint

__all__ = ["backtest", "datasets", "lint", "replay"]
