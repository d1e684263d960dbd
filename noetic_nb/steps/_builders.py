"""Builders of steps: the short way to write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from noetic_nb._core.arguments import ArgumentError, explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._budget import ProjectionPolicy
from noetic_nb.memory._declared import MemoryConfig
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._base import StepRecord
from noetic_nb.steps._channel_type import Channel
from noetic_nb.steps._loops import UntilPredicate
from noetic_nb.steps._records import (
    BranchStep,
    ForkStep,
    Incomplete,
    LLMStep,
    LoopStep,
    RetryPolicy,
    Route,
    RunStep,
    SpawnStep,
    Step,
    ToolStep,
)
from noetic_nb.steps._tools import Tool


def _given(**fields: Any) -> dict[str, Any]:
    """Omit arguments that were not given, so that the records' own defaults apply."""
    return {name: value for name, value in fields.items() if value is not None}


@explained(id="Name it first: branch('triage', route).")
def branch(
    id: str,
    route: Callable[..., Any] | None = None,
    *,
    routes: Iterable[Route | Mapping[str, Any]] = (),
    default: Step | None = None,
) -> BranchStep:
    """Choose one of several steps to run.

    Parameters
    ----------
    route : callable, optional
        ``route(input, ctx)``, sync or async, returns the step to run, or None to pass the input through.
    routes : iterable of Route, optional
        In place of a function: ``{"match": text, "target": step}``; the first whose text occurs in the input.
    default : step, optional
        The step to run if none of the `routes` matches.

    Raises
    ------
    NoeticConfigError
        ``MISSING_ROUTE_FUNCTION``.

    Examples
    --------
    >>> ask = step.llm("ask", model="scripted")
    >>> branch("triage", lambda text, ctx: ask if "?" in text else None).kind
    'branch'
    """
    return BranchStep(id=id, routes=tuple(routes), **_given(route=route, default=default))


@explained(
    id="Name it first: fork('both', mode='all', paths=[...]).",
    mode="Say what counts: mode='all', 'race' or 'settle'.",
    positional="Write fork('both', mode='all', paths=[...]).",
)
def fork(
    id: str,
    *,
    mode: Literal["all", "race", "settle"],
    paths: Iterable[Step] | Callable[..., Any] | None = None,
    each: Step | None = None,
    over: str | None = None,
    merge: Callable[..., Any] | Literal["first", "last", "concat"] | None = None,
    concurrency: int | None = None,
) -> ForkStep:
    """Run several steps in parallel, each in a child execution.

    Parameters
    ----------
    mode : {"all", "race", "settle"}
        All must succeed; the first to succeed wins and the others are cancelled; or every outcome counts.
    paths : iterable of step, or callable
        The steps, or ``paths(input, ctx)`` that returns them.
    each, over
        In place of paths: one step for every element of a JSON array in the input, or under a key of it.
    merge : callable or {"first", "last", "concat"}
        ``merge(results, ctx)`` over the values, or for ``"settle"`` over the outcomes, in the order of the paths.
    concurrency : int, optional
        Maximum number of paths that run at the same time.

    Raises
    ------
    NoeticConfigError
        ``MISSING_PATHS``, ``MISSING_MERGE_FUNCTION``, ``INVALID_STEP``.

    Examples
    --------
    >>> double = step.run("double", lambda n, ctx: 2 * n)
    >>> square = step.run("square", lambda n, ctx: n * n)
    >>> fork("both", mode="all", paths=[double, square], merge=lambda values, ctx: sum(values)).mode
    'all'
    """
    listed: Any = tuple(paths) if isinstance(paths, Iterable) and not callable(paths) else paths
    return ForkStep(
        id=id, mode=mode, **_given(paths=listed, each=each, over=over, merge=merge, concurrency=concurrency)
    )


