"""Compare memory layers without a judge: was the evidence sent when the question was asked?"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum, nan
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noetic_nb._core.arguments import check_seed
from noetic_nb._core.long_work import Progress, Work
from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import in_processes, is_number
from noetic_nb.lab._dialogues import Dialogue, as_dialogues
from noetic_nb.lab._recall_quality.dialogue_runner import Asked, Played, Player
from noetic_nb.lab._recall_quality.evidence_ladder import RUNGS
from noetic_nb.lab._recall_quality.synthetic_dialogues import made_dialogues
from noetic_nb.lab._statistics.intervals import Cluster, mean_interval
from noetic_nb.memory import MemoryLayer
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer, estimate_tokens

if TYPE_CHECKING:
    import pandas

COLUMNS: Final = (
    "layers", "budget", "rung", "recall", "low", "high", "questions", "tokens", "cost_fresh", "cost_cached", "ms",
    "own_calls", "own_tokens", "own_cost", "own_ms",
)  # fmt: skip
UNITS: Final = {
    "budget": "tokens",
    "tokens": "tokens",
    "cost_fresh": "US dollars",
    "cost_cached": "US dollars",
    "ms": "ms",
    "own_tokens": "tokens",
    "own_cost": "US dollars",
    "own_ms": "ms",
}
# US dollars per million input tokens, and the relative price of a cached token: round numbers for comparison.
PRICE: Final = 1.0
CACHED_SHARE: Final = 0.1
_MILLION: Final = 1e6
# Token counts of texts up to this many characters are cached.
LONGEST_KNOWN: Final = 2_000


def memory_bench(
    layers: Any,
    dialogues: Iterable[Dialogue] | None = None,
    *,
    budgets: Iterable[float],
    seed: int = 0,
    price: float = PRICE,
    cached_share: float = CACHED_SHARE,
    tokenizer: Tokenizer = estimate_tokens,
    clock: Clock | None = None,
    n_jobs: int = 1,
    progress: Progress = True,
) -> pandas.DataFrame:
    """Play dialogues to sets of layers and measure how much of each question's evidence was sent with it.

    See docs/behaviour/lab.md, "A bench without a judge".

    Parameters
    ----------
    layers : mapping, or sequence
        Sets of layers by name; a set is a layer, a sequence of layers (empty for plain history), or a function that
        makes one of these for each dialogue. In a sequence, each set is named after its layers' ids.
    dialogues : iterable of Dialogue, optional
        Such as from `made_dialogues` or `datasets.load_locomo`; by default twenty generated from `seed`.
    budgets : iterable of float, tokens
        The budgets of a whole request.
    seed : int
        Seed of the generated dialogues and of the intervals.
    price : float, US dollars
        Per million input tokens.
    cached_share : float
        Relative price of a token in a prefix shared with the previous request, from 0 to 1.
    tokenizer : callable
        Counts the tokens of a text.
    clock : Clock, optional
        Measures latency, such as ``noetic_nb.clock.SystemClock()``. By default it is not measured, because no two
        tables would be equal.
    n_jobs : int
        The number of processes, -1 for one per processor; uses joblib of ``noetic_nb[study]``. cloudpickle must be able
        to serialise the layers and their functions.
    progress : bool or callable
        Called with the number of dialogues played and of all; by default a line of text in a terminal or notebook if it
        takes long. False shows nothing.

    Returns
    -------
    pandas.DataFrame
        One row per set, budget and ``rung`` of evidence, from easy to hard: ``verbatim``, the exact message; ``value``,
        its value; ``owned``, the value in a statement with its owner and attribute; ``answerable``, all parts owned,
        nothing missing, and no outdated value after the current one. ``recall`` is the mean share of a question's
        evidence, with its 95 % interval ``low, high`` over dialogues; ``questions`` is the number of questions that a
        data set marks for this rung. Without any, recall is NaN. ``tokens`` is the mean of the requests with a
        question; ``cost_fresh`` and ``cost_cached`` are US dollars of input per dialogue, without and with a prefix
        cache; ``ms`` is the mean time to recall and plan a request, missing without a clock. ``own_calls``,
        ``own_tokens``, ``own_cost`` and ``own_ms`` are the spending of `external_memory` stores per dialogue: model
        calls, their tokens and price, and the time of the store's calls. ``attrs["units"]`` has the units,
        ``attrs["by_kind"]`` the recall of each kind of question by set, budget and rung, ``attrs["outdated"]`` the
        share of outdated facts that was sent, if questions name them, ``attrs["asked"]`` a record per question,
        ``attrs["problems"]`` the problems reported by hooks: set, layer, hook, problem, count. ``attrs["dialogues"]``
        is their number, ``attrs["stopped"]`` the reason why some are missing, or None.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYERS``, ``INVALID_BUDGETS``, ``INVALID_PRICE``; ``NO_DIALOGUES``, ``INVALID_DIALOGUE``, ``NO_QUESTIONS``.

    Warns
    -----
    UserWarning
        If hooks reported problems, such as vectors of varying length: the set was measured without the failed parts.
    Interrupted
        If it is interrupted: every set is measured on the same finished dialogues.

    Examples
    --------
    >>> from noetic_nb.layers import history_window
    >>> table = memory_bench({"plain": [], "window": history_window(4)}, made_dialogues(4), budgets=[2_000])
    >>> value = table[table.rung == "value"].set_index("layers").recall
    >>> table.rung.tolist()[:4], bool(value["plain"] > value["window"])
    (['verbatim', 'value', 'owned', 'answerable'], True)
    """
    import pandas

    sets = sets_of_layers(layers)
    totals = _budgets(budgets)
    check_seed(seed)
    if not (is_number(price) and price >= 0 and is_number(cached_share) and 0 <= cached_share <= 1):
        what = "A price must be at least 0, and its share for cached tokens from 0 to 1."
        hint = "Use price=1.0, cached_share=0.1."
        raise NoeticConfigError("INVALID_PRICE", what, given={"price": price, "cached_share": cached_share}, hint=hint)
    played_to = made_dialogues(seed=seed) if dialogues is None else as_dialogues(dialogues)
    rows: list[tuple[Any, ...]] = []
    by_kind: dict[str, dict[float, dict[str, dict[str, float]]]] = {}
    records: list[Any] = []
    outdated: dict[str, dict[float, float]] = {}
    problems: list[tuple[str, str, str, str, int]] = []
    reports: dict[str, Counter[tuple[str, str, str]]] = {name: Counter() for name in sets}
    played_by: dict[str, list[list[Played]]] = {name: [] for name in sets}
    counting = _remembering(tokenizer) if n_jobs == 1 else tokenizer
    jobs = [(dialogue, sets, totals, counting, clock) for dialogue in played_to]
    # Dialogue by dialogue over all sets, so that an interrupted bench compares sets on the same dialogues.
    with Work("memory_bench", "dialogues", progress, of=len(played_to)) as work:
        for of_sets in work.each(in_processes(_played, jobs, n_jobs)):
            for name, (of_dialogue, reported) in of_sets.items():
                played_by[name].append(of_dialogue)
                reports[name] += reported
    played_to = played_to[: work.done]
    for name, played in played_by.items():
        for place, budget in enumerate(totals):
            of_budget = [one[place] for one in played]
            asked = [(place, one) for place, played in enumerate(of_budget) for one in played.asked]
            for rung in RUNGS:
                found = mean_recall([(place, getattr(one, rung)) for place, one in asked])
                rows.append((name, budget, rung, *found, *_costs(of_budget, price, cached_share, clock)))
            by_kind.setdefault(name, {})[budget] = _by_kind([one for _, one in asked])
            outdated.setdefault(name, {})[budget] = _mean([one.stale for _, one in asked])
            records += [one for _, one in asked]
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
        "asked": Records(records),
        "problems": tuple(problems),
        "seed": seed,
        "dialogues": len(played_to),
        "stopped": work.cut,
    }
    return frame


_Result: TypeAlias = dict[str, tuple[list[Played], "Counter[tuple[str, str, str]]"]]


def _played(
    dialogue: Dialogue,
    sets: Mapping[str, Callable[[], Sequence[MemoryLayer]]],
    budgets: Sequence[float],
    tokenizer: Tokenizer,
    clock: Clock | None,
) -> _Result:
    found: _Result = {}
    for name, made in sets.items():
        reported: Counter[tuple[str, str, str]] = Counter()
        player = Player(dialogue, made(), budgets, _remembering(tokenizer), clock, reported, name)
        found[name] = run_sync(player.play()), reported
    return found


def _remembering(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that caches short texts: messages are counted for every request that may contain them."""
    if tokenizer is estimate_tokens or isinstance(tokenizer, _Remembering):
        return tokenizer
    return _Remembering(tokenizer)


