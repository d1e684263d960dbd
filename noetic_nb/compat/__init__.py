"""Faces of other packages over this one, for people who change one import line."""

from noetic_nb.compat import noos

__all__ = ["noos"]
