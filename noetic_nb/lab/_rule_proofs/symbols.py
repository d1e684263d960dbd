"""The arguments of a call as solver terms: all values that their schema allows, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import z3

from noetic_nb._core.names import skeleton
from noetic_nb.items._origins import trusted_source
from noetic_nb.items._value_search import hidden_character

Kind: TypeAlias = Literal["null", "bool", "int", "double", "text", "list", "map", "other", "error"]
"""``other`` is a list or object too deep in data without a schema to be modelled."""

# The number of list members that are modelled; nothing is assumed about further ones.
MEMBERS: Final = 3
# The modelled depth of data without a schema.
DEEPEST: Final = 3
# The last character that the solver supports.
MAX_CHARACTER: Final = 0x2FFFF
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

TRUE: Final = z3.BoolVal(True)
FALSE: Final = z3.BoolVal(False)


class Outside(Exception):
    """A rule has a part that cannot be translated, such as ``a regular expression``."""


def all_of(*guards: Any) -> Any:
    if any(z3.is_false(guard) for guard in guards):
        return FALSE
    left = [guard for guard in guards if not z3.is_true(guard)]
    return z3.And(*left) if len(left) > 1 else left[0] if left else TRUE


def any_of(*guards: Any) -> Any:
    if any(z3.is_true(guard) for guard in guards):
        return TRUE
    left = [guard for guard in guards if not z3.is_false(guard)]
    return z3.Or(*left) if len(left) > 1 else left[0] if left else FALSE


def negated(guard: Any) -> Any:
    return FALSE if z3.is_true(guard) else TRUE if z3.is_false(guard) else z3.Not(guard)


class Option(NamedTuple):
    """One kind of value, and the condition under which the value has it."""

    guard: Any
    kind: Kind
    payload: Any = None


Value: TypeAlias = tuple[Option, ...]
"""Exactly one of the options holds."""

ERROR: Final[Value] = (Option(TRUE, "error"),)


def merged(options: Iterable[Option]) -> Value:
    """Return the options that can hold at all."""
    return tuple([option for option in options if not z3.is_false(option.guard)])


@dataclass(slots=True)
class ListValue:
    """A list: its length, its first members, and a name for the rest."""

    length: Any
    items: tuple[Value, ...]
    rest: str | None = None
    """None if `items` are all its members."""

    def has(self, at: int) -> Any:
        """Return when there is a member at an index."""
        return z3.simplify(self.length > at)

    @property
    def has_rest(self) -> Any:
        """When there are further members that are not modelled."""
        return FALSE if self.rest is None else self.has(len(self.items))


@dataclass(slots=True)
class MapValue:
    """An object whose properties are made on access."""

    world: World
    name: str
    schema: Mapping[str, Any]
    depth: int = 0
    made: dict[str, tuple[Any, Value]] = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.schema.get("properties") or {}
        return found

    @property
    def is_open(self) -> bool:
        """Whether it may have properties that its schema does not name."""
        return self.schema.get("additionalProperties", "properties" not in self.schema) is not False

    @property
    def has_rest(self) -> Any:
        """When there are properties that its schema does not name."""
        return self.world.free(f"{self.name} has more") if self.is_open else FALSE

    def get(self, key: str) -> tuple[Any, Value]:
        """Return when a property is present, and its value."""
        found = self.made.get(key)
        if found is None:
            if key not in self.properties and not self.is_open:
                return FALSE, ERROR
            others = self.schema.get("additionalProperties")
            schema = self.properties.get(key, others if isinstance(others, Mapping) else {})
            name = f"{self.name}.{key}"
            is_required = key in (self.schema.get("required") or ())
            is_there = TRUE if is_required else self.world.free(f"{name} is there")
            value = self.world.value(schema, name, self.depth + (key not in self.properties))
            found = self.made[key] = is_there, value
        return found


AUTHORS: Final = ("user", "system", "layer", "tool", "model", "a layer", "a tool")
"""Kinds of authors, the most trusted first; the last two are unnamed."""


class Author(NamedTuple):
    """The first author of a value: a number for its kind, and a name, used only for layers and tools."""

    kind: Any
    name: Any

    def is_a(self, kind: str) -> Any:
        return self.kind == AUTHORS.index(kind)

    def texts(self) -> Iterator[tuple[str, Any, Any]]:
        for kind in AUTHORS:
            plain = kind.removeprefix("a ")
            named = kind in ("layer", "tool")
            yield plain, self.is_a(kind), z3.Concat(text(f"{plain}:"), self.name) if named else text(plain)


_WORDS: Final = z3.Star(z3.Union(z3.Range("a", "z"), z3.Range("A", "Z"), z3.Range("0", "9")))
_PRINTED: Final = z3.Star(z3.Range(" ", "~"))


class World:
    """The values of one call and all known facts. Each value has one author: its origin is a function of the value."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self.facts: list[Any] = []
        """True of every call."""
        self.plain: list[list[Any]] = [[], []]
        self.origins: list[tuple[Any, Any]] = []
        """Values whose origins were requested, and these origins."""
        self.vouched: list[tuple[str, Any, Any]] = []
        """Facts about trusted tools: the tool or its field, the origin of a value, and whether it vouches for the value."""
        self.names_of_authors = {"notes", "search"}
        """Readable names of tools and layers."""
        self._named: list[Author] = []
        self.made: dict[str, Any] = {}
        """The number of earlier calls of each tool, by its name."""
        self.succeeded: dict[str, Any] = {}
        """Whether one of these succeeded."""
        self.names: dict[str, str] = {}
        """The names of these tools as rules write them."""
        self._images: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
        self.calls = z3.Int("calls")
        self.facts.append(self.calls >= 0)

    def levels(self) -> tuple[list[Any], ...]:
        """Return conditions for readable calls, from the strictest to none."""
        names = [text(name) for name in sorted(self.names_of_authors)]
        known = [z3.Or(*[author.name == name for name in names]) for author in self._named]
        return [*known, *self.plain[0], *self.plain[1]], self.plain[1], []

    def free(self, name: str) -> Any:
        """Return an unconstrained condition."""
        return z3.Bool(name)

    def _image(self, function: str, sort: Any, term: Any) -> tuple[Any, bool]:
        """Return the value of an uninterpreted function (equal values give equal results), and whether it is new."""
        known = self._images.setdefault((function, str(term.sort())), [])
        for other, image in known:
            if other.eq(term):
                return image, False
        image = z3.Const(f"{function} of {term} {len(known)}", sort)
        self.facts += [z3.Implies(other == term, its == image) for other, its in known]
        known.append((term, image))
        return image, True

    def origin(self, term: Any) -> Author:
        kind, is_new = self._image("author", z3.IntSort(), term)
        found = Author(kind, self._image("name of the author", z3.StringSort(), term)[0])
        if is_new:
            self.origins.append((term, found))
            self._note(found)
        if z3.is_string(term):
            self.facts.append(z3.Implies(term == text(""), found.is_a("user")))
        return found

    def author_of_rest(self, name: str) -> Author:
        """Return the author of the least trusted value that is not modelled."""
        found = Author(z3.Int(f"author of {name}"), z3.String(f"name of the author of {name}"))
        self._note(found)
        return found

    def _note(self, author: Author) -> None:
        self.facts += [author.kind >= 0, author.kind < len(AUTHORS), z3.Length(author.name) > 0]
        self._named.append(author)

    def vouches(self, entry: str, term: Any) -> Any:
        """Return when a tool, or a field of its results, vouches for a value; possible only if the tool wrote it."""
        author = self.origin(term)
        found, is_new = self._image(f"{entry} vouches", z3.BoolSort(), term)
        if is_new:
            wanted = entry.removeprefix("tool:")
            whole = trusted_source(wanted).name
            names = {name for name in (whole, whole.rpartition(".")[0]) if name}
            is_named = any_of(*[_is_named(author.name, name) for name in sorted(names)])
            self.facts.append(z3.Implies(found, z3.And(author.is_a("tool"), is_named)))
            self.vouched.append((wanted, author, found))
            self.names_of_authors |= names
        return found

    def is_hidden(self, term: Any) -> Any:
        """Return when a text contains an invisible character."""
        if z3.is_string_value(term):
            return z3.BoolVal(hidden_character(plain_text(term)) is not None)
        found, is_new = self._image("hidden", z3.BoolSort(), term)
        if is_new:
            for level in self.plain:
                level.append(z3.Not(found))
        return found

    def size(self, term: Any) -> Any:
        """Return the length of a text in bytes, as conditions measure it."""
        if z3.is_string_value(term):
            return z3.IntVal(len(plain_text(term).encode()))
        found, is_new = self._image("bytes", z3.IntSort(), term)
        if is_new:
            length = z3.Length(term)
            self.facts += [found >= length, found <= 4 * length]
            for level in self.plain:
                level.append(found == length)
        return found

    def past(self, tool: str) -> tuple[Any, Any]:
        """Return the number of earlier calls of a tool, and whether one of them succeeded."""
        # Rules compare names by skeleton: names that look the same are the same.
        name = skeleton(tool)
        if name not in self.made:
            self.names[name] = tool
            made, ended = z3.Int(f"calls of {name}"), z3.Bool(f"{name} succeeded")
            self.made[name], self.succeeded[name] = made, ended
            self.facts += [made >= 0, z3.Implies(ended, made > 0), self.calls >= z3.Sum(*self.made.values())]
            self.plain[0].append(made <= 5)
        return self.made[name], self.succeeded[name]

    def value(self, schema: Any, name: str, depth: int = 0) -> Value:
        """Return all values that a schema allows, under a name of their own."""
        shapes = list(self._shapes(schema, depth))
        which = z3.Int(f"{name} is")
        if len(shapes) > 1:
            self.facts += [which >= 0, which < len(shapes)]
        found = []
        for number, (kind, shape, deep) in enumerate(shapes):
            guard = TRUE if len(shapes) == 1 else which == number
            found.append(self._option(kind, shape, f"{name} ({number})", guard, deep))
        return tuple(found)

    def _shapes(self, schema: Any, depth: int) -> Iterator[tuple[str, Mapping[str, Any], int]]:
        """Yield the types that a schema allows, each with its subschema and its depth."""
        schema = schema if isinstance(schema, Mapping) else {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            # Definitions may be recursive.
            named = self._definitions.get(reference.rpartition("/")[2])
            yield from [("other", {}, 0)] if depth > DEEPEST else self._shapes(named, depth + 1)
            return
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            for choice in choices:
                yield from self._shapes(choice, depth)
            return
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            for value in values:
                kind = "other" if isinstance(value, Mapping | list | tuple) else "constant"
                yield kind, {"value": value}, depth
            return
        types = schema.get("type") or ("object" if "properties" in schema else _TYPES)
        for kind in (types,) if isinstance(types, str) else types:
            if kind in ("number", "integer"):
                yield "integer", schema, depth
            if kind == "number":
                yield "double", schema, depth
            elif kind != "integer":
                yield kind, schema, depth

    def _option(self, kind: str, schema: Mapping[str, Any], name: str, guard: Any, depth: int) -> Option:
        def limit(fact: Any) -> None:
            self.facts.append(z3.Implies(guard, fact))

        match kind:
            case "constant":
                return literal(schema["value"])[0]._replace(guard=guard)
            case "null":
                return Option(guard, "null")
            case "boolean":
                return Option(guard, "bool", z3.Bool(name))
            case "integer" | "double":
                number = z3.Int(name) if kind == "integer" else z3.Real(name)
                for key, holds in _LIMITS.items():
                    if isinstance(given := schema.get(key), int | float) and not isinstance(given, bool):
                        limit(holds(number, _real(given)))
                if kind == "integer":
                    self.plain[1].append(z3.And(number > -(2**53), number < 2**53))
                return Option(guard, "int" if kind == "integer" else "double", number)
            case "string":
                term = z3.String(name)
                for key, holds in {"minLength": _LIMITS["minimum"], "maxLength": _LIMITS["maximum"]}.items():
                    if isinstance(given := schema.get(key), int):
                        limit(holds(z3.Length(term), z3.IntVal(given)))
                self.plain[0] += [z3.InRe(term, _WORDS), z3.Length(term) > 1, z3.Length(term) < 40]
                self.plain[1].append(z3.InRe(term, _PRINTED))
                return Option(guard, "text", term)
        if depth > DEEPEST or kind == "other":
            return Option(guard, "other")
        if kind == "object":
            found = MapValue(self, name, schema, depth)
            for key in schema.get("required") or ():
                found.get(key)
            return Option(guard, "map", found)
        length = z3.Int(f"{name} has")
        self.facts.append(length >= 0)
        for key, holds in {"minItems": _LIMITS["minimum"], "maxItems": _LIMITS["maximum"]}.items():
            if isinstance(given := schema.get(key), int):
                limit(holds(length, z3.IntVal(given)))
        for level in self.plain:
            level.append(length <= MEMBERS)
        items = schema.get("items")
        # Members without a schema are not modelled further: options multiply with every member.
        inner = depth if isinstance(items, Mapping) and items else DEEPEST + 1
        return Option(
            guard,
            "list",
            ListValue(length, tuple([self.value(items, f"{name}[{at}]", inner) for at in range(MEMBERS)]), name),
        )


_LIMITS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "minimum": lambda number, limit: number >= limit,
    "maximum": lambda number, limit: number <= limit,
    "exclusiveMinimum": lambda number, limit: number > limit,
    "exclusiveMaximum": lambda number, limit: number < limit,
}


