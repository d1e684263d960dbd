"""A notebook laboratory for the memory and steering of LLM agents.

The most common names are here; widgets are in `noetic_nb.widgets`, analyses of recorded runs in `noetic_nb.lab`. Names
are loaded on first use, so that importing the library is cheap.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    __file__,
    modules=frozenset({"memory", "steering"}),
    rooms=frozenset(
        {"errors", "events", "items", "lab", "layers", "lessons"}
        | {"plots", "regulator", "steps", "storage", "testing", "widgets"}
    ),
)

__version__ = "0.1.0"
