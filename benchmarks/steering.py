"""What rules cost, beside the least any implementation must do, in the same run.

Run ``python benchmarks/steering.py``. Contestants take turns within short rounds; a ratio is the median of the rounds' own
ratios, so that a machine that slows down halfway slows both sides down. ``--check`` exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import cel

from noetic_nb import AgentConfig, AgentHarness, CallTool, ScriptedModel, history_window, react, tool
from noetic_nb.clock import SYSTEM_CLOCK
from noetic_nb.events import SteeringDecided, Where
from noetic_nb.items import (
    ItemLog,
    assistant_message,
    freeze,
    function_call,
    function_call_output,
    input_message,
    thaw,
)
from noetic_nb.items.origins import OriginIndex, Provenance
from noetic_nb.lab import datasets
from noetic_nb.lab.rule_backtest import Trials
from noetic_nb.memory import ExecutionContext, LayerStack, PastCall
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.steering import RuleBook, SteeringRule, steering
from noetic_nb.steering.evaluation.evaluate import Policy, evaluate
from noetic_nb.steering.predicates.bindings import values_of

ROUNDS: Final = 150
CALLS: Final = 60
ARGS: Final[Any] = freeze({"path": "/workspace/notes.txt", "amount": 40, "tags": ["a", "b"]})
HISTORY: Final = tuple([PastCall("search", {"query": str(n)}, f"c{n}", "ok", "found") for n in range(10)])
GOALS: Final = {
    "10 Python rules, ledger and event / bare floor": 2.5,
    "100 rules of which 3 name the tool / 3 rules": 2.0,
    "10 CEL rules / bare library": 1.5,
    "backtest of one edited Python rule, p95 ms": 200.0,
    "backtest of one edited CEL rule, p95 ms": 200.0,
    "hot swap: evaluations dropped or mixed": 0.0,
    "origin of a value in a log of 10 000 items, p95 ms": 1.0,
}


class Sink:
    """Keeps what is emitted, as a recorder does."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, event: Any) -> None:
        """Keep one event."""
        self.events.append(event)


def context(sink: Sink | None) -> ExecutionContext:
    return ExecutionContext(execution_id="e", thread_id="t", sink=sink, turn=1)


def predicate(limit: int) -> Callable[[Any], Any]:
    def rule(call: Any) -> Any:
        if call.tool_args["amount"] > limit:
            return {"action": "deny"}
        return None

    return rule


def python_rule(number: int, tools: tuple[str, ...] | None = None) -> SteeringRule:
    check = predicate(100 + number)
    return SteeringRule(id=f"p{number}", applies_to="before_tool_call", predicate=check, tools=tools)


async def through_the_stack(rules: list[SteeringRule]) -> Callable[[], Coroutine[Any, Any, Any]]:
    sink = Sink()
    stack = LayerStack([steering(rules)], sink=sink)
    ctx = context(sink)
    await stack.init(ctx)

    async def call() -> Any:
        return await stack.before_tool_call(ctx, tool_name="pay", tool_args=ARGS, call_id="c", history=HISTORY)

    return call


@dataclass(frozen=True)
class Span:
    """The trace of a hook, which every hook leaves."""

    where: Where
    t_ms: float
    layer_id: str
    hook: str
    duration_ms: float


class Call(NamedTuple):
    """What a rule reads of a call, and nothing that keeps one rule from another."""

    tool_name: str
    tool_args: Any
    ctx: ExecutionContext
    state: Any
    call_id: str
    history: Any


