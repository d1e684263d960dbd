"""Steps: the actions of an agent, as data that composes. JSON forms, plans and teams are loaded on first use."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
