"""Which memory layers have the evidence sent when a question is asked, on made dialogues and on LoCoMo.

Run ``python benchmarks/studies/memory_bench.py --locomo locomo10.json --audit errors.json``; ``--write`` keeps the page in
docs/studies. Both files are those of github.com/dial481/locomo-audit; without them the part on LoCoMo is left out. No model is
called: extractors and observers are rules, so that layers are compared and not models.
"""

from __future__ import annotations

import argparse
import math
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import combinations
from typing import Any, Final

import joblib
from inputs import publish

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.items import item_text
from noetic_nb.lab._dialogues import Dialogue
from noetic_nb.lab._recall_quality.dialogue_runner import Player
from noetic_nb.lab._recall_quality.facts import facts_of
from noetic_nb.lab._recall_quality.memory_benches import _remembering, made_layers
from noetic_nb.lab._statistics.intervals import Cluster, mean_interval
from noetic_nb.layers import (
    entity_memory,
    episodic_memory,
    history_window,
    hybrid_recall,
    observational_memory,
    semantic_recall,
)
from noetic_nb.layers._helpers.collaborators import as_embedder
from noetic_nb.layers._helpers.considered import considering, fitting_lines
from noetic_nb.layers._hybrid import TAG, HybridRecall, _none
from noetic_nb.layers._semantic import MessageIndex, MessageRecall

RUNGS: Final = ("verbatim", "value", "owned", "answerable")
DIAL: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
MADE: Final = 40
BUDGET: Final = 1_000
LOCOMO_BUDGETS: Final = (700, 4_000)
CHOSEN_ON: Final = 2
"""Parameters were chosen on so many dialogues of LoCoMo, the first ones."""
FILLING: Final[dict[str, Any]] = {"top_k": None, "neighbours": 1, "roots": True, "spread": 0.5}


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


SETS: Final[dict[str, Any]] = {
    "plain history": [],
    "window 6": lambda: history_window(6),
    "semantic": lambda: semantic_recall(),
    "hybrid": lambda: hybrid_recall(),
    "keywords": lambda: hybrid_recall(False),
    "filling": lambda: hybrid_recall(False, **FILLING, budget={"min": 600, "max": 4_000}),
    "entities": lambda: entity_memory(entities_of),
    "observations": lambda: observational_memory(telling, buffer_threshold=100),
    "episodes": lambda: episodic_memory(),
}


def tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Kendall's tau-b of two scores of the same things."""
    agree = ties_one = ties_other = 0
    pairs = list(combinations(range(len(one)), 2))
    for a, b in pairs:
        first, second = one[a] - one[b], other[a] - other[b]
        agree += (first * second > 0) - (first * second < 0)
        ties_one += first == 0
        ties_other += second == 0
    return agree / math.sqrt((len(pairs) - ties_one) * (len(pairs) - ties_other))


def percent(row: Any) -> str:
    """Return a recall with its interval."""
    if math.isnan(row.recall):
        return "–"
    return f"{100 * row.recall:.0f} % [{100 * row.low:.0f}, {100 * row.high:.0f}]"


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return ["", *[f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]]


def ladder(frame: Any, budget: float, rungs: Sequence[str] = RUNGS) -> list[str]:
    """Return the rungs of each set under one budget."""
    rows = frame[frame.budget == budget].set_index(["layers", "rung"])
    return table_of(
        ["layers", *rungs, "tokens"],
        [
            [name, *[percent(rows.loc[name, rung]) for rung in rungs], f"{rows.loc[name, rungs[0]].tokens:.0f}"]
            for name in dict.fromkeys(frame.layers)
        ],
    )


