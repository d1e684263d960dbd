"""Figures of runs for talks, papers and exports: matplotlib, no global state, the same readings as the live views.

Each function draws on the axes it is given or on a figure of its own, which it registers nowhere, and returns the axes: nothing
has to be closed, nothing is drawn twice in a notebook, and a cell that ends in the axes shows their figure.
"""

from noetic_nb.plots.allocation_figure import allocation
from noetic_nb.plots.economics_figure import economics
from noetic_nb.plots.ledger_figure import ledger
from noetic_nb.plots.memory_figure import memory_bench
from noetic_nb.plots.pareto_figure import pareto
from noetic_nb.plots.roc_figure import roc
from noetic_nb.plots.sweep_figure import sweep
from noetic_nb.plots.timeline_figure import timeline
from noetic_nb.plots.trends_figure import trends

# The name of `trends` in version 0.1.
quality_and_cost = trends

__all__ = [
    "allocation",
    "economics",
    "ledger",
    "memory_bench",
    "pareto",
    "quality_and_cost",
    "roc",
    "sweep",
    "timeline",
    "trends",
]
