"""The signals of one thread and its turns: grades, spending, thresholds in force, decisions as marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from noetic_nb.events import RegulatorDecided, Where
from noetic_nb.runs._regulation.decision_words import DecisionRedaction, decision_detail


def rolling_mean(qualities: list[float], window: int | None) -> float | None:
    """Return the mean of the last `window` qualities, oldest first.

    None with fewer grades, because then the regulator does not call quality poor either, and if its window is unknown.
    """
    if window is None or len(qualities) < window:
        return None
    # Rounded, so that picture and threshold agree despite rounding errors in sums of tenths.
    return round(math.fsum(qualities[-window:]) / window, 12)


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of quality: the first and last grade of a window, and the turns of these grades."""

    first: int
    last: int
    before: float
    after: float


class Mark(Struct, gc=False):
    """A decision other than "continue"; `times` counts how often it was made in the turn.

    `said` is the cause, or the decision from which `words` computes `detail` on demand: most decisions of a long run are
    never viewed.
    """

    kind: str
    label: str
    said: str | RegulatorDecided
    stops: bool
    times: int = 1
    fall: Fall | None = None
    words: DecisionRedaction | None = None

    @property
    def detail(self) -> str:
        """The cause of the decision, and its suggestion."""
        if not isinstance(self.said, str):
            decision = self.said.decision if self.words is None else self.words.decision(self.said.decision)
            self.said, self.words = decision_detail(decision, self.said.suggestion), None
        return self.said


class TurnSignals(Struct, gc=False, eq=False):
    """One turn: its grades, the mean after the last one, and the spending of the task so far.

    `spent` counts output tokens, `before` those of earlier turns. `used` and `totals` have the other currencies of the
    turn and of the task; an unknown amount is missing, not 0.
    """

    turn: int
    qualities: Sequence[float] = ()
    mean: float | None = None
    spent: int = 0
    marks: Sequence[Mark] = ()
    before: int = 0
    used: dict[str, float] = {}
    totals: dict[str, float] = {}
    known_drift: float | None = None
    reply: Callable[[], float | None] | None = None
    """Scores the newest reply, once its drift is needed; replies with a warning rarely need it."""
    confidence: float | None = None
    calls_in_a_row: int | None = None
    """Longest series of calls of one tool, or of one call if the regulator distinguishes arguments. None without calls."""
    thresholds: Mapping[str, Mapping[str, float]] = {}
    """The thresholds in force at its last decision; empty if not recorded."""
    cap: float | None = None
    poor: float | None = None
    window: int | None = None
    broken: bool = False
    """Whether a circuit break of this or an earlier turn holds."""
    unmeasured: bool = False
    """Whether it ended with an unknown number of output tokens."""

    @property
    def drift(self) -> float | None:
        """The drift of its reply: the value in the warning, or the score of the reply."""
        if self.reply is not None:
            score, self.reply = self.reply(), None
            if score is not None:
                self.known_drift = score
        return self.known_drift

    @property
    def tokens(self) -> int | None:
        """Output tokens of this turn; None if unknown."""
        return None if self.unmeasured else max(0, self.spent - self.before)

    @property
    def total(self) -> int | None:
        """Known output tokens of the task so far; None if none are known."""
        return None if self.unmeasured and not self.spent else self.spent


@dataclass(slots=True)
class ThreadSignals:
    """One thread, oldest turn first; `cap` is in output tokens, None if there is none.

    The regulator calls the mean of the last `window` grades poor if it is below `poor`; both are None if unknown.
    """

    thread: str
    turns: list[TurnSignals] = field(default_factory=list)
    qualities: list[float] = field(default_factory=list)
    cap: float | None = None
    poor: float | None = None
    window: int | None = None
    spent: int = 0
    regulator: str | None = None
    counted: dict[tuple[str, int], int] = field(default_factory=dict)
    thread_id: str = ""
    graded: list[int] = field(default_factory=list)
    """The turn of each grade."""
    totals: dict[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    broken: bool = False
    reward: float | None = None
    """The grade of the whole conversation, which belongs to no turn."""
    rewarded: int | None = None
    """The turn after which it was given."""
    task_began: int = 0
    """The number of grades when the regulator's task began."""
    recorded_tokens: int = 0
    in_a_row: tuple[Any, int] = (None, 0)
    last_mark: tuple[int, Any, Mark] | None = None
    by_number: dict[int, TurnSignals] = field(default_factory=dict)

    def turn(self, where: Where) -> TurnSignals:
        """Return the turn that an event belongs to."""
        if self.turns and (where.turn <= 0 or where.turn == self.turns[-1].turn):
            return self.turns[-1]
        # A late grade or decision names an earlier turn.
        found = self.by_number.get(where.turn)
        if found is None:
            found = self.by_number[where.turn] = TurnSignals(
                where.turn,
                mean=self.mean(),
                spent=self.spent,
                before=self.spent,
                totals=dict(self.totals),
                thresholds=self.thresholds,
                cap=self.cap,
                poor=self.poor,
                window=self.window,
                broken=self.broken,
            )
            self.turns.append(found)
        return found

    def mean(self) -> float | None:
        """Return the mean of the task's newest grades, over the regulator's window."""
        if self.window is None or len(self.qualities) - self.task_began < self.window:
            return None
        return rolling_mean(self.qualities, self.window)

    def fall(self, window: int | None) -> Fall | None:
        """Return how quality changed over the newest grades; None if there are fewer than `window`."""
        if window is None or window < 1 or len(self.qualities) - self.task_began < window:
            return None
        return Fall(self.graded[-window], self.graded[-1], self.qualities[-window], self.qualities[-1])