def dial() -> list[str]:
    """Return what the overlap of questions and facts does to the order of the sets."""
    frames = {at: lab.memory_bench(SETS, lab.made_dialogues(MADE, overlap=at), budgets=[BUDGET]) for at in DIAL}
    asked = sum(len(one.questions) for one in lab.made_dialogues(MADE))
    lines = [
        "",
        "## The dial",
        "",
        f"{MADE} synthetic dialogues, {asked} questions, {BUDGET} tokens. At overlap 1 a question uses the words of "
        "the fact for the person and the thing; at overlap 0 it shares no content word with the fact. The dialogues "
        "are the same at every overlap. Each cell is the share of questions that can be answered from the request; "
        "the last row is Kendall's tau between this ranking and the ranking at overlap 1.",
    ]
    shares = {
        at: frame[frame.rung == "answerable"].set_index("layers").recall.reindex(list(SETS))
        for at, frame in frames.items()
    }
    rows = [[name, *[f"{100 * shares[at][name]:.0f} %" for at in DIAL]] for name in SETS]
    rows.append(["**tau**", *[f"{tau(list(shares[at]), list(shares[1.0])):.2f}" for at in DIAL]])
    lines += table_of(["layers", *[f"{at:g}" for at in DIAL]], rows)
    lines += [
        "",
        "Every kind of message recall gets worse as question and fact share fewer words; that includes vectors of "
        "hashed words. Entities and observations hardly change: they send their notes whatever the question, and in "
        "these dialogues all notes fit.",
    ]
    for at in (1.0, 0.0):
        lines += ["", f"### All rungs at overlap {at:g}", *ladder(frames[at], BUDGET)]
    return lines


def recalled(dialogue: Dialogue, options: dict[str, Any], tokenizer: Any) -> list[tuple[float, float]]:
    """Return, of each question, the share of its evidence in 4,000 tokens of one layer, and of its sessions in the first five."""
    items = [item for session in dialogue.sessions for item in session]
    ids = [item["id"] for item in items]
    number = {item["id"]: at for at, session in enumerate(dialogue.sessions) for item in session}
    nearness = _none if options["embedder"] is False else as_embedder(options["embedder"])
    layer = HybridRecall("h", TAG, "execution", nearness, options["top_k"], 0.1, options["neighbours"], 0, 2_000)
    layer.roots, layer.spread = options["roots"], options["spread"]
    index = MessageIndex(None)
    ctx = nn.memory.ExecutionContext(execution_id="e", thread_id="t", tokenize=tokenizer)
    found: list[tuple[float, float]] = []

    async def ask() -> None:
        await layer.add(index, items, "t")
        for question in dialogue.questions:
            if not question.evidence:
                continue
            order = await layer.ranked(index, question.text, set(), ctx)
            hits = layer.chosen(index, order, set())
            sent = {ids[at] for at in hits[: len(fitting_lines(TAG, index.lines(hits), 4_000, tokenizer))]}
            first = list(dict.fromkeys(number[ids[at]] for at in order))[:5]
            wanted = {number[part.item] for part in question.evidence if part.item is not None}
            told = sum(part.item in sent for part in question.evidence) / len(question.evidence)
            found.append((told, len(wanted & set(first)) / len(wanted)))

    nn.run_sync(ask())
    return found


DEFAULT: Final[dict[str, Any]] = {"embedder": None, "top_k": 10, "neighbours": 0, "roots": False, "spread": 0.0}
ALL: Final = {**DEFAULT, **FILLING, "embedder": False}
STOPPED: Final = "all, but no stop words"
PARTS: Final[dict[str, dict[str, Any]]] = {
    "all parts": ALL,
    "all, but no neighbours": {**ALL, "neighbours": 0},
    "all, but whole words": {**ALL, "roots": False},
    "all, but no spread": {**ALL, "spread": 0.0},
    STOPPED: ALL,
    "all, but ten hits": {**ALL, "top_k": 10},
    "all, and vectors of hashed words": {**ALL, "embedder": None},
    "hybrid recall by default": DEFAULT,
}


