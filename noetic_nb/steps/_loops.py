"""Loops: the state that a predicate sees after each iteration, and the built-in predicates."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import Field, FiniteFloat
from pydantic_core import to_jsonable_python

from noetic_nb._core.cards import Card
from noetic_nb._core.names import FinishReason
from noetic_nb.items import Item
from noetic_nb.items._json_text import compact_json
from noetic_nb.models._client import NO_USAGE, Usage
from noetic_nb.steps._base import Frozen
from noetic_nb.sync import awaited


class Verdict(NamedTuple):
    """Whether to stop, why, and feedback for the next iteration."""

    stop: bool
    reason: str | None = None
    feedback: str | None = None


class StepMeta(NamedTuple):
    """The last llm step: its cost, answer, finish reason, and the tools that its last call requested (none if truncated)."""

    tool_calls: tuple[Item, ...] = ()
    usage: Usage = NO_USAGE
    cost: float = 0.0
    response_items: tuple[Item, ...] = ()
    finish_reason: FinishReason | None = None


class LoopSnapshot(NamedTuple):
    """A loop after an iteration. Tokens, cost and `elapsed_ms` count from the beginning of the loop."""

    step_count: int
    tokens: Usage = NO_USAGE
    cost: float = 0.0
    elapsed_ms: float = 0.0
    last_output: Any = None
    last_text: str = ""
    history: Sequence[Any] = ()
    depth: int = 0
    last_step_meta: StepMeta | Mapping[str, Any] | None = None

    @property
    def asked_for_tools(self) -> bool:
        """Whether the last model call requested a tool."""
        meta = self.last_step_meta
        if isinstance(meta, Mapping):
            return bool(meta.get("tool_calls") or meta.get("toolCalls"))
        return meta is not None and bool(meta.tool_calls)


def json_text(value: Any) -> str:
    """Return a value as JSON text; if it has no JSON form, its `str`."""
    try:
        return compact_json(to_jsonable_python(value, fallback=str))
    except (TypeError, ValueError):  # such as a number that is not finite, or a list that contains itself
        return _dumped(value)


def flowing_text(value: Any) -> str:
    """Return the value passed between steps of a sequence: text unchanged, None as '', other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def output_text(output: Any) -> str:
    """Return an output as the text that a predicate sees: text unchanged, a ``text`` field, otherwise compact JSON."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    text = output.get("text") if isinstance(output, Mapping) else getattr(output, "text", None)
    if isinstance(text, str):
        return text
    return _dumped(output)


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError):
        return str(value)


Check: TypeAlias = Callable[[LoopSnapshot], Any]
"""Judges one snapshot; returns a `Verdict`, or an awaitable of one if a user function is async."""

_GO_ON = Verdict(False)
_NO_TOOL_CALLS = Verdict(True, "No tool calls")


class _Predicate(Frozen):
    """A predicate; its repr is the call that creates it."""

    @property
    def is_immediate(self) -> bool:
        """Whether it returns at once, without calling a user function."""
        return True

    def _card(self) -> Card:
        kind = re.sub("[A-Z]", lambda found: f"_{found.group().lower()}", getattr(self, "kind", ""))
        return replace(super()._card(), title=f"until.{kind}")


class MaxSteps(_Predicate):
    """Stops after n successful iterations; the first always runs."""

    kind: Literal["maxSteps"] = "maxSteps"
    n: int = Field(ge=0)

    def start(self) -> Check:
        """Return a check for one run of a loop."""
        return lambda s: Verdict(True, f"Reached max steps ({self.n})") if s.step_count >= self.n else _GO_ON


class MaxCost(_Predicate):
    """Stops when the execution has cost this many US dollars."""

    kind: Literal["maxCost"] = "maxCost"
    usd: FiniteFloat = Field(ge=0)

    def start(self) -> Check:
        return lambda s: Verdict(True, f"Reached max cost (${self.usd:g})") if s.cost >= self.usd else _GO_ON


class MaxDuration(_Predicate):
    """Stops when the loop has run for this many milliseconds."""

    kind: Literal["maxDuration"] = "maxDuration"
    ms: FiniteFloat = Field(ge=0)

    def start(self) -> Check:
        return lambda s: Verdict(True, f"Reached max duration ({self.ms:g} ms)") if s.elapsed_ms >= self.ms else _GO_ON


class NoToolCalls(_Predicate):
    """Stops when the last model call requested no tool."""

    kind: Literal["noToolCalls"] = "noToolCalls"

    def start(self) -> Check:
        return lambda s: _NO_TOOL_CALLS if s.step_count >= 1 and not s.asked_for_tools else _GO_ON


class Never(_Predicate):
    """Never stops; limits, an error or a cancellation end the loop."""

    kind: Literal["never"] = "never"

    def start(self) -> Check:
        return lambda s: _GO_ON


class OutputContains(_Predicate):
    """Stops when the text of the last output contains a marker."""

    kind: Literal["outputContains"] = "outputContains"
    marker: str

    def start(self) -> Check:
        return lambda s: Verdict(True, f"Output contains {self.marker!r}") if self.marker in s.last_text else _GO_ON


class OutputEquals(_Predicate):
    """Stops when the text of the last output equals a given text."""

    kind: Literal["outputEquals"] = "outputEquals"
    sentinel: str

    def start(self) -> Check:
        return lambda s: Verdict(True, f"Output equals {self.sentinel!r}") if s.last_text == self.sentinel else _GO_ON


class Converged(_Predicate):
    """Stops when two consecutive outputs are equal, or nearly equal by their embeddings."""

    kind: Literal["converged"] = "converged"
    threshold: FiniteFloat = 1.0
    """Cosine at which two outputs count as equal; used below 1, with `embed`."""
    embed: Callable[[str], Any] | None = None
    """Sync function from a text to a vector."""

    @property
    def is_immediate(self) -> bool:
        """Whether no texts are embedded."""
        return self.embed is None

    def start(self) -> Check:
        last: list[str] = []

        def check(s: LoopSnapshot) -> Verdict:
            before = last[0] if last else None
            last[:] = [s.last_text]  # stored before the comparison: `embed` may raise, and the next round needs it
            if before is None:
                return _GO_ON
            # At 1 only equal texts count, which need no embedding.
            if self.embed is not None and self.threshold < 1:
                near = _cosine(self.embed(before), self.embed(s.last_text))
                return Verdict(True, f"Output converged (similarity {near:.3f})") if near >= self.threshold else _GO_ON
            return Verdict(True, "Output converged") if before == s.last_text else _GO_ON

        return check


class Verified(_Predicate):
    """Stops when a function accepts the last output; otherwise `prepare_next` of the loop gets its feedback."""

    kind: Literal["verified"] = "verified"
    verify: Callable[[Any], Any]
    """Function of the last output that returns a bool, a (pass, feedback) pair, or ``{"pass": ..., "feedback": ...}``."""

    @property
    def is_immediate(self) -> bool:
        """False: it calls a function."""
        return False

    def start(self) -> Check:
        return lambda s: _after(self.verify(s.last_output), _verified)


class Custom(_Predicate):
    """Stops when a function of the snapshot says so."""

    kind: Literal["custom"] = "custom"
    check: Callable[[LoopSnapshot], Any]
    """Returns a `Verdict`, a bool, or ``{"stop": ..., "reason": ..., "feedback": ...}``."""

    @property
    def is_immediate(self) -> bool:
        """False: it calls a function."""
        return False

    def start(self) -> Check:
        return lambda s: _after(self.check(s), _verdict)


class _Members(_Predicate):
    predicates: tuple[UntilPredicate, ...]

    settles: ClassVar[bool]
    """The verdict of one member that makes the other members irrelevant."""

    @property
    def is_immediate(self) -> bool:
        """Whether all members return at once."""
        return False not in [predicate.is_immediate for predicate in self.predicates]

    def _card(self) -> Card:
        return replace(super()._card(), facts=[("", predicate) for predicate in self.predicates])

    def start(self) -> Check:
        checks = [predicate.start() for predicate in self.predicates]
        settles = self.settles

        def check(snapshot: LoopSnapshot) -> Any:
            verdicts: list[Verdict] = []
            for position, one in enumerate(checks):
                verdict = one(snapshot)
                if verdict is _GO_ON and settles:
                    continue  # nothing to add, and the others are evaluated anyway
                if type(verdict) is not Verdict and hasattr(verdict, "__await__"):
                    # A coroutine only here: predicates are nearly always sync, and one per iteration would be wasteful.
                    return rest(snapshot, verdicts, verdict, checks[position + 1 :])
                verdicts.append(verdict)
                if verdict.stop is settles:
                    break
            return _merged(verdicts, settles) if verdicts or not settles else _GO_ON

        async def rest(
            snapshot: LoopSnapshot, verdicts: list[Verdict], first: Awaitable[Any], others: list[Check]
        ) -> Verdict:
            verdicts.append(await first)
            for one in others:
                if verdicts[-1].stop is settles:
                    break
                verdicts.append(await awaited(one(snapshot)))
            return _merged(verdicts, settles)

        return check


class Any_(_Members):
    """Stops when any member stops, without evaluating the rest; feedback of the evaluated members is joined by newlines."""

    kind: Literal["any"] = "any"
    settles: ClassVar[bool] = True


class All(_Members):
    """Stops when every member stops; evaluation ends at the first that does not."""

    kind: Literal["all"] = "all"
    settles: ClassVar[bool] = False


def _merged(verdicts: Sequence[Verdict], settles: bool) -> Verdict:
    """Return one verdict from those of the evaluated members; without members, the one that `settles` negates."""
    if len(verdicts) == 1 and verdicts[0].stop and verdicts[0].reason:
        return verdicts[0]
    stop = verdicts[-1].stop if verdicts else not settles
    reasons = "; ".join([v.reason for v in verdicts if v.stop and v.reason])
    feedback = "\n".join([v.feedback for v in verdicts if v.feedback])
    # A member may stop without a reason; a reason is made up only if there are no members.
    reason = reasons or (None if verdicts else "Nothing is left to wait for")
    return Verdict(stop, reason if stop else None, feedback or None)


UntilPredicate: TypeAlias = Annotated[
    MaxSteps | MaxCost | MaxDuration | NoToolCalls | Never | OutputContains | OutputEquals | Converged | Verified
    | Custom | Any_ | All,
    Field(discriminator="kind"),
]  # fmt: skip


def _after(value: Any, read: Callable[[Any], Verdict]) -> Any:
    """Convert the result of a user function, now or once it is awaited."""
    if not hasattr(value, "__await__"):
        return read(value)

    async def later() -> Verdict:
        return read(await value)

    return later()


def _text_or_none(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _verified(value: Any) -> Verdict:
    if isinstance(value, Mapping):
        # `pass` is not a valid attribute name in Python, so objects use `passed`.
        passed, feedback = value.get("pass", value.get("passed")), value.get("feedback")
    elif isinstance(value, tuple) and len(value) == 2:
        passed, feedback = value
    else:
        passed, feedback = getattr(value, "passed", value), getattr(value, "feedback", None)
    # Truthiness is not enough: a verifier that forgot its `return` would silently reject for ever.
    if not isinstance(passed, bool):
        raise TypeError(f"A verifier must return a bool, (pass, feedback) or a mapping with 'pass', not {value!r:.80}.")
    return Verdict(passed, "Verified" if passed else None, _text_or_none(feedback))


def _verdict(value: Any) -> Verdict:
    if isinstance(value, Verdict):
        return value
    if isinstance(value, bool):
        return Verdict(value)
    if isinstance(value, Mapping) and isinstance(value.get("stop"), bool):
        return Verdict(value["stop"], _text_or_none(value.get("reason")), _text_or_none(value.get("feedback")))
    raise TypeError(f"A predicate must return a Verdict, a bool or a mapping with 'stop', not {value!r:.80}.")


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of two vectors, 0 if one has zero length."""
    size = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / size if size else 0.0


