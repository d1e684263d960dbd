"""Figures of runs for talks, papers and exports: matplotlib, no global state, the same readings as the live views.

Each function draws on the axes it is given or on a figure of its own, which it registers nowhere, and returns the axes: nothing
has to be closed, nothing is drawn twice in a notebook, and a cell that ends in the axes shows their figure. matplotlib is
loaded with the first of them: a page in the browser does not have it, and a lesson that draws still begins there.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
