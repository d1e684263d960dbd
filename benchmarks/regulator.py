"""The regulator beside the compiled wheel, in one process and one run.

    python -m benchmarks.regulator [--check]

Both sides run the same code through the same surface.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any, Final

from benchmarks.comparing import Lines, alternate, parser
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

MESSAGE = "please refactor the billing client module so that retries become fully async"
FILLER = ("async", "the", "client,", "returns", "(value)", "and", "with", "queue.")
REPLY = " ".join(f"word{i % 45}" if i % 3 == 0 else FILLER[i % 8] for i in range(150))


@dataclass(frozen=True)
class Case:
    """One thing to time on both sides."""

    name: str
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
    Case("turn of 100 tokens, a reply, its cost and a decision", realistic_turn, 20),
    Case("200 tokens, made and fed", tokens, 20),
    Case("100 costs, made and fed", costs, 40),
    Case("100 tool calls, made and fed", tool_calls, 40),
    Case("decide while drifting, after an event", decide_after_an_event, 2_000),
    Case("decide again, nothing changed", decide_again, 5_000),
    Case("export_json, 20 clusters", export, 50),
    Case("from_json, 20 clusters", load, 50),
)

LINES: Final[dict[str, float | None]] = {
    **{f"{case.name} / the same in the compiled wheel": None for case in CASES},
    "turn after 2 000 turns / on a new regulator": 1.1,
    "deciding 1 000 turns again, the slowest of 12 moves of a slider": 60,
}


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
        start = process_time()
        run.decide(
            [
                CostCap(tokens_out=20_000 * step),
                QualityDecline(min_delta=threshold / 4),
                ToolLoop(3 + step),
                ScopeDrift(threshold=threshold),
                ProceduralWarning(),
            ]
        )
        moves.append(1_000 * (process_time() - start))
    return max(moves)


async def measure(rounds: int) -> Lines:
    """Measure and print everything."""
    lines = Lines(LINES)
    for case in CASES:
        what = f"{case.name} / the same in the compiled wheel"
        if wheel is None:
            lines.skip(what, "no noos wheel for this platform")
            continue
        works = {"ours": case.make(ours), "wheel": case.make(wheel)}
        found = await alternate(works, rounds=rounds, times=case.calls)
        lines.ratio(what, found["ours"], found["wheel"])

    old, fresh = ours.Regulator.for_user("u"), [ours.Regulator.for_user("u")]
    for _ in range(2_000):
        turn(ours, old)

    def fresh_turn() -> None:
        fresh[0] = ours.Regulator.for_user("u")
        turn(ours, fresh[0])

    found = await alternate({"late": lambda: turn(ours, old), "fresh": fresh_turn}, rounds=rounds, times=20)
    lines.ratio("turn after 2 000 turns / on a new regulator", found["late"], found["fresh"])
    lines.value("deciding 1 000 turns again, the slowest of 12 moves of a slider", redecide_ms())
    return lines


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, rounds=15).parse_args()
    return asyncio.run(measure(options.rounds)).end(options)


if __name__ == "__main__":
    sys.exit(main())