class until:
    """Builders of loop predicates.

    See docs/behaviour/steps.md, "Loop predicates".

    Examples
    --------
    >>> check = until.any(until.no_tool_calls(), until.max_steps(3)).start()
    >>> check(LoopSnapshot(step_count=3, last_step_meta={"tool_calls": ["lookup"]}))
    Verdict(stop=True, reason='Reached max steps (3)', feedback=None)
    >>> check = until.any(until.verified(lambda text: (False, "Too long.")), until.max_steps(9)).start()
    >>> check(LoopSnapshot(step_count=1, last_output="...")).feedback
    'Too long.'
    """

    @staticmethod
    def max_steps(n: int) -> MaxSteps:
        """Stop after n successful iterations."""
        return MaxSteps(n=n)

    @staticmethod
    def max_cost(usd: float) -> MaxCost:
        """Stop when the execution has cost this many US dollars."""
        return MaxCost(usd=usd)

    @staticmethod
    def max_duration(ms: float) -> MaxDuration:
        """Stop when the loop has run for this many milliseconds."""
        return MaxDuration(ms=ms)

    @staticmethod
    def no_tool_calls() -> NoToolCalls:
        """Stop when the last model call requested no tool."""
        return NoToolCalls()

    @staticmethod
    def never() -> Never:
        """Never stop."""
        return Never()

    @staticmethod
    def output_contains(marker: str) -> OutputContains:
        """Stop when the text of the last output contains a marker."""
        return OutputContains(marker=marker)

    @staticmethod
    def output_equals(sentinel: str) -> OutputEquals:
        """Stop when the text of the last output equals `sentinel`."""
        return OutputEquals(sentinel=sentinel)

    @staticmethod
    def converged(threshold: float = 1.0, embed: Callable[[str], Any] | None = None) -> Converged:
        """Stop when two consecutive outputs are equal; with `embed`, when their cosine reaches the threshold."""
        return Converged(threshold=threshold, embed=embed)

    @staticmethod
    def verified(verify: Callable[[Any], Any]) -> Verified:
        """Stop when a function accepts the last output; otherwise `prepare_next` of the loop gets its feedback."""
        return Verified(verify=verify)

    @staticmethod
    def custom(check: Callable[[LoopSnapshot], Any]) -> Custom:
        """Stop when a function of the snapshot says so."""
        return Custom(check=check)

    @staticmethod
    def any(*predicates: UntilPredicate) -> Any_:
        """Stop when any of these stops; without any, never."""
        return Any_(predicates=predicates)

    @staticmethod
    def all(*predicates: UntilPredicate) -> All:
        """Stop when all of these stop; without any, at once."""
        return All(predicates=predicates)
