"""Exercises on steps: a loop that surely ends, a parallel jury, and a payment that is made once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.lessons._exercise import Exercise
from noetic_nb.models import CallTool, ScriptedModel
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steps import Step, react, step, tool
from noetic_nb.storage import InMemoryStorage


async def _output(agent: Step, said: str = "Begin.") -> Any:
    return (await AgentHarness(AgentConfig(name="learner", step=agent)).execute(said)).output


# The accepted outputs, and the allowed rounds: accepted at once, on the way, in the last round, too late, never, and
# again after a refusal.
_LOOPS: Final[tuple[tuple[frozenset[int], int], ...]] = (
    (frozenset({1}), 4), (frozenset({3}), 5), (frozenset({4}), 4), (frozenset(), 3), (frozenset({2, 4}), 6),
    (frozenset({5}), 2), (frozenset(), 1), (frozenset({2, 3, 4, 5, 6, 7, 8}), 8),
)  # fmt: skip


async def _loop(answer: Any) -> str | None:
    for accepted, most in _LOOPS:
        done: list[int] = []

        def work(value: Any, ctx: Any, done: list[int] = done) -> int:
            done.append(len(done) + 1)
            if len(done) > 20:
                raise RuntimeError("the work was done more than twenty times")
            return done[-1]

        def accepts(output: Any, accepted: frozenset[int] = accepted) -> bool:
            return output in accepted

        expected = next((number for number in range(1, most + 1) if number in accepted), most)
        case = f"Accepted are {sorted(accepted) or 'none'} of the outputs 1, 2, 3, …, at most {most} rounds"
        try:
            output = await _output(answer(step.run("work", work), accepts, most))
        except NoeticError as error:
            return f"{case}: the turn failed, {error}"
        if (len(done), output) != (expected, expected):
            return f"{case}: {expected} rounds with the output {expected}; yours made {len(done)}, with the output {output!r}."
    return None


# The jurors' votes, None for a failed one, and the number of loop iterations after which each ends.
_JURIES: Final[tuple[tuple[tuple[str | None, ...], tuple[int, ...]], ...]] = (
    (("pay", "refuse", "pay"), (0, 0, 0)),
    (("refuse", "pay", "pay"), (0, 0, 0)),
    (("pay", "refuse", "refuse", None, "wait"), (0, 3, 1, 0, 0)),
    ((None, None, "wait"), (0, 0, 2)),
    # A tie: the first in the order of jurors wins, not the first to answer or the first by the alphabet.
    (("wait", "pay"), (5, 0)),
    (("refuse", "pay", "pay", "refuse", "wait"), (9, 0, 0, 1, 0)),
    (("pay", "wait", "wait", None, None, "pay"), (0, 4, 0, 0, 0, 0)),
    (("b", "a", "c", "c", "a", "b"), (2, 0, 1, 0, 0, 4)),
    # Failures are not votes, however many there are.
    (("pay", None, None, None), (0, 0, 0, 0)),
    (("z", "y", "x", "w", "v", "u"), (0, 0, 0, 0, 0, 0)),
)


def _juror(number: int, word: str | None, late: int, asked: list[int]) -> Step:
    async def speak(value: Any, ctx: Any) -> str:
        asked.append(number)
        for _ in range(late):
            await asyncio.sleep(0)
        if word is None:
            raise ValueError("no opinion")
        return word

    return step.run(f"juror-{number}", speak)


def majority(words: Sequence[str | None]) -> str:
    """Return the most frequent word, ignoring None; the first one in a tie."""
    votes = [word for word in words if word is not None]
    return max(votes, key=votes.count)


async def _jury(answer: Any) -> str | None:
    for words, late in _JURIES:
        asked: list[int] = []
        jurors = [_juror(number, *each, asked) for number, each in enumerate(zip(words, late, strict=True))]
        shown = ", ".join("(fails)" if word is None else word for word in words)
        try:
            output = await _output(answer(jurors), "Shall we pay?")
        except NoeticError as error:
            return f"Jurors: {shown}. The turn failed: {error}"
        if sorted(asked) != list(range(len(words))):
            return f"Jurors: {shown}. Each is to be asked once; asked were numbers {sorted(asked)}."
        if output != majority(words):
            return f"Jurors: {shown}. The answer is {majority(words)!r}, yours is {output!r}."
    return None


_Bank = list[tuple[Any, float]]


class _Cut:
    """The state after a power cut: the storage, and the bank's records."""

    def __init__(self, storage: dict[str, Any], bank: _Bank) -> None:
        self.storage, self.bank = storage, bank