def share(values: Sequence[tuple[int, float]]) -> str:
    """Return a mean with its interval over dialogues."""
    numbers = [value for _, value in values]
    low, high = mean_interval(numbers, [Cluster(place) for place, _ in values])
    return f"{100 * sum(numbers) / len(numbers):.1f} % [{100 * max(low, 0.0):.1f}, {100 * min(high, 1.0):.1f}]"


def parts(dialogues: Sequence[Dialogue], tokenizer: Any) -> list[str]:
    """Return what each part of recall does on LoCoMo."""
    rows = []
    counting = _remembering(tokenizer)
    for name, options in PARTS.items():
        found = (
            without_stop_words(dialogues, options, counting)
            if name == STOPPED
            else [recalled(one, options, counting) for one in dialogues]
        )
        cells = []
        for kind in (0, 1):
            for chosen in (range(CHOSEN_ON), range(CHOSEN_ON, len(dialogues)), range(len(dialogues))):
                cells.append(share([(at, one[kind]) for at in chosen for one in found[at]]))
        rows.append([name, cells[1], cells[2], cells[4], cells[5]])
    return table_of(["recall", "evidence, the eight", "evidence, all ten", "sessions at 5, the eight", "all ten"], rows)


def without_stop_words(dialogues: Sequence[Dialogue], options: Any, tokenizer: Any) -> list[Any]:
    """Return the same where common words count as well."""
    from noetic_nb.layers._helpers import embedding

    known, embedding.COMMON = embedding.COMMON, frozenset()  # type: ignore[misc]
    try:
        return [recalled(one, options, tokenizer) for one in dialogues]
    finally:
        embedding.COMMON = known  # type: ignore[misc]


def locomo(path: str, audit: str) -> list[str]:
    """Return the part on LoCoMo."""
    dialogues = lab.datasets.load_locomo(path, audit=audit)
    tokenizer = nn.tokenizers.get("o200k_base")
    asked = sum(bool(question.evidence) for one in dialogues for question in one.questions)
    lines = [
        "",
        "## LoCoMo",
        "",
        f"{len(dialogues)} dialogues, {asked:,} questions with evidence (those of category 5 have none), with the corrected keys "
        "of locomo-audit. Tokens are counted by o200k. The unit is the question; 95 % intervals are clustered by dialogue. The "
        "public files mark messages only: `verbatim` covers all questions, `value` those whose answer stands word for word in "
        "the evidence. The upper two rungs cannot be scored.",
        "",
        "### What each part does",
        "",
        f"One layer with 4,000 tokens of its own. `neighbours=1` and `spread=0.5` were chosen on the first {CHOSEN_ON} "
        "dialogues, while the figures of the other eight were visible beside them. In a request of 4,000 tokens a layer gets six "
        "tenths, unless its budget has a minimum.",
        *parts(dialogues, tokenizer),
    ]
    return lines + compared(dialogues)


def asked(name: str, dialogue: Dialogue) -> tuple[Any, float]:
    """Return the records of the questions of one dialogue to one set, and the seconds of a processor that they took."""
    tokenizer = nn.tokenizers.get("o200k_base")
    began = time.process_time()
    frame = lab.memory_bench(
        {name: SETS[name]}, [dialogue], budgets=LOCOMO_BUDGETS, tokenizer=tokenizer, progress=False
    )
    return frame.attrs["asked"], time.process_time() - began