class _Remembering:
    """A tokenizer with the attributes of another one, such as how it counts an item."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, text: str) -> int:
        if len(text) > LONGEST_KNOWN:
            return self._tokenizer(text)
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._tokenizer(text)
        return found


def sets_of_layers(given: Any) -> dict[str, Callable[[], Sequence[MemoryLayer]]]:
    """Return sets of layers by name, each as a function that makes it."""
    if isinstance(given, Mapping):
        named = [(str(name), one) for name, one in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        named = [(" + ".join([layer.id for layer in made_layers(one)]) or "plain history", one) for one in given]
    else:
        raise _no_layers(given)
    names = [name for name, _ in named]
    if not named or len(set(names)) < len(names):
        hint = "Pass {name: [layer, ...]}."
        raise NoeticConfigError("INVALID_LAYERS", "Each set of layers needs a name of its own.", given=names, hint=hint)
    for _, one in named:
        made_layers(one)
    return {name: partial(made_layers, one) for name, one in named}


def made_layers(given: Any) -> Sequence[MemoryLayer]:
    """Return the layers of a set, given as a sequence, a single layer, or a function."""
    made = given() if callable(given) and not isinstance(given, MemoryLayer) else given
    layers = [made] if isinstance(made, MemoryLayer) else made
    if not isinstance(layers, Sequence) or not all(isinstance(layer, MemoryLayer) for layer in layers):
        raise _no_layers(given)
    return tuple(layers)


def _no_layers(given: object) -> NoeticConfigError:
    hint = "Pass {'window': [nn.history_window(6)], 'plain': []}."
    return NoeticConfigError("INVALID_LAYERS", "That is not a set of layers.", given=given, hint=hint)


def _budgets(given: Any) -> tuple[float, ...]:
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not found or not all(is_number(one) and one > 0 for one in found) or len(set(found)) < len(found):
        what = "Budgets must be different numbers of tokens above 0."
        raise NoeticConfigError("INVALID_BUDGETS", what, given=given, hint="Use budgets=[500, 1_000, 2_000].")
    return found


class Records(tuple[Asked, ...]):
    """Records that are never copied: pandas copies a frame's attributes with each of its results."""

    def __deepcopy__(self, memo: object) -> Records:
        return self


