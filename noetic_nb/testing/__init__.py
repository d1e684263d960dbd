"""Test tools: a controlled clock, ids and event loop, a simulated provider, and contract tests for your own parts.

A scripted model is in `noetic_nb.models`.
"""

from noetic_nb.testing._clock import FakeClock, SeededIds, VirtualTimeLoop, drive_loop
from noetic_nb.testing._findings import ContractCheck, Finding
from noetic_nb.testing._layer_contract import check_layer
from noetic_nb.testing._model_contract import check_model
from noetic_nb.testing._simulated_provider import SimulatedProvider
from noetic_nb.testing._storage_contract import check_storage

__all__ = [
    "ContractCheck",
    "FakeClock",
    "Finding",
    "SeededIds",
    "SimulatedProvider",
    "VirtualTimeLoop",
    "check_layer",
    "check_model",
    "check_storage",
    "drive_loop",
]


def __dir__() -> list[str]:
    return sorted(__all__)
