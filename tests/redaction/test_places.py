"""One secret of each shape is planted where text comes in, and looked for in everything that is written or shown."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
from matplotlib.text import Text

import noetic_nb as nn
from noetic_nb import lab, plots
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.events import (
    ChildEnded,
    ErrorRaised,
    ItemsAppended,
    LayerStateChanged,
    MemoryTraceSpan,
    ModelCalled,
    OfferedTool,
    RegulatorDecided,
    RegulatorSaw,
    RequestPrepared,
    RuleChanged,
    SteeringDecided,
    StepEnded,
    StepStarted,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.items import assistant_message, input_message
from noetic_nb.items._origins import Origin
from noetic_nb.models import CallTool, Fault, OpenAIModel, ScriptedModel
from noetic_nb.redact import safe_logger
from noetic_nb.runs import Run, load_run
from noetic_nb.runs._tables import TABLES
from noetic_nb.steering import save_rules
from noetic_nb.storage import SQLiteStorage
from tests.matrix import sampled
from tests.redaction.shapes import SHAPES, made

pytestmark = pytest.mark.matrix  # a sample of the shapes of secrets in each place; test_redaction.py has all of them

WHERE = Where("t1", "e1", 1)


def planted(text: str, secret: str) -> Run:
    """Return a run in which a text is in every field that takes one."""
    words = tuple(sorted(re.findall(r"[^\W_]+", secret.lower())))
    args = {"note": text, "deep": [json.dumps({"note": text})], text: 1, "password": secret}
    drift = {"kind": "scope_drift_warn", "drift_tokens": words, "drift_score": 0.9, "task_tokens": words}
    learned = {"user_id": "u", "topic_cluster": "+".join(words), "pattern_name": text, "example_corrections": [text]}
    run = Run(meta={"source": "recorded", "config": {"prompt": text, "api_key": secret}})
    for event in (
        TurnStarted(WHERE, 0.0, "u1", 0, 0, text),
        MemoryTraceSpan(
            WHERE, 1.0, "notes", "store", 0.5, "error", error=text, attributes={"why": text}, error_stack=text
        ),
        LayerStateChanged(WHERE, 2.0, "notes", "store", {"text": text, "token": secret}),
        StepStarted(WHERE, 2.0, "ask", "llm", "/ask#1"),
        ItemsAppended(WHERE, 2.0, 0, (input_message(text, item_id="i1"),), "user"),
        RequestPrepared(
            WHERE,
            2.0,
            "ask",
            "m",
            text,
            (OfferedTool("look", text, {"default": text}),),
            {"stop": text},
            {"title": text},
            "truncate",
            None,
            (),
            "estimate",
        ),
        ViewAssembled(
            WHERE, 2.0, 1, (0, 1), (), (), (("notes", input_message(text, item_id="i2")),), 900, 0, 9, 0, 9, 9, 800, 1
        ),
        ModelCalled(WHERE, 2.5, 1, "m", "agent", 1.0, "ok", (assistant_message(text, item_id="i3"),), error=text),
        ToolCalled(WHERE, 3.0, "look", "c1", args, text, 1.0, "error", text),
        SteeringDecided(WHERE, 4.0, "steering", "before_tool_call", "look", args, "deny", text, ("r1",), 0.1),
        RegulatorSaw(WHERE, 5.0, "regulation", {"kind": "user_correction", "text": text}),
        RegulatorDecided(WHERE, 6.0, "regulation", "turn", drift, text),
        RegulatorDecided(WHERE, 6.0, "regulation", "turn", {"kind": "procedural_warning", "patterns": [learned]}),
        RuleChanged(WHERE, 7.0, "r1", "add", 1, None, text),
        ErrorRaised(WHERE, 8.0, "tool_failed", text),
        StepEnded(WHERE, 9.0, "ask", "llm", "/ask#1", 1.0, "error", text),
        ChildEnded(WHERE, 9.0, "e0", "ask", "failure", 1.0, text, (), 1, 1, 0.0),
        TurnCompleted(WHERE, 10.0, "u1", "failure", 10.0, text, 1, 1, 0.0, 1, 1, {"kind": "stop", "why": text}),
    ):
        run.append(event)
    return run


@pytest.fixture(params=sampled(SHAPES, 11))
def found(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return a text of each shape, and its secret."""
    return made(request.param)


