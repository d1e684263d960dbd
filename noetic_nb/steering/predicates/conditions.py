"""Conditions in CEL: data that can be saved, shared and loaded safely, and that can neither read a clock nor act.

Evaluating one holds the interpreter, so no limit in this process could stop it. What may take long (comprehensions inside
each other, long expressions, large values) therefore runs in a process of its own, which can be ended.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.memory.steering_decision import SteeringAction, SteeringDecision
from noetic_nb.steering.predicates.bindings import (
    MAX_AT_ONCE,
    MAX_ONCE_THROUGH,
    Bindings,
    Params,
    origins_of,
    values_of,
)
from noetic_nb.steering.predicates.cel_names import ORIGIN, VARIABLES, Analysis, analyse, does_not_compile
from noetic_nb.steering.predicates.cel_process import CelProcess
from noetic_nb.steering.predicates.guidance_template import Guidance
from noetic_nb.steering.predicates.in_thread import in_thread
from noetic_nb.steering.predicates.matched_text import matched_text
from noetic_nb.steering.rules.rule import SteeringRule

__all__ = ["MAX_CHARACTERS", "Condition", "compiled", "context_type"]

# Above 4 KB an expression is no longer read by a person, and its compilation no longer instant.
MAX_CHARACTERS: Final = 4_096
MAX_ISOLATED: Final = 65_536
# An editor compiles at every pause in typing; what nobody uses any more goes first.
MAX_KEPT: Final = 4_096

# What the parser says, what is meant, and what to do.
_GRAMMAR: Final = (
    (re.compile(r"token recognition error at: '=.*"), "a single = is no operator", "Write == to compare."),
    (re.compile(r"token recognition error at: '&.*"), "a single & is no operator", "Write && for `and`."),
    (re.compile(r"token recognition error at: '\|.*"), "a single | is no operator", "Write || for `or`."),
    (re.compile(r"token recognition error at: '(.*)'"), "{0} has no meaning here", "Remove it."),
    (re.compile(r"missing '(.*)' at '<EOF>'"), "it ends before a {0}", "Close what is open."),
    (
        re.compile(r"mismatched input '<EOF>'.*"),
        "it ends where a value is expected",
        "Write what is missing at its end.",
    ),
    (re.compile(r"missing '(.*)' at '(.*)'"), "a {0} is missing before {1}", "Write it, or remove what is too much."),
    (
        re.compile(r"(?:mismatched|extraneous) input '(.*?)' expecting.*|no viable alternative at input '(.*)'"),
        "{0} is not expected there",
        "A value, or an operator between two values, is missing before it; or it is too much.",
    ),
)
_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): (.*)")


@dataclass(frozen=True, slots=True)
class Condition:
    """A rule's condition, ready to be evaluated."""

    needs: frozenset[str]
    evaluate: Callable[[Params, Bindings], Any]
    """Returns True, False, or something to await that does."""
    decide: Callable[[Params], SteeringDecision]
    """The decision where it is true, with the rule's name on it."""
    program: Callable[[Any], Any] | None = None
    """What `evaluate` runs on the bound values, where that is done here: its result is not looked at yet."""


# By the fields of `_DECIDING`: switching a rule on, or undoing an edit, compiles nothing.
_conditions: Final[dict[tuple[Any, ...], Condition]] = {}


def _library() -> Any:
    try:
        import cel
    except ImportError as exc:
        raise NoeticConfigError(
            "MISSING_PACKAGE",
            "Conditions in CEL need the package common-expression-language.",
            hint="pip install 'noetic_nb[rules]'",
        ) from exc
    return cel


def _checked(rule: SteeringRule, text: str) -> Analysis:
    limit = MAX_CHARACTERS if rule.isolate is None else MAX_ISOLATED
    if len(text) > limit:
        hint = "Set isolate=True." if len(text) <= MAX_ISOLATED else "Make several rules of it."
        raise does_not_compile(rule.id, f"it has {len(text):,} characters, and {limit:,} are the most", None, hint)
    found = analyse(rule.id, text)
    if found.nested and rule.isolate is None:
        hint = "Set isolate=True: it then runs in a process of its own, and can be stopped."
        raise does_not_compile(rule.id, "a comprehension stands inside another, which may take for ever", None, hint)
    _check_points(rule, "it names", found.needs)
    return found


# What is judged at one point is not there yet, or not any more, at the other.
_ABSENT: Final = {"before_tool_call": "response", "after_model_call": "tool"}


