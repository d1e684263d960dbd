"""The members that a layer offers to code and model: data and functions; and the arguments that made a built-in layer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypeVar

from pydantic import TypeAdapter

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items._json_form import without_json_form

P = ParamSpec("P")
L = TypeVar("L")

MAKES_LAYERS: Final = "makes_layers"  # the attribute of functions marked with `built_in`


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """The library function that made a layer, and its arguments."""

    make: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    placement: Literal["prefix", "suffix"] | None = None
    """The placement chosen by its user, or None for the function's default."""

    @property
    def kind(self) -> str:
        return self.make.__name__

    @property
    def options(self) -> dict[str, Any]:
        """The arguments by name, without those that have their default value."""
        signature = inspect.signature(self.make)
        given = signature.bind(*self.args, **self.named).arguments
        return {name: value for name, value in given.items() if not _is_default(value, signature.parameters[name])}


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    default = parameter.default
    # True and 1 are equal but mean different things.
    return value is default or (isinstance(value, bool) == isinstance(default, bool) and bool(value == default))


def built_in(make: Callable[P, L]) -> Callable[P, L]:
    """Record on each layer which function made it; a layer that is modified afterwards is the user's own."""

    @functools.wraps(make)
    def make_built_in(*args: P.args, **named: P.kwargs) -> L:
        # Iterators can be read only once, but the layer and its JSON form both need their values.
        read = tuple([tuple(value) if isinstance(value, Iterator) else value for value in args])
        known = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in named.items()}
        layer = make(*read, **known)  # type: ignore[arg-type]
        object.__setattr__(layer, "made_by", BuiltIn(make, read, known))
        return layer

    setattr(make_built_in, MAKES_LAYERS, True)
    return make_built_in


@dataclass(frozen=True, slots=True)
class LayerData:
    """A value derived from a layer's state."""

    read: Callable[[Any], Any]
    kind: Literal["data"] = "data"


@dataclass(frozen=True, slots=True)
class LayerFunction:
    """A function on a layer's state, for code and, as a tool, for the model."""

    description: str
    input: TypeAdapter[Any]
    output: TypeAdapter[Any]
    execute: Callable[[Any, Any, Any], Awaitable[Any] | Any]
    input_type: Any
    for_model: bool = True
    kind: Literal["function"] = "function"


LayerProvides: TypeAlias = Mapping[str, LayerData | LayerFunction]


def layer_data(read: Callable[[Any], Any]) -> LayerData:
    """Declare data that is computed from the state on every access.

    Examples
    --------
    >>> layer_data(lambda state: len(state or "")).read("abc")
    3
    """
    if not callable(read):
        raise NoeticConfigError("INVALID_PROVIDES", "layer_data needs a function of the state.", given=read)
    return LayerData(read)


def type_adapter(schema: Any, code: str = "INVALID_TOOL") -> TypeAdapter[Any]:
    """Return what checks values against a type; raises `NoeticConfigError` for a value that is none."""
    try:
        return TypeAdapter(schema)
    except Exception as exc:  # for what is no type pydantic raises errors of many kinds
        hint = "Pass a type such as dict[str, int], a dataclass or a pydantic model."
        raise NoeticConfigError(code, "A schema must be a type.", given=schema, hint=hint) from exc


def layer_fn(
    *,
    description: str,
    input: Any,
    output: Any,
    execute: Callable[[Any, Any, Any], Awaitable[Any] | Any],
    for_model: bool = True,
) -> LayerFunction:
    """Declare a function on the state.

    Parameters
    ----------
    description : str
        Description for the model.
    input, output : type or pydantic model
        Types that arguments and result are checked against.
    execute : callable
        ``execute(args, state, ctx)``, sync or async, returns ``{"result": ..., "state": ...}``; a state of None clears
        the state, as for ``store``; without ``state`` it does not change.
    for_model : bool, default True
        Whether the model is offered it, too, as the tool ``<layer id>/<name>``; code can always call it.

    Raises
    ------
    NoeticConfigError
        ``INVALID_PROVIDES`` or ``INVALID_TOOL``.

    Examples
    --------
    >>> fn = layer_fn(description="Adds.", input=dict[str, int], output=int,
    ...               execute=lambda args, state, ctx: {"result": state + args["n"]})
    >>> fn.input.validate_python({"n": 2})
    {'n': 2}
    """
    if not callable(execute):
        raise NoeticConfigError("INVALID_PROVIDES", "layer_fn needs a function to execute.", given=execute)
    try:
        checked: TypeAdapter[Any] = TypeAdapter(input)
        problem = without_json_form(checked.core_schema)
    except Exception as exc:  # for what is no type pydantic raises errors of many kinds
        problem = str(exc).splitlines()[0] or type(exc).__name__
    if problem is not None:
        raise NoeticConfigError(
            "INVALID_TOOL",
            f"A parameter of a layer's function has no JSON form: {problem}",
            hint="Use JSON types, dates, enumerations, dataclasses or pydantic models, which rules can judge.",
        )
    return LayerFunction(description, checked, type_adapter(output), execute, input, for_model)


def checked_provides(provides: LayerProvides | None, *, layer_id: str) -> LayerProvides | None:
    """Return the checked declarations; raises `NoeticConfigError` ``INVALID_PROVIDES``."""
    if provides is None:
        return None
    for name, declared in provides.items():
        # Names become attributes of `ctx.memory[id]` and parts of tool names.
        if not isinstance(declared, LayerData | LayerFunction) or not name.isidentifier():
            raise NoeticConfigError(
                "INVALID_PROVIDES",
                f"Layer {layer_id!r} provides something that is neither data nor a function.",
                given={name: declared},
                hint="Use layer_data(...) or layer_fn(...) under a name that is an identifier.",
            )
    # A copy: the layer is frozen, so later changes to the given mapping must not affect it.
    return dict(provides)
