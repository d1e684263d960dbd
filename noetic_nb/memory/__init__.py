"""Memory: layers with lifecycle hooks, the token budget they share, and the state they keep."""

from noetic_nb.lazy import make_callable
from noetic_nb.memory.budget import BudgetPlan, LayerAllocation, allocate_budgets
from noetic_nb.memory.enforcement import FAILED_GUIDANCE
from noetic_nb.memory.execution_context import CallModel, ExecutionContext, HookModelRequest
from noetic_nb.memory.hook_results import RerenderRequest
from noetic_nb.memory.hook_timeout import HookTimeout
from noetic_nb.memory.item_hooks import AppendResult
from noetic_nb.memory.layer import (
    DEFAULT_TIMEOUTS_MS,
    BudgetConfig,
    MemoryConfig,
    MemoryHooks,
    MemoryLayer,
    Slot,
    memory,
)
from noetic_nb.memory.layer_functions import LayerData, LayerFunction, layer_data, layer_fn
from noetic_nb.memory.params import (
    AfterModelCallParams,
    BeforeToolCallParams,
    CompleteParams,
    DisposeParams,
    ExecutionOutcome,
    Feedback,
    HookFailure,
    InitParams,
    ModelOutcome,
    OnItemAppendParams,
    PastCall,
    ProjectHistoryParams,
    RecallParams,
    ReturnParams,
    SpawnParams,
    StoreParams,
    ToolOutcome,
)
from noetic_nb.memory.projection import ProjectedHistory, ProjectionPolicy, assemble_view, project_tail
from noetic_nb.memory.recall import RecallEntry
from noetic_nb.memory.scope import MemoryScope, resolve_scope_key
from noetic_nb.memory.stack import LayerStack
from noetic_nb.memory.state_store import LayerStateStore
from noetic_nb.memory.steering_decision import SteeringAction, SteeringDecision, Stop, most_restrictive

__all__ = [
    "DEFAULT_TIMEOUTS_MS",
    "FAILED_GUIDANCE",
    "AfterModelCallParams",
    "AppendResult",
    "BeforeToolCallParams",
    "BudgetConfig",
    "BudgetPlan",
    "CallModel",
    "CompleteParams",
    "DisposeParams",
    "ExecutionContext",
    "ExecutionOutcome",
    "Feedback",
    "HookFailure",
    "HookModelRequest",
    "HookTimeout",
    "InitParams",
    "LayerAllocation",
    "LayerData",
    "LayerFunction",
    "LayerStack",
    "LayerStateStore",
    "MemoryConfig",
    "MemoryHooks",
    "MemoryLayer",
    "MemoryScope",
    "ModelOutcome",
    "OnItemAppendParams",
    "PastCall",
    "ProjectHistoryParams",
    "ProjectedHistory",
    "ProjectionPolicy",
    "RecallEntry",
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
    "allocate_budgets",
    "assemble_view",
    "layer_data",
    "layer_fn",
    "memory",
    "most_restrictive",
    "project_tail",
    "resolve_scope_key",
]

make_callable(__name__, memory)
