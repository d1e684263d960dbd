"""Computes the decisions of a regulator for recorded events: the original's command line, reading standard input.

    python -m noetic_nb.regulator.shadow --cost-cap=10000 --scope-threshold=0.7 < events.jsonl
    python -m noetic_nb.regulator.shadow --scope-threshold=0 --summary-only < events.jsonl

The input has one JSON object per line, ``{"turn_id", "event_idx", "event_type", "payload"}``; the output one per event,
and a summary at the end. As in the original, an invalid option is reported and ignored. A file instead of standard
input, ``--preset`` and ``--group-by`` are additions.

References
----------
.. [1] docs/behaviour/regulator.md, "Event logs".
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

from noetic_nb.regulator._regulator import Regulator
from noetic_nb.regulator.decisions import CircuitBreak, ProceduralWarning, ScopeDriftWarn, to_camel
from noetic_nb.regulator.events import EVENT_TYPES, U32_MAX, Event, from_dict

_TYPES: Final = frozenset(cls.__name__ for cls in EVENT_TYPES)
_SWEEP: Final = ("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One event of a log."""

    turn_id: str
    event_idx: int
    event_type: str
    event: Event
    user_id: str | None = None
    """Ours, optional: the user of the turn."""


def read_log(lines: Iterable[str], on_skip: Callable[[int, str], None]) -> list[LogLine]:
    """Return the events of JSON Lines; `on_skip` gets the number and reason of each line that is not an event."""
    found: list[LogLine] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_parse(json.loads(line)))
        except (TypeError, ValueError, RecursionError) as exc:
            on_skip(number, str(exc))
    return found


def _parse(record: Any) -> LogLine:
    if not isinstance(record, dict):
        raise ValueError("Each line must contain one JSON object.")
    turn_id, place, kind = record.get("turn_id"), record.get("event_idx"), record.get("event_type")
    if not isinstance(turn_id, str) or isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise ValueError("A line needs `turn_id`, a string, and `event_idx`, an integer from 0.")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"`event_type` must be one of {sorted(_TYPES)}. Given: {kind!r:.60}.")
    user_id = record.get("user_id")
    return LogLine(
        turn_id, place, kind, from_dict({kind: record.get("payload")}), user_id if isinstance(user_id, str) else None
    )


@dataclass(slots=True)
class ReplayStatistics:
    """The counts of a replay so far."""

    turns: int = 0
    events: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    scores: list[float] = field(default_factory=list)
    scores_of_turns: list[float] = field(default_factory=list)
    thresholds: dict[str, dict[str, float]] = field(default_factory=dict)
    turns_with: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """Return the last line of the original's report; `thresholds` and `drift_score_stats_per_turn` are ours."""
        summary: dict[str, Any] = {
            "turns": self.turns,
            "events": self.events,
            "decisions": dict(sorted(self.decisions.items())),
            "circuit_break_reasons": dict(sorted(self.reasons.items())),
            "turns_with_scope_drift": self.turns_with["ScopeDriftWarn"],
            "turns_with_circuit_break": self.turns_with["CircuitBreak"],
            "turns_with_procedural_warning": self.turns_with["ProceduralWarning"],
            "thresholds": self.thresholds,
        }
        if self.scores:
            summary["drift_score_stats"] = score_statistics(self.scores)
            summary["drift_score_stats_per_turn"] = score_statistics(self.scores_of_turns)
        return summary


def score_statistics(scores: Sequence[float]) -> dict[str, Any]:
    """Return count, extremes, percentiles, a histogram, and the scores at each threshold (docs/behaviour/regulator.md)."""
    ordered = sorted(scores)
    histogram = [0] * 10
    total = 0.0
    for score in ordered:
        total += score  # not sum(), which compensates rounding from Python 3.12
        histogram[min(int(score * 10), 9)] += 1
    return {
        "count": len(ordered),
        "min": ordered[0],
        "mean": total / len(ordered),
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "max": ordered[-1],
        "histogram": histogram,
        "threshold_sweep": [[level, sum(1 for score in ordered if score >= float(level))] for level in _SWEEP],
    }


