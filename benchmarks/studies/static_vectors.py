"""What static vectors add to recall: on made dialogues that ask in other words, and on LoCoMo.

Needs ``pip install wordllama``. Run ``python benchmarks/studies/static_vectors.py --locomo locomo10.json --audit errors.json``
for the figures of docs/decisions/embedders.md and docs/recipes/static_vectors.md; without the two files, those of the dial alone.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from memory_bench import ALL, BUDGET, CHOSEN_ON, DEFAULT, FILLING, MADE, percent, recalled, share

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.lab._recall_quality.memory_benches import _remembering
from noetic_nb.layers import hybrid_recall, semantic_recall

_BUDGET: Final = {"min": 600, "max": 4_000}


def dial(meaning: Any) -> None:
    """Print the share of questions that can be answered, by how much they share with the fact."""
    sets: dict[str, Any] = {
        "keywords, filling": lambda: hybrid_recall(False, **FILLING, budget=_BUDGET),
        "keywords, filling, and vectors": lambda: hybrid_recall(meaning, **FILLING, budget=_BUDGET),
        "semantic, hashed words": lambda: semantic_recall(),
        "semantic, vectors": lambda: semantic_recall(meaning),
    }
    for overlap in (0.0, 0.5, 1.0):
        frame = lab.memory_bench(sets, lab.made_dialogues(MADE, overlap=overlap), budgets=[BUDGET], progress=False)
        answerable = frame[frame.rung == "answerable"].set_index("layers")
        print(overlap, {name: percent(answerable.loc[name]) for name in sets}, flush=True)


def locomo(path: str, audit: str | None, meaning: Any) -> None:
    """Print evidence and session recall on the dialogues of LoCoMo on which nothing was chosen."""
    dialogues = lab.datasets.load_locomo(path, audit=audit)
    counting = _remembering(nn.tokenizers.get("o200k_base"))
    options: dict[str, dict[str, Any]] = {
        "keywords": ALL,
        "keywords and hashed words": {**ALL, "embedder": None},
        "keywords and vectors": {**ALL, "embedder": meaning},
        "by default, hashed words": DEFAULT,
        "by default, vectors": {**DEFAULT, "embedder": meaning},
    }
    for name, given in options.items():
        found = [recalled(one, given, counting) for one in dialogues[CHOSEN_ON:]]
        rows: Sequence[Any] = list(enumerate(found))
        print(name, *[share([(at, one[kind]) for at, some in rows for one in some]) for kind in (0, 1)], flush=True)


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo")
    parser.add_argument("--audit")
    given = parser.parse_args()
    package: Any = importlib.import_module("wordllama")
    model = package.WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)

    def meaning(texts: Sequence[str]) -> Any:
        return model.embed(list(texts))

    if given.locomo:
        locomo(given.locomo, given.audit, meaning)
    dial(meaning)
    return 0


if __name__ == "__main__":
    sys.exit(main())
