"""The costs of other people's agents and recordings, as ratios against the same work without us.

    python -m benchmarks.interop

Readings are compared with `json.loads` of the same file, each in a process of its own, since memory is measured.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any, Final

import noetic_nb as nn
from benchmarks.comparing import Lines, alternate, best, fresh, parser
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.lab import datasets
from noetic_nb.memory import ExecutionContext, LayerStack
from noetic_nb.runs import Recorder, Run
from noetic_nb.sync import drive

_STEPS = 5
LINES: Final[dict[str, float | None]] = {
    "spans read as runs / json.loads of their file": 6,
    "resident memory of it / of json.loads": None,
    "resident memory of reading spans as runs": 500,
    "AgentDojo runs imported / json.loads of their lines": 10,
    "AgentDojo runs with their secrets, by load_agentdojo / json.loads of their lines": None,
    "call of a function under one Python rule, ledger and event / the decision of our own harness and the function": 3,
    "call of a function under one Python rule, ledger and event / the function itself": None,
}
_MEASURED = """
import json, resource, sys, time
from pathlib import Path
from noetic_nb.interop import runs_from_spans
path = Path(sys.argv[1])
start = time.process_time()
{work}
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _attributes(about: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in about.items()
    ]


def _conversation(number: int, size: int) -> list[dict[str, Any]]:
    """Return the spans of one turn: five model calls whose inputs grow, four tool calls, the agent around them."""
    made: list[dict[str, Any]] = []
    start = 1_700_000_000_000_000_000 + number * 10**9
    agent = f"{size + 1:016x}"

    def add(name: str, about: dict[str, Any], span_id: str | None = None) -> None:
        at = start + len(made) * 1_000_000
        about["gen_ai.conversation.id"] = f"talk-{number}"
        made.append(
            {
                "traceId": f"{number + 1:032x}",
                "spanId": span_id or f"{size + len(made) + 2:016x}",
                "parentSpanId": "" if span_id else agent,
                "name": name,
                "startTimeUnixNano": str(at if span_id is None else start),
                "endTimeUnixNano": str(at + 500_000),
                "attributes": _attributes(about),
                "status": {},
            }
        )

    messages: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": f"Where is order A{number}?" * 5}]}]
    for step in range(_STEPS):
        call = {"type": "tool_call", "id": f"c{step}", "name": "lookup", "arguments": {"order_id": f"A{number}"}}
        text = {"type": "text", "content": "It is packed."}
        answer = {"role": "assistant", "parts": [call if step < _STEPS - 1 else text], "finish_reason": "stop"}
        about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 120}
        about |= {"gen_ai.usage.output_tokens": 8, "gen_ai.input.messages": json.dumps(messages)}
        add("chat m", about | {"gen_ai.output.messages": json.dumps([answer])})
        if step < _STEPS - 1:
            result = "packed " * 10
            about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
            about |= {"gen_ai.tool.call.id": f"c{step}", "gen_ai.tool.call.arguments": json.dumps(call["arguments"])}
            add("execute_tool lookup", about | {"gen_ai.tool.call.result": result})
            response = {"type": "tool_call_response", "id": f"c{step}", "response": result}
            messages += [answer, {"role": "tool", "parts": [response]}]
    add("invoke_agent desk", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"}, agent)
    return made


def spans(count: int, lines: Lines) -> None:
    """Compare reading an OTLP file of many spans with parsing it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spans.json"
        number = size = 0
        # Written piece by piece: a child begins with the memory of its parent, and it is what is measured.
        with path.open("w") as file:
            file.write('{"resourceSpans": [{"scopeSpans": [{"spans": [')
            while size < count:
                made = _conversation(number, size)[: count - size]
                file.write((", " if size else "") + json.dumps(made)[1:-1])
                number, size = number + 1, size + len(made)
            file.write("]}]}]}")
        scripts = {
            "json": _MEASURED.format(work="json.loads(path.read_bytes())"),
            "ours": _MEASURED.format(work="runs_from_spans(path)"),
        }
        found = fresh(scripts, rounds=3, arguments=[str(path)])
        about = f"{count:,} spans, {path.stat().st_size // 2**20} MB"
        mine, floor = ([row[0] for row in found[name]] for name in ("ours", "json"))
        lines.ratio("spans read as runs / json.loads of their file", mine, floor, about=about, unit="s")
        mine, floor = ([row[1] for row in found[name]] for name in ("ours", "json"))
        lines.ratio("resident memory of it / of json.loads", mine, floor, unit="MiB")
        lines.value("resident memory of reading spans as runs", min(mine), unit="MiB")


async def guarded(lines: Lines, rounds: int) -> None:
    """Compare guarded calls under one Python rule with the decision alone, and with the function itself."""
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def small(call: Any) -> Any:
        return nn.deny("Ask a person.") if call.tool_args["amount"] > 100 else None

    def pay(amount: int, to: str = "bank") -> str:
        return "paid"

    # The same decision in our own harness, with its ledger: what a call under one rule costs anywhere.
    run = nn.Run()
    sink = Recorder(run)
    stack = LayerStack([nn.steering(book)], sink=sink)
    ctx = ExecutionContext(execution_id="e1", thread_id="t1", sink=sink)
    drive(stack.init(ctx))
    args = FrozenDict(amount=7, to="bank")

    def decision() -> None:
        drive(stack.before_tool_call(ctx, tool_name="pay", tool_args=args, call_id="c1"))
        pay(amount=7)

    tool = nn.guard(pay, book)
    with nn.guard_session():
        works = {"bare": lambda: pay(amount=7), "decision": decision, "guarded": lambda: tool(amount=7)}
        found = await alternate(works, rounds=rounds, times=100)
    what = "call of a function under one Python rule, ledger and event"
    mine = found["guarded"]
    lines.ratio(f"{what} / the decision of our own harness and the function", mine, found["decision"])
    lines.ratio(f"{what} / the function itself", mine, found["bare"])


def data_sets(lines: Lines) -> None:
    """Compare the import of 1 365 AgentDojo runs with parsing their lines."""
    content = b"\n".join([gzip.decompress(path.read_bytes()) for path in sorted(datasets.DATA.glob("agentdojo-*.gz"))])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agentdojo.jsonl"
        path.write_bytes(content)
        parsed = best(lambda: [json.loads(line) for line in path.read_bytes().splitlines()], clock=process_time)
        ours = best(lambda: list(nn.import_runs(path)), clock=process_time)
        loaded = best(lambda: datasets.load_agentdojo(path), clock=process_time)
        count = sum([isinstance(run, Run) for run in nn.import_runs(path)])
    about = f"{count:,} runs"
    what = "AgentDojo runs imported / json.loads of their lines"
    lines.ratio(what, ours, parsed, about=about, unit="s")
    what = "AgentDojo runs with their secrets, by load_agentdojo / json.loads of their lines"
    lines.ratio(what, loaded, parsed, about=about, unit="s")


def main() -> int:
    """Measure and print."""
    given = parser(__doc__, rounds=15)
    given.add_argument("--spans", type=int, default=100_000)
    options = given.parse_args()
    lines = Lines(LINES)
    spans(options.spans, lines)
    data_sets(lines)
    asyncio.run(guarded(lines, options.rounds))
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
