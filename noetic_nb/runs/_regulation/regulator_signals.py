"""Per-turn signals of a regulator, read from a run: quality, spending, drift, decisions.

A grade that is recorded twice, as given and as seen by the regulator, counts once. A grade or decision outside any turn
belongs to the thread's last turn, because it is about that reply. "Poor" and all other thresholds come from the
thresholds recorded with decisions; without them there are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, TypeAlias

from noetic_nb import events as ev
from noetic_nb.regulator import DriftInput, KeywordScorer, Regulator, ScopeDrift, events
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._regulation.decision_words import DecisionRedaction, decision_label, reason_of
from noetic_nb.runs._regulation.thread_signals import Mark, ThreadSignals, TurnSignals

# Events that a regulator sees before its first decision are kept until its settings are known, usually within a turn.
MOST_EARLY: Final = 100
# The fields that a keyword scorer compares.
TEXTS: Final = {"turn_start": "user_message", "turn_complete": "full_response"}
SCORED: Final = frozenset({"turn_start", "turn_complete", "tool_call", "tool_result"})

Score: TypeAlias = Callable[[], float | None]  # scores a reply; returns None if no score is defined


class DriftScores:
    """The drift of every reply by the recorded scorer; `regulator_of` maps the first decision to a regulator or None."""

    def __init__(self, regulator_of: Callable[[ev.RegulatorDecided], Regulator | None]) -> None:
        self._regulator_of = regulator_of
        self._template: Regulator | None = None
        self._scorer: Any = None
        self.is_known = False
        """Whether a decision was read; later ones are not needed."""
        self._live: dict[str, Regulator | None] = {}
        self._messages: dict[str, str | None] = {}
        self._early: list[ev.RegulatorSaw] = []
        self.kinds = SCORED
        """The kinds of regulator events that are needed."""

    def take(self, event: ev.RegulatorSaw | ev.RegulatorDecided) -> Score | None:
        """Read one event of the regulator; return a function that scores the reply in it, or None if there is none."""
        if isinstance(event, ev.RegulatorDecided):
            return None if self.is_known else self._find(event)
        if event.event.get("kind") not in self.kinds:
            return None
        if not self.is_known and len(self._early) < MOST_EARLY:
            self._early.append(event)
        return None if self._scorer is None else self._score(event)

    def _find(self, decided: ev.RegulatorDecided) -> Score | None:
        self.is_known = True
        self._template = self._regulator_of(decided)
        if self._template is not None:
            scorers = [each.scorer for each in self._template.predicates if isinstance(each, ScopeDrift)]
            self._scorer = scorers[0] if scorers else None
            self.kinds = frozenset(TEXTS) if type(self._scorer) is KeywordScorer else SCORED
        early, self._early = self._early, []
        scores = [self._score(saw) for saw in early] if self._scorer is not None else []
        return scores[-1] if scores else None

    def _score(self, saw: ev.RegulatorSaw) -> Score | None:
        thread_id = saw.where.thread_id
        if type(self._scorer) is KeywordScorer:
            return self._compare(saw, thread_id)
        if thread_id not in self._live:
            self._live[thread_id] = None if self._template is None else self._template.fork()
        live = self._live[thread_id]
        if live is None:
            return None
        try:
            live.on_event(events.from_dict(saw.event))
        except (TypeError, ValueError):
            self._live[thread_id] = None  # after a damaged event, the state is unknown
            return None
        if saw.event.get("kind") != "turn_complete":
            return None
        found = live.evidence.drift(self._scorer)
        return None if found is None else lambda: found.score

    def _compare(self, saw: ev.RegulatorSaw, thread_id: str) -> Score | None:
        """Score a reply against its message alone, without the regulator's other measurements."""
        kind = saw.event.get("kind")
        if kind not in TEXTS or self._messages.get(thread_id, "") is None:
            return None
        text = saw.event.get(TEXTS[kind])
        if not isinstance(text, str) or not text.isascii():  # valid ASCII text needs no check
            try:
                text = getattr(events.from_dict(saw.event), TEXTS[kind])
            except (TypeError, ValueError):
                self._messages[thread_id] = None  # after a damaged event, the state is unknown
                return None
        if kind == "turn_start":
            self._messages[thread_id] = text
            return None
        message = self._messages.get(thread_id)
        if message is None:
            return None
        return partial(_scored, self._scorer, message, text)


