"""Rules about earlier calls: never `send_email` after `read_secrets`; at most 3 `search` calls; only the user's values.

A call counts from its decision on, unless it was refused, and even if it failed, because it may have had effects. For
*only after*, the earlier calls must have succeeded.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final

from noetic_nb._core.names import skeleton
from noetic_nb.items._origins import members, trusted_source
from noetic_nb.items._value_search import hidden_character, value_text
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision
from noetic_nb.steering._predicates.bindings import MAX_AT_ONCE, Params, work_of
from noetic_nb.steering._predicates.guidance_template import Guidance
from noetic_nb.steering._predicates.in_thread import in_thread
from noetic_nb.steering._rules.rule import SequenceRule, SteeringRule

LINKS: Final = "links"  # follows the path of a text argument
_BETWEEN: Final = re.compile(r"[\s<>\"]+|\]\(")
_AROUND: Final = "([{'`*_)]}.,;:!?"
_DOTS: Final = str.maketrans("。｡", "..")
_LINK: Final = re.compile(
    r"://|\S@\S|(?:data|javascript|mailto|tel):\S|[^\W_]\.[^\W\d_]{2,}|(?:\d{1,3}\.){3}\d{1,3}", re.IGNORECASE
)


def links_in(text: str) -> list[str]:
    """Return the links in a text with adjacent characters; a host is known by its dot, in doubt a word is a link."""
    words = [word.strip(_AROUND) for word in _BETWEEN.split(text)]
    return [word for word in words if _LINK.search(unicodedata.normalize("NFKC", word).translate(_DOTS))]


_NOT_MADE: Final = frozenset({"denied", "guided", "invalid_args", "unknown"})


def _names(tools: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(tools) if isinstance(tools, Iterable) and not isinstance(tools, str) else (tools,)


def _listed(names: Iterable[str], word: str) -> str:
    *head, last = names
    return f"{', '.join(head)} {word} {last}" if head else last


def describe_sequence(rule: SteeringRule, sequence: SequenceRule) -> str:
    tools = _listed(rule.tools or ("any tool",), "or")
    match sequence.kind:
        case "never_after":
            return f"{tools} must not be called after {_listed(sequence.others, 'or')}."
        case "only_after":
            return f"{tools} may be called only after {_listed(sequence.others, 'and')}."
        case "only_from_user":
            values = f"the {_listed(map(_named, sequence.args), 'and')}" if sequence.args else "values"
            sources = _listed(("the user", *map(_described, sequence.trust)), "or")
            return f"{tools} may be called only with {values} that {sources} gave."
    if not sequence.count:
        return f"{tools} may not be called."
    times = {1: "once", 2: "twice"}.get(sequence.count, f"{sequence.count} times")
    return f"{tools} may be called at most {times}."


def _named(path: str) -> str:
    whole = path.removesuffix(f".{LINKS}")
    return path if whole == path else f"{LINKS} in {whole}"


def _described(entry: str) -> str:
    name, key, value = trusted_source(entry)
    return f"{name} (where the {key} is {value})" if key else name


def sequence_rule(
    kind: str,
    tools: str | Iterable[str],
    *,
    others: str | Iterable[str] = (),
    count: int | None = None,
    args: Iterable[str] = (),
    trust: str | Iterable[str] = (),
    id: str | None = None,
    action: str | None = None,
    guidance: str | None = None,
) -> SteeringRule:
    """Return a rule about earlier calls, named after its tools; raises `NoeticConfigError` ``INVALID_RULE``."""
    names, before, values = _names(tools), _names(others), _names(args)
    title = {"never_after": "never", "only_after": "only", "at_most": f"at-most-{count}"}.get(kind, kind)
    if kind == "only_from_user":
        title = "-".join(["only-from-user", *values, "of"])
    default_id = "-".join(map(str, [title, *names, *(["after", *before] if before else [])]))
    return SteeringRule(
        id=id or default_id,
        applies_to="before_tool_call",
        tools=names,
        sequence={"kind": kind, "others": before, "count": count, "args": values, "trust": _names(trust)},
        action=action,
        guidance=guidance,
    )


def check_sequence(
    rule: SteeringRule, sequence: SequenceRule, params: Params
) -> SteeringDecision | Awaitable[SteeringDecision | None] | None:
    """Return the decision on a call that violates a sequence rule, else None; long comparisons are awaited in a thread."""
    if sequence.kind == "only_from_user":
        if work_of(params) > MAX_AT_ONCE:
            return in_thread(_check_origins, rule, sequence, params, name=rule.id)
        return _check_origins(rule, sequence, params)
    # Names are compared by appearance, as in rule lookup: a look-alike tool counts as the tool. Counted by name first,
    # because a thread has a thousand calls of a few tools.
    made = Counter([call.name for call in params.history if call.status not in _NOT_MADE])
    others = {skeleton(name) for name in sequence.others}
    match sequence.kind:
        case "at_most":
            own = {skeleton(name) for name in rule.tools or ()}
            violated = sum(count for name, count in made.items() if skeleton(name) in own) >= (sequence.count or 0)
        case "never_after":
            violated = any(skeleton(name) in others for name in made)
        case "only_after":
            # A failed call did not do what the rule relies on.
            ended_well = {call.name for call in params.history if call.status == "ok"}
            violated = not others <= set(map(skeleton, ended_well))
    if not violated:
        return None
    text = describe_sequence(rule, sequence) if rule.guidance is None else Guidance(rule.id, rule.guidance).fill(params)
    return SteeringDecision(SteeringAction(rule.action or "deny"), text, (rule.id,))


def _check_origins(rule: SteeringRule, sequence: SequenceRule, params: Any) -> SteeringDecision | None:
    """Return the decision on a call with a value that neither the user nor a trusted source wrote."""
    trusted = ("user", *sequence.trust)
    args = params.tool_args
    for name in sequence.args or tuple(args):
        # With a rule about all arguments, names that the tool accepts freely come from the model as well.
        value = _argument(args, name) if sequence.args else {name: args[name]}
        texts = [*map(value_text, members(value, args))]
        if not texts and _is_misspelt(rule, sequence, name, params):
            # A rule that checks no argument must not let every call pass.
            text = f"The rule {rule.id} names the argument {name!r}, and {params.tool_name} has no such argument."
            text += " The call is refused until the rule is corrected."
            return SteeringDecision(SteeringAction(rule.action or "deny"), text, (rule.id,))
        hidden = next(filter(None, map(hidden_character, texts)), None)
        if hidden is None and params.is_vouched(value, trusted):
            continue
        if rule.guidance is not None:
            text = Guidance(rule.id, rule.guidance).fill(params)
        else:
            # The tool's name, not its text, which may be written by an attacker for the model to read.
            origin = params.origin(value)
            said = "is only in what the user quotes, forwards or warns of"
            fault = said if origin.kind == "user" else f"comes from {origin}"
            if hidden is not None:
                fault = f"holds a character that nobody sees (U+{ord(hidden):04X})"
            fault = f"The {_named(name)} of this call {fault}."
            text = f"{describe_sequence(rule, sequence)} {fault} Ask the user, or go on without it."
        return SteeringDecision(SteeringAction(rule.action or "deny"), text, (rule.id,))
    return None


def _is_misspelt(rule: SteeringRule, sequence: SequenceRule, path: str, params: Any) -> bool:
    """Tell whether a rule names an argument that the tool cannot have; see `misspelt_arguments`."""
    schema = None if params.provenance is None else params.provenance().schema
    return schema is not None and path in misspelt_arguments(rule, sequence, schema)


def misspelt_arguments(rule: SteeringRule, sequence: SequenceRule, schema: Mapping[str, Any]) -> list[str]:
    """Return the rule's arguments that this tool cannot have; with several tools, one of them must have each argument."""
    wrong = [path for path in sequence.args if not has_argument(schema, path.removesuffix(f".{LINKS}"))]
    is_of_one = len(set(map(skeleton, rule.tools or ()))) == 1
    return wrong if is_of_one or (rule.tools and len(wrong) == len(sequence.args)) else []


def _argument(args: Any, path: str) -> Any:
    """Return an argument by its name or path; for a list on the path, that of every member; None if it is missing."""
    if isinstance(args, Mapping):
        if path in args:
            return args[path]
        name, _, rest = path.partition(".")
        return _argument(args.get(name), rest) if rest else None
    if isinstance(args, str):
        return links_in(args) if path == LINKS else None
    # A path that ends in a list must not leave its contents unchecked.
    return [_argument(member, path) for member in args] if isinstance(args, list | tuple) else None


def has_argument(schema: Mapping[str, Any], path: str) -> bool:
    """Tell whether arguments of a schema may have a value at a path, as rules read it; True if the schema does not say."""
    return _may_have(schema, path, schema.get("$defs") or {}, 0)


_DEEPEST: Final = 50  # schemas may be recursive, and paths of any length


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
        # Without a schema for members, an object may have any; a text or a number has none.
        kinds = schema.get("type", "object")
        return not {"object", "array"}.isdisjoint([kinds] if isinstance(kinds, str) else kinds)
    if path in properties or schema.get("additionalProperties", False) is not False:
        return True
    head, _, rest = path.partition(".")
    return bool(rest) and head in properties and _may_have(properties[head], rest, definitions, depth + 1)
