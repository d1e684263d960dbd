"""What a structured output has to look like: a Python type, or a JSON Schema that came as data.

A schema given as data is checked with the keywords below and no others: one that is not understood is refused when the
step is made, because a rule that is skipped silently is worse than none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from noetic_nb.errors import NoeticConfigError, NoeticError

__all__ = ["OutputSchema", "as_schema"]

_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated", "format"}
)
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda v: isinstance(v, Mapping),
    "array": lambda v: isinstance(v, list | tuple),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
}
_LIMITS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minimum": ("number", lambda v, n: v >= n),
    "maximum": ("number", lambda v, n: v <= n),
    "exclusiveMinimum": ("number", lambda v, n: v > n),
    "exclusiveMaximum": ("number", lambda v, n: v < n),
    "multipleOf": ("number", lambda v, n: math.isclose(v / n, round(v / n))),
    "minLength": ("string", lambda v, n: len(v) >= n),
    "maxLength": ("string", lambda v, n: len(v) <= n),
    "pattern": ("string", lambda v, n: re.search(n, v) is not None),
    "minItems": ("array", lambda v, n: len(v) >= n),
    "maxItems": ("array", lambda v, n: len(v) <= n),
    "minProperties": ("object", lambda v, n: len(v) >= n),
    "maxProperties": ("object", lambda v, n: len(v) <= n),
}
_NESTED: Final = frozenset({"properties", "$defs", "definitions"})
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OTHERS: Final = frozenset(
    {
        "type",
        "enum",
        "const",
        "required",
        "items",
        "additionalProperties",
        "$ref",
        "not",
        "discriminator",
        "uniqueItems",
    }
)
_DATA: Final = (int, float, str, bool, list, dict, Any, None, NoneType)
_COMPOSED: Final = (list, dict, Union, UnionType)
# Deeper than any schema a person writes: one that refers to itself for ever.
_MAX_DEPTH: Final = 100


class OutputSchema:
    """Checks values and describes itself as JSON Schema.

    Examples
    --------
    >>> OutputSchema(dict[str, int]).parse('{"n": 1}', step_id="count")
    {'n': 1}
    >>> OutputSchema({"type": "integer", "minimum": 1}).parse("0", step_id="count")
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticError: The output of step 'count' does not fit its schema: value: minimum 1...
    """

    __slots__ = ("_adapter", "given", "json_schema")

    def __init__(self, given: Any) -> None:
        self.given = given
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(given, Mapping):
            self.json_schema: Mapping[str, Any] = dict(given)
            _check_keywords(self.json_schema, "")
            return
        try:
            self._adapter = given if isinstance(given, TypeAdapter) else TypeAdapter(given)
            self.json_schema = self._adapter.json_schema()
        except Exception as exc:  # pydantic raises several unrelated kinds here
            raise NoeticConfigError(
                "INVALID_SCHEMA",
                f"This is no schema: {exc}",
                given=given,
                hint="Pass a type, a pydantic model, or a JSON Schema as a mapping.",
            ) from exc

    def check(self, value: Any, *, strict: bool = False) -> Any:
        """Return a value that fits, converted where the schema is a Python type and `strict` is not set.

        Raises
        ------
        ValueError
            Saying where it does not fit.
        """
        if self._adapter is not None:
            try:
                return self._adapter.validate_python(value, strict=strict)
            except ValidationError as exc:
                first = exc.errors()[0]
                raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'value'}: {first['msg']}") from exc
        problem = _problem(value, self.json_schema, self.json_schema, "", 0)
        if problem:
            raise ValueError(problem)
        return value

    def parse(self, text: str, *, step_id: str) -> Any:
        """Read JSON text and check it.

        Raises
        ------
        NoeticError
            ``llm_parse_error`` with ``raw``, ``schema`` and ``validation_error``.
        """
        try:
            return self.check(json.loads(text))
        except (ValueError, RecursionError) as exc:
            said = f"it is not JSON: {exc}" if isinstance(exc, json.JSONDecodeError) else str(exc)
            raise self.refusal(text, said, step_id) from exc

    def refusal(self, raw: str, problem: str, step_id: str) -> NoeticError:
        """Return the error for an output that does not fit."""
        return NoeticError(
            "llm_parse_error",
            f"The output of step {step_id!r} does not fit its schema: {problem}",
            given=raw,
            hint="Tell the model the form it must answer in, or loosen the schema.",
            step_id=step_id,
            raw=raw,
            schema=self.json_schema,
            validation_error=problem,
        )

    def __eq__(self, other: object) -> bool:
        """Tell whether two schemas ask for the same JSON and give the same back.

        A type of one's own gives its own objects, a JSON Schema gives the data: these differ, whatever they ask for.
        """
        if not isinstance(other, OutputSchema):
            return NotImplemented
        mine, others = (None if _gives_data(one.given) else one.given for one in (self, other))
        return bool(mine == others) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def _text(self) -> str:
        return json.dumps(self.json_schema, sort_keys=True, default=repr)

    def __repr__(self) -> str:
        return f"OutputSchema({self.given!r})"


def as_schema(value: Any) -> Any:
    """Return a value as an `OutputSchema`, None as it is."""
    return value if value is None or isinstance(value, OutputSchema) else OutputSchema(value)


def _gives_data(given: Any) -> bool:
    """Tell whether the values of a schema are JSON data as they came."""
    if isinstance(given, Mapping) or given in _DATA:
        return True
    origin = get_origin(given)
    return origin is Literal or (origin in _COMPOSED and all(_gives_data(inner) for inner in get_args(given)))


def _check_keywords(schema: Any, where: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise NoeticConfigError(
            "INVALID_SCHEMA",
            f"The JSON Schema has no schema at {where or 'its root'}",
            given=schema,
            hint="A schema is a mapping, true or false.",
        )
    for key, value in schema.items():
        place = f"{where}/{key}"
        if key in _NESTED:
            for name, inner in value.items():
                _check_keywords(inner, f"{place}/{name}")
        elif key in _LISTS:
            for index, inner in enumerate(value):
                _check_keywords(inner, f"{place}/{index}")
        elif key in ("items", "additionalProperties", "not"):
            _check_keywords(value, place)
        elif key not in _LIMITS and key not in _OTHERS and key not in _ANNOTATIONS:
            raise NoeticConfigError(
                "INVALID_SCHEMA",
                f"The JSON Schema uses {key!r}, which is not checked here, at {where or 'its root'}",
                given=key,
                hint=f"Keywords are {', '.join(sorted({*_LIMITS, *_OTHERS, *_NESTED, *_LISTS}))}.",
            )


def _resolved(ref: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in ref.removeprefix("#").strip("/").split("/") if ref != "#" else ():
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _problem(value: Any, schema: Any, root: Mapping[str, Any], where: str, depth: int) -> str:
    """Return why a value does not fit, empty where it does."""
    here = where or "value"
    if isinstance(schema, bool):
        return "" if schema else f"{here}: nothing is allowed"
    if depth > _MAX_DEPTH:
        return f"{here}: nested more than {_MAX_DEPTH} deep"

    def inside(inner_value: Any, inner: Any, place: str) -> str:
        return _problem(inner_value, inner, root, place, depth + 1)

    if "$ref" in schema:
        try:
            target = _resolved(schema["$ref"], root)
        except (KeyError, TypeError):
            return f"{here}: the schema refers to {schema['$ref']!r}, which it does not have"
        problem = inside(value, target, where)
        if problem:
            return problem
    kinds = schema.get("type")
    if kinds is not None:
        allowed = [kinds] if isinstance(kinds, str) else kinds
        if not any(_TYPES.get(kind, lambda v: False)(value) for kind in allowed):
            return f"{here}: not of type {' or '.join(allowed)}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{here}: not {schema['const']!r}"
    if "enum" in schema and not any(_same(value, option) for option in schema["enum"]):
        return f"{here}: not one of {', '.join(map(repr, schema['enum']))}"
    for key, (kind, holds) in _LIMITS.items():
        if key in schema and _TYPES[kind](value) and not holds(value, schema[key]):
            return f"{here}: {key} {schema[key]}"
    for inner in schema.get("allOf", ()):
        problem = inside(value, inner, where)
        if problem:
            return problem
    for key in ("anyOf", "oneOf"):
        if key in schema:
            problems = [inside(value, inner, where) for inner in schema[key]]
            fits = problems.count("")
            if fits == 0 or (key == "oneOf" and fits > 1):
                return (
                    f"{here}: {'no' if fits == 0 else 'more than one'} form fits ({'; '.join(filter(None, problems))})"
                )
    if "not" in schema and not inside(value, schema["not"], where):
        return f"{here}: of a form that is excluded"
    if isinstance(value, Mapping):
        return _object_problem(value, schema, inside, where)
    if isinstance(value, list | tuple):
        first = schema.get("prefixItems", ())
        for index, item in enumerate(value):
            inner = first[index] if index < len(first) else schema.get("items", True)
            problem = inside(item, inner, f"{where}.{index}".lstrip("."))
            if problem:
                return problem
        if schema.get("uniqueItems") and any(_same(a, b) for i, a in enumerate(value) for b in value[:i]):
            return f"{here}: not all different"
    return ""


def _object_problem(value: Mapping[str, Any], schema: Any, inside: Callable[..., str], where: str) -> str:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{f'{where}.{name}'.lstrip('.')}: missing"
    known = schema.get("properties", {})
    for name, item in value.items():
        inner = known.get(name, schema.get("additionalProperties", True))
        place = f"{where}.{name}".lstrip(".")
        if inner is False:
            return f"{place}: not expected"
        problem = inside(item, inner, place)
        if problem:
            return problem
    return ""


def _same(a: Any, b: Any) -> bool:
    """Compare as JSON does: True is not 1."""
    return a == b and isinstance(a, bool) is isinstance(b, bool)
