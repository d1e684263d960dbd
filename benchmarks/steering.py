"""The costs of rules, through the layer that enforces them, beside the least any implementation must do.

Run ``python -m benchmarks.steering``. A floor asks the same rules in the same order, keeps the newest hundred rows of a
ledger and an event of each decision, with plain dicts and functions: nothing of this library is in it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter, process_time, time
from types import SimpleNamespace
from typing import Any, Final

import cel

from benchmarks.comparing import Lines, Work, alternate, parser
from noetic_nb import AgentConfig, AgentHarness, CallTool, ScriptedModel, history_window, react, tool
from noetic_nb.items import (
    ItemLog,
    assistant_message,
    freeze,
    function_call,
    function_call_output,
    input_message,
)
from noetic_nb.items._origin_index import OriginIndex, Provenance
from noetic_nb.lab import datasets
from noetic_nb.lab._rule_backtest import Trials
from noetic_nb.memory import ExecutionContext, LayerStack, PastCall
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.steering import RuleBook, SteeringRule, steering

CALLS: Final = 60
PLAIN_ARGS: Final[dict[str, Any]] = {"path": "/workspace/notes.txt", "amount": 40, "tags": ["a", "b"]}
ARGS: Final[Any] = freeze(PLAIN_ARGS)
# The work measured, by name, its peer, and the most that the ratio may be.
CONTESTS: Final[dict[str, tuple[str, str, float | None]]] = {
    "10 Python rules through the layer / ten bare functions, a ledger row and an event each": (
        "10 Python rules",
        "bare functions",
        None,
    ),
    "10 CEL rules through the layer / ten bare programs of the library, a ledger row and an event each": (
        "10 CEL rules",
        "bare library",
        None,
    ),
    "100 rules through the layer of which 3 name the tool / those 3 through the layer": ("100 rules", "3 rules", 2.0),
}
LINES: Final[dict[str, float | None]] = {
    **{what: goal for what, (_, _, goal) in CONTESTS.items()},
    "turn 60 of a thread with a call and a rule, scope thread / scope execution": None,
    "turn 600 of a thread with a call and a rule, scope thread / scope execution": None,
    "decisions dropped or mixed while rules are swapped": 0,
    "first look at a long log for the origin of values": None,
    "origin of a value in a long log, one item more each time, p95": None,
    "backtest of one edited rule of ten, nothing looked at before": None,
    "backtest after the next edit of a Python rule, the runs looked at before, p95": 200,
    "backtest after the next edit of a CEL rule, the runs looked at before, p95": 200,
}
HISTORY: Final = tuple([PastCall("search", {"query": str(n)}, f"c{n}", "ok", "found") for n in range(10)])


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


async def through_the_stack(rules: list[SteeringRule] | RuleBook) -> Callable[[], Coroutine[Any, Any, Any]]:
    sink = Sink()
    stack = LayerStack([steering(rules)], sink=sink)
    ctx = context(sink)
    await stack.init(ctx)

    async def call() -> Any:
        return await stack.before_tool_call(ctx, tool_name="pay", tool_args=ARGS, call_id="c", history=HISTORY)

    return call


def recorded(decide: Callable[[], str]) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Return what decides, keeps the newest 100 rows of a ledger and an event of the decision: by hand."""
    ledger: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []

    async def call() -> Any:
        start = perf_counter()
        action = decide()
        took = (perf_counter() - start) * 1e3
        row = {"time": time(), "tool": "pay", "args": dict(PLAIN_ARGS), "action": action, "took_ms": took}
        ledger.append(row)
        del ledger[:-100]
        events.append({"thread": "t", "execution": "e", "turn": 1, "kind": "decided", **row})
        return action

    return call


def bare_functions() -> Callable[[], Coroutine[Any, Any, Any]]:
    """Ask ten functions in order."""
    checks = [predicate(100 + number) for number in range(10)]

    def decide() -> str:
        call = SimpleNamespace(tool_name="pay", tool_args=PLAIN_ARGS, call_id="c")
        for check in checks:
            found = check(call)
            if found is not None:
                return str(found["action"])
        return "allow"

    return recorded(decide)


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


def cel_rules() -> RuleBook:
    """Return ten conditions as rules."""
    rules = RuleBook()
    for number, text in enumerate(CONDITIONS):
        rules.when(text, id=f"c{number}")
    return rules


def bare_cel() -> Callable[[], Coroutine[Any, Any, Any]]:
    """Ask ten programs of the library for CEL in order."""
    programs = [cel.compile(text) for text in CONDITIONS]

    def decide() -> str:
        bound = cel.Context({"tool": {"name": "pay", "args": PLAIN_ARGS}})
        for program in programs:
            if program.execute(bound) is True:
                return "deny"
        return "allow"

    return recorded(decide)


