"""Operations other than calls: plans, retrievals, memory, guardrails and evaluators; watched and imported alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import noetic_nb as nn
from noetic_nb.events import MemoryTraceSpan, ModelCalled, QualityGiven, SteeringDecided, StepEnded
from noetic_nb.interop import runs_from_spans
from noetic_nb.runs import Run


class Traced:
    """Makes spans for a run that is watched and for one that is imported afterwards."""

    def __init__(self) -> None:
        self.watching, self.exporter, provider = nn.watch(), InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(self.watching)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("garden")

    @contextmanager
    def span(self, name: str, **about: Any) -> Iterator[Any]:
        known = {key.replace("__", "."): value for key, value in about.items()}
        with self.tracer.start_as_current_span(name, attributes=known) as found:
            yield found

    def made(self, name: str, **about: Any) -> None:
        with self.span(name, **about):
            pass

    def chat(self, asked: str, said: str) -> None:
        def message(role: str, text: str) -> str:
            return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])

        given = {"gen_ai.input.messages": message("user", asked), "gen_ai.output.messages": message("assistant", said)}
        usage = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 2}
        self.made("chat m", gen_ai__operation__name="chat", gen_ai__request__model="m", **given, **usage)

    def run(self) -> Run:
        """Return the imported run, which equals the watched one except for its ids."""
        self.watching.shutdown()
        (read,) = runs_from_spans(list(self.exporter.get_finished_spans()))
        assert [event.kind for event in self.watching.run.events] == [event.kind for event in read.events]
        return read


def test_plans_retrievals_and_stores_stand_beside_the_calls() -> None:
    traced = Traced()
    with traced.span("invoke_agent", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="gardener"):
        traced.made("create", gen_ai__operation__name="create_memory_store", gen_ai__memory__store__id="beds")
        with traced.span("plan", gen_ai__operation__name="plan", gen_ai__agent__name="gardener"):
            traced.chat("What now?", "First look.")
        documents = json.dumps([{"id": "d1", "score": 0.5}, {"id": "d2"}])
        source = {"gen_ai.data_source.id": "books", "gen_ai.retrieval.query.text": "dry beds"}
        traced.made("retrieval", gen_ai__operation__name="retrieval", gen_ai__retrieval__documents=documents, **source)
        traced.made("search", gen_ai__operation__name="search_memory", gen_ai__memory__store__id="beds")
        traced.chat("What now?", "Bed 1.")
        traced.made("drop", gen_ai__operation__name="delete_memory_store", gen_ai__memory__store__id="beds")

    run = traced.run()

    assert [(each.layer_id, each.hook, each.item_count) for each in run.select(MemoryTraceSpan)] == [
        ("beds", "init", None),
        ("books", "recall", 2),
        ("beds", "recall", None),
        ("beds", "dispose", None),
    ]
    assert run.select(MemoryTraceSpan)[1].attributes["gen_ai.retrieval.query.text"] == "dry beds"
    (plan,) = run.select(StepEnded)
    assert (plan.step_id, plan.step_kind, plan.path, plan.status) == ("gardener", "plan", "/plan#1", "ok")
    assert [turn.text for turn in run.turns] == ["Bed 1."]
    assert run.meta["unmapped"] == []


def test_a_guardrail_before_a_question_belongs_to_its_turn() -> None:
    traced = Traced()
    with traced.span("chain", openinference__span__kind="CHAIN"):
        with traced.span("no poison", openinference__span__kind="GUARDRAIL", output__value="FAIL: poison") as found:
            traced.chat("Is this safe?", "FAIL")
            found.set_attribute("guardrail.passed", False)
        traced.chat("Which bed?", "Bed 1.")
        traced.made("polite", openinference__span__kind="GUARDRAIL", output__value='{"flagged": false}')
        traced.made("odd", openinference__span__kind="GUARDRAIL")
        graded = '{"score": 0.75, "label": "good", "explanation": "Short."}'
        traced.made("relevance", openinference__span__kind="EVALUATOR", output__value=graded)
        traced.made("length", openinference__span__kind="EVALUATOR", output__value="80", eval__score=80.0)
        named = {"evaluations.0.evaluation.name": "tone", "evaluations.0.evaluation.score": 1}
        traced.made("many", openinference__span__kind="EVALUATOR", **named)

    run = traced.run()

    assert [turn.query for turn in run.turns] == ["Which bed?"]
    assert [(each.purpose, each.status) for each in run.select(ModelCalled)] == [("judge", "ok"), ("agent", "ok")]
    decisions = run.select(SteeringDecided)
    assert [(each.rule_ids, each.action, each.guidance, each.outcome) for each in decisions] == [
        (("no poison",), "deny", "FAIL: poison", None),
        (("polite",), "allow", None, None),
        (("odd",), "allow", None, "unknown"),
    ]
    assert run.to_frame("ledger")["action"].tolist() == ["deny", "allow", "allow"]
    assert [(each.source, each.quality) for each in run.select(QualityGiven)] == [("relevance", 0.75), ("tone", 1.0)]
    assert [entry["what"] for entry in run.meta["unmapped"]] == ["an evaluator without a score from 0 to 1"]


def test_a_question_that_was_stopped_is_a_turn_with_its_decision() -> None:
    traced = Traced()
    traced.chat("Hello.", "Hi.")
    with traced.span("chain", openinference__span__kind="CHAIN", session__id="s"):
        traced.made("no poison", openinference__span__kind="GUARDRAIL", guardrail__triggered=True)
        traced.made("look", openinference__span__kind="TOOL", tool__name="look", output__value="dry")

    runs = runs_from_spans(list(traced.exporter.get_finished_spans()))

    assert [[each.action for each in run.select(SteeringDecided)] for run in runs] == [[], ["deny"]]
    assert [len(run.turns) for run in runs] == [1, 1]
