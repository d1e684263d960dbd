"""Exercises on what-if questions: certainty of an open replay, paired differences, and the position of a fork."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetic_nb.items import Item
from noetic_nb.lessons._exercise import Exercise
from noetic_nb.models import CallTool, ScriptedModel
from noetic_nb.runs import Run, record
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steps import react, tool

_Denies = Callable[[str, Sequence[str]], bool]


def certain_calls(calls: Sequence[str], denies: _Denies) -> tuple[int, int]:
    """Return the number of recorded calls that certainly happen under a rule, and the number that an open replay denies.

    ``denies(name, before)`` receives the recorded earlier calls. (docs/behaviour/lab.md, "Counterfactuals".)
    """
    verdicts = [denies(name, list(calls[:at])) for at, name in enumerate(calls)]
    return verdicts.index(True) if True in verdicts else len(calls), sum(verdicts)


# Each rule with its description for feedback. The third depends on calls that it denied itself.
_RULES: Final[tuple[tuple[str, _Denies], ...]] = (
    ("at most two looks", lambda name, before: name == "look" and before.count("look") >= 2),
    ("never pay", lambda name, before: name == "pay"),
    ("every second look", lambda name, before: name == "look" and before.count("look") % 2 == 1),
    ("pay only right after a look", lambda name, before: name == "pay" and before[-1:] != ["look"]),
    ("never look before anything else", lambda name, before: name == "look" and not before),
)
_CALLS: Final[tuple[tuple[str, ...], ...]] = (
    ("look", "look", "look", "look", "pay"), ("find", "look", "pay", "look", "look", "look", "pay"),
    ("pay", "find", "pay", "pay"), ("find", "find"), ("look",), (),
)  # fmt: skip


def _certain(answer: Any) -> str | None:
    for calls in _CALLS:
        for says, denies in _RULES:
            expected, given = certain_calls(calls, denies), answer(list(calls), denies)
            if not isinstance(given, tuple | list) or tuple(given) != expected:
                shown = ", ".join(calls) or "none"
                return f"Calls: {shown}. The rule: {says}. (certain, denied) is {expected}, your answer is {given!r}."
    return None


def paired_difference(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[float | None, int]:
    """Return the mean of after - before over the pairs with both values known, and their number.

    See docs/behaviour/lab.md, "Comparison".
    """
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    return (sum(b - a for a, b in pairs) / len(pairs) if pairs else None), len(pairs)


# Values that floats represent exactly. 0 is a known number.
_PAIRS: Final[tuple[tuple[tuple[float | None, ...], tuple[float | None, ...]], ...]] = (
    ((1.0, 2.0, 3.0), (2.0, 2.0, 5.0)),
    ((4.0, None, 1.0, 0.0), (2.0, 100.0, None, 1.0)),
    ((None, 8.0), (3.0, None)),
    ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0)),
    ((10.0, 20.0, None, None), (0.0, None, 7.0, None)),
    ((5.0,), (2.5,)),
    ((), ()),
)


def _difference(answer: Any) -> str | None:
    for before, after in _PAIRS:
        expected, given = paired_difference(before, after), answer(list(before), list(after))
        if not isinstance(given, tuple | list) or tuple(given) != expected:
            return f"Before: {list(before)}, after: {list(after)}. The answer is {expected}, yours is {given!r}."
    return None


@tool
def look(order: str) -> str:
    """Look up an order."""
    return f"Order {order}: 2 lamps."


@tool
def refund(order: str, euros: float = 10.0) -> str:
    """Pay money back."""
    return f"{euros:g} euros paid."


_LOOK, _REFUND = CallTool("look", order="A17"), CallTool("refund", order="A17")
# The model's answers, turn by turn; a list calls several tools at once.
_SCRIPTS: Final[tuple[tuple[tuple[Any, ...], ...], ...]] = (
    ((_LOOK, "It is here."), (_REFUND, "It is paid.")),
    ((_REFUND, "It is paid."), (_LOOK, _REFUND, "It is paid.")),
    (("Hello.",), ("What can I do?",), (_LOOK, _LOOK, _REFUND, "It is paid.")),
    (([_LOOK, _REFUND], "It is paid."),),
    (("I could refund it.",), ([_LOOK, _LOOK, _LOOK], _REFUND, "It is paid.")),
    (("The refund is on its way.",),),
)


async def _talk(script: Sequence[Sequence[Any]]) -> Run:
    config = AgentConfig(name="shop", step=react(model="scripted"), tools=[look, refund])
    harness = AgentHarness(config, model=ScriptedModel([answer for turn in script for answer in turn]))
    run = record(harness)
    for number in range(len(script)):
        await harness.execute(f"Message {number}, not about a refund.")
    run.stop_recording()
    return run


def _answers(run: Run) -> list[tuple[Item, ...]]:
    return [call.items for turn in run.turns for call in turn.model_calls]


def _asked_for(run: Run, name: str) -> int | None:
    answers = [[item.get("name") for item in items] for items in _answers(run)]
    return next((number for number, asked in enumerate(answers) if name in asked), None)


async def _call_of(answer: Any) -> str | None:
    for script in _SCRIPTS:
        run = await _talk(script)
        for name in ("refund", "look", "cancel"):
            expected, given = _asked_for(run, name), answer(run, name)
            if given != expected or isinstance(given, bool):
                answers = [
                    " and ".join(f"{item['name']}(...)" for item in items if item.get("type") == "function_call")
                    or "a text"
                    for items in _answers(run)
                ]
                return (
                    f"The model answered, call by call: {', '.join(answers)}. {name!r} is first asked for by call {expected}; "
                    f"your answer is {given!r}."
                )
    return None


WHAT_IF: Final = (
    Exercise("6.1", "certain", _certain, (
        "Go through the calls with their place: before is calls[:at], whatever the rule says of those.",
        "Count every call that is denied. The place of the first one is the number of calls that are certain.",
        "Where none is denied all calls are certain, len(calls).",
    )),
    Exercise("6.2", "difference", _difference, (
        "Go through both lists together with zip, and leave out pairs of which a side is None.",
        "0 is known: ask `is None`, not whether the number is true.",
        "A mean of each list on its own is over other runs where something is missing.",
    )),
    Exercise("6.3", "call_of", _call_of, (
        "Count the calls of the model, from 0, over all turns; not the calls of tools.",
        "Look at every item of an answer: it may ask for several tools, and a text may speak of one without asking for it.",
        "enumerate(run.select(nn.events.ModelCalled)), and return the number as soon as an item fits; None behind the loop.",
    )),
)  # fmt: skip
