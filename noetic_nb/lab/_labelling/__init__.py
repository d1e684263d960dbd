"""Labels of many runs: agreement of raters, and files of other tools."""

from noetic_nb.runs._codebook import Codebook

__all__ = ["Codebook"]