def assert_absent(secret: str, shown: str) -> None:
    """Assert that a secret is nowhere, nor is any stretch of it that would be of use."""
    forms = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], secret.replace("/", "\\/")}
    longest = max(re.findall(r"[A-Za-z0-9]+", secret), key=len)
    for form in (*forms, *([longest, longest.lower()] if len(longest) >= 9 else [])):
        assert form not in shown


def test_run_files_and_what_is_loaded(found: tuple[str, str], tmp_path: Path) -> None:
    text, secret = found

    path = planted(text, secret).save(tmp_path / "run.jsonl.gz")

    assert_absent(secret, gzip.decompress(path.read_bytes()).decode())
    assert_absent(secret, str(list(load_run(path).events)))


def test_tables_and_html(found: tuple[str, str]) -> None:
    text, secret = found
    run = planted(text, secret)

    for name in TABLES:
        frame = run.to_frame(name)
        for row in frame.itertuples():
            assert_absent(secret, str(tuple(row)))
        assert_absent(secret, frame.to_json(default_handler=str))
    assert_absent(secret, run.caching().to_json(default_handler=str))
    assert_absent(secret, run._repr_html_())
    assert_absent(secret, repr(run))


def test_views(found: tuple[str, str]) -> None:
    views = pytest.importorskip("tests.widgets.views")
    text, secret = found
    run = planted(text, secret)

    for name in views.RUN_VIEWS:
        with name(run) as view:
            assert_absent(secret, repr(view))
            assert_absent(secret, view.to_html())
            assert_absent(secret, json.dumps(view.get_state(), default=str))
            assert_absent(secret, json.dumps(view._repr_mimebundle_(), default=str))
            assert_absent(secret, view.to_frame().to_json(default_handler=str))
            for request in REQUESTS:
                try:
                    answer = view.reading.answer(request)
                except NoeticConfigError:
                    continue  # another view answers this
                assert_absent(secret, json.dumps(answer, default=str))


def test_workbench(found: tuple[str, str]) -> None:
    bench_of = pytest.importorskip("noetic_nb.widgets").Workbench
    text, secret = found
    rules = nn.RuleBook()
    rules.when("true", id="r1", tools="look", guidance="Never.")
    run, sent = planted(text, secret), list[Any]()
    with bench_of(run, rules=rules, panels=["ledger", "transcript", "rules", "memory"]) as bench:
        bench.send = lambda content, buffers=None: sent.append(content)
        for number, name in enumerate(("ledger", "transcript", "allocation", "trends", "timeline", "memory", "rules")):
            bench._message_received(bench, {"type": "get", "id": number, "request": {"do": "panel", "panel": name}}, [])
        bench.panels = [name for name, *_ in bench.snapshot["parts"]["titles"]]
        for event in planted(text, secret).events:
            run.append(event)
        decision = next(seq for seq, event in enumerate(run.events) if isinstance(event, SteeringDecided))
        bench.selection.select(thread_id="t1", turn=1, decision=decision)
        for request in (
            {"what": "talk", "before": 9}, {"what": "cause", "decision": decision},
            {"what": "without", "decision": decision, "rule": 0}, {"do": "edit", "decision": decision, "rule": 0},
        ):  # fmt: skip
            answer = bench._answer(request)
            assert "fault" not in answer
            sent.append(answer)
        told = {name for message in sent if message.get("type") == "panels" for name, _ in message["news"]}
        assert told >= {"", "ledger", "transcript", "trends", "timeline", "memory", "rules"}
        assert_absent(secret, json.dumps(sent, default=str))
        assert_absent(secret, bench.to_html() + bench.to_text())


async def test_conversation_of_a_workbench(found: tuple[str, str]) -> None:
    bench_of = pytest.importorskip("noetic_nb.widgets").Workbench
    text, secret = found
    model = ScriptedModel([text, Fault("refusal", message=text)])
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m")), model=model)
    sent = list[Any]()
    with bench_of(harness) as bench:
        bench.send = lambda content, buffers=None: sent.append(content)
        await bench.say(text)
        chat = bench.reading.conversation
        await asyncio.gather(chat._shown(chat.say(text)), return_exceptions=True)
        with pytest.raises(NoeticConfigError) as refused:
            await bench.correct(text)
        chat.notify("bad", str(refused.value))
        approval = pytest.importorskip("noetic_nb.widgets._approval")
        args = {"note": text, "password": secret, "more": "x" * 900}
        words = approval.question_words("look", args, f"May {text} pass?", [text], {text: Origin("tool", text)})
        bench.reading.questions.ask(words)
        assert bench.reading.parts["questions"]
        assert_absent(secret, json.dumps([sent, bench.snapshot], default=str))
        assert_absent(secret, bench.to_html() + bench.to_text())


