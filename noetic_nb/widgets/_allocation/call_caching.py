"""How caching affects a call, for its picture: the part that broke the prefix, and the shared and cached tokens of each part."""

from __future__ import annotations

from dataclasses import dataclass, field

from noetic_nb.runs._plain_text import count, plain
from noetic_nb.runs._requests.model_calls import Calls
from noetic_nb.runs._requests.prefix_reuse import PrefixReuse

__all__ = ["BROKE", "NO_CACHING", "CallCaching", "caching_of"]

BROKE = "broke the prefix here"


@dataclass(frozen=True, slots=True)
class CallCaching:
    """A line about a call, the key of the part that broke its prefix, and by key the shared tokens as text."""

    line: str = ""
    broke: str | int | None = None
    shared: dict[str | int, str] = field(default_factory=dict)


NO_CACHING = CallCaching()
"""Of a call that is not compared, such as one that was planned again."""


def caching_of(reuse: PrefixReuse | None, calls: Calls) -> CallCaching:
    """Return the caching shown in the picture of a call; items appended behind the history count as history."""
    if reuse is None:
        return CallCaching("Caching: the run does not have all of this request.")
    shared: dict[str | int, int] = {}
    for part in reuse.parts:
        key = _key(part.origin, calls)
        shared[key] = shared.get(key, 0) + part.shared
    broke = None if reuse.broken_by is None else _key(reuse.broken_by, calls)
    line = f"{_shared(reuse)} {_cached(reuse)}"
    return CallCaching(line, broke, {key: count(tokens) for key, tokens in shared.items()})


def _key(origin: str, calls: Calls) -> str | int:
    if origin.startswith("layer:"):
        number = calls.number(origin.removeprefix("layer:"))
        return "history" if number is None else number  # a summary that stands for history
    return "history" if origin == "appended" else origin


def _shared(reuse: PrefixReuse) -> str:
    if reuse.is_first:
        return "Caching: no call of this model before it in the thread."
    share = f" ({100 * reuse.shared / reuse.tokens:.0f}%)" if reuse.tokens else ""
    begins = f"Caching: begins like the call before for {count(reuse.shared)} of {count(reuse.tokens)} tokens{share}"
    if reuse.broken_by is None:
        return f"{begins}, and goes on."
    kind, _, name = reuse.broken_by.partition(":")
    words = {"layer": f"layer {plain(name)}", "system": "the instructions", "tools": "the tools"}
    return f"{begins}: {words.get(kind, 'the history')} {BROKE}."


def _cached(reuse: PrefixReuse) -> str:
    if reuse.rules is None or reuse.cached is None:
        model = plain(reuse.model) if reuse.model else "not recorded"
        return f"No prediction: how the model ({model}) is cached is not known."
    least = "" if reuse.cached else f" (the least is {count(reuse.rules.minimum)})"
    return f"Predicted to be cached, by the rules of {plain(reuse.rules.provider)}: {count(reuse.cached)}{least}."
