"""For tests: a clock, ids and a loop under control, a simulated provider, contract tests for your own parts.

A scripted model is in `noetic_nb.models`.
"""

from noetic_nb.testing.clock import FakeClock, SeededIds
from noetic_nb.testing.event_loop import VirtualTimeLoop, drive_loop
from noetic_nb.testing.findings import ContractCheck, Finding
from noetic_nb.testing.layer_contract import check_layer
from noetic_nb.testing.model_contract import check_model
from noetic_nb.testing.simulated_provider import SimulatedProvider
from noetic_nb.testing.storage_contract import check_storage

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