def bare_floor() -> Callable[[], Coroutine[Any, Any, Any]]:
    """Ask ten functions in order, keep the newest 100 ledger entries, record trace and decision: by hand."""
    checks = [predicate(100 + number) for number in range(10)]
    ledger: list[dict[str, Any]] = []
    events: list[Any] = []
    ctx = context(None)
    clock = SYSTEM_CLOCK

    async def call() -> Any:
        params = Call("pay", ARGS, ctx, None, "c", HISTORY)
        start = clock.monotonic_ms()
        found = None
        for check in checks:
            found = check(params)
            if found is not None:
                break
        duration = clock.monotonic_ms() - start
        ledger.append(
            {
                "timestamp": clock.now_ms(),
                "kind": "tool_call",
                "toolName": "pay",
                "toolArgs": thaw(ARGS),
                "action": "allow",
                "durationMs": duration,
            }
        )
        del ledger[:-100]
        where = Where("t", "e", 1)
        events.append(Span(where, clock.now_ms(), "steering", "before_tool_call", duration))
        events.append(
            SteeringDecided(
                where, clock.now_ms(), "steering", "before_tool_call", "pay", ARGS, "allow", None, (), duration
            )
        )
        return found

    return call


CONDITIONS: Final = [
    "tool.args.amount > 1000",
    "tool.args.path.startsWith('/etc')",
    "tool.name == 'delete' && tool.args.amount > 3",
    "'secret' in tool.args.tags",
    "tool.args.path.contains('..')",
    "tool.args.amount < 0",
    "tool.args.tags.exists(t, t == 'z')",
    "tool.args.path.endsWith('.key')",
    "size(tool.args.tags) > 10",
    "tool.args.amount == 41 || tool.args.path == ''",
]


def cel_rules() -> Callable[[], Coroutine[Any, Any, Any]]:
    rules = RuleBook()
    for number, text in enumerate(CONDITIONS):
        rules.when(text, id=f"c{number}")
    snapshot, policy = rules.snapshot, Policy()
    params = BeforeToolCallParams("pay", ARGS, context(None), None, "c", HISTORY)

    async def no_judge(rule: Any, judge: Any, params: Any, result: Any) -> None:
        return None

    async def call() -> Any:
        return await evaluate(
            snapshot,
            "before_tool_call",
            params,
            policy,
            judge_now=no_judge,
            judge_later=lambda rule, judge, params, result: None,
        )

    return call


def bare_cel() -> Callable[[], Coroutine[Any, Any, Any]]:
    programs = [cel.compile(text) for text in CONDITIONS]
    params = BeforeToolCallParams("pay", ARGS, context(None), None, "c", HISTORY)

    async def call() -> Any:
        bound = cel.Context(values_of(params, ("tool.name", "tool.args")))
        found = [program.execute(bound) for program in programs]
        return True in found

    return call