@dataclass
class Ranking(Player):
    """Plays a dialogue and notes, of each question, the share of its sessions among the first five that its layers rank."""

    found: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.flat = [
            " ".join(" ".join(item_text(item) for item in session).split()) for session in self.dialogue.sessions
        ]
        self.known: dict[str, int | None] = {}

    async def _request(self, ctx: Any, log: Any, query: str) -> list[Any]:
        return []

    async def _ask(self, thread: str, log: Any, question: Any) -> None:
        ids = {part.item for part in question.evidence}
        wanted = {at for at, some in enumerate(self.dialogue.sessions) if any(item["id"] in ids for item in some)}
        if not wanted:
            return
        ctx = self._context(thread)
        await self.stack.init(ctx)
        first: dict[int, None] = {}
        # Without a layer that recalls there is the history of the last session.
        for at in await self._ranked(ctx, log, question.text) if "recall" in self.stack.hooks else [len(self.flat) - 1]:
            first.setdefault(at)
            if len(first) == 5:
                break
        self.found.append(len(wanted & first.keys()) / len(wanted))
        await self.stack.dispose(ctx)

    async def _ranked(self, ctx: Any, log: Any, query: str) -> Iterator[int]:
        """Return the sessions of what the layers could recall, best first, with repeats."""
        (layer,) = self.layers
        own = getattr(layer.hooks.recall, "__self__", None)
        if isinstance(own, MessageRecall):
            index = own.live[ctx.execution_id]
            order = await own.ranked(index, query, set(), ctx)
            start = len(self.dialogue.name) + 1  # the key of a message begins with its thread
            return iter([int(index.messages[at].id[start:].partition(":")[0]) for at in order])
        with considering() as found:
            await self.stack.recall(ctx, query=query, log=log, budgets={})
        lines = (line for one in found for hit in one.hits for _, line in hit.lines)
        return (at for line in lines if (at := self._session_of(line)) is not None)

    def _session_of(self, line: str) -> int | None:
        """Return the last session in which a line was said, without what its layer puts around it."""
        if line not in self.known:
            parts = [" ".join(part.split()) for part in re.split(AROUND, line)]
            told = [at for part in parts if part for at, text in enumerate(self.flat) if part in text]
            self.known[line] = max(told, default=None)
        return self.known[line]


AROUND: Final = r"^- (?:[^:]+: )?|^\[[^]]*\] Asked: | Answered: |…"


def first_five(name: str, dialogue: Dialogue) -> list[float]:
    """Return the share of the sessions of each question among the first five of a set."""
    player = Ranking(dialogue, made_layers(SETS[name]), [4_000], nn.tokenizers.get("o200k_base"), None, Counter())
    nn.run_sync(player.play())
    return player.found


NINE: Final = (
    "All sets on all ten dialogues. The options of `filling` were chosen on the first two. Each session has its own "
    "log, so plain history and the window see only the last session. Observations and episodes send their newest "
    "entries whatever the question."
)


FIVE: Final = (
    "The mean share of a question's evidence sessions among the first five sessions in the ranking of a set. Recall "
    "ranks messages. Entities, observations and episodes rank their lines, and a line counts for the last session "
    "in which it was said. Plain history and the window have only the last session. Minutes are processor time of "
    "the bench, with both budgets."
)


def compared(dialogues: Sequence[Dialogue]) -> list[str]:
    """Return the sets of layers on LoCoMo, and how long that takes on two processors."""
    jobs = [(name, place) for place in range(len(dialogues)) for name in SETS]
    with joblib.Parallel(n_jobs=2) as parallel:
        began = time.monotonic()
        found = parallel(joblib.delayed(asked)(name, dialogues[at]) for name, at in jobs)
        took = time.monotonic() - began
        ranked = parallel(joblib.delayed(first_five)(name, dialogues[at]) for name, at in jobs)
    used = math.fsum([seconds for _, seconds in found])
    lines = ["", NINE]
    for budget in LOCOMO_BUDGETS:
        rows = []
        for name in SETS:
            told = [(at, some) for (one, at), (some, _) in zip(jobs, found, strict=True) if one == name]
            records = [(at, record) for at, some in told for record in some if record.budget == budget]
            marked = [
                [(at, getattr(record, rung)) for at, record in records if not math.isnan(getattr(record, rung))]
                for rung in ("verbatim", "value")
            ]
            tokens = sum(record.tokens for _, record in records) / len(records)
            rows.append([name, *[share(one) for one in marked], f"{tokens:.0f}"])
        lines += ["", f"### {len(SETS)} sets of layers, {budget:,} tokens of a whole request"]
        lines += table_of(["layers", "verbatim", "value", "tokens"], rows)
    rows = []
    for name in SETS:
        of_set = [place for place, (one, _) in enumerate(jobs) if one == name]
        shares = [(jobs[place][1], one) for place in of_set for one in ranked[place]]
        cpu = math.fsum([found[place][1] for place in of_set])
        rows.append([name, share(shares), f"{cpu / 60:.2f}"])
    lines += ["", "### The first five sessions, and the time", "", FIVE]
    lines += table_of(["layers", "sessions at 5", "minutes of a processor"], rows)
    return [
        *lines,
        "",
        f"{len(SETS)} sets over {len(dialogues)} dialogues, under {len(LOCOMO_BUDGETS)} budgets at once: {used:.0f} seconds of "
        f"a processor, {took:.0f} by the clock in two processes, on a machine of two processors that did other work as well.",
    ]


