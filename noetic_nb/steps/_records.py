"""The seven kinds of step as data, with the inputs and outputs of child executions, and a traversal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError, field_validator

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._budget import ProjectionPolicy
from noetic_nb.memory._declared import MemoryConfig, memory
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._base import Frozen, InstanceField, Requirement, StepRecord
from noetic_nb.steps._channel_type import Channel
from noetic_nb.steps._function_tools import as_tools, chooses_tools
from noetic_nb.steps._loops import UntilPredicate
from noetic_nb.steps._output_codec import CodecOutput, as_output
from noetic_nb.steps._schema import OutputSchema, as_schema
from noetic_nb.steps._tools import Tool


def inner_steps(step: Step) -> tuple[Step, ...]:
    """Return the steps directly inside a step, in order."""
    return tuple([inner for value in vars(step).values() for inner in _held(value)])


def _held(value: Any) -> Iterator[Step]:
    if isinstance(value, StepRecord | Route):
        yield value.target if isinstance(value, Route) else cast(Step, value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _held(each)


def suffixed(step: Step, suffix: str) -> Step:
    """Return a copy of a step with a suffix on the ids of all its steps, for running several copies in parallel."""
    return rebuilt(step, lambda inner: {"id": f"{inner.id}{suffix}"})


def rebuilt(step: Step, change: Callable[[Step], dict[str, Any]]) -> Step:
    """Return a copy of a step in which `change` replaces some fields of each step, including itself."""
    made: dict[int, Step] = {}

    def one(inner: Step) -> Step:
        known = made.get(id(inner))
        if known is None:
            made[id(inner)] = inner  # a step inside itself stays unchanged
            known = made[id(inner)] = inner.model_copy(update={**change(inner), **_copied(inner, one)})
        return known

    return one(step)


def _copied(step: Step, one: Callable[[Step], Step]) -> dict[str, Any]:
    """Return the fields that contain steps, with these steps replaced."""
    return {name: _remade(value, one) for name, value in vars(step).items() if any(_held(value))}


def _remade(value: Any, one: Callable[[Step], Step]) -> Any:
    if isinstance(value, tuple):
        return tuple([_remade(each, one) for each in value])
    return value.model_copy(update={"target": one(value.target)}) if isinstance(value, Route) else one(value)


def steps_within(step: Step | None) -> Iterator[Step]:
    """Yield a step and all the steps inside it, outer ones first, without repetitions."""
    # By identity: equal steps in two places are two, and one step may be in several places.
    seen: set[int] = set()
    waiting = [] if step is None else [step]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        # Reversed, because the list is a stack.
        waiting.extend(reversed(inner_steps(found)))


def llm_steps(step: Step | None) -> Iterator[LLMStep]:
    for found in steps_within(step):
        if isinstance(found, LLMStep):
            yield found


def listed_tools(step: LLMStep) -> tuple[Tool, ...]:
    """Return the tools listed by an llm step; none if it lists none, or a function chooses them."""
    return step.tools if isinstance(step.tools, tuple) else ()


SUMMARY_PROMPT: Final = "Summarise concisely what was done above and what came of it."


class InheritContext(Frozen):
    """The child starts with a copy of its parent's whole log."""

    strategy: Literal["inherit"] = "inherit"


class FreshContext(Frozen):
    """The child starts with its input only."""

    strategy: Literal["fresh"] = "fresh"


class SubsetContext(Frozen):
    """The child starts with the items that ``select(items, state)`` picks from a copy of its parent's log."""

    strategy: Literal["subset"] = "subset"
    select: Callable[..., Any]


class CustomContext(Frozen):
    """The child starts with the items that ``build(input, parent_ctx)`` returns."""

    strategy: Literal["custom"] = "custom"
    build: Callable[..., Any]


class FullResult(Frozen):
    """The parent gets the child's output unchanged."""

    strategy: Literal["full"] = "full"


class SummaryResult(Frozen):
    """The parent gets a summary of the child's conversation, written by a model."""

    strategy: Literal["summary"] = "summary"
    model: str | None = None
    """Writes the summary; by default the first model named by a step of the child, or one of the agent's, or the only
    one of the harness."""
    prompt: str = SUMMARY_PROMPT


class SchemaResult(Frozen):
    """The parent gets the child's output, checked against a schema."""

    strategy: Literal["schema"] = "schema"
    # With an underscore, because `schema` is a method of every pydantic model.
    schema_: InstanceField[OutputSchema] = Field(alias="schema")

    @field_validator("schema_", mode="before")
    @classmethod
    def _is_schema(cls, value: Any) -> Any:
        return as_schema(value)


