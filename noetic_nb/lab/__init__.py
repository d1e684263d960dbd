"""Experiments on recorded runs: data sets, replay through another regulator, other rules; loaded on first use."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
