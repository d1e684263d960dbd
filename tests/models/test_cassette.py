"""Cassettes: what is recorded, what is replayed, and what they say when they cannot."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import assistant_text, function_call, function_call_output, input_message
from noetic_nb.models import (
    CallTool,
    CassetteModel,
    Fault,
    ModelDelta,
    ModelParams,
    ModelRequest,
    ModelResponse,
    OpenAIModel,
    Reply,
    ScriptedModel,
    TokenLogprob,
    ToolSpec,
    Usage,
)
from noetic_nb.models._cassette_file import content_of, differences
from tests.models.conftest import KEY, parts_of
from tests.models.endpoint import Endpoint, chat, chat_chunks, sse
from tests.redaction.shapes import made

HEAD = '{"format":"noetic_nb.cassette","version":1}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def ask(text: str = "hi", **fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "items": (input_message(text),), **fields})


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "made" / "desk.jsonl"


def text_on(tape: Path) -> str:
    return tape.read_text()


async def record(tape: Path, *replies: Any, requests: list[ModelRequest] | None = None) -> list[ModelResponse]:
    model = CassetteModel(tape, ScriptedModel(list(replies)))
    return [await model.complete(request) for request in requests or [ask()] * len(replies)]


# Recording and replaying


async def test_everything_about_an_answer_is_replayed(tape: Path) -> None:
    reply = Reply(
        "Packed.",
        tool_calls=[CallTool("ship", id="A")],
        usage=Usage(7, 3, 2),
        logprobs=[-0.5, TokenLogprob("ed", -0.25, (("ed", -0.25), ("ing", -2.0)))],
        cost=0.002,
        reasoning="First pack.",
    )
    recorded = await record(tape, reply)

    replayed = await CassetteModel(tape).complete(ask())

    assert [replayed] == recorded


async def test_the_same_question_replays_its_answers_in_order(tape: Path) -> None:
    await record(tape, "one", "two", "three", requests=[ask("a"), ask("b"), ask("a")])
    model = CassetteModel(tape, mode="replay")

    told = [assistant_text((await model.complete(ask(text))).items) for text in ("b", "a", "a")]

    assert told == ["two", "one", "three"]


async def test_ids_do_not_count_but_content_does(tape: Path) -> None:
    def history(call_id: str, output: str) -> ModelRequest:
        items = (input_message("q"), function_call("look", "{}", call_id), function_call_output(call_id, output))
        return ask(items=items)

    await record(tape, "found", requests=[history("c1", "packed")])
    model = CassetteModel(tape)

    with pytest.raises(NoeticError):
        await model.complete(history("c2", "lost"))
    answer = await model.complete(history("another-id", "packed"))

    assert assistant_text(answer.items) == "found"


@pytest.mark.parametrize(
    "other",
    [
        ask(model="other"),
        ask(instructions="Be brief."),
        ask("hello"),
        ask(tools=(ToolSpec("look", "", {}),)),
        ask(params=ModelParams(temperature=0)),
        ask(output_schema={"type": "object"}),
    ],
)
async def test_every_part_of_a_request_counts(tape: Path, other: ModelRequest) -> None:
    await record(tape, "found")

    with pytest.raises(NoeticError) as caught:
        await CassetteModel(tape).complete(other)

    assert caught.value.kind == "tape_missing"


async def test_purpose_and_thread_do_not_count(tape: Path) -> None:
    await record(tape, "found")

    answer = await CassetteModel(tape).complete(ask(purpose="judge", thread_id="t9"))

    assert assistant_text(answer.items) == "found"


async def test_a_refusal_is_an_answer_and_is_replayed(tape: Path) -> None:
    model = CassetteModel(tape, ScriptedModel([Fault("refusal", message="No.")]))
    with pytest.raises(NoeticError):
        await model.complete(ask())

    with pytest.raises(NoeticError) as caught:
        await CassetteModel(tape).complete(ask())

    assert (caught.value.kind, caught.value.refusal) == ("llm_refused", "No.")


async def test_failures_that_pass_are_not_recorded(tape: Path) -> None:
    model = CassetteModel(tape, ScriptedModel([Fault("rate_limit"), "fine"]))
    with pytest.raises(NoeticError):
        await model.complete(ask())
    await model.complete(ask())

    answer = await CassetteModel(tape).complete(ask())

    assert assistant_text(answer.items) == "fine"


async def test_rewinding_replays_from_the_start(tape: Path) -> None:
    await record(tape, "once")
    model = CassetteModel(tape)

    first = await model.complete(ask())
    model.rewind()

    assert await model.complete(ask()) == first


async def test_replayed_streams_join_to_the_recorded_answer(tape: Path) -> None:
    recorded = await record(tape, Reply("Well then.", tool_calls=[CallTool("look")]))

    *pieces, last = await parts_of(CassetteModel(tape), ask())

    assert [last] == recorded
    assert "".join(p.text for p in pieces if isinstance(p, ModelDelta) and p.kind == "text") == "Well then."


async def test_many_answers_at_once_are_all_on_the_tape(tape: Path) -> None:
    model = CassetteModel(tape, ScriptedModel(lambda request: "fine"))

    await asyncio.gather(*(model.complete(ask(str(n))) for n in range(20)))

    assert len(CassetteModel(tape)) == 20


# A real client behind it


async def test_a_real_endpoint_is_asked_once_and_no_secret_is_kept(
    endpoint: Endpoint, client: Callable[..., OpenAIModel], tape: Path
) -> None:
    secret = "sk-proj-" + "a1B2" * 8
    endpoint.then(chat(f"Your key is {secret}.")).then(sse(chat_chunks({"content": "Hel"}, {"content": "lo."})))
    model = CassetteModel(tape, client())
    question = ask(f"Is {secret} right?")

    await model.complete(question)
    streamed = await parts_of(model, ask("stream"))
    replay = CassetteModel(tape, mode="replay")
    replayed = await replay.complete(question)

    assert assistant_text(replayed.items) == "Your key is [redacted]."
    assert (await parts_of(replay, ask("stream")))[-1] == streamed[-1]
    assert len(endpoint.seen) == 2
    assert secret not in text_on(tape)
    assert KEY not in text_on(tape)


async def two_on_one_tape(tape: Path) -> tuple[str, str]:
    """Record two questions that differ in nothing but the key in them."""
    one, other = (made("openai", seed)[1] for seed in range(2))
    await record(tape, "the first", "the second", requests=[ask(f"Is {one} right?"), ask(f"Is {other} right?")])
    return one, other


async def test_questions_that_differ_in_a_secret_alone_replay_their_own_answers(tape: Path) -> None:
    one, other = await two_on_one_tape(tape)
    model = CassetteModel(tape)

    said = [assistant_text((await model.complete(ask(f"Is {key} right?"))).items) for key in (other, one)]

    assert said == ["the second", "the first"]
    assert one not in text_on(tape)
    assert other not in text_on(tape)


async def test_a_secret_that_is_not_on_the_tape_is_another_question(tape: Path) -> None:
    await two_on_one_tape(tape)
    third = made("openai", 3)[1]

    with pytest.raises(NoeticError) as caught:
        await CassetteModel(tape).complete(ask(f"Is {third} right?"))

    assert caught.value.kind == "tape_missing"
    assert third not in f"{caught.value} {caught.value.differences}"


@pytest.mark.parametrize("shape", ["openai", "jwt", "json"])
async def test_a_conversation_goes_on_from_an_answer_whose_secret_was_replaced(tape: Path, shape: str) -> None:
    """What is replayed holds the placeholder, and so does the next question."""
    text, secret = made(shape)
    _, mine = made("github-ghp_")
    arguments = json.dumps({"note": text, "password": secret})
    model = CassetteModel(tape, ScriptedModel([Reply("", tool_calls=[CallTool.raw("set", arguments)]), "done"]))

    async def talk(model: CassetteModel) -> str:
        first = await model.complete(ask(f"My key is {mine}."))
        call = next(item for item in first.items if item["type"] == "function_call")
        items = (input_message(f"My key is {mine}."), *first.items, function_call_output(call["callId"], "ok"))
        return assistant_text((await model.complete(ask(items=items))).items)

    assert await talk(model) == "done"
    assert await talk(CassetteModel(tape)) == "done"
    assert secret not in text_on(tape)
    assert mine not in text_on(tape)


async def test_the_same_secret_keeps_its_placeholder_when_a_tape_grows(tape: Path) -> None:
    one, other = await two_on_one_tape(tape)
    longer = CassetteModel(tape, ScriptedModel([f"both {other} and {one}"]), on_missing="record")
    await longer.complete(ask("Which?"))

    said = assistant_text((await CassetteModel(tape).complete(ask("Which?"))).items)

    assert said == "both [redacted 2] and [redacted]"


async def test_an_answer_without_a_secret_is_replayed_to_the_letter(tape: Path) -> None:
    text = 'The basic requirements: {"password": 12, "a" : [1 , 2]} \\u0041 password: required, Basic authentication.'

    recorded = await record(tape, Reply(text, tool_calls=[CallTool.raw("look", '{"n" : 1.0,  "s":"\\/"}')]))

    assert [await CassetteModel(tape).complete(ask())] == recorded


def old_tape(tape: Path, asked: str) -> None:
    """Write a tape of the first version, which had one placeholder for all and hid other words."""
    content = content_of(ask(asked))
    answer = {"items": [], "logprobs": [], "model": "m", "finish_reason": "stop", "usage": [1, 1, 0], "cost": None}
    tape.parent.mkdir()
    tape.write_text(f"{HEAD}\n{json.dumps({'request': content, 'answer': answer})}\n")


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ("The basic [redacted] are met.", "The basic requirements are met."),
        ("use [redacted]", f"use {made('openai')[1]}"),
        ("[redacted] and [redacted]", "secret1 and secret2"),
    ],
)
async def test_a_tape_of_the_first_version_still_answers(tape: Path, recorded: str, asked: str) -> None:
    old_tape(tape, recorded)

    assert (await CassetteModel(tape).complete(ask(asked))).usage == Usage(1, 1, 0)
    with pytest.raises(NoeticError):
        await CassetteModel(tape).complete(ask("Otherwise."))


async def test_a_tape_is_readable_by_its_owner_alone(tape: Path) -> None:
    before = os.umask(0)
    try:
        await record(tape, "one")
    finally:
        os.umask(before)

    assert os.stat(tape).st_mode & 0o777 == 0o600


# Modes


async def test_auto_records_without_a_tape_and_replays_with_one(tape: Path) -> None:
    script = ScriptedModel(["one"])
    first = CassetteModel(tape, script)
    await first.complete(ask())

    second = CassetteModel(tape, script)
    await second.complete(ask())

    assert (first.recording, second.recording, len(script.requests)) == (True, False, 1)


async def test_record_makes_the_tape_anew(tape: Path) -> None:
    await record(tape, "old", "old")

    await CassetteModel(tape, ScriptedModel(["new"]), mode="record").complete(ask())

    assert len(CassetteModel(tape)) == 1


async def test_on_missing_record_adds_to_the_tape(tape: Path) -> None:
    await record(tape, "old")
    script = ScriptedModel(["new"])
    model = CassetteModel(tape, script, on_missing="record")

    answers = [assistant_text((await model.complete(ask(text))).items) for text in ("hi", "new question")]

    assert (answers, len(script.requests), len(CassetteModel(tape))) == (["old", "new"], 1, 2)


@pytest.mark.parametrize(
    "options",
    [{"mode": "rerecord"}, {"on_missing": "ignore"}, {"mode": "replay", "on_missing": "record"}, {"mode": "record"}],
)
def test_options_that_cannot_work_are_refused(tape: Path, options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        CassetteModel(tape, **options)

    assert caught.value.code == "INVALID_CASSETTE"


# What it says when it cannot


@pytest.mark.parametrize("mode", ["auto", "replay"])
def test_a_tape_that_is_not_there_is_missing(tape: Path, mode: Any) -> None:
    with pytest.raises(NoeticError, match="There is no tape at") as caught:
        CassetteModel(tape, mode=mode)

    assert caught.value.kind == "tape_missing"


async def test_a_missing_request_says_what_differs_from_the_closest(tape: Path) -> None:
    await record(tape, "a", "b", requests=[ask("Where is A17?", instructions="Help."), ask("Sing.", model="other")])

    with pytest.raises(NoeticError) as caught:
        await CassetteModel(tape).complete(ask("Where is B2?", instructions="Help."))

    error = caught.value
    assert error.kind == "tape_missing"
    assert error.differences == (("items[0].content[0].text", "Where is A17?", "Where is B2?"),)
    assert "on line 2, differs in items[0].content[0].text: 'Where is A17?' there, 'Where is B2?' asked" in str(error)


async def test_one_question_too_many_is_counted(tape: Path) -> None:
    await record(tape, "a", "b")
    model = CassetteModel(tape)
    for _ in range(2):
        await model.complete(ask())

    with pytest.raises(NoeticError, match=r"once more than .* it has 2") as caught:
        await model.complete(ask())

    assert caught.value.kind == "tape_missing"


def test_a_tape_says_why_its_answers_ended_and_need_not(tape: Path) -> None:
    asyncio.run(record(tape, Reply("Half", finish_reason="length")))
    known = asyncio.run(CassetteModel(tape).complete(ask()))

    tape.write_text(text_on(tape).replace(',"finish_reason":"length"', ""))
    unknown = asyncio.run(CassetteModel(tape).complete(ask()))

    assert "finish_reason" not in text_on(tape)
    assert (known.finish_reason, unknown.finish_reason) == ("length", None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("not json", 1),
        ("[]", 1),
        ('{"format":"another"}', 1),
        ('{"format":"noetic_nb.cassette","version":"1"}', 1),
        ('{"format":"noetic_nb.cassette","version":99}', 1),
        ('{"format":"noetic_nb.cassette","version":2}', 1),
        ('{"format":"noetic_nb.cassette","version":2,"salt":"zz","secrets":[]}', 1),
        (f'{HEAD}\n{{"request":{{}},"ans', 2),
        (f"{HEAD}\n{{}}", 2),
        (f'{HEAD}\n{{"request":[],"answer":{{}}}}', 2),
        (f'{HEAD}\n{{"request":{{}},"answer":[]}}', 2),
        (f'{HEAD}\n{{"request":{{}},"answer":{{"usage":["a"],"refusal":"","cost":null}}}}', 2),
        (
            f'{HEAD}\n{{"request":{{}},"answer":{{"usage":[],"cost":0,"items":[{{}}],"logprobs":[],"model":"","finish_reason":""}}}}',
            2,
        ),
        (HEAD + "\n" + "[" * 100_000, 2),
    ],
)
def test_a_damaged_tape_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    tape = tmp_path / "damaged.jsonl"
    tape.write_text(text)

    with pytest.raises(NoeticError, match=f"Line {line} of the tape") as caught:
        CassetteModel(tape)

    assert (caught.value.kind, caught.value.line) == ("invalid_run_file", line)


def test_a_tape_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoeticError, match="cannot be read") as caught:
        CassetteModel(tmp_path)

    assert caught.value.kind == "storage_failed"


async def test_a_tape_that_cannot_be_written_keeps_the_old_one(tape: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await record(tape, "old")
    before = text_on(tape)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoeticError, match="No space left") as caught:
        await CassetteModel(tape, ScriptedModel(["new"]), mode="record").complete(ask())

    assert caught.value.kind == "storage_failed"
    assert text_on(tape) == before
    assert os.listdir(tape.parent) == [tape.name]


async def test_a_model_that_answers_garbage_is_not_recorded(tape: Path) -> None:
    with pytest.raises(NoeticError) as caught:
        await CassetteModel(tape, ScriptedModel([Fault("garbage")])).complete(ask())

    assert (caught.value.kind, caught.value.reason) == ("llm_failed", "garbage")
    with pytest.raises(NoeticError, match="There is no tape"):
        CassetteModel(tape)


# Properties


@given(JSON, JSON)
def test_there_are_differences_exactly_between_what_differs(one: Any, two: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)

    assert (list(differences(one, two)) == []) == same


@given(st.text(max_size=20), st.text(max_size=20))
def test_content_is_equal_exactly_when_the_texts_are(one: str, two: str) -> None:
    assert (content_of(ask(one)) == content_of(ask(two))) == (one == two)
