"""How far the counter without a vocabulary is from o200k_base, and the fit of its rates.

Run ``python benchmarks/studies/offline_tokens.py DATA CLONES``; ``--write`` keeps the page in docs/studies, ``--fit`` prints the
rates for ``noetic_nb/tokenizers/_encoding_tokenizer.py``. Needs the extra ``tokens``.

``CLONES`` is a folder of git clones, named ``owner+name``, of the repositories in `SOURCES`: their texts are read, and not kept.
Code is that of this Python and its packages. Rates are fitted on one half of the tasks, files and sentences, and reported on the
other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from inputs import FILES, SEED, interval, publish, task_of

import noetic_nb as nn
from noetic_nb.items import item_text
from noetic_nb.lab import datasets
from noetic_nb.runs import Run
from noetic_nb.tokenizers._encoding_tokenizer import CUT, PIECES
from noetic_nb.tokenizers._framing import kind_of
from noetic_nb.tokens import estimate_tokens

TRUE: Final = nn.tokenizers.get("o200k_base")
OFFLINE: Final = nn.tokenizers.get("calibrated-offline")
LANGUAGES: Final = {"zh": "Chinese", "ja": "Japanese", "ko": "Korean", "ru": "Russian", "ar": "Arabic"}
OTHERS: Final = {
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "el": "Greek",
    "hi": "Hindi",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
}
# Language, repository, and its files: sentences of treebanks, pages of manuals, paragraphs of an encyclopedia.
SOURCES: Final = [
    *[
        (name, f"UniversalDependencies/UD_{name}-PUD", r"\.conllu$")
        for name in ("Chinese", "Korean", "Russian", "Arabic")
    ],
    ("Chinese", "UniversalDependencies/UD_Chinese-GSDSimp", r"(dev|test)\.conllu$"),
    ("Japanese", "UniversalDependencies/UD_Japanese-GSD", r"(dev|test)\.conllu$"),
    *[(name, "fastapi/fastapi", rf"^docs/{code}/docs/.*\.md$") for code, name in LANGUAGES.items()],
    *[(name, "tldr-pages/tldr", rf"^pages\.{code}/.*\.md$") for code, name in (LANGUAGES | OTHERS).items()],
    *[(name, "google-deepmind/xquad", rf"xquad\.{code}\.json$") for code, name in (LANGUAGES | OTHERS).items()],
]
CODE: Final = {"Python": "py", "JavaScript": "js", "C": "h", "JSON": "json", "CSS": "css"}
MOST: Final = 400
SAMPLES: Final = 200
# The most tokens of a run are in the outputs of tools; other languages are no goal, and only hold their rates.
WEIGHTS: Final = {"tool": 2.5, **dict.fromkeys(OTHERS.values(), 0.3)}


class Text(NamedTuple):
    """A text: its group (domain or language), its kind or source, and the conversation, file or sentence that it is of."""

    group: str
    kind: str
    cluster: str
    text: str

    @property
    def place(self) -> int:
        """A number that all texts of its cluster share."""
        return int(hashlib.sha256(f"{self.group} {self.cluster}".encode()).hexdigest()[:8], 16)

    @property
    def is_fitted(self) -> bool:
        """Whether it is of the half that rates are fitted on."""
        return self.place % 2 == 0


def agents(folder: Path) -> Iterator[Text]:
    """Yield the texts of recorded agents, by domain and kind of item."""
    runs = datasets.load_trajectories(folder / FILES[0])
    runs += [run for name in FILES[1:4] for run in datasets.load_tau2(folder / name)]
    runs += datasets.load_agentdojo(folder / FILES[4])
    for run in runs:
        group = run.meta["suite"] or run.meta["domain"]
        for thread in run.threads:
            for item in run.log(thread):
                if text := item_text(item):
                    yield Text(group, kind_of(item), _conversation(run), text)


def _conversation(run: Run) -> str:
    """Return the task of a run: its conversations are alike, and go to one half together."""
    return str(run.meta["user_task"] or task_of(run))


def code() -> Iterator[Text]:
    """Yield stretches of code of this Python and its packages."""
    chance = random.Random(SEED)
    folders = [
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("purelib")),
        Path(sysconfig.get_path("include")),
    ]
    for name, ending in CODE.items():
        paths = sorted({path for folder in folders for path in folder.rglob(f"*.{ending}")})
        chance.shuffle(paths)
        found = 0
        for path in paths:
            lines = path.read_text("utf-8", "replace")[:100_000].splitlines()
            if not lines or sum(map(len, lines)) > 150 * len(lines):  # made by a machine
                continue
            for start in sorted(chance.sample(range(0, len(lines), 40), k=min(4, -(-len(lines) // 40)))):
                text = "\n".join(lines[start : start + chance.choice((10, 40))])
                if len(text) > 80:
                    found += 1
                    yield Text("code", name, str(path), text)
            if found >= MOST:
                break


def languages(clones: Path) -> Iterator[Text]:
    """Yield the texts of repositories."""
    chance = random.Random(SEED)
    for language, repository, pattern in SOURCES:
        found = [
            name
            for name in _git(clones, repository, "ls-tree", "-r", "--name-only", "HEAD").split("\n")
            if re.search(pattern, name)
        ]
        chance.shuffle(found)
        texts = []
        for name in found[:MOST]:
            whole = _git(clones, repository, "show", f"HEAD:{name}")
            texts += [
                (name if name.endswith("md") else f"{name} {at}", text) for at, text in enumerate(_cut(name, whole))
            ]
        chance.shuffle(texts)
        for cluster, text in texts[: 2 * MOST]:
            yield Text(language, repository.partition("/")[2], cluster, text)


def _git(clones: Path, repository: str, *command: str) -> str:
    folder = clones / repository.replace("/", "+")
    inner = folder / "repo"
    asked = ["git", "-C", str(inner if inner.is_dir() else folder), *command]
    return subprocess.run(asked, capture_output=True, check=True).stdout.decode("utf-8", "replace")


def _cut(name: str, whole: str) -> list[str]:
    if name.endswith("conllu"):
        return re.findall(r"^# text = (.*)$", whole, re.MULTILINE)
    if name.endswith("json"):
        return [paragraph["context"] for page in json.loads(whole)["data"] for paragraph in page["paragraphs"]]
    return [part for part in re.split(r"\n(?=#+ )", whole) if len(part) > 60]


class Counted(NamedTuple):
    """A text with its pieces, and its tokens by three counters."""

    of: Text
    pieces: np.ndarray
    true: int
    offline: int
    estimate: int


def counted(texts: Iterator[Text]) -> Iterator[Counted]:
    """Count texts; the same text is counted once."""
    known: dict[str, tuple[np.ndarray, int, int, int]] = {}
    for text in texts:
        if text.text not in known:
            pieces = np.bincount([found.lastindex - 1 for found in CUT.finditer(text.text)], minlength=len(PIECES))
            known[text.text] = pieces, TRUE(text.text), OFFLINE(text.text), estimate_tokens(text.text)
        yield Counted(text, *known[text.text])


def fit(texts: Sequence[Counted]) -> np.ndarray:
    """Return the rates that explain the fitted half best, none negative.

    Weighted least squares over texts: the longer a text, the further off it may be; each kind of a group weighs the same.
    """
    groups: dict[tuple[str, str], list[Counted]] = defaultdict(list)
    for one in texts:
        if one.of.is_fitted:
            groups[one.of.group, one.of.kind].append(one)
    rows, goals = [], []
    for (group, kind), here in groups.items():
        true = np.array([one.true for one in here], float)
        weight = WEIGHTS.get(group, 1.0) * WEIGHTS.get(kind, 1.0) / np.sqrt(true * true.sum())
        rows.append(np.vstack([one.pieces for one in here]) * weight[:, None])
        goals.append(true * weight)
    design, goal = np.vstack(rows), np.concatenate(goals)
    free = np.ones(len(PIECES), bool)
    while True:
        rates = np.zeros(len(PIECES))
        rates[free] = np.linalg.lstsq(design[:, free], goal, rcond=None)[0]
        if (rates >= 0).all():
            return rates
        free &= rates > 0


def line(names: Sequence[str], texts: Sequence[Counted]) -> str:
    """Return a row of a table: texts, tokens, the error of the sum with its interval, the error of one text, the estimate."""
    groups = [one.of.cluster for one in texts]

    def error(places: Sequence[int]) -> float:
        return sum(texts[at].offline for at in places) / sum(texts[at].true for at in places) - 1

    low, high = interval(error, groups, samples=SAMPLES, seed=SEED)
    whole, true = error(range(len(texts))), sum(one.true for one in texts)
    mean = float(np.mean([abs(one.offline / one.true - 1) for one in texts]))
    estimate = sum(one.estimate for one in texts) / true - 1
    cells = [
        *names,
        f"{len(texts):,}",
        f"{true:,}",
        f"{whole:+.1%}",
        f"{low:+.1%} to {high:+.1%}",
        f"{mean:.0%}",
        f"{estimate:+.0%}",
    ]
    return f"| {' | '.join(cells)} |".replace("%", " %")


def table(head: Sequence[str], texts: Sequence[Counted], *, by_kind: bool = True) -> list[str]:
    """Return a table of texts, a row for each group, or for each kind of it."""
    rows: dict[tuple[str, ...], list[Counted]] = defaultdict(list)
    for one in texts:
        rows[(one.of.group, one.of.kind) if by_kind else (one.of.group,)].append(one)
    names = [*head, "texts", "tokens", "error of the sum", "95 %", "of one text", "default estimate"]
    return ["", f"| {' | '.join(names)} |", "|---" * len(names) + "|", *[line(key, rows[key]) for key in sorted(rows)]]


def main(given: Sequence[str]) -> int:
    """Fit or measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the runs")
    parser.add_argument("clones", type=Path, help="folder of the clones")
    parser.add_argument("--fit", action="store_true", help="print the rates")
    parser.add_argument("--write", action="store_true", help="keep the page in docs/studies")
    chosen = parser.parse_args(given)
    runs = list(counted(agents(chosen.data)))
    texts = [*runs, *counted(code()), *counted(languages(chosen.clones))]
    if chosen.fit:
        for name, rate in zip(PIECES, fit(texts), strict=True):
            print(f"{name:40} {rate:.3f}")
        return 0
    kept = [one for one in texts if not one.of.is_fitted]
    ours = [one for one in runs if not one.of.is_fitted]
    main_ones = [one for one in kept if one.of.group in ("code", *LANGUAGES.values())]
    lines = [
        "# A token counter that needs no vocabulary",
        "",
        "How close does a token counter without a vocabulary come to the real one, by language and kind of text?",
        "",
        "Written by `python benchmarks/studies/offline_tokens.py DATA CLONES --write`, which computes every figure.",
        "",
        "* **Counter**: `calibrated-offline` cuts a text into pieces (words, marks, digits, letters of a script) and gives each "
        f"kind a rate: {len(PIECES)} rates. **Truth**: o200k_base.",
        "* **Fit**: `--fit`, least squares of relative errors on one half of the tasks, files and sentences. The "
        "tables **report** the other half.",
        "* **Error of the sum**: counted / true - 1 over all texts of a row. **95 %**: bootstrap over whole tasks, "
        f"files or sentences, {SAMPLES} samples, without refitting. **Of one text**: the mean of the absolute "
        "errors.",
        "* **Texts**: recorded agents; code of this Python and its packages; sentences of Universal Dependencies "
        "(PUD, GSD); translated pages of tldr and FastAPI; paragraphs of XQuAD. Texts from repositories are only "
        "read to make this page and are not shipped.",
        f"* **Versions**: noetic_nb {version('noetic_nb')}, tiktoken {version('tiktoken')}, Python {platform.python_version()}.",
        "",
        "## Recorded agents, together",
        *table([""], [one._replace(of=one.of._replace(group="all")) for one in ours], by_kind=False),
        "",
        "## By domain and kind of item",
        *table(["domain", "kind"], ours),
        "",
        "## Code and languages",
        *table([""], main_ones, by_kind=False),
        "",
        "The same by source. Translated manuals contain code and English words:",
        *table(["", "source"], main_ones),
        "",
        "## Other languages",
        "",
        "The counter was not fitted for these languages. The vocabulary splits Latin words of other languages more "
        "often than English words, and the rates do not depend on the language.",
        *table([""], [one for one in kept if one.of.group in OTHERS.values()], by_kind=False),
        "",
    ]
    publish("\n".join(lines), "offline_tokens.md", write=chosen.write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
