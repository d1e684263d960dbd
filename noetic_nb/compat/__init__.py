"""Drop-in replacements for other packages: only the import line changes."""

from noetic_nb.compat import noos

__all__ = ["noos"]
