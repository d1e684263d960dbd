"""Recall along an axis, and the contribution of each layer to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import comb, isnan
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of
from noetic_nb.lab._dialogues import Dialogue
from noetic_nb.lab._recall_quality.evidence_ladder import RUNGS
from noetic_nb.lab._recall_quality.memory_benches import made_layers, mean_recall, memory_bench

if TYPE_CHECKING:
    import pandas

AXES: Final = {"age": "age_turns", "age_tokens": "age_tokens", "position": "position", "length": "length"}
MOST: Final = 6
"""The maximum number of layers for shares: sixty-four sets are played."""


def recall_curve(table: pandas.DataFrame, *, by: str = "age", rung: str = "value", bins: int = 8) -> pandas.DataFrame:
    """Return recall by the age of the evidence, by its position in the dialogue, or by the dialogue's length.

    Parameters
    ----------
    table : pandas.DataFrame
        The result of `memory_bench`; its ``attrs`` hold the questions.
    by : {"age", "age_tokens", "position", "length"}
        Turns or tokens since the evidence; its position, from 0 to 1; or the tokens of the dialogue, which vary among
        dialogues from `with_filler`.
    rung : {"verbatim", "value", "owned", "answerable"}
        The rung of evidence.
    bins : int
        The maximum number of groups, each with about the same number of questions.

    Returns
    -------
    pandas.DataFrame
        One row per set, budget and group: ``layers, budget``, the mean of the axis under its name, ``recall, low, high,
        questions``; the interval is over dialogues.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME`` for another table, ``UNKNOWN_AXIS``, ``INVALID_RUNG``, ``INVALID_BINS``.

    Examples
    --------
    >>> from noetic_nb.lab import made_dialogues
    >>> table = memory_bench({"plain": []}, made_dialogues(4), budgets=[800])
    >>> curve = recall_curve(table, bins=2)
    >>> curve.columns.tolist(), bool(curve.recall[0] > curve.recall[1])
    (['layers', 'budget', 'age', 'recall', 'low', 'high', 'questions'], True)
    """
    import pandas

    asked = getattr(table, "attrs", {}).get("asked")
    if asked is None:
        hint = "Pass its result unchanged."
        raise NoeticConfigError("INVALID_FRAME", "This is not a table of memory_bench.", given=type(table), hint=hint)
    check_one_of(AXES, "UNKNOWN_AXIS", by=by)
    check_one_of(RUNGS, "INVALID_RUNG", rung=rung)
    if type(bins) is not int or bins < 1:
        raise NoeticConfigError("INVALID_BINS", "Pass at least one group.", given=bins, hint="Use bins=8.")
    groups: defaultdict[tuple[str, float], list[tuple[float, float, str]]] = defaultdict(list)
    for one in asked:
        place, share = getattr(one, AXES[by]), getattr(one, rung)
        if not isnan(place) and not isnan(share):
            groups[one.layers, one.budget].append((place, share, one.dialogue))
    rows = []
    for (layers, budget), found in groups.items():
        for part in _parts(sorted(found), bins):
            middle = sum([place for place, *_ in part]) / len(part)
            rows.append((layers, budget, middle, *mean_recall([(dialogue, share) for _, share, dialogue in part])))
    return pandas.DataFrame(rows, columns=["layers", "budget", by, "recall", "low", "high", "questions"])


def _parts(found: Sequence[Any], bins: int) -> list[list[Any]]:
    """Return groups of about equal size; questions at the same place stay together."""
    size = len(found) / bins
    parts: list[list[Any]] = []
    for one in found:
        if parts and (one[0] == parts[-1][-1][0] or len(parts[-1]) < size):
            parts[-1].append(one)
        else:
            parts.append([one])
    return parts


def layer_shares(
    layers: Mapping[str, Any],
    dialogues: Iterable[Dialogue] | None = None,
    *,
    budget: float,
    rung: str = "value",
    **options: Any,
) -> pandas.DataFrame:
    """Return the contribution of each layer to a set's recall: alone, as the last one, and on average over all orders.

    Parameters
    ----------
    layers : mapping
        At most six layers by name, each given like a set of `memory_bench`.
    dialogues : iterable of Dialogue, optional
        As for `memory_bench`.
    budget : float, tokens
        The budget of a whole request.
    rung : {"verbatim", "value", "owned", "answerable"}
        The rung of evidence.
    **options
        Options of `memory_bench`, such as ``tokenizer`` and ``n_jobs``.

    Returns
    -------
    pandas.DataFrame
        One row per layer: ``layer``; ``alone``, its gain over plain history; ``left_out``, the loss without it;
        ``shapley``, its mean gain over all sets of the others [1]_, which sums to the total gain. Layers compete for
        the budget, so a share may be negative.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYERS`` for more than six, ``INVALID_RUNG``, and the errors of `memory_bench`.

    References
    ----------
    .. [1] Shapley, L. S. (1953). A value for n-person games. Contributions to the Theory of Games 2, 307-317.

    Examples
    --------
    >>> from noetic_nb.lab import made_dialogues
    >>> from noetic_nb.layers import history_window, hybrid_recall
    >>> given = {"recall": hybrid_recall(), "window": history_window(2)}
    >>> shares = layer_shares(given, made_dialogues(2), budget=500).set_index("layer")
    >>> bool(shares.shapley["recall"] > 0.5 > shares.shapley["window"])
    True
    """
    import pandas

    if not isinstance(layers, Mapping) or not 1 <= len(layers) <= MOST:
        what = f"Shares are those of one to {MOST} layers by name."
        raise NoeticConfigError("INVALID_LAYERS", what, given=layers, hint="Pass {name: layer}.")
    check_one_of(RUNGS, "INVALID_RUNG", rung=rung)
    names = list(layers)
    subsets = [frozenset(some) for size in range(len(names) + 1) for some in combinations(names, size)]
    titles = {some: " + ".join([name for name in names if name in some]) for some in subsets}
    sets = {title: _together([layers[name] for name in names if name in some]) for some, title in titles.items()}
    table = memory_bench(sets, dialogues, budgets=[budget], **options)
    found = table[table.rung == rung].set_index("layers").recall
    recall = {some: float(found[title]) for some, title in titles.items()}
    whole, rows = frozenset(names), []
    for name in names:
        without = [some for some in subsets if name not in some]
        gains = [(recall[some | {name}] - recall[some]) / comb(len(names) - 1, len(some)) for some in without]
        alone = recall[frozenset([name])] - recall[frozenset()]
        rows.append((name, alone, recall[whole] - recall[whole - {name}], sum(gains) / len(names)))
    frame = pandas.DataFrame(rows, columns=["layer", "alone", "left_out", "shapley"])
    frame.attrs |= {"recall": {" + ".join(sorted(some)): share for some, share in recall.items()}, "rung": rung}
    return frame


def _together(given: Sequence[Any]) -> Any:
    return lambda: [layer for one in given for layer in made_layers(one)]