REQUESTS: Any = [
    *({"what": what, "at": 0} for what in ("call", "detail", "origins", "outcome", "items")),
    *({"what": what, "at": 0, "key": key} for what in ("text", "budget") for key in range(8)),
    {"what": "lines"},
    {"what": "window"},
    {"what": "list"},
    {"what": "problem", "at": 0},
    *({"what": "span", "at": at} for at in range(12)),
    {"what": "thread", "thread": 0},
    {"what": "turns", "thread": 0, "at": 0},
    *({"what": what, "layer": 0, "at": 0} for what in ("writes", "change", "flows")),
]


def test_figures(found: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    text, secret = found
    run = planted(text, secret)
    drawn: list[str] = []
    set_text = Text.set_text
    # Every text that is ever written in a figure, whoever holds it and whatever replaces it.
    monkeypatch.setattr(Text, "set_text", lambda artist, s: (drawn.append(str(s)), set_text(artist, s))[1])
    table = pandas.DataFrame({"name": [text, "b"], text: [1.0, 2.0], "y": [1.0, 2.0], "low": 0.5, "high": 2.5})
    table.attrs["space"] = ["name"]

    for draw in (
        lambda: plots.allocation(run), lambda: plots.trends(run), lambda: plots.ledger(run), lambda: plots.timeline(run),
        lambda: plots.sweep(table, text, "y"), lambda: plots.pareto(table, text, "y", label="name"),
        lambda: plots.memory_bench(table.assign(layers=text, recall=0.5, tokens=[1, 2])),
        lambda: plots.economics(table.assign(policy=text, domain="all", threshold=1.0, good_lost=0.1, tokens_saved=1.0)),
    ):  # fmt: skip
        drawn.clear()
        draw()
        assert any(drawn)
        assert_absent(secret, "\n".join(drawn))


def test_experiments(found: tuple[str, str], tmp_path: Path) -> None:
    text, secret = found
    run = planted(text, secret)
    rules = nn.RuleBook()
    rules.when("true", id="all", tools="look", guidance=f"Never: {text}")

    @rules.rule(on="after_model_call")
    def fails(call: Any) -> None:
        raise ValueError(call.text)

    changed = nn.lab.what_if_cached(run, last=["notes"])
    assert set(changed.part) == {"tools", "system", "layer:notes", "history"}
    assert_absent(secret, changed.to_json(default_handler=str))
    table = nn.lab.backtest(rules, run)
    assert len(table) == 2
    assert_absent(secret, table.to_json(default_handler=str))
    other = Run(events=run.events[:-2])
    for comparison in (nn.compare(run, other), nn.compare(run, load_run(run.save(tmp_path / "run.jsonl.gz")))):
        assert_absent(secret, comparison.to_frame().to_json(default_handler=str))
        assert_absent(secret, repr(comparison) + comparison._repr_html_())
    assert [row[1:] for row in comparison.differences if row[1] != "tool call"] == []
    evaluation = nn.lab.evaluate(rules, run, outcome=lambda run: True)
    assert_absent(secret, repr(evaluation) + evaluation.to_frame().to_json())


async def test_losses_and_near_misses(found: tuple[str, str]) -> None:
    text, secret = found
    policy = nn.ProjectionPolicy(token_budget=90, response_reserve=0, overflow="truncate")
    notes = nn.semantic_recall(top_k=1, skip_recent=0, budget={"min": 20, "max": 20})
    config = nn.AgentConfig(name="d", step=nn.react(model="scripted"), memory=[notes], projection=policy)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * 3))
    run = nn.record(harness)
    for said in (f"Order A17-B: {text}", f"Again: {text}", "What was my order?"):
        await harness.execute(said, thread_id="t")

    losses = lab.lost(run, -1)
    misses = lab.near_misses(run, -1)

    assert "A17-B" in {loss.fact for loss in losses}
    assert len(misses) > 1
    assert_absent(secret, repr(losses) + losses.to_frame().to_json() + repr(losses.retellings))
    assert_absent(secret, misses.to_json())


async def test_approval_forms(found: tuple[str, str]) -> None:
    approval = pytest.importorskip("noetic_nb.widgets._approval")
    text, secret = found

    args = {"note": text, "password": secret, "more": "x" * 900}
    words = approval.question_words("look", args, f"May {text} pass?", [text], {text: Origin("tool", text)})
    form = approval.Question(words)
    assert_absent(secret, f"{form.words} {form.to_html()}")
    form.settle(f"no, {text}")

    assert_absent(secret, f"{form.outcome} {form.to_html()}")


