"""An agent as data: its steps, memory, token budget and limits; also as JSON and in the header of a run.

In JSON, a reference replaces a value that JSON cannot represent, such as a function; see `noetic_nb.steps._json.step_json`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_origin

from pydantic import Field, FiniteFloat, field_validator

from noetic_nb._core.shell import Shell, checked_shell
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.items import ItemRegistry, freeze, thaw
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory import MemoryConfig, MemoryLayer, ProjectionPolicy, memory
from noetic_nb.models._client import ModelClient
from noetic_nb.models._client_answers import IDLE_TIMEOUT_MS
from noetic_nb.steps import LLMStep, LoopStep, Step, Tool, ToolStep
from noetic_nb.steps._base import Frozen, InstanceField, StepRecord
from noetic_nb.steps._function_tools import as_tools
from noetic_nb.steps._records import STEP_ADAPTER, Incomplete, inner_steps
from noetic_nb.steps._schema import OutputSchema, as_schema

if TYPE_CHECKING:
    from noetic_nb.steps import Registry


class Limits(Frozen):
    """Limits of a turn, or of an execution held open; None means no limit.

    Examples
    --------
    >>> Limits(max_cost=0.5, max_steps=20).max_steps
    20
    """

    error_code: ClassVar[str] = "INVALID_LIMITS"

    max_cost: FiniteFloat | None = Field(default=None, ge=0)
    """US dollars, including judges and layers."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Input plus output tokens."""
    max_steps: int | None = Field(default=None, ge=1)
    """Number of steps dispatched, including those of children."""
    max_duration_ms: FiniteFloat | None = Field(default=None, gt=0, alias="maxDuration")
    """Milliseconds; a model call or tool that is still running then is interrupted."""

    def check(self, cost: float, tokens: int, steps: int, elapsed_ms: float) -> None:
        """Raise if more was spent than a limit allows.

        Raises
        ------
        NoeticError
            ``budget_exceeded``, for the first limit exceeded, in this order.
        """
        if self.max_cost is not None and cost > self.max_cost:
            raise exceeded("cost", self.max_cost, cost)
        if self.max_tokens is not None and tokens > self.max_tokens:
            raise exceeded("tokens", self.max_tokens, tokens)
        if self.max_steps is not None and steps > self.max_steps:
            raise exceeded("steps", self.max_steps, steps)
        if self.max_duration_ms is not None and elapsed_ms > self.max_duration_ms:
            raise exceeded("duration", self.max_duration_ms, elapsed_ms)


def exceeded(field: Literal["cost", "tokens", "steps", "duration"], limit: float, actual: float) -> NoeticError:
    return NoeticError(
        "budget_exceeded",
        f"The execution exceeded its limit of {field}: {actual:g} of {limit:g}",
        hint="Raise the limit, or check which steps the agent repeats.",
        field=field,
        limit=limit,
        actual=actual,
    )


# Keys of a JSON configuration that hold data and schemas: nothing in them is read as a step or a reference.
_PLAIN_KEYS: Final = frozenset({"params", "itemSchemas", "item_schemas"})


