"""Questions asked of recorded runs: data sets to ask them of, replay through another regulator, other rules."""

from noetic_nb.lab import datasets, replay
from noetic_nb.lab.backtest import backtest

__all__ = ["backtest", "datasets", "replay"]
