"""Layers that come with the library."""

from noetic_nb.layers.regulation import Grader, RegulatedReply, regulation
from noetic_nb.layers.static_content import static_content
from noetic_nb.layers.working_memory import working_memory

__all__ = ["Grader", "RegulatedReply", "regulation", "static_content", "working_memory"]
