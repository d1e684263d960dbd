"""How a built-in layer was made: the name of its function and the arguments it got, so that JSON can make it again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
L = TypeVar("L")

MAKES_LAYERS: Final = "makes_layers"
"""The attribute of a function that `built_in` has marked."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """The function of the library that made a layer, and its arguments."""

    make: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    placement: Literal["prefix", "suffix"] | None = None
    """Where its user put it, None where that is as the function has it."""

    @property
    def kind(self) -> str:
        """The name of the function."""
        return self.make.__name__

    @property
    def options(self) -> dict[str, Any]:
        """The arguments by name, without those that have their default value."""
        signature = inspect.signature(self.make)
        given = signature.bind(*self.args, **self.named).arguments
        return {name: value for name, value in given.items() if not _is_default(value, signature.parameters[name])}


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    default = parameter.default
    # True and 1 are equal and mean different things.
    return value is default or (isinstance(value, bool) == isinstance(default, bool) and bool(value == default))


def built_in(make: Callable[P, L]) -> Callable[P, L]:
    """Let the layers that a function makes know how they were made: a decorator.

    A layer that is changed afterwards, by `dataclasses.replace` or `MemoryLayer.with_hooks`, is one of the user's
    own; one that is `MemoryLayer.placed` is not.
    """

    @functools.wraps(make)
    def make_built_in(*args: P.args, **named: P.kwargs) -> L:
        # What can be read once only is kept: the layer reads it, and JSON wants it again.
        read = tuple([tuple(value) if isinstance(value, Iterator) else value for value in args])
        known = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in named.items()}
        layer = make(*read, **known)  # type: ignore[arg-type]
        object.__setattr__(layer, "made_by", BuiltIn(make, read, known))
        return layer

    setattr(make_built_in, MAKES_LAYERS, True)
    return make_built_in
