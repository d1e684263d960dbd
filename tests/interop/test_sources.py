"""Sources that contain other sources, have wrong names, or use another encoding are read, or give an error."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ModelCalled
from tests.interop import test_agent_sessions as sessions
from tests.interop.test_atif import call, step, trajectory
from tests.interop.test_inspect_events import ASKED, FIRST, SECOND, model, result, run_of

LOG = {"version": 2, "eval": {"task": "garden"}, "samples": [{"id": "q", "messages": [ASKED, SECOND], "events": []}]}
ASKING = {
    "id": "o",
    "traceId": "t",
    "type": "GENERATION",
    "startTime": "2026-01-01T00:00:00Z",
    "input": "Hi",
    "output": "Ho",
}
PAGE = {"data": [{"id": "t", "timestamp": "2026-01-01T00:00:00Z", "observations": [ASKING]}]}
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
ATIF = trajectory(step(1, "user", "Hi"), step(2, "agent", "Hello."))
ROLLOUT = [
    sessions.line("session_meta", id="r"),
    sessions.line("response_item", **sessions.message("user", "Hi")),
    sessions.line("response_item", **sessions.message("assistant", "Hello.")),
]


def read(source: Any, **options: Any) -> list[int | str]:
    """Return the number of turns of each run, or its error."""
    found = nn.import_runs(source, progress=False, **options)
    return [str(each.error) if isinstance(each, nn.Failed) else len(each.turns) for each in found]


WHOLE: dict[str, Any] = {
    "logs": LOG,
    "sessions": sessions.SESSION,
    "rollouts": ROLLOUT,
    "trajectories": ATIF,
    "conversations": TALK,
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("kind", [list, tuple, iter, lambda each: dict(enumerate(each)).values()])
def test_a_list_of_whole_sources_is_all_of_them(
    name: str, kind: Callable[[Iterable[Any]], Any], tmp_path: Path
) -> None:
    one = WHOLE[name]
    (turns,) = read(one)

    assert read(kind([one, one])) == [turns, turns]
    (tmp_path / "all.json").write_text(json.dumps([one, one]))
    (tmp_path / "lines.jsonl").write_text(f"{json.dumps(one)}\n{json.dumps(one)}\n")
    assert read(tmp_path) == [turns] * 4
    assert len(nn.open_runs(kind([one, one]), progress=False)) == 2


def test_pages_of_a_service_are_read_together() -> None:
    assert read([PAGE, json.loads(json.dumps(PAGE).replace('"t"', '"t2"'))]) == [1, 1]


def test_one_that_cannot_be_read_spoils_no_other() -> None:
    first, second, third = read([LOG, {"no": "log"}, LOG])

    assert (first, third) == (1, 1)
    assert "unrecognised format" in str(second)


def test_paths_and_runs_stand_in_lists_and_texts_open_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ATIF))

    assert read([path, nn.import_run(path)]) == [1, 1]
    assert read(tmp_path.glob("*.json")) == [1]
    (told,) = read([str(path)])
    assert "pathlib.Path" in str(told)


@pytest.mark.parametrize(
    "format", ["langsmith", "langfuse", "mlflow", "weave", "inspect", "claude-code", "codex", "atif"]
)
def test_a_source_that_is_named_wrongly_is_no_empty_run(format: str) -> None:
    wrong = [one for one in (LOG, PAGE, sessions.SESSION, ROLLOUT, ATIF) if nn.import_run(one).meta["source"] != format]

    assert len(wrong) >= 4
    for one in wrong:
        (told,) = read(one, format=format)
        assert isinstance(told, str), format


def _utf16(text: str) -> bytes:
    return text.encode("utf-16")  # as PowerShell writes it


@pytest.mark.parametrize("write", [_utf16, lambda text: f"\n \n{text}".encode(), lambda text: text.encode("utf-8-sig")])
@pytest.mark.parametrize("lines", [sessions.SESSION, ROLLOUT, [ATIF, ATIF]])
def test_lines_are_read_in_every_encoding_and_behind_blank_ones(
    write: Callable[[str], bytes], lines: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(write("".join(json.dumps(line) + "\n" for line in lines)))

    assert read(path) == read(lines)


def test_a_gzipped_session_finds_its_helpers(tmp_path: Path) -> None:
    plain = sessions.with_helper(tmp_path / "plain")
    packed = sessions.with_helper(tmp_path / "packed")
    packed.with_name(packed.name + ".gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()

    calls = len(nn.import_run(plain).select(ModelCalled))
    runs = list(nn.import_runs(tmp_path / "packed", progress=False))
    assert [len(run.select(ModelCalled)) for run in runs if not isinstance(run, nn.Failed)] == [calls]


DATA = "iVBORw0KGgo="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


def test_a_picture_that_a_tool_returned_is_kept(tmp_path: Path) -> None:
    seen = sessions.result("c1", "")
    seen["message"]["content"][0]["content"] = [{"type": "text", "text": "a shelf"}, PICTURE]
    session = [*sessions.SESSION[:4], seen, *sessions.SESSION[7:]]
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}
    shown = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [{"type": "input_text", "text": "a shelf"}, part],
    }
    rollout = [
        *ROLLOUT[:2],
        sessions.line("response_item", type="function_call", name="look", call_id="c1", arguments="{}"),
        sessions.line("response_item", **shown),
        *ROLLOUT[2:],
    ]
    for source, form in ((session, "anthropic"), (rollout, "openai-responses")):
        run = nn.import_run(source)
        assert "a shelf[" in run.to_frame("tools")["output"].iloc[0]
        assert DATA in json.dumps(run.to_messages(form))


def test_a_picture_that_has_no_place_in_a_trajectory_is_listed() -> None:
    def picture(name: str) -> list[dict[str, Any]]:
        return [{"type": "image", "source": {"media_type": "image/png", "path": name}}]

    results = {
        "results": [{"source_call_id": "c1", "content": picture("of-a-tool.png")}, {"content": picture("seen.png")}]
    }
    run = nn.import_run(
        trajectory(
            step(1, "user", "Look."),
            step(2, "agent", picture("drawn.png"), tool_calls=[call("c1", "look")], observation=results),
        )
    )

    listed = [each["value"] for each in run.meta["unmapped"]]
    assert sorted(listed) == ["drawn.png", "of-a-tool.png", "seen.png"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("max_output_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_context_window_exceeded", "length"),
        ("SAFETY", "content_filter"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
        ("something_new", None),
    ],
)
def test_why_an_answer_ended_is_read_in_the_words_of_every_provider(said: str, meant: str | None) -> None:
    final = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    sources: list[Any] = [
        [TALK[0], {**final, "stop_reason": said}],
        [TALK[0], {"choices": [{"message": TALK[1], "finish_reason": said}]}],
        [TALK[0], {"type": "ai", "content": "Hello.", "response_metadata": {"finish_reason": said}}],
        trajectory(step(1, "user", "Hi"), step(2, "agent", "Hello.", extra={"finish_reason": said})),
        [sessions.said("user", "Hi"), sessions.said("assistant", "Hello.", message={"id": "m", "stop_reason": said})],
    ]
    for source in sources:
        (event,) = nn.import_run(source).select(ModelCalled)
        assert event.finish_reason == meant
    ended = model(SECOND, 5)
    ended["output"]["choices"][0]["stop_reason"] = said
    (event,) = run_of([ASKED, SECOND], [ended]).select(ModelCalled)
    assert event.finish_reason == meant


def test_parts_of_a_log_of_inspect_that_a_run_has_no_place_for_are_listed() -> None:
    score = {"value": "C", "answer": "Bed 1", "explanation": "It is dry.", "metadata": {"judge": "j"}}
    sample = {
        "id": "q",
        "messages": [ASKED, FIRST, result("r1", "c1", "dry"), SECOND],
        "events": [model(FIRST, 10), {"event": "info", "data": "a note"}, model(SECOND, 5)],
        "scores": {"exact": score},
    }
    about = {"task": "garden", "model": "m", "tags": ["nightly"], "task_args": {"beds": 3}}
    log = {
        "version": 2,
        "status": "success",
        "eval": about,
        "stats": {"model_usage": {"m": 1}},
        "samples": [sample, sample],
    }
    first, second = [each for each in nn.import_runs(log) if not isinstance(each, nn.Failed)]

    listed = {each["place"]: each["value"] for each in first.meta["unmapped"]}
    assert listed["scores.exact"] == {key: value for key, value in score.items() if key != "value"}
    assert listed["events.info"] == 1
    assert listed["eval.tags"] == ["nightly"]
    assert listed["eval.task_args"] == {"beds": 3}
    assert listed["stats"] == {"model_usage": {"m": 1}}
    # Facts about the whole log are listed once.
    assert {each["place"] for each in second.meta["unmapped"]} == {"scores.exact", "events.info"}


def test_a_folder_that_vanishes_while_its_parent_is_read_takes_nothing_else_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "a.json").write_text(json.dumps(ATIF))
    look = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith("draft"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return look(path)

    monkeypatch.setattr("os.scandir", scandir)

    assert read(tmp_path) == [1]
    assert len(nn.open_runs(tmp_path, progress=False)) == 1