class AgentConfig(Frozen):
    """The configuration of an agent.

    Parameters
    ----------
    name : str
        Name of the agent, shown in runs and messages.
    step : Step, optional
        The step that `execute` runs, such as ``react(...)``.
    memory : iterable of MemoryLayer
        The agent's layers, with distinct ids. Objects that convert themselves to a layer, such as a `RuleBook`, are accepted.
    tools : iterable of Tool or callable
        Tools for llm steps that do not list their own.
    projection : ProjectionPolicy or mapping
        How much of the conversation is sent: ``token_budget``, ``response_reserve``, ``overflow``, ``window_size``.
    force_atomic_recall : bool, default False
        Treat eventual layers as atomic.
    on_steering_error : {"deny", "allow", "raise"}
        How a failing enforcement hook counts if its layer does not define that.
    stream_idle_timeout_ms : float, default 120 000
        Longest silence within a streamed answer, in milliseconds, before the model call fails with ``llm_failed``; 0 or
        less means no limit. A client with its own limit, such as `OpenAIModel`, keeps it.
    incomplete : {"return", "continue", "error"}
        How to handle a truncated answer if its step does not say: return it, marked by `finish_reason` and a warning in
        the reply; continue it if the token limit was reached, at most three times; or fail with ``llm_failed``.
    limits : Limits or mapping, optional
        Spending limits of one turn; exceeding one raises ``budget_exceeded``.
    tokenizer : str, optional
        Name of the tokenizer, for `noetic_nb.tokenizers.get`: an encoding, a model, ``"calibrated"`` or ``"estimate"``.
        The `tokenizer` of `AgentHarness` overrides it.
    fs : str, path or fsspec filesystem, optional
        The agent's files, ``ctx.fs``: a folder that no path can escape, a URL, or any fsspec filesystem, which JSON
        cannot represent. The `fs` of `AgentHarness` overrides it.
    shell : Shell, optional
        Runs commands, ``ctx.shell``. JSON cannot represent it, so a configuration file can never supply one.
    params : mapping
        Your own settings as JSON data; functions of steps read them as ``ctx.params``.
    params_schema : type or mapping, optional
        Type or JSON Schema that `params` must match; it only validates and adds no defaults.
    item_schemas : mapping of str to list
        Extension items that any code may log: schemas by category ``items``, ``developerMessages``, ``toolCalls``,
        ``toolResults``. Layers declare their own.
    strict_item_schemas : bool, default True
        Whether an item of an unknown type that matches no schema is an error.
    before_step : callable, optional
        ``before_step(step, input, ctx)``, sync or async; an exception fails the step.
    after_step : callable, optional
        ``after_step(step, output, ctx)``, called after each step that succeeded.

    Raises
    ------
    NoeticConfigError
        ``INVALID_AGENT_CONFIG``, ``INVALID_AGENT_PARAMS``, ``DUPLICATE_LAYER_ID``, or an error of a step, layer or
        policy.

    Examples
    --------
    >>> from noetic_nb.steps import react
    >>> config = AgentConfig(name="desk", step=react(model="scripted"))
    >>> config.name, config.projection.token_budget
    ('desk', 128000)
    >>> AgentConfig(name="desk", params={"max": 0}, params_schema={"properties": {"max": {"minimum": 1}}})
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticConfigError: [INVALID_AGENT_PARAMS] AgentConfig 'desk', params.max: minimum 1...
    """

    error_code: ClassVar[str] = "INVALID_AGENT_CONFIG"

    name: str = Field(min_length=1)
    expects = {
        "step": ("a step", "Pass a step: step=react(model='gpt-4o')."),
        "projection": ("a ProjectionPolicy", "Write projection=ProjectionPolicy(token_budget=4_000)."),
        "tools": ("a list of functions or tools", "Pass the function itself: tools=[search]."),
        "limits": ("Limits", "Write limits=Limits(max_steps=5)."),
        "model": (
            "",
            "A step names it, step=react(model='gpt-4o'); its client is given to AgentHarness(config, model=client).",
        ),
        **dict.fromkeys(
            ("instructions", "system", "system_prompt", "prompt"),
            ("", "The system text belongs to a step: step=react(model=..., instructions='...')."),
        ),
        "rules": ("", "They are a layer: memory=[rules]."),
        "steering": ("", "It is a layer: memory=[nn.steering(rules)]."),
        "layers": ("", "Pass memory=[...]."),
        "storage": ("", "It belongs to the harness: AgentHarness(config, storage=...)."),
    }

    step: Annotated[Step, InstanceField(StepRecord)] | None = None
    memory: tuple[InstanceField[MemoryLayer], ...] = ()
    tools: tuple[InstanceField[Tool], ...] = ()
    projection: ProjectionPolicy = Field(default_factory=ProjectionPolicy)
    force_atomic_recall: bool = False
    on_steering_error: Literal["deny", "allow", "raise"] = "deny"
    stream_idle_timeout_ms: float = Field(default=IDLE_TIMEOUT_MS, allow_inf_nan=False)
    incomplete: Incomplete = "return"
    limits: Limits | None = None
    tokenizer: str | None = None
    fs: Any = None  # a filesystem of fsspec, which has no types
    shell: InstanceField[Shell] | None = None
    params: InstanceField[FrozenDict] = FrozenDict()
    params_schema: InstanceField[OutputSchema] | None = None
    item_schemas: InstanceField[FrozenDict] = FrozenDict()
    strict_item_schemas: bool = True
    before_step: Callable[..., Any] | None = None
    after_step: Callable[..., Any] | None = None

    @field_validator("step", mode="before")
    @classmethod
    def _step(cls, value: object) -> object:
        return STEP_ADAPTER.validate_python(value) if isinstance(value, Mapping) else value

    @field_validator("memory", mode="before")
    @classmethod
    def _layers(cls, value: object) -> object:
        if isinstance(value, MemoryConfig):
            return value.layers
        return memory(value).layers  # type: ignore[arg-type]  # it rejects invalid values

    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object) -> object:
        return as_tools(value)

    @field_validator("fs", mode="before")
    @classmethod
    def _fs(cls, value: object) -> object:
        if value is None or isinstance(value, str) or callable(getattr(value, "cat_file", None)):
            return value
        if isinstance(value, os.PathLike):
            return str(value)
        hint = "Pass a folder, a URL, or a filesystem of fsspec."
        raise NoeticConfigError(cls.error_code, "This is not a filesystem.", given=value, hint=hint, field="fs")

    @field_validator("shell", mode="before")
    @classmethod
    def _shell(cls, value: object) -> object:
        return checked_shell(value)

    @field_validator("params", mode="before")
    @classmethod
    def _params(cls, value: object) -> object:
        try:
            frozen = freeze(value)
        except ItemValidationError as exc:
            raise _invalid_params(
                "Parameters are text, finite numbers, booleans, None, lists and dicts.", value
            ) from exc
        if not isinstance(frozen, FrozenDict):
            raise _invalid_params("Parameters are a mapping.", value)
        return frozen

    @field_validator("params_schema", mode="before")
    @classmethod
    def _params_schema(cls, value: object) -> object:
        return as_schema(value)

    @field_validator("item_schemas", mode="before")
    @classmethod
    def _item_schemas(cls, value: object) -> object:
        return as_item_schemas(value)

    def model_post_init(self, context: object) -> None:
        if self.params_schema is None:
            return
        try:
            self.params_schema.check(thaw(self.params))
        except ValueError as exc:
            place, _, problem = str(exc).partition(": ")
            field = "params" if place == "value" else f"params.{place}"
            raise _invalid_params(f"AgentConfig {self.name!r}, {field}: {problem}", self.params, field) from exc

    @property
    def item_registry(self) -> ItemRegistry:
        """The items that the agent may log, before its layers add theirs."""
        return item_registry(self.item_schemas, strict=self.strict_item_schemas)


