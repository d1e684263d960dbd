"""The regulator beside the compiled wheel, in one process and one run.

    python benchmarks/regulator.py [--check]

Both sides run the same code through the same surface; each figure is the median of repeats that alternate between the sides,
in processor time, so that a busy machine disturbs neither. Figures are ratios (ours / wheel) unless said otherwise. With --check
a missed target fails the script.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from noetic_nb.compat import noos as ours
from noetic_nb.regulator import (
    CostCap,
    ProceduralWarning,
    QualityDecline,
    ScopeDrift,
    ToolLoop,
    events,
    record_events,
)

try:
    import noos as wheel
except ImportError:
    wheel = None

REPEATS = 15
MESSAGE = "please refactor the billing client module so that retries become fully async"
FILLER = ("async", "the", "client,", "returns", "(value)", "and", "with", "queue.")
REPLY = " ".join(f"word{i % 45}" if i % 3 == 0 else FILLER[i % 8] for i in range(150))


@dataclass(frozen=True)
class Case:
    """One thing to time on both sides."""

    name: str
    most: float
    make: Callable[[Any], Callable[[], object]]
    calls: int


def turn(module: Any, regulator: Any) -> None:
    event = module.LLMEvent
    feed = regulator.on_event
    feed(event.turn_start(MESSAGE))
    for index in range(100):
        feed(event.token("token", -0.5, index))
    feed(event.turn_complete(REPLY))
    feed(event.cost(120, 200, 900, "openai"))
    feed(event.quality_feedback(0.8))
    regulator.decide()


def realistic_turn(module: Any) -> Callable[[], object]:
    regulator = module.Regulator.for_user("u")
    return lambda: turn(module, regulator)


def tokens(module: Any) -> Callable[[], object]:
    regulator, event = module.Regulator.for_user("u"), module.LLMEvent

    def run() -> None:
        regulator.on_event(event.turn_start("x"))
        for index in range(200):
            regulator.on_event(event.token("token", -0.5, index))

    return run


def costs(module: Any) -> Callable[[], object]:
    regulator, event = module.Regulator.for_user("u"), module.LLMEvent

    def run() -> None:
        for _ in range(100):
            regulator.on_event(event.cost(120, 200, 900, "openai"))

    return run


def tool_calls(module: Any) -> Callable[[], object]:
    regulator, event = module.Regulator.for_user("u"), module.LLMEvent

    def run() -> None:
        regulator.on_event(event.turn_start("x"))
        for _ in range(100):
            regulator.on_event(event.tool_call("search", '{"query": "invoices"}'))

    return run


def drifting(module: Any) -> Any:
    regulator = module.Regulator.for_user("u")
    regulator.on_event(module.LLMEvent.turn_start(MESSAGE))
    regulator.on_event(module.LLMEvent.turn_complete(REPLY))
    assert regulator.decide().kind == "scope_drift_warn"
    return regulator


def decide_after_an_event(module: Any) -> Callable[[], object]:
    regulator, event = drifting(module), module.LLMEvent.token("token", -0.5, 0)

    def run() -> None:
        regulator.on_event(event)
        regulator.decide()

    return run


def decide_again(module: Any) -> Callable[[], object]:
    return drifting(module).decide


def learned(module: Any) -> Any:
    regulator, event = module.Regulator.for_user("u"), module.LLMEvent
    for cluster in range(20):
        regulator.on_event(event.turn_start(f"cluster{cluster:02d} topic{cluster:02d} alpha"))
        for number in range(3):
            regulator.on_event(event.user_correction(f"please leave part {number} of this alone", True))
        regulator.on_event(event.turn_complete("fine, thanks, done"))
        regulator.on_event(event.quality_feedback(0.7))
    return regulator


def export(module: Any) -> Callable[[], object]:
    return learned(module).export_json


def load(module: Any) -> Callable[[], object]:
    text = learned(module).export_json()
    return lambda: module.Regulator.from_json(text)


CASES = (
    Case("realistic turn (aim 0.7)", 1.0, realistic_turn, 20),
    Case("token, made and fed", 2.0, tokens, 20),
    Case("cost", 4.0, costs, 40),
    Case("tool_call", 4.0, tool_calls, 40),
    Case("decide while drifting, after an event", 1.5, decide_after_an_event, 2_000),
    Case("decide again, nothing changed", 0.3, decide_again, 5_000),
    Case("export_json, 20 clusters", 10.0, export, 50),
    Case("from_json, 20 clusters", 5.0, load, 50),
)


def seconds(run: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - start) / calls


def alternate(one: Callable[[], object], other: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return the median time of each, taken in turns."""
    seconds(one, calls), seconds(other, calls)
    pairs = [(seconds(one, calls), seconds(other, calls)) for _ in range(REPEATS)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def recorded_run() -> list[events.Event]:
    found: list[events.Event] = []
    for number in range(1_000):
        found.append(events.TurnStart(f"{MESSAGE} {number % 7} item"))
        found += [events.Token("token", -0.5, index) for index in range(20)]
        found += [events.ToolCall("search", f'{{"page": {number}}}'), events.ToolResult("search", True, 40)]
        found += [events.TurnComplete(f"{REPLY} part {number}"), events.Cost(120, 200, 900)]
        found.append(events.QualityFeedback(0.4 + 0.5 * (number % 9) / 9))
    return found


def redecide_ms() -> float:
    """Return the slowest of a dozen moves of a slider over a 1 000-turn run."""
    run = record_events(recorded_run())
    moves = []
    for step in range(12):
        threshold = 0.3 + step / 20
        start = time.process_time()
        run.decide(
            [
                CostCap(tokens_out=20_000 * step),
                QualityDecline(min_delta=threshold / 4),
                ToolLoop(3 + step),
                ScopeDrift(threshold=threshold),
                ProceduralWarning(),
            ]
        )
        moves.append(1_000 * (time.process_time() - start))
    return max(moves)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    options = parser.parse_args(arguments)
    missed: list[str] = []

    def show(name: str, found: float, most: float, note: str = "") -> None:
        missed.extend([name] if found > most else [])
        print(f"{name:<40} {found:>8.2f} {most:>8.1f}  {note}{'  MISSED' if found > most else ''}")

    print(f"{'case':<40} {'ratio':>8} {'at most':>8}  median times")
    if wheel is None:
        print("no noos wheel for this platform: ratios against it are left out")
    else:
        for case in CASES:
            mine, theirs = alternate(case.make(ours), case.make(wheel), case.calls)
            show(case.name, mine / theirs, case.most, f"{1e6 * mine:.2f} us against {1e6 * theirs:.2f} us")

    old, fresh = ours.Regulator.for_user("u"), [ours.Regulator.for_user("u")]
    for _ in range(2_000):
        turn(ours, old)

    def fresh_turn() -> None:
        fresh[0] = ours.Regulator.for_user("u")
        turn(ours, fresh[0])

    after, before = alternate(lambda: turn(ours, old), fresh_turn, 20)
    show(
        "turn after 2 000 turns / on a fresh one",
        after / before,
        1.1,
        f"{1e6 * after:.2f} us against {1e6 * before:.2f} us",
    )
    show("re-deciding 1 000 turns, ms", redecide_ms(), 60.0, "slowest of 12 moves")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
