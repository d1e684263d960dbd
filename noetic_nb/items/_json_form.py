"""Converts validated values to JSON data: rules judge the values that the tool receives, not the text the model wrote.

Keys are those of the schema shown to the model, so a field appears even if its class omits or renames it when dumped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, to_jsonable_python

from noetic_nb.errors import ItemValidationError
from noetic_nb.items._frozen import MAX_DEPTH, FrozenDict

T = TypeVar("T", SchemaSerializer, SchemaValidator)

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_FIELDS: Final = frozenset({"model-field", "dataclass-field", "typed-dict-field"})
_LEFT_OUT: Final = frozenset({"serialization", "serialization_exclude", "serialization_exclude_if", "metadata"})
# Parts of a schema that are not schemas, but may look like one.
_VALUES: Final = frozenset({"default", "expected", "members"})
# A custom class without a serializer, a class object, a function.
_NO_JSON: Final = frozenset({"is-instance", "is-subclass", "callable"})
# Dumped by the class of the value, which may differ from the schema.
_BY_CLASS: Final = frozenset({"any", "is-instance", "function-plain", "model", "dataclass"})
MAX_DIGITS: Final = 4_000  # Python refuses to convert integers of more than 4 300 digits to or from text


def json_form(value: Any, *, _depth: int = 0) -> Any:
    """Return a value as frozen JSON data.

    A `Decimal` becomes a number (an integer if it is whole), dates and times ISO text, enumerations their value, bytes,
    UUIDs and similar types text, sets and tuples a sequence. Raises `ItemValidationError` if there is no JSON form: an
    object of an unknown class, a number that is not finite, or data nested too deep.
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise ItemValidationError("A number in the arguments is not finite.", given=value, hint="JSON has no NaN.")
    if _depth >= MAX_DEPTH:
        raise ItemValidationError(f"Arguments are nested more than {MAX_DEPTH} deep.", hint="Are they cyclic?")
    if isinstance(value, Mapping):
        found = {_key(key): json_form(inner, _depth=_depth + 1) for key, inner in value.items()}
        if len(found) != len(value):
            raise ItemValidationError("Two keys in arguments have the same text.", given=value)
        return FrozenDict(found)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return tuple([json_form(inner, _depth=_depth + 1) for inner in value])
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, Enum):
        return json_form(value.value, _depth=_depth + 1)
    if isinstance(value, str):  # a subclass, whose __str__ may differ
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return json_form(float.__float__(value), _depth=_depth + 1)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if kind is _Held:
        return value.form(_depth)
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        try:
            form = form_of(kind)
        except Exception as exc:  # a field of a class unknown to pydantic
            if isinstance(value, BaseModel):
                raise _no_form(value) from exc
            named = {field.name: getattr(value, field.name, None) for field in fields(value)}
            return json_form(named, _depth=_depth + 1)
        return form.dump(value, _depth=_depth + 1)
    return json_form(_dumped(value), _depth=_depth + 1)


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    form = json_form(key)
    if isinstance(form, str):
        return form
    text: str = next(iter(to_jsonable_python({form: None})))
    return text


def _number(value: Decimal) -> int | float:
    if not value.is_finite():
        raise ItemValidationError("A number in the arguments is not finite.", given=value, hint="JSON has no NaN.")
    # Integers stay exact at any size; only fractions are rounded to floats.
    if value.adjusted() < MAX_DIGITS and value == value.to_integral_value():
        return int(value)
    found: float = json_form(float(value))
    return found


def _dumped(value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except ValueError:
        pass
    try:
        return TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=True)
    except Exception as exc:
        raise _no_form(value) from exc


def _no_form(value: Any) -> ItemValidationError:
    hint = "Use text, numbers, dates, enumerations, lists, mappings, dataclasses or pydantic models."
    return ItemValidationError(f"A {type(value).__name__} in arguments has no JSON form.", given=value, hint=hint)


class _Held:
    """Protects a value from its class's pydantic serializer; `is_open` if it may have no form without that."""

    __slots__ = ("is_open", "value")

    def __init__(self, value: Any, *, is_open: bool = False) -> None:
        self.value = value
        self.is_open = is_open

    def form(self, depth: int) -> Any:
        """Return the JSON data of the value."""
        try:
            return json_form(self.value, _depth=depth)
        except HidingSerializer:
            raise
        except ItemValidationError:
            if self.is_open:
                return _ANY
            raise


class HidingSerializer(ItemValidationError):
    """A serializer shows data that differs from the value."""


# The form of a value that only a user-defined serializer can convert: it agrees with any data.
_ANY: Final = object()


def _agree(shown: Any, bound: Any) -> bool:
    """Tell whether serialised data agrees with the values."""
    if bound is _ANY:
        return True
    if isinstance(bound, Mapping):
        return (
            isinstance(shown, Mapping)
            and shown.keys() == bound.keys()
            and all(_agree(shown[key], inner) for key, inner in bound.items())
        )
    if isinstance(bound, tuple):
        return isinstance(shown, tuple) and len(shown) == len(bound) and all(map(_agree, shown, bound))
    return type(shown) is type(bound) and bool(shown == bound)  # for a rule, True is not 1