def mean_recall(shares: Iterable[tuple[Hashable, float]]) -> tuple[float, float, float, int]:
    """Return the mean of the known shares, its interval over dialogues, and their number."""
    known = [(place, share) for place, share in shares if not math.isnan(share)]
    if not known:
        return nan, nan, nan, 0
    low, high = mean_interval([share for _, share in known], [Cluster(place) for place, _ in known])
    return _mean([share for _, share in known]), max(low, 0.0), min(high, 1.0), len(known)


def _mean(shares: Iterable[float]) -> float:
    known = [share for share in shares if not math.isnan(share)]
    return fsum(known) / len(known) if known else nan


def _costs(played: Sequence[Played], price: float, cached_share: float, clock: Clock | None) -> tuple[float, ...]:
    count = len(played)
    fresh = sum([one.tokens for one in played]) / count
    shared = sum([one.shared for one in played]) / count
    requests = sum([one.requests for one in played])
    return (
        _mean([one.tokens for each in played for one in each.asked]),
        price * fresh / _MILLION,
        price * (fresh - (1 - cached_share) * shared) / _MILLION,
        nan if clock is None else fsum([one.ms for one in played]) / requests,
        sum([one.own.calls for one in played]) / count,
        (own := sum([one.own.tokens for one in played]) / count),
        price * own / _MILLION,
        nan if clock is None else fsum([one.own.ms for one in played]) / count,
    )


def _by_kind(asked: Sequence[Asked]) -> dict[str, dict[str, float]]:
    kinds = sorted({one.kind for one in asked})
    return {
        rung: {kind: _mean([getattr(one, rung) for one in asked if one.kind == kind]) for kind in kinds}
        for rung in RUNGS
    }