def _check_points(rule: SteeringRule, what: str, needs: Iterable[str]) -> None:
    """Refuse names that do not exist at an enforcement point of the rule."""
    roots = {need.partition(".")[0] for need in needs}
    for point in rule.applies_to:
        absent = _ABSENT[point]
        if absent in roots:
            others = ", ".join(name for name in VARIABLES if name != absent)
            raise does_not_compile(
                rule.id,
                f"{what} {absent!r}, which is not there at {point}",
                None,
                f"Use {others}, or apply it to the other point only.",
            )


def _syntax_error(rule_id: str, error: BaseException | str) -> NoeticConfigError:
    match = _PLACE.search(str(error))
    line = int(match.group(1)) if match else None
    column = int(match.group(2)) if match else None
    what = (match.group(3) if match else str(error).splitlines()[0][:200]).removeprefix("Syntax error: ")
    for pattern, words, hint in _GRAMMAR:
        if (found := pattern.match(what)) is not None:
            return does_not_compile(
                rule_id, words.format(*[part for part in found.groups() if part is not None]), line, hint, column=column
            )
    return does_not_compile(rule_id, what, line, column=column)


@lru_cache(maxsize=1)
def context_type() -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes the library's form of bound values."""
    found: Callable[[dict[str, Any]], Any] = _library().Context
    return found


def _not_a_boolean(rule_id: str, value: object) -> TypeError:
    return TypeError(
        f"The condition of rule {rule_id!r} is a {type(value).__name__}, not true or false: {value!r:.80}."
    )


_DECIDING: Final = ("id", "when", "applies_to", "action", "guidance", "isolate")


def compiled(rule: SteeringRule) -> Condition:
    """Compile the condition of a rule, and make the checks that need no evaluation.

    Versions of a rule that differ in other things (whether it is enabled, its tools) share the compiled form.

    Raises
    ------
    NoeticConfigError
        ``RULE_DOES_NOT_COMPILE`` with the `line` where it is known; ``MISSING_PACKAGE`` without the extra ``rules``.
    """
    key = tuple([getattr(rule, name) for name in _DECIDING])
    found = _conditions.get(key)
    if found is None:
        if len(_conditions) >= MAX_KEPT:
            _conditions.pop(next(iter(_conditions)))
        found = _conditions[key] = _compile(rule)
    return found


def _compile(rule: SteeringRule) -> Condition:
    text = rule.when
    assert text is not None
    analysis = _checked(rule, text)
    decide = _outcome(rule)
    process = CelProcess(text)

    async def in_process(params: Params, _: Bindings) -> bool:
        origins = await in_thread(origins_of, params, name=rule.id) if ORIGIN in analysis.needs else ()
        value = await process.evaluate(values_of(params, analysis.needs), origins)
        if type(value) is not bool:
            raise _not_a_boolean(rule.id, value)
        return value

    if rule.isolate == "process":
        failure = process.compile_error()
        if failure is not None:
            raise _syntax_error(rule.id, failure)
        # It needs nothing bound here: the values are sent to the process.
        return Condition(frozenset(), in_process, decide)
    try:
        program = _library().compile(text)
    except ValueError as exc:
        raise _syntax_error(rule.id, exc) from exc
    execute, make = program.execute, context_type()
    most = MAX_AT_ONCE if analysis.loops or ORIGIN in analysis.needs else MAX_ONCE_THROUGH

    def inline(params: Params, bindings: Bindings) -> bool | Awaitable[bool]:
        if bindings.weight > most:
            return in_process(params, bindings)
        value = execute(bindings.context(make))
        if value is True or value is False:
            return bool(value)
        raise _not_a_boolean(rule.id, value)

    return Condition(analysis.needs, inline, decide, execute)


def _outcome(rule: SteeringRule) -> Callable[[Params], SteeringDecision]:
    action = SteeringAction(rule.action or "deny")
    assert rule.when is not None
    find = matched_text(rule.when, _library().compile) if "after_model_call" in rule.applies_to else None
    template = None if rule.guidance is None else Guidance(rule.id, rule.guidance)
    if template is not None:
        _check_points(rule, "its guidance names", template.needs)
    if find is not None:

        def found(params: Params) -> SteeringDecision:
            text = None if template is None else template.fill(params)
            parts = () if isinstance(params, BeforeToolCallParams) else find(params.text)
            return SteeringDecision(action, text, (rule.id,), matched=parts)

        return found
    if template is None:
        always = SteeringDecision(action, None, (rule.id,))
        return lambda params: always
    return lambda params: SteeringDecision(action, template.fill(params), (rule.id,))
