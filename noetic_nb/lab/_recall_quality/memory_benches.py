"""Memory layers compared by a number that needs no judge: was the evidence sent when the question was asked."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum, nan
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.long_work import Progress, Work
from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._dialogues import Dialogue, as_dialogues
from noetic_nb.lab._recall_quality.dialogue_runner import Played, Player
from noetic_nb.lab._recall_quality.synthetic_dialogues import made_dialogues
from noetic_nb.lab._statistics.intervals import Cluster, mean_interval
from noetic_nb.memory import MemoryLayer
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer, estimate_tokens

if TYPE_CHECKING:
    import pandas

COLUMNS: Final = ("layers", "budget", "recall", "low", "high", "tokens", "cost_fresh", "cost_cached", "ms")
UNITS: Final = {
    "budget": "tokens",
    "tokens": "tokens",
    "cost_fresh": "US dollars",
    "cost_cached": "US dollars",
    "ms": "ms",
}
# US dollars per million tokens of input, and the share of it that a cached token costs: round numbers to compare layers by.
PRICE: Final = 1.0
CACHED_SHARE: Final = 0.1
_MILLION: Final = 1e6


def memory_bench(
    layers: Any,
    dialogues: Iterable[Any] | None = None,
    *,
    budgets: Iterable[float],
    seed: int = 0,
    price: float = PRICE,
    cached_share: float = CACHED_SHARE,
    tokenizer: Tokenizer = estimate_tokens,
    clock: Clock | None = None,
    progress: Progress = True,
) -> pandas.DataFrame:
    """Play dialogues to sets of layers and count how often the evidence of a question was sent with it.

    Parameters
    ----------
    layers : mapping, or sequence
        Sets of layers by name; a set is a layer, a sequence of them (empty for plain history), or a function that makes one of
        these for each dialogue. In a sequence the ids of its layers name a set.
    dialogues : iterable of Dialogue or of Run, optional
        Such as `datasets.load_locomo` or `datasets.load_longmemeval` reads them; fifty made from `seed` by default.
    budgets : iterable of float, tokens
        Of a whole request.
    seed : int
        Of the dialogues that are made, and of the intervals.
    price : float, US dollars
        Of a million tokens of input.
    cached_share : float
        Of the price, for a token of a prefix that the request before had as well, from 0 to 1.
    tokenizer : callable
        From text to tokens.
    clock : Clock, optional
        With what latency is measured, such as ``noetic_nb.clock.SystemClock()``; not measured by default, as no two tables would
        be equal.
    progress : bool or callable
        Called with how many dialogues are played, of how many; by default a line of text in a terminal or notebook if it takes
        long. False shows nothing.

    Returns
    -------
    pandas.DataFrame
        One row for each set and budget: ``layers, budget``; ``recall``, the mean share of the evidence of a question that was
        sent, with its 95 % interval ``low, high`` over dialogues; ``tokens``, the mean of the requests with a question;
        ``cost_fresh`` and ``cost_cached``, US dollars of input of a dialogue with all of its requests, without and with a cache
        of prefixes; ``ms``, the mean time in which a request was recalled and planned, missing without a clock.
        ``attrs["units"]`` has the units, ``attrs["by_kind"]`` the recall of each kind of question, ``attrs["outdated"]`` how much
        of what held before a change was sent as well, where questions name it, ``attrs["problems"]`` what hooks reported: set,
        layer, hook, what, how often. ``attrs["dialogues"]`` is their number, ``attrs["stopped"]`` why some are missing, or None.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYERS``, ``INVALID_BUDGETS``, ``INVALID_PRICE``; ``NO_DIALOGUES``, ``INVALID_DIALOGUE``, ``NO_QUESTIONS``.

    Warns
    -----
    UserWarning
        Where hooks reported problems, such as vectors whose length changes: the set was measured without what failed.
    Interrupted
        If it is interrupted: every set is measured on the same dialogues, those that were finished.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "A bench without a judge".

    Examples
    --------
    >>> from noetic_nb.layers import history_window
    >>> from noetic_nb.lab._recall_quality.synthetic_dialogues import made_dialogues
    >>> table = memory_bench({"plain": [], "window": history_window(4)}, made_dialogues(4), budgets=[300, 2_000])
    >>> table.layers.tolist(), bool(table.recall[1] > table.recall[3])
    (['plain', 'plain', 'window', 'window'], True)
    """
    import pandas

    sets = _sets(layers)
    totals = _budgets(budgets)
    if not (_is_number(price) and price >= 0 and _is_number(cached_share) and 0 <= cached_share <= 1):
        raise NoeticConfigError(
            "INVALID_PRICE",
            "A price is at least 0, and the share of it for cached tokens is from 0 to 1.",
            given={"price": price, "cached_share": cached_share},
            hint="Use price=1.0, cached_share=0.1.",
        )
    played_to = made_dialogues(seed=seed) if dialogues is None else as_dialogues(dialogues)
    rows: list[tuple[Any, ...]] = []
    by_kind: dict[str, dict[float, dict[str, float]]] = {}
    outdated: dict[str, dict[float, float]] = {}
    problems: list[tuple[str, str, str, str, int]] = []
    reports: dict[str, Counter[tuple[str, str, str]]] = {name: Counter() for name in sets}
    played_by: dict[str, list[list[Played]]] = {name: [] for name in sets}
    with Work("memory_bench", "dialogues", progress, of=len(played_to)) as work:
        for dialogue in work.each(played_to):
            # All sets before the next dialogue: if it is interrupted, they are compared on the same ones.
            of_sets = {
                name: run_sync(Player(dialogue, made(), totals, tokenizer, clock, reports[name]).play())
                for name, made in sets.items()
            }
            for name, of_set in of_sets.items():
                played_by[name].append(of_set)
    played_to = played_to[: work.done]
    for name, played in played_by.items():
        for place, budget in enumerate(totals):
            of_budget = [one[place] for one in played]
            rows.append((name, budget, *_row(of_budget, played_to, price, cached_share, seed, clock)))
            by_kind.setdefault(name, {})[budget] = _by_kind(of_budget)
            stale = [share for one in of_budget for share in one.outdated]
            outdated.setdefault(name, {})[budget] = fsum(stale) / len(stale) if stale else nan
        problems += [(name, *key, count) for key, count in sorted(reports[name].items())]
    if problems:
        first = problems[0]
        warnings.warn(
            f"Layers reported {sum([count for *_, count in problems])} problems, such as {first[1]!r} of {first[0]!r} in "
            f"{first[2]}: {first[3]:.200} Look at attrs['problems'].",
            stacklevel=2,
        )
    frame = pandas.DataFrame(rows, columns=COLUMNS)
    frame.attrs |= {
        "units": dict(UNITS),
        "by_kind": by_kind,
        "outdated": outdated,
        "problems": tuple(problems),
        "seed": seed,
        "dialogues": len(played_to),
        "stopped": work.cut,
    }
    return frame


def _sets(given: Any) -> dict[str, Callable[[], Sequence[MemoryLayer]]]:
    """Return sets of layers by name, each as a function that makes it."""
    if isinstance(given, Mapping):
        named = [(str(name), one) for name, one in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        named = [(" + ".join([layer.id for layer in _made(one)]) or "plain history", one) for one in given]
    else:
        raise _no_layers(given)
    names = [name for name, _ in named]
    if not named or len(set(names)) < len(names):
        raise NoeticConfigError(
            "INVALID_LAYERS", "Sets of layers have names of their own.", given=names, hint="Pass {name: [layer, ...]}."
        )
    for _, one in named:
        _made(one)
    return {name: partial(_made, one) for name, one in named}


def _made(given: Any) -> Sequence[MemoryLayer]:
    made = given() if callable(given) and not isinstance(given, MemoryLayer) else given
    layers = [made] if isinstance(made, MemoryLayer) else made
    if not isinstance(layers, Sequence) or not all(isinstance(layer, MemoryLayer) for layer in layers):
        raise _no_layers(given)
    return tuple(layers)


def _no_layers(given: object) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_LAYERS",
        "That is no set of layers.",
        given=given,
        hint="Pass {'window': [nn.history_window(6)], 'plain': []}.",
    )


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and not math.isnan(given)


def _budgets(given: Any) -> tuple[float, ...]:
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not found or not all(_is_number(one) and one > 0 for one in found) or len(set(found)) < len(found):
        raise NoeticConfigError(
            "INVALID_BUDGETS",
            "Budgets are numbers of tokens above 0, each of them once.",
            given=given,
            hint="Use budgets=[500, 1_000, 2_000].",
        )
    return found


def _row(
    played: Sequence[Played],
    dialogues: Sequence[Dialogue],
    price: float,
    cached_share: float,
    seed: int,
    clock: Clock | None,
) -> tuple[float, ...]:
    asked = [one for one in played if one.recall]
    shares = [share for one in asked for share in one.recall]
    low, high = mean_interval(shares, [Cluster(at) for at, one in enumerate(asked) for _ in one.recall])
    low, high = max(low, 0.0), min(high, 1.0)  # of a share
    tokens = [count for one in asked for count in one.asked_tokens]
    count = len(dialogues)
    fresh = sum([one.tokens for one in played]) / count
    shared = sum([one.shared for one in played]) / count
    requests = sum([one.requests for one in played])
    return (
        fsum(shares) / len(shares),
        low,
        high,
        fsum(tokens) / len(tokens),
        price * fresh / _MILLION,
        price * (fresh - (1 - cached_share) * shared) / _MILLION,
        nan if clock is None else fsum([one.ms for one in played]) / requests,
    )


def _by_kind(played: Sequence[Played]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for one in played:
        for kind, share in zip(one.kinds, one.recall, strict=True):
            shares.setdefault(kind, []).append(share)
    return {kind: fsum(found) / len(found) for kind, found in sorted(shares.items())}
