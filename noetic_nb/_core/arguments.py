"""Clear errors for unsuitable arguments; and names, compared as a reader or a provider sees them."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, TypeGuard, TypeVar

from noetic_nb.errors import NoeticConfigError

F = TypeVar("F", bound=Callable[..., Any])


class ArgumentError(NoeticConfigError, TypeError):
    """A call whose arguments do not fit the function: code ``INVALID_ARGUMENTS``, and a `TypeError` like Python's own."""

    def __init__(self, what: str, **more: Any) -> None:
        super().__init__("INVALID_ARGUMENTS", what, **more)


def check_seed(seed: Any) -> None:
    """Refuse a seed that is no whole number of at least 0; raises `NoeticConfigError` ``INVALID_SEED``."""
    # None draws something else each time, and -1 draws what 1 does.
    if type(seed) is bool or not isinstance(seed, Integral) or seed < 0:
        hint = "For example: seed=0."
        raise NoeticConfigError("INVALID_SEED", "A seed is a whole number of at least 0.", given=seed, hint=hint)


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a finite number, which a truth is not, nor a whole number that no float can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def closest(name: object, known: Iterable[str]) -> str:
    """Return a "did you mean" sentence for a misspelt name, or an empty text if no known name is similar."""
    names = {one.casefold(): one for one in known}
    import difflib  # only needed for an error message

    found = difflib.get_close_matches(str(name).casefold(), names, n=1)
    return f"Did you mean {names[found[0]]!r}?" if found else ""


def explained(**hints: str) -> Callable[[F], F]:
    """Make a function explain unsuitable calls; `hints` are hints by argument name, or for ``positional``."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as exc:
                # With a second frame, the error comes from inside, and the arguments did fit.
                if exc.__traceback__ is None or exc.__traceback__.tb_next is not None:
                    raise
                problem = _problem(function, args, kwargs, hints)
            raise problem

        return call  # type: ignore[return-value]  # with the signature of `wraps`

    return decorate


def _problem(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], hints: dict[str, str]
) -> ArgumentError:
    parameters = inspect.signature(function).parameters
    is_method = bool(args) and next(iter(parameters), "") in ("self", "cls")
    name = function.__qualname__
    if is_method:  # by the class that the user called, not the one that defines the method
        name = (
            type(args[0]).__name__
            if function.__name__ == "__init__"
            else f"{type(args[0]).__name__}.{function.__name__}"
        )
    shown = [one for one in parameters.values() if one.name not in ("self", "cls")]
    named = [one.name for one in shown if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if not named and is_method:
        named = list(getattr(type(args[0]), "model_fields", ()))
    by_place = [one.name for one in shown if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    call = name.rpartition(".<locals>.")[2]
    given = args[1:] if is_method else args
    takes_any = any(one.kind is one.VAR_KEYWORD for one in shown)
    # A record's parameters are its fields, whatever its constructor's signature.
    unknown = (
        None
        if takes_any and shown[0].kind is not inspect.Parameter.VAR_KEYWORD
        else next((key for key in kwargs if key not in named), None)
    )
    if unknown is not None:
        hint = hints.get(unknown) or closest(unknown, named) or f"Its parameters are {', '.join(named)}."
        return ArgumentError(f"{call}() has no parameter {unknown!r}", given=kwargs[unknown], hint=hint)
    if len(given) > len(by_place):
        most = f"only {', '.join(by_place)}" if by_place else "no arguments"
        hint = hints.get("positional") or f"Name it: one of {', '.join(one for one in named if one not in by_place)}."
        return ArgumentError(f"{call}() takes {most} by position", given=given[len(by_place)], hint=hint)
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one.name for one in shown if one.default is one.empty and one.kind not in optional]
    passed = {*by_place[: len(given)], *kwargs}
    missing = [one for one in needed if one not in passed]
    if missing:
        hint = hints.get(missing[0]) or f"Its parameters are {', '.join(named)}."
        words = ", ".join(map(repr, missing))
        more: dict[str, Any] = {"given": given[0] if len(given) == 1 else given} if given else {}
        return ArgumentError(f"{call}() needs {words}", hint=hint, **more)
    twice = next((key for key in kwargs if key in by_place[: len(given)]), "")
    return ArgumentError(f"{call}() was given {twice!r} twice", given=kwargs.get(twice), hint="Pass it once.")
