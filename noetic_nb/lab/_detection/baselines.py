"""The baselines of every detector: numbers of calls and messages, durations, and the words of the run.

All of them look at the whole run. The counts are fitted on nothing; the words are learned on other tasks than they score.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import nan
from typing import Any, Final

import numpy as np

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, ToolCalled
from noetic_nb.items import item_tokens
from noetic_nb.items._build import item_text
from noetic_nb.lab._detection.resampling import Booleans, Floats
from noetic_nb.runs import Run

__all__ = ["COUNTS", "FOLDS", "WORDS", "WordModel", "changes_state"]

WORDS: Final = "TF-IDF of the words"
FOLDS: Final = 5
# The usual beginnings of tools that look something up, or that change nothing outside of the agent.
_LOOKS_UP: Final = (
    "get",
    "list",
    "read",
    "search",
    "find",
    "lookup",
    "look",
    "fetch",
    "view",
    "show",
    "check",
    "query",
)
_READS: Final = frozenset([*_LOOKS_UP, "count", "describe", "browse", "open", "calculate", "think"])
_WORD: Final = re.compile(r"[^\W_]+")


def changes_state(name: str) -> bool:
    """Tell by its name whether a tool changes anything: it does not where the first word says that it reads.

    Examples
    --------
    >>> changes_state("get_order"), changes_state("cancel_order"), changes_state("searchFlights")
    (False, True, False)
    """
    words = _WORD.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return not words or words[0] not in _READS


def _items(run: Run) -> list[Any]:
    return [item for event in run.select(ItemsAppended) for item in event.items]


def _calls(run: Run) -> float:
    return len(run.select(ToolCalled))


def _messages(run: Run) -> float:
    return sum(1 for item in _items(run) if item.get("type") == "message" and item.get("role") in ("user", "assistant"))


def _changes(run: Run) -> float:
    return sum(changes_state(call.name) for call in run.select(ToolCalled))


def _tokens(run: Run) -> float:
    return float(sum(map(item_tokens, _items(run))))


def _characters(run: Run) -> float:
    return sum(len(item_text(item)) for item in _items(run))


COUNTS: Final[dict[str, Callable[[Run], float]]] = {
    "calls": _calls,
    "messages": _messages,
    "state-changing calls": _changes,
    "length in tokens": _tokens,
    "length in characters": _characters,
}
"""By name: calls of tools, messages of user and agent, calls that change something, tokens and characters of all items."""


def _study() -> tuple[Any, Any, Any]:
    """Return the parts of scikit-learn that are used."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
        from sklearn.linear_model import LogisticRegression
    except ImportError as exc:
        raise NoeticConfigError(
            "MISSING_PACKAGE",
            "Baselines are learned with scikit-learn, which is not installed.",
            given="scikit-learn",
            hint="Run: pip install 'noetic_nb[study]'",
        ) from exc
    return CountVectorizer, TfidfTransformer, LogisticRegression


class WordModel:
    """A logistic regression on the words of runs, weighted by TF-IDF.

    Words are counted once. Which words are rare, and what they weigh, is learned on the runs that it is fitted on.

    Parameters
    ----------
    runs : sequence of Run
        What is scored, and fitted on.
    failed : array of bool
        Their labels.

    Raises
    ------
    NoeticConfigError
        ``MISSING_PACKAGE`` without scikit-learn.

    References
    ----------
    .. [1] Pedregosa et al. (2011). Scikit-learn: machine learning in Python. JMLR 12, 2825-2830.
    """

    def __init__(self, runs: Sequence[Run], failed: Booleans) -> None:
        counter, self._weigh, self._model = _study()
        self._failed = failed
        texts = ["\n".join(item_text(item) for item in _items(run)) for run in runs]
        try:
            self._counts: Any = counter(min_df=2).fit_transform(texts)
        except ValueError:  # no word stands in two runs
            self._counts = None

    def scores(self, fitted: Booleans, folds: Sequence[int]) -> Floats:
        """Return a score for each run; those fitted on are scored by models that have not seen their fold.

        Not a number where there is nothing to learn from: no words, or runs of one kind only.
        """
        scores = np.full(len(self._failed), nan)
        if self._counts is None:
            return scores
        of_fold = np.asarray(folds)
        for fold in np.unique(of_fold[fitted]):
            self._score(scores, fitted & (of_fold != fold), fitted & (of_fold == fold))
        self._score(scores, fitted, ~fitted)
        return scores

    def _score(self, scores: Floats, fitted: Booleans, scored: Booleans) -> None:
        if not scored.any() or len(np.unique(self._failed[fitted])) < 2:
            return
        weigh = self._weigh(sublinear_tf=True)
        model = self._model(class_weight="balanced", max_iter=1_000)
        model.fit(weigh.fit_transform(self._counts[fitted]), self._failed[fitted])
        scores[scored] = model.decision_function(weigh.transform(self._counts[scored]))
