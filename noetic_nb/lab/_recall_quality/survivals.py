"""Facts that compactions took from the context, and how many of them are still told after it, by kind."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from noetic_nb.lab._checks import check_run
from noetic_nb.lab._recall_quality.facts import Fact, FactKind, KnownFacts
from noetic_nb.lab._recall_quality.losses import facts_in
from noetic_nb.lab._recall_quality.sent_contexts import ContextIndex
from noetic_nb.lab._statistics.intervals import Cluster, counted
from noetic_nb.runs import Run

if TYPE_CHECKING:
    import pandas

_Name: TypeAlias = tuple[str, tuple[str, ...]]
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

    given: Iterable[object] = runs if isinstance(runs, Iterable) and not isinstance(runs, Run) else [runs]
    counts: list[list[tuple[str, bool]]] = []
    unknown = 0
    for run in given:
        found, unread = _survived(check_run(run, "Survival is counted in runs.", code="INVALID_RUNS"))
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
    """Return the kind of each fact that was left out, and whether it was told after every compaction; and unknown compactions."""
    index = ContextIndex(run)
    found: list[tuple[str, bool]] = []
    unknown = 0
    for key, contexts in groupby(index.after_compactions(), key=itemgetter(0)):
        log = facts_in(index.requests.log_of(index.ends[key]))
        told: dict[_Name, bool] = {}
        alive: dict[_Name, tuple[Fact, list[int]]] = {}
        read = of_log = 0
        for _, context in contexts:
            of_log = context.unknown
            for at in range(read, len(context.log)):
                for fact in log[at]:
                    name: _Name = fact.kind, fact.keys
                    if told.get(name, True):  # what is told again later was lost all the same
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
