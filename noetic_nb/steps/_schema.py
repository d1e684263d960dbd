"""The schema of a structured output: a Python type, or a JSON Schema as data.

A schema given as data is JSON Schema, draft 2020-12, and is itself checked when it is created: invalid parts and
references to missing schemas are rejected then, not in the middle of a run. Nothing is ever fetched. `format` is an
annotation, as in the draft, and not checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from noetic_nb._core.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import thaw

# Keywords that contain schemas: one, a list, or one per name.
_ONE: Final = frozenset(
    {"additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"}
) | {"unevaluatedItems", "unevaluatedProperties"}
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
# Those of them that apply to the value itself rather than a part of it: a cycle of them never ends.
_IN_PLACE: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
_REFERENCES: Final = ("$ref", "$dynamicRef")
# All other keywords of the draft, plus `discriminator`, which pydantic writes: rules, then annotations.
_RULES: Final = frozenset(
    {"$dynamicRef", "$ref", "const", "dependentRequired", "enum", "pattern", "required", "type", "uniqueItems"}
    | {"maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties"}
    | {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}
)
_NOTES: Final = frozenset(
    {"$anchor", "$comment", "$dynamicAnchor", "$id", "$schema", "$vocabulary", "contentEncoding", "contentMediaType"}
    | {"default", "deprecated", "description", "discriminator", "examples", "format", "readOnly", "title", "writeOnly"}
)
_KNOWN: Final = _ONE | _LISTS | _NAMED | _RULES | _NOTES
_NUMBER_RULES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    # Written so that NaN fails each of them; jsonschema tests the negation, which NaN passes.
    "minimum": lambda v, n: v >= n,
    "maximum": lambda v, n: v <= n,
    "exclusiveMinimum": lambda v, n: v > n,
    "exclusiveMaximum": lambda v, n: v < n,
    "multipleOf": lambda v, n: _is_multiple(v, n),
}
_DATA: Final = (int, float, str, bool, list, dict, Any, None, NoneType)
_COMPOSED: Final = (list, dict, Union, UnionType)


@with_card
class OutputSchema:
    """Checks values and describes itself as JSON Schema (docs/behaviour/steps.md, "Schemas")."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(given, Mapping):
            self.json_schema: Mapping[str, Any] = dict(given)
            self._validator = _validator(given)
            return
        try:
            self._adapter = given if isinstance(given, TypeAdapter) else TypeAdapter(given)
            self.json_schema = self._adapter.json_schema()
        except Exception as exc:  # pydantic raises several unrelated kinds here
            hint = "Pass a type, a pydantic model, or a JSON Schema as a mapping."
            raise NoeticConfigError("INVALID_SCHEMA", f"This is not a schema: {exc}", given=given, hint=hint) from exc

    def check(self, value: Any, *, strict: bool = False) -> Any:
        """Return a valid value, converted for a Python type unless `strict`; raise `ValueError` for an invalid one."""
        if self._adapter is not None:
            try:
                return self._adapter.validate_python(value, strict=strict)
            except ValidationError as exc:
                first = exc.errors()[0]
                raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'value'}: {first['msg']}") from exc
        problem = _problem(value, self._validator)
        if problem:
            raise ValueError(problem)
        return value

    def parse(self, text: str, *, step_id: str) -> Any:
        """Parse JSON text and check it; the error ``llm_parse_error`` has ``raw``, ``schema`` and ``validation_error``."""
        try:
            return self.check(json.loads(text))
        except (ValueError, RecursionError) as exc:
            problem = f"it is not JSON: {exc}" if isinstance(exc, json.JSONDecodeError) else str(exc)
            raise self.refusal(text, problem, step_id) from exc

    def refusal(self, raw: str, problem: str, step_id: str) -> NoeticError:
        return NoeticError(
            "llm_parse_error",
            f"The output of step {step_id!r} does not fit its schema: {problem}",
            given=raw,
            hint="Tell the model the required form, or loosen the schema.",
            step_id=step_id,
            raw=raw,
            schema=self.json_schema,
            validation_error=problem,
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON Schema that makes the same checks; custom keywords added by a type are left out."""
        return dict(self.json_schema) if self._adapter is None else dict(_without_unknown(self.json_schema))

    def __eq__(self, other: object) -> bool:
        """Tell whether two schemas accept the same JSON and return the same values.

        A custom type returns its own objects, while a JSON Schema returns the data: these two always differ.
        """
        if not isinstance(other, OutputSchema):
            return NotImplemented
        mine, others = (None if _gives_data(one.given) else one.given for one in (self, other))
        return bool(mine == others) and self._text() == other._text()

    def __hash__(self) -> int:
        # Based on the JSON alone, although equality compares more: equal schemas have equal texts; types may be
        # unhashable.
        return hash(self._text())

    def _text(self) -> str:
        return json.dumps(self.json_schema, sort_keys=True, default=repr)

    def __reduce__(self) -> tuple[Any, ...]:
        return OutputSchema, (self.given,)  # the validator is rebuilt, because jsonschema's cannot be pickled

    def _card(self) -> Card:
        return Card("OutputSchema", facts=[("", self.given)])


def as_schema(value: Any) -> Any:
    """Return a value as an `OutputSchema`, None as it is."""
    return value if value is None or isinstance(value, OutputSchema) else OutputSchema(value)


def _gives_data(given: Any) -> bool:
    """Tell whether the schema returns JSON data unchanged."""
    if isinstance(given, Mapping) or given in _DATA:
        return True
    origin = get_origin(given)
    return origin is Literal or (origin in _COMPOSED and all(_gives_data(inner) for inner in get_args(given)))


def _invalid(what: str, where: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_SCHEMA", f"The JSON Schema {what} at {where or 'its root'}", given=given, hint=hint
    )


def _validator(given: Mapping[str, Any]) -> Any:
    """Return a validator for a JSON Schema, after checking the schema itself."""
    from referencing import Registry

    try:
        schema = thaw(given)  # plain lists and dicts: jsonschema does not accept a tuple as an array
        _check_form(schema, "")
        registry: Any = Registry()  # retrieves nothing: references are resolved within the schema itself
        _check_references(schema, registry)
    except RecursionError:
        raise _invalid("is nested without end, or too deep", "", None, "Refer to a part with `$ref`.") from None
    return _validator_class()(schema, registry=registry)


@cache
def _validator_class() -> Any:
    """Return jsonschema's validator class, imported on first use, adapted to our numbers and frozen data."""
    from jsonschema import Draft202012Validator
    from jsonschema import exceptions as found
    from jsonschema.validators import extend

    def number_rule(holds: Callable[[Any, Any], bool]) -> Callable[..., Iterator[Any]]:
        def check(validator: Any, limit: Any, value: Any, schema: Any) -> Iterator[Any]:
            if validator.is_type(value, "number") and not holds(value, limit):
                yield found.ValidationError(f"{value!r} breaks the limit {limit!r}")

        return check

    kinds: dict[str, Callable[[Any, Any], bool]] = {
        "object": lambda _, v: isinstance(v, Mapping),
        "array": lambda _, v: isinstance(v, list | tuple),
        "number": lambda _, v: isinstance(v, int | float) and not isinstance(v, bool),
    }
    return extend(
        Draft202012Validator,
        {name: number_rule(holds) for name, holds in _NUMBER_RULES.items()},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(kinds),
    )


def _is_multiple(value: float, unit: float) -> bool:
    if isinstance(value, int) and isinstance(unit, int):
        return value % unit == 0
    try:
        quotient = value / unit
    except OverflowError:  # an integer too large for a float
        return Fraction(value) % Fraction(unit) == 0
    # Close enough: with floats, 0.3 is not exactly three times 0.1.
    return math.isfinite(quotient) and math.isclose(quotient, round(quotient))


def _check_form(schema: Any, where: str) -> None:
    from jsonschema import exceptions

    try:
        _validator_class().check_schema(schema)
    except exceptions.SchemaError as exc:
        place = "/".join([where, *map(str, exc.absolute_path)])
        raise _invalid(f"is not in order: {exc.message}", place, exc.instance, "See draft 2020-12.") from exc


def _is_known(word: str) -> bool:
    return word in _KNOWN or word.startswith("x-")


def _check_words(schema: Mapping[str, Any], where: str) -> None:
    for key in schema:
        # A rule that is silently skipped, such as a misspelt one or one from an older draft, is worse than none.
        if not _is_known(key):
            hint = f"Words of draft 2020-12 are {', '.join(sorted(_KNOWN))}; notes of your own begin with 'x-'."
            raise _invalid(f"uses {key!r}, which is not checked here,", where, key, hint)


def _without_unknown(schema: Any) -> Any:
    """Return a schema without custom keywords."""
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ONE:
            kept[key] = _without_unknown(value)
        elif key in _LISTS:
            kept[key] = [_without_unknown(inner) for inner in value]
        elif key in _NAMED:
            kept[key] = {name: _without_unknown(inner) for name, inner in value.items()}
        elif _is_known(key):
            kept[key] = value
    return kept


def _inner_schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in schema.items():
        if key in _ONE:
            yield key, key, value
        elif key in _LISTS:
            for index, inner in enumerate(value):
                yield key, f"{key}/{index}", inner
        elif key in _NAMED:
            for name, inner in value.items():
                yield key, f"{key}/{name}", inner


def _check_references(root: Any, registry: Any) -> None:
    """Follow every reference: its target must be within the schema, and no value may be followed in a cycle."""
    from graphlib import CycleError, TopologicalSorter

    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    applied: dict[int, list[int]] = {}
    waiting = [(root, registry.resolver_with_root(DRAFT202012.create_resource(root)), "")]
    targets: list[tuple[Any, Any, str]] = []
    while waiting or targets:
        # Inner schemas first: a target that is not among them was not checked with the whole.
        is_target = not waiting
        schema, resolver, where = (waiting or targets).pop()
        if isinstance(schema, bool) or id(schema) in applied:
            continue
        if is_target:
            _check_form(schema, where)
        _check_words(schema, where)
        same_value = applied[id(schema)] = []
        for key, place, inner in _inner_schemas(schema):
            below = resolver.in_subresource(DRAFT202012.create_resource(inner))
            waiting.append((inner, below, f"{where}/{place}"))
            if key in _IN_PLACE:
                same_value.append(id(inner))
        for reference in [schema[key] for key in _REFERENCES if key in schema]:
            try:
                found = resolver.lookup(reference)
            except (Unresolvable, LookupError, TypeError, ValueError) as exc:
                raise _invalid(
                    f"refers to {reference!r}, which it does not have,", where, reference,
                    "Put the schema under `$defs` and refer to it as '#/$defs/name'; nothing is fetched.",
                ) from exc  # fmt: skip
            targets.append((found.contents, found.resolver, reference))
            same_value.append(id(found.contents))
    try:
        # Only between schemas that apply to the same value: a cycle through `properties` ends where the value does.
        TopologicalSorter(applied).prepare()
    except CycleError as exc:
        raise _invalid("refers to itself without end", "", root, "Refer from inside `properties` or `items`.") from exc


def _problem(value: Any, validator: Any) -> str:
    """Return why a value is invalid, or an empty text."""
    from jsonschema.exceptions import best_match

    try:
        error = best_match(validator.iter_errors(value))
        return "" if error is None else _text(error)
    except RecursionError:
        # A model's value can be nested arbitrarily deep: that is an invalid value, not a crash.
        return "value: nested too deep"


def _text(error: Any) -> str:
    """Return briefly where a value is invalid, and why."""
    place = list(map(str, error.absolute_path))
    rule, limit = error.validator, error.validator_value
    match rule:
        case "required":
            place.append(next(name for name in limit if name not in error.instance))
            why = "missing"
        case "additionalProperties" if limit is False:
            place.append(_unexpected(error.instance, error.schema))
            why = "not expected"
        case None:
            why = "nothing is allowed"
        case "type":
            why = f"not of type {limit if isinstance(limit, str) else ' or '.join(limit)}"
        case "const":
            why = f"not {limit!r}"
        case "enum":
            why = f"not one of {', '.join(map(repr, limit))}"
        case "anyOf" | "oneOf":
            forms = {inner.schema_path[0]: _text(inner) for inner in reversed(error.context)}
            problems = "; ".join(forms[index] for index in sorted(forms))
            why = f"no form fits ({problems})" if error.context else "more than one form fits"
        case "not":
            why = "of a form that is excluded"
        case "uniqueItems":
            why = "not all different"
        case "minLength" | "maxLength" | "pattern" | "minItems" | "maxItems" | "minProperties" | "maxProperties":
            why = f"{rule} {limit}"
        case _:
            why = f"{rule} {limit}" if rule in _NUMBER_RULES else error.message
    return f"{'.'.join(place) or 'value'}: {why}"


def _unexpected(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the first name in a value that a closed schema does not allow."""
    import re

    # jsonschema's own message lists all of them.
    patterns = [re.compile(pattern) for pattern in schema.get("patternProperties", ())]
    known = schema.get("properties", ())
    return next(str(name) for name in value if name not in known and not any(p.search(name) for p in patterns))
