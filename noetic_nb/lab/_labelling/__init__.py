"""Labels of many runs: agreement of raters, and files of other tools."""

from noetic_nb.runs._labels import Codebook

__all__ = ["Codebook"]
