"""Rules as Python code that makes them: the text that "Copy as code" puts on the clipboard."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from noetic_nb.steering import SteeringRule
from noetic_nb.widgets._rules.draft import form_of

_HEAD = (
    "from noetic_nb.steering import LLMEval, RuleBook, SteeringRule, allow, ask, deny, guide\n\nrules = RuleBook()\n"
)


def book_code(rules: Iterable[SteeringRule]) -> str:
    """Return the code that makes a rule book; running it in an empty notebook gives the same rules in the same order.

    A function whose text is not known stands there as a comment.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> _ = rules.at_most(3, "search")
    >>> print(book_code(rules).splitlines()[-1])
    rules.at_most(3, 'search', id='at-most-3-search')
    """
    return "\n".join([_HEAD, *(rule_code(rule) for rule in rules)])


def rule_code(rule: SteeringRule) -> str:
    """Return the code that puts one rule into the book `rules`.

    Examples
    --------
    >>> rule = SteeringRule(id="large", applies_to="before_tool_call", when="tool.args.n > 3", tools="pay", action="ask")
    >>> print(rule_code(rule))
    rules.when('tool.args.n > 3', id='large', on='before_tool_call', tools='pay', action='ask')
    """
    code = _python(rule) if rule.form == "python" else _call(rule)
    return code if rule.enabled else f"{code}\nrules.disable({rule.id!r})"


def _call(rule: SteeringRule) -> str:
    more = {"on": _one_or_all(rule.applies_to), "tools": _one_or_all(rule.tools), "name": rule.name}
    outcome = {"action": rule.action, "guidance": rule.guidance}
    form, judge = form_of(rule), rule.llm_eval
    # What the short way to write a rule has no place for is written as a record.
    if rule.form == "none" or rule.history or (rule.sequence is not None and (rule.name or rule.isolate)):
        return _record(rule)
    if form == "cel":
        isolate = True if rule.isolate == "process" else None
        return _written("when", [rule.when], id=rule.id, **more, **outcome, isolate=isolate)
    if judge is not None:
        if rule.isolate is not None:
            return _record(rule)
        asked = {"mode": judge.mode, "model": judge.model, "when": rule.when}
        return _written("judge", [judge.prompt], id=rule.id, **more, **asked)
    sequence = rule.sequence
    assert sequence is not None
    tools, others = _one_or_all(rule.tools), _one_or_all(sequence.others)
    if sequence.kind == "at_most":
        return _written("at_most", [sequence.count, tools], id=rule.id, **outcome)
    if sequence.kind == "only_from_user":
        trust = list(sequence.trust) or None
        return _written("only_from_user", [tools, *sequence.args], trust=trust, id=rule.id, **outcome)
    method = "never" if sequence.kind == "never_after" else "only"
    return _written(method, [tools], after=others, id=rule.id, **outcome)


def _written(method: str, first: list[Any], **named: Any) -> str:
    parts = [repr(value) for value in first]
    parts += [f"{name}={value!r}" for name, value in named.items() if value is not None]
    return f"rules.{method}({', '.join(parts)})"


def _record(rule: SteeringRule) -> str:
    fields = rule.model_dump(exclude_defaults=True, exclude={"predicate", "source", "enabled"})
    return f"rules.put(SteeringRule({', '.join(f'{name}={value!r}' for name, value in fields.items())}))"


def _one_or_all(names: tuple[str, ...] | None) -> str | list[str] | None:
    return names[0] if names is not None and len(names) == 1 else (None if names is None else list(names))


def _python(rule: SteeringRule) -> str:
    found = _function(rule.source)
    if found is None:
        return f"# {rule.id!r} is a Python function whose text is not known."
    before, function, name, after = found
    options: dict[str, Any] = {"on": _one_or_all(rule.applies_to), "tools": _one_or_all(rule.tools), "name": rule.name}
    options |= {"history": rule.history or None, "isolate": rule.isolate}
    named = "".join(f", {key}={value!r}" for key, value in options.items() if value is not None)
    ids = "" if name == rule.id else repr(rule.id)
    decorator = f"@rules.rule({', '.join(filter(None, [ids, named.removeprefix(', ')]))})"
    judged = ""
    if rule.llm_eval is not None:
        judge = f"LLMEval(**{rule.llm_eval.model_dump()!r})"
        judged = f"rules.put(rules[{rule.id!r}].model_copy(update={{'llm_eval': {judge}}}))"
    return "\n".join(part for part in (before, decorator, function, after, judged) if part) + "\n"


def _function(source: str | None) -> tuple[str, str, str, str] | None:
    """Return the text before the only function of a text, the function without its decorators, its name, and the rest."""
    try:
        body = ast.parse(source or "").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if len(functions) != 1:
        return None
    node = functions[0]
    lines = (source or "").splitlines()
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    last = node.end_lineno or len(lines)
    parts = lines[: first - 1], lines[node.lineno - 1 : last], lines[last:]
    before, function, after = ("\n".join(part).strip("\n") for part in parts)
    return before, function, node.name, after
