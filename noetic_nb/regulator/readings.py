"""The readable parts of a regulator while it watches: its person, its settings, and the numbers of its task."""

from __future__ import annotations

from noetic_nb.regulator.person import Person
from noetic_nb.regulator.predicates.core import CostCap, ScopeDrift
from noetic_nb.regulator.predicates.explanation import Predicate, thresholds_of
from noetic_nb.regulator.session.session import Signals
from noetic_nb.regulator.settings import (
    Settings,
)
from noetic_nb.regulator.task import Task

__all__ = ["Readings"]


class Readings:
    """The readings of a `Regulator`; none of them changes it."""

    __slots__ = ("_person", "_settings", "_task")

    _person: Person
    _settings: Settings
    _task: Task

    def user_id(self) -> str:
        """Return whose memory it keeps."""
        return self._person.user_id

    @property
    def person(self) -> Person:
        """The memory that outlives the task; hand it to `fork` to share it."""
        return self._person

    @property
    def settings(self) -> Settings:
        """The whole configuration, as data."""
        return self._settings

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The predicates, in order of priority."""
        return self._settings.predicates

    @property
    def thresholds(self) -> dict[str, dict[str, float]]:
        """The thresholds, windows and least counts in force, by predicate and name."""
        return thresholds_of(self._settings.predicates)

    @property
    def qualities(self) -> tuple[float, ...]:
        """The newest grades, at most 20, oldest first."""
        return tuple(self._task.qualities)

    @property
    def cluster(self) -> str:
        """Topic cluster of the current message; empty means none."""
        return self._task.cluster

    @property
    def signals(self) -> Signals:
        """The signals that the session would report to an agent; nothing in `decide` depends on them."""
        return self._person.session.signals

    @property
    def evidence(self) -> Task:
        """The evidence of the predicates; live, and not to be changed."""
        return self._task

    def confidence(self) -> float:
        """Return how sure the model was, 0 to 1: from logprobs, else from the shape of the reply, else 0.5."""
        return self._task.confidence()

    def logprob_coverage(self) -> float:
        """Return the share of this turn's tokens with a usable logprob."""
        return self._task.token_stats.coverage

    def total_tokens_out(self) -> int:
        """Return the output tokens spent by the task."""
        return self._task.costs.tokens_out

    def total_tokens_in(self) -> int:
        """Return the input tokens spent by the task."""
        return self._task.costs.tokens_in

    def total_wallclock_ms(self) -> int:
        """Return the milliseconds spent by the task."""
        return self._task.costs.wallclock_ms

    def total_usd(self) -> float:
        """Return the money spent by the task, as far as prices are known."""
        return self._task.costs.usd

    def cost_cap_tokens(self) -> int | None:
        """Return the cap on output tokens; None without one."""
        caps = (predicate.tokens_out for predicate in self._settings.predicates if isinstance(predicate, CostCap))
        return next(caps, None)

    def scope_drift_threshold(self) -> float | None:
        """Return the score from which a reply counts as drifting; None if nothing looks."""
        found = (predicate.threshold for predicate in self._settings.predicates if isinstance(predicate, ScopeDrift))
        return next(found, None)

    def tool_total_calls(self) -> int:
        """Return the calls of this turn."""
        return len(self._task.tools.calls)

    def tool_counts_by_name(self) -> dict[str, int]:
        """Return the calls of this turn by tool."""
        return self._task.tools.counts_by_name()

    def tool_total_duration_ms(self) -> int:
        """Return the summed duration of this turn's results, in milliseconds."""
        return self._task.tools.duration_ms

    def tool_failure_count(self) -> int:
        """Return the failed results of this turn."""
        return self._task.tools.failures

    def implicit_corrections_count(self) -> int:
        """Return how many messages counted as corrections by their timing."""
        return self._task.implicit_count

    def metrics_snapshot(self) -> dict[str, float]:
        """Return every reading as a flat mapping of floats; a cap or threshold that is not set is left out.

        Returns
        -------
        dict of str to float
            The keys of the original, and ``noos.scope_drift_threshold`` of its newer releases.
        """
        readings: dict[str, float | None] = {
            "noos.confidence": self.confidence(),
            "noos.logprob_coverage": self.logprob_coverage(),
            "noos.total_tokens_out": self.total_tokens_out(),
            "noos.cost_cap_tokens": self.cost_cap_tokens(),
            "noos.tool_total_calls": self.tool_total_calls(),
            "noos.tool_total_duration_ms": self.tool_total_duration_ms(),
            "noos.tool_failure_count": self.tool_failure_count(),
            "noos.implicit_corrections_count": self.implicit_corrections_count(),
            "noos.scope_drift_threshold": self.scope_drift_threshold(),
        }
        return {name: float(value) for name, value in readings.items() if value is not None}
