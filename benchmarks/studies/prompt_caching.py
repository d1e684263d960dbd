"""What memory costs where a provider caches prompts: the same conversation with several sets of layers.

Run ``python benchmarks/studies/prompt_caching.py``; ``--write`` keeps the page in docs/studies. Nothing is asked of a provider:
models are simulated, and cache by the published rules. Each prediction is held against what the simulated provider reports, and
those of real calls against what they cost (recorded_calls.py).
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import recorded_calls
from inputs import publish

import noetic_nb as nn
from noetic_nb.events import ModelCalled
from noetic_nb.lab import what_if_cached
from noetic_nb.layers import history_window, semantic_recall
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.models.prompt_caching import CACHE_RULES, CacheRules, cache_rules
from noetic_nb.runs import Run
from noetic_nb.testing import FakeClock, SeededIds, SimulatedProvider

SEED: Final = 0
TURNS: Final = 8
# Of a question, an answer and the output of the tool that each turn calls once.
WORDS: Final = (40, 70, 70)
TEXT: Final = (
    "the parcel from Lyon was sent by train with a blue cup and came late so that Ann wrote to the desk about order A17 "
    "which nobody had seen since Monday when it rained in Metz"
)
VOCABULARY: Final = TEXT.split()
# A tenth of the price for every token of the shared prefix, however short, for an hour.
TENTH: Final = CacheRules("simulated, without a smallest size", ".*", 0, 1, 3_600_000.0, 0.1)
MODELS: Final = ("gpt-4o", "gpt-4.1", "gpt-5", "claude-sonnet-4-5")
LONG: Final = 1_500
"""Tokens of instructions of the usual length."""


class Design(NamedTuple):
    """Layers, and where they stand."""

    name: str
    layers: Callable[[], Sequence[MemoryLayer]]
    order: str = "slot"


def clock() -> MemoryLayer:
    """Return a layer that shows which turn it is."""
    hooks = MemoryHooks(recall=lambda p: f"This is turn {p.ctx.turn}.")
    return MemoryLayer(id="clock", slot=80, scope="thread", placement="suffix", hooks=hooks)


DESIGNS: Final = (
    Design("plain history", tuple),
    Design("semantic_recall", lambda: [semantic_recall()]),
    Design('semantic_recall, order="cache"', lambda: [semantic_recall()], "cache"),
    Design("a clock", lambda: [clock()]),
    Design('a clock, order="cache"', lambda: [clock()], "cache"),
    Design("history_window(6)", lambda: [history_window(6)]),
)


def talk(design: Design, model: str, rules: CacheRules | None, instructions: str) -> Run:
    """Return the run of a conversation; the words are the same for every design."""
    rng = random.Random(SEED)
    texts = [" ".join(rng.choices(VOCABULARY, k=words)) for _ in range(TURNS) for words in WORDS]
    questions, answers, outputs = texts[::3], iter(texts[1::3]), iter(texts[2::3])

    @nn.tool
    def look(order: str) -> str:
        """Look up an order."""
        return next(outputs)

    def answer(request: Any) -> Any:
        return (
            next(answers) if request.items[-1]["type"] == "function_call_output" else nn.CallTool("look", order="A17")
        )

    clock_ = FakeClock()
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model=model, instructions=instructions, tools=[look]),
        memory=design.layers(),
        projection={"order": design.order},
    )
    provider = SimulatedProvider(nn.ScriptedModel(answer, ids=SeededIds(1)), rules=rules, clock=clock_)
    harness = nn.AgentHarness(config, model=provider, clock=clock_, ids=SeededIds(2))
    run = nn.record(harness)

    async def ask() -> None:
        for question in questions:
            await harness.execute(question)
            clock_.advance(20_000)

    asyncio.run(ask())
    return run


class Sums(NamedTuple):
    """Of all calls of a run, in tokens; `paid` at the price of ordinary input tokens."""

    sent: int
    shared: int
    cached: int
    paid: float


def sums(table: Any) -> Sums:
    return Sums(*[table[name].sum() for name in ("tokens", "shared", "cached", "paid")])


def checked(run: Run, rules: CacheRules | None) -> Sums:
    """Return the sums of a run whose every call is predicted to the token; raises `AssertionError` otherwise."""
    table = run.caching(rules=rules)
    reported = [call.cached_tokens for call in run.select(ModelCalled)]
    assert table.groupby("call").cached.sum().to_list() == reported, "the prediction is not what was reported"
    return sums(table)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def change(now: float, before: float) -> str:
    return "" if now == before else f"{100 * (now / before - 1):+.0f} %"


def toy() -> list[str]:
    """Return the table of the designs where the shared prefix costs a tenth."""
    lines = [
        "| layers | tokens sent | | prefix kept | cost, in tokens of ordinary input | |",
        "|---|---|---|---|---|---|",
    ]
    plain: Sums | None = None
    for design in DESIGNS:
        found = checked(talk(design, "simulated-toy", TENTH, "Be brief."), TENTH)
        plain = plain or found
        kept = percent(found.shared / found.sent)
        lines.append(
            f"| {design.name} | {found.sent:,} | {change(found.sent, plain.sent)} | {kept} | {found.paid:,.0f} | "
            f"{change(found.paid, plain.paid)} |"
        )
    return lines


def published() -> list[str]:
    """Return the table of the designs under published rules."""
    lines = [f"| layers | {' | '.join(MODELS)} |", "|---|" + "---|" * len(MODELS)]
    instructions = "You answer for a shop. " * (LONG * 4 // 23)
    for design in DESIGNS:
        cells = []
        for model in MODELS:
            found = checked(talk(design, f"simulated-{model}", None, instructions), None)
            cells.append(f"{percent(found.cached / found.sent)}, {found.paid:,.0f}")
        lines.append(f"| {design.name} | {' | '.join(cells)} |")
    return lines


def what_ifs() -> list[str]:
    """Return the table of what other orders would do to one recorded run."""
    run = talk(DESIGNS[1], "simulated-toy", TENTH, "Be brief.")
    (layer_id,) = {part.removeprefix("layer:") for part in run.caching().part if part.startswith("layer:")}
    questions: dict[str, dict[str, Any]] = {
        "as it was": {},
        f'`last=["{layer_id}"]`': {"last": [layer_id]},
        f'`freeze={{"{layer_id}": 2}}`': {"freeze": {layer_id: 2}},
        f'`freeze={{"{layer_id}": 4}}`': {"freeze": {layer_id: 4}},
    }
    lines = ["| what if | prefix kept | cost, in tokens of ordinary input | |", "|---|---|---|---|"]
    before = 0.0
    for name, changes in questions.items():
        found = sums(what_if_cached(run, rules=TENTH, **changes))
        before = before or found.paid
        lines.append(
            f"| {name} | {percent(found.shared / found.sent)} | {found.paid:,.0f} | {change(found.paid, before)} |"
        )
    return lines


def rules_of() -> list[str]:
    lines = ["| models | least | steps | kept | read | write | source | read on |", "|---|---|---|---|---|---|---|---|"]
    for rules in CACHE_RULES:
        models = rules.models.replace("|", "\\|")
        steps = "behind marks" if rules.marked else f"{rules.block}"
        lines.append(
            f"| `{models}` | {rules.minimum:,} | {steps} | {rules.lifetime_ms / 60_000:g} min | {rules.read:g} | {rules.write:g} "
            f"| {rules.source} | {rules.date} |"
        )
    return lines


def page() -> str:
    """Return the page of the study."""
    assert cache_rules("simulated-gpt-4o") == replace(CACHE_RULES[0], provider="simulated openai")
    lines = [
        "# What memory costs where prompts are cached",
        "",
        "Which arrangement of memory layers keeps a cached prompt prefix, and what does each arrangement cost?",
        "",
        "Written by `python benchmarks/studies/prompt_caching.py --write`; every figure on this page is computed by it.",
        "",
        "* **Simulated**, except for the section on real calls. `noetic_nb.testing.SimulatedProvider` answers and caches by the",
        "  rules at the end of this page. The script checks that `Run.caching` predicts the cached tokens of every call exactly.",
        "  `benchmarks/studies/prompt_caching_live.py` calls a real provider.",
        f"* **Conversation**: {TURNS} turns with one tool call each, so {2 * TURNS} model calls. Questions, answers and outputs",
        f"  have {WORDS[0]}, {WORDS[1]} and {WORDS[2]} words and are the same in every row. **Seed** {SEED}.",
        f"* **Versions**: noetic_nb {version('noetic_nb')}, Python {platform.python_version()}.",
        "",
        "## If a cached token costs a tenth",
        "",
        "No minimum prompt size, and instructions of two words. *Prefix kept* is the share of the sent tokens that a call has in",
        "common with the beginning of the previous call. Changes are relative to plain history.",
        "",
        *toy(),
        "",
        "A window sends the fewest tokens and still costs more than plain history: its start moves at every call, so nothing",
        "after that point is cached. When a layer changes its text, everything after it is paid in full. If the layer stands",
        "just before the question, the history before it stays cached.",
        "",
        "## Under published rules",
        "",
        f"Instructions of {LONG:,} tokens. Cells: the cached share of the sent tokens, and the cost in tokens of uncached input.",
        "",
        *published(),
        "",
        "If a cached token costs a half or a quarter, sending fewer tokens saves more than keeping the prefix. Claude caches",
        "only up to marked positions: a layer just before the question changes the text before the last mark, so reordering",
        "gains less.",
        "",
        "## Real calls",
        "",
        *recorded_calls.lines(),
        "",
        "## What if",
        "",
        "One recorded run with `semantic_recall`, rearranged by `lab.what_if_cached`. Costs are as in the first table.",
        "",
        *what_ifs(),
        "",
        "## The rules",
        "",
        "*Least* and *steps* are in tokens. *Kept* is the time since the last use. *Read* and *write* are the prices of a token",
        "read from the cache or written to it, relative to uncached input.",
        "",
        *rules_of(),
        "",
    ]
    return "\n".join(lines)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the page in docs/studies")
    publish(page(), "prompt_caching.md", write=parser.parse_args(given).write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