def replay_log(
    log: Iterable[LogLine], make: Callable[[str], Regulator], *, group_by: str = "turn"
) -> Iterator[dict[str, Any]]:
    """Yield a decision per event, and at the end the summary under the key ``_summary``.

    Turns are in order of first appearance, the events of a turn sorted by `event_idx`. `make` creates a regulator for a
    user id, which is the turn id unless grouped by user. With ``"turn"``, each turn has its own regulator, as in the
    original; with ``"user"``, each user has one, so that memory, cost and grades carry over.
    """
    if group_by not in ("turn", "user"):
        raise ValueError(f"group_by must be 'turn' or 'user'. Given: {group_by!r}.")
    turns: dict[str, list[LogLine]] = {}
    for line in log:
        turns.setdefault(line.turn_id, []).append(line)
    statistics = ReplayStatistics(turns=len(turns))
    regulators: dict[str, Regulator] = {}
    # In order of appearance, because corrections and costs of a user carry over between turns.
    for turn_id, lines in turns.items():
        user_id = (lines[0].user_id or turn_id) if group_by == "user" else turn_id
        regulator = regulators.get(user_id) or make(user_id)
        if group_by == "user":
            regulators[user_id] = regulator
        statistics.thresholds = regulator.thresholds
        yield from _replay_turn(sorted(lines, key=lambda line: line.event_idx), regulator, statistics)
    yield {"_summary": statistics.summary()}


def _replay_turn(lines: list[LogLine], regulator: Regulator, statistics: ReplayStatistics) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    last_score: float | None = None
    for line in lines:
        regulator.on_event(line.event)
        decision = regulator.decide()
        kind = type(decision).__name__
        statistics.events += 1
        statistics.decisions[kind] += 1
        if isinstance(decision, CircuitBreak):
            statistics.reasons[type(decision.reason).__name__] += 1
        if isinstance(decision, ScopeDriftWarn):
            statistics.scores.append(decision.drift_score)
            last_score = decision.drift_score
        if isinstance(decision, ScopeDriftWarn | CircuitBreak | ProceduralWarning):
            seen.add(kind)
        yield {
            "turn_id": line.turn_id,
            "event_idx": line.event_idx,
            "event_type": line.event_type,
            "decision_kind": kind,
            "decision": to_camel(decision),
        }
    statistics.turns_with.update(seen)
    if last_score is not None:
        statistics.scores_of_turns.append(last_score)


_PRESETS: Final = {"release": Regulator.for_user, "newer": Regulator.newer, "recommended": Regulator.recommended}


def _options(arguments: Sequence[str], problems: TextIO) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m noetic_nb.regulator.shadow",
        description="Decide recorded events again: JSON Lines in, decisions and a summary out.",
        # Abbreviations would have to be supported for ever.
        allow_abbrev=False,
    )
    parser.add_argument("log", nargs="?", type=Path, help="a file of events; standard input by default")
    parser.add_argument("--cost-cap", metavar="N", help="cap on output tokens of a turn, default 10000")
    parser.add_argument(
        "--scope-threshold", metavar="F", help="drift warns from here on, default 0.5; 0 shows all scores"
    )
    parser.add_argument("--summary-only", action="store_true", help="print the summary only")
    parser.add_argument("--preset", choices=sorted(_PRESETS), default="release")
    parser.add_argument("--group-by", choices=["turn", "user"], default="turn")
    options, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        print(f"shadow: unknown argument {argument!r} is ignored", file=problems)
    options.cost_cap = _number("--cost-cap", options.cost_cap, int, U32_MAX, problems)
    options.scope_threshold = _number("--scope-threshold", options.scope_threshold, float, 1, problems)
    return options


def _number(name: str, text: str | None, read: type[int] | type[float], most: int, problems: TextIO) -> Any:
    if text is None:
        return None
    try:
        number = read(text)
    except ValueError:
        number = -1
    if 0 <= number <= most:  # NaN fails here too
        return number
    print(f"shadow: {name}={text} is ignored, as it is not a number from 0 to {most}", file=problems)
    return None


def main(arguments: Sequence[str], source: TextIO, out: TextIO, problems: TextIO) -> int:
    """Run the command line; returns 0, or 1 if reading events or writing decisions fails."""
    options = _options(arguments, problems)

    def make(user_id: str) -> Regulator:
        regulator = _PRESETS[options.preset](user_id)
        if options.cost_cap is not None:
            regulator.with_cost_cap(options.cost_cap)
        if options.scope_threshold is not None:
            regulator.with_scope_drift_threshold(options.scope_threshold)
        return regulator

    def skipped(number: int, why: str) -> None:
        print(f"{options.log or 'standard input'}:{number}: skipped: {why}", file=problems)

    try:
        text = source.read() if options.log is None else options.log.read_text(encoding="utf-8")
        # Not splitlines(): U+2028 inside a JSON string does not end a line.
        for row in replay_log(read_log(text.split("\n"), skipped), make, group_by=options.group_by):
            if "_summary" in row or not options.summary_only:
                print(json.dumps(row, ensure_ascii=False), file=out)
        out.flush()
    except (OSError, UnicodeError) as exc:
        print(f"Nothing more was replayed: {exc}", file=problems)
        return 1
    return 0


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # JSON is UTF-8 whatever the locale.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    sys.exit(main(sys.argv[1:], sys.stdin, sys.stdout, sys.stderr))
