"""Steps to JSON and back. Code is never stored: a callable is a reference, resolved against an explicit `Registry`.

``{"$ref": "fn:name", "args": {...}}`` is a function with some arguments set; likewise for tools, layers and schemas.
The library's own layers are data, ``{"kind": "working_memory", "options": {"scope": "resource"}}``: the kind is the
function that creates one, the options are its arguments.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items import freeze, thaw
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._layer_functions import MAKES_LAYERS, BuiltIn
from noetic_nb.steps._json.registry import Registry
from noetic_nb.steps._output_codec import CodecOutput
from noetic_nb.steps._records import STEP_ADAPTER, Step
from noetic_nb.steps._schema import OutputSchema, as_schema
from noetic_nb.steps._tools import Tool

Convert = Callable[[Any, str], Any]
"""Converts the value at a place of a configuration to JSON, or back."""

_KEYS: Final = frozenset({"kind", "options", "placement"})


def dump_built_in(made: BuiltIn, where: str, dump: Convert) -> dict[str, Any]:
    """Return a built-in layer as JSON data; `dump` converts functions, schemas and plain values."""
    options = {
        name: _dumped_option(name, value, f"{where}.options.{name}", dump) for name, value in made.options.items()
    }
    placement = {} if made.placement is None else {"placement": made.placement}
    return {"kind": made.kind, **({"options": options} if options else {}), **placement}


def _dumped_option(name: str, value: Any, where: str, dump: Convert) -> Any:
    if isinstance(value, type):
        return dump(as_schema(value), where)
    if name in ("rulebook", "rules"):
        return [_rule(rule, f"{where}[{place}]", dump) for place, rule in enumerate(value)]
    if name == "regulator" and not callable(value):
        return json.loads(value.export_json("everything"))
    if name == "embedder" and not callable(value) and hasattr(value, "dimensions"):
        return {"dimensions": value.dimensions}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return dump(value, where)


def _rule(given: Any, where: str, dump: Convert) -> Any:
    from noetic_nb.steering._rules.rule import as_rule  # most configurations have no rules

    rule = as_rule(given)
    written = thaw(freeze(rule.model_dump(exclude_defaults=True, exclude={"predicate", "source"})))
    if rule.predicate is not None:
        written["predicate"] = dump(rule.predicate, f"{where}.predicate")
    return written


def load_built_in(data: Mapping[str, Any], resolve: Callable[[Any], Any]) -> MemoryLayer:
    """Return the layer described by JSON data; `resolve` replaces references by the named objects."""
    kind, options = data["kind"], data.get("options", {})
    make = _maker(kind)
    if not isinstance(options, Mapping) or data.keys() - _KEYS:
        what = f"A layer has a kind, options and a placement, and nothing else: {kind!r}."
        hint = "For example: {'kind': 'working_memory', 'options': {'scope': 'resource'}, 'placement': 'suffix'}."
        raise NoeticConfigError("INVALID_LAYER_OPTION", what, given=dict(data), hint=hint)
    named = {to_snake(name): _loaded(to_snake(name), value, resolve) for name, value in options.items()}
    try:
        layer: MemoryLayer = make(**named)
    except TypeError as exc:
        raise NoeticConfigError(
            "INVALID_LAYER_OPTION", f"The layer {kind!r} cannot be made of these options: {exc}", given=dict(options)
        ) from exc
    return layer.placed(data["placement"]) if "placement" in data else layer


def _loaded(name: str, value: Any, resolve: Callable[[Any], Any]) -> Any:
    if name in ("rulebook", "rules") and isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [resolve(rule) for rule in value]
    if not isinstance(value, Mapping):
        return value
    if isinstance(value.get("$ref"), str):
        return resolve(value)
    if name == "schema":
        return as_schema(value)
    if name == "regulator":
        from noetic_nb.regulator import Regulator

        try:
            return Regulator.from_json(json.dumps(value))
        except ValueError as exc:
            raise NoeticConfigError("INVALID_LAYER_OPTION", f"This is not a regulator: {exc}", given=value) from exc
    if name == "embedder":
        from noetic_nb.layers import HashingEmbedder

        return HashingEmbedder(**value)
    return value


def _maker(kind: object) -> Callable[..., MemoryLayer]:
    from noetic_nb import layers
    from noetic_nb.steering import steering

    name = to_snake(kind.replace("-", "_")) if isinstance(kind, str) else ""
    known: dict[str, Any] = {"steering": steering}
    if name in dir(layers):
        known[name] = getattr(layers, name)
    make = known.get(name)
    if not hasattr(make, MAKES_LAYERS):
        known |= {found: getattr(layers, found) for found in dir(layers)}
        names = ", ".join(sorted(found for found, function in known.items() if hasattr(function, MAKES_LAYERS)))
        hint = f"Kinds are {names}; name a layer of your own by {{'$ref': 'layer:id'}}."
        raise NoeticConfigError("UNKNOWN_LAYER_KIND", "No built-in layer is of this kind.", given=kind, hint=hint)
    found: Callable[..., MemoryLayer] = make  # type: ignore[assignment]
    return found


# Tags of unions: written even if only one value is possible.
_TAGS: Final = frozenset({"kind", "strategy"})
# The user's own data, in which nothing is a reference, even if it looks like one.
_FREE: Final = frozenset({"args"})
_SCHEMAS: Final = frozenset({"output", "schema", "payload", "paramsSchema", "params_schema"})
_REFERENCES: Final = ("fn:", "tool:", "layer:", "schema:", "codec:")
# Far above any nesting written by hand, far below Python's recursion limit.
MAX_DEPTH: Final = 150


def dump_step(step: Step, registry: Registry | None = None) -> dict[str, Any]:
    """Return a step as JSON data, in camelCase and without fields that have their default value.

    See docs/behaviour/steps.md, "Steps as JSON".

    Parameters
    ----------
    step : Step
        A step of any kind, with everything inside it.
    registry : Registry, optional
        Supplies the names of functions, tools, layers, schemas and codecs.

    Raises
    ------
    NoeticConfigError
        ``UNREGISTERED_FUNCTION``, ``UNREGISTERED_TOOL``, ``UNREGISTERED_LAYER``, ``UNREGISTERED_CODEC``, with the
        place; ``NOT_JSON`` for arguments that are not JSON data; ``INVALID_STEP`` for a step that contains itself.

    Examples
    --------
    >>> from noetic_nb.steps import loop, step, until
    >>> dump_step(loop("think", step.llm("ask", model="m"), until=until.max_steps(2)))
    {'id': 'think', 'kind': 'loop', 'steps': [{'id': 'ask', 'kind': 'llm', 'model': 'm'}],
     'until': {'kind': 'maxSteps', 'n': 2}}
    """
    given: Any = step
    if not isinstance(given, BaseModel) or not hasattr(given, "id"):
        hint = "Pass a step, such as nn.step.llm('ask', model='m'); a configuration is written by nn.dump_config."
        raise NoeticConfigError("INVALID_STEP", "This is not a step.", given=step, hint=hint)
    try:
        return dump_record(step, registry or Registry(), str(step.id))
    except RecursionError:
        what = f"The step {step.id!r} contains itself, or is nested without end."
        hint = "Let a function return the step that is to run again, and bound it by `ctx.depth`; or use a loop."
        raise NoeticConfigError("INVALID_STEP", what, hint=hint) from None


def dump_record(record: BaseModel, registry: Registry, where: str) -> dict[str, Any]:
    """Return a record of steps or settings as JSON data; see `dump_step`."""
    written: dict[str, Any] = {}
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        # Defaults are omitted, so that files stay short and follow the defaults of the version that reads them.
        if name not in _TAGS and not field.is_required() and value == field.get_default(call_default_factory=True):
            continue
        key = field.alias or to_camel(name)
        place = f"{where}.{key}"
        written[key] = _free(value, place) if name in _FREE else _dumped(value, registry, place)
    return written


def _free(value: Any, where: str) -> Any:
    try:
        return thaw(freeze(value))
    except ItemValidationError as exc:
        what = f"What is at {where} is not JSON data: {exc.what}"
        hint = "Pass text, numbers, lists and mappings."
        raise NoeticConfigError("NOT_JSON", what, given=value, hint=hint, where=where) from exc


def _dumped(value: Any, registry: Registry, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        # JSON has no number for it; pydantic reads these words.
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, OutputSchema):
        return registry.schema_reference(value)
    if isinstance(value, CodecOutput):
        return registry.codec_reference(value, where)
    if isinstance(value, BaseModel):
        return dump_record(value, registry, where)
    if isinstance(value, MemoryLayer) and value.made_by is not None and not registry.has_layer(value):
        from noetic_nb.steps._json.step_json import dump_built_in

        return dump_built_in(value.made_by, where, lambda option, place: _dumped(option, registry, place))
    if isinstance(value, Tool | MemoryLayer) or callable(value):
        return registry.reference(value, where)
    if isinstance(value, list | tuple):
        return [_dumped(inner, registry, f"{where}[{index}]") for index, inner in enumerate(value)]
    if isinstance(value, FrozenDict):  # schemas by category, or data, which is unchanged
        return {key: _dumped(inner, registry, f"{where}.{key}") for key, inner in value.items()}
    return _free(value, where)


def load_step(data: Mapping[str, Any] | str, registry: Registry | None = None) -> Step:
    """Return the step in JSON data, written by `dump_step` or by hand; keys in camelCase or snake_case.

    Parameters
    ----------
    data : mapping or str
        JSON data or its text. None of it is executed.
    registry : Registry, optional
        The objects that its references name.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STEP`` and the errors of the builders; ``UNKNOWN_FUNCTION_REFERENCE`` and similar, with the registered names.

    Examples
    --------
    >>> load_step({"kind": "llm", "id": "ask", "model": "m"}).model
    'm'
    """
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as exc:
            hint = "Pass the result of dump_step, or its JSON text."
            raise NoeticConfigError("INVALID_STEP", f"This is no JSON: {exc}", given=data, hint=hint) from exc
    if not isinstance(data, Mapping):
        raise NoeticConfigError(
            "INVALID_STEP", "A step must be a mapping with a `kind`.", given=data, hint="Pass the result of dump_step."
        )
    try:
        step: Step = STEP_ADAPTER.validate_python(resolved(data, registry or Registry()))
    except ValidationError as exc:
        first = exc.errors()[0]
        what = f"{'.'.join(map(str, first['loc'])) or 'step'}: {first['msg']}"
        hint = "Kinds are run, llm, tool, branch, fork, spawn and loop."
        raise NoeticConfigError("INVALID_STEP", what, given=first.get("input"), hint=hint) from exc
    return step


def resolved(value: Any, registry: Registry, *, depth: int = 0) -> Any:
    """Return data, at most 150 deep, with every reference replaced by the named object."""
    if depth > MAX_DEPTH:
        raise NoeticConfigError(
            "INVALID_STEP", f"This is nested more than {MAX_DEPTH} deep.", hint="Is it cyclic? Use a loop step instead."
        )
    if isinstance(value, Mapping):
        ref = value.get("$ref")
        if isinstance(ref, str) and ref.startswith(_REFERENCES):
            # Any other key would be silently dropped.
            unknown = set(value) - {"$ref", "args"}
            if unknown:
                what = "A reference has `$ref` and `args` only."
                raise NoeticConfigError("INVALID_REFERENCE", what, given=dict(value), hint="Remove the rest.")
            return registry.resolve(ref, value.get("args"))
        return {key: _field(key, inner, registry, depth) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(inner, registry, depth=depth + 1) for inner in value]
    return value


def _layer(value: Any, registry: Registry, depth: int) -> Any:
    if isinstance(value, Mapping) and "kind" in value:
        from noetic_nb.steps._json.step_json import load_built_in

        return load_built_in(value, lambda option: resolved(option, registry, depth=depth + 1))
    return resolved(value, registry, depth=depth + 1)


def _field(key: str, value: Any, registry: Registry, depth: int) -> Any:
    if key in _FREE:
        return value
    if key == "memory" and isinstance(value, list | tuple):
        return [_layer(inner, registry, depth) for inner in value]
    if key in _SCHEMAS and isinstance(value, Mapping) and not str(value.get("$ref", "")).startswith(_REFERENCES):
        return value  # a JSON Schema, whose own `$ref` has another meaning
    if key == "params" and isinstance(value, Mapping):
        # `ModelParams` belongs to another package and has Python names only.
        return {to_snake(name): inner for name, inner in value.items()}
    return resolved(value, registry, depth=depth + 1)
