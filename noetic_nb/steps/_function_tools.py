"""Tools made from functions, whose parameters, results and docstrings are read once.

The model does not see a parameter named ``ctx``: it receives the execution's context.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from noetic_nb._core.names import LAMBDA, function_name, inside_partial
from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items._json_form import form_of, without_json_form
from noetic_nb.models._client import ToolSpec
from noetic_nb.steps._tools import Tool, spec_tokens, twin_error, wire_name

CONTEXT: Final = "ctx"


def _result_type(returns: Any) -> Any:
    """Return the type of a generator's return value from its annotation, which may be that type itself."""
    kind, given = get_origin(returns) or returns, get_args(returns)
    if kind is Generator:
        value = given[2] if len(given) == 3 else None
        return given[0] if given and value in (None, type(None)) else Any if value is None else value
    if kind in (AsyncGenerator, AsyncIterator, AsyncIterable):
        return given[0] if given else Any
    return Any if kind in (Iterator, Iterable) else returns


def without_name(function: Callable[..., Any]) -> NoeticConfigError:
    """Return the error for a lambda: rules and models identify tools by name."""
    what = "A lambda has no name, and rules and models know tools by their names."
    hint = "Write def, or name it: nn.tool(function, name='...')."
    return NoeticConfigError("INVALID_TOOL", what, given=function, hint=hint)


def _parameters(function: Callable[..., Any], name: str) -> tuple[type[BaseModel], Any, bool]:
    try:
        signature = inspect.signature(function)
    except ValueError as exc:  # some types and functions written in C
        hint = "Wrap it in a function with annotated parameters."
        raise NoeticConfigError("INVALID_TOOL", f"The parameters of tool {name!r} are unknown", hint=hint) from exc
    try:
        # Resolved, because postponed annotations are strings; the extras hold notes for the schema.
        hints = get_type_hints(inside_partial(function), include_extras=True)
    except NameError as exc:
        what = f"An annotation of tool {name!r} cannot be resolved: {exc}"
        hint = "Define the type above the tool, at module or cell level."
        raise NoeticConfigError("INVALID_TOOL", what, hint=hint) from exc
    fields: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.name == CONTEXT:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            what = f"Tool {name!r} has a parameter that cannot be passed by name."
            hint = "Name every parameter; a model passes arguments by name."
            raise NoeticConfigError("INVALID_TOOL", what, given=str(parameter), hint=hint)
        annotation = hints.get(parameter.name, Any)
        # Without a default the annotation stands alone, because it may contain one: ``Field(default_factory=...)``.
        fields[parameter.name] = annotation if parameter.default is parameter.empty else (annotation, parameter.default)
    model: type[BaseModel] = create_model(
        f"{wire_name(name)}_arguments", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields
    )
    return model, hints.get("return", Any), CONTEXT in signature.parameters


def _check_json_form(model: type[BaseModel], name: str) -> None:
    """Reject parameters and defaults without a JSON form, because rules could not see them."""
    problem = without_json_form(model.__pydantic_core_schema__)
    for parameter, field in model.model_fields.items():
        if problem is None and not field.is_required() and field.default_factory is None:
            try:
                form_of(model).dump_fields({parameter: field.default})
            except ItemValidationError as exc:
                problem = f"the default of {parameter!r} ({exc.what})"
    if problem is not None:
        what = f"Tool {name!r} has a parameter without a JSON form: {problem}"
        hint = "Use JSON types, dates, enumerations, dataclasses or pydantic models, which rules can judge."
        raise NoeticConfigError("INVALID_TOOL", what, hint=hint)


