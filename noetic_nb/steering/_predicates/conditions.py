"""Conditions in CEL: data that can be saved, shared and loaded safely, and that can neither read a clock nor act.

Evaluation blocks the interpreter, so it cannot be interrupted within this process. Expressions that may be slow (nested
comprehensions, long expressions, large values) therefore run in a separate process, which can be killed.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import thaw
from noetic_nb.memory._steering_decision import MAX_MATCHED, MAX_PARTS, SteeringAction, SteeringDecision
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.steering._predicates.bindings import (
    MAX_AT_ONCE,
    MAX_ONCE_THROUGH,
    Bindings,
    Params,
    origins_of,
    values_of,
)
from noetic_nb.steering._predicates.cel_names import ORIGIN, VARIABLES, Analysis, analyse, cel_tokens, does_not_compile
from noetic_nb.steering._predicates.guidance_template import Guidance
from noetic_nb.steering._predicates.in_thread import in_thread
from noetic_nb.steering._rules.rule import SteeringRule

_WORKER: Final = Path(__file__).with_name("cel_worker.py")
# A syntax error is found in milliseconds; an expression that takes longer than this to compile is refused.
COMPILE_MS: Final = 5_000.0
# On a busy machine a new process may need seconds before it can compile.
START_MS: Final = 60_000.0
# Old versions of a rule keep their process; beyond this number the oldest is ended, and restarted if needed.
MAX_PROCESSES: Final = 16

_live: Final[deque[weakref.ref[CelProcess]]] = deque()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # a message that a dead process has not read
                pipe.close()


class CelProcess:
    """Evaluates one expression in another process."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._finalizer: Any = None

    def compile_error(self) -> str | None:
        """Start the process and compile; return the fault of the expression, or None if there is none."""
        # In a thread, because not every system can read a pipe with a time limit.
        reply: list[dict[str, Any]] = []
        ready = threading.Event()
        thread = threading.Thread(target=lambda: reply.append(self._started(ready)), daemon=True)
        thread.start()
        if not ready.wait(START_MS / 1000):
            self.stop()
            return f"its process did not start within {START_MS / 1000:g} seconds"
        thread.join(COMPILE_MS / 1000)
        if not reply:
            self.stop()
            return f"it took more than {COMPILE_MS / 1000:g} seconds to compile"
        error = reply[0].get("error")
        return None if error is None else str(error)

    def _started(self, ready: threading.Event) -> dict[str, Any]:
        try:
            with self._lock:
                return self._start(ready)
        finally:
            ready.set()

    def _start(self, ready: threading.Event | None = None) -> dict[str, Any]:
        if self._process is not None and self._process.poll() is None:
            return {"compiled": True}
        # The worker is run as a file, because importing the package would take longer than most evaluations.
        process = subprocess.Popen(
            [sys.executable, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # an unread pipe would fill up and block the process
            text=True,
            encoding="utf-8",
        )
        self._process = process
        # Also at interpreter exit, so that no process outlives the kernel.
        self._finalizer = weakref.finalize(self, _end, process)
        _live.append(weakref.ref(self))
        while len(_live) > MAX_PROCESSES:
            oldest = _live.popleft()()
            if oldest is not None and oldest is not self:
                oldest.stop()
        assert process.stdout is not None
        process.stdout.readline()  # empty if the process has ended, which the exchange reports
        if ready is not None:
            ready.set()
        return self._exchange(process, {"compile": self._text})

    @staticmethod
    def _exchange(process: subprocess.Popen[str], message: Mapping[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):
            line = ""
        if not line:
            return {"error": "the process of the expression ended: it ran out of time or of memory"}
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        """End the process; the next evaluation starts another."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()  # a thread that reads from it gets the end of the file
        if self._finalizer is not None:
            self._finalizer()

    def _evaluate(self, values: Mapping[str, Any], origins: Sequence[Any]) -> dict[str, Any]:
        # One exchange at a time: two lines written together would swap their answers.
        with self._lock:
            failed = self._start().get("error")
            process = self._process
            if failed is not None or process is None:
                return {"error": failed or "the process of the expression ended"}
            return self._exchange(process, {"values": values, "origins": origins})

    async def evaluate(self, values: Mapping[str, Any], origins: Sequence[Any] = ()) -> Any:
        """Return the value of the expression; raises ``step_failed``. If the caller cancels, the process is killed."""
        try:
            reply = await in_thread(partial(self._evaluate, origins=origins), thaw(values), name="condition")
        except asyncio.CancelledError:
            self.stop()
            raise
        if "error" in reply:
            what = f"The condition could not be evaluated: {reply['error']}"
            raise NoeticError("step_failed", what, step_id="condition")
        return reply["value"]


_Find: TypeAlias = Callable[[str], str | None]

_TEXT: Final = ["response", ".", "text", "."]
MAX_SEARCHED: Final = 200_000  # longer answers are not searched, because each step of the search is an evaluation


def matched_text(condition: str, compile_cel: Callable[[str], Any]) -> Callable[[str], tuple[str, ...]] | None:
    """Return a function that finds the text in a response that a condition tests for; None if it tests no text."""
    finders = tuple(_finders(condition, compile_cel))
    if not finders:
        return None

    def find(text: str) -> tuple[str, ...]:
        if len(text) > MAX_SEARCHED:
            return ()
        found = [part for finder in finders if (part := finder(text))]
        return tuple(dict.fromkeys([part[:MAX_MATCHED] for part in found]))[:MAX_PARTS]

    return find


def _finders(condition: str, compile_cel: Callable[[str], Any]) -> Iterator[_Find]:
    tokens = [(kind, value) for kind, value, _ in cel_tokens(condition)]
    for at in range(len(tokens) - 7):
        if [value for _, value in tokens[at : at + 4]] != _TEXT or tokens[at + 5][1] != "(":
            continue
        (_, name), (kind, literal), (_, closed) = tokens[at + 4], tokens[at + 6], tokens[at + 7]
        if kind != "string" or closed != ")":
            continue
        if name == "matches":
            yield _expression(compile_cel(f"text.matches({literal})"))
        elif name in ("contains", "startsWith", "endsWith") and (wanted := _plain(literal)):
            test = {"contains": str.__contains__, "startsWith": str.startswith, "endsWith": str.endswith}[name]
            yield lambda text, test=test, wanted=wanted: wanted if test(text, wanted) else None  # type: ignore[misc]


def _plain(literal: str) -> str | None:
    """Return the text of a CEL literal; None for bytes, and for escapes that Python interprets differently."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return None
    return value if isinstance(value, str) else None


def _expression(program: Any) -> _Find:
    """Find the first match of a regular expression with the CEL library, which always takes linear time.

    A prefix that contains a match still does when it is extended, so bisection finds the end of the first match, and
    then its start. Patterns that depend on context (the end of a line or word) may end late or not be found.
    """

    def holds(text: str) -> bool:
        return program.execute({"text": text}) is True

    def find(text: str) -> str | None:
        if not holds(text):
            return None
        end = _first(0, len(text), lambda stop: holds(text[:stop]))
        start = end - _first(0, end, lambda size: holds(text[end - size : end]))
        return _words_at(text, start, end) if holds(text[start:end]) else None

    return find


def _words_at(text: str, start: int, end: int) -> str:
    """Return a part of a text, extended to whole words at both ends: the match that was found is the shortest."""
    low, high = max(0, start - MAX_MATCHED), min(len(text), end + MAX_MATCHED)
    while start > low and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < high and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return text[start:end]


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number for which `holds` is true, given that it is true for all larger ones."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


# Above 4 KB an expression is unreadable for people and slow to compile.
MAX_CHARACTERS: Final = 4_096
MAX_ISOLATED: Final = 65_536
MAX_KEPT: Final = 4_096  # an editor compiles at every pause in typing; the oldest go first

_GRAMMAR: Final = (
    (re.compile(r"token recognition error at: '=.*"), "a single = is not an operator", "Write == to compare."),
    (re.compile(r"token recognition error at: '&.*"), "a single & is not an operator", "Write && for `and`."),
    (re.compile(r"token recognition error at: '\|.*"), "a single | is not an operator", "Write || for `or`."),
    (re.compile(r"token recognition error at: '(.*)'"), "{0} has no meaning here", "Remove it."),
    (re.compile(r"missing '(.*)' at '<EOF>'"), "it ends before a {0}", "Close what is open."),
    (
        re.compile(r"mismatched input '<EOF>'.*"),
        "it ends where a value is expected",
        "Write what is missing at its end.",
    ),
    (re.compile(r"missing '(.*)' at '(.*)'"), "a {0} is missing before {1}", "Write it, or remove the extra part."),
    (
        re.compile(r"(?:mismatched|extraneous) input '(.*?)' expecting.*|no viable alternative at input '(.*)'"),
        "{0} is not expected there",
        "A value, or an operator between two values, is missing before it, or it does not belong there.",
    ),
)
_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): (.*)")


@dataclass(frozen=True, slots=True)
class Condition:
    """A rule's condition, ready for evaluation."""

    needs: frozenset[str]
    evaluate: Callable[[Params, Bindings], Any]  # returns True, False, or an awaitable of these
    decide: Callable[[Params], SteeringDecision]  # makes the decision for True, with the rule's name


# By the fields of `_DECIDING`, so that enabling a rule, or undoing an edit, compiles nothing.
_conditions: Final[dict[tuple[Any, ...], Condition]] = {}


def _library() -> Any:
    what = "Conditions in CEL need the package common-expression-language."
    with optional_package(what, "pip install 'noetic_nb[rules]'"):
        import cel
    return cel


def _checked(rule: SteeringRule, text: str) -> Analysis:
    limit = MAX_CHARACTERS if rule.isolate is None else MAX_ISOLATED
    if len(text) > limit:
        hint = "Set isolate=True." if len(text) <= MAX_ISOLATED else "Split it into several rules."
        raise does_not_compile(rule.id, f"it has {len(text):,} characters, and {limit:,} are the most", None, hint)
    found = analyse(rule.id, text)
    if found.nested and rule.isolate is None:
        hint = "Set isolate=True: it then runs in a process of its own, and can be stopped."
        raise does_not_compile(
            rule.id, "a comprehension is nested inside another, which may take very long", None, hint
        )
    _check_points(rule, "it names", found.needs)
    return found


# The object of one enforcement point does not exist at the other.
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


def syntax_error(error: BaseException | str) -> tuple[str, int | None, int | None, str]:
    """Return a parser error in plain words, with its line and column, and the remedy."""
    match = _PLACE.search(str(error))
    line, column = (None, None) if match is None else (int(match.group(1)), int(match.group(2)))
    what = (match.group(3) if match else str(error).splitlines()[0][:200]).removeprefix("Syntax error: ")
    for pattern, words, hint in _GRAMMAR:
        if (found := pattern.match(what)) is not None:
            return words.format(*[part for part in found.groups() if part is not None]), line, column, hint
    return what, line, column, "Correct the expression."


def _syntax_error(rule_id: str, error: BaseException | str) -> NoeticConfigError:
    what, line, column, hint = syntax_error(error)
    return does_not_compile(rule_id, what, line, hint, column=column)


def _not_a_boolean(rule_id: str, value: object) -> TypeError:
    return TypeError(
        f"The condition of rule {rule_id!r} is a {type(value).__name__}, not true or false: {value!r:.80}."
    )


_DECIDING: Final = ("id", "when", "applies_to", "action", "guidance", "isolate")


def compiled(rule: SteeringRule) -> Condition:
    """Compile the condition of a rule, shared by its versions; raises ``RULE_DOES_NOT_COMPILE`` or ``MISSING_PACKAGE``."""
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
        # No bindings are needed here, because the values are sent to the process.
        return Condition(frozenset(), in_process, decide)
    try:
        program = _library().compile(text)
    except ValueError as exc:
        raise _syntax_error(rule.id, exc) from exc
    execute, make = program.execute, _library().Context
    most = MAX_AT_ONCE if analysis.loops or ORIGIN in analysis.needs else MAX_ONCE_THROUGH

    def inline(params: Params, bindings: Bindings) -> bool | Awaitable[bool]:
        if bindings.weight > most:
            return in_process(params, bindings)
        value = execute(bindings.context(make))
        if value is True or value is False:
            return bool(value)
        raise _not_a_boolean(rule.id, value)

    return Condition(analysis.needs, inline, decide)


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
