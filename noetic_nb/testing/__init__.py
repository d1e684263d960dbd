"""For tests of agents: a clock, ids and a loop under control. A scripted model is in `noetic_nb.models`."""

from noetic_nb.testing.clock import FakeClock, SeededIds
from noetic_nb.testing.event_loop import VirtualTimeLoop, drive_loop

__all__ = ["FakeClock", "SeededIds", "VirtualTimeLoop", "drive_loop"]
