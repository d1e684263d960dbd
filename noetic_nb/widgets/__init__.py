"""Views of runs and rule books for notebooks. Only this package depends on Jupyter; lower packages never import it.

A view's module is imported on first use, so a cell imports only the views it shows.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