def test_spans(found: tuple[str, str]) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from noetic_nb.interop import OTelExporter

    text, secret = found
    provider, kept = sdk.TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    exporter = OTelExporter("desk", tracer_provider=provider, capture_content=True)

    for event in planted(text, secret).events:
        exporter.emit(event)

    shown = " ".join(span.to_json() for span in kept.get_finished_spans())
    assert shown.count("[redacted]") > 5
    assert_absent(secret, shown)


@pytest.mark.parametrize(
    "make",
    [
        lambda text, given: NoeticError("tool_failed", text, given=given, hint=text, raw=text, parts={"a": [text]}),
        lambda text, given: NoeticError("steering_denied", "No.", guidance=text),
        lambda text, given: NoeticConfigError("WRONG", text, given=given, hint=text, raw=text),
        lambda text, given: ItemValidationError(text, given=given),
    ],
)
def test_errors(make: Callable[[str, Any], Exception], found: tuple[str, str]) -> None:
    text, secret = found

    for given in (
        text,
        f"{'x' * 70} {text} {'y' * 70}",
        {"password": secret},
        [text],
        Exception(f"{'x' * 150} {text}"),
    ):
        error = make(text, given)

        assert_absent(secret, f"{error} {error!r} {error.args}")
        assert_absent(
            secret, str({k: v for k, v in vars(error).items() if not isinstance(v, Exception)} | {"given": None})
        )
        if not isinstance(given, Exception):
            assert_absent(secret, str(getattr(error, "given", "")))
        assert_absent(secret, "".join(traceback.format_exception(error)))


def test_what_is_no_secret_is_kept_on_an_error_as_it_is() -> None:
    given = {"a": [1, 2]}

    assert NoeticError("tool_failed", "No.", given=given).given is given


def test_log_records(found: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    text, secret = found
    log = safe_logger("noetic_nb.test")

    with caplog.at_level(logging.DEBUG, "noetic_nb.test"):
        log.warning("A rule failed: %s", text)
        try:
            raise ValueError(text)
        except ValueError:
            log.exception("A listener failed.")

    assert_absent(secret, caplog.text)
    assert_absent(secret, " ".join(str(vars(record)) for record in caplog.records))
    assert "ValueError" in caplog.text


def test_every_logger_of_the_library_is_safe() -> None:
    package = Path(nn.__file__).parent

    direct = [p.name for p in package.rglob("*.py") if "getLogger(" in p.read_text() and p.name != "_redaction.py"]

    assert direct == []


def test_reprs(found: tuple[str, str]) -> None:
    text, secret = found

    assert_absent(secret, repr(CallTool("look", note=text, password=secret)))
    assert_absent(secret, repr(CallTool.raw("look", json.dumps({"note": text}))))
    assert_absent(secret, repr(Fault("refusal", message=text)))
    assert_absent(secret, repr(ScriptedModel({text: ["hi"]})))
    if "://" not in text:
        pytest.importorskip("openai")
        assert_absent(
            secret,
            repr(OpenAIModel(text, base_url=f"https://me:{secret[:8]}@example.org/v1?key=x", api_key="k-123456")),
        )


# Who may read the files


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let everybody read what is made without care."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
async def test_files_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    planted("hi", "hi").save(tmp_path / "run.jsonl.gz")
    save_rules((), tmp_path / "rules.json")
    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        await storage.set("a", 1)
        modes = {name: os.stat(tmp_path / name).st_mode & 0o777 for name in sorted(os.listdir(tmp_path))}

    assert set(modes) >= {"desk.db", "desk.db-wal", "desk.db-shm", "run.jsonl.gz", "rules.json"}
    assert set(modes.values()) == {0o600}


@pytest.mark.usefixtures("open_umask")
def test_the_draft_of_a_run_file_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        seen.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    planted("hi", "hi").save(tmp_path / "run.jsonl.gz")

    assert seen == [0o600]


def test_a_profile_of_times(found: tuple[str, str]) -> None:
    text, secret = found
    where = Where("t", "e", 1)
    called = ModelCalled(where, 9.0, 1, text, "agent", 4.0, "ok")
    ended = TurnCompleted(where, 10.0, "u1", "success", 10.0, "", 0, 0, 0.0, 1, 0)

    table = nn.lab.profile(Run(events=[called, ended]))

    assert table["part"].tolist()[0] == "model"
    assert_absent(secret, table.to_json())
