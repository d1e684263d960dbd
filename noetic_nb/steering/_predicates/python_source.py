"""Turn the text of a Python rule (the author's code in their own kernel, never from a file) into a predicate."""

from __future__ import annotations

import ast
import inspect
import linecache
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from noetic_nb._core.names import function_name
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._steering_decision import allow, as_decision, ask, deny, guide
from noetic_nb.steering._predicates.cel_names import does_not_compile
from noetic_nb.steering._rules.rule import PythonPredicate, SteeringRule

# Names that the text of a rule may use without imports.
NAMES: Final[Mapping[str, Any]] = {"allow": allow, "ask": ask, "deny": deny, "guide": guide}

# An editor compiles at every pause in typing, so texts of old drafts are not kept for tracebacks.
MAX_TEXTS: Final = 256

_versions: dict[str, int] = {}
_texts: Final[deque[str]] = deque()


# What a text that does not compile means for its rule.
_not_replaced: Final = partial(does_not_compile, said="was not replaced")


def compile_predicate(rule_id: str, text: str, namespace: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile a rule's text, one function with its helpers; raises ``RULE_DOES_NOT_COMPILE`` with `line` and `column`."""
    _versions[rule_id] = _versions.get(rule_id, 0) + 1
    file_name = f"<rule {rule_id} v{_versions[rule_id]}>"
    _texts.append(file_name)
    if len(_texts) > MAX_TEXTS:
        linecache.cache.pop(_texts.popleft(), None)
    try:
        tree = ast.parse(text, file_name)
    except (SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None)
        hint = "Correct the text and apply it again."
        column = getattr(exc, "offset", None) or None
        raise _not_replaced(rule_id, getattr(exc, "msg", None) or str(exc), line, hint, column=column) from exc
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if len(functions) != 1:
        found = ", ".join(node.name for node in functions) or "none"
        what = f"it needs exactly one function, and has {found}"
        raise _not_replaced(rule_id, what, None, "Write def name(call): ...")
    # A decorator such as @rules.rule(...) would add the rule to the book when it is only being tried.
    functions[0].decorator_list = []
    scope = {**NAMES, **namespace}
    # So that tracebacks and inspect.getsource find the text, as they do for cells.
    linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
    try:
        # In a separate scope: running the text must not change the notebook's names.
        exec(compile(tree, file_name, "exec"), scope)
    except Exception as exc:
        what = f"{type(exc).__name__}: {exc}"
        raise _not_replaced(rule_id, what, _line_of(exc, file_name), "Correct the text.") from exc
    function: Callable[..., Any] = scope[functions[0].name]
    return function


def check_parameter(rule_id: str, function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with the call or response to decide on (``INVALID_RULE``)."""
    try:
        inspect.signature(function).bind(None)
    except TypeError as exc:
        raise NoeticConfigError(
            "INVALID_RULE",
            f"A rule is called with one argument, the call or the response, but {function_name(function)!r} cannot be: {exc}",
            given=function,
            hint="Write def rule(call): ...",
            rule_id=rule_id,
        ) from exc
    except ValueError:
        return  # a built-in without a signature


def _line_of(error: BaseException, file_name: str) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file_name]
    return lines[-1] if lines else None


def check_on_samples(rule: SteeringRule, samples: Iterable[Any]) -> None:
    """Call a predicate on calls that it would have seen; raises ``RULE_FAILS_ON_SAMPLE`` with the `line`."""
    if not isinstance(rule.decider, PythonPredicate):
        return
    predicate = rule.decider.function
    # Samples are tried in a callback, without a loop to wait in.
    if inspect.iscoroutinefunction(predicate):
        return
    file_name = predicate.__code__.co_filename if hasattr(predicate, "__code__") else ""
    for sample in samples:
        try:
            answer = predicate(sample)
            if answer is not None:
                as_decision(answer)
        except Exception as exc:
            line = _line_of(exc, file_name)
            place = "" if line is None else f" in line {line}"
            raise NoeticConfigError(
                "RULE_FAILS_ON_SAMPLE",
                f"Rule {rule.id!r} was not replaced: on a recorded call it failed with {type(exc).__name__}: {exc}{place}",
                given=getattr(sample, "tool_name", sample),
                hint="Correct the text; the last good version stays in force.",
                rule_id=rule.id,
                line=line,
            ) from exc
