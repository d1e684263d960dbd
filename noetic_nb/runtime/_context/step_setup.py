"""The parts of an llm step that do not change between calls, computed once; functions of layers as tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import RootModel, TypeAdapter, ValidationError

from noetic_nb.errors import NoeticError
from noetic_nb.memory import BudgetPlan, ExecutionContext, LayerStack, MemoryLayer, ProjectionPolicy, allocate_budgets
from noetic_nb.memory._hooks.hook_results import UNSET, field_of, misnamed
from noetic_nb.memory._layer_functions import LayerFunction
from noetic_nb.models._client import ToolSpec
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.runtime._context.protocols import Execution
from noetic_nb.steps import BranchStep, ForkStep, LLMStep, RunStep, SpawnStep, Tool, ToolStep
from noetic_nb.steps._output_codec import system_instructions
from noetic_nb.steps._records import listed_tools, llm_steps, steps_within
from noetic_nb.steps._tools import ToolSet, spec_tokens
from noetic_nb.sync import awaited
from noetic_nb.tokens import Tokenizer, system_tokens

HookContextOf: TypeAlias = Callable[[Execution], ExecutionContext]

# Schemas by argument validator, which is created once per function and never changes; an entry lives as long as it.
# Tools are created for every harness and every call from code, and computing the schema is the slowest part.
_SCHEMAS: Final[WeakKeyDictionary[TypeAdapter[Any], dict[str, Any]]] = WeakKeyDictionary()


def provided_tools(
    layers: Iterable[MemoryLayer], *, stack: LayerStack, hook_context: HookContextOf
) -> tuple[Tool, ...]:
    """Return a tool for every function that layers provide for the model, named ``<layer id>/<function>``."""
    return tuple(
        [
            function_tool(layer, name, declared, stack, hook_context)
            for layer in layers
            for name, declared in (layer.provides or {}).items()
            if isinstance(declared, LayerFunction) and declared.for_model
        ]
    )


def function_tool(
    layer: MemoryLayer, name: str, declared: LayerFunction, stack: LayerStack, hook_context: HookContextOf
) -> Tool:
    """Return a layer function as a tool; it gets a copy of the state, so that a failing call changes nothing."""

    # Any: the types of a layer's function are its author's choice.
    async def execute(*, root: Any, ctx: Execution) -> Any:
        if not stack.runs(layer, ctx.id):
            what = f"The layer {layer.id!r} does not take part in this execution"
            raise NoeticError("tool_failed", what, hint="Check why its `init` failed.", tool_name=full_name)
        lock = ctx.lock(layer.id)
        async with lock:  # read, change, write: without the lock, one of two concurrent changes would be lost
            state = stack.state.copy_of(ctx.id, layer.id, name)
            value = await awaited(declared.execute(root, state, hook_context(ctx)))
            if (warning := misnamed(value, "function", f"The function {full_name!r}")) is not None:
                stack.state.report(ctx.id, layer.id, name, warning)
            result = field_of(value, "result", hook=name)
            state = field_of(value, "state", hook=name)
            checked = _checked(declared, None if result is UNSET else result, full_name)
            if state is not UNSET:
                stack.state.set(ctx.id, layer.id, state, hook=name)
            return checked

    full_name = f"{layer.id}/{name}"
    # Any: a class created at run time has no name for a type checker.
    root_model: Any = RootModel[declared.input_type]  # type: ignore[name-defined]
    spec = ToolSpec(full_name, declared.description, _schema(declared.input))
    return Tool(
        name=full_name,
        description=declared.description,
        input=root_model,
        output=declared.output,
        execute=execute,
        wants_context=True,
        spec=spec,
        tokens=spec_tokens(spec),
    )


def _schema(checked: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON Schema of arguments, a new copy for each tool, so that a client that modifies one affects no other."""
    known = _SCHEMAS.get(checked)
    if known is None:
        known = _SCHEMAS[checked] = checked.json_schema()
    return deepcopy(known)


def _checked(declared: LayerFunction, result: object, name: str) -> Any:
    """Validate a result before the accompanying state is written."""
    try:
        return declared.output.validate_python(result)
    except ValidationError as exc:
        what = f"the result of {name!r} does not fit its annotation: {exc.errors()[0]['msg']}"
        raise NoeticError("tool_failed", what, given=result, reason="invalid_result", tool_name=name) from exc


# Instructions that change at every step, and steps that are created anew each time, would grow the tables without end.
MAX_SETUPS: Final = 256
_NO_TOOLS: Final = ToolSet(())


