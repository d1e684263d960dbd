"""Conditions and rules as formulas over the values of one call.

A part that cannot be translated may have any value, so a proof holds for every value of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import z3

from noetic_nb._core.names import skeleton
from noetic_nb.lab._rule_proofs.cel_syntax import Node, UnknownSyntax, parse
from noetic_nb.lab._rule_proofs.symbols import (
    AUTHORS,
    ERROR,
    FALSE,
    MEMBERS,
    TRUE,
    Author,
    ListValue,
    MapValue,
    Option,
    Outside,
    Value,
    World,
    all_of,
    any_of,
    literal,
    merged,
    negated,
    plain_text,
    text,
)
from noetic_nb.steering._predicates.bindings import MAX_HISTORY
from noetic_nb.steering._predicates.sequence_rules import LINKS, misspelt_arguments
from noetic_nb.steering._rules.rule import CelCondition, LLMEval, PythonPredicate, SequenceRule, SteeringRule

_NUMBERS: Final = frozenset({"int", "double"})
_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
_TEXTS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "startsWith": lambda whole, part: z3.PrefixOf(part, whole),
    "endsWith": lambda whole, part: z3.SuffixOf(part, whole),
    "contains": lambda whole, part: z3.Contains(whole, part),
}


class Truth(NamedTuple):
    """When a condition is true, and when it is false; in all other cases it cannot be evaluated."""

    true: Any
    false: Any

    @property
    def fails(self) -> Any:
        """When it cannot be evaluated."""
        return negated(any_of(self.true, self.false))

    @property
    def value(self) -> Value:
        return merged([Option(any_of(self.true, self.false), "bool", self.true), Option(self.fails, "error")])


def _both(ones: Value, others: Value, combine: Callable[[Option, Option], Truth | None]) -> Value:
    """Return the value of an operation on two values; `combine` returns None for kinds that do not support it."""
    true, false = [], []
    for one, other in itertools.product(ones, others):
        guard = all_of(one.guard, other.guard)
        if z3.is_false(guard) or "error" in (one.kind, other.kind):
            continue
        if (found := combine(one, other)) is not None:
            true.append(all_of(guard, found.true))
            false.append(all_of(guard, found.false))
    return Truth(any_of(*true), any_of(*false)).value


def _when(holds: Any) -> Truth:
    return Truth(holds, negated(holds))


def _equal(one: Option, other: Option) -> Truth:
    kinds = {one.kind, other.kind}
    if one.kind == other.kind == "null":
        return Truth(TRUE, FALSE)
    if kinds <= _NUMBERS or (one.kind == other.kind and one.kind in ("bool", "text")):
        return _when(z3.simplify(one.payload == other.payload))
    if kinds <= {"list", "map", "other"} and (one.kind == other.kind or "other" in kinds):
        raise Outside("a comparison of lists or objects")
    return Truth(FALSE, TRUE)


def _ordered(compare: Callable[[Any, Any], Any], one: Option, other: Option) -> Truth | None:
    if {one.kind, other.kind} <= _NUMBERS or one.kind == other.kind == "text":
        return _when(z3.simplify(compare(one.payload, other.payload)))
    if one.kind == other.kind == "bool":
        numbers = [z3.If(side.payload, z3.IntVal(1), z3.IntVal(0)) for side in (one, other)]
        return _when(compare(*numbers))
    return None


class Reader:
    """Reads the conditions of one call; `outside` lists the parts that could not be read."""

    def __init__(self, world: World, tool: str, args: MapValue, schema: Mapping[str, Any]) -> None:
        self.world, self.tool, self.args, self.schema = world, tool, args, schema
        self.outside: list[str] = []

    def condition(self, source: str) -> Truth:
        try:
            return self._truth(parse(source))
        except UnknownSyntax:
            return self._anything("an expression that is not read", source)

    def _anything(self, what: str, part: object) -> Truth:
        """Return the truth of an unread part; equal parts have the same truth, because the call is the same."""
        self.outside.append(what)
        known, holds = self.world.free(f"{part} is known"), self.world.free(f"{part} holds")
        return Truth(all_of(known, holds), all_of(known, negated(holds)))

    def _truth(self, node: Node) -> Truth:
        if node.kind == "operator" and node.value in ("&&", "||"):
            return self._joined(node)
        if node.kind == "operator" and node.value == "!":
            inner = self._truth(node.parts[0])
            return Truth(inner.false, inner.true)
        before = len(self.outside)
        try:
            return self._of(self._value(node))
        except Outside as exc:
            del self.outside[before:]
            return self._anything(str(exc), node)

    def _joined(self, node: Node) -> Truth:
        ends = 1 if node.value == "&&" else 0
        start = len(self.outside)
        left = self._truth(node.parts[0])
        if z3.is_true(left[ends]):
            del self.outside[start:]
            return left
        end = len(self.outside)
        right = self._truth(node.parts[1])
        if z3.is_true(right[ends]):
            # This operand decides the result, even if an earlier one is unreadable or fails.
            del self.outside[start:end]
            return right
        both, one = (all_of, any_of) if ends else (any_of, all_of)
        return Truth(both(left.true, right.true), one(left.false, right.false))

    @staticmethod
    def _of(value: Value) -> Truth:
        true = any_of(*[all_of(guard, payload) for guard, kind, payload in value if kind == "bool"])
        false = any_of(*[all_of(guard, negated(payload)) for guard, kind, payload in value if kind == "bool"])
        return Truth(true, false)

    def _value(self, node: Node) -> Value:
        match node.kind:
            case "literal":
                if isinstance(node.value, str) and node.value.startswith(("tool:", "layer:")):
                    self.world.names_of_authors.add(node.value.partition(":")[2])
                return literal(node.value)
            case "list":
                items = tuple([self._value(part) for part in node.parts])
                fails = any_of(*[option.guard for item in items for option in item if option.kind == "error"])
                made = ListValue(z3.IntVal(len(items)), items)
                return merged([Option(negated(fails), "list", made), Option(fails, "error")])
            case "name":
                return self._name(node.value)
            case "field":
                return self._member(self._value(node.parts[0]), node.value)
            case "index":
                return self._index(*map(self._value, node.parts))
            case "operator":
                return self._operator(node)
            case "macro":
                past = node.parts[0] == Node("name", "history")
                raise Outside("a macro over history" if past else "a macro")
            case "map":
                raise Outside("an object in an expression")
            case "method" | "call":
                return self._call(node)

    def _name(self, name: str) -> Value:
        if name != "tool":
            raise Outside("a look at the history" if name == "history" else f"a look at {name}")
        call = MapValue(self.world, "tool", {"properties": {}})
        call.made = {"name": (TRUE, literal(self.tool)), "args": (TRUE, (Option(TRUE, "map", self.args),))}
        return (Option(TRUE, "map", call),)

    @staticmethod
    def _member(value: Value, key: str) -> Value:
        found: list[Option] = []
        left: list[Any] = []
        for guard, kind, payload in value:
            if kind == "other":
                raise Outside("data without a schema")
            if kind != "map":
                left.append(guard)
                continue
            is_there, inner = payload.get(key)
            left.append(all_of(guard, negated(is_there)))
            found += [option._replace(guard=all_of(guard, is_there, option.guard)) for option in inner]
        fails = any_of(*left, *[option.guard for option in found if option.kind == "error"])
        return merged([*[option for option in found if option.kind != "error"], Option(fails, "error")])

    def _index(self, value: Value, place: Value) -> Value:
        if len(place) != 1 or place[0].kind not in ("text", "int"):
            raise Outside("an index that is not a literal")
        kind, payload = place[0].kind, place[0].payload
        if kind == "text":
            if not z3.is_string_value(payload) or any(option.kind == "list" for option in value):
                raise Outside("an index that is not a literal")
            return self._member(value, plain_text(payload))
        if not z3.is_int_value(payload):
            raise Outside("an index that is not a literal")
        at = payload.as_long()
        found: list[Option] = []
        for guard, option, members in value:
            if option == "other":
                raise Outside("data without a schema")
            if option != "list":
                found.append(Option(guard, "error"))
                continue
            if at >= len(members.items) and members.rest is not None:
                raise Outside(f"a look beyond the first {MEMBERS} members of a list")
            has = members.has(at) if 0 <= at < len(members.items) else FALSE
            inner = members.items[at] if not z3.is_false(has) else ()
            found += [option._replace(guard=all_of(guard, has, option.guard)) for option in inner]
            found.append(Option(all_of(guard, negated(has)), "error"))
        return merged(found)

    def _operator(self, node: Node) -> Value:
        sign = node.value
        if sign in ("&&", "||", "!"):
            return self._truth(node).value
        if sign == "?":
            test = self._truth(node.parts[0])
            found = [Option(test.fails, "error")]
            for holds, part in zip(test, node.parts[1:], strict=True):
                if not z3.is_false(holds):
                    found += [option._replace(guard=all_of(holds, option.guard)) for option in self._value(part)]
            return merged(found)
        if sign in ("+", "-", "*", "/", "%"):
            raise Outside("arithmetic")
        one, other = map(self._value, node.parts)
        if sign == "==":
            return _both(one, other, _equal)
        if sign == "!=":
            equal = self._of(_both(one, other, _equal))
            return Truth(equal.false, equal.true).value
        if sign == "in":
            return _both(one, other, self._is_in)
        return _both(one, other, lambda left, right: _ordered(_COMPARED[sign], left, right))

    def _is_in(self, one: Option, other: Option) -> Truth | None:
        if other.kind == "map":
            if one.kind != "text":
                return Truth(FALSE, TRUE)
            if not z3.is_string_value(one.payload):
                raise Outside("a key that is not a literal")
            return _when(other.payload.get(plain_text(one.payload))[0])
        if other.kind == "other":
            raise Outside("data without a schema")
        if other.kind != "list":
            return None
        members: ListValue = other.payload
        found = []
        for at, item in enumerate(members.items):
            equal = self._of(_both((one._replace(guard=TRUE),), item, _equal))
            found.append(all_of(members.has(at), equal.true))
        if not z3.is_false(members.has_rest):
            # The rest is unknown, except that it consistently contains the value or not.
            name = f"the rest of {members.rest} has {one.kind} {one.payload}"
            found.append(all_of(members.has_rest, self.world.free(name)))
        return _when(any_of(*found))

    def _call(self, node: Node) -> Value:
        name, parts = node.value, node.parts
        if name == "matches":
            raise Outside("a regular expression")
        if node.kind == "method" and name in _TEXTS and len(parts) == 2:
            test = _TEXTS[name]

            def tested(one: Option, other: Option) -> Truth | None:
                are_texts = one.kind == other.kind == "text"
                return _when(z3.simplify(test(one.payload, other.payload))) if are_texts else None

            return _both(self._value(parts[0]), self._value(parts[1]), tested)
        if name == "size" and len(parts) == 1:
            return self._size(parts[0])
        if node.kind == "call" and name == "has" and len(parts) == 1 and parts[0].kind == "field":
            return self._has(parts[0])
        if node.kind == "call" and name == "origin" and len(parts) == 1:
            return self._origin(self._value(parts[0]))
        raise Outside(f"a call of {name}()")

    def _has(self, node: Node) -> Value:
        true, false = [], []
        for guard, kind, payload in self._value(node.parts[0]):
            if kind == "other":
                raise Outside("data without a schema")
            if kind == "map":
                is_there = payload.get(node.value)[0]
                true.append(all_of(guard, is_there))
                false.append(all_of(guard, negated(is_there)))
        return Truth(any_of(*true), any_of(*false)).value

    def _size(self, node: Node) -> Value:
        if node == Node("name", "history"):
            calls = self.world.calls
            return (Option(TRUE, "int", z3.If(calls < MAX_HISTORY, calls, z3.IntVal(MAX_HISTORY))),)
        found = []
        for guard, kind, payload in self._value(node):
            if kind in ("map", "other"):
                raise Outside("the size of an object")
            if kind == "text":
                found.append(Option(guard, "int", self.world.size(payload)))
            else:
                found.append(Option(guard, "int", payload.length) if kind == "list" else Option(guard, "error"))
        return merged(found)

    def _origin(self, value: Value) -> Value:
        found = []
        for guard, kind, payload in value:
            if kind == "error":
                found.append(Option(guard, "error"))
                continue
            leaves = self.leaves((Option(TRUE, kind, payload),))
            found += [Option(all_of(guard, holds), "text", its) for holds, its in self._least_trusted(leaves)]
        return merged(found)

    def _least_trusted(self, leaves: Iterable[tuple[Any, Option]]) -> Iterator[tuple[Any, Any]]:
        """Yield the possible origin texts of the least trusted value; without values, the user's."""
        texts = [
            (AUTHORS.index(kind), all_of(is_there, is_kind), its)
            for is_there, leaf in leaves
            if leaf.kind != "null"
            for kind, is_kind, its in self._author(leaf).texts()
        ]
        left = TRUE
        for _, is_it, its in sorted(texts, key=lambda found: -found[0]):
            yield all_of(left, is_it), its
            left = all_of(left, negated(is_it))
        yield left, text("user")

    def _author(self, leaf: Option) -> Author:
        is_followed = leaf.kind != "other"
        return self.world.origin(leaf.payload) if is_followed else self.world.author_of_rest(leaf.payload)

    def leaves(self, value: Value) -> Iterator[tuple[Any, Option]]:
        """Yield all nested members of a value with their conditions of presence; ``other`` for members beyond the depth."""
        for guard, kind, payload in value:
            if kind == "list":
                for at, item in enumerate(payload.items):
                    for is_there, leaf in self.leaves(item):
                        yield all_of(guard, payload.has(at), is_there), leaf
                if not z3.is_false(payload.has_rest):
                    yield all_of(guard, payload.has_rest), Option(TRUE, "other", payload.rest)
            elif kind == "map":
                for key in dict.fromkeys((*payload.properties, *payload.made)):
                    is_there, inner = payload.get(key)
                    for is_inside, leaf in self.leaves(inner):
                        yield all_of(guard, is_there, is_inside), leaf
                if not z3.is_false(payload.has_rest):
                    yield all_of(guard, payload.has_rest), Option(TRUE, "other", payload.name)
            elif kind != "error":
                yield guard, Option(TRUE, kind, payload)

    def blocked(self, rule: SteeringRule) -> Any:
        """Return when a rule blocks the call, including when it cannot be evaluated."""
        before = len(self.outside)
        found = self._blocked(rule)
        words = {"is Python", "asks a model"}
        self.outside[before:] = [
            f"rule {rule.id} {what if what in words else f'has {what}'}"
            for what in dict.fromkeys(self.outside[before:])
        ]
        return found

    def _blocked(self, rule: SteeringRule) -> Any:
        match rule.decider:
            case None:
                return FALSE
            case SequenceRule() as sequence:
                holds = self._sequence(rule, sequence)
                return FALSE if rule.action == "allow" else holds
            case CelCondition(source):
                truth = self.condition(source)
                if rule.llm_eval is not None and not z3.is_false(truth.true):
                    return any_of(truth.fails, all_of(truth.true, self._anything("asks a model", rule.llm_eval).true))
                return truth.fails if rule.action == "allow" else negated(truth.false)
            case PythonPredicate() | LLMEval() as decider:
                is_python = isinstance(decider, PythonPredicate)
                part = (id(rule.predicate), rule.llm_eval)
                return self._anything("is Python" if is_python else "asks a model", part).true

    @staticmethod
    def passing(broken: Any, blocked: Mapping[str, Any]) -> Any:
        """Return when a call is as described and no rule blocks it."""
        return all_of(broken, negated(any_of(*blocked.values())))

    @staticmethod
    def differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
        """Return when the rules of one book block a call and those of the other do not."""
        return z3.Xor(any_of(*old.values()), any_of(*new.values()))

    def _sequence(self, rule: SteeringRule, sequence: SequenceRule) -> Any:
        if sequence.kind == "only_from_user":
            return self._not_vouched(rule, sequence)
        others = [self.world.past(name) for name in sequence.others]
        match sequence.kind:
            case "at_most":
                own = {skeleton(name): name for name in rule.tools or ()}
                return z3.Sum(*[self.world.past(name)[0] for name in own.values()]) >= (sequence.count or 0)
            case "never_after":
                return any_of(*[made > 0 for made, _ in others])
        return negated(all_of(*[succeeded for _, succeeded in others]))

    def _not_vouched(self, rule: SteeringRule, sequence: SequenceRule) -> Any:
        whole: Value = (Option(TRUE, "map", self.args),)
        misspelt = misspelt_arguments(rule, sequence, self.schema)
        paths: Sequence[str | None] = sequence.args or (None,)
        found = []
        for path in paths:
            is_of_links = path is not None and path.endswith(f".{LINKS}")
            value = () if is_of_links else whole if path is None else _argument(whole, path)
            leaves = list(self.leaves(value))
            if path in misspelt:
                found.append(negated(any_of(*[is_there for is_there, leaf in leaves if leaf.kind != "null"])))
            elif is_of_links:
                found.append(self._anything("links of a text", sequence).true)
            for is_there, leaf in leaves:
                found.append(all_of(is_there, self._is_unknown(leaf, ("user", *sequence.trust))))
        return any_of(*found)

    def _is_unknown(self, leaf: Option, trusted: tuple[str, ...]) -> Any:
        if leaf.kind == "null":
            return FALSE
        author = self._author(leaf)
        is_user = author.is_a("user")
        if leaf.kind == "other":
            others = self.world.free(f"{leaf.payload} is from {trusted}") if len(trusted) > 1 else FALSE
            return any_of(self.world.free(f"{leaf.payload} hides something"), negated(any_of(is_user, others)))
        known = [is_user]
        for entry in trusted[1:]:
            kind, _, name = entry.partition(":")
            if entry in ("user", "system"):
                known.append(author.is_a(entry))
            elif kind == "layer":
                known.append(
                    all_of(author.is_a("layer"), author.name == text(name)) if name else author.is_a("a layer")
                )
            else:
                known.append(self.world.vouches(entry, leaf.payload))
        is_unknown = negated(any_of(*known))
        if leaf.kind != "text":
            return is_unknown
        is_empty = z3.simplify(leaf.payload == text(""))
        return all_of(negated(is_empty), any_of(self.world.is_hidden(leaf.payload), is_unknown))


def _argument(value: Value, path: str) -> Value:
    """Return an argument by its name or path; for a list on the path, that of every member, as the rule does."""
    found: list[Option] = []
    nothing: list[Any] = []
    for guard, kind, payload in value:
        if kind == "map":
            is_whole, whole = payload.get(path)
            name, _, rest = path.partition(".")
            is_part, part = payload.get(name) if rest else (FALSE, ERROR)
            inner = _argument(part, rest) if not z3.is_false(is_part) else ()
            found += [option._replace(guard=all_of(guard, is_whole, option.guard)) for option in whole]
            otherwise = all_of(guard, negated(is_whole))
            found += [option._replace(guard=all_of(otherwise, is_part, option.guard)) for option in inner]
            nothing.append(all_of(otherwise, negated(is_part)))
        elif kind == "list":
            items = tuple([_argument(item, path) for item in payload.items])
            found.append(Option(guard, "list", ListValue(payload.length, items, payload.rest)))
        elif kind == "other":
            found.append(Option(guard, "other", payload))
        else:
            nothing.append(guard)
    return merged([*found, Option(any_of(*nothing), "null")])
