"""Cached tokens and costs of real calls: what `Run.caching` and `Run.cost` say of them, held against what was charged.

Run ``python benchmarks/studies/recorded_calls.py``; the page of prompt_caching.py has its tables. The packaged conversations
of two desks with gpt-4.1 record tokens and cost of each message, and nothing of the cache: that follows from the cost.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from inputs import interval

from noetic_nb.lab.datasets import DATA, load_tau2
from noetic_nb.models.prompt_caching import REACHED, CacheRules, cache_rules
from noetic_nb.runs import Run

FILES: Final = {"retail": "retail-gpt-4.1.json.gz", "telecom": "telecom-gpt-4.1.json.gz"}
MODEL: Final = "gpt-4.1"
# US dollars per million tokens: input, cached input, output.
PRICES: Final = (2.0, 0.5, 8.0)


class Call(NamedTuple):
    """One call of the agent: its input tokens, those that were cached, and the predictions, in tokens."""

    tokens: int
    cached: int
    predicted: float
    by_rules: float
    """What the published rules promise, the head of a first call included."""
    by_run: float
    """The same, of the calls of the conversation alone."""
    head: float
    """Promised of tools and instructions."""


def cached_by_cost(message: dict[str, Any]) -> int:
    """Return the cached tokens of a message, from its tokens and its cost; raises `AssertionError` for no whole step."""
    fresh, read, written = PRICES
    usage = message["usage"]
    charged = fresh * usage["prompt_tokens"] + written * usage["completion_tokens"] - 1e6 * message["cost"]
    cached = charged / (fresh - read)
    assert abs(cached - round(cached)) < 0.1, message
    assert round(cached) % 128 == 0, message
    return round(cached)


def messages_of(name: str, *roles: str) -> list[list[dict[str, Any]]]:
    """Return by conversation the messages that record usage and cost."""
    simulations = json.loads(gzip.decompress((DATA / FILES[name]).read_bytes()))["simulations"]
    return [
        [each for each in one["messages"] if each["role"] in roles and each.get("usage") and each["cost"] is not None]
        for one in simulations
    ]


def conversation(run: Run, messages: Sequence[dict[str, Any]], rules: CacheRules) -> list[Call]:
    """Return the calls of a conversation."""
    table, calls = run.caching(), []
    head = table[(table.call == 0) & table.part.isin(["tools", "system"])].tokens.sum()
    sums = table.groupby("call")[["tokens", "shared", "cached"]].sum()
    assert sums.tokens.to_list() == [each["usage"]["prompt_tokens"] for each in messages]
    for each, (tokens, shared, predicted) in zip(messages, sums.itertuples(index=False), strict=True):
        promised = rules.whole(shared)
        calls.append(
            Call(
                tokens, cached_by_cost(each), predicted, promised or predicted, promised, rules.whole(min(head, shared))
            )
        )
    return calls


def conversations(name: str) -> list[list[Call]]:
    """Return the calls of each conversation of a desk."""
    rules = cache_rules(MODEL)
    assert rules is not None
    runs = load_tau2(DATA / FILES[name])
    return [conversation(run, talk, rules) for run, talk in zip(runs, messages_of(name, "assistant"), strict=True)]


def fitted(talks: Iterable[Sequence[Call]]) -> float:
    """Return the share of the promised tokens behind the head that was found, of all calls but first ones."""
    later = [call for talk in talks for call in talk[1:]]
    return sum(call.cached - call.head for call in later) / sum(call.by_rules - call.head for call in later)


def _error(talks: Iterable[Sequence[Call]], column: Callable[[Call], float]) -> float:
    calls = [call for talk in talks for call in talk]
    return 100 * (sum(map(column, calls)) / sum(call.cached for call in calls) - 1)


def _spread(talks: Sequence[Sequence[Call]], statistic: Callable[[list[Sequence[Call]]], float], digits: int) -> str:
    low, high = interval(lambda places: statistic([talks[at] for at in places]), range(len(talks)))
    sign = "+" if digits == 1 else ""
    value = statistic(list(talks))
    return f"{value:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def caching_table() -> list[str]:
    """Return the table of cached tokens, real and predicted."""
    lines = [
        "| desk | calls | input tokens | cached | first calls | alone, % | rules, % | predicted, % | share found |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in FILES:
        talks = conversations(name)
        calls = [call for talk in talks for call in talk]
        warm = sum(bool(talk[0].cached) for talk in talks)
        errors = [
            _spread(talks, lambda some, column=column: _error(some, column), 1)
            for column in (lambda c: c.by_run, lambda c: c.by_rules, lambda c: c.predicted)
        ]
        lines.append(
            f"| {name} | {len(calls):,} | {sum(call.tokens for call in calls):,} | {sum(call.cached for call in calls):,} | "
            f"{warm} of {len(talks)} | {' | '.join(errors)} | {_spread(talks, fitted, 3)} |"
        )
    return lines


def cost_table() -> list[str]:
    """Return the table of costs, recorded and by tokens and prices."""
    lines = [
        "| desk | messages | recorded, USD | by tokens and prices, USD | without a cache, USD |",
        "|---|---|---|---|---|",
    ]
    for name in FILES:
        talks = [talk for talk in messages_of(name, "assistant", "user") if talk]
        costs = [_told(talk, with_cache=True) for talk in talks], [_told(talk, with_cache=False) for talk in talks]
        recorded = sum(each["cost"] for talk in talks for each in talk)
        lines.append(
            f"| {name} | {sum(map(len, talks)):,} | {recorded:.6f} | {sum(costs[0]):.6f} | {sum(costs[1]):.6f} |"
        )
    return lines


def _told(messages: Iterable[dict[str, Any]], *, with_cache: bool) -> float:
    """Return what `Run.cost` says of messages that have no cost."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Hello."}]
    for each in messages:
        details = {"prompt_tokens_details": {"cached_tokens": cached_by_cost(each)}} if with_cache else {}
        told.append({"role": "assistant", "content": "Yes.", "model": MODEL, "usage": {**each["usage"], **details}})
    cost = Run.from_messages(told).cost()
    assert cost is not None
    return cost


def lines() -> list[str]:
    """Return the section of the page on real calls."""
    return [
        "These are packaged conversations of two tau2-bench desks with gpt-4.1, recorded in August 2025. A message records its",
        "tokens and its cost but no cached tokens. They follow from the cost at 2, 0.5 and 8 US dollars per million input,",
        "cached and output tokens, and are a multiple of 128 for every message. Percentages are errors of the sum over all",
        "calls, with 95 % intervals from a bootstrap over whole conversations (1,000 samples).",
        "",
        *caching_table(),
        "",
        "*Alone*: the rules applied to each conversation separately, so first calls have no cached tokens. In fact first calls",
        "were cached, because all conversations of a desk share their tools and instructions. *Rules*: with this shared head.",
        "That is too much, because a call may reach a machine that has cached the head but not the previous call. *Share found*:",
        f"the cached share of the tokens after the head. The library uses the value of retail, {REACHED['openai']} (`REACHED`),",
        "so *predicted*, by `Run.caching()`, is fitted on retail and not on telecom.",
        "",
        "Costs of the agent and of the simulated user in the same files:",
        "",
        *cost_table(),
        "",
        "*By tokens and prices* is `Run.cost()` of the messages without their costs, with these multiples of 128 as",
        "cached tokens.",
    ]


if __name__ == "__main__":
    print("\n".join(lines()))
