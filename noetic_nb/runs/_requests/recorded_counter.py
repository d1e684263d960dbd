"""The token counter of a run, where it can be made again from its name, and the tokens of tools by it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, OfferedTool, RequestPrepared, RunEvent
from noetic_nb.steps._tools import spec_tokens
from noetic_nb.tokenizers._encodings import ENCODINGS
from noetic_nb.tokenizers._learning import counter_of
from noetic_nb.tokenizers._named import best_tokenizer, get
from noetic_nb.tokenizers._offline import OFFLINE
from noetic_nb.tokens import Tokenizer, estimate_tokens


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


def counter_named(name: str) -> Tokenizer | None:
    """Return the counter of an encoding, or of its stand-in; None where it is none or its vocabulary is not on this machine."""
    if name != OFFLINE and name not in ENCODINGS:
        return None
    try:
        return get(name)
    except NoeticConfigError:  # the extra is not installed here
        return None


def prepared_counter(event: RequestPrepared) -> Tokenizer | None:
    """Return the counter of a request: an encoding, or factors learned then; None where it cannot be made again here."""
    if event.counter is None:
        return counter_named(event.tokenizer)
    try:
        return counter_of(event.counter)
    except (NoeticConfigError, KeyError, TypeError, ValueError):  # on top of a function of somebody's own
        return None


def recorded_counter(events: Iterable[RunEvent]) -> Tokenizer | None:
    """Return the one encoding that counted all requests of a run, None where it was the default, another, or several."""
    names = {event.tokenizer for event in events if isinstance(event, RequestPrepared)}
    return counter_named(names.pop()) if len(names) == 1 else None


def item_counter(events: Iterable[RunEvent]) -> Tokenizer:
    """Return the counter for the items of a run: that of its plans, or the closest one known of its model."""
    events = list(events)
    if any(isinstance(event, RequestPrepared) for event in events):
        return recorded_counter(events) or estimate_tokens
    return best_tokenizer(next((event.model for event in events if isinstance(event, ModelCalled)), ""))