def cheats() -> list[str]:
    """Return the rungs that words without owners reach, and those of perfect notes."""
    dialogues = lab.made_dialogues(MADE)

    def told(text_of: Callable[[Dialogue], str]) -> list[Any]:
        frames = []
        for one in dialogues:
            layers = [history_window(2), nn.static_content(text_of(one), budget={"min": 0, "max": 100_000})]
            frames.append(
                lab.memory_bench({"told": layers}, [one], budgets=[200_000], progress=False).set_index("rung")
            )
        return [sum(float(frame.recall[rung]) for frame in frames) / len(frames) for rung in RUNGS]

    def words(one: Dialogue) -> str:
        owners = {name.split()[-1] for question in one.questions for part in question.evidence for name in part.owner}
        said = [word for session in one.sessions for item in session for word in re.findall(r"[\w-]+", item_text(item))]
        return " ".join(word for word in dict.fromkeys(said) if word not in owners)

    def notes(one: Dialogue) -> str:
        found = [part for question in one.questions for part in (*question.needs, *question.evidence)]
        return "\n".join(f"{part.owner[0]}: {part.attribute[0]} is {part.value}" for part in dict.fromkeys(found))

    rows = [
        [name, *[f"{100 * one:.0f} %" for one in told(text)]]
        for name, text in (("every word that was said, without names", words), ("a perfect note of each fact", notes))
    ]
    return ["", "## What the rungs see", *table_of(["sent", *RUNGS], rows)]


def main() -> int:
    """Play, and print the page."""
    asking = argparse.ArgumentParser(description=__doc__)
    asking.add_argument("--locomo")
    asking.add_argument("--audit")
    asking.add_argument("--write", action="store_true")
    given = asking.parse_args()
    text = [
        "# Which memory layers keep facts",
        "",
        "Which layers put the evidence for a question into the request, under which budget, and at what price?",
        "",
        "Written by `python benchmarks/studies/memory_bench.py --locomo locomo10.json --audit errors.json --write`, "
        "which computes every figure on this page without calling a model. Both files come from "
        "github.com/dial481/locomo-audit.",
        "",
        "Each question is scored on four rungs: was the message sent word for word (`verbatim`), was its value sent "
        "(`value`), was the value attributed to its owner (`owned`), and can the question be answered from the "
        "request (`answerable`: all parts, none outdated)? [How it "
        "works](../behaviour/lab.md#a-bench-without-a-judge).",
        "",
        "`filling` is `hybrid_recall(False, top_k=None, neighbours=1, roots=True, spread=0.5)`, `keywords` the same without "
        "these options. Entities are sentences by the names in them, observations the sentences with a name or a digit.",
        "",
        f"noetic_nb {version('noetic_nb')}, Python {platform.python_version()}.",
        *cheats(),
        *dial(),
    ]
    if given.locomo:
        text += locomo(given.locomo, given.audit)
    publish("\n".join(text) + "\n", "memory_bench.md", write=given.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
