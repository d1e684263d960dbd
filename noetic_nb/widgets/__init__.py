"""Views of runs and of rule books for notebooks. The only package that knows Jupyter; nothing below imports it.

A view is loaded when it is first used: a cell that shows one waits for no other.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
