"""Questions asked of recorded runs: data sets to ask them of, and replay through another regulator."""

from noetic_nb.lab import datasets, replay

__all__ = ["datasets", "replay"]
