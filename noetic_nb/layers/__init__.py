"""Layers that come with the library."""

from typing import TYPE_CHECKING

from noetic_nb.lazy import lazily

if TYPE_CHECKING:
    from noetic_nb.layers.regulating import Grader, RegulatedReply, regulation
    from noetic_nb.layers.static import static_content
    from noetic_nb.layers.working import deep_merge, working_memory

__all__ = ["Grader", "RegulatedReply", "deep_merge", "regulation", "static_content", "working_memory"]

__getattr__ = lazily(
    __name__,
    {
        "Grader": "noetic_nb.layers.regulating",
        "RegulatedReply": "noetic_nb.layers.regulating",
        "deep_merge": "noetic_nb.layers.working",
        "regulation": "noetic_nb.layers.regulating",
        "static_content": "noetic_nb.layers.static",
        "working_memory": "noetic_nb.layers.working",
    },
)
