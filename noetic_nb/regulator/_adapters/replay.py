"""Evaluates a recorded run again with other thresholds, fast enough to follow a slider.

Events are fed only once; for each moment, a `MomentEvidence` keeps the evidence for predicates. Clusters and
corrections are those of the recording: other word lists need a new recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from noetic_nb.regulator._measures.corrections import pattern_of
from noetic_nb.regulator._measures.tool_history import Outcome
from noetic_nb.regulator._regulator import Regulator
from noetic_nb.regulator._task import Task
from noetic_nb.regulator.decisions import CONTINUE, CorrectionPattern, Decision
from noetic_nb.regulator.events import Event, Token, ToolCall
from noetic_nb.regulator.predicates.drift import DriftInput, DriftScore, DriftScorer
from noetic_nb.regulator.predicates.explanation import Explanation, Predicate, explain

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MomentEvidence:
    """The evidence at one moment, after one event; created by `record_events`."""

    event_index: int
    event_kind: str
    user_id: str
    tokens_in: int
    tokens_out: int
    wallclock_ms: int
    usd: float
    unpriced: int
    qualities: tuple[float, ...]
    cluster: str
    corrections: tuple[str, ...]
    call_counts: Mapping[str, int]
    turn_calls: tuple[ToolCall, ...]
    task_calls: tuple[ToolCall, ...]
    turn_outcomes: tuple[Outcome, ...]
    task_outcomes: tuple[Outcome, ...]
    first_char: int
    tokens: tuple[Token, ...]
    drift_input: DriftInput | None
    # Shared by all moments of one reply, so that each scorer scores it only once.
    _scores: list[tuple[DriftScorer, DriftScore | None]] = field(repr=False, compare=False)

    def calls(self, *, across_turns: bool) -> Sequence[ToolCall]:
        return self.task_calls if across_turns else self.turn_calls

    def outcomes(self, *, across_turns: bool) -> Sequence[Outcome]:
        return self.task_outcomes if across_turns else self.turn_outcomes

    def correction_count(self) -> int:
        return len(self.corrections)

    def correction_pattern(self, least: int) -> CorrectionPattern | None:
        return pattern_of(self.user_id, self.cluster, self.corrections, least)

    def drift(self, scorer: DriftScorer) -> DriftScore | None:
        for known, score in self._scores:
            if known is scorer:
                return score
        score = None if self.drift_input is None else scorer(self.drift_input)
        self._scores.append((scorer, score))
        return score

    def streamed(self) -> tuple[int, Sequence[Token]]:
        return self.first_char, self.tokens


@dataclass(frozen=True, slots=True)
class Recording:
    """Every moment of a run.

    Examples
    --------
    >>> from noetic_nb.regulator import QualityDecline
    >>> from noetic_nb.regulator.events import QualityFeedback
    >>> run = record_events(QualityFeedback(q) for q in (0.5, 0.4, 0.3))
    >>> [decision.kind for decision in run.decide([QualityDecline()])]
    ['continue', 'continue', 'circuit_break']
    >>> [decision.kind for decision in run.decide([QualityDecline(min_delta=0.3)])]
    ['continue', 'continue', 'continue']
    """

    readings: tuple[MomentEvidence, ...]

    def decide(self, predicates: Iterable[Predicate]) -> tuple[Decision, ...]:
        """Return the decision of a regulator with these predicates at every moment.

        Parameters
        ----------
        predicates : iterable of Predicate
            In order of priority.
        """
        checks = [predicate.check for predicate in predicates]
        decisions: list[Decision] = []
        for reading in self.readings:
            decision: Decision = CONTINUE
            for check in checks:
                found = check(reading)
                if found is not None:
                    decision = found
                    break
            decisions.append(decision)
        return tuple(decisions)

    def explain(self, place: int, predicates: Sequence[Predicate]) -> Explanation:
        """Return the explanation of one moment."""
        return explain(predicates, self.readings[place])


def record_events(
    events: Iterable[Event], regulator: Regulator | None = None, *, include_tokens: bool = False
) -> Recording:
    """Feed events to a regulator and keep the evidence after each.

    Parameters
    ----------
    events : iterable of Event
        A run, in order.
    regulator : Regulator, optional
        Its settings and memory are used, and it receives the events. By default a new one with release settings.
    include_tokens : bool
        Also keep the evidence after every single token; otherwise tokens appear in the evidence of the next event.
    """
    watched = Regulator.for_user("replay") if regulator is None else regulator
    readings: list[MomentEvidence] = []
    for index, event in enumerate(events):
        watched.on_event(event)
        if include_tokens or not isinstance(event, Token):
            readings.append(evidence_of(watched.evidence, index, event.kind, readings[-1] if readings else None))
            watched.decide_all()  # score every reply now, so that the first move of a slider is as fast as later ones
    return Recording(tuple(readings))


def evidence_of(task: Task, index: int, kind: str, before: MomentEvidence | None = None) -> MomentEvidence:
    """Return the evidence at this moment; parts unchanged since `before` are shared with it."""
    tools = task.tools
    first_char, tokens = task.streamed()
    given = None
    if task.message is not None and task.response is not None:
        # Equal scores mean equal texts, so thousands of moments share one input.
        given = before.drift_input if before is not None and before._scores is task.scores else None
        if given is None:
            given = DriftInput(task.message, task.response, tuple(task.earlier), tuple(task.tool_texts))
    counts = None if before is None else before.call_counts
    return MomentEvidence(
        event_index=index,
        event_kind=kind,
        user_id=task.person.user_id,
        tokens_in=task.tokens_in,
        tokens_out=task.tokens_out,
        wallclock_ms=task.wallclock_ms,
        usd=task.usd,
        unpriced=task.unpriced,
        qualities=_kept(task.qualities, None if before is None else before.qualities),
        cluster=task.cluster,
        corrections=_kept(task.person.corrections.texts(task.cluster), None if before is None else before.corrections),
        call_counts=counts if counts is not None and counts == tools.task_counts else dict(tools.task_counts),
        turn_calls=_kept(tools.calls, None if before is None else before.turn_calls),
        task_calls=_kept(tools.task_calls, None if before is None else before.task_calls),
        turn_outcomes=_kept(tools.outcomes, None if before is None else before.turn_outcomes),
        task_outcomes=_kept(tools.task_outcomes, None if before is None else before.task_outcomes),
        first_char=first_char,
        tokens=_kept(tokens, None if before is None else before.tokens),
        drift_input=given,
        _scores=task.scores,
    )


def _kept(now: Sequence[T], before: tuple[T, ...] | None) -> tuple[T, ...]:
    """Return the current values; reuses the previous tuple if nothing changed, to save memory in long runs."""
    # A new last value is another object, so hundreds of equal calls need not be compared.
    if not before or len(now) != len(before) or now[-1] is not before[-1]:
        return tuple(now)
    fresh = tuple(now)
    return before if before == fresh else fresh
