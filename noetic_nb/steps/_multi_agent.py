"""Patterns in which several agents, or one agent repeatedly, work on a task: plain functions that compose steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._declared import MemoryConfig
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._builders import branch, fork, loop, spawn, step
from noetic_nb.steps._channel_type import DEFAULT_TIMEOUT_MS, Channel
from noetic_nb.steps._loops import UntilPredicate, Verdict, until
from noetic_nb.steps._records import BranchStep, ForkStep, Incomplete, LoopStep, SpawnStep, Step
from noetic_nb.steps._tools import Tool
from noetic_nb.sync import awaited


@explained(
    temperature="Sampling is set by params=ModelParams(temperature=0).",
    max_tokens="Sampling is set by params=ModelParams(max_tokens=500).",
    system="The system text is instructions='...'.",
    system_prompt="The system text is instructions='...'.",
    prompt="The system text is instructions='...'; the user's text is given to harness.execute.",
    max_iterations="Write max_steps=10.",
    positional="Name the model: react(model='gpt-4o'); its client is given to the harness.",
    model="Name the model: react(model='gpt-4o'); its client is given to the harness.",
)
def react(
    *,
    model: str,
    instructions: str | Callable[..., Any] | None = None,
    tools: Tool | Iterable[Tool | Callable[..., Any]] | Callable[..., Any] | None = None,
    max_steps: int = 10,
    max_cost: float | None = None,
    params: ModelParams | None = None,
    memory: MemoryConfig | Iterable[MemoryLayer] | None = None,
    drop: Iterable[str] = (),
    incomplete: Incomplete | None = None,
) -> LoopStep | SpawnStep:
    """Reason and act: ask the model and run the tools it calls, until it calls none.

    Parameters
    ----------
    model : str
        Name of the model.
    instructions : str or callable, optional
        System text, or a function of the context.
    tools : Tool, callable, or iterable of these, optional
        The tools it may call, in addition to those of the agent's layers. None means all tools of the agent, an empty
        list no tools at all.
    max_steps : int
        Maximum number of model calls.
    max_cost : float, optional
        US dollars after which no further call is made; None or 0 for no limit.
    params : ModelParams, optional
        Sampling parameters.
    memory : MemoryConfig or iterable of MemoryLayer, optional
        Its own layers, instead of the agent's: the loop is then spawned with a copy of the conversation. Layers that
        enforce rules stay.
    drop : iterable of str
        Ids of the agent's layers to leave out, even those that enforce rules; see `spawn`.
    incomplete : {"return", "continue", "error"}, optional
        How to handle a truncated answer, overriding the agent's setting: return it marked, ask for the rest of it (if
        the token limit was reached), or fail with ``llm_failed``.

    References
    ----------
    .. [1] Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models", ICLR 2023.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> @nn.tool
    ... def lookup(order_id: str) -> str:
    ...     "Find one order."
    ...     return "packed"
    >>> config = nn.AgentConfig(name="desk", step=react(model="scripted", tools=[lookup], max_steps=3))
    >>> model = nn.ScriptedModel([nn.CallTool("lookup", order_id="A17"), "It is packed."])
    >>> asyncio.run(nn.AgentHarness(config, model=model).execute("Where is A17?")).text
    'It is packed.'
    """
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        hint = "For example: max_steps=10."
        what = "`max_steps` is a whole number of at least 1."
        raise NoeticConfigError("INVALID_STEP", what, given=max_steps, hint=hint)
    ask = step.llm(
        "react",
        model=model,
        instructions=instructions,
        tools=tools,
        params=params,
        tool_rounds=1,
        incomplete=incomplete,
    )
    # 0 means no limit: as a limit it would end the loop after the first call.
    limits = [until.max_cost(max_cost)] if max_cost else []
    stop = until.any(until.no_tool_calls(), until.max_steps(max_steps), *limits)
    # The conversation itself is the input of the next round; nothing is added to it in between.
    whole = loop("react-loop", ask, until=stop, max_iterations=max_steps, feed_output=False)
    if memory is None and not drop:
        return whole
    return spawn("react-agent", whole, context_in="inherit", memory=memory, drop=drop)


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
    """Retry in a fresh context until the result is accepted.

    Each iteration is an agent that knows nothing of earlier ones except the task and the feedback on the last result.

    Parameters
    ----------
    model, instructions, tools, params
        As for `react`.
    verify : callable
        Function from a result to a bool, a (pass, feedback) pair, or ``{"pass": ..., "feedback": ...}``; sync or async.
    max_iterations : int
        Number of attempts; the last result is returned if none was accepted.
    inner_max_steps : int
        Maximum number of model calls in one attempt.

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
        # Also as a predicate: a loop that reaches `max_iterations` fails, but here the last result is wanted.
        until=until.any(until.verified(verify), until.max_steps(max_iterations)),
        max_iterations=max_iterations,
        prepare_next=_try_again,
    )


def _try_again(output: Any, verdict: Verdict, ctx: Any) -> str:
    # Repeat the task, because an attempt begins in a fresh context that does not contain it.
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
    """Split a task until its parts can be solved, and combine the results.

    Parameters
    ----------
    solve : step
        Solves tasks that are not split further; runs in its own child with the part as input.
    decompose : callable
        ``decompose(input, ctx)``, sync or async, returns the parts; none or one means that the input is small enough.
    merge : callable or {"first", "last", "concat"}
        ``merge(results, ctx)`` over the results of the parts.
    max_depth : int
        Maximum number of times that a task is split.
    concurrency : int, optional
        Maximum number of parts processed at the same time.

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
        raise NoeticConfigError(
            "INVALID_STEP", "Depth must be a whole number.", given=max_depth, hint="max_depth >= 0."
        )

    def level(depth: int) -> BranchStep:
        async def route(value: Any, ctx: Any) -> Step:
            parts: Any = () if depth >= max_depth else await awaited(decompose(value, ctx))
            # A single part is the task itself: splitting it again would only recurse to the last level.
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
    """Answer messages while work continues.

    Parameters
    ----------
    talker : step
        Answers each message from `inbox`, in one conversation.
    worker : step
        Does one piece of work, in a fresh child each time. Shared knowledge belongs in a layer whose scope is the
        thread or the resource.
    inbox : Channel
        Declared ``external=True``, so that messages can be sent through ``harness.channel_handle``.
    until_talk, until_work : predicate
        Predicates that stop the two loops.
    mode : {"all", "race"}
        Wait for both and return both outputs, or end with the first.
    recv_timeout_ms : float
        How long the talker waits for a message, in milliseconds; a timeout ends the talk, not the work.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STEP`` for a channel that is not external, or an infinite wait.

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
        what = "The talker of a dual agent hears from outside, and not for ever."
        hint = "Declare the channel with external=True and give a timeout above 0."
        raise NoeticConfigError("INVALID_STEP", what, given=(inbox.name, recv_timeout_ms), hint=hint)

    async def receive(_input: Any, ctx: Any) -> Any:
        return await ctx.recv(inbox, timeout_ms=recv_timeout_ms)

    # Neither needs an output: a talk with an empty last answer is still complete.
    talk = loop("talk", [step.run("hear", receive), talker], until=until_talk, needs_output=False)
    work = loop("work", spawn("task", worker), until=until_work, needs_output=False)
    # A fork with mode "all" needs a merge; this one returns both outputs.
    merge = None if mode == "race" else (lambda outputs, ctx: outputs)
    return fork("dual-agent", mode=mode, paths=[talk, work], merge=merge)
