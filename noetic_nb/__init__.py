"""A notebook laboratory for the memory and steering of LLM agents.

Everyday names are here; widgets are in `noetic_nb.widgets`, questions asked of recorded runs in `noetic_nb.lab`. A name is
loaded when it is first used, so that importing the library costs next to nothing.
"""

from typing import TYPE_CHECKING

from noetic_nb.lazy import keep_names, lazily

if TYPE_CHECKING:
    from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError, innermost
    from noetic_nb.items import Item, ItemLog, dump_item, item_tokens, parse_item
    from noetic_nb.layers import regulation, static_content, working_memory
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
        CassetteModel,
        Fault,
        ModelClient,
        ModelParams,
        ModelRequest,
        ModelResponse,
        OpenAIModel,
        Reply,
        ScriptedModel,
        Usage,
    )
    from noetic_nb.regulator import Regulator
    from noetic_nb.runs import Recorder, Run, load_run, record
    from noetic_nb.runtime import AgentConfig, AgentHarness, AgentReply, Context, TurnPlan, plan_turn
    from noetic_nb.steering import (
        RuleBook,
        SteeringAction,
        SteeringDecision,
        SteeringRule,
        allow,
        ask,
        deny,
        guide,
        steering,
    )
    from noetic_nb.steps import Tool, loop, react, step, tool, until
    from noetic_nb.storage import InMemoryStorage, ScopedStorage, SQLiteStorage, StorageAdapter
    from noetic_nb.sync import run_sync
    from noetic_nb.tokens import estimate_tokens

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
    "ask",
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

keep_names(__name__, frozenset({"memory", "steering"}))
__getattr__ = lazily(
    __name__,
    {
        "ItemValidationError": "noetic_nb.errors",
        "NoeticConfigError": "noetic_nb.errors",
        "NoeticError": "noetic_nb.errors",
        "innermost": "noetic_nb.errors",
        "Item": "noetic_nb.items",
        "ItemLog": "noetic_nb.items",
        "dump_item": "noetic_nb.items",
        "item_tokens": "noetic_nb.items",
        "parse_item": "noetic_nb.items",
        "regulation": "noetic_nb.layers",
        "static_content": "noetic_nb.layers",
        "working_memory": "noetic_nb.layers",
        "ExecutionContext": "noetic_nb.memory",
        "LayerStack": "noetic_nb.memory",
        "MemoryHooks": "noetic_nb.memory",
        "MemoryLayer": "noetic_nb.memory",
        "ProjectionPolicy": "noetic_nb.memory",
        "Slot": "noetic_nb.memory",
        "Stop": "noetic_nb.memory",
        "allocate_budgets": "noetic_nb.memory",
        "assemble_view": "noetic_nb.memory",
        "layer_data": "noetic_nb.memory",
        "layer_fn": "noetic_nb.memory",
        "memory": "noetic_nb.memory",
        "CallTool": "noetic_nb.models",
        "CassetteModel": "noetic_nb.models",
        "Fault": "noetic_nb.models",
        "ModelClient": "noetic_nb.models",
        "ModelParams": "noetic_nb.models",
        "ModelRequest": "noetic_nb.models",
        "ModelResponse": "noetic_nb.models",
        "OpenAIModel": "noetic_nb.models",
        "Reply": "noetic_nb.models",
        "ScriptedModel": "noetic_nb.models",
        "Usage": "noetic_nb.models",
        "Regulator": "noetic_nb.regulator",
        "Recorder": "noetic_nb.runs",
        "Run": "noetic_nb.runs",
        "load_run": "noetic_nb.runs",
        "record": "noetic_nb.runs",
        "AgentConfig": "noetic_nb.runtime",
        "AgentHarness": "noetic_nb.runtime",
        "AgentReply": "noetic_nb.runtime",
        "Context": "noetic_nb.runtime",
        "TurnPlan": "noetic_nb.runtime",
        "plan_turn": "noetic_nb.runtime",
        "RuleBook": "noetic_nb.steering",
        "SteeringAction": "noetic_nb.steering",
        "SteeringDecision": "noetic_nb.steering",
        "SteeringRule": "noetic_nb.steering",
        "allow": "noetic_nb.steering",
        "ask": "noetic_nb.steering",
        "deny": "noetic_nb.steering",
        "guide": "noetic_nb.steering",
        "steering": "noetic_nb.steering",
        "Tool": "noetic_nb.steps",
        "loop": "noetic_nb.steps",
        "react": "noetic_nb.steps",
        "step": "noetic_nb.steps",
        "tool": "noetic_nb.steps",
        "until": "noetic_nb.steps",
        "InMemoryStorage": "noetic_nb.storage",
        "SQLiteStorage": "noetic_nb.storage",
        "ScopedStorage": "noetic_nb.storage",
        "StorageAdapter": "noetic_nb.storage",
        "run_sync": "noetic_nb.sync",
        "estimate_tokens": "noetic_nb.tokens",
    },
)


def __dir__() -> list[str]:
    return __all__