@explained(id="Name it first: spawn('research', step).")
def spawn(
    id: str,
    child: Step | None = None,
    *,
    context_in: Any = "fresh",
    context_out: Any = "full",
    memory: MemoryConfig | Iterable[MemoryLayer] | None = None,
    timeout_ms: float | None = None,
    drop: Iterable[str] = (),
) -> SpawnStep:
    """Run a step in a child execution with its own context.

    Parameters
    ----------
    child : step
        The step that the child runs.
    context_in : str or mapping
        ``"fresh"``, ``"inherit"``, ``{"strategy": "subset", "select": f}``, ``{"strategy": "custom", "build": f}``.
    context_out : str or mapping
        ``"full"``, ``"summary"`` (or with ``model`` and ``prompt``), ``{"strategy": "schema", "schema": type}``.
    memory : MemoryConfig or iterable of MemoryLayer, optional
        The child's layers, instead of those it inherits. Layers that decide on calls or responses stay: every child
        inherits them, and they are evaluated before a layer of the child with the same id.
    timeout_ms : float, optional
        Milliseconds after which the child is aborted and the step fails.
    drop : iterable of str
        Ids of layers not to inherit, such as ``("steering",)``; recorded in the run, reported by ``harness.check()``.

    Raises
    ------
    NoeticConfigError
        ``MISSING_CHILD_STEP``, ``INVALID_STEP``, ``DUPLICATE_LAYER_ID``.

    Examples
    --------
    >>> spawn("research", step.llm("ask", model="scripted"), context_out="summary").context_out.strategy
    'summary'
    """
    fields = _given(child=child, memory=memory, timeout_ms=timeout_ms)
    return SpawnStep(id=id, context_in=context_in, context_out=context_out, drop=drop, **fields)


@explained(id="Name it first: loop('think', step, until=until.no_tool_calls()).")
def loop(
    id: str,
    steps: Step | Iterable[Step] | None = None,
    *,
    until: UntilPredicate | None = None,
    body: Step | Iterable[Step] | None = None,
    max_iterations: int = 1000,
    max_history_size: int = 100,
    inbox: Channel | None = None,
    park_timeout_ms: float = 0.0,
    prepare_next: Callable[..., Any] | None = None,
    on_error: Callable[..., Any] | Literal["retry", "skip", "abort"] | None = None,
    feed_output: bool = True,
    needs_output: bool = True,
    text_between: bool = False,
) -> LoopStep:
    """Repeat steps until a predicate says stop.

    Parameters
    ----------
    steps, body : step or iterable of steps
        The steps to repeat; either name.
    until : predicate
        A loop predicate; see `noetic_nb.steps._loops`.
    max_iterations : int
        The loop fails beyond it; retried and skipped iterations count.
    max_history_size : int
        Number of recent outputs that the predicate sees.
    inbox : Channel, optional
        Read when the predicate says stop; a message is logged as a developer message and the loop continues.
    park_timeout_ms : float
        How long to wait for that message, in milliseconds; 0 does not wait.
    prepare_next : callable, optional
        ``prepare_next(output, verdict, ctx)`` returns the next input.
    on_error : callable or {"retry", "skip", "abort"}, optional
        ``on_error(error, ctx)`` returns one of these for a `NoeticError` of the body.
    feed_output : bool
        False gives later iterations no input.
    needs_output : bool
        False lets the loop end if its last iteration returned None; otherwise that fails with ``step_failed``.
    text_between : bool
        True passes text from one step to the next: None as ``""``, other values as JSON.

    Raises
    ------
    NoeticConfigError
        ``MISSING_LOOP_BODY``, ``MISSING_UNTIL_PREDICATE``, ``INVALID_STEP``.

    Examples
    --------
    >>> from noetic_nb.steps import until
    >>> loop("think", step.llm("ask", model="scripted"), until=until.no_tool_calls()).steps[0].id
    'ask'
    """
    given = body if steps is None else steps
    if steps is not None and body is not None:
        raise NoeticConfigError("INVALID_STEP", "`steps` and `body` are two names for one thing.", hint="Pass one.")
    # A step first: pydantic makes records iterable over their fields.
    listed = tuple(given) if isinstance(given, Iterable) and not isinstance(given, StepRecord) else (given,)
    return LoopStep(
        id=id,
        steps=() if given is None else listed,
        max_iterations=max_iterations,
        max_history_size=max_history_size,
        park_timeout_ms=park_timeout_ms,
        feed_output=feed_output,
        needs_output=needs_output,
        text_between=text_between,
        **_given(until=until, inbox=inbox, prepare_next=prepare_next, on_error=on_error),
    )


