"""Agent patterns: plain functions that compose steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._declared import MemoryConfig
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._builders import loop, spawn, step
from noetic_nb.steps._loops.loop_predicates import until
from noetic_nb.steps._records import Incomplete, LoopStep, SpawnStep
from noetic_nb.steps._tools import Tool

__all__ = ["react"]


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
    """Reason and act: ask the model, run the tools it calls, until it calls none.

    Parameters
    ----------
    model : str
        Name of the model.
    instructions : str or callable, optional
        System text, or a function of the context.
    tools : Tool, callable, or iterable of these, optional
        What it may call, beside what the agent's layers provide. None means all tools of the agent, an empty list means
        none at all.
    max_steps : int
        Most model calls.
    max_cost : float, optional
        US dollars at which no further call is made; None or 0 for no limit.
    params : ModelParams, optional
        Sampling parameters.
    memory : MemoryConfig or iterable of MemoryLayer, optional
        Layers of its own, instead of the agent's: the loop is then spawned with a copy of the conversation. Layers that
        enforce rules stay.
    drop : iterable of str
        Ids of the agent's layers to do without, those that enforce rules too; see `spawn`.
    incomplete : {"return", "continue", "error"}, optional
        What to do about an answer that was cut off, instead of the agent's: return it marked, ask for the rest of it (where
        the limit of tokens was reached), or fail with ``llm_failed``.

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
        raise NoeticConfigError(
            "INVALID_STEP", "react needs at least one step.", given=max_steps, hint="max_steps >= 1."
        )
    ask = step.llm(
        "react",
        model=model,
        instructions=instructions,
        tools=tools,
        params=params,
        tool_rounds=1,
        incomplete=incomplete,
    )
    # 0 is no limit: as one it would end the loop after its first call.
    limits = [until.max_cost(max_cost)] if max_cost else []
    stop = until.any(until.no_tool_calls(), until.max_steps(max_steps), *limits)
    # The conversation itself is the input of the next round; nothing is added to it on the way.
    whole = loop("react-loop", ask, until=stop, max_iterations=max_steps, feed_output=False)
    if memory is None and not drop:
        return whole
    return spawn("react-agent", whole, context_in="inherit", memory=memory, drop=drop)
