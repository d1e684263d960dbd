"""Facts that compactions took from the context, and how many of them are still told after it, by kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._recall_quality.facts import Fact, FactKind, KnownFacts
from noetic_nb.lab._recall_quality.losses import facts_in
from noetic_nb.lab._recall_quality.sent_contexts import ContextIndex
from noetic_nb.lab._statistics.intervals import Cluster, counted
from noetic_nb.runs import Run

if TYPE_CHECKING:
    import pandas

_Name: TypeAlias = tuple[tuple[str, str], str, tuple[str, ...]]
COLUMNS: Final = ("kind", "n", "of", "rate", "low", "high")


def survival(runs: Run | Iterable[Run]) -> pandas.DataFrame:
    """Count the facts that compactions took from the context, and those that the context still told after each of them.

    Parameters
    ----------
    runs : Run or iterable of Run
        Own or imported. Runs without a compaction count for nothing.

    Returns
    -------
    pandas.DataFrame
        One row a kind of fact that was there: ``kind``, ``n`` (facts that survived), ``of`` (facts whose items were left out by
        a call after a compaction), ``rate``, and its 95 % interval ``low`` to ``high`` over runs, missing for a single run.
        ``attrs["runs"]`` counts runs with a compaction that can be read; ``attrs["unknown"]`` counts compactions of which nobody
        knows what they kept, whose facts are in no row.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUNS``.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "What survives a compaction".

    Examples
    --------
    >>> from noetic_nb.events import ContextCompacted, ItemsAppended, Where
    >>> from noetic_nb.items import input_message
    >>> from noetic_nb.runs import Run
    >>> where = Where("t1", "e1", 1)
    >>> said = [input_message(text) for text in ("I'm allergic to nuts.", "My order is A17-B.")]
    >>> summary = input_message("The user is allergic to nuts.", "developer")
    >>> log = ItemsAppended(where, 0.0, 0, tuple(said), "user")
    >>> run = Run(events=[log, ContextCompacted(where, 1.0, "writer", 2, (summary,))])
    >>> survival(run)[["kind", "n", "of"]].values.tolist()
    [['id', 0, 1], ['preference', 1, 1]]
    """
    import pandas

    given = [runs] if isinstance(runs, Run) else runs
    counts: list[dict[str, list[int]]] = []
    unknown = 0
    if not isinstance(given, Iterable):
        raise _no_runs(given)
    for run in given:
        if not isinstance(run, Run):
            raise _no_runs(run)
        found, unread = _survived(run)
        unknown += unread
        if found:
            counts.append(_by_kind(found))
    rows = []
    for kind in get_args(FactKind):
        those = [one[kind] for one in counts if kind in one]
        if those:
            facts = [(at < n, Cluster(run)) for run, (n, of) in enumerate(those) for at in range(of)]
            count = counted([is_kept for is_kept, _ in facts], [cluster for _, cluster in facts])
            rows.append((kind, count.n, count.of, count.rate, count.low, count.high))
    frame = pandas.DataFrame(rows, columns=COLUMNS)
    frame.attrs.update(runs=len(counts), unknown=unknown)
    return frame.astype(
        {"kind": "object", "n": "int64", "of": "int64", "rate": "float64", "low": "float64", "high": "float64"}
    )


def _no_runs(given: object) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_RUNS",
        "Survival is counted in runs.",
        given=given,
        hint="Pass a run, or a list of runs: nn.load_run(path), nn.import_runs(path).",
    )


def _by_kind(found: Iterable[tuple[str, bool]]) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {}
    for kind, is_told in found:
        count = counts.setdefault(kind, [0, 0])
        count[0] += is_told
        count[1] += 1
    return counts


def _survived(run: Run) -> tuple[list[tuple[str, bool]], int]:
    """Return the kind of each fact that was left out, and whether it was told after every compaction; and unknown compactions."""
    index = ContextIndex(run)
    told: dict[_Name, bool] = {}
    logs: dict[tuple[str, str], list[list[Fact]]] = {}
    alive: dict[tuple[str, str], dict[_Name, tuple[Fact, list[int]]]] = {}
    read: dict[tuple[str, str], int] = {}
    unknown: dict[tuple[str, str], int] = {}
    for key, context in index.after_compactions():
        if key not in logs:
            logs[key] = facts_in(index.requests.log_of(index.ends[key]))
        unknown[key] = context.unknown
        facts = alive.setdefault(key, {})
        for at in range(read.get(key, 0), len(context.log)):
            for fact in logs[key][at]:
                name: _Name = key, fact.kind, fact.keys
                if told.get(name, True):  # what is told again later was lost all the same
                    facts.setdefault(name, (fact, []))[1].append(at)
        read[key] = len(context.log)
        known = KnownFacts(context.texts)
        absent = frozenset(context.absent)
        for name, (fact, places) in list(facts.items()):
            if absent.isdisjoint(places):
                continue
            told[name] = fact in known
            if not told[name]:
                del facts[name]
    return [(name[1], is_told) for name, is_told in told.items()], sum(unknown.values())
