"""Secrets in names of threads and agents, and in what an error was raised from, are in no view, table or traceback."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

import pytest
from msgspec.structs import replace

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError, innermost
from noetic_nb.redact import safe_logger
from noetic_nb.runs import Run
from noetic_nb.runs._tables import TABLES
from noetic_nb.steering import SteeringRule
from tests.redaction.shapes import made
from tests.redaction.test_places import REQUESTS, assert_absent, planted

TEXT, SECRET = made("openai-project")
NAME = f"chat with {TEXT}"


def named() -> Run:
    """Return a run whose thread is named after a secret."""
    run = Run(meta={"source": "recorded"})
    for event in planted("hello", "hunter2-x9").events:
        run.append(replace(event, where=replace(event.where, thread_id=NAME, execution_id=f"e-{TEXT}")))
    return run


def test_tables_hold_no_name_that_is_a_secret() -> None:
    run = named()

    for name in TABLES:
        assert_absent(SECRET, run.to_frame(name).to_json(default_handler=str))
    assert_absent(SECRET, run._repr_html_() + repr(run))


def test_tables_of_the_lab_hold_no_name_that_is_a_secret() -> None:
    run = named()
    for event in [event for event in run.events if event.kind == "tool_called"]:
        run.append(replace(event, name=f"find_{TEXT}", status="unknown"))
    rules = [SteeringRule(id="none", applies_to="before_tool_call", when="true")]

    assert_absent(SECRET, lab.backtest(rules, run).to_json(default_handler=str))
    assert_absent(SECRET, lab.compare(run, planted("hi", "hunter2-x9")).to_frame().to_json(default_handler=str))


def test_the_first_failure_shows_no_name_that_is_a_secret() -> None:
    found = lab.FirstFailure(1, 2, None, "no answer", "the turn ended", NAME)

    assert_absent(SECRET, f"{found} {[found]}")
    assert found.thread_id == NAME


def test_views_hold_no_name_that_is_a_secret() -> None:
    views = pytest.importorskip("tests.widgets.views")
    run = named()

    for kind in views.RUN_VIEWS:
        sent: list[Any] = []
        with kind(run) as view:
            view.send = lambda content, buffers=None, sent=sent: sent.append(content)
            view.selection.select(thread_id=NAME, turn=1)
            shown = view.selection.fields | {"thread_id": NAME.replace(SECRET, "[redacted]")}
            view._message_received(view, {"type": "select", "id": 1, **shown}, [])
            assert view.selection.thread_id == NAME  # the page knows it by another name
            for request in REQUESTS:
                try:
                    sent.append(view.reading.answer(request))
                except NoeticConfigError:
                    continue
            assert_absent(SECRET, json.dumps([sent, view.get_state()], default=str))
            assert_absent(SECRET, view.to_html() + view.to_text() + repr(view))
            assert_absent(SECRET, view.to_frame().to_json(default_handler=str))


async def test_an_agent_and_a_layer_that_are_named_after_a_secret() -> None:
    bench_of = pytest.importorskip("noetic_nb.widgets").Workbench
    config = nn.AgentConfig(
        name=f"desk {TEXT}", step=nn.react(model="m"), memory=[nn.working_memory(id=f"notes {TEXT}")]
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["hi"]))
    with bench_of(harness) as bench:
        await bench.say("hello")
        run = bench.run
        assert_absent(SECRET, json.dumps(bench.get_state(), default=str) + bench.to_html() + bench.to_text())
    assert_absent(SECRET, repr(harness) + repr(config))
    for name in TABLES:
        assert_absent(SECRET, run.to_frame(name).to_json(default_handler=str))


class Refused(Exception):
    """One of other code, which cannot be made without its argument and whose text is its own."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def __str__(self) -> str:
        return f"refused {self.key}"


CAUSES: dict[str, Exception] = {
    "text": ValueError(f"bad {TEXT}"),
    "an argument": KeyError(TEXT),
    "of the system": OSError(2, f"no {TEXT}"),
    "with a text of its own": Refused(TEXT),
    "unicode": UnicodeDecodeError("utf-8", TEXT.encode(), 0, 1, f"bad {TEXT}"),
    "a group": ExceptionGroup("some", [ValueError(TEXT), ExceptionGroup("more", [KeyError(TEXT)])]),
}


def raised(error: Exception, cause: Exception, *, is_named: bool) -> Exception:
    try:
        try:
            raise cause
        except Exception as exc:
            if is_named:
                raise error from exc
            raise error  # noqa: B904
    except Exception as exc:
        return exc


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: NoeticError("tool_failed", "It failed."),
        lambda: NoeticConfigError("WRONG", "It is wrong."),
        lambda: ItemValidationError("It is not an item."),
    ],
)
def test_the_traceback_of_an_error_shows_no_secret_of_its_cause(make: Any, cause: str, is_named: bool) -> None:
    root = CAUSES[cause]
    root.__cause__ = root.__context__ = None
    root.__notes__ = [f"with {TEXT}"]

    error = raised(make(), root, is_named=is_named)

    shown = "".join(traceback.format_exception(error))
    assert_absent(SECRET, shown)
    assert "[redacted]" in shown
    assert type(root).__name__ in shown
    assert "test_names_and_causes.py" in shown
    found = error.__cause__ if is_named else error.__context__
    assert isinstance(found, type(root)) or type(found).__name__ == type(root).__name__
    assert SECRET in str(root.args) + str(vars(root))  # what was raised is as it was


def test_a_deep_cause_is_clean_and_the_first_cause_is_the_very_one() -> None:
    root = ValueError(f"bad {TEXT}")
    middle = RuntimeError("in between")
    middle.__cause__ = root
    error = NoeticError("step_failed", "It failed.")
    error.__cause__ = middle

    assert_absent(SECRET, "".join(traceback.format_exception(error)))
    assert innermost(error) is root
    clean = NoeticError("step_failed", "It failed.")
    clean.__cause__ = plain = ValueError("plain")
    assert clean.__cause__ is plain


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError(TEXT), KeyError("b")
    one.__cause__, two.__cause__ = two, one
    error = NoeticError("tool_failed", "It failed.")
    error.__cause__ = one

    assert_absent(SECRET, "".join(traceback.format_exception(error)))


def test_log_records_show_no_secret_of_a_cause(caplog: pytest.LogCaptureFixture) -> None:
    log = safe_logger("noetic_nb.test")

    with caplog.at_level(logging.DEBUG, "noetic_nb.test"):
        try:
            raise RuntimeError("outer") from ValueError(TEXT)
        except RuntimeError:
            log.exception("It failed.", stack_info=True)

    assert_absent(SECRET, caplog.text + " ".join(str(vars(record)) for record in caplog.records))
