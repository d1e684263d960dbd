"""Figures of runs for talks, papers and exports: matplotlib without global state, with the same data as the live views.

Each function draws on the given axes, or on a new figure that pyplot does not know, and returns the axes. So nothing
has to be closed, a notebook draws nothing twice, and a cell that ends in the axes shows their figure. matplotlib is
imported on first use, because it is missing in the browser, where lessons with figures must still start.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
