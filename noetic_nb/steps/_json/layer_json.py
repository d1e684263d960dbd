"""Built-in layers as JSON: ``{"kind": "working_memory", "options": {"scope": "resource"}}``, made without a registry.

The kind is the name of the function that makes the layer, the options are its arguments. A function among them is a reference,
as everywhere; rules of steering and a regulator are data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic.alias_generators import to_snake

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import freeze, thaw
from noetic_nb.memory._built_in import MAKES_LAYERS, BuiltIn
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.steps._schema import as_schema

Convert = Callable[[Any, str], Any]
"""Turns what is at a place of a configuration into JSON, or back."""

_KEYS: Final = frozenset({"kind", "options", "placement"})


def dump_built_in(made: BuiltIn, where: str, dump: Convert) -> dict[str, Any]:
    """Return a built-in layer as JSON data; `dump` writes functions, schemas and plain values.

    Raises `NoeticConfigError` as `dump` does, for an option that has no JSON form.
    """
    options = {name: _dumped(name, value, f"{where}.options.{name}", dump) for name, value in made.options.items()}
    placement = {} if made.placement is None else {"placement": made.placement}
    return {"kind": made.kind, **({"options": options} if options else {}), **placement}


def _dumped(name: str, value: Any, where: str, dump: Convert) -> Any:
    if isinstance(value, type):
        return dump(as_schema(value), where)
    if name in ("rulebook", "rules"):
        return [_rule(rule, f"{where}[{place}]", dump) for place, rule in enumerate(value)]
    if name == "regulator":
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
    """Return the layer that JSON data describe; `resolve` replaces references by the named objects.

    Raises `NoeticConfigError` ``UNKNOWN_LAYER_KIND`` or ``INVALID_LAYER_OPTION``, and as the layer's function does.
    """
    kind, options = data["kind"], data.get("options", {})
    make = _maker(kind)
    if not isinstance(options, Mapping) or data.keys() - _KEYS:
        what = f"A layer has a kind, options and a placement, and nothing else: {kind!r}."
        hint = "Such as {'kind': 'working_memory', 'options': {'scope': 'resource'}, 'placement': 'suffix'}."
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
            raise NoeticConfigError("INVALID_LAYER_OPTION", f"This is no regulator: {exc}", given=value) from exc
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
        # Only now, because it loads every layer there is.
        known |= {found: getattr(layers, found) for found in dir(layers)}
        names = ", ".join(sorted(found for found, function in known.items() if hasattr(function, MAKES_LAYERS)))
        hint = f"Kinds are {names}; name a layer of your own by {{'$ref': 'layer:id'}}."
        raise NoeticConfigError("UNKNOWN_LAYER_KIND", "No built-in layer is of this kind.", given=kind, hint=hint)
    found: Callable[..., MemoryLayer] = make  # type: ignore[assignment]
    return found
