"""Converts messages of other frameworks to items and back; the lowest level that knows provider formats."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
