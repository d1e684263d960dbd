"""Storage of state: the four-method protocol and the stores that implement it.

`SQLiteStorage` and `Versioned` load SQLite on first use, so that importing the package stays cheap.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
