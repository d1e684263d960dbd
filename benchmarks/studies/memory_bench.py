"""Which memory layers have the evidence sent when a question is asked, and at what price.

Run ``python benchmarks/studies/memory_bench.py``; ``--write`` keeps the page in docs/studies, and its plot. Nothing is downloaded
and no model is called: dialogues are made from a seed. Extractors, observers and writers are rules, so that layers are compared
and not models.
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
from noetic_nb.lab._recall_quality.facts import facts_of
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
# In days: a turn takes a minute of a dialogue's own time, and most dialogues are over after some thirty.
FIVE_TURNS: Final = 5 / (24 * 60)
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


# Filled by rules that know how the dialogues say things: the most that a good model could make of these layers.
KNOWING: Final = frozenset(
    name for name in SETS if "files" in name or "newest of each" in name or "changed only" in name
)


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
            f"| layers | recall | {' | '.join(names)} | outdated | tokens | fresh | cached |",
            f"|---|---|{'---|' * len(names)}---|---|---|---|",
        ]
        for row in rows.itertuples():
            shares = " | ".join(f"{100 * kinds[row.layers][budget][kind]:.0f} %" for kind in names)
            recall = f"{100 * row.recall:.0f} % [{100 * row.low:.0f}, {100 * row.high:.0f}]"
            costs = f"{dollars(row.cost_fresh)} | {dollars(row.cost_cached)}"
            stale = f"{100 * table.attrs['outdated'][row.layers][budget]:.0f} %"
            name = f"{row.layers}{' †' * (row.layers in KNOWING)}"
            lines.append(f"| {name} | {recall} | {shares} | {stale} | {row.tokens:.0f} | {costs} |")
    return lines


def dollars(cost: float) -> str:
    """Return what a thousand dialogues cost."""
    return f"${1_000 * cost:.2f}"


def front_of(table: Any) -> list[str]:
    """Return the sets that no other beats in recall and cost, at each price; of those whose rules do not know the dialogues."""
    lines = []
    table = table[~table.layers.isin(KNOWING)]
    for cost, what in (("cost_fresh", "without a cache"), ("cost_cached", "with a cache")):
        front = lab.pareto(table, maximise="recall", minimise=cost).sort_values([cost, "recall"])
        shown = [
            f"{row.layers} at {row.budget} ({100 * row.recall:.0f} %, {dollars(getattr(row, cost))})"
            for row in front.itertuples()
        ]
        lines += ["", f"Not beaten in recall and price {what}, without those of †: {'; '.join(shown)}."]
    return lines


def main() -> int:
    """Play, and print the page."""
    dialogues = lab.made_dialogues(DIALOGUES, seed=SEED)
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
        "* **Outdated** is the share of the questions about something that has changed with which the older value was sent, too: "
        "the less the better.",
        "* **Tokens** are those of the requests with a question. **Costs** are US dollars of input of a "
        "thousand dialogues with all of "
        "their requests, at $1 a million tokens; cached: a token of a prefix that the request before had, too, "
        "at a tenth of it, "
        "without a shortest length.",
        "* **Layers** have their default options where none are named, and no model: entities are sentences by "
        "the names in them, "
        "observations the sentences with a name or a digit.",
        "* **†**: filled by rules that know how these dialogues say things (benchmarks/studies/memory_writers.py). They stand "
        "for a model that reads every sentence right, so these rows are the most that a model could make of the layer, and not "
        "to be compared with the others. `newest of each`: facts with what they are about, so that of two the newer one holds. "
        "`changed only`: the entities above, with a rule for `contradicts`. Files are written by calling the functions of the "
        "layer; a file of a person is opened where the question names the person, without the request in which a model would "
        "ask for it.",
        "* **Fading** is a half-life of five turns. **Left out** are layers that remember nothing of what is said: static "
        "content, plans, task state, tool state, regulation; and procedures, as nothing is done here.",
        f"* **Versions**: noetic_nb {version('noetic_nb')}, Python {platform.python_version()}.",
        "",
        "![Recall over the cost of a dialogue, without those of †](memory_bench.png)",
    ]
    text = "\n".join([*head, *front_of(table), *lines_of(table, kinds)]) + "\n"
    write = "--write" in sys.argv
    publish(text, "memory_bench.md", write=write)
    if write:
        from noetic_nb import plots

        shown = table[~table.layers.isin(KNOWING)]
        plots.pareto(shown, "cost_cached", "recall", label="layers").savefig(PAGE / "memory_bench.png", dpi=100)
    return 0


if __name__ == "__main__":
    sys.exit(main())
