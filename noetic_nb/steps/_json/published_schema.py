"""The published JSON Schema of steps, for editors and for models that write steps.

Generated from the records, so it describes the camelCase form that `load_step` accepts; a test compares it with the file.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._base import Frozen
from noetic_nb.steps._output_codec import CodecOutput
from noetic_nb.steps._records import STEP_ADAPTER
from noetic_nb.steps._schema import OutputSchema
from noetic_nb.steps._tools import Tool

PUBLISHED: Final = Path(__file__).parent.with_name("step.schema.json")
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


# Replaces a reference until the schema is complete: pydantic would follow our `$ref` as one of its own.
_MARK: Final = "x-reference"


_BUILT_IN: Final[JsonSchemaValue] = {
    "type": "object",
    "description": "A memory layer that comes with the library: the function that makes it, and its arguments.",
    "properties": {"kind": {"type": "string"}, "options": {"type": "object"}},
    "required": ["kind"],
    "additionalProperties": False,
}


def _reference(kind: str) -> JsonSchemaValue:
    about = {"fn": "function", "tool": "tool", "layer": "memory layer", "codec": "codec of outputs"}[kind]
    properties: dict[str, Any] = {"$ref": {"type": "string", "pattern": f"^{kind}:.+"}}
    if kind == "fn":
        properties["args"] = {"type": "object"}
    found = {
        "type": "object",
        "description": f"A registered {about}.",
        "properties": properties,
        "required": ["$ref"],
        "additionalProperties": False,
    }
    return found if kind != "layer" else {"anyOf": [found, _BUILT_IN]}


def _with_references(value: Any) -> Any:
    if isinstance(value, dict):
        if _MARK in value:
            return _reference(value[_MARK])
        return {key: _with_references(inner) for key, inner in value.items()}
    return [_with_references(inner) for inner in value] if isinstance(value, list) else value


class _Generator(GenerateJsonSchema):
    """Writes a reference for a value that JSON cannot represent."""

    def callable_schema(self, schema: Any) -> JsonSchemaValue:
        return {_MARK: "fn"}

    def is_instance_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the mark of a reference to a tool or a layer, or the form of a schema: itself, or a reference."""
        marks = {Tool: "tool", MemoryLayer: "layer", CodecOutput: "codec"}
        if schema["cls"] in marks:
            return {_MARK: marks[schema["cls"]]}
        if schema["cls"] is OutputSchema:
            return {"type": "object", "description": "A JSON Schema, or a reference such as schema:name."}
        return super().is_instance_schema(schema)


def _described(cls: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a record; pydantic would read the source of every record at import."""
    found: dict[str, str] = {}
    # Base classes first, so that docstrings of a subclass override them.
    for base in reversed(cls.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        [body] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in itertools.pairwise(body.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def _records(cls: type[BaseModel] = Frozen) -> Iterator[type[BaseModel]]:
    for child in cls.__subclasses__():
        yield child
        yield from _records(child)


def step_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of steps.

    Examples
    --------
    >>> sorted(step_json_schema()["discriminator"]["mapping"])
    ['branch', 'fork', 'llm', 'loop', 'run', 'spawn', 'tool']
    """
    adapter: TypeAdapter[Any] = STEP_ADAPTER
    schema = adapter.json_schema(by_alias=True, schema_generator=_Generator)
    whole: dict[str, Any] = _with_references(schema)
    # Found by inheritance, so that a new record needs no list entry.
    records: list[type[BaseModel]] = [ModelParams, *_records()]
    for record in records:
        shown = whole["$defs"].get(record.__name__, {}).get("properties", {})
        texts = _described(record) if shown else {}
        for field, info in record.model_fields.items():
            place = shown.get(field, shown.get(info.alias or field))
            if place is not None and field in texts:
                # A description of the field's own type, such as that of a reference, stays.
                place.setdefault("description", texts[field])
    params = whole["$defs"]["ModelParams"]  # a record of another floor, which has Python names only
    params["properties"] = {to_camel(name): about for name, about in params["properties"].items()}
    return {"$schema": _DRAFT, "title": "noetic_nb step, version 1", **whole}


def published_schema() -> dict[str, Any]:
    """Return the JSON Schema of steps as published with this version."""
    read: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return read


if __name__ == "__main__":
    PUBLISHED.write_text(json.dumps(step_json_schema(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
