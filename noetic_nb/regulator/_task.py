"""The live state of one task, changed by events; topics, bags and scores are computed when a predicate reads them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from noetic_nb.regulator import events
from noetic_nb.regulator._measures.confidence import (
    NEUTRAL_CONFIDENCE,
    TokenStats,
    confidence_of_nll,
    mean_nll,
    structural_confidence,
)
from noetic_nb.regulator._measures.tool_history import Outcome, ToolHistory
from noetic_nb.regulator._measures.topics import cluster_of
from noetic_nb.regulator._settings import Settings
from noetic_nb.regulator._state import Person
from noetic_nb.regulator.decisions import CorrectionPattern
from noetic_nb.regulator.predicates.core import DEFAULT_HISTORY_WINDOW
from noetic_nb.regulator.predicates.drift import DriftInput, DriftScore, DriftScorer

_EARLIER_TEXTS: Final = 16
_TOOL_TEXTS: Final = 16  # most texts of the conversation passed to drift scorers (ours)


class Task:
    """One task of one person, whose memory outlives it; `clock` (monotonic seconds) is only used for implicit corrections."""

    __slots__ = (
        "_clock",
        "_cluster",
        "_completed_at",
        "_corrected",
        "_read_text",
        "earlier",
        "implicit_count",
        "message",
        "pending",
        "person",
        "qualities",
        "response",
        "scores",
        "settings",
        "token_stats",
        "tokens_in",
        "tokens_out",
        "tool_texts",
        "tools",
        "unpriced",
        "usd",
        "wallclock_ms",
    )

    def __init__(self, person: Person, settings: Settings, clock: Callable[[], float]) -> None:
        self.person = person
        self.settings = settings
        self._clock = clock
        self.message: str | None = None
        self.response: str | None = None
        self.pending: str | None = None
        self._read_text: str | None = None
        self._cluster: str | None = ""
        self.scores: list[tuple[DriftScorer, DriftScore | None]] = []
        """Cached scores of the current reply; replaced, never cleared, when any input of a scorer changes."""
        self._completed_at: float | None = None
        self._corrected: set[str] = set()
        self.implicit_count = 0
        # Each in its own currency; they saturate where the original's do, so that snapshots read alike.
        self.tokens_in = self.tokens_out = self.wallclock_ms = 0
        self.usd = 0.0
        self.unpriced = 0
        """How many costs came without a price."""
        self.qualities: deque[float] = deque(maxlen=DEFAULT_HISTORY_WINDOW)
        self.tools = ToolHistory()
        self.token_stats = TokenStats()
        self.earlier: deque[str] = deque(maxlen=_EARLIER_TEXTS)
        self.tool_texts: deque[str] = deque(maxlen=_TOOL_TEXTS)

    def reconfigure(self, settings: Settings) -> None:
        """Change the settings; values computed with the old ones are recomputed."""
        self.settings = settings
        self.scores = []
        if self.message is not None:
            self._cluster = None

    # Events

    def turn_start(self, event: events.TurnStart) -> None:
        strict = self.settings.turns == "strict"
        window = self.settings.implicit_window_s
        # Read before the message is replaced, and only with a window, because extracting topics is the slow part of a turn.
        old_cluster = self.cluster if window is not None else ""
        if self.message is not None:
            self.earlier.append(self.message)
        if self.response is not None:
            self.earlier.append(self.response)
        self.token_stats.clear()
        self.tools.start_turn()
        self.scores = []
        self.message, self.response = event.user_message, None
        self._cluster = None
        # In the original, an ungraded reply stays and is learned from under the next topic.
        if strict:
            self.pending = self._read_text = None
            self._corrected = set()
        if window is not None:
            self._check_implicit_correction(event.user_message, old_cluster, window, strict)
        self.person.session.add_message(event.user_message)

    def _check_implicit_correction(self, message: str, old_cluster: str, window: float, strict: bool) -> None:
        completed = self._completed_at
        if completed is None:
            return
        # The original keeps the time, so that one reply can count several corrections.
        if strict:
            self._completed_at = None
        if self._clock() - completed <= window and old_cluster and self.cluster == old_cluster:
            self._record_correction(message)
            self.implicit_count += 1

    def token(self, event: events.Token) -> None:
        self.token_stats.add(event)

    def turn_complete(self, event: events.TurnComplete) -> None:
        self.response = self.pending = event.full_response
        self._read_text = None
        self.scores = []
        if self.settings.implicit_window_s is not None:
            self._completed_at = self._clock()

    def cost(self, event: events.Cost) -> None:
        """Count a plain event (see `events.plain`); without a price it adds nothing to `usd`."""
        self.tokens_in = min(self.tokens_in + event.tokens_in, events.U32_MAX)
        self.tokens_out = min(self.tokens_out + event.tokens_out, events.U32_MAX)
        self.wallclock_ms = min(self.wallclock_ms + event.wallclock_ms, events.U64_MAX)  # type: ignore[assignment]  # whole already
        if event.usd is None:
            self.unpriced += 1
        else:
            self.usd += event.usd
        self.person.session.add_cost(event.tokens_out, event.wallclock_ms)  # type: ignore[arg-type]  # whole already

    def quality(self, event: events.QualityFeedback) -> None:
        """Handle a grade; it is only learned from if a reply waits for one."""
        quality = float(event.quality)
        finite = math.isfinite(quality)
        if finite:
            self.qualities.append(min(max(quality, 0.0), 1.0))
        strict = self.settings.turns == "strict"
        if strict and not finite:
            return
        # A non-finite grade uses up the reply as well: the original takes it before it checks the number.
        text, self.pending = self.pending, None
        if text is None or not finite:
            return
        # Release mode learns from the unclamped number, even 5.0; only the window above is clamped there.
        if strict:
            self._read_text = text
            quality = min(max(quality, 0.0), 1.0)
        self.person.session.add_grade(text, quality, self.message or "")

    def correction(self, event: events.UserCorrection) -> None:
        """Store a correction under the current topic."""
        if event.corrects_last:
            self._record_correction(event.correction_message)

    def _record_correction(self, text: str) -> None:
        if self.settings.turns == "strict":
            if text in self._corrected:
                return
            self._corrected.add(text)
        self.person.corrections.add(self.cluster, text)

    def tool_call(self, event: events.ToolCall) -> None:
        self.tools.add_call(event)
        if event.args_json is not None:
            self.tool_texts.append(event.args_json)
            self.scores = []  # a scorer that reads tool texts may now give another score

    def tool_result(self, event: events.ToolResult) -> None:
        self.tools.add_result(event, self.cluster)
        text = event.output if event.output is not None else event.error_summary
        if text is not None:
            self.tool_texts.append(text)
            self.scores = []

    # Evidence

    @property
    def cluster(self) -> str:
        if self._cluster is None:
            topics = self.settings.cluster_from or self.settings.topics
            self._cluster = cluster_of(topics(self.message or ""))
        return self._cluster

    @property
    def call_counts(self) -> Mapping[str, int]:
        return self.tools.task_counts

    @property
    def drift_input(self) -> DriftInput | None:
        if self.message is None or self.response is None:
            return None
        return DriftInput(self.message, self.response, self.earlier, self.tool_texts)

    def calls(self, *, across_turns: bool) -> Sequence[events.ToolCall]:
        return self.tools.task_calls if across_turns else self.tools.calls

    def outcomes(self, *, across_turns: bool) -> Sequence[Outcome]:
        return self.tools.task_outcomes if across_turns else self.tools.outcomes

    def correction_count(self) -> int:
        return self.person.corrections.count(self.cluster)

    def correction_pattern(self, least: int) -> CorrectionPattern | None:
        return self.person.corrections.pattern(self.person.user_id, self.cluster, least=least)

    def drift(self, scorer: DriftScorer) -> DriftScore | None:
        """Score of the current reply; computed once per scorer and reply."""
        for known, score in self.scores:
            if known is scorer:  # identity, because a user-defined scorer may not be comparable
                return score
        given = self.drift_input
        score = None if given is None else scorer(given)
        self.scores.append((scorer, score))
        return score

    def streamed(self) -> tuple[int, Sequence[events.Token]]:
        """Character offset of the first kept token, and this turn's tokens."""
        return self.token_stats.first_char, self.token_stats.tokens

    # Measurements

    def confidence(self) -> float:
        """Return the model's confidence in its reply, 0 to 1."""
        window = self.token_stats.window
        if window:
            return confidence_of_nll(mean_nll(window))
        text = self.pending if self.pending is not None else self._read_text
        return NEUTRAL_CONFIDENCE if text is None else structural_confidence(text)


Handler: TypeAlias = Callable[[Task, Any], None]
HANDLERS: Final[dict[type[Any], Handler]] = {
    events.TurnStart: Task.turn_start,
    events.Token: Task.token,
    events.TurnComplete: Task.turn_complete,
    events.Cost: Task.cost,
    events.QualityFeedback: Task.quality,
    events.UserCorrection: Task.correction,
    events.ToolCall: Task.tool_call,
    events.ToolResult: Task.tool_result,
}


def trust(cls: type[Any], event_type: type[Any]) -> None:
    """Accept a subclass of an event that checks every field itself; for compatibility layers."""
    if not issubclass(cls, event_type):
        raise TypeError(f"{cls.__name__} must be a subclass of {event_type.__name__}.")
    HANDLERS[cls] = HANDLERS[event_type]
