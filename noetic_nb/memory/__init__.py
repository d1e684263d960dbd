"""Memory: layers with lifecycle hooks, their shared token budget, and their state."""

from noetic_nb._core.lazy_names import make_callable
from noetic_nb.memory._budget import BudgetPlan, ProjectionPolicy, allocate_budgets, assemble_view
from noetic_nb.memory._declared import MemoryConfig, TypedMemory, memory
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_results import RerenderRequest
from noetic_nb.memory._hooks.item_hooks import AppendResult
from noetic_nb.memory._layer import BudgetConfig, MemoryHooks, MemoryLayer, Slot
from noetic_nb.memory._layer_functions import layer_data, layer_fn
from noetic_nb.memory._stack import LayerStack
from noetic_nb.memory._state.state_store import LayerStateStore
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision, Stop, most_restrictive
from noetic_nb.memory.params import (
    AfterModelCallParams,
    BeforeToolCallParams,
    CompleteParams,
    DisposeParams,
    Feedback,
    InitParams,
    OnItemAppendParams,
    PastCall,
    ProjectHistoryParams,
    RecallParams,
    ReturnParams,
    SpawnParams,
    StoreParams,
    ToolOutcome,
)
from noetic_nb.memory.scope import MemoryScope, resolve_scope_key

__all__ = [
    "AfterModelCallParams",
    "AppendResult",
    "BeforeToolCallParams",
    "BudgetConfig",
    "BudgetPlan",
    "CompleteParams",
    "DisposeParams",
    "ExecutionContext",
    "Feedback",
    "InitParams",
    "LayerStack",
    "LayerStateStore",
    "MemoryConfig",
    "MemoryHooks",
    "MemoryLayer",
    "MemoryScope",
    "OnItemAppendParams",
    "PastCall",
    "ProjectHistoryParams",
    "ProjectionPolicy",
    "RecallParams",
    "RerenderRequest",
    "ReturnParams",
    "Slot",
    "SpawnParams",
    "SteeringAction",
    "SteeringDecision",
    "Stop",
    "StoreParams",
    "ToolOutcome",
    "TypedMemory",
    "allocate_budgets",
    "assemble_view",
    "layer_data",
    "layer_fn",
    "memory",
    "most_restrictive",
    "resolve_scope_key",
]

make_callable(__name__, memory)


def __dir__() -> list[str]:
    return sorted(__all__)