class ModelForm:
    """Validates the arguments of one class, and converts them to JSON data."""

    __slots__ = ("_dump", "_model", "_serialize", "validate")

    def __init__(self, model: type[Any]) -> None:
        self._model = model
        schema = getattr(model, "__pydantic_core_schema__", None)
        if schema is None:  # a standard-library dataclass
            schema = TypeAdapter(model).core_schema
        if type(schema) is not dict:  # built on first access
            schema = dict(schema)
        # Use the class's own validator if possible: instrumentation may have wrapped it.
        own = not _holds(schema, lambda node: node.get("type") == "generator")
        kept = getattr(model, "__pydantic_validator__", None) if own else None
        self.validate = (kept or _built(SchemaValidator, _as_shown(schema))).validate_python
        self._dump = _built(SchemaSerializer, _as_shown(schema, of=model)).to_python
        self._serialize = None
        if _holds(schema, lambda node: _is_custom(node.get("serialization"))):
            self._serialize = _built(SchemaSerializer, _as_shown(schema)).to_python

    def dump(self, bound: Any, *, _depth: int = 0) -> Any:
        """Return validated arguments as frozen JSON data; raises `ItemValidationError` if a serializer changes values."""
        try:
            form = json_form(self._dump(bound, by_alias=True, warnings=False), _depth=_depth)
            if self._serialize is None:
                return form
            shown = json_form(self._serialize(bound, by_alias=True, warnings=False), _depth=_depth)
        except ValueError as exc:  # cyclic data, or a failing user-defined serializer
            raise ItemValidationError(f"Arguments have no JSON form: {exc}") from exc
        if not _agree(shown, form):
            raise HidingSerializer(
                f"A serializer of {self._model.__name__} shows other data than the tool would get.",
                given=shown,
                hint="Rules could not judge the call. Remove the serializer, or convert the value inside the tool.",
            )
        return shown

    def dump_fields(self, values: Mapping[str, Any]) -> Any:
        """Return some fields as frozen JSON data, without running validators or default factories."""
        model: Any = self._model
        bare = model.__new__(model)
        facts = {"__dict__": dict(values), "__pydantic_fields_set__": set(values)}
        for name, fact in {**facts, "__pydantic_extra__": None, "__pydantic_private__": None}.items():
            object.__setattr__(bare, name, fact)
        return self.dump(bare)


def _built(kind: type[T], schema: Any) -> T:
    try:
        # otherwise nested classes would use their own serializers, which may omit fields
        return kind(schema, _use_prebuilt=False)  # type: ignore[call-arg, unused-ignore]
    except TypeError:
        return kind(schema)  # older versions of pydantic never use prebuilt serializers


# Cached per class, because layers recreate the tools of their functions in each execution; bounded, because notebook
# cells recreate tools whenever they run.
form_of: Final = lru_cache(maxsize=512)(ModelForm)


def _as_shown(node: Any, of: type[Any] | None = None) -> Any:
    """Return a core schema that dumps every field under its JSON Schema key, without the serializer of the class `of`."""
    if type(node) in (list, tuple):
        return type(node)([_as_shown(inner, of) for inner in node])
    if type(node) is not dict:
        return node
    kind = node.get("type")
    if not isinstance(kind, str):  # a table of fields or choices, with arbitrary names
        return {name: _as_shown(inner, of) for name, inner in node.items()}
    serializer = node.get("serialization")
    if of is not None:
        is_custom, is_own = _is_custom(serializer), kind in ("model", "dataclass") and node.get("cls") is of
        if not is_own and (is_custom or (serializer is None and kind in _BY_CLASS)):
            held = {"type": "any", "serialization": _hold(is_open=is_custom)}
            return {**held, "ref": node["ref"]} if "ref" in node else held
        if is_custom:
            serializer = None
    shown = {
        key: inner if key in _VALUES else _as_shown(inner, of) for key, inner in node.items() if key not in _LEFT_OUT
    }
    if serializer is not None:
        shown["serialization"] = serializer
    if kind == "generator":
        # Judging an iterator would exhaust it, so the tool gets a list.
        shown["type"] = "list"
    if "computed_fields" in shown:
        shown["computed_fields"] = []
    if kind in _FIELDS:
        alias = node.get("validation_alias")
        if isinstance(alias, list):
            alias = next((path[0] for path in alias if isinstance(path, list) and len(path) == 1), None)
        shown.pop("serialization_alias", None)
        if isinstance(alias, str):
            shown["serialization_alias"] = alias
    return shown


def _hold(*, is_open: bool) -> dict[str, Any]:
    def hold(value: Any) -> Any:
        return value if type(value) in _PLAIN else _Held(value, is_open=is_open)

    return {"type": "function-plain", "function": hold}


def _is_custom(serializer: Any) -> bool:
    """Tell whether a serializer is user-defined; pydantic's own belong to how its types are written."""
    if type(serializer) is not dict:
        return False
    function = serializer.get("function")
    if function is None:
        return serializer.get("type") == "format"
    owner = getattr(function, "__self__", None)
    parts = [function, type(owner), getattr(owner, "encoder", owner)]
    modules = [str(getattr(part, "__module__", "")) for part in parts if part is not None and part is not type(None)]
    return not all(module.partition(".")[0] in ("pydantic", "pydantic_core") for module in modules)


def _holds(node: Any, wanted: Callable[[dict[str, Any]], bool]) -> bool:
    if isinstance(node, list | tuple):
        return any(_holds(inner, wanted) for inner in node)
    if type(node) is not dict:
        return False
    return wanted(node) or any(_holds(inner, wanted) for key, inner in node.items() if key not in _VALUES)


def without_json_form(schema: Any) -> str | None:
    """Return the part of a core schema that has no JSON form, or None."""
    parts: Any = schema
    if type(schema) is dict:
        parts = schema.values()
        if isinstance(schema.get("type"), str):
            # A user-defined serializer provides a form.
            if "serialization" in schema:
                return None
            if schema["type"] in _NO_JSON:
                name = getattr(schema.get("cls"), "__name__", "a function")
                return f"type[{name}]" if schema["type"] == "is-subclass" else name
            parts = [inner for key, inner in schema.items() if key not in _VALUES | _LEFT_OUT]
    elif not isinstance(schema, list | tuple):
        return None
    return next((found for inner in parts if (found := without_json_form(inner)) is not None), None)