def _scored(scorer: KeywordScorer, message: str, text: str) -> float | None:
    found = scorer(DriftInput(message, text))
    return None if found is None else found.score


CURRENCIES: Final = ("tokens_in", "usd", "wallclock_ms")  # the budgets besides output tokens, named as in caps
REWARD: Final = "reward"  # the source of grades for a whole conversation
BETWEEN_TURNS: Final = frozenset({"quality", "correction"})  # events that lead to decisions while no turn is running


class Signals:
    """The signals of all threads of a run so far, or of one thread.

    `regulator_of` maps the first decision to a regulator with the settings of the one that made it, or None; it scores
    the drift of replies without a warning. `meta` lists the estimated numbers.
    """

    reads: ClassVar[frozenset[type[Any]]] = frozenset()  # the event types that it reads

    def __init__(
        self,
        *,
        thread_id: str | None = None,
        regulator_of: Callable[[ev.RegulatorDecided], Regulator | None] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.thread_id = thread_id
        self._meta: Mapping[str, Any] = {} if meta is None else meta
        self.threads: dict[str, ThreadSignals] = {}
        self.words = DecisionRedaction()
        """Redacts secrets in decisions."""
        self._drift = None if regulator_of is None else DriftScores(regulator_of)
        # The location of the previous event: most events of a turn share it.
        self._where: ev.Where | None = None
        self._at: tuple[ThreadSignals, TurnSignals]

    def take(
        self, event: ev.RunEvent, _seq: int | None = None, _call: int | None = None
    ) -> tuple[ThreadSignals, TurnSignals] | None:
        """Read one event; returns the thread and the turn that it changed, or None if nothing changed."""
        kind = type(event)
        change = _CHANGES.get(kind)
        if change is None:
            return None
        if kind in _TEXTS:
            self.words.take(event)
        where = event.where
        is_new = False
        if where is not self._where:
            if self.thread_id is not None and where.thread_id != self.thread_id:
                return None
            thread = self.threads.get(where.thread_id)
            if thread is None:
                thread = self.threads[where.thread_id] = ThreadSignals(
                    plain(where.thread_id), thread_id=where.thread_id
                )
            turns = len(thread.turns)
            self._where, self._at = where, (thread, thread.turn(where))
            is_new = len(thread.turns) > turns
        thread, turn = self._at
        return self._at if change(self, thread, turn, event) or is_new else None

    def _begin(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        return False

    def _end(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        is_unknown = event.output_tokens is None or (
            not event.model_calls and not event.output_tokens and "output_tokens" in (self._meta.get("estimated") or ())
        )
        unmeasured = is_unknown and turn.spent <= turn.before
        changed = turn.unmeasured != unmeasured
        turn.unmeasured = unmeasured
        return changed

    def _given(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        if event.source == REWARD and isinstance(event.quality, _NUMBER) and math.isfinite(event.quality):
            changed, thread.reward, thread.rewarded = thread.reward != event.quality, event.quality, turn.turn
            return changed
        return _grade(thread, turn, "given", event.quality)

    def _saw(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        kind = event.event.get("kind")
        changed = self._counted(thread, turn, event, kind)
        drift = self._drift
        return (drift is not None and kind in drift.kinds and self._scored(drift, thread, turn, event)) or changed

    def _scored(self, drift: DriftScores, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        score = drift.take(event) if event.layer_id == thread.regulator else None
        if score is None:
            return False
        if turn.reply is not None:
            _ = turn.drift  # keep the previous reply's drift, in case this one has none
        turn.reply = score
        return True

    def _counted(self, thread: ThreadSignals, turn: TurnSignals, event: Any, kind: Any) -> bool:
        seen, layer_id = event.event, event.layer_id
        if kind == "quality_feedback":
            # A grade of the whole conversation, given to the regulator at its end, is not a grade of the last turn.
            if thread.rewarded == turn.turn and seen.get("quality") == thread.reward:
                return False
            return "quality" in seen and _grade(thread, turn, f"seen by {layer_id}", seen["quality"])
        if thread.regulator != layer_id and not _is_first_regulator(thread, layer_id):
            return False
        if kind == "cost" and isinstance(seen.get("tokens_out"), int):
            paid = _pay(thread, turn, seen)
            return _spend(thread, turn, thread.spent + seen["tokens_out"]) or paid
        if kind == "tool_call":
            return _call(thread, turn, seen.get("tool_name"), seen.get("args_json"))
        return False

    def _tool(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        if thread.regulator is not None or event.status not in _RAN:
            return False
        return _call(thread, turn, event.name, event.args)

    def _model(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        if thread.regulator is not None:
            return False
        paid = event.purpose == "agent" and _pay(
            thread, turn, {"tokens_in": event.input_tokens, "usd": event.cost, "wallclock_ms": event.duration_ms}
        )
        return _spend(thread, turn, thread.spent + event.output_tokens) or paid

    def _decision(self, thread: ThreadSignals, turn: TurnSignals, event: Any) -> bool:
        changed = _decided(thread, turn, event, self.words)
        drift = self._drift
        return (drift is not None and not drift.is_known and self._scored(drift, thread, turn, event)) or changed


_kind = lru_cache(maxsize=256)(plain)  # the same few kinds repeat
# A union type would be rebuilt at each use.
_NUMBER: Final = (int, float)
_TEXTS: Final = DecisionRedaction.reads
_RAN: Final = frozenset({"ok", "error", "invalid_result"})
# Looked up by type, because most events of a long run change nothing here.
_CHANGES: Final[dict[type[Any], Callable[[Signals, ThreadSignals, TurnSignals, Any], bool]]] = {
    ev.TurnStarted: Signals._begin,
    ev.TurnCompleted: Signals._end,
    ev.RegulatorSaw: Signals._saw,
    ev.RegulatorDecided: Signals._decision,
    ev.ModelCalled: Signals._model,
    ev.QualityGiven: Signals._given,
    ev.ToolCalled: Signals._tool,
}
Signals.reads = frozenset(_CHANGES)


def _decided(thread: ThreadSignals, turn: TurnSignals, event: ev.RegulatorDecided, words: DecisionRedaction) -> bool:
    # These checks avoid calls: nearly all decisions of a long run only change the spending.
    tokens, cap, is_own = event.tokens_out, event.cost_cap, thread.regulator == event.layer_id
    is_first = is_own or thread.regulator is None
    changed = False
    if is_first:
        fell, thread.recorded_tokens = tokens < thread.recorded_tokens, tokens
        if fell:
            graded = len(turn.qualities) if turn is thread.turns[-1] else 0
            thread.task_began = len(thread.qualities) - graded
            thread.totals = {}
            thread.spent = turn.spent = event.tokens_out
            turn.before, turn.totals, turn.used = 0, {}, {}
            turn.mean = thread.mean()
            thread.broken = turn.broken = False
            changed = True
    if cap is not None and (is_own or _is_first_regulator(thread, event.layer_id)):
        if thread.cap != cap or turn.cap != cap:
            thread.cap = turn.cap = cap
            changed = True
        changed = _spend(thread, turn, tokens) or changed
    if is_first:
        if event.thresholds is not turn.thresholds or turn.thresholds is not thread.thresholds:
            changed = _rule(thread, turn, event.thresholds) or changed
        if event.confidence is not None:
            changed = _read(turn, event) or changed
    if event.decision.get("kind") == "continue":
        return changed
    return _decide(thread, turn, event, is_first, words) or changed


def _grade(thread: ThreadSignals, turn: TurnSignals, source: str, quality: Any) -> bool:
    if not isinstance(quality, _NUMBER) or not math.isfinite(quality):
        return False  # the regulator drops invalid grades too
    place = (source, turn.turn)
    nth = thread.counted[place] = thread.counted.get(place, 0) + 1
    if nth <= len(turn.qualities):
        return False  # the same grade, recorded by the other source
    turn.qualities = (*turn.qualities, float(quality))
    thread.qualities.append(float(quality))
    thread.graded.append(turn.turn)
    turn.mean = thread.mean()
    return True


def _rule(thread: ThreadSignals, turn: TurnSignals, thresholds: Mapping[str, Any]) -> bool:
    """Use the thresholds in force; a decision without thresholds, as in an older run, changes nothing."""
    if not thresholds or thresholds == turn.thresholds == thread.thresholds:
        return False
    changed = turn.thresholds != thresholds
    thread.thresholds = turn.thresholds = thresholds
    # The quality predicate first; a cost cap has the same two numbers, and may be the only predicate.
    for _, numbers in sorted(thresholds.items(), key=lambda entry: not entry[0].startswith("quality_decline")):
        match numbers:
            case {"poor_mean": int() | float() as poor, "window": int() as window} if 0 <= poor <= 1 <= window:
                if (turn.poor, turn.window) == (poor, window):
                    return changed
                thread.poor, thread.window = turn.poor, turn.window = poor, window
                turn.mean = thread.mean()
                return True
    return changed


def _read(turn: TurnSignals, event: ev.RegulatorDecided) -> bool:
    # At the start of a turn, and after it, the confidence is that of an older reply.
    if event.at == "turn_start" or event.at in BETWEEN_TURNS:
        return False
    changed = turn.confidence != event.confidence
    turn.confidence = event.confidence
    return changed


def _is_first_regulator(thread: ThreadSignals, layer_id: str) -> bool:
    """Only one regulator counts spending; a second one would count the same tokens again."""
    if thread.regulator is None:
        thread.regulator = layer_id
        if thread.turns:  # replace the estimate from model calls by the regulator's count
            turn = thread.turns[-1]
            earlier = thread.turns[-2] if len(thread.turns) > 1 else None
            thread.spent = 0 if earlier is None else earlier.spent
            thread.totals = {} if earlier is None else dict(earlier.totals)
            turn.used, turn.totals = {}, dict(thread.totals)
    return thread.regulator == layer_id


def _spend(thread: ThreadSignals, turn: TurnSignals, spent: int) -> bool:
    changed = turn.spent != spent
    thread.spent = turn.spent = spent
    return changed


def _pay(thread: ThreadSignals, turn: TurnSignals, cost: Mapping[str, Any]) -> bool:
    changed = False
    for currency in CURRENCIES:
        amount = cost.get(currency)
        if isinstance(amount, _NUMBER) and amount.__class__ is not bool and math.isfinite(amount) and amount >= 0:
            turn.used[currency] = turn.used.get(currency, 0) + amount
            turn.totals[currency] = thread.totals[currency] = thread.totals.get(currency, 0) + amount
            changed = True
    return changed


def _call(thread: ThreadSignals, turn: TurnSignals, name: Any, args: Any) -> bool:
    by_call, across_turns = _loops(turn.thresholds)
    key = (name, args if isinstance(args, str) else repr(args)) if by_call else name
    begins = turn.calls_in_a_row is None and not across_turns
    before, times = (None, 0) if begins else thread.in_a_row
    times = times + 1 if before == key and times else 1
    thread.in_a_row = (key, times)
    changed = times > (turn.calls_in_a_row or 0)
    turn.calls_in_a_row = max(times, turn.calls_in_a_row or 0)
    return changed


def _loops(thresholds: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the regulator distinguishes calls by arguments, and whether it counts across turns."""
    for name in thresholds:
        if name.startswith("tool_loop"):
            # Names have these only if there are several loop predicates; a single one compares names within a turn by default.
            return "by=call" in name, "across_turns" in name
    return False, False


def _decide(
    thread: ThreadSignals, turn: TurnSignals, event: ev.RegulatorDecided, is_first: bool, words: DecisionRedaction
) -> bool:
    decision = event.decision
    kind = str(decision.get("kind"))
    if kind == "scope_drift_warn" and is_first and isinstance(decision.get("drift_score"), int | float):
        turn.known_drift, turn.reply = float(decision["drift_score"]), None
    is_break = kind == "circuit_break"
    if is_break and is_first:
        if thread.broken and (not turn.broken or not any(mark.kind == kind for mark in turn.marks)):
            # A break holds until the task is reset: it is one mark, however often it is repeated.
            turn.broken = True
            return event.stops
        thread.broken = turn.broken = True
    if thread.last_mark is not None and thread.last_mark[:2] == (turn.turn, decision):
        repeated = thread.last_mark[2]
        repeated.times += 1
        repeated.stops = repeated.stops or event.stops
        return True
    mark = Mark(_kind(kind), decision_label(decision), event, event.stops, words=words)
    for known in turn.marks:
        if known.label == mark.label and known.detail == mark.detail:
            known.times += 1
            known.stops = known.stops or mark.stops
            thread.last_mark = (turn.turn, event.decision, known)
            return True
    reason = reason_of(decision)
    if reason.get("kind") == "quality_decline_no_recovery" and isinstance(reason.get("turns"), int):
        mark.fall = thread.fall(reason["turns"])
    turn.marks = (*turn.marks, mark)
    thread.last_mark = (turn.turn, event.decision, mark)
    return True
