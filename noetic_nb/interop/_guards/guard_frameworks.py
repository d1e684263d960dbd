"""Tools of other packages: the point in each at which a call has its arguments but has not begun.

None of the packages is imported. A tool with two entry points is judged once whichever is used: the guarded copy calls
the unguarded original.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping
from typing import Any, Final, TypeAlias, get_type_hints

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop._guards.guard_arguments import Binder, Bound, bound_by_signature, json_binder
from noetic_nb.interop._guards.guarded_calls import Guard, GuardedCall, OnDeny, is_async
from noetic_nb.items import thaw
from noetic_nb.items._frozen import FrozenDict, freeze
from noetic_nb.runs import Run
from noetic_nb.sync import drive

Reply: TypeAlias = Callable[[str], Any]
"""Makes a framework's tool result from the text of a refusal."""


def plain_text(text: str) -> Any:
    """Return the text itself: the `Reply` of most frameworks."""
    return text


def guarded_function(
    function: Callable[..., Any],
    guard: Guard,
    bind: Binder,
    name: str,
    *,
    needs_approval: bool = False,
    reply: Reply | None = None,
) -> Any:
    """Return a function of the same kind that decides first; a refusal is raised, or returned by `reply`."""
    wrapped: Any
    guard.names.add(name)
    on_deny: OnDeny = "return" if reply else "raise"
    reply = reply or plain_text

    async def admitted(args: Any, kwargs: Any) -> tuple[GuardedCall, Bound] | str:
        try:
            bound = bind(args, kwargs)
        except NoeticError as exc:
            return guard.unfit(name, exc, on_deny)
        call = guard.call(bound, needs_approval=needs_approval)
        return call.refusal(on_deny) if await call.refused() else (call, bound)

    if inspect.isasyncgenfunction(function):

        async def wrapped(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            found = await admitted(args, kwargs)
            if isinstance(found, str):
                yield reply(found)
                return
            call, bound = found
            with call:
                pieces = function(*bound.positional, **bound.named)
                try:
                    async for call.value in pieces:
                        yield call.value
                finally:
                    await pieces.aclose()

    elif inspect.isgeneratorfunction(function):

        def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            found = drive(admitted(args, kwargs))
            if isinstance(found, str):
                yield reply(found)
                return None
            call, bound = found
            with call:
                call.value = yield from function(*bound.positional, **bound.named)
            return call.value

    elif is_async(function):

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = await admitted(args, kwargs)
            if isinstance(found, str):
                return reply(found)
            call, bound = found
            with call:
                call.value = await function(*bound.positional, **bound.named)
            return call.value

    else:

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = drive(admitted(args, kwargs))
            if isinstance(found, str):
                return reply(found)
            call, bound = found
            with call:
                value = call.value = function(*bound.positional, **bound.named)
                if not hasattr(value, "__await__"):
                    return value
                call.postpone()  # a plain function that returns an awaitable has not ended yet
            return _ended_later(call, value)

    wrapped.__name__ = name  # for an object without a name
    functools.update_wrapper(wrapped, function)
    wrapped.run = guard.run
    return wrapped


async def _ended_later(call: GuardedCall, awaitable: Any) -> Any:
    with call:
        call.value = await awaitable
    return call.value


MCP_CALL: Final = "call_tool"  # the name of a guarded session call, whose tools are not known in advance
# Arguments that LangChain passes in addition to the model's.
_LANGCHAIN_OWN: Final = frozenset({"config", "run_manager", "callbacks"})


def openai_tool(tool: Any, guard: Guard) -> Any:
    """Guard a function tool of the OpenAI Agents SDK."""
    twin = copy.copy(tool)
    invoke, name = tool.on_invoke_tool, tool.name
    bind_text = json_binder(name, tool.params_json_schema, getattr(tool, "__wrapped__", None))

    def bind(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        ctx, text, *_ = *positional, *named.values()
        bound = bind_text(text)
        call_id = getattr(ctx, "tool_call_id", None)
        return bound._replace(positional=(ctx, *bound.positional), call_id=call_id if type(call_id) is str else "")

    async def on_invoke_tool(ctx: Any, input: str) -> Any:  # the framework requires these parameter names
        value = invoke(ctx, input)
        return await value if hasattr(value, "__await__") else value

    _set(twin, "on_invoke_tool", guarded_function(on_invoke_tool, guard, bind, name, reply=plain_text))
    _set(twin, "run", guard.run)
    return twin


def pydantic_ai_tool(tool: Any, guard: Guard) -> Any:
    twin = copy.copy(tool)
    takes_ctx, name = bool(tool.takes_ctx), getattr(tool, "name", None) or tool.function.__name__

    def call_id(positional: tuple[Any, ...]) -> str:
        found = getattr(positional[0], "tool_call_id", None) if takes_ctx and positional else None
        return found if type(found) is str else ""

    bind = bound_by_signature(tool.function, name, skip=int(takes_ctx), call_id=call_id)
    guarded = guarded_function(tool.function, guard, bind, name, reply=plain_text)
    _set(twin, "function", guarded)
    schema = getattr(tool, "function_schema", None)
    if schema is not None:  # the framework calls this after it has validated the arguments
        schema = copy.copy(schema)
        _set(schema, "function", guarded)
        _set(twin, "function_schema", schema)
    _set(twin, "run", guard.run)
    return twin


def langchain_tool(tool: Any, guard: Guard) -> Any:
    twin = copy.copy(tool)
    name = getattr(tool, "name", None) or type(tool).__name__
    reply: Reply = plain_text
    if getattr(tool, "response_format", "content") == "content_and_artifact":
        reply = lambda text: (text, None)  # noqa: E731

    def left_out(arguments: Mapping[str, Any]) -> Collection[str]:
        own = {*_LANGCHAIN_OWN}
        strip = getattr(tool, "_filter_injected_args", None)
        if strip is not None:  # state and stores that the framework injects
            own |= arguments.keys() - strip(dict(arguments)).keys()
        return own

    # Bound to the original tool, whose own methods are unguarded, so that each call is judged once.
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    for each in ("func", "coroutine", "_run", "_arun"):
        if callable(method := getattr(tool, each, None)):
            own = method if each in ("func", "coroutine") or function is None else function
            bind = _langchain_binder(own, method, name, left_out)
            _set(twin, each, guarded_function(method, guard, bind, name, reply=reply))
    # Some LangChain tools have a method called `run`, which must still work.
    _set(twin, "run", _CallableRun.of(guard.run, twin) if callable(getattr(tool, "run", None)) else guard.run)
    return twin


def _langchain_binder(function: Any, method: Any, name: str, left_out: Any) -> Binder:
    """Return the binder of a method that passes its arguments on to a function with known parameters."""
    named_by = bound_by_signature(function, name, left_out=left_out)
    takes: Mapping[str, inspect.Parameter] = {}
    with contextlib.suppress(TypeError, ValueError):  # a built-in
        takes = inspect.signature(function).parameters
    is_open = any(each.kind is each.VAR_KEYWORD for each in takes.values())

    def bind(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        shown = {key: value for key, value in named.items() if is_open or not takes or key in takes}
        extra = named.keys() - shown.keys() - _LANGCHAIN_OWN
        if extra:
            shown |= {key: named[key] for key in extra}
        # The framework adds these itself after binding.
        missing = {key: None for key in takes if key in _LANGCHAIN_OWN and key not in shown}
        bound = named_by(positional, {**shown, **missing})
        return bound._replace(named={**named, **{key: bound.named[key] for key in shown}})

    return bind


class _CallableRun(Run):
    """The run of a guarded tool whose framework has a method called `run`: it is both the run and the method."""

    __slots__ = ("_method",)
    _method: Callable[..., Any]

    @classmethod
    def of(cls, run: Run, tool: Any) -> _CallableRun:
        """Return a run that shares all state with another, and calls the tool's own method when it is called."""
        twin = cls.__new__(cls)
        twin.__dict__ = vars(run)
        twin._method = functools.partial(type(tool).run, tool)
        return twin

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)


def mcp_call(function: Any, guard: Guard) -> Any:
    """Guard ``session.call_tool`` and the like by the tool that a call names; raises ``INVALID_TOOL`` for unknown parameters."""
    try:
        known = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        known = []
    name_key = next((each for each in ("name", "tool_name") if each in known), None)
    args_key = next((each for each in ("arguments", "tool_args", "args") if each in known), None)
    if name_key is None or args_key is None:
        what = f"Which tool {function.__name__!r} calls is unknown."
        hint = "It needs a parameter `name` and a parameter `arguments`, as session.call_tool has."
        raise NoeticConfigError("INVALID_TOOL", what, given=known, hint=hint)
    signature = inspect.signature(function)

    def bind(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        try:
            bound = signature.bind(*positional, **named)
            tool_name = bound.arguments[name_key]
            given = freeze(bound.arguments.get(args_key) or {})
        except (TypeError, KeyError, NoeticError, NoeticConfigError) as exc:
            raise NoeticError("tool_failed", f"no call of a tool: {exc}", reason="invalid") from exc
        if not isinstance(given, FrozenDict) or not isinstance(tool_name, str):
            raise NoeticError(
                "tool_failed", "the arguments are not a JSON object", reason="invalid", tool_name=tool_name
            )
        if args_key in bound.arguments:
            # Pass a copy, so that the caller cannot change the judged arguments while a rule waits.
            bound.arguments[args_key] = None if bound.arguments[args_key] is None else thaw(given)
        return Bound(tool_name, given, given, bound.args, bound.kwargs, thaw(given))

    return guarded_function(function, guard, bind, MCP_CALL, reply=_mcp_reply(function))


def _mcp_reply(function: Any) -> Reply:
    """Return a function that makes a result of a refusal, of the session's result class if known, else text."""
    try:
        kinds = get_type_hints(function).get("return")
        found = next(
            each
            for each in (kinds, *getattr(kinds, "__args__", ()))
            if hasattr(each, "model_fields") and "content" in each.model_fields
        )
    except Exception:
        return plain_text
    flag = "isError" if "isError" in found.model_fields else "is_error"
    return lambda text: found.model_validate({"content": [{"type": "text", "text": text}], flag: True})


def _set(owner: Any, name: str, value: Any) -> None:
    """Set an attribute, even on frozen records and on models that refuse unknown fields."""
    object.__setattr__(owner, name, value)
