"""Layers that come with the library."""

from noetic_nb.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
