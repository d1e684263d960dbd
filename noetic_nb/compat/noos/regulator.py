"""The regulator of the compiled package, as a thin class over ours."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

from noetic_nb.compat.noos.argument_checks import real, text, whole
from noetic_nb.compat.noos.decisions import Decision, view_of
from noetic_nb.regulator import _regulator as native
from noetic_nb.regulator import decisions
from noetic_nb.regulator._person import Person
from noetic_nb.regulator._settings import RELEASE_SETTINGS
from noetic_nb.regulator.events import U32_MAX

__all__ = ["Regulator"]


class Regulator(native.Regulator):
    """One task of one user, watched; build it with `for_user` or `from_json`.

    `Decision.suggestion` has the remedy of the compiled package in words of this library: compare `reason.kind`, not texts.

    Examples
    --------
    >>> from noetic_nb.compat.noos import LLMEvent
    >>> regulator = Regulator.for_user("ann").with_cost_cap(1_000)
    >>> for _ in range(5):
    ...     regulator.on_event(LLMEvent.tool_call("search"))
    >>> regulator.decide().reason.consecutive_count
    5
    """

    __slots__ = ("_view", "_viewed")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The compiled class cannot be called; `for_user`, `from_json` and `fork` pass a person.
        if not args or not isinstance(args[0], Person):
            raise TypeError("No constructor defined for Regulator")
        super().__init__(*args, **kwargs)
        self._viewed: decisions.Decision | None = None
        self._view: Decision | None = None

    @classmethod
    def for_user(cls, user_id: str) -> Self:  # type: ignore[override]  # the compiled one takes nothing else
        """Return a fresh regulator."""
        return cls(Person(text("user_id", user_id)))

    @classmethod
    def from_json(cls, json_str: str) -> Self:  # type: ignore[override]
        """Return a regulator from a snapshot; ValueError if it is none."""
        text("json_str", json_str)
        return super().from_json(json_str, as_original=True)

    def with_cost_cap(self, cap_tokens: int) -> Self:
        """Set the cap on output tokens."""
        return super().with_cost_cap(whole("cap_tokens", cap_tokens, U32_MAX))

    def with_implicit_correction_window_secs(self, window_secs: float) -> Self:
        """Count a message on the same topic within so many seconds of a reply as a correction."""
        seconds = real("window_secs", window_secs)
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"window_secs must be a positive finite number, got {seconds:g}")
        return super().with_implicit_correction_window_secs(seconds)

    def with_scope_drift_threshold(self, threshold: float) -> Self:
        """Set the score from which a reply counts as drifting; in newer releases of the original only."""
        value = real("threshold", threshold)
        if not 0 <= value <= 1:
            raise ValueError(f"threshold must be a finite number in [0, 1], got {value:g}")
        return super().with_scope_drift_threshold(value)

    def decide(self) -> Decision:  # type: ignore[override]  # a view of the same decision
        """Return the decision for the current state."""
        decision = native.Regulator.decide(self)
        # One view per decision, so that a loop that reads it a thousand times makes it once.
        if decision is not self._viewed or self._view is None:
            self._viewed, self._view = decision, view_of(Decision, decision)
        return self._view

    def inject_corrections(self, user_prompt: str) -> str:  # type: ignore[override]
        """Return the prompt below past corrections, or unchanged."""
        return super().inject_corrections(text("user_prompt", user_prompt))

    def metrics_snapshot(self) -> dict[str, float]:
        """Return every reading; the drift threshold only under settings that 0.1.0, which has no such key, cannot have."""
        readings = super().metrics_snapshot()
        settings = replace(self.settings, implicit_window_s=None)
        # A cap and a window are the two settings of the compiled package.
        if settings.with_cost_cap(0) == RELEASE_SETTINGS.with_cost_cap(0):
            readings.pop("noos.scope_drift_threshold", None)
        return readings

    def __repr__(self) -> str:
        return f"Regulator(user={self.user_id()}, total_tokens_out={self.total_tokens_out()})"