class StepSetup(NamedTuple):
    """The policy, tools, budgets (also by layer) and system text of an llm step with given instructions."""

    policy: ProjectionPolicy
    tools: ToolSet
    system_tokens: int
    budgets: BudgetPlan
    instructions: str
    shares: Mapping[str, float]


class StepSetups:
    """The set-ups of one engine's llm steps, by the id of the step; steps are kept so that no id is reused."""

    def __init__(
        self, config: AgentConfig, stack: LayerStack, layer_tools: tuple[Tool, ...], outer: StepSetups | None = None
    ) -> None:
        self._config = config
        self._stack = stack
        self._layer_tools = layer_tools
        self._root: StepSetups = self if outer is None else outer._root
        # On the root only: the tools of all its engines, and whether functions choose tools or steps, which may add more.
        self._known: dict[str, Mapping[str, Any] | None] | None = None
        self._is_open = False
        self._toolsets: dict[int, tuple[LLMStep, ToolSet]] = {}
        self._setups: dict[tuple[int, str], tuple[LLMStep, Tokenizer, StepSetup]] = {}

    def tools(self, step: LLMStep) -> ToolSet:
        """Return the tools of an llm step: its own list or all the agent's tools, plus those of layers."""
        known = self._toolsets.get(id(step))
        if known is not None and known[0] is step:
            return known[1]
        # The choice of a function is unknown here, but nearly every choice includes the tools of layers.
        found = ToolSet(self._layer_tools) if callable(step.tools) else self.tools_of(step.tools)
        if len(self._toolsets) >= MAX_SETUPS:
            self._toolsets.clear()
        self._toolsets[id(step)] = (step, found)
        return found

    def tools_of(self, listed: tuple[Tool, ...] | None) -> ToolSet:
        """Return the listed tools (None: all the agent's) plus those of layers; no tools at all for an empty list."""
        if listed is None:
            listed = (*self._config.tools, *[t for s in llm_steps(self._config.step) for t in listed_tools(s)])
        elif not listed:
            return _NO_TOOLS
        found = ToolSet(listed, reserved=self._layer_tools)
        if self._root._known is not None:
            self._root._known |= {tool.name: tool.spec.parameters for tool in found.tools}
        return found

    def known(self, is_over: bool = False) -> Mapping[str, Mapping[str, Any] | None] | None:
        """Return the schemas of all tools that may be offered; None if functions choose them, unless the execution `is_over`."""
        root = self._root
        if root._known is None:
            root._known, root._is_open = root._listed()
        return root._known if is_over or not root._is_open else None

    def _listed(self) -> tuple[dict[str, Mapping[str, Any] | None], bool]:
        """Return the tools of the configuration, and whether there may be more."""
        steps = tuple(steps_within(self._config.step))
        tools = [*self._config.tools, *self._layer_tools]
        known: dict[str, Mapping[str, Any] | None] = {}
        is_open = not steps
        for step in steps:
            match step:
                case LLMStep():
                    tools += listed_tools(step)
                    is_open |= callable(step.tools)
                case ToolStep():
                    tools.append(step.tool)
                case SpawnStep():
                    # A child's own layers: only the names, as their tools are not created yet.
                    layers = step.memory or ()
                    known |= {f"{layer.id}/{name}": None for layer in layers for name in layer.provides or ()}
                case RunStep():
                    is_open = True
                case BranchStep():
                    is_open |= step.route is not None
                case ForkStep():
                    is_open |= callable(step.paths)
        known |= {tool.name: tool.spec.parameters for tool in tools}
        return known, is_open

    def of(self, step: LLMStep, instructions: str, tokenizer: Tokenizer) -> StepSetup:
        """Return the set-up of an llm step; the caller handles tools chosen by a function of the context."""
        key = (id(step), instructions)
        known = self._setups.get(key)
        if known is not None and known[0] is step and known[1] is tokenizer:
            return known[2]
        policy = step.projection or self._config.projection
        instructions = system_instructions(instructions, step.output)
        system = system_tokens(tokenizer, instructions)
        budgets = allocate_budgets(
            self._stack.layers,
            total_budget=policy.token_budget,
            system_prompt_tokens=system,
            response_reserve=policy.response_reserve,
        )
        if len(self._setups) >= MAX_SETUPS:
            self._setups.clear()
        tools = _NO_TOOLS if callable(step.tools) else self.tools(step)
        found = StepSetup(policy, tools, system, budgets, instructions, budgets.by_layer())
        self._setups[key] = (step, tokenizer, found)
        return found
