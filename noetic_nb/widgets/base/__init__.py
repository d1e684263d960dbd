"""The shared parts of all views, for writing your own view: see docs/recipes/view.md and lesson 8."""

from noetic_nb.widgets.base._assets import script, style
from noetic_nb.widgets.base._feed import Reading
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import Moment

__all__ = ["Moment", "Reading", "RunView", "script", "style"]
