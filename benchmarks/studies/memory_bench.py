"""Which memory layers have the evidence sent when a question is asked, and at what price.

Run ``python benchmarks/studies/memory_bench.py``; ``--write`` keeps the page in docs/studies, and its plot. Nothing is downloaded
and no model is called: dialogues are made from a seed. Extractors and observers are rules, so that layers are compared and not
models.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any, Final

from inputs import publish

from noetic_nb import lab
from noetic_nb.lab.remembering.facts import facts_of
from noetic_nb.lab.remembering.made_dialogues import made_dialogues
from noetic_nb.layers import (
    entity_memory,
    episodic_memory,
    history_window,
    hybrid_recall,
    observational_memory,
    semantic_recall,
    temporal_memory,
    tool_result_clearing,
    working_memory,
)

SEED: Final = 0
DIALOGUES: Final = 50
BUDGETS: Final = (250, 500, 1_000, 2_000, 4_000)
PAGE: Final = Path(__file__).parents[2] / "docs" / "studies"


def entities_of(text: str) -> dict[str, list[str]]:
    """Return each sentence under the names in it: the extractor that an entity memory is given here."""
    found: dict[str, list[str]] = {}
    for fact in facts_of([text])[0]:
        if fact.kind == "name":
            found.setdefault(fact.text, []).append(fact.sentence)
    return found


def telling(texts: Sequence[str]) -> list[str]:
    """Return the sentences with a name or a digit: the observer of an observational memory here."""
    kept: dict[str, None] = {}
    for facts in facts_of(texts):
        for fact in facts:
            if re.search(r"\d", fact.sentence) or fact.kind == "name":
                kept.setdefault(fact.sentence)
    return list(kept)


def dated(texts: Sequence[str], now: Any) -> dict[str, list[str]]:
    """Return the same sentences under the time of their writing."""
    return {f"{now:%Y-%m-%dT%H:%M}": telling(texts)}


SETS: Final[dict[str, Any]] = {
    "plain history": [],
    "history window 6": lambda: history_window(6),
    "tool result clearing": lambda: tool_result_clearing(400, clear_at_least=100, keep=0),
    "semantic": lambda: semantic_recall(),
    "semantic, 3 hits": lambda: semantic_recall(top_k=3),
    "hybrid": lambda: hybrid_recall(),
    "hybrid, 3 hits": lambda: hybrid_recall(top_k=3),
    "entities": lambda: entity_memory(entities_of),
    "episodes": lambda: episodic_memory(),
    "observations as they are": lambda: observational_memory(buffer_threshold=100),
    "observations, sentences with facts": lambda: observational_memory(telling, buffer_threshold=100),
    "dated facts": lambda: temporal_memory(extract=dated, buffer_threshold=100, inject_ledger=True),
    "working memory": lambda: working_memory(),
    "window 6 + semantic": lambda: [history_window(6), semantic_recall()],
    "window 6 + hybrid": lambda: [history_window(6), hybrid_recall()],
    "window 6 + entities": lambda: [history_window(6), entity_memory(entities_of)],
    "hybrid + entities": lambda: [hybrid_recall(), entity_memory(entities_of)],
    "hybrid + observations": lambda: [hybrid_recall(), observational_memory(telling, buffer_threshold=100)],
    "hybrid + episodes": lambda: [hybrid_recall(), episodic_memory()],
    "window 6 + hybrid + entities": lambda: [history_window(6), hybrid_recall(), entity_memory(entities_of)],
}


def lines_of(table: Any, kinds: dict[str, dict[float, dict[str, float]]]) -> list[str]:
    """Return the table of one budget after another, best first."""
    lines: list[str] = []
    for budget in BUDGETS:
        rows = table[table.budget == budget].sort_values(["recall", "cost_fresh"], ascending=[False, True])
        names = sorted({kind for one in kinds.values() for kind in one[budget]})
        lines += [
            "",
            f"## {budget} tokens",
            "",
            f"| layers | recall | {' | '.join(names)} | tokens | fresh | cached |",
            f"|---|---|{'---|' * len(names)}---|---|---|",
        ]
        for row in rows.itertuples():
            shares = " | ".join(f"{100 * kinds[row.layers][budget][kind]:.0f} %" for kind in names)
            recall = f"{100 * row.recall:.0f} % [{100 * row.low:.0f}, {100 * row.high:.0f}]"
            costs = f"{dollars(row.cost_fresh)} | {dollars(row.cost_cached)}"
            lines.append(f"| {row.layers} | {recall} | {shares} | {row.tokens:.0f} | {costs} |")
    return lines


def dollars(cost: float) -> str:
    """Return what a thousand dialogues cost."""
    return f"${1_000 * cost:.2f}"


def front_of(table: Any) -> list[str]:
    """Return the sets that no other beats in recall and cost, at each price."""
    lines = []
    for cost, what in (("cost_fresh", "without a cache"), ("cost_cached", "with a cache")):
        front = lab.pareto(table, maximise="recall", minimise=cost).sort_values([cost, "recall"])
        shown = [
            f"{row.layers} at {row.budget} ({100 * row.recall:.0f} %, {dollars(getattr(row, cost))})"
            for row in front.itertuples()
        ]
        lines += ["", f"Not beaten in recall and price {what}: {'; '.join(shown)}."]
    return lines


def surprises(table: Any, kinds: dict[str, dict[float, dict[str, float]]]) -> list[str]:
    """Return what nobody had expected, in figures of the table."""
    rows = {(row.layers, row.budget): row for row in table.itertuples()}

    def recall(name: str, budget: int) -> str:
        return f"{100 * rows[name, budget].recall:.0f} %"

    def costs(name: str, budget: int) -> str:
        row = rows[name, budget]
        return f"{dollars(row.cost_fresh)} fresh, {dollars(row.cost_cached)} cached"

    def found(name: str, budget: int, kind: str) -> str:
        return f"{100 * kinds[name][budget][kind]:.0f} %"

    facts, dated_facts = "observations, sentences with facts", "dated facts"
    return [
        "",
        "## What surprised",
        "",
        f"* **A second layer can cost recall.** At 250 tokens hybrid recall has {recall('hybrid', 250)}, with "
        f"entities beside it "
        f"{recall('hybrid + entities', 250)}: the budget is split by headroom before anybody knows who has "
        f"what. With observations, "
        f"whose least is 500 tokens, hybrid recall is given nothing: {recall('hybrid + observations', 250)}, as "
        "observations have alone. At 1 000 "
        f"the same pairs are the best of all.",
        f"* **A short window is cheap only without a cache.** `history_window(6)` costs "
        f"{costs('history window 6', 4_000)}; all of the "
        f"history costs {costs('plain history', 4_000)}, and has {recall('plain history', 4_000)} of the "
        f"evidence in place of "
        f"{recall('history window 6', 4_000)}.",
        f"* **A clock in front spoils the cache.** Dated facts and observations tell the same sentences with "
        f"the same recall at 4 000 "
        f"tokens ({recall(dated_facts, 4_000)}, {recall(facts, 4_000)}). The one begins with the time of day and costs "
        f"{costs(dated_facts, 4_000)}, the other only grows at its end and costs {costs(facts, 4_000)}.",
        f"* **Recall of messages does not see what tools returned.** Of what was looked up hybrid recall has "
        f"{found('hybrid', 4_000, 'looked up')}, all of it from the history; observations that read tool results have "
        f"{found(facts, 4_000, 'looked up')}.",
        f"* **More hits are hardly more evidence.** Three hits of hybrid recall have "
        f"{recall('hybrid, 3 hits', 4_000)}, ten have "
        f"{recall('hybrid', 4_000)}.",
        f"* **Keywords beat the vectors of hashed words** at every budget, most at the smallest: "
        f"{recall('hybrid', 250)} and "
        f"{recall('semantic', 250)} at 250 tokens. In these dialogues questions name people; where they do not, "
        f"it may be otherwise.",
        "",
        "What is measured is the sending, not the answer: a newer value that is sent beside the older one "
        "counts in full. The dialogues "
        "are short and made by rules, and the rules of extraction suit them; compare your own with `lab.memory_bench`.",
    ]


def main() -> int:
    """Play, and print the page."""
    dialogues = made_dialogues(DIALOGUES, seed=SEED)
    began = process_time()
    table = lab.memory_bench(SETS, dialogues, budgets=BUDGETS, seed=SEED)
    taken = process_time() - began
    print(f"{len(table)} rows: {taken:.1f} s of one processor", file=sys.stderr)
    kinds = table.attrs["by_kind"]
    asked = sum(len(one.questions) for one in dialogues)
    head = [
        "# Which layers remember",
        "",
        "Written by `python benchmarks/studies/memory_bench.py --write`; every figure on this page is computed by it.",
        "",
        f"* **Dialogues**: {DIALOGUES}, made from seed {SEED}, English and German in turn, three sessions and "
        f"four people each; {asked} "
        "questions, asked in the last session.",
        "* **Recall** is the share of the evidence of a question that was sent with it, with an interval of 95 "
        "% over dialogues. Kinds: "
        "`told` once, `changed` (the newer value counts), `disputed` (both count), `looked up` (in the long "
        "result of a tool).",
        "* **Tokens** are those of the requests with a question. **Costs** are US dollars of input of a "
        "thousand dialogues with all of "
        "their requests, at $1 a million tokens; cached: a token of a prefix that the request before had, too, "
        "at a tenth of it, "
        "without a shortest length.",
        "* **Layers** have their default options where none are named, and no model: entities are sentences by "
        "the names in them, "
        "observations the sentences with a name or a digit.",
        f"* **Versions**: noetic_nb {version('noetic_nb')}, Python {platform.python_version()}.",
        "",
        "![Recall over the cost of a dialogue](memory_bench.png)",
    ]
    text = "\n".join([*head, *front_of(table), *surprises(table, kinds), *lines_of(table, kinds)]) + "\n"
    write = "--write" in sys.argv
    publish(text, "memory_bench.md", write=write)
    if write:
        from noetic_nb import plots

        plots.pareto(table, "cost_cached", "recall", label="layers").savefig(PAGE / "memory_bench.png", dpi=100)
    return 0


if __name__ == "__main__":
    sys.exit(main())