ContextIn: TypeAlias = Annotated[
    InheritContext | FreshContext | SubsetContext | CustomContext, Field(discriminator="strategy")
]
ContextOut: TypeAlias = Annotated[FullResult | SummaryResult | SchemaResult, Field(discriminator="strategy")]


# Milliseconds; docs/decisions/limits.md, "Steps".
MAX_DELAY_MS: Final = 30_000.0


class RetryPolicy(Frozen):
    """Number of attempts and the waits between them.

    See docs/behaviour/steps.md, "Retries".

    Raises
    ------
    NoeticConfigError
        ``INVALID_RETRY`` for fewer than one attempt.

    Examples
    --------
    >>> retry = RetryPolicy(max_attempts=4, backoff="exponential", initial_delay_ms=20, max_delay_ms=50)
    >>> [retry.delay_ms(failed) for failed in range(3)]
    [20.0, 40.0, 50.0]
    """

    error_code: ClassVar[str] = "INVALID_RETRY"

    max_attempts: int = Field(ge=1)
    """All attempts, including the first."""
    backoff: Literal["fixed", "linear", "exponential"] = "fixed"
    initial_delay_ms: FiniteFloat = Field(default=0.0, ge=0, alias="initialDelay")
    max_delay_ms: FiniteFloat | None = Field(default=None, ge=0, alias="maxDelay")
    """Maximum wait; 30 000 by default."""

    def delay_ms(self, failed: int) -> float:
        """Return the wait after failed attempt `failed`, counted from 0, in milliseconds."""
        base = self.initial_delay_ms
        match self.backoff:
            case "fixed":
                wait = base
            case "linear":
                wait = base * (failed + 1)
            case "exponential":
                wait = base * 2.0 ** min(failed, 1_000)  # beyond that the limit below applies anyway
        return min(wait, MAX_DELAY_MS if self.max_delay_ms is None else self.max_delay_ms)


# Rounds of tools inside one llm step; docs/decisions/limits.md, "Steps".
MAX_TOOL_ROUNDS: Final = 32


Incomplete: TypeAlias = Literal["return", "continue", "error"]
"""How to handle a truncated answer: return it marked, ask for the rest of it, or fail."""


