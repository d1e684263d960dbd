"""Runnables of LangChain, and compiled graphs: a runnable that decides first, in whichever way it is called.

All ways to call a runnable lead to `invoke`, `ainvoke`, `stream` or `astream`, or to those of a runnable that it was made a
part of. LangChain is not imported here: who has a runnable has imported it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.interop._guards.guard_arguments import Binder, Bound, bound_by_signature, unfit
from noetic_nb.interop._guards.guarded_calls import Guard
from noetic_nb.interop._guards.guarded_functions import guarded_function, plain_text
from noetic_nb.items._bound_values import copied

__all__ = ["OTHER_WAYS", "runnable"]

_WAYS: Final = ("invoke", "ainvoke", "stream", "astream")
OTHER_WAYS: Final = (
    "stream",
    "astream",
    "batch",
    "abatch",
    "batch_as_completed",
    "abatch_as_completed",
    "transform",
    "atransform",
    "stream_events",
    "astream_events",
    "astream_log",
    "pipe",
    "__or__",
    "__call__",
)
"""Ways of calling that an object may have beside `invoke`: where its class is not known, none leads through that for sure."""
# What a graph is called that has no name.
_NO_NAME: Final = "LangGraph"


def runnable(tool: Any, guard: Guard, guarded: Callable[[Any, Guard], Any]) -> Any:
    """Guard something with an `invoke` or an `ainvoke` that is no tool.

    Parameters
    ----------
    guarded : callable
        Guards what a runnable with settings of its own calls in the end.

    Raises
    ------
    NoeticConfigError
        ``INVALID_TOOL`` where it can be called in other ways that are not known, or has no name while rules name tools.
    """
    core = sys.modules.get("langchain_core.runnables.base")
    if core is None or not isinstance(tool, core.Runnable):
        return _plain(tool, guard)
    inner = getattr(tool, "bound", None)
    if isinstance(inner, core.Runnable):  # with settings of its own: the guard belongs to what is called in the end
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
    """Guard an object that is like a runnable as far as it can be seen."""
    others = [each for each in OTHER_WAYS if callable(getattr(tool, each, None))]
    if others:
        raise NoeticConfigError(
            "INVALID_TOOL",
            f"A {type(tool).__name__} can be called in ways that cannot be guarded: {', '.join(others)}.",
            given=tool,
            hint="Guard a function that calls it, or the tools inside it.",
        )
    twin, name = copy.copy(tool), getattr(tool, "name", None) or type(tool).__name__
    for each in ("invoke", "ainvoke"):
        if callable(way := getattr(tool, each, None)):
            object.__setattr__(twin, each, guarded_function(way, guard, _binder(name), name, reply=plain_text))
    object.__setattr__(twin, "run", guard.run)
    return twin


def _binder(name: str) -> Binder:
    """Return the binder of ``invoke(input, config, **kwargs)``: all but the configuration is judged."""
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
        """A runnable that decides before it calls another one. Batches, pipes and events are those of its base class."""

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
            ways = (original.invoke, original.ainvoke, stream, astream)
            self._ways = {
                way: guarded_function(function, guard, bind, name, reply=plain_text)
                for way, function in zip(_WAYS, ways, strict=True)
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