def _real(number: float) -> Any:
    exact = Fraction(number)
    return z3.RatVal(exact.numerator, exact.denominator) if exact.denominator > 1 else z3.IntVal(exact.numerator)


def _is_named(term: Any, name: str) -> Any:
    """Return when a tool has a name; names of layers' functions are sent with another separator."""
    if not {"_", "/"} & set(name):
        return term == text(name)
    signs = [z3.Union(z3.Re("_"), z3.Re("/")) if sign in "_/" else z3.Re(text(sign)) for sign in name]
    return z3.InRe(term, z3.Concat(*signs) if len(signs) > 1 else signs[0])


def text(value: str) -> Any:
    if any(ord(sign) > MAX_CHARACTER for sign in value):
        raise Outside("a character above U+2FFFF")
    # The solver interprets escapes, so backslashes must be escaped.
    return z3.StringVal(
        "".join([sign if " " <= sign <= "~" and sign != "\\" else f"\\u{{{ord(sign):x}}}" for sign in value])
    )


def plain_text(term: Any) -> str:
    """Return a solver's text as a Python text."""
    parts = term.as_string().split("\\u{")
    found = [parts[0]]
    for part in parts[1:]:
        code, _, rest = part.partition("}")
        found += [chr(int(code, 16)), rest]
    return "".join(found)


def literal(value: Any) -> Value:
    if value is None:
        return (Option(TRUE, "null"),)
    if isinstance(value, bool):
        return (Option(TRUE, "bool", z3.BoolVal(value)),)
    if isinstance(value, int):
        return (Option(TRUE, "int", z3.IntVal(value)),)
    if isinstance(value, float):
        exact = Fraction(value)
        return (Option(TRUE, "double", z3.RatVal(exact.numerator, exact.denominator)),)
    if isinstance(value, str):
        return (Option(TRUE, "text", text(value)),)
    if isinstance(value, list | tuple):
        return (Option(TRUE, "list", ListValue(z3.IntVal(len(value)), tuple(map(literal, value)))),)
    raise Outside(f"a value of the type {type(value).__name__}")
