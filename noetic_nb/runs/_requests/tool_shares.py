"""The tokens of a request's tools, tool by tool."""

from __future__ import annotations

from itertools import accumulate

from noetic_nb.events import OfferedTool, RequestPrepared
from noetic_nb.runs._requests.recorded_counter import prepared_counter
from noetic_nb.steps._tools import spec_tokens
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["tool_tokens"]


def tool_tokens(prepared: RequestPrepared | None, total: int) -> tuple[tuple[str, int], ...]:
    """Return the tools that a request offered with their tokens, which add up to `total`; empty where it is not known.

    What is billed around all definitions together is divided in proportion.

    Examples
    --------
    >>> tool_tokens(None, 120)
    ()
    """
    if prepared is None or not prepared.tools:
        return ()
    counter = prepared_counter(prepared) or estimate_tokens
    sums = [0, *accumulate([_definition_tokens(tool, counter) for tool in prepared.tools])]
    ends = [round(total * each / sums[-1]) for each in sums]
    return tuple([(tool.name, ends[at + 1] - ends[at]) for at, tool in enumerate(prepared.tools)])


def _definition_tokens(tool: OfferedTool, counter: Tokenizer) -> int:
    """Count one definition, without the framing that is billed once for all."""
    count = getattr(counter, "count_tools", None)
    return max(1, spec_tokens(tool, counter) if count is None else count((tool, tool)) - count((tool,)))
