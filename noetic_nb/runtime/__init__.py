"""The runtime: executes steps, manages threads, plans model calls and runs the hooks of layers."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    __file__,
    also={"TextRetracted": "noetic_nb.events", "channel": "noetic_nb.steps", "react": "noetic_nb.steps"},
)
