"""Patterns in which several agents, or one agent several times, work on a task: plain functions that compose steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from noetic_nb.errors import NoeticConfigError
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._builders import branch, fork, loop, spawn, step
from noetic_nb.steps._channel_type import DEFAULT_TIMEOUT_MS, Channel
from noetic_nb.steps._loops.loop_predicates import UntilPredicate, until
from noetic_nb.steps._loops.loop_snapshot import Verdict
from noetic_nb.steps._patterns import react
from noetic_nb.steps._records import BranchStep, ForkStep, LoopStep, Step
from noetic_nb.steps._tools import Tool
from noetic_nb.sync import awaited

__all__ = ["dual_agent", "ralph_wiggum", "recursive_llm"]

CONTINUE: Final = "Continue with the task."


def ralph_wiggum(
    *,
    model: str,
    verify: Callable[[Any], Any],
    instructions: str | Callable[..., Any] | None = None,
    tools: Tool | Iterable[Tool | Callable[..., Any]] | Callable[..., Any] | None = None,
    max_iterations: int = 50,
    inner_max_steps: int = 20,
    params: ModelParams | None = None,
) -> LoopStep:
    """Try again from a fresh context until the result is accepted.

    Each iteration is an agent that knows nothing of the ones before it, except the task and what was wrong with the last
    result.

    Parameters
    ----------
    model, instructions, tools, params
        As for `react`.
    verify : callable
        From a result to a bool, a (pass, feedback) pair, or ``{"pass": ..., "feedback": ...}``; sync or async.
    max_iterations : int
        Attempts; the last result is returned when none was accepted.
    inner_max_steps : int
        Most model calls of one attempt.

    References
    ----------
    .. [1] Geoffrey Huntley, "Ralph Wiggum as a software engineer", 2025.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> from noetic_nb.steps import ralph_wiggum
    >>> stubborn = ralph_wiggum(model="scripted", verify=lambda text: (text == "42", "Only the number."))
    >>> model = nn.ScriptedModel(["It is 42.", "42"])
    >>> harness = nn.AgentHarness(nn.AgentConfig(name="ralph", step=stubborn), model=model)
    >>> asyncio.run(harness.execute("What is six times seven?")).text
    '42'
    """
    agent = react(model=model, instructions=instructions, tools=tools, max_steps=inner_max_steps, params=params)
    return loop(
        "ralph-wiggum",
        spawn("attempt", agent),
        # By predicate as well: a loop that reaches `max_iterations` fails, and here the last result is wanted.
        until=until.any(until.verified(verify), until.max_steps(max_iterations)),
        max_iterations=max_iterations,
        prepare_next=_try_again,
    )


def _try_again(output: Any, verdict: Verdict, ctx: Any) -> str:
    # The task again, as an attempt begins in a fresh context and knows nothing of it.
    task = f"{ctx.query}\n\n" if ctx.query else ""
    if not verdict.feedback:
        return f"{task}{CONTINUE}"
    return f"{task}The last result was not accepted: {verdict.feedback}\n{CONTINUE}"


def recursive_llm(
    *,
    solve: Step,
    decompose: Callable[..., Any],
    merge: Callable[..., Any] | Literal["first", "last", "concat"] = "concat",
    max_depth: int = 3,
    concurrency: int | None = None,
) -> BranchStep:
    """Take a task apart until its parts can be solved, and put the results together.

    Parameters
    ----------
    solve : step
        Solves what is not taken apart further; runs in a child of its own with the part as input.
    decompose : callable
        ``decompose(input, ctx)``, sync or async, returns the parts; none or one means that the input is small enough.
    merge : callable or {"first", "last", "concat"}
        ``merge(results, ctx)`` over the results of the parts.
    max_depth : int
        How often a task is taken apart at most.
    concurrency : int, optional
        How many parts are worked on at the same time.

    References
    ----------
    .. [1] Zhang and Khattab, "Recursive Language Models", 2025.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> from noetic_nb.steps import recursive_llm
    >>> count = nn.step.run("count", lambda text, ctx: str(len(text.split())))
    >>> halves = lambda text, ctx: text.split("; ")
    >>> total = lambda counts, ctx: str(sum(map(int, counts)))
    >>> agent = recursive_llm(solve=count, decompose=halves, merge=total)
    >>> asyncio.run(nn.AgentHarness(nn.AgentConfig(name="r", step=agent)).execute("one two; three; four five")).text
    '5'
    """
    if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < 0:
        raise NoeticConfigError("INVALID_STEP", "A depth is a whole number.", given=max_depth, hint="max_depth >= 0.")

    def level(depth: int) -> BranchStep:
        async def route(value: Any, ctx: Any) -> Step:
            parts: Any = () if depth >= max_depth else await awaited(decompose(value, ctx))
            # One part is the task itself: to take it apart again would go on to the last level for nothing.
            if len(parts) < 2:
                return spawn(f"solve-{depth}", solve)
            return _parts(parts, level(depth + 1), depth, merge, concurrency)

        return branch(f"recursive-{depth}", route)

    return level(0)


def _parts(parts: Sequence[Any], inner: Step, depth: int, merge: Any, concurrency: int | None) -> ForkStep:
    paths = [
        loop(
            f"part-{number}",
            [step.run(f"take-{number}", _giving(part)), inner],
            until=until.max_steps(1),
            needs_output=False,
        )
        for number, part in enumerate(parts)
    ]
    return fork(f"parts-{depth}", mode="all", paths=paths, merge=merge, concurrency=concurrency)


def _giving(value: Any) -> Callable[..., Any]:
    return lambda _input, _ctx: value


def dual_agent(
    *,
    talker: Step,
    worker: Step,
    inbox: Channel,
    until_talk: UntilPredicate,
    until_work: UntilPredicate,
    mode: Literal["all", "race"] = "all",
    recv_timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> ForkStep:
    """Talk with someone while the work goes on.

    Parameters
    ----------
    talker : step
        Answers each message of `inbox`, in one conversation.
    worker : step
        Does one piece of work, in a fresh child each time. What both should know belongs into a layer whose scope is the
        thread or the resource.
    inbox : Channel
        Declared ``external=True``, so that messages can be sent through ``harness.channel_handle``.
    until_talk, until_work : predicate
        When each of the two stops.
    mode : {"all", "race"}
        Wait for both and return both outputs, or end with the first.
    recv_timeout_ms : float
        How long the talker waits for a message, milliseconds; running out of time ends the talk, not the work.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STEP`` for a channel that cannot be reached from outside, or a wait without an end.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> from noetic_nb.steps import dual_agent
    >>> pair = dual_agent(
    ...     talker=nn.step.run("answer", lambda text, ctx: f"you said {text}"),
    ...     worker=nn.step.run("work", lambda text, ctx: "worked"),
    ...     inbox=nn.channel("inbox", external=True),
    ...     until_talk=nn.until.max_steps(1), until_work=nn.until.max_steps(3))
    >>> async def main():
    ...     harness = nn.AgentHarness(nn.AgentConfig(name="pair"))
    ...     async with harness.execution() as ctx:
    ...         harness.channel_handle(nn.channel("inbox", external=True), ctx.id).send("hello")
    ...         return await harness.run(pair, "start", ctx)
    >>> asyncio.run(main())
    ['you said hello', 'worked']
    """
    if not inbox.external or recv_timeout_ms <= 0:
        raise NoeticConfigError(
            "INVALID_STEP",
            "The talker of a dual agent hears from outside, and not for ever.",
            given=(inbox.name, recv_timeout_ms),
            hint="Declare the channel with external=True and give a timeout above 0.",
        )

    async def receive(_input: Any, ctx: Any) -> Any:
        return await ctx.recv(inbox, timeout_ms=recv_timeout_ms)

    # Neither needs an output: a talk whose last answer is empty has still been held.
    talk = loop("talk", [step.run("hear", receive), talker], until=until_talk, needs_output=False)
    work = loop("work", spawn("task", worker), until=until_work, needs_output=False)
    # A fork in which all count needs a merge; this one hands both outputs on.
    merge = None if mode == "race" else (lambda outputs, ctx: outputs)
    return fork("dual-agent", mode=mode, paths=[talk, work], merge=merge)