class step:
    """Builders of the plain steps, and of `branch`, `fork`, `spawn` and `loop`.

    Examples
    --------
    >>> step.llm("answer", model="scripted", instructions="Be brief.").kind
    'llm'
    """

    def __init__(self, *given: object, **fields: object) -> None:
        what = given[0] if given else fields
        hint = "Write step.llm(id, model=...), step.tool(id, tool) or step.run(id, function)."
        raise ArgumentError("Create steps with the builders in `step`", given=what, hint=hint)

    @staticmethod
    @explained(execute="A step has a name and a function: step.run('clean', lambda value, ctx: ...).")
    def run(id: str, execute: Callable[..., Any], *, retry: RetryPolicy | Mapping[str, Any] | None = None) -> RunStep:
        """Run a function of the input and the context, retried after failures if `retry` is given.

        Examples
        --------
        >>> step.run("twice", lambda n, ctx: 2 * n, retry={"max_attempts": 3, "initial_delay_ms": 50}).retry.max_attempts
        3
        """
        return RunStep(id=id, execute=execute, **_given(retry=retry))

    @staticmethod
    @explained(
        id="Name it first: step.llm('ask', model='gpt-4o').", model="Name a model: step.llm('ask', model='gpt-4o')."
    )
    def llm(
        id: str,
        *,
        model: str | Callable[..., Any],
        instructions: str | Callable[..., Any] | None = None,
        tools: Tool | Iterable[Tool | Callable[..., Any]] | Callable[..., Any] | None = None,
        output: Any = None,
        params: ModelParams | Mapping[str, Any] | None = None,
        projection: ProjectionPolicy | None = None,
        tool_rounds: int | None = None,
        incomplete: Incomplete | None = None,
        emit: bool | Callable[..., Any] = True,
    ) -> LLMStep:
        """Ask a model; with `output`, a type or a JSON Schema, its answer is parsed as JSON and checked.

        A codec as `output`, such as `fenced_json`, adds answer instructions to the system text and parses the answer.
        `incomplete` defines the handling of a truncated answer: ``"return"``, ``"continue"`` or ``"error"``.

        Examples
        --------
        >>> step.llm("count", model="scripted", output=int).output.parse("3", step_id="count")
        3
        """
        listed: Any = tuple(tools) if isinstance(tools, Iterable) and not callable(tools) else tools
        fields = _given(
            instructions=instructions,
            tools=listed,
            output=output,
            params=params,
            projection=projection,
            tool_rounds=tool_rounds,
            incomplete=incomplete,
        )
        return LLMStep(id=id, model=model, emit=emit, **fields)

    @staticmethod
    @explained(tool="A step has a name and a tool: step.tool('find', lookup).")
    def tool(id: str, tool: Tool, args: Mapping[str, Any] | None = None, *, takes_input: bool = True) -> ToolStep:
        """Call a tool.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> @nn.tool
        ... def lookup(order_id: str) -> str:
        ...     "Find one order."
        ...     return "packed"
        >>> step.tool("find", lookup, {"order_id": "A17"}).tool.name
        'lookup'
        """
        given: Any = dict(args) if isinstance(args, Mapping) else args
        return ToolStep(id=id, tool=tool, takes_input=takes_input, **_given(args=given))

    branch = staticmethod(branch)
    fork = staticmethod(fork)
    spawn = staticmethod(spawn)
    loop = staticmethod(loop)
