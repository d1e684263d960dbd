"""Validated values as the JSON data they stand for: what rules judge is made from what runs, never from what was written.

Keys are those of the schema that a model was shown, so a field that its class leaves out when it is dumped, or dumps under
another name, is there all the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, to_jsonable_python

from noetic_nb.errors import ItemValidationError
from noetic_nb.items.frozen import MAX_DEPTH, FrozenDict

__all__ = ["ModelForm", "json_form", "without_json_form"]

T = TypeVar("T", SchemaSerializer, SchemaValidator)

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_FIELDS: Final = frozenset({"model-field", "dataclass-field", "typed-dict-field"})
_LEFT_OUT: Final = frozenset({"serialization_exclude", "serialization_exclude_if", "metadata"})
# What a schema holds that is no schema, but may look like one.
_VALUES: Final = frozenset({"default", "expected", "members"})
# A custom class without a serializer, a class itself, a function.
_NO_JSON: Final = frozenset({"is-instance", "is-subclass", "callable"})
# Python refuses to write or read whole numbers of more than 4 300 digits.
MAX_DIGITS: Final = 4_000


def json_form(value: Any, *, _depth: int = 0) -> Any:
    """Return a value as frozen JSON data.

    A `Decimal` is a number (whole where it is whole), dates and times are ISO text, enumerations their value, bytes, UUIDs
    and the like their text, sets and tuples a sequence.

    Raises
    ------
    ItemValidationError
        If it has no JSON form: an object of an unknown class, a number that is not finite, data nested too deep.

    Examples
    --------
    >>> json_form({"sum": Decimal("12.50"), "count": Decimal("7.0"), "of": {3}})
    {'sum': 12.5, 'count': 7, 'of': (3,)}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise ItemValidationError("A number in arguments is not finite.", given=value, hint="JSON has no NaN.")
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
    if isinstance(value, str):  # a subclass, whose own __str__ may say something else
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return json_form(float.__float__(value), _depth=_depth + 1)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
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
        raise ItemValidationError("A number in arguments is not finite.", given=value, hint="JSON has no NaN.")
    # Whole numbers exactly, however large: only a fraction is rounded to what a float can hold.
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
        raise ItemValidationError(
            f"A {type(value).__name__} in arguments has no JSON form.",
            given=value,
            hint="Use text, numbers, dates, enumerations, lists, mappings, dataclasses or pydantic models.",
        ) from exc


class ModelForm:
    """How arguments of one class are validated, and the JSON data that they stand for.

    Examples
    --------
    >>> class Transfer(BaseModel):
    ...     sum: Decimal
    ...     urgent: bool = False
    >>> form = ModelForm(Transfer)
    >>> form.dump(form.validate({"sum": "7.50"}))
    {'sum': 7.5, 'urgent': False}
    """

    __slots__ = ("_dump", "_model", "validate")

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        shown = _as_shown(model.__pydantic_core_schema__)
        # The class's own validator wherever it does: it may be wrapped by what watches validation.
        own = not _holds(model.__pydantic_core_schema__, "generator")
        validator = model.__pydantic_validator__ if own else _built(SchemaValidator, shown)
        self.validate = validator.validate_python
        self._dump = _built(SchemaSerializer, shown).to_python

    def dump(self, bound: BaseModel) -> Any:
        """Return validated arguments as frozen JSON data.

        Raises
        ------
        ItemValidationError
            As `json_form`.
        """
        try:
            data = self._dump(bound, by_alias=True, warnings=False)
        except ValueError as exc:  # cyclic, or a serializer of the user's own that fails
            raise ItemValidationError(f"Arguments have no JSON form: {exc}") from exc
        return json_form(data)

    def dump_fields(self, values: Mapping[str, Any]) -> Any:
        """Return some fields as frozen JSON data; no validator and no default factory is run."""
        bare = self._model.__new__(self._model)
        facts = {"__dict__": dict(values), "__pydantic_fields_set__": set(values)}
        for name, fact in {**facts, "__pydantic_extra__": None, "__pydantic_private__": None}.items():
            object.__setattr__(bare, name, fact)
        return self.dump(bare)


def _built(kind: type[T], schema: Any) -> T:
    try:
        # Else classes inside would be dumped by the serializers they already have, which may leave fields out.
        return kind(schema, _use_prebuilt=False)  # type: ignore[call-arg, unused-ignore]
    except TypeError:
        return kind(schema)  # an older pydantic never uses those


def _as_shown(node: Any) -> Any:
    """Return a core schema in which every field is dumped, under the key that its JSON Schema shows."""
    if type(node) in (list, tuple):
        return type(node)([_as_shown(inner) for inner in node])
    if type(node) is not dict:
        return node
    kind = node.get("type")
    if not isinstance(kind, str):  # a table of fields or choices, whose names are anybody's
        return {name: _as_shown(inner) for name, inner in node.items()}
    shown = {key: inner if key in _VALUES else _as_shown(inner) for key, inner in node.items() if key not in _LEFT_OUT}
    if kind == "generator":
        # An iterator that was judged would be used up, so the tool gets a list.
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


def _holds(node: Any, kind: str) -> bool:
    if isinstance(node, list | tuple):
        return any(_holds(inner, kind) for inner in node)
    if type(node) is not dict:
        return False
    return node.get("type") == kind or any(_holds(inner, kind) for key, inner in node.items() if key not in _VALUES)


def without_json_form(schema: Any) -> str | None:
    """Return what part of a core schema has no JSON form, None where all has.

    Examples
    --------
    >>> without_json_form(TypeAdapter(list[int]).core_schema) is None
    True
    >>> without_json_form(TypeAdapter(type[int]).core_schema)
    'type[int]'
    """
    parts: Any = schema
    if type(schema) is dict:
        parts = schema.values()
        if isinstance(schema.get("type"), str):
            # What brings a serializer of its own has the form that it gives.
            if "serialization" in schema:
                return None
            if schema["type"] in _NO_JSON:
                name = getattr(schema.get("cls"), "__name__", "a function")
                return f"type[{name}]" if schema["type"] == "is-subclass" else name
            parts = [inner for key, inner in schema.items() if key not in _VALUES and key not in _LEFT_OUT]
    elif not isinstance(schema, list | tuple):
        return None
    return next((found for inner in parts if (found := without_json_form(inner)) is not None), None)