def _invalid(code: str, what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError(code, what, given=given, hint=hint)


class RunStep(StepRecord):
    """Run a function ``execute(input, ctx)``, sync or async."""

    needs = (
        Requirement("execute", "MISSING_EXECUTE_FUNCTION", "a function", "Pass a callable of (input, ctx).", callable),
    )

    kind: Literal["run"] = "run"
    execute: Callable[..., Any]
    retry: RetryPolicy | None = None

    def model_post_init(self, context: object) -> None:
        """Check that the function takes an input and the context."""
        try:
            signature = inspect.signature(self.execute)
        except (TypeError, ValueError):  # some functions written in C have no signature
            return
        try:
            signature.bind(None, None)
        except TypeError as exc:
            raise _invalid(
                "INVALID_STEP",
                f"The function of step {self.id!r} is called with an input and the context; its parameters are {signature}",
                self.execute,
                "Write lambda value, ctx: ..., or def clean(value, ctx).",
            ) from exc


class LLMStep(StepRecord):
    """Ask the model, run the tools it calls, and ask again until it calls none."""

    needs = (Requirement("model", "MISSING_MODEL", "the name of a model", "Pass model='...'."),)
    expects = {
        "model": (
            "the name of a model",
            "Give the client to the harness, AgentHarness(config, model=client), and its name to the step: model='gpt-4o'.",
        ),
        "tools": ("a list of functions or tools", "Pass the function itself: tools=[search]."),
    }

    kind: Literal["llm"] = "llm"
    model: str | Callable[..., Any]
    """Name of the model, looked up in the harness's models, or a function of the context that returns it."""
    instructions: str | Callable[..., Any] | None = None
    """System text, or a function of the context that returns it."""
    tools: tuple[InstanceField[Tool], ...] | Callable[..., Any] | None = None
    """Tools the model may call, or a function of the context; None means all the agent's tools, an empty tuple none."""
    output: InstanceField[OutputSchema] | InstanceField[CodecOutput] | None = None
    """Schema of the answer, parsed as JSON, or a codec that parses it; the step's output is then the value, not the
    text."""
    params: ModelParams | None = None
    projection: ProjectionPolicy | None = None
    """Overrides the agent's projection."""
    tool_rounds: int = Field(default=MAX_TOOL_ROUNDS, ge=1)
    """Rounds of tools before the step ends; 1 ends it after the first calls, as the loop of `react` requires."""
    incomplete: Incomplete | None = None
    """How to handle a truncated answer: return it, ask for the rest of it, or fail. Overrides the agent's setting."""
    emit: bool | Callable[..., Any] = True
    """Which of this step's events ``step_started``, ``step_ended``, ``model_called`` and ``tool_called`` subscribers
    receive: all, none, or those for which ``emit(event_type, data)`` is true. If the beginning of a step is hidden, so
    is its end. Items, budgets, views, decisions, states and errors are always recorded; a run without its model calls
    cannot be replayed."""

    @field_validator("tools", mode="before")
    @classmethod
    def _tools_are_tools(cls, value: object) -> object:
        return value if chooses_tools(value) else as_tools(value)

    @field_validator("output", mode="before")
    @classmethod
    def _output_is_read(cls, value: Any) -> Any:
        return as_output(value)


class ToolStep(StepRecord):
    """Call a tool with the input merged under `args`; steering applies as everywhere."""

    needs = (
        Requirement("tool", "MISSING_TOOL", "a tool", "Make one with @nn.tool.", lambda value: isinstance(value, Tool)),
    )

    kind: Literal["tool"] = "tool"
    tool: InstanceField[Tool]
    args: dict[str, Any] | None = None
    takes_input: bool = True
    """False calls the tool with `args` alone, ignoring the input."""


class Route(Frozen):
    """The target of a branch when its input contains `match`, ignoring case."""

    is_part = True

    match: str
    target: Step


class BranchStep(StepRecord):
    """Choose one of several steps: ``route(input, ctx)`` returns a step, or None to pass the input through."""

    expects = {"route": ("a function of the input and the context", "It returns a step; or pass routes=[...] instead.")}

    kind: Literal["branch"] = "branch"
    route: Callable[..., Any] | None = None
    routes: tuple[Route, ...] = ()
    """In place of a function: the first route whose text occurs in the input is taken."""
    default: Step | None = None
    """The step to run if none of the `routes` matches."""

    def model_post_init(self, context: object) -> None:
        """Check that there is one way to decide."""
        # A default alone is accepted, too: a branch that was written before its routes.
        if (self.route is None) == (not self.routes and self.default is None):
            what = f"Branch {self.id!r} needs a function, or routes, and not both."
            raise _invalid("MISSING_ROUTE_FUNCTION", what, self.route, "Pass route=lambda input, ctx: a step or None.")


class ForkStep(StepRecord):
    """Run several steps in parallel on the same input, each in a child execution."""

    kind: Literal["fork"] = "fork"
    mode: Literal["all", "race", "settle"]
    paths: tuple[Step, ...] | Callable[..., Any] | None = None
    """Steps, or ``paths(input, ctx)`` that returns them."""
    each: Step | None = None
    """In place of paths: this step once for every element of a JSON array in the input."""
    over: str | None = None
    """With `each`, the key of the array in an input that is an object."""
    merge: Callable[..., Any] | Literal["first", "last", "concat"] | None = None
    """``merge(results, ctx)``, sync or async; not allowed for a race."""
    concurrency: int | None = Field(default=None, ge=1)
    """Maximum number of paths that run at the same time; unlimited by default."""

    def model_post_init(self, context: object) -> None:
        """Check that the parts fit together."""
        if (self.paths is None) == (self.each is None):
            what = f"Fork {self.id!r} needs paths, or each, and not both."
            raise _invalid("MISSING_PATHS", what, self.paths, "Pass paths=[...].")
        if self.over is not None and self.each is None:
            raise _invalid("INVALID_STEP", f"Fork {self.id!r} has `over` without `each`.", self.over, "Remove it.")
        if self.mode != "race" and self.merge is None:
            raise _invalid(
                "MISSING_MERGE_FUNCTION",
                f"Fork {self.id!r} needs to know how to merge its results.",
                None,
                "Pass merge=lambda results, ctx: ..., or 'first', 'last' or 'concat'.",
            )
        # Rejected rather than ignored, because the author expects it to be called.
        if self.mode == "race" and self.merge is not None:
            what = f"Race {self.id!r} has one result; nothing is merged."
            raise _invalid("INVALID_STEP", what, self.merge, "Remove it.")


class SpawnStep(StepRecord):
    """Run a step in a child execution with its own context."""

    needs = (Requirement("child", "MISSING_CHILD_STEP", "a child step", "Pass child=..."),)
    expects = {"child": ("a step", "Pass a step, such as react(...); the step of an agent is its config.step.")}

    kind: Literal["spawn"] = "spawn"
    child: Step
    context_in: ContextIn = Field(default_factory=FreshContext)
    context_out: ContextOut = Field(default_factory=FullResult)
    memory: tuple[InstanceField[MemoryLayer], ...] | None = None
    """The child's layers instead of the inherited ones; those that enforce rules stay."""
    drop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Ids of layers that the child does not inherit, even if they enforce rules."""
    timeout_ms: FiniteFloat | None = Field(default=None, gt=0, alias="timeout")

    @field_validator("context_in", "context_out", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"strategy": value} if isinstance(value, str) else value

    @field_validator("memory", mode="before")
    @classmethod
    def _layers(cls, value: Any) -> Any:
        if isinstance(value, MemoryConfig):
            return value.layers
        is_one = isinstance(value, MemoryLayer)
        # Through `memory`, which rejects two layers with one id.
        return memory(value).layers if is_one or isinstance(value, Iterable) else value


class LoopStep(StepRecord):
    """Run `steps` in order, repeatedly, until the predicate says stop."""

    needs = (
        Requirement("steps", "MISSING_LOOP_BODY", "at least one step", "Pass steps=[...]."),
        Requirement(
            "until", "MISSING_UNTIL_PREDICATE", "to know when to stop", "Pass until=..., such as until.no_tool_calls()."
        ),
    )

    expects = {
        "until": ("a predicate", "For example: until.max_steps(3), until.no_tool_calls(), or until.custom(function).")
    }

    kind: Literal["loop"] = "loop"
    steps: tuple[Step, ...] = Field(min_length=1)
    until: UntilPredicate
    max_iterations: int = Field(default=1000, ge=1)
    """A loop that needs more fails; retried and skipped iterations count."""
    max_history_size: int = Field(default=100, ge=1)
    """Number of recent outputs that the predicate sees."""
    inbox: Channel | None = None
    """Read when the predicate says stop: a message continues the loop."""
    park_timeout_ms: FiniteFloat = Field(default=0.0, ge=0, alias="parkTimeout")
    """How long to wait for that message; 0 does not wait."""
    prepare_next: Callable[..., Any] | None = None
    """``prepare_next(output, verdict, ctx)`` returns the next input."""
    on_error: Callable[..., Any] | Literal["retry", "skip", "abort"] | None = None
    """``on_error(error, ctx)`` returns "retry", "skip" or "abort"."""
    feed_output: bool = True
    """Pass the output of each iteration to the next as its input; False gives later iterations no input."""
    needs_output: bool = True
    """Fail if the loop would stop after an iteration that returned None; False lets it end, as a sequence may."""
    text_between: bool = False
    """Pass text from one step to the next, as sequences of workflow documents do: other values as JSON."""


Step: TypeAlias = Annotated[
    RunStep | LLMStep | ToolStep | BranchStep | ForkStep | SpawnStep | LoopStep, Field(discriminator="kind")
]
STEP_ADAPTER: Final[TypeAdapter[Any]] = TypeAdapter(Step, config=ConfigDict(defer_build=True))


def as_step(value: Any, whose: str) -> Step:
    """Return the step from a user function, validating a plain mapping first; raises `NoeticConfigError` ``NOT_A_STEP``."""
    if isinstance(value, Mapping) and "kind" in value:
        try:
            step: Step = STEP_ADAPTER.validate_python(value)
        except ValidationError as exc:  # an unknown kind; a record of a known kind raises its own error
            what = f"{whose[0].upper()}{whose[1:]} is not a step: {exc.errors()[0]['msg']}."
            hint = "Kinds are run, llm, tool, branch, fork, spawn and loop."
            raise NoeticConfigError("NOT_A_STEP", what, given=value, hint=hint) from exc
        return step
    if not isinstance(getattr(value, "kind", None), str) or not hasattr(value, "id"):
        hint = "Return a step made by step.run, step.llm, step.tool, branch, fork, spawn or loop."
        raise NoeticConfigError("NOT_A_STEP", f"{whose[0].upper()}{whose[1:]} is not a step.", given=value, hint=hint)
    kept: Step = value
    return kept
