"""Decisions of the compiled package: one class whose attributes read as None when they do not apply."""

from __future__ import annotations

from typing import Any, NoReturn

from noetic_nb.regulator import decisions

__all__ = ["CircuitBreakReason", "CorrectionPattern", "Decision"]


class _RecordView:
    """A read-only view of one typed record."""

    __slots__ = ("_record",)
    _record: Any

    def __init__(self) -> None:
        raise TypeError(f"No constructor defined for {type(self).__name__}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'noos.{type(self).__name__}' objects is not writable")

    def _get(self, name: str) -> Any:
        return getattr(self._record, name, None)


def view_of(cls: type[Any], record: object) -> Any:
    """Return a view of a record; the classes have no constructor of their own."""
    # Past `__init__` and `__setattr__`, both of which refuse.
    made = object.__new__(cls)
    object.__setattr__(made, "_record", record)
    return made


class CorrectionPattern(_RecordView):
    """What a user has corrected on one topic."""

    __slots__ = ()

    @property
    def user_id(self) -> str:
        """Whose correction it was."""
        return str(self._record.user_id)

    @property
    def topic_cluster(self) -> str:
        """On which topic."""
        return str(self._record.topic_cluster)

    @property
    def pattern_name(self) -> str:
        """``corrections_on_`` and the cluster."""
        return str(self._record.pattern_name)

    @property
    def learned_from_turns(self) -> int:
        """How many corrections there were."""
        return int(self._record.learned_from_turns)

    @property
    def confidence(self) -> float:
        """A twentieth of that, at most 1."""
        return float(self._record.confidence)

    @property
    def example_corrections(self) -> list[str]:
        """The newest three, newest first."""
        return list(self._record.example_corrections)

    def __repr__(self) -> str:
        # The compiled package prints two decimals.
        return (
            f"CorrectionPattern(user={self.user_id}, cluster={self.topic_cluster}, turns={self.learned_from_turns}, "
            f"conf={self.confidence:.2f})"
        )


class CircuitBreakReason(_RecordView):
    """Why a circuit break fired; branch on `kind`."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """Name of the variant."""
        return str(self._record.kind)

    @property
    def tokens_spent(self) -> int | None:
        """Output tokens spent."""
        value: int | None = self._get("tokens_spent")
        return value

    @property
    def tokens_cap(self) -> int | None:
        """Cap on output tokens."""
        value: int | None = self._get("tokens_cap")
        return value

    @property
    def mean_quality_last_n(self) -> float | None:
        """Mean of the last three grades."""
        value: float | None = self._get("mean_quality_last_n")
        return value

    @property
    def turns(self) -> int | None:
        """Length of the window."""
        value: int | None = self._get("turns")
        return value

    @property
    def mean_delta(self) -> float | None:
        """Oldest minus newest grade of the window."""
        value: float | None = self._get("mean_delta")
        return value

    @property
    def cluster(self) -> str | None:
        """Topic that kept failing."""
        value: str | None = self._get("cluster")
        return value

    @property
    def failure_count(self) -> int | None:
        """How often it failed."""
        value: int | None = self._get("failure_count")
        return value

    @property
    def tool_name(self) -> str | None:
        """Tool that was called again and again."""
        value: str | None = self._get("tool_name")
        return value

    @property
    def consecutive_count(self) -> int | None:
        """How often it was called in a row."""
        value: int | None = self._get("consecutive_count")
        return value

    def __repr__(self) -> str:
        return f"CircuitBreakReason.{self.kind}"


class Decision(_RecordView):
    """The decision of a regulator; branch on `kind`."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """Name of the variant."""
        return str(self._record.kind)

    @property
    def drift_score(self) -> float | None:
        """Share of the reply that has no anchor in the task."""
        value: float | None = self._get("drift_score")
        return value

    @property
    def drift_tokens(self) -> list[str] | None:
        """Words of the reply without an anchor."""
        return self._list("drift_tokens")

    @property
    def task_tokens(self) -> list[str] | None:
        """Words of the task."""
        return self._list("task_tokens")

    def _list(self, name: str) -> list[str] | None:
        value = self._get(name)
        return None if value is None else list(value)

    @property
    def reason(self) -> CircuitBreakReason | None:
        """Why it stops."""
        value = self._get("reason")
        made: CircuitBreakReason | None = None if value is None else view_of(CircuitBreakReason, value)
        return made

    @property
    def suggestion(self) -> str | None:
        """What to show the user."""
        value: str | None = self._get("suggestion")
        return value

    @property
    def patterns(self) -> list[CorrectionPattern] | None:
        """Past corrections on this topic."""
        value = self._get("patterns")
        return None if value is None else [view_of(CorrectionPattern, pattern) for pattern in value]

    def is_continue(self) -> bool:
        """Say whether nothing holds."""
        return isinstance(self._record, decisions.Continue)

    def is_scope_drift(self) -> bool:
        """Say whether the reply strays from its task."""
        return isinstance(self._record, decisions.ScopeDriftWarn)

    def is_circuit_break(self) -> bool:
        """Say whether to stop."""
        return isinstance(self._record, decisions.CircuitBreak)

    def is_procedural_warning(self) -> bool:
        """Say whether the user has corrected this topic before."""
        return isinstance(self._record, decisions.ProceduralWarning)

    def is_low_confidence(self) -> bool:
        """Say whether parts of the reply were unlikely; reserved there: False unless `LowConfidence` is a predicate."""
        return isinstance(self._record, decisions.LowConfidenceSpans)

    def __repr__(self) -> str:
        return f"Decision.{self.kind}"