async def timed(contestants: dict[str, Callable[[], Coroutine[Any, Any, Any]]]) -> dict[str, list[float]]:
    """Return the time of a call in microseconds in each round, contestants taking turns."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            start = perf_counter()
            for _ in range(CALLS):
                await call()
            taken[name].append((perf_counter() - start) / CALLS * 1e6)
    return taken


def ratio(one: list[float], other: list[float]) -> float:
    return statistics.median([a / b for a, b in zip(one, other, strict=True)])


def runs_of(path: Path | None) -> list[Any]:
    if path is not None:
        return datasets.load_trajectories(path)
    # The package holds a fifth of the full data set; five times over it is as much work.
    return datasets.airline() * 5


def backtests(runs: list[Any]) -> dict[str, float]:
    rules = RuleBook([python_rule(number, ("book_reservation",)) for number in range(8)])
    rules.rule("bags", on="before_tool_call", tools=["book_reservation"])(lambda call: None)
    rules.when("tool.args.total_baggages > 3", id="many", tools="book_reservation")
    trials = Trials(runs)
    edited: dict[str, Any] = {
        "Python": lambda n: SteeringRule(
            id="bags",
            applies_to="before_tool_call",
            tools="book_reservation",
            predicate=lambda call: {"action": "deny"} if call.tool_args.get("total_baggages", 0) > n % 4 else None,
        ),
        "CEL": lambda n: SteeringRule(
            id="many",
            applies_to="before_tool_call",
            when=f"tool.name == 'book_reservation' && (tool.args.total_baggages > {n % 4} || history.exists(h, !h.ok))",
        ),
    }
    found: dict[str, float] = {}
    for name, edit in edited.items():
        times: list[float] = []
        for number in range(40):
            start = perf_counter()
            table = trials.diff(rules, edit(number))
            times.append((perf_counter() - start) * 1e3)
        assert len(table) == len(trials.calls)
        found[f"backtest of one edited {name} rule, p95 ms"] = sorted(times)[int(len(times) * 0.95) - 1]
    return found


async def hot_swap(seconds: float = 3.0, rate: int = 1_000) -> tuple[int, int, int]:
    """Swap pairs of rules from another thread while they are asked; returns asked, dropped, mixed."""
    rules = RuleBook()
    seen: list[tuple[int, int]] = []

    def put_pair(version: int) -> list[SteeringRule]:
        def first(call: Any) -> None:
            seen.append((version, 0))

        def second(call: Any) -> None:
            seen.append((version, 1))

        return [
            SteeringRule(id="first", applies_to="before_tool_call", predicate=first),
            SteeringRule(id="second", applies_to="before_tool_call", predicate=second),
        ]

    for rule in put_pair(0):
        rules.put(rule)
    layer = steering(rules)
    stack, ctx = LayerStack([layer]), context(None)
    await stack.init(ctx)
    done = threading.Event()
    versions: list[tuple[int, int]] = []

    def edit() -> None:
        version = 0
        while not done.wait(0.001):
            version += 1
            for rule in put_pair(version):
                rules.put(rule)
                versions.append((rules.version, version))

    editor = threading.Thread(target=edit)
    editor.start()
    asked = dropped = mixed = 0
    begin = perf_counter()
    while (now := perf_counter() - begin) < seconds:
        seen.clear()
        decision = await stack.before_tool_call(ctx, tool_name="pay", tool_args=ARGS)
        asked += 1
        dropped += decision.action.value != "allow" or len(seen) != 2
        # A pair is swapped one rule after the other: what is asked first is at most one version ahead, never behind.
        ahead = seen[0][0] - seen[1][0] if len(seen) == 2 else 0
        mixed += ahead not in (0, 1)
        await asyncio.sleep(max(0.0, asked / rate - now))
    done.set()
    editor.join()
    print(
        f"hot swap: {asked / seconds:,.0f} evaluations/s under {len(versions) / seconds:,.0f} edits/s, {asked:,} in all"
    )
    return asked, dropped, mixed


def origins(count: int = 10_000) -> float:
    """Ask where values of many kinds come from, the log growing between; returns milliseconds."""
    words = [
        "the",
        "bank",
        "account",
        "of",
        "a",
        "person",
        "who",
        "wants",
        "to",
        "pay",
        "for",
        "us",
        "and",
        "1",
        "or",
        "2",
        "others",
        "on",
        "time",
        "at",
        "home",
    ]
    log = ItemLog()
    for n in range(count // 4):
        text = " ".join(words[(n * 7 + k * 3) % len(words)] for k in range(40))
        rows = [
            {"id": n * 5 + k, "iban": f"DE{n * 5 + k:020d}", "email": f"p{n * 5 + k}@mail.example.org"}
            for k in range(5)
        ]
        log.append(input_message(f"{text} number {n}"))
        log.append(function_call("look_up", f'{{"page": {n}}}', f"c{n}"))
        log.append(function_call_output(f"c{n}", json.dumps(rows)))
        log.append(assistant_message(f"{text} answer {n}"))
    empty = OriginIndex()
    start = perf_counter()
    log.origin_index()
    print(f"first look at {len(log):,} items: {(perf_counter() - start) * 1e3:,.0f} ms")
    times: list[float] = []
    for n in range(400):
        log.append(input_message(f"one more, {n}"))
        asked: tuple[Any, ...] = (
            f"DE{n * 9:020d}", f"p{n * 11}@mail.example.org", n * 13, f"US{n:020d}", "who wants to pay",
            f"nobody{n}@mail.example.org", f"DE{n:04d} nobody knows 1", ["for us", n],
        )  # fmt: skip
        start = perf_counter()
        Provenance(log.origin_index(), empty, empty).origin(asked[n % len(asked)])
        times.append((perf_counter() - start) * 1e3)
    times.sort()
    print(
        f"origin of a value: {statistics.median(times) * 1e3:.0f} us, p95 {times[380] * 1e3:.0f} us, at most {times[-1]:.2f} ms"
    )
    return times[380]


@tool
def look(what: str) -> str:
    """Look something up."""
    return what


def talking(scope: MemoryScope) -> AgentHarness:
    """Return an agent that makes one call a turn, under one condition."""
    rules = RuleBook()
    rules.when("tool.args.what == 'nothing'", id="one")
    asked = 0

    def answer(request: Any) -> Any:
        nonlocal asked
        asked += 1
        return CallTool("look", what=f"thing {asked}") if asked % 2 else "Done."

    config = AgentConfig(
        name="desk", step=react(model="m", tools=[look]), memory=[steering(rules, scope=scope), history_window(20)]
    )
    return AgentHarness(config, model=ScriptedModel(answer))


async def scopes(turns: int, rounds: int = 40) -> None:
    """Print what a turn costs more whose ledger outlives it, beside a turn whose ledger does not: processor time."""
    agents = {scope: talking(scope) for scope in ("execution", "thread")}
    for agent in agents.values():
        for _ in range(turns):
            await agent.execute("And now?")
    taken: dict[str, list[float]] = {scope: [] for scope in agents}
    for _ in range(rounds):
        for scope, agent in agents.items():
            start = process_time()
            await agent.execute("And now?")
            taken[scope].append((process_time() - start) * 1e3)
    above = statistics.median([b - a for a, b in zip(taken["execution"], taken["thread"], strict=True)])
    print(
        f"turn {turns:>4} of a thread: scope execution {statistics.median(taken['execution']):.2f} ms, "
        f"scope thread {above:.2f} ms more"
    )


async def measure(path: Path | None) -> dict[str, float]:
    named = [python_rule(number, ("pay",)) for number in range(3)]
    others = [python_rule(number, (f"tool{number}",)) for number in range(3, 100)]
    times = await timed(
        {
            "bare floor": bare_floor(),
            "10 Python rules": await through_the_stack([python_rule(number) for number in range(10)]),
            "3 rules": await through_the_stack(named),
            "100 rules": await through_the_stack([*named, *others]),
            "bare library": bare_cel(),
            "10 CEL rules": cel_rules(),
        }
    )
    for name, rounds in times.items():
        print(f"{name:>20}: {statistics.median(rounds):7.2f} us, at best {min(rounds):.2f}")
    for turns in (60, 600):
        await scopes(turns)
    _, dropped, mixed = await hot_swap()
    return {
        "10 Python rules, ledger and event / bare floor": ratio(times["10 Python rules"], times["bare floor"]),
        "100 rules of which 3 name the tool / 3 rules": ratio(times["100 rules"], times["3 rules"]),
        "10 CEL rules / bare library": ratio(times["10 CEL rules"], times["bare library"]),
        "hot swap: evaluations dropped or mixed": float(dropped + mixed),
        "origin of a value in a log of 10 000 items, p95 ms": origins(),
    } | backtests(runs_of(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--trajectories", type=Path, help="the full data set of recorded airline conversations")
    options = parser.parse_args()
    found = asyncio.run(measure(options.trajectories))
    missed = False
    for name, goal in GOALS.items():
        missed = missed or found[name] > goal
        print(f"{name:<50} {found[name]:8.2f}   goal <= {goal:g}   {'ok' if found[name] <= goal else 'MISSED'}")
    sys.exit(1 if options.check and missed else 0)


if __name__ == "__main__":
    main()
