"""What rules are about and no tool has: a misspelt tool or argument, with which a rule guards nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

from noetic_nb._core.names import nearest, skeleton
from noetic_nb.steering._evaluation.rule_reading import StaticFacts, read_rule
from noetic_nb.steering._rules.rule import SteeringRule

KnownTools: TypeAlias = Mapping[str, Mapping[str, Any] | None]
"""The JSON Schema of the arguments of each tool; None where it is not known."""

# Of a hundred tools nobody reads the names.
MOST_NAMES: Final = 12


class UnknownTarget(UserWarning):
    """A rule names a tool or an argument that no tool has: it may guard nothing.

    `code` is ``unknown_tool`` or ``unknown_argument``, `name` stands in the rule; `why` and `fix` are the same in sentences.
    """

    warning_code: ClassVar[str] = "unknown_rule_target"

    def __init__(
        self, rule_id: str, code: Literal["unknown_tool", "unknown_argument"], name: str, why: str, fix: str
    ) -> None:
        super().__init__(f"Rule {rule_id!r}: {why} {fix}")
        self.rule_id = rule_id
        self.code = code
        self.name = name
        self.why = why
        self.fix = fix


def unknown_targets(
    rules: Iterable[SteeringRule], tools: KnownTools, *, guesses: bool = False
) -> tuple[UnknownTarget, ...]:
    """Return the names in enabled rules that no tool has, in the order of the rules.

    `guesses` takes every text that is compared with a ``name`` for the name of a tool, and looks at arguments without which a
    function raises.
    """
    found: list[UnknownTarget] = []
    for rule in rules:
        if rule.enabled:
            facts = read_rule(rule)
            found += _unknown_tools(rule, facts, tools, guesses)
            found += _unknown_arguments(rule, facts, tools, guesses)
    return tuple(found)


def _unknown_tools(rule: SteeringRule, facts: StaticFacts, tools: KnownTools, guesses: bool) -> Iterator[UnknownTarget]:
    known = set(map(skeleton, tools))
    named = {*(rule.tools or ()), *facts.tools, *(facts.maybe if guesses else ())}
    # ``contacts.email`` is a field of the results of ``contacts``, or a tool with a dot in its name.
    for entry in facts.trusted:
        name = entry.removeprefix("tool:")
        if skeleton(name) not in known:
            named.add(name.rpartition(".")[0] or name)
    for name in sorted(named):
        if skeleton(name) not in known:
            near = nearest(name, tools)
            fix = f"Did you mean {near!r}?" if near else _there_are(tools, "no tools")
            yield UnknownTarget(rule.id, "unknown_tool", name, f"There is no tool {name!r}.", fix)


def _unknown_arguments(
    rule: SteeringRule, facts: StaticFacts, tools: KnownTools, guesses: bool
) -> Iterator[UnknownTarget]:
    known = {skeleton(name): name for name in tools}
    named = [*(rule.tools or ()), *facts.about]
    about = [known[skeleton(name)] for name in named if skeleton(name) in known]
    if not tools or "before_tool_call" not in rule.applies_to:
        return
    schemas = [tools[name] for name in about or tools]
    for path in sorted(facts.arguments | facts.demanded if guesses else facts.arguments):
        if any(schema is None or has_argument(schema, path) for schema in schemas):
            continue
        possible = sorted({name for schema in schemas for name in (schema or {}).get("properties") or ()})
        near = nearest(path, possible)
        fix = f"Did you mean {near!r}?" if near else _there_are(possible, "none")
        whose = ", ".join(sorted(set(about))) or "any tool"
        yield UnknownTarget(rule.id, "unknown_argument", path, f"{path!r} is no argument of {whose}.", fix)


def _there_are(names: Iterable[str], nothing: str) -> str:
    first, *rest = sorted(names) or [nothing]
    listed = ", ".join([first, *rest[: MOST_NAMES - 1]])
    return f"There are {listed}{f' and {len(rest) + 1 - MOST_NAMES} more' if len(rest) >= MOST_NAMES else ''}."


def has_argument(schema: Mapping[str, Any], path: str) -> bool:
    """Tell whether arguments of a schema may have a value at a path, as rules read it; True where the schema does not say."""
    return _may_have(schema, path, schema.get("$defs") or {}, 0)


# Schemas may refer to themselves; a path is as long as somebody writes.
_DEEPEST: Final = 50


def _may_have(schema: Any, path: str, definitions: Mapping[str, Any], depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return True
    if isinstance(reference := schema.get("$ref"), str):
        named = definitions.get(reference.rpartition("/")[2])
        return named is None or _may_have(named, path, definitions, depth + 1)
    choices = [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key) or ()]
    if choices:
        return any(_may_have(one, path, definitions, depth + 1) for one in choices)
    if "items" in schema:
        return _may_have(schema["items"], path, definitions, depth + 1)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        # Without a word about its members an object may have any; a text or a number has none.
        kinds = schema.get("type", "object")
        return not {"object", "array"}.isdisjoint([kinds] if isinstance(kinds, str) else kinds)
    if path in properties or schema.get("additionalProperties", False) is not False:
        return True
    head, _, rest = path.partition(".")
    return bool(rest) and head in properties and _may_have(properties[head], rest, definitions, depth + 1)
