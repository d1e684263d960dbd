"""`guard` wraps the tools of any agent so that our rules are checked first; each keeps its type for its framework.

A framework's tool is recognised by its attributes. The wrapper goes where the arguments are already bound, so that the
judged arguments are the ones used.

Every way to call a LangChain runnable ends in `invoke`, `ainvoke`, `stream` or `astream`, or in those of a runnable
that contains it. No framework is imported here: the user has already imported it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar

from noetic_nb._core.arguments import explained
from noetic_nb._core.names import function_name, keys
from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.events import WarningRaised, Where
from noetic_nb.interop._guards.guard_arguments import (
    Binder,
    Bound,
    bound_by_schema,
    bound_by_signature,
    bound_values,
    function_binder,
    unfit,
)
from noetic_nb.interop._guards.guard_frameworks import (
    MCP_CALL,
    guarded_function,
    langchain_tool,
    mcp_call,
    openai_tool,
    plain_text,
    pydantic_ai_tool,
)
from noetic_nb.interop._guards.guarded_calls import Guard, OnDeny, Rules
from noetic_nb.items._bound_values import copied
from noetic_nb.items._frozen import frozen_or_none
from noetic_nb.models import ModelClient
from noetic_nb.redact import redact_text
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._evaluation.rule_reading import unknown_targets
from noetic_nb.steps import Tool
from noetic_nb.steps._function_tools import make_tool

OTHER_WAYS: Final = keys(
    "stream astream batch abatch batch_as_completed abatch_as_completed transform atransform stream_events astream_events",
    "astream_log pipe __or__ __call__",
)
"""Other entry points of an object with `invoke`. If its class is unknown, they are not known to end in `invoke`."""
_NO_NAME: Final = "LangGraph"  # the name of an unnamed graph


def runnable(tool: Any, guard: Guard, guarded: Callable[[Any, Guard], Any]) -> Any:
    """Guard a non-tool object with `invoke`; raises ``INVALID_TOOL`` without a name, or for unknown entry points."""
    core = sys.modules.get("langchain_core.runnables.base")
    if core is None or not isinstance(tool, core.Runnable):
        return _plain(tool, guard)
    inner = getattr(tool, "bound", None)
    if isinstance(inner, core.Runnable):  # bound settings: the guard belongs on the innermost runnable
        twin = copy.copy(tool)
        object.__setattr__(twin, "bound", guarded(inner, guard))
        object.__setattr__(twin, "run", guard.run)
        return twin
    name = tool.get_name()
    bind = _binder(name)
    if name in (type(tool).__name__, _NO_NAME):
        bind = guard.without_name(name, bind)
    guard.names.add(name)
    return _guarded_class(core.Runnable)(tool, guard, name, bind)


def _plain(tool: Any, guard: Guard) -> Any:
    """Guard an object that resembles a runnable."""
    others = sorted(each for each in OTHER_WAYS if callable(getattr(tool, each, None)))
    if others:
        what = f"A {type(tool).__name__} has methods that cannot be guarded: {', '.join(others)}."
        hint = "Guard a function that calls it, or the tools inside it."
        raise NoeticConfigError("INVALID_TOOL", what, given=tool, hint=hint)
    twin, name = copy.copy(tool), getattr(tool, "name", None) or type(tool).__name__
    for each in ("invoke", "ainvoke"):
        if callable(way := getattr(tool, each, None)):
            object.__setattr__(twin, each, guarded_function(way, guard, _binder(name), name, reply=plain_text))
    object.__setattr__(twin, "run", guard.run)
    return twin


def _binder(name: str) -> Binder:
    """Return the binder of ``invoke(input, config, **kwargs)``; everything except the configuration is judged."""
    named_by = bound_by_signature(dict, name)

    def bind(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        try:
            positional = (*map(copied, positional[:1]), *positional[1:])
            named = {key: value if key == "config" else copied(value) for key, value in named.items()}
        except ItemValidationError as exc:
            raise unfit(name, exc) from exc
        given: Any = positional[0] if positional else named.get("input")
        more = {key: value for key, value in named.items() if key not in ("input", "config")}
        is_named = isinstance(given, Mapping) and all(type(key) is str for key in given) and not given.keys() & more
        bound = named_by((), {**(given if is_named else {"input": given}), **more})
        return bound._replace(positional=positional, named=named)

    return bind


@lru_cache(maxsize=1)
def _guarded_class(base: Any) -> Any:
    class GuardedRunnable(base):  # type: ignore[misc]
        """A runnable that decides before it calls another. Batches, pipes and events use the base class."""

        InputType = OutputType = Any

        def __init__(self, original: Any, guard: Guard, name: str, bind: Binder) -> None:
            def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
                yield from original.stream(*args, **kwargs)

            async def astream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                async for piece in original.astream(*args, **kwargs):
                    yield piece

            self.name = name
            self.run = guard.run
            self._original = original
            ways = {"invoke": original.invoke, "ainvoke": original.ainvoke, "stream": stream, "astream": astream}
            self._ways = {
                way: guarded_function(function, guard, bind, name, reply=plain_text) for way, function in ways.items()
            }

        def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
            return self._ways["invoke"](input, config, **kwargs)

        async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
            return await self._ways["ainvoke"](input, config, **kwargs)

        def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
            yield from self._ways["stream"](input, config, **kwargs)

        async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
            async for piece in self._ways["astream"](input, config, **kwargs):
                yield piece

        def get_input_schema(self, config: Any = None) -> Any:
            return self._original.get_input_schema(config)

        def get_output_schema(self, config: Any = None) -> Any:
            return self._original.get_output_schema(config)

    return GuardedRunnable


def warn_of_unknown_targets(guard: Guard, tools: Iterable[Any]) -> None:
    """Warn, in Python and in the run, of rules about tools or arguments that no guarded tool has; MCP sessions are exempt."""
    if MCP_CALL in guard.names:
        return
    schemas = dict(map(_described, tools))
    known = {name: schemas.get(name, guard.schemas.get(name)) for name in guard.names}
    guard.schemas |= known
    guard.book.known_tools = {**guard.book.known_tools, **known}
    for target in unknown_targets(guard.book, guard.book.known_tools):
        warnings.warn(target, stacklevel=4)
        if guard.sink is not None:
            text = redact_text(str(target))  # not within a session: nothing has been called yet
            guard.sink.emit(
                WarningRaised(Where("", "", 0), guard.clock.now_ms(), target.warning_code, text, "steering")
            )


def _described(tool: Any) -> tuple[str, Mapping[str, Any] | None]:
    """Return the name of a tool and the JSON Schema of its arguments, or None if it has none."""
    while isinstance(tool, functools.partial):
        tool = tool.func
    if isinstance(tool, Tool):
        return tool.name, tool.spec.parameters
    name = getattr(tool, "name", None)
    if not isinstance(name, str):
        return function_name(tool), _of_function(tool)
    for holder, field in ((tool, "params_json_schema"), (getattr(tool, "function_schema", None), "json_schema")):
        schema = getattr(holder, field, None)
        if isinstance(schema, Mapping):
            return name, schema
    arguments = None
    with contextlib.suppress(Exception):  # another package may raise anything; the tool is guarded anyway
        arguments = getattr(tool, "args", None)
    return name, {"properties": arguments} if isinstance(arguments, Mapping) else None


def _of_function(function: Any) -> Mapping[str, Any] | None:
    try:
        return make_tool(function, name="tool").spec.parameters
    except Exception:  # annotations without a JSON form
        pass
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return {"properties": {each.name: {} for each in parameters}}


# Methods that call a tool; if one of them is guarded by itself, it stands for its tool.
_WAYS: Final = frozenset(
    {"call", "begin", "__call__", "run", "arun", "_run", "_arun", "invoke", "ainvoke", *OTHER_WAYS}
)

T = TypeVar("T")


@explained(rules="Pass the rules too: nn.guard(tools, rules).")
def guard(
    tool: T,
    rules: Rules,
    *,
    run: Run | None = None,
    regulator: Regulator | None = None,
    on_deny: OnDeny = None,
    on_error: Literal["deny", "allow", "raise"] = "deny",
    timeouts: Mapping[str, float] | None = None,
    approve: Callable[..., Any] | None = None,
    model: ModelClient | Mapping[str, ModelClient] | None = None,
) -> T:
    """Put rules, a regulator, or both in front of the tools of any agent.

    Parameters
    ----------
    tool : callable, tool or list of them
        A function, sync or async, a `Tool`, a tool of LangChain, pydantic-ai or the OpenAI Agents SDK, a LangChain
        runnable or compiled graph, or ``session.call_tool`` of an MCP session. Also partial calls and methods of these.
    rules : RuleBook, SteeringRule or iterable of rules
        A rule book is read again at each call, so edits apply from the next call on. None to use only a regulator.
    run : Run, optional
        The run that receives the ledger; a new run by default, ``guarded.run``.
    regulator : Regulator, optional
        A template, forked for each session; a circuit break refuses this and every later call of the session.
    on_deny : {"raise", "return"}, optional
        Raise `NoeticError` ``steering_denied``, or return the text for the model. By default, functions and a `Tool`
        raise; tools of LangChain, pydantic-ai, the OpenAI Agents SDK and MCP return, because their frameworks end a run
        when a tool raises.
    on_error : {"deny", "allow", "raise"}
        How to treat a rule that raises, hangs or returns an invalid decision.
    timeouts : mapping of str to float, optional
        Milliseconds for ``before_tool_call``.
    approve : callable, optional
        ``approve(tool_name, args)`` answers when a rule asks for approval, as for `AgentHarness`. By default the answer is no.
    model : ModelClient or mapping of str to ModelClient, optional
        Answers the judges. Without it, a rule with a judge raises ``MISSING_CALL_MODEL``.

    Returns
    -------
    object
        The same kind of object; for a list, a list of tools that share one run and, in each session, one history.

    Raises
    ------
    NoeticConfigError
        ``INVALID_OPTION``, ``SWAPPED_ARGUMENTS``, ``INVALID_TOOL`` if an object is not a tool, has an entry point that
        cannot be guarded, or has no name while rules name tools; also the errors of invalid rules.

    Warns
    -----
    UserWarning
        If a rule names a tool or an argument that no guarded tool has; also recorded in `run`.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Guarding the tools of other agents".

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> small = rules.when("tool.args.amount > 100", id="small", guidance="Ask a person.")
    >>> def refund(order: str, amount: int = 10) -> str:
    ...     return f"refunded {amount}"
    >>> safe = guard(refund, rules, on_deny="return")
    >>> safe("A17")
    'refunded 10'
    >>> safe("A17", amount=500)
    '{"error":{"kind":"steering_denied","action":"deny","guidance":"Ask a person.","ruleId":"small"}}'
    >>> len(safe.run.to_frame("ledger"))
    2
    """
    if isinstance(tool, RuleBook | SteeringRule):
        given, hint = f"{type(tool).__name__}, {type(rules).__name__}", "Write guard(tools, rules)."
        what = "guard takes the tools first, then the rules."
        raise NoeticConfigError("SWAPPED_ARGUMENTS", what, given=given, hint=hint)
    shared = Guard(
        rules,
        run=run,
        regulator=regulator,
        on_deny=on_deny,
        on_error=on_error,
        timeouts=timeouts,
        approve=approve,
        model=model,
    )
    tools: Any = tool if isinstance(tool, list | tuple) else [tool]
    guarded = [_guarded(one, shared) for one in tools]
    warn_of_unknown_targets(shared, tools)
    several: Any = guarded if isinstance(tool, list) else tuple(guarded)
    made: T = several if tools is tool else guarded[0]
    return made


def _guarded(tool: Any, guard: Guard) -> Any:
    # The most specific kinds first: a LangChain tool, for example, is also callable.
    if (guarded := _kind_of(tool)) is not None:
        return guarded(tool, guard)
    if not callable(tool):
        hint = "Pass a function, a tool of LangChain, pydantic-ai or OpenAI Agents, or session.call_tool."
        raise NoeticConfigError("INVALID_TOOL", "This tool cannot be guarded.", given=tool, hint=hint)
    # A partial has no name of its own: its function is guarded, with all the arguments.
    if isinstance(tool, functools.partial):
        return _again(functools.partial(_guarded(tool.func, guard), *tool.args, **tool.keywords), tool.func, guard)
    name = getattr(tool, "__name__", None) or type(tool).__name__
    if name in _WAYS and (guarded := _kind_of(getattr(tool, "__self__", None))) is not None:
        return _again(functools.partial(getattr(guarded(tool.__self__, guard), name)), tool, guard)
    if name.startswith("call_tool"):
        return mcp_call(tool, guard)
    bind = function_binder(tool, name)
    return guarded_function(tool, guard, guard.without_name(name, bind) if name == "<lambda>" else bind, name)


def _kind_of(tool: Any) -> Callable[[Any, Guard], Any] | None:
    """Return the guarding function for a tool of a known kind, None for a plain function."""
    if isinstance(tool, Tool):
        return _own_tool
    if callable(getattr(tool, "on_invoke_tool", None)) and hasattr(tool, "params_json_schema"):
        return openai_tool
    if callable(getattr(tool, "function", None)) and hasattr(tool, "takes_ctx"):
        return pydantic_ai_tool
    if inspect.isroutine(tool) or inspect.isclass(tool):
        return None
    if callable(getattr(tool, "invoke", None)) or callable(getattr(tool, "ainvoke", None)):
        # A runnable with bound settings delegates these attributes to its tool.
        is_tool = inspect.getattr_static(tool, "_run", None) is not None
        return langchain_tool if is_tool else lambda tool, guard: runnable(tool, guard, _guarded)
    return None


def _again(made: functools.partial[Any], tool: Any, guard: Guard) -> functools.partial[Any]:
    """Give a partial call the name and signature of its function."""
    for name in ("__name__", "__doc__"):
        if hasattr(tool, name):
            setattr(made, name, getattr(tool, name))
    made.run = guard.run  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedTool(Tool):
    """One of our tools that decides before every call, whichever method makes it."""

    run: Run  # receives the ledger
    judged: Callable[..., Any]

    def begin(self, values: Mapping[str, Any], ctx: Any = None) -> Any:
        """Decide, then run with the values that `bind` has checked."""
        return self.judged(**values, ctx=ctx) if self.wants_context else self.judged(**values)


def _own_tool(tool: Tool, guard: Guard) -> GuardedTool:
    bind = bound_by_schema(tool, inspect.signature(tool.execute))

    def bind_values(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        # `bind` has already validated these; validating again could give different values.
        try:
            values = {key: copied(value) for key, value in named.items() if key != "ctx" or not tool.wants_context}
            bound = bound_values(tool, values, tool.shown(values))
        except ItemValidationError as exc:
            raise unfit(tool.name, exc) from exc
        return bound._replace(raw=frozen_or_none(values), named={**named, **values})

    given = {field.name: getattr(tool, field.name) for field in fields(Tool)}
    # The harness asks for a tool's approval itself; direct calls of the tool ask here.
    execute = guarded_function(tool.execute, guard, bind, tool.name, needs_approval=tool.needs_approval)
    judged = guarded_function(tool.execute, guard, bind_values, tool.name)
    return GuardedTool(**{**given, "execute": execute}, run=guard.run, judged=judged)