def make_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool = False,
    inline: bool = False,
) -> Tool:
    """Make a tool from a function; raises `NoeticConfigError` ``EMPTY_TOOL_NAME`` or ``INVALID_TOOL``."""
    if not callable(function):
        raise NoeticConfigError(
            "INVALID_TOOL",
            "A tool must be a function",
            given=function,
            hint="Pass the function itself: tools=[search].",
        )
    given = function_name(function) if name is None else name
    if given == LAMBDA:
        raise without_name(function)
    for option, text in (("name", given), ("description", description)):
        if text is not None and not isinstance(text, str):
            raise NoeticConfigError(
                "INVALID_TOOL", f"The {option} of a tool must be text", given=text, hint=f"Pass {option}='...'."
            )
    for option, switch in (("needs_approval", needs_approval), ("inline", inline)):
        if not isinstance(switch, bool):
            raise NoeticConfigError("INVALID_TOOL", f"`{option}` must be True or False", given=switch)
    if not given.strip():
        raise NoeticConfigError(
            "EMPTY_TOOL_NAME", "A tool needs a non-blank name.", given=given, hint="Pass name='...'."
        )
    model, returns, wants_context = _parameters(function, given)
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if streams:
        returns = _result_type(returns)
    about = inspect.getdoc(inside_partial(function)) or "" if description is None else description
    try:
        schema = model.model_json_schema()
        output: TypeAdapter[Any] = TypeAdapter(returns)
    except Exception as exc:
        what = f"The annotations of tool {given!r} have no JSON Schema: {exc}"
        raise NoeticConfigError("INVALID_TOOL", what, hint="Use JSON types, dataclasses or pydantic models.") from exc
    _check_json_form(model, given)
    # The title is pydantic's name for the arguments model: useless tokens.
    schema.pop("title", None)
    spec = ToolSpec(given, about, schema)
    return Tool(
        name=given,
        description=about,
        input=model,
        output=output,
        execute=function,
        needs_approval=needs_approval,
        wants_context=wants_context,
        streams=streams,
        inline=inline or is_async,
        spec=spec,
        tokens=spec_tokens(spec),
    )


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool = False,
    inline: bool = False,
) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Literal[True, False] = False,
    inline: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool = False,
    inline: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Turn a function into a tool: the model sees its name, docstring and annotations.

    Parameters
    ----------
    function : callable
        Sync or async; all parameters can be passed by name, with annotations that have a JSON Schema and values that
        have a JSON form. The values that a generator yields are progress, as events `ToolProgress`; its return value is
        the result, or the last piece if it returns nothing.
    name, description : str, optional
        Override the function's own.
    needs_approval : bool, default False
        Whether a person is asked before each call.
    inline : bool, default False
        Call a ``def`` function on the thread of the event loop. By default it runs in a worker thread of the turn, so
        that it blocks neither the loop nor the stop button; one that takes ``ctx`` is always called inline. Pass True
        for objects that are bound to one thread, such as an SQLite connection opened in another cell.

    Examples
    --------
    >>> @tool
    ... def lookup(order_id: str) -> dict[str, str]:
    ...     "Find one order."
    ...     return {"order": order_id}
    >>> lookup.name, lookup.arguments('{"order_id": "A17"}')
    ('lookup', {'order_id': 'A17'})
    """
    options: dict[str, Any] = {
        "name": name,
        "description": description,
        "needs_approval": needs_approval,
        "inline": inline,
    }
    return (lambda wrapped: make_tool(wrapped, **options)) if function is None else make_tool(function, **options)


def as_tools(value: object) -> object:
    """Return one or several tools or functions as a tuple of tools; any other value unchanged."""
    if isinstance(value, Tool) or callable(value):
        value = [value]
    if isinstance(value, list | tuple):
        made = tuple([one if isinstance(one, Tool) or not callable(one) else make_tool(one) for one in value])
        functions: dict[str, Any] = {}
        for one in made:
            if isinstance(one, Tool) and functions.setdefault(one.name, one.execute) is not one.execute:
                raise twin_error(one.name)
        return made
    return value


def chooses_tools(value: object) -> bool:
    """Tell whether a function chooses tools at run time: its only parameter is the context, ``ctx`` or without annotation."""
    if isinstance(value, Tool) or not callable(value):
        return False
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return True  # a built-in without a signature
    named = [one for one in parameters if one.default is one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if len(named) != 1:
        return False
    annotation = named[0].annotation
    return named[0].name == CONTEXT or annotation is inspect.Parameter.empty or "Context" in str(annotation)
