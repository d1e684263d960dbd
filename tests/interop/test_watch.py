"""Foreign agents watched while they work: the run equals that of their finished spans, and the agent is not affected."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_span_in_context

import noetic_nb as nn
from noetic_nb.events import (
    ChildEnded,
    ChildStarted,
    ErrorRaised,
    ModelCalled,
    RegulatorDecided,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
)
from noetic_nb.interop import runs_from_spans
from noetic_nb.runs import Run, load_run
from tests.interop.replayed_spans import capture, replay

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "spans").glob("*.json"))


class Agent:
    """Makes spans as an instrumentation does, for a run that is watched and one that is imported afterwards."""

    def __init__(self, **given: Any) -> None:
        self.watching = nn.watch(**given)
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.watching)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("desk")
        self.calls = 0

    @property
    def run(self) -> Run:
        return self.watching.run

    def start(self, operation: str, name: str = "", inside: Any = None, **about: Any) -> Any:
        known = {"gen_ai.operation.name": operation, **{f"gen_ai.{key}": value for key, value in about.items()}}
        context = None if inside is None else set_span_in_context(inside)
        return self.tracer.start_span(f"{operation} {name}".strip(), context, attributes=known)

    def model(
        self,
        inside: Any = None,
        said: str = "",
        calls: Any = (),
        asked: str = "where?",
        results: Any = (),
        **about: Any,
    ) -> None:
        """Make the span of a model call, with its messages."""
        span = self.start("chat", inside=inside, **{"request.model": "m", **about})
        self.answer(span, said, calls, asked, results)

    def answer(self, span: Any, said: str = "", calls: Any = (), asked: str = "where?", results: Any = ()) -> None:
        sent: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": asked}]}]
        for call_id, output in results:
            sent.append({"role": "assistant", "parts": [_call(call_id)]})
            sent.append({"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": output}]})
        parts = [{"type": "text", "content": said}] if said else []
        made = [{"role": "assistant", "parts": [*parts, *map(_call, calls)]}]
        span.set_attributes({"gen_ai.input.messages": json.dumps(sent), "gen_ai.output.messages": json.dumps(made)})
        span.set_attributes({"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 3})
        span.end()

    def tool_span(self, call_id: str, inside: Any = None, name: str = "lookup") -> Any:
        span = self.start("execute_tool", name, inside, **{"tool.name": name, "tool.call.id": call_id})
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps({"of": call_id}))
        return span

    def tool(self, call_id: str, inside: Any = None, output: str | None = "packed", name: str = "lookup") -> None:
        span = self.tool_span(call_id, inside, name)
        if output is not None:
            span.set_attribute("gen_ai.tool.call.result", output)
        span.end()

    @contextmanager
    def agent(self, name: str = "desk", inside: Any = None, **about: Any) -> Iterator[Any]:
        span = self.start("invoke_agent", name, inside, **{"agent.name": name, **about})
        yield span
        span.end()

    def turn(self, asked: str = "where?", **about: Any) -> None:
        with self.agent(**about) as desk:
            self.model(desk, calls=["c1"], asked=asked)
            self.tool("c1", desk)
            self.model(desk, "packed", asked=asked, results=[("c1", "packed")])

    def read(self) -> Run:
        """Import the finished spans."""
        (found,) = runs_from_spans(self.exporter.get_finished_spans())
        return found


def _call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "lookup", "arguments": {"of": call_id}}


def _calls(run: Run) -> list[Any]:
    return [
        (event.name, event.args, event.output, event.status)
        if isinstance(event, ToolCalled)
        else (event.model, event.input_tokens, event.output_tokens)
        for event in run.select(ToolCalled, ModelCalled)
    ]


def _without_nodes(run: Run) -> list[RunEvent]:
    """Return the events of an imported run, without the steps for spans other than calls: a watched run has none."""
    return [event for event in run.events if getattr(event, "step_kind", "") != "node"]


def _about(run: Run) -> dict[str, Any]:
    return {
        key: run.meta[key] for key in ("source", "created_ms", "model", "params", "policy", "estimated", "unmapped")
    }


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_that_happens_again_gives_the_run_of_its_finished_spans(path: Path) -> None:
    spans, logs = capture(path)
    watching = nn.watch()

    replay(spans, logs, watching, early=True)

    (expected,) = runs_from_spans(path)
    assert len(CAPTURES) == 9
    assert watching.run.events == _without_nodes(expected)
    assert _about(watching.run) == _about(expected)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_spans_that_name_themselves_at_their_end_only_give_the_same_calls(path: Path) -> None:
    spans, logs = capture(path)
    watching = nn.watch()

    replay(spans, logs, watching, early=False)

    (expected,) = runs_from_spans(path)
    assert _calls(watching.run) == _calls(expected)
    assert [turn.outcome for turn in watching.run.turns] == ["success"]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_spans_whose_beginning_was_not_seen_are_read_when_the_outermost_ends(path: Path) -> None:
    spans, logs = capture(path)
    watching, seen = nn.watch(), InMemorySpanExporter()
    replay(spans, logs, SimpleSpanProcessor(seen) if not logs else _WithLogs(seen, watching), early=True)

    for span in seen.get_finished_spans():
        watching.on_end(span)

    (expected,) = runs_from_spans(path)
    if not logs:
        assert watching.run.events == _without_nodes(expected)
    assert [event.name for event in watching.run.select(ToolCalled)] == [e.name for e in expected.select(ToolCalled)]


class _WithLogs(SimpleSpanProcessor):
    def __init__(self, exporter: Any, _: Any) -> None:
        super().__init__(exporter)

    def on_emit(self, record: Any) -> None:
        pass


def test_a_run_grows_with_every_call_and_not_at_the_end_only() -> None:
    agent = Agent()
    seen: list[str] = []
    agent.run.subscribe(lambda event: seen.append(event.kind))

    with agent.agent() as desk:
        agent.model(desk, calls=["c1"])
        after_model = list(seen)
        agent.tool("c1", desk)
        after_tool = seen[len(after_model) :]
        agent.model(desk, "packed", results=[("c1", "packed")])
        before_end = list(seen)

    assert after_model == ["turn_started", "items_appended", "model_called", "items_appended"]
    assert after_tool == ["tool_called", "items_appended"]
    assert seen[len(before_end) :] == ["turn_completed"]
    assert agent.run.events == agent.read().events


def test_a_tool_without_a_result_waits_for_the_model_that_reads_it() -> None:
    agent = Agent()

    with agent.agent() as desk:
        agent.model(desk, calls=["c1"])
        agent.tool("c1", desk, output=None)
        waiting = len(agent.run.select(ToolCalled))
        agent.model(desk, "packed", results=[("c1", "on its way")])

    assert waiting == 0
    assert [event.output for event in agent.run.select(ToolCalled)] == ["on its way"]
    assert agent.run.events == agent.read().events


def test_calls_side_by_side_are_in_the_run_in_the_order_in_which_they_began() -> None:
    agent = Agent()

    with agent.agent() as desk:
        agent.model(desk, calls=["c1", "c2", "c3"])
        spans = [agent.tool_span(call_id, desk) for call_id in ("c1", "c2", "c3")]
        for span in reversed(spans):
            span.set_attribute("gen_ai.tool.call.result", "packed")
            span.end()
        agent.model(desk, "all packed", results=[(call_id, "packed") for call_id in ("c1", "c2", "c3")])

    assert [event.call_id for event in agent.run.select(ToolCalled)] == ["c1", "c2", "c3"]
    assert agent.run.events == agent.read().events


@pytest.mark.parametrize("through", ["tool", "agent"])
def test_an_agent_inside_of_another_is_its_child(through: str) -> None:
    agent = Agent()

    with agent.agent() as desk:
        agent.model(desk, calls=["c1"])
        around = agent.tool_span("c1", desk) if through == "tool" else desk
        with agent.agent("clerk", around) as clerk:
            agent.model(clerk, calls=["k1"], asked="find c1")
            agent.tool("k1", clerk)
            agent.model(clerk, "it is packed", asked="find c1", results=[("k1", "packed")])
        if through == "tool":
            around.set_attribute("gen_ai.tool.call.result", "it is packed")
            around.end()
        agent.model(desk, "packed", results=[("c1", "it is packed")])

    started, ended = agent.run.select(ChildStarted, ChildEnded)
    assert started.step_id == ended.step_id
    assert ended.text == "it is packed"
    assert started.where.depth == 1
    assert [turn.text for turn in agent.run.turns] == ["packed"]
    assert agent.run.events == agent.read().events


def test_each_conversation_is_a_thread_with_its_turns() -> None:
    agent = Agent()

    for asked in ("where?", "and now?"):
        for name in ("ann", "bob"):
            agent.turn(f"{asked} ({name})", **{"conversation.id": name})
    agent.turn()
    agent.turn()

    assert agent.run.threads == ("ann", "bob", "t1", "t2")
    assert [turn.query for turn in agent.run.turns] == [
        *("where? (ann)", "where? (bob)", "and now? (ann)", "and now? (bob)"),
        *("where?", "where?"),
    ]
    assert all(turn.outcome == "success" for turn in agent.run.turns)
    read = {run.threads[0]: run for run in runs_from_spans(agent.exporter.get_finished_spans())}
    for name in ("ann", "bob"):
        mine = [event for event in agent.run.events if event.where.thread_id == name]
        assert mine == list(read[name].events)


def test_what_a_span_says_later_counts_for_the_calls_after() -> None:
    agent = Agent()
    with agent.agent() as desk:
        node = agent.tracer.start_span("node", set_span_in_context(desk))
        agent.model(node, calls=["c1"])
        desk.set_attribute("gen_ai.conversation.id", "ann")
        agent.model(node, "packed", results=[("c1", "packed")])
        agent.model(desk, "packed", results=[("c1", "packed")])
        node.end()

    assert [event.where.thread_id for event in agent.run.select(ModelCalled)] == ["t1", "ann", "ann"]


def test_a_call_that_waits_belongs_to_the_conversation_that_is_known_when_it_is_written() -> None:
    agent = Agent()
    outer = agent.tracer.start_span("outer")
    with agent.agent(inside=outer, **{"conversation.id": "ann"}) as desk:
        agent.model(desk, calls=["c1"])
        agent.tool("c1", desk, output=None)
        outer.set_attribute("gen_ai.conversation.id", "bob")
        agent.model(desk, "packed", results=[("c1", "packed")])
    outer.end()

    calls = agent.run.select(ModelCalled, ToolCalled)
    assert [(event.kind, event.where.thread_id) for event in calls] == [
        ("model_called", "ann"),
        ("tool_called", "bob"),
        ("model_called", "bob"),
    ]


def test_a_call_may_name_its_conversation_where_nothing_around_it_does() -> None:
    agent = Agent()
    with agent.agent() as desk:
        agent.model(desk, calls=["c1"])
        agent.model(desk, "packed", **{"conversation.id": "ann"})

    assert [event.where.thread_id for event in agent.run.select(ModelCalled)] == ["t1", "ann"]


def test_calls_inside_of_a_span_that_becomes_a_tool_wait_for_its_end() -> None:
    agent = Agent()
    with agent.agent() as desk:
        agent.model(desk, calls=["c1"])
        late = agent.tracer.start_span("late", set_span_in_context(desk))
        agent.model(late, "one", asked="find c1")
        before = len(agent.run.select(ModelCalled))
        late.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"})
        agent.model(late, "two", asked="find c1")
        meanwhile = len(agent.run.select(ModelCalled))
        late.end()

    assert (before, meanwhile, len(agent.run.select(ModelCalled))) == (2, 2, 3)


def test_model_calls_without_an_agent_around_them_make_turns() -> None:
    agent = Agent()

    agent.model(calls=["c1"], **{"conversation.id": "ann"})
    agent.model(said="packed", results=[("c1", "packed")], **{"conversation.id": "ann"})

    assert [(turn.query, turn.text, turn.outcome) for turn in agent.run.turns] == [("where?", "packed", "success")]
    assert len(agent.run.select(ToolCalled)) == 1


def test_a_given_run_is_filled_beside_what_it_has() -> None:
    run = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
    agent = Agent(run=run)

    agent.turn()

    assert agent.run is run
    assert run.threads == ("t1", "t2")
    assert [turn.text for turn in run.turns] == ["Hello.", "packed"]
    assert run.log("t2")[-1]["role"] == "assistant"


def test_what_is_open_is_written_when_the_provider_shuts_down() -> None:
    agent = Agent()
    desk = agent.start("invoke_agent", "desk", **{"agent.name": "desk"})
    slow = agent.tool_span("c0", desk)
    agent.tool("c1", desk)
    before = len(agent.run.select(ToolCalled))

    agent.provider.shutdown()
    slow.end()

    assert before == 0
    assert [event.call_id for event in agent.run.select(ToolCalled)] == ["c1"]


def test_log_records_of_a_real_provider_are_messages_of_their_span() -> None:
    from opentelemetry._logs import LogRecord
    from opentelemetry.sdk._logs import LoggerProvider

    agent = Agent()
    logs = LoggerProvider()
    logs.add_log_record_processor(agent.watching)
    span = agent.start("chat", **{"request.model": "m"})
    for name, body in (
        ("gen_ai.user.message", {"content": "hi"}),
        ("gen_ai.choice", {"index": 0, "message": {"content": "Hello."}}),
    ):
        record = LogRecord(event_name=name, body=body, context=set_span_in_context(span))
        logs.get_logger("desk").emit(record)
    span.end()

    assert [(turn.query, turn.text) for turn in agent.run.turns] == [("hi", "Hello.")]


def test_a_secret_is_in_no_event() -> None:
    agent = Agent()

    agent.turn("my key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")

    assert "abcdefghijklmnop" not in str(agent.run.events)


class _Broken:
    """An unreadable span."""

    parent = None
    start_time = end_time = 1
    name = "broken"

    def __init__(self, context: Any) -> None:
        self.context = context

    def get_span_context(self) -> Any:
        return self.context

    @property
    def attributes(self) -> Any:
        raise RuntimeError("no attributes, sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")


def test_an_error_of_our_own_is_reported_and_the_agent_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent()
    broken = agent.tracer.start_span("broken")
    agent.watching.on_end(_Broken(broken.get_span_context()))
    agent.watching.on_end(object())

    agent.turn()

    errors = agent.run.select(ErrorRaised)
    assert [event.error_kind for event in errors] == ["watch_failed"] * 2
    assert "RuntimeError" in errors[0].message
    assert "abcdefghijklmnop" not in str(agent.run.events) + caplog.text
    assert "could not be read" in caplog.text
    assert [turn.text for turn in agent.run.turns if turn.text] == ["packed"]


def test_threads_that_end_spans_at_once_lose_none() -> None:
    agent = Agent()

    def work() -> None:
        for _ in range(20):
            agent.turn()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    agent.provider.force_flush()
    assert len(agent.run.threads) == 80
    assert len(agent.run.select(TurnCompleted)) == 80
    assert not agent.run.select(ErrorRaised)


# Rules and a regulator


def test_rules_judge_after_the_fact_and_the_rows_say_so(tmp_path: Path) -> None:
    rules = nn.RuleBook()
    rules.when('tool.name == "lookup"', id="no_lookups", guidance="Ask a person.")
    agent = Agent(rules=rules)

    agent.turn()

    frame = agent.run.to_frame("ledger")
    assert frame[["hook", "action", "enforced"]].to_numpy().tolist() == [
        ["after_model_call", "allow", False],
        ["before_tool_call", "deny", False],
        ["after_model_call", "allow", False],
    ]
    assert [event.status for event in agent.run.select(ToolCalled)] == ["ok"]
    kinds = [event.kind for event in agent.run.events]
    assert kinds.index("tool_called") == kinds.index("steering_decided", kinds.index("items_appended", 4)) + 1
    loaded = load_run(agent.run.save(tmp_path / "run.jsonl.gz"))
    assert loaded == agent.run
    assert {event.enforced for event in loaded.select(SteeringDecided)} == {False}


def test_rules_are_read_anew_at_every_call_and_know_the_calls_before() -> None:
    rules = nn.RuleBook()
    agent = Agent(rules=rules)
    with agent.agent() as desk:
        agent.tool("c1", desk)
        rules.at_most(1, "lookup", id="once")
        agent.tool("c2", desk)

    assert [event.action for event in agent.run.select(SteeringDecided)] == ["allow", "deny"]


def test_a_rule_knows_where_values_came_from() -> None:
    rules = nn.RuleBook()
    rules.only_from_user("lookup", "of")
    agent = Agent(rules=rules)
    with agent.agent() as desk:
        agent.model(desk, calls=["order-c1"], asked="where is order-c1?")
        agent.tool("order-c1", desk)
        agent.model(desk, calls=["made-up-7"], asked="where is order-c1?", results=[("order-c1", "packed")])
        agent.tool("made-up-7", desk)

    decided = [event.action for event in agent.run.select(SteeringDecided) if event.hook == "before_tool_call"]
    assert decided == ["allow", "deny"]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1), KeyError("x")])
def test_a_rule_that_fails_denies_in_its_row_and_never_reaches_the_agent(error: BaseException) -> None:
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    def fails(call: Any) -> None:
        raise error

    agent = Agent(rules=rules)

    agent.turn()

    judged = [event for event in agent.run.events if event.kind in ("steering_decided", "error_raised")]
    assert any(event.kind == "error_raised" or event.action == "deny" for event in judged)
    assert [turn.text for turn in agent.run.turns] == ["packed"]


def test_a_rule_that_has_to_wait_is_left_out_and_named() -> None:
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    async def slow(call: Any) -> Any:
        return nn.deny("late")

    rules.when('tool.name == "lookup"', id="no_lookups", guidance="Ask a person.")
    agent = Agent(rules=rules)

    agent.turn()

    assert agent.run.meta["rules_skipped"] == ["slow"]
    assert [e.rule_ids for e in agent.run.select(SteeringDecided) if e.action == "deny"] == [("no_lookups",)]


def test_a_rule_that_makes_spans_of_its_own_does_not_wait_for_itself() -> None:
    rules = nn.RuleBook()
    agent = Agent(rules=rules)

    @rules.rule(on="before_tool_call")
    def traced(call: Any) -> None:
        agent.tracer.start_span("inside a rule").end()

    agent.turn()

    assert [turn.text for turn in agent.run.turns] == ["packed"]


def test_a_regulator_observes_and_stops_nothing() -> None:
    agent = Agent(regulator=nn.Regulator.for_user("ann"))

    with agent.agent() as desk:
        for _ in range(8):
            agent.tool("c1", desk)
        agent.model(desk, "packed")

    decided = agent.run.select(RegulatorDecided)
    assert decided
    assert {event.enforced for event in decided} == {False}
    assert any(event.decision["kind"] == "circuit_break" for event in decided)
    assert set(agent.run.to_frame("decisions").enforced) == {False}
    assert [(turn.text, turn.outcome) for turn in agent.run.turns] == [("packed", "success")]


@pytest.mark.parametrize(
    ("given", "code"),
    [({"run": {}}, "INVALID_RUN"), ({"rules": [3]}, "INVALID_RULE"), ({"regulator": "x"}, "INVALID_REGULATION")],
)
def test_what_cannot_be_watched_with_is_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.watch(**given)

    assert caught.value.code == code


# Any agent


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_any_agent_watched_gives_the_run_of_its_finished_spans(seed: int, turns: int) -> None:
    """Turns with parallel calls that end in any order, results in either place, agents within tools and agents."""
    chance = random.Random(seed)
    agent = Agent()
    numbers = iter(range(10_000))

    def work(desk: Any, asked: str, depth: int) -> None:
        results: list[tuple[str, str]] = []
        for _ in range(chance.randint(0, 3)):
            calls = [f"c{next(numbers)}" for _ in range(chance.randint(1, 3))]
            agent.model(desk, calls=calls, asked=asked, results=results)
            together = chance.random() < 0.5
            spans = []
            for call_id in calls:
                span = agent.tool_span(call_id, desk)
                if depth < 2 and chance.random() < 0.3:
                    with agent.agent(f"clerk{depth}", span) as clerk:
                        work(clerk, f"find {call_id}", depth + 1)
                if chance.random() < 0.7:
                    span.set_attribute("gen_ai.tool.call.result", f"{call_id} is packed")
                if together:
                    spans.append(span)
                else:
                    span.end()
                results.append((call_id, f"{call_id} is packed"))
            chance.shuffle(spans)
            for span in spans:
                span.end()
            if depth < 2 and chance.random() < 0.2:
                with agent.agent(f"helper{depth}", desk) as helper:
                    work(helper, "help", depth + 1)
            if chance.random() < 0.2:
                desk.set_attribute("note", f"after c{next(numbers)}")
        agent.model(desk, "done", asked=asked, results=results)

    for number in range(turns):
        with agent.agent(**{"conversation.id": "ann"}) as desk:
            work(desk, f"question {number}", 0)

    assert agent.run.events == agent.read().events
