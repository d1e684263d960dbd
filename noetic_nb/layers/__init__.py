"""Layers that come with the library."""

from typing import TYPE_CHECKING

from noetic_nb.lazy import lazily

if TYPE_CHECKING:
    from noetic_nb.layers.dates import temporal_memory
    from noetic_nb.layers.embedding import Embedder, HashingEmbedder
    from noetic_nb.layers.entities import entity_memory
    from noetic_nb.layers.episodes import episodic_memory
    from noetic_nb.layers.files import file_reference
    from noetic_nb.layers.history import history_window
    from noetic_nb.layers.observing import observational_memory
    from noetic_nb.layers.planning import plan_memory
    from noetic_nb.layers.procedures import procedural_memory
    from noetic_nb.layers.regulating import Grader, RegulatedReply, regulation
    from noetic_nb.layers.searching import semantic_recall
    from noetic_nb.layers.static import static_content
    from noetic_nb.layers.tasks import durable_task_state
    from noetic_nb.layers.toolbox import tool_memory
    from noetic_nb.layers.working import deep_merge, working_memory

__all__ = [
    "Embedder",
    "Grader",
    "HashingEmbedder",
    "RegulatedReply",
    "deep_merge",
    "durable_task_state",
    "entity_memory",
    "episodic_memory",
    "file_reference",
    "history_window",
    "observational_memory",
    "plan_memory",
    "procedural_memory",
    "regulation",
    "semantic_recall",
    "static_content",
    "temporal_memory",
    "tool_memory",
    "working_memory",
]

__getattr__ = lazily(
    __name__,
    {
        "Embedder": "noetic_nb.layers.embedding",
        "Grader": "noetic_nb.layers.regulating",
        "HashingEmbedder": "noetic_nb.layers.embedding",
        "RegulatedReply": "noetic_nb.layers.regulating",
        "deep_merge": "noetic_nb.layers.working",
        "durable_task_state": "noetic_nb.layers.tasks",
        "entity_memory": "noetic_nb.layers.entities",
        "episodic_memory": "noetic_nb.layers.episodes",
        "file_reference": "noetic_nb.layers.files",
        "history_window": "noetic_nb.layers.history",
        "observational_memory": "noetic_nb.layers.observing",
        "plan_memory": "noetic_nb.layers.planning",
        "procedural_memory": "noetic_nb.layers.procedures",
        "regulation": "noetic_nb.layers.regulating",
        "semantic_recall": "noetic_nb.layers.searching",
        "static_content": "noetic_nb.layers.static",
        "temporal_memory": "noetic_nb.layers.dates",
        "tool_memory": "noetic_nb.layers.toolbox",
        "working_memory": "noetic_nb.layers.working",
    },
)
