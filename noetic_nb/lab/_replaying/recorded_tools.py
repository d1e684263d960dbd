"""Tools as a run recorded them: the schema shown to the model, and the recorded results; never their code."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Final, Literal, Union
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from noetic_nb.events import OfferedTool, RequestPrepared, SteeringDecided
from noetic_nb.items import thaw
from noetic_nb.models._client import ToolSpec
from noetic_nb.runs import Run
from noetic_nb.steps import Tool
from noetic_nb.steps._tools import spec_tokens, wire_name

__all__ = ["offered_tools"]

_PLAIN: Final[Mapping[str, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_FORMATS: Final[Mapping[str, Any]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
}
_LIMITS: Final[Mapping[str, str]] = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}


def offered_tools(run: Run) -> dict[str, Tool]:
    """Return the tools that models were offered in a run, by name; calling one raises.

    Examples
    --------
    >>> import noetic_nb as nn
    >>> @nn.tool
    ... def find(place: int, exact: bool = False) -> str:
    ...     "Find something."
    ...     return "found"
    >>> config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), tools=[find])
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Nothing to find."]))
    >>> run = nn.record(harness)
    >>> _ = nn.run_sync(harness.execute("Hi"))
    >>> again = offered_tools(run)["find"]
    >>> again.arguments('{"place": "3"}') == find.arguments('{"place": "3"}') == {"place": 3, "exact": False}
    True
    """
    asked = {
        event.tool_name
        for event in run.select(SteeringDecided)
        # A rule that asks is named; a tool that needs approval asks by itself.
        if event.layer_id == "approval" and not event.rule_ids
    }
    found: dict[str, Tool] = {}
    for event in run.select(RequestPrepared):
        for offered in event.tools:
            if offered.name not in found:
                found[offered.name] = _tool(offered, offered.name in asked)
    return found


def _tool(offered: OfferedTool, needs_approval: bool) -> Tool:
    parameters = thaw(offered.parameters)

    def execute(**_: Any) -> Any:
        raise RuntimeError(f"The code of tool {offered.name!r} is not in the run.")

    spec = ToolSpec(offered.name, offered.description, parameters, offered.strict)
    return Tool(
        name=offered.name,
        description=offered.description,
        input=_model(f"{wire_name(offered.name)}_arguments", parameters, parameters.get("$defs", {}), ()),
        output=TypeAdapter(Any),
        execute=execute,
        needs_approval=needs_approval,
        inline=True,
        spec=spec,
        tokens=spec_tokens(spec),
    )


def _model(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], outer: tuple[str, ...]) -> type[BaseModel]:
    """Return a class that accepts the same arguments as the JSON Schema of a pydantic class, with the same error messages."""
    required = schema.get("required", ())
    fields: dict[str, Any] = {}
    for key, inner in schema.get("properties", {}).items():
        kind = _type(inner, defs, outer)
        fields[key] = kind if key in required else (kind, inner.get("default"))
    extra: Literal["forbid", "ignore"] = "forbid" if schema.get("additionalProperties") is False else "ignore"
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra=extra), **fields)
    return model


def _type(schema: Any, defs: Mapping[str, Any], outer: tuple[str, ...]) -> Any:
    match schema:
        case {"$ref": str() as ref}:
            name = ref.rpartition("/")[2]
            # One that contains itself is any value inside itself.
            return Any if name in outer or name not in defs else _type(defs[name], defs, (*outer, name))
        case {"const": value}:
            return Literal[value]
        case {"enum": [*values]}:
            return Literal[tuple(values)]
        case {"anyOf": [*some]}:
            return Union[tuple([_type(one, defs, outer) for one in some])]  # noqa: UP007  # as many as there are
        case {"type": "array", "items": items}:
            inner = _type(items, defs, outer)
            return _limited(set[inner] if schema.get("uniqueItems") else list[inner], schema)  # type: ignore[valid-type]
        case {"type": "object", "properties": dict()}:
            return _model(schema.get("title", "part"), schema, defs, outer)
        case {"type": "object"}:
            values = schema.get("additionalProperties")
            return dict[str, _type(values, defs, outer)] if isinstance(values, dict) else dict[str, Any]  # type: ignore[misc]
        case {"type": "array"}:
            return _limited(list[Any], schema)
        case {"type": "string", "format": str() as form} if form in _FORMATS:
            return _FORMATS[form]
        case {"type": str() as kind} if kind in _PLAIN:
            return _limited(_PLAIN[kind], schema)
    return Any


def _limited(kind: Any, schema: Mapping[str, Any]) -> Any:
    limits = {word: schema[name] for name, word in _LIMITS.items() if name in schema}
    return Annotated[kind, Field(**limits)] if limits else kind
