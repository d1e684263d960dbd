"""Survival of facts: through compactions of the context, and in the texts that layers keep."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, get_args

from noetic_nb.items import item_text
from noetic_nb.lab._checks import each_run
from noetic_nb.lab._dialogues import Dialogue, as_dialogues
from noetic_nb.lab._recall_quality.dialogue_runner import Player
from noetic_nb.lab._recall_quality.facts import Fact, FactKind, KnownFacts, facts_of
from noetic_nb.lab._recall_quality.losses import facts_in
from noetic_nb.lab._recall_quality.memory_benches import sets_of_layers
from noetic_nb.lab._recall_quality.sent_contexts import ContextIndex
from noetic_nb.lab._recall_quality.synthetic_dialogues import made_dialogues
from noetic_nb.lab._statistics.intervals import Cluster, counted
from noetic_nb.runs import Run
from noetic_nb.sync import run_sync
from noetic_nb.tokens import estimate_tokens

if TYPE_CHECKING:
    import pandas

FIDELITY_COLUMNS: Final = (
    "layers", "said", "kept", "recall", "recall_low", "recall_high", "precision", "precision_low", "precision_high",
)  # fmt: skip
# A budget that lets every text be sent.
_WHOLE: Final = 1e9
# The time that a layer writes before a line is not a stated fact.
_STAMP: Final = re.compile(r"^(- )?\[[^\]]*\] ", re.MULTILINE)


def write_fidelity(layers: Any, dialogues: Iterable[Dialogue] | None = None, *, seed: int = 0) -> pandas.DataFrame:
    """Return the share of the facts in messages that layers kept, and the share of kept facts that was stated.

    See docs/behaviour/lab.md, "A bench without a judge".

    Parameters
    ----------
    layers : mapping, or sequence
        Sets of layers, as for `memory_bench`.
    dialogues : iterable of Dialogue, optional
        As for `memory_bench`; questions are not asked.
    seed : int
        Seed of the generated dialogues.

    Returns
    -------
    pandas.DataFrame
        One row per set: ``layers``; ``said``, the facts in all messages, each once per dialogue; ``kept``, the facts in
        all texts that the layers could recall at the end, whatever the budget. ``recall`` is the share of ``said`` in
        the kept texts, ``precision`` the share of ``kept`` that was stated, each with its 95 % interval over dialogues.
        Facts are found by rules. Rephrased likes and states (``preference``) count only for recall; times that layers
        write before a line do not count. History keeps nothing.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYERS``, ``NO_DIALOGUES``, ``INVALID_DIALOGUE``, ``NO_QUESTIONS``.

    Examples
    --------
    >>> from noetic_nb.layers import observational_memory
    >>> whole = observational_memory(id="whole", buffer_threshold=20)
    >>> half = observational_memory(lambda texts: [text[: len(text) // 2] for text in texts], id="half", buffer_threshold=20)
    >>> table = write_fidelity([whole, half], made_dialogues(2)).set_index("layers")
    >>> bool(table.recall["whole"] > table.recall["half"] > 0.0), table.precision["whole"].item()
    (True, 1.0)
    """
    import pandas

    played = made_dialogues(seed=seed) if dialogues is None else as_dialogues(dialogues)
    said = [[item_text(item) for session in one.sessions for item in session] for one in played]
    facts, known = [_once(texts) for texts in said], [KnownFacts(texts) for texts in said]
    rows = []
    for name, made in sets_of_layers(layers).items():
        found: list[tuple[Cluster, bool]] = []
        true: list[tuple[Cluster, bool]] = []
        for at, one in enumerate(played):
            player = Player(replace(one, questions=()), made(), [_WHOLE], estimate_tokens, None, Counter())
            kept = [_STAMP.sub(r"\1", text) for text in run_sync(player.kept())]
            tells = KnownFacts(kept)
            found += [(Cluster(at), fact in tells) for fact in facts[at]]
            true += [(Cluster(at), fact in known[at]) for fact in _once(kept) if fact.kind != "preference"]
        shares = [counted([hit for _, hit in some], [cluster for cluster, _ in some]) for some in (found, true)]
        ends = [number for share in shares for number in (share.rate, share.low, share.high)]
        rows.append((name, len(found), len(true), *ends))
    return pandas.DataFrame(rows, columns=FIDELITY_COLUMNS)


def _once(texts: Sequence[str]) -> list[Fact]:
    return list({(fact.kind, fact.keys): fact for some in facts_of(texts) for fact in some}.values())


COLUMNS: Final = ("kind", "n", "of", "rate", "low", "high")


def survival(runs: Run | Iterable[Run]) -> pandas.DataFrame:
    """Count the facts that compactions removed from the context, and those that remained stated after every one.

    See docs/behaviour/lab.md, "What survives a compaction".

    Parameters
    ----------
    runs : Run or iterable of Run
        Our own or imported. Runs without a compaction are ignored.

    Returns
    -------
    pandas.DataFrame
        One row per kind of fact: ``kind``, ``n`` (facts that survived), ``of`` (facts whose items were left out by a
        call after a compaction), ``rate``, and its 95 % interval ``low`` to ``high`` over runs, missing for a single
        run. ``attrs["runs"]`` counts runs with a readable compaction; ``attrs["unknown"]`` counts unreadable
        compactions, whose facts are in no row.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUNS``.

    Examples
    --------
    >>> import noetic_nb as nn
    >>> said = [{"source": "user", "message": text} for text in ("I'm allergic to nuts.", "My order is A17-B.")]
    >>> summary = {"source": "user", "message": "The user is allergic to nuts.", "extra": {"compaction": True}}
    >>> run = nn.import_run({"schema_version": "ATIF-1.8", "steps": [*said, summary]})
    >>> survival(run)[["kind", "n", "of"]].values.tolist()
    [['id', 0, 1], ['preference', 1, 1]]
    """
    import pandas

    counts: list[list[tuple[str, bool]]] = []
    unknown = 0
    for run in each_run(runs, "`survival` needs runs.", code="INVALID_RUNS"):
        found, unread = _survived(run)
        counts += [found] if found else []
        unknown += unread
    rows = []
    for kind in get_args(FactKind):
        facts = [(is_told, Cluster(at)) for at, one in enumerate(counts) for name, is_told in one if name == kind]
        if facts:
            count = counted([is_told for is_told, _ in facts], [cluster for _, cluster in facts])
            rows.append((kind, count.n, count.of, count.rate, count.low, count.high))
    frame = pandas.DataFrame(rows, columns=COLUMNS)
    frame.attrs.update(runs=len(counts), unknown=unknown)
    return frame.astype(
        {"kind": "object"} | dict.fromkeys(("n", "of"), "int64") | dict.fromkeys(COLUMNS[3:], "float64")
    )


def _survived(run: Run) -> tuple[list[tuple[str, bool]], int]:
    """Return the kind of each left-out fact and whether all compactions retained it; and the unknown compactions."""
    index = ContextIndex(run)
    found: list[tuple[str, bool]] = []
    unknown = 0
    for key, contexts in groupby(index.after_compactions(), key=itemgetter(0)):
        log = facts_in(index.log_of(key))
        told: dict[tuple[str, tuple[str, ...]], bool] = {}
        alive: dict[tuple[str, tuple[str, ...]], tuple[Fact, list[int]]] = {}
        read = of_log = 0
        for _, context in contexts:
            of_log = context.unknown
            for at in range(read, len(context.log)):
                for fact in log[at]:
                    name: tuple[str, tuple[str, ...]] = fact.kind, fact.keys
                    if told.get(name, True):  # a fact that is stated again later was lost nevertheless
                        alive.setdefault(name, (fact, []))[1].append(at)
            read = len(context.log)
            known, absent = KnownFacts(context.texts), frozenset(context.absent)
            for name, (fact, places) in list(alive.items()):
                if not absent.isdisjoint(places):
                    told[name] = fact in known
                    if not told[name]:
                        del alive[name]
        found += [(kind, is_told) for (kind, _), is_told in told.items()]
        unknown += of_log
    return found, unknown