def _invalid_params(what: str, given: object, field: str = "params") -> NoeticConfigError:
    hint = "Pass JSON data that fits `params_schema`."
    return NoeticConfigError("INVALID_AGENT_PARAMS", what, given=given, hint=hint, field=field)


def as_item_schemas(value: object) -> FrozenDict:
    """Return schemas by category as `OutputSchema`; a function that accepts or rejects items may replace a schema."""
    if not isinstance(value, Mapping) or not all(isinstance(schemas, list | tuple) for schemas in value.values()):
        raise NoeticConfigError(
            "INVALID_AGENT_CONFIG",
            "Item schemas must be a mapping of categories to lists.",
            given=value,
            hint="Pass for example item_schemas={'items': [Note]}.",
            field="item_schemas",
        )
    made = {name: tuple([_schema(schema) for schema in schemas]) for name, schemas in value.items()}
    return FrozenDict(ItemRegistry(made).schemas)  # validates the categories and normalises their spelling


# Any in the next three: a schema here is a type, a JSON Schema or a user's function.
def _schema(given: Any) -> Any:
    is_function = callable(given) and not isinstance(given, type) and get_origin(given) is None
    return given if is_function else as_schema(given)


def _gate(schema: Any) -> Callable[[Any], object]:
    if not isinstance(schema, OutputSchema):
        accept: Callable[[Any], object] = schema
        return accept

    def accepts(value: Any) -> bool:
        schema.check(value)  # raises ValueError
        return True

    return accepts


def item_registry(schemas: Mapping[str, Any], *, strict: bool) -> ItemRegistry:
    if strict and not schemas:
        return DEFAULT_REGISTRY
    return ItemRegistry({name: [_gate(schema) for schema in found] for name, found in schemas.items()}, strict=strict)


