"""The tokens of a conversation that grows, where its source does not say them."""

from __future__ import annotations

from collections.abc import Iterable

from noetic_nb.items import Item, item_tokens
from noetic_nb.items._build import content_tokens
from noetic_nb.tokenizers._named import best_tokenizer
from noetic_nb.tokens import Tokenizer, system_tokens, tokenizer_name


class ChosenCounter:
    """The counter of a run whose source does not say its tokens: the best one known of its model.

    Examples
    --------
    >>> counter = ChosenCounter("gpt-4.1")
    >>> counter.name is None, counter.tokenizer is counter.tokenizer
    (True, True)
    """

    def __init__(self, model: str = "") -> None:
        self.model = model
        self._tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The counter, which is chosen when first needed."""
        if self._tokenizer is None:
            self._tokenizer = best_tokenizer(self.model)
        return self._tokenizer

    @property
    def name(self) -> str | None:
        """Its name; None while nothing had to be counted."""
        return None if self._tokenizer is None else tokenizer_name(self._tokenizer)


class ContextTokens:
    """The tokens of all that a model was sent so far, counted when they are asked for: most sources say them."""

    def __init__(self, counter: ChosenCounter, *, policy: str = "") -> None:
        self._counter = counter
        self._policy = policy
        self._waiting: list[Item] = []
        self._tokens = 0

    def add(self, items: Iterable[Item]) -> None:
        """Add items that are sent from now on."""
        self._waiting += items

    def reset(self, items: Iterable[Item], tokens: int | None) -> None:
        """Begin again with these items; `tokens` where the source says how many they are."""
        self._policy, self._tokens = "", tokens or 0
        self._waiting = [*items] if tokens is None else []

    def sent(self) -> int:
        """Return the tokens of all that was added, with the framing of each item."""
        counter = self._counter.tokenizer
        self._tokens += system_tokens(counter, self._policy)
        self._tokens += sum([item_tokens(item, counter) for item in self._waiting])
        self._policy, self._waiting = "", []
        return self._tokens

    def written(self, items: Iterable[Item]) -> int:
        """Return the tokens of an answer."""
        counter = self._counter.tokenizer
        return sum([content_tokens(item, counter) for item in items])
