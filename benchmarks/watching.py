"""The costs of watching an agent: microseconds a span, for turns of five model calls and four tool calls.

    python -m benchmarks.watching

The spans are made first; `on_start` and `on_end` of ours and of a processor that only keeps them are measured in turns.
"""

from __future__ import annotations

import json
import sys
from time import process_time
from typing import Any, Final

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import set_span_in_context

import noetic_nb as nn
from benchmarks.comparing import Lines, parser

_STEPS = 5
LINES: Final[dict[str, float | None]] = {
    "watch() of a span / a processor that keeps it and reads nothing": None,
    "watch() of a span, the best round": None,
}


class _Kept(SpanProcessor):
    """Keeps what happened."""

    def __init__(self) -> None:
        self.moments: list[tuple[bool, Any]] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.moments.append((True, span))

    def on_end(self, span: Any) -> None:
        self.moments.append((False, span))


def _turn(tracer: Any, number: int) -> None:
    about: dict[str, Any] = {"gen_ai.conversation.id": f"talk-{number // 5}"}
    agent = tracer.start_span("invoke_agent desk", attributes={**about, "gen_ai.operation.name": "invoke_agent"})
    inside = set_span_in_context(agent)
    sent: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": f"Where is order A{number}?"}]}]
    for step in range(_STEPS):
        call = {"type": "tool_call", "id": f"c{step}", "name": "lookup", "arguments": {"order_id": f"A{number}"}}
        text = {"type": "text", "content": "It is packed."}
        answer = {"role": "assistant", "parts": [call if step < _STEPS - 1 else text]}
        chat = tracer.start_span("chat m", inside, attributes={**about, "gen_ai.operation.name": "chat"})
        chat.set_attribute("gen_ai.input.messages", json.dumps(sent))
        chat.set_attribute("gen_ai.output.messages", json.dumps([answer]))
        chat.set_attributes({"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 8})
        chat.end()
        if step < _STEPS - 1:
            known = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "lookup",
                "gen_ai.tool.call.id": f"c{step}",
            }
            tool = tracer.start_span("execute_tool lookup", inside, attributes={**about, **known})
            tool.set_attribute("gen_ai.tool.call.arguments", json.dumps(call["arguments"]))
            tool.set_attribute("gen_ai.tool.call.result", "packed")
            tool.end()
            response = {"type": "tool_call_response", "id": f"c{step}", "response": "packed"}
            sent += [answer, {"role": "tool", "parts": [response]}]
    agent.end()


def watched(turns: int, rounds: int) -> Lines:
    """Print the microseconds that a span takes."""
    kept, provider = _Kept(), TracerProvider()
    provider.add_span_processor(kept)
    for number in range(turns):
        _turn(provider.get_tracer("desk"), number)

    def given_to(processor: SpanProcessor) -> None:
        for begins, span in kept.moments:
            (processor.on_start if begins else processor.on_end)(span)

    spans = len(kept.moments) / 2
    each: dict[str, list[float]] = {"ours": [], "keeping": []}
    for _ in range(rounds):
        watching = nn.watch()  # what the round before made is let go here, outside of what is timed
        for name, processor in (("ours", watching), ("keeping", _Kept())):
            start = process_time()
            given_to(processor)
            each[name].append((process_time() - start) / spans)
        assert len(watching.run.turns) == turns
    lines = Lines(LINES)
    lines.ratio("watch() of a span / a processor that keeps it and reads nothing", each["ours"], each["keeping"])
    lines.value("watch() of a span, the best round", min(each["ours"]) * 1e6, unit="us")
    return lines


if __name__ == "__main__":
    given = parser(__doc__, rounds=10)
    given.add_argument("--turns", type=int, default=300)
    options = given.parse_args()
    sys.exit(watched(options.turns, options.rounds).end(options))
