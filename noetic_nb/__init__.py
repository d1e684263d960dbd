"""A notebook laboratory for the memory and steering of LLM agents.

Everyday names are here; widgets are in `noetic_nb.widgets`, questions asked of recorded runs in `noetic_nb.lab`. A name is
loaded when it is first used, so that importing the library costs next to nothing.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(
    __name__, __file__, modules=frozenset({"memory", "steering"}), rooms=frozenset({"lab", "plots", "widgets"})
)

__version__ = "0.1.0"