def dump_config(config: AgentConfig, registry: Registry | None = None) -> dict[str, Any]:
    """Return a configuration as JSON data; the library's own layers are saved as their kind and options.

    Raises
    ------
    NoeticConfigError
        ``UNREGISTERED_FUNCTION`` and similar codes, with the location.

    Examples
    --------
    >>> from noetic_nb.steps import step
    >>> dump_config(AgentConfig(name="desk", step=step.llm("ask", model="m")))
    {'name': 'desk', 'step': {'id': 'ask', 'kind': 'llm', 'model': 'm'}}
    >>> from noetic_nb.layers import history_window
    >>> dump_config(AgentConfig(name="desk", memory=[history_window(20)]))
    {'name': 'desk', 'memory': [{'kind': 'history_window', 'options': {'max_items': 20}}]}
    """
    given: object = config  # callers may pass anything at run time
    if not isinstance(given, AgentConfig):
        hint = "Pass an AgentConfig; that of a harness is harness.config."
        raise NoeticConfigError("INVALID_AGENT_CONFIG", "dump_config writes an AgentConfig.", given=given, hint=hint)
    from noetic_nb.steps import Registry
    from noetic_nb.steps._json.step_json import dump_record  # most programs neither write nor read a configuration

    return dump_record(config, registry or Registry(), config.name)


def load_config(data: Mapping[str, Any] | str, registry: Registry | None = None) -> AgentConfig:
    """Return the configuration described by JSON data, written by `dump_config` or by hand.

    Raises
    ------
    NoeticConfigError
        ``INVALID_AGENT_CONFIG``, ``UNKNOWN_FUNCTION_REFERENCE`` and similar codes, or an error raised by a step.

    Examples
    --------
    >>> load_config('{"name": "desk", "step": {"kind": "llm", "id": "ask", "model": "m"}}').step.model
    'm'
    """
    from noetic_nb.steps import Registry
    from noetic_nb.steps._json.step_json import resolved

    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as exc:
            hint = "It takes the JSON itself: load_config(Path('agent.json').read_text())."
            raise NoeticConfigError("INVALID_AGENT_CONFIG", f"This is no JSON: {exc}", given=data, hint=hint) from exc
    if not isinstance(data, Mapping):
        raise NoeticConfigError("INVALID_AGENT_CONFIG", "A configuration must be a mapping.", given=data)
    names = registry or Registry()
    plain = {key: data[key] for key in _PLAIN_KEYS & data.keys()}
    fields = resolved({key: value for key, value in data.items() if key not in plain}, names)
    # Parameters are always data; among item schemas, only the schemas themselves may be references.
    for key, value in plain.items():
        if key != "params" and isinstance(value, Mapping):
            value = {
                category: [resolved({"schema": schema}, names)["schema"] for schema in schemas]
                if isinstance(schemas, list | tuple)
                else schemas
                for category, schemas in value.items()
            }
        fields[key] = value
    return AgentConfig(**fields)


def _step(step: Step | None, outer: tuple[int, ...] = ()) -> Any:
    if step is None:
        return None
    about: dict[str, Any] = {"kind": step.kind, "id": step.id}
    if id(step) in outer:
        return about  # it contains itself; the steps inside it are listed already
    if isinstance(step, LLMStep):
        about["model"] = step.model if isinstance(step.model, str) else "function"
        if isinstance(step.instructions, str):
            about["instructions"] = step.instructions
        if isinstance(step.tools, tuple):
            about["tools"] = [tool.name for tool in step.tools]
    elif isinstance(step, LoopStep):
        about["until"] = step.until.model_dump(
            by_alias=True, fallback=lambda value: getattr(value, "__name__", "function")
        )
    elif isinstance(step, ToolStep):
        about["tool"] = step.tool.name
    inner = inner_steps(step)
    if inner:
        about["steps"] = [_step(one, (*outer, id(step))) for one in inner]
    return about


def describe(config: AgentConfig, models: ModelClient | Mapping[str, ModelClient] | None) -> dict[str, Any]:
    """Return the set-up of an agent, with callables by name."""
    policy = config.projection.model_dump(by_alias=True)
    layers = [
        {
            "id": layer.id,
            "slot": float(layer.slot),
            "scope": layer.scope,
            "budget": dict(layer.budget) if isinstance(layer.budget, Mapping) else layer.budget,
            "hooks": list(layer.hooks.names()),
            **({"placement": layer.placement} if layer.placement else {}),
        }
        for layer in config.memory
    ]
    names = list(models) if isinstance(models, Mapping) else [] if models is None else [type(models).__name__]
    return {
        "config": {
            "name": config.name,
            "step": _step(config.step),
            "memory": layers,
            "tools": [tool.name for tool in config.tools],
            **({"params": thaw(config.params)} if config.params else {}),
            "projection": {
                k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in policy.items()
            },
        },
        "models": names,
    }
