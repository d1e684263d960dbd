"""The runtime: steps made to happen, threads, plans, and everything an execution owes to its layers."""

from typing import TYPE_CHECKING

from noetic_nb.lazy import lazily
from noetic_nb.runtime.config import AgentConfig
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.harness import AgentHarness
from noetic_nb.runtime.limits import Limits
from noetic_nb.runtime.plan import TurnPlan, plan_turn
from noetic_nb.runtime.reply import AgentReply
from noetic_nb.runtime.session import ThreadStatus
from noetic_nb.steps import channel, react

if TYPE_CHECKING:
    from noetic_nb.runtime.checkpoint import Checkpoints
    from noetic_nb.runtime.config_json import dump_config, load_config
    from noetic_nb.runtime.findings import Finding
    from noetic_nb.runtime.handles import Handle
    from noetic_nb.runtime.memory_view import LayerMemory, MemoryView
    from noetic_nb.runtime.otel import OTelExporter
    from noetic_nb.runtime.remembering import ContextMemory
    from noetic_nb.runtime.streaming import TurnStream

__all__ = [
    "AgentConfig",
    "AgentHarness",
    "AgentReply",
    "Checkpoints",
    "Context",
    "ContextMemory",
    "Finding",
    "Handle",
    "LayerMemory",
    "Limits",
    "MemoryView",
    "OTelExporter",
    "ThreadStatus",
    "TurnPlan",
    "TurnStream",
    "channel",
    "dump_config",
    "load_config",
    "plan_turn",
    "react",
]

__getattr__ = lazily(
    __name__,
    {
        "Checkpoints": "noetic_nb.runtime.checkpoint",
        "ContextMemory": "noetic_nb.runtime.remembering",
        "Finding": "noetic_nb.runtime.findings",
        "Handle": "noetic_nb.runtime.handles",
        "LayerMemory": "noetic_nb.runtime.memory_view",
        "MemoryView": "noetic_nb.runtime.memory_view",
        "OTelExporter": "noetic_nb.runtime.otel",
        "TurnStream": "noetic_nb.runtime.streaming",
        "dump_config": "noetic_nb.runtime.config_json",
        "load_config": "noetic_nb.runtime.config_json",
    },
)
