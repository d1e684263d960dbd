"""A notebook laboratory for the memory and steering of LLM agents.

Everyday names are here; widgets are in `noetic_nb.widgets`, questions asked of recorded runs in `noetic_nb.lab`.
"""

from typing import TYPE_CHECKING

from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError, innermost
from noetic_nb.items import Item, ItemLog, dump_item, item_tokens, parse_item
from noetic_nb.lazy import lazily
from noetic_nb.memory import (
    ExecutionContext,
    LayerStack,
    MemoryHooks,
    MemoryLayer,
    ProjectionPolicy,
    Slot,
    Stop,
    allocate_budgets,
    assemble_view,
    layer_data,
    layer_fn,
    memory,
)
from noetic_nb.models import (
    CallTool,
    Fault,
    ModelClient,
    ModelParams,
    ModelRequest,
    ModelResponse,
    Reply,
    ScriptedModel,
    Usage,
)
from noetic_nb.runtime import AgentConfig, AgentHarness, AgentReply, Context, TurnPlan, plan_turn
from noetic_nb.steering import (
    RuleBook,
    SteeringAction,
    SteeringDecision,
    SteeringRule,
    allow,
    deny,
    guide,
    steering,
)
from noetic_nb.steps import Tool, loop, react, step, tool, until
from noetic_nb.storage import InMemoryStorage, ScopedStorage, StorageAdapter
from noetic_nb.sync import run_sync
from noetic_nb.tokens import estimate_tokens

if TYPE_CHECKING:
    from noetic_nb.layers import regulation, static_content, working_memory
    from noetic_nb.models import CassetteModel, OpenAIModel
    from noetic_nb.regulator import Regulator
    from noetic_nb.runs import Recorder, Run, load_run, record
    from noetic_nb.storage import SQLiteStorage

__version__ = "0.1.0"

__all__ = [
    "AgentConfig",
    "AgentHarness",
    "AgentReply",
    "CallTool",
    "CassetteModel",
    "Context",
    "ExecutionContext",
    "Fault",
    "InMemoryStorage",
    "Item",
    "ItemLog",
    "ItemValidationError",
    "LayerStack",
    "MemoryHooks",
    "MemoryLayer",
    "ModelClient",
    "ModelParams",
    "ModelRequest",
    "ModelResponse",
    "NoeticConfigError",
    "NoeticError",
    "OpenAIModel",
    "ProjectionPolicy",
    "Recorder",
    "Regulator",
    "Reply",
    "RuleBook",
    "Run",
    "SQLiteStorage",
    "ScopedStorage",
    "ScriptedModel",
    "Slot",
    "SteeringAction",
    "SteeringDecision",
    "SteeringRule",
    "Stop",
    "StorageAdapter",
    "Tool",
    "TurnPlan",
    "Usage",
    "allocate_budgets",
    "allow",
    "assemble_view",
    "deny",
    "dump_item",
    "estimate_tokens",
    "guide",
    "innermost",
    "item_tokens",
    "layer_data",
    "layer_fn",
    "load_run",
    "loop",
    "memory",
    "parse_item",
    "plan_turn",
    "react",
    "record",
    "regulation",
    "run_sync",
    "static_content",
    "steering",
    "step",
    "tool",
    "until",
    "working_memory",
]

__getattr__ = lazily(
    __name__,
    {
        "CassetteModel": "noetic_nb.models",
        "OpenAIModel": "noetic_nb.models",
        "Recorder": "noetic_nb.runs",
        "Regulator": "noetic_nb.regulator",
        "Run": "noetic_nb.runs",
        "SQLiteStorage": "noetic_nb.storage",
        "load_run": "noetic_nb.runs",
        "record": "noetic_nb.runs",
        "regulation": "noetic_nb.layers",
        "static_content": "noetic_nb.layers",
        "working_memory": "noetic_nb.layers",
    },
)
