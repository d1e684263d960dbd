"""Hold the prediction of cached tokens against a real provider: a few short conversations, which cost about a cent.

Run ``OPENAI_API_KEY=... python benchmarks/studies/prompt_caching_live.py`` (``--model gpt-4.1-nano``). It prints one row for each
model call, and exits with 2 where there is no key or no rule for the model. A provider promises no hit, and its tokens are not
those of the default count: predicted tokens are shown as they are, and scaled by reported over counted input tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import uuid
from collections.abc import Sequence
from typing import Final

from prompt_caching import DESIGNS, VOCABULARY, Design

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.models.prompt_caching import cache_rules
from noetic_nb.runs import Run

KEY: Final = "OPENAI_API_KEY"
TURNS: Final = 5
# Enough for the smallest cached prefix of every model in the table of rules.
WORDS: Final = 1_400


async def talk(design: Design, model: str, rng: random.Random) -> Run:
    """Return the run of a conversation with a real model."""

    @nn.tool
    def look(order: str) -> str:
        """Look up an order."""
        return " ".join(rng.choices(VOCABULARY, k=40))

    # A word that no request had before: what others cached must not count.
    instructions = f"{uuid.uuid4()} You answer in one sentence. {' '.join(rng.choices(VOCABULARY, k=WORDS))}"
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model=model, instructions=instructions, tools=[look], max_steps=3),
        memory=design.layers(),
        projection={"order": design.order},
    )
    harness = nn.AgentHarness(config, model=nn.OpenAIModel(model))
    run = nn.record(harness)
    for turn in range(TURNS):
        await harness.execute(f"Question {turn}: {' '.join(rng.choices(VOCABULARY, k=20))}?")
        await asyncio.sleep(2)  # a cache is filled behind the answer
    return run


def report(design: Design, run: Run) -> None:
    calls = (
        run.caching()
        .groupby("call")
        .agg({"tokens": "sum", "cached": "sum", "input_tokens": "first", "reported": "first"})
    )
    for call, row in calls.iterrows():
        scaled = row.cached * row.input_tokens / row.tokens
        told = (
            f"{row.tokens:>8,.0f} {row.cached:>9,.0f} {scaled:>8,.0f} {row.input_tokens:>9,.0f} {row.reported:>8,.0f}"
        )
        print(f"{design.name:<32} {call:>4,.0f} {told}")


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt-4.1-nano")
    model = parser.parse_args(given).model
    if cache_rules(model) is None:
        print(f"No rules of caching are known for {model!r}: nothing would be predicted.", file=sys.stderr)
        return 2
    if not os.environ.get(KEY):
        print(f"Set {KEY}: this asks a real provider, and costs about a cent.", file=sys.stderr)
        return 2
    print(f"{'layers':<32} {'call':>4} {'counted':>8} {'predicted':>9} {'scaled':>8} {'reported':>9} {'cached':>8}")
    for design in DESIGNS:
        try:
            report(design, asyncio.run(talk(design, model, random.Random(0))))
        except NoeticError as exc:
            print(f"{design.name}: {exc}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
