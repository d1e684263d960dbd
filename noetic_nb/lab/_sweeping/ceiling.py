"""The cost limit of a live model: counted over all workers, and an end when it is reached."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models import CassetteModel, ModelRequest, ModelResponse, ScriptedModel
from noetic_nb.models._client import ModelClient


def is_live(model: Any) -> bool:
    """Tell whether a model, or one of several, may cost something: all do that are neither a script nor a tape."""
    if isinstance(model, Mapping):
        return any(is_live(one) for one in model.values())
    if model is None or isinstance(model, ScriptedModel):
        return False
    return not (isinstance(model, CassetteModel) and not model.asks)


class Ceiling:
    """A most of US dollars, of tokens, or of both, as in ``{"usd": dollars, "tokens": tokens}``.

    Raises `NoeticConfigError` ``COST_CEILING`` without one, or for any other object.
    """

    def __init__(self, max_cost: Any) -> None:
        hint = 'Give max_cost=5.0 (US dollars) or max_cost={"usd": 5.0, "tokens": 2_000_000}.'
        if max_cost is None:
            raise NoeticConfigError("COST_CEILING", "A live model needs a ceiling of what it may cost.", hint=hint)
        given = max_cost if isinstance(max_cost, Mapping) else {"usd": max_cost}
        good = all(map(_is_limit, given.values()))
        if not given or not set(given) <= {"usd", "tokens"} or not good:
            raise NoeticConfigError("COST_CEILING", "That is no ceiling.", given=max_cost, hint=hint)
        self.usd: float | None = given.get("usd")
        self.tokens: float | None = given.get("tokens")
        self.spent_usd = 0.0
        self.spent_tokens = 0
        self.reached = False
        self.error: NoeticConfigError | None = None
        self._lock = threading.Lock()

    def metered(self, model: Any) -> Any:
        """Return a model, or several, of which every answer is counted."""
        if isinstance(model, Mapping):
            return {name: self.metered(one) for name, one in model.items()}
        return _Metered(model, self) if is_live(model) else model

    def ask(self) -> None:
        """Refuse a request where the ceiling is reached."""
        with self._lock:
            over_usd = self.usd is not None and self.spent_usd >= self.usd
            over_tokens = self.tokens is not None and self.spent_tokens >= self.tokens
            self.reached = self.reached or over_usd or over_tokens
            if self.reached:
                raise NoeticError(
                    "budget_exceeded",
                    "The sweep has reached its ceiling",
                    given={"usd": round(self.spent_usd, 6), "tokens": self.spent_tokens},
                    hint="Give a higher max_cost; with resume=<a path> finished rows are kept.",
                )

    def count(self, response: ModelResponse) -> None:
        with self._lock:
            self.spent_tokens += response.usage.total_tokens
            if response.cost is not None:
                self.spent_usd += response.cost
            elif self.usd is not None:
                self.reached = True
                self.error = NoeticConfigError(
                    "COST_CEILING",
                    "The price of this model is not known, so that dollars cannot be counted.",
                    given=response.model,
                    hint='Give the client a price, or a ceiling in tokens: max_cost={"tokens": 2_000_000}.',
                )


def _is_limit(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(float(value)) and float(value) > 0


class _Metered:
    def __init__(self, model: ModelClient, ceiling: Ceiling) -> None:
        self._model, self._ceiling = model, ceiling

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self._ceiling.ask()
        response = await self._model.complete(request)
        self._ceiling.count(response)
        return response
