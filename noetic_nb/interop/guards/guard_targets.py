"""Warnings about rules that name a tool or argument that none of the guarded tools has."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb.events import WarningRaised, Where
from noetic_nb.interop.guards.guard_frameworks import MCP_CALL
from noetic_nb.interop.guards.guarded_calls import Guard
from noetic_nb.names import function_name
from noetic_nb.redact import redact_text
from noetic_nb.steering.evaluation.rule_targets import unknown_targets
from noetic_nb.steps import Tool
from noetic_nb.steps.function_tools import make_tool

__all__ = ["warn_of_unknown_targets"]


def warn_of_unknown_targets(guard: Guard, tools: Iterable[Any]) -> None:
    """Warn of rules about a tool or an argument that none of these tools has, in Python and in the run.

    Tools that were guarded before with the same rule book are known; those of an MCP session are not.
    """
    if MCP_CALL in guard.names:
        return
    schemas = dict(map(_described, tools))
    known = {name: schemas.get(name) for name in guard.names}
    guard.book.known_tools = {**guard.book.known_tools, **known}
    for target in unknown_targets(guard.book, guard.book.known_tools):
        warnings.warn(target, stacklevel=4)
        if guard.sink is not None:
            # Outside of any session: nothing has been called yet.
            text = redact_text(str(target))
            guard.sink.emit(
                WarningRaised(Where("", "", 0), guard.clock.now_ms(), target.warning_code, text, "steering")
            )


def _described(tool: Any) -> tuple[str, Mapping[str, Any] | None]:
    """Return the name of a tool and the JSON Schema of its arguments, None where it does not say."""
    while isinstance(tool, functools.partial):
        tool = tool.func
    if isinstance(tool, Tool):
        return tool.name, tool.spec.parameters
    name = getattr(tool, "name", None)
    if not isinstance(name, str):  # a plain function
        return function_name(tool), _of_function(tool)
    for holder, field in ((tool, "params_json_schema"), (getattr(tool, "function_schema", None), "json_schema")):
        schema = getattr(holder, field, None)
        if isinstance(schema, Mapping):
            return name, schema
    arguments = None
    with contextlib.suppress(Exception):  # whatever another package raises: the tool is guarded all the same
        arguments = getattr(tool, "args", None)
    return name, {"properties": arguments} if isinstance(arguments, Mapping) else None


def _of_function(function: Any) -> Mapping[str, Any] | None:
    try:
        return make_tool(function, name="tool").spec.parameters
    except Exception:  # annotations without a JSON form
        pass
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return {"properties": {each.name: {} for each in parameters}}