async def _paid(answer: Any, amounts: Sequence[float], turns: int, cuts: list[_Cut], cut: _Cut | None) -> _Bank:
    """Pay in some turns, or continue after a cut; return the bank's records, and add every possible cut to `cuts`."""
    storage, bank = InMemoryStorage(), list(cut.bank) if cut else []
    for key, value in (cut.storage if cut else {}).items():
        await storage.set(key, value)

    async def moment() -> None:
        cuts.append(_Cut({key: await storage.get(key) for key in await storage.list("")}, list(bank)))

    @tool
    async def pay(amount: float, ctx: Any) -> str:
        """Pay an amount."""
        await moment()
        answer(bank, amount, ctx)
        await moment()
        return "paid"

    config = AgentConfig(name="cashier", step=react(model="scripted", tools=[pay]))

    def reply(request: Any) -> Any:
        done = sum(item.get("type") == "function_call_output" for item in request.items)
        users = sum(item.get("role") == "user" for item in request.items)
        return "Paid." if done >= users * len(amounts) else CallTool("pay", amount=amounts[done % len(amounts)])

    harness = AgentHarness(config, model=ScriptedModel(reply), storage=storage, checkpoints=True)
    if cut is None:
        for _ in range(turns):
            await harness.execute("Pay.", thread_id="bills")
    for turn in await harness.unfinished() if cut else ():
        await harness.resume(turn)
    return bank


_PAYMENTS: Final[tuple[tuple[tuple[float, ...], int], ...]] = (
    ((80.0,), 1),
    ((20.0, 30.0), 1),
    ((25.0, 25.0, 25.0), 1),  # the same amount three times is three payments
    ((10.0,), 2),  # and in the next turn as well
)


async def _charge(answer: Any) -> str | None:
    for amounts, turns in _PAYMENTS:
        cuts: list[_Cut] = []
        expected = list(amounts) * turns
        case = f"{turns} turn{'s' * (turns > 1)} with payments of {', '.join(f'{amount:g}' for amount in amounts)}"
        bank = await _paid(answer, amounts, turns, cuts, None)
        if [amount for _, amount in bank] != expected:
            return f"{case}, and the power does not fail: the bank has {[amount for _, amount in bank]}."
        for number, cut in enumerate(cuts):
            done = number // (2 * len(amounts)) + 1  # turns that have begun
            bank = await _paid(answer, amounts, turns, [], cut)
            if [amount for _, amount in bank] != list(amounts) * done:
                when = "before" if number % 2 == 0 else "after"
                return (
                    f"{case}; the power fails right {when} payment {number // 2 + 1}: the bank has "
                    f"{[amount for _, amount in bank]} when the turn has gone on to its end."
                )
    return None


STEPS: Final = (
    Exercise("5.1", "until_accepted", _loop, (
        "Two things may end the loop. Section 2 has a predicate for each, and one that puts them together.",
        "until.verified(accepts) or until.custom(lambda seen: accepts(seen.last_output)), and until.max_steps(most).",
        "nn.until.any(first, second) stops as soon as one of them does; all would wait for both.",
    )),
    Exercise("5.2", "majority", _jury, (
        "Look at the jury of section 3: which mode goes on where a juror fails?",
        "merge gets dictionaries with 'status', and 'value' where it is 'fulfilled'. Make a list of these values.",
        "max(votes, key=votes.count) is the first of those with most votes.",
    )),
    Exercise("5.3", "charge", _charge, (
        "Give each payment a name in the bank, and look for the name before you append.",
        "The amount is not a name: two payments may have the same. Neither is ctx.id, which is that of the whole turn.",
        "ctx.idempotency_key names this very call, also when it is made again.",
    )),
)  # fmt: skip