def runs_of(path: Path | None) -> list[Any]:
    if path is not None:
        return datasets.load_trajectories(path)
    # The package holds a fifth of the full data set; five times over it is as much work.
    return [run for _ in range(5) for run in datasets.airline()]


def backtests(path: Path | None, lines: Lines) -> None:
    """Print what the table of one edited rule costs, the first on runs that nobody has looked at and then while it is edited."""
    rules = RuleBook([python_rule(number, ("book_reservation",)) for number in range(8)])
    rules.rule("bags", on="before_tool_call", tools=["book_reservation"])(lambda call: None)
    rules.when("tool.args.total_baggages > 3", id="many", tools="book_reservation")
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
    cold: list[float] = []
    for number in range(3):
        runs = runs_of(path)
        start = process_time()
        trials = Trials(runs)
        table = trials.diff(rules, edited["Python"](number))
        cold.append((process_time() - start) * 1e3)
    about = f"{len(table):,} calls of {len(runs)} runs"
    what = "backtest of one edited rule of ten, nothing looked at before"
    lines.value(what, statistics.median(cold), about=about)
    for name, edit in edited.items():
        times: list[float] = []
        for number in range(40):
            start = process_time()
            table = trials.diff(rules, edit(number))
            times.append((process_time() - start) * 1e3)
        assert len(table) == len(trials.calls)
        p95 = sorted(times)[int(len(times) * 0.95) - 1]
        lines.value(f"backtest after the next edit of a {name} rule, the runs looked at before, p95", p95, about=about)


async def hot_swap(lines: Lines, seconds: float = 3.0, rate: int = 1_000) -> None:
    """Swap pairs of rules from another thread while they are asked; print how many decisions were dropped or mixed."""
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
    about = f"{asked / seconds:,.0f} decisions/s under {len(versions) / seconds:,.0f} edits/s"
    lines.value("decisions dropped or mixed while rules are swapped", dropped + mixed, about=about, unit="")


def origins(lines: Lines, count: int = 10_000) -> None:
    """Print how long it takes to say where values of many kinds come from, the log growing between."""
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
    start = process_time()
    log.origin_index()
    took, about = (process_time() - start) * 1e3, f"{len(log):,} items"
    lines.value("first look at a long log for the origin of values", took, about=about)
    times: list[float] = []
    for n in range(400):
        log.append(input_message(f"one more, {n}"))
        asked: tuple[Any, ...] = (
            f"DE{n * 9:020d}", f"p{n * 11}@mail.example.org", n * 13, f"US{n:020d}", "who wants to pay",
            f"nobody{n}@mail.example.org", f"DE{n:04d} nobody knows 1", ["for us", n],
        )  # fmt: skip
        start = process_time()
        Provenance(log.origin_index(), empty, empty).origin(asked[n % len(asked)])
        times.append((process_time() - start) * 1e3)
    times.sort()
    lines.value(
        "origin of a value in a long log, one item more each time, p95", times[380], about=f"{len(log):,} items"
    )


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


async def scopes(lines: Lines, turns: int, rounds: int = 40) -> None:
    """Print what a turn costs whose ledger outlives it, beside a turn whose ledger does not."""
    agents = {scope: talking(scope) for scope in ("execution", "thread")}
    for agent in agents.values():
        for _ in range(turns):
            await agent.execute("And now?")
    works: dict[str, Work] = {scope: lambda agent=agent: agent.execute("And now?") for scope, agent in agents.items()}
    taken = await alternate(works, rounds=rounds)
    what = f"turn {turns} of a thread with a call and a rule, scope thread / scope execution"
    lines.ratio(what, taken["thread"], taken["execution"], unit="ms")


async def measure(path: Path | None, rounds: int) -> Lines:
    """Measure and print everything."""
    named = [python_rule(number, ("pay",)) for number in range(3)]
    others = [python_rule(number, (f"tool{number}",)) for number in range(3, 100)]
    works: dict[str, Work] = {
        "bare functions": bare_functions(),
        "10 Python rules": await through_the_stack([python_rule(number) for number in range(10)]),
        "3 rules": await through_the_stack(named),
        "100 rules": await through_the_stack([*named, *others]),
        "bare library": bare_cel(),
        "10 CEL rules": await through_the_stack(cel_rules()),
    }
    found = await alternate(works, rounds=rounds, times=CALLS)
    lines = Lines(LINES)
    for what, (mine, other, _) in CONTESTS.items():
        lines.ratio(what, found[mine], found[other])
    for turns in (60, 600):
        await scopes(lines, turns)
    await hot_swap(lines)
    origins(lines)
    backtests(path, lines)
    return lines


def main() -> int:
    """Measure and print."""
    given = parser(__doc__, rounds=150)
    given.add_argument("--trajectories", type=Path, help="the full data set of recorded airline conversations")
    options = given.parse_args()
    return asyncio.run(measure(options.trajectories, options.rounds)).end(options)


if __name__ == "__main__":
    sys.exit(main())
