"""Output codecs: the parsed value of an answer, however it is split, and how steps refer to codecs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.steps import OutputCodec, Registry, dump_step, fenced_json, json_lines, load_step, load_workflow, step
from noetic_nb.steps._output_codec import CodecOutput, OutputReader, as_output, system_instructions
from noetic_nb.steps._schema import OutputSchema


class Order(BaseModel):
    id: str


class Words:
    """Counts words; a word may be split anywhere."""

    instructions = "Use few words."

    def start(self) -> Any:
        return WordsRun()


class WordsRun:
    def __init__(self) -> None:
        self.text = ""

    def feed(self, piece: str) -> None:
        if "!" in piece:
            raise ValueError("do not shout")
        self.text += piece

    def finish(self) -> Any:
        if not self.text:
            raise LookupError
        return len(self.text.split())


WORDS = Words()
CODECS: dict[str, Any] = {
    "fenced": fenced_json(),
    "fenced order": fenced_json(Order),
    "lines": json_lines(),
    "lines of numbers": json_lines({"type": "integer"}),
    "words": WORDS,
}


def read(codec: Any, pieces: Any) -> Any:
    """Return a codec's value for some pieces, or its error."""
    reading = OutputReader(codec)
    for piece in pieces:
        reading.feed(piece)
    try:
        return reading.finish()
    except Exception as exc:
        return type(exc), str(exc)


PARTS = st.sampled_from(
    ["```json\n", "```", "\n", "\r\n", "``", "`", " ", '{"id": "A"}', '{"id":', ' "A```"\n}', "[1,", "2]", "3", "null",
     "```python\nx\n", "Here:", "done!", "```json {}```", "é", "\u2028", "json"]
)  # fmt: skip


@given(st.sampled_from(sorted(CODECS)), st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=40), st.data())
def test_it_does_not_matter_how_an_answer_is_cut(name: str, text: str, data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert read(CODECS[name], pieces) == read(CODECS[name], [text]) == read(CODECS[name], list(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["```", "a\n```\nb", "`"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
PROSE = st.lists(st.sampled_from(["Let me think.", "", "- a `word`", "1. {not json}", "```python\nprint(1)\n```"]))


@given(JSON, PROSE, PROSE, st.sampled_from([None, 2]), st.sampled_from(["json", "JSON", "", " json "]), JSON)
@example({"a": 1}, [], [], None, "json", "first")
def test_the_last_block_of_json_is_the_answer(
    value: Any, before: Any, after: Any, indent: Any, label: str, other: Any
) -> None:
    first = f"```json\n{json.dumps(other)}\n```"
    block = f"```{label}\n{json.dumps(value, indent=indent)}\n```"

    assert read(fenced_json(), ["\n".join([*before, first, *before, block, *after])]) == value


@given(JSON, st.sampled_from([None, 2]))
def test_json_without_a_block_is_the_answer_too(value: Any, indent: Any) -> None:
    assert read(fenced_json(), [json.dumps(value, indent=indent)]) == value


@given(st.lists(JSON, max_size=5), st.booleans())
def test_every_line_is_a_value(values: list[Any], fenced: bool) -> None:
    text = "\n\n".join(map(json.dumps, values))

    assert read(json_lines(), [f"```jsonl\n{text}\n```" if fenced else text]) == values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('```json {"id": "A"}```', {"id": "A"}),
        ("```json 42```", 42),
        ("```[1]```", [1]),
        ('````json\n{"id": "A"}\n````', {"id": "A"}),
        ('  ```json\r\n  {"id":\r\n "A"}\r\n  ```\r\nDone.', {"id": "A"}),
        ('```json\n{"id": "A"}```', {"id": "A"}),
        ('```json\n{"id": "A"}', {"id": "A"}),
        ("```python x```\n```json\n1\n```", 1),
        ("```json\n1\n```\n```python\n2\n```", 1),
    ],
)
def test_models_write_blocks_in_many_ways(text: str, value: Any) -> None:
    assert read(fenced_json(), [text]) == value


@pytest.mark.parametrize(
    ("codec", "text", "says"),
    [
        (fenced_json(), "I cannot.", "not JSON"),
        (fenced_json(), "", "not JSON"),
        (fenced_json(), "```json\n{\n```", "not JSON"),
        (fenced_json(Order), '```json\n{"id": 1}\n```', "id: Input should be a valid string"),
        (json_lines(int), "1\ntwo\n3", "line 2: it is not JSON"),
        (json_lines({"maximum": 2}), "1\n\n3", "line 3: value: maximum 2"),
        (WORDS, "no!", "do not shout"),
        (WORDS, "", "LookupError"),
    ],
)
def test_what_cannot_be_read_is_a_parse_error_with_the_text(codec: Any, text: str, says: str) -> None:
    with pytest.raises(nn.NoeticError) as caught:
        as_output(codec).parse(text, step_id="ask")

    error = caught.value
    assert (error.kind, error.raw, error.step_id, error.schema) == ("llm_parse_error", text, "ask", None)
    assert says in error.validation_error
    assert error.__cause__ is not None


def test_lines_are_checked_while_they_come() -> None:
    run = json_lines(int).start()
    run.feed("1\nt")

    with pytest.raises(ValueError, match="line 2"):
        run.feed("wo\n")


def test_a_long_line_in_small_pieces_takes_no_longer_than_it_must() -> None:
    text = json.dumps(["x" * 200_000])

    assert read(fenced_json(), list(text)) == json.loads(text)


# -- what a step takes --------------------------------------------------------------------------------------------------


def test_what_is_no_codec_is_a_schema() -> None:
    assert isinstance(as_output(Order), OutputSchema)
    assert isinstance(as_output({"type": "object"}), OutputSchema)
    assert isinstance(as_output(WORDS), CodecOutput)
    assert as_output(as_output(WORDS)).codec is WORDS
    assert as_output(None) is None
    assert isinstance(WORDS, OutputCodec)
    for nonsense in (Words, "fenced_json", 3):
        with pytest.raises(nn.NoeticConfigError, match="INVALID_SCHEMA"):
            step.llm("ask", model="m", output=nonsense)


def test_instructions_that_are_no_text_are_refused() -> None:
    class Odd(Words):
        instructions = None  # type: ignore[assignment]

    with pytest.raises(nn.NoeticConfigError, match="INVALID_CODEC"):
        step.llm("ask", model="m", output=Odd())


def test_a_codec_without_a_run_fails_when_it_reads() -> None:
    class Broken(Words):
        def start(self) -> Any:
            raise RuntimeError("no run")

    with pytest.raises(nn.NoeticError, match="no run"):
        as_output(Broken()).parse("x", step_id="ask")


def test_instructions_come_after_those_of_the_step() -> None:
    class Silent(Words):
        instructions = ""

    assert system_instructions("Be brief.", as_output(WORDS)) == "Be brief.\n\nUse few words."
    assert system_instructions("", as_output(WORDS)) == "Use few words."
    assert system_instructions("Be brief.", as_output(Silent())) == "Be brief."
    assert system_instructions("Be brief.", as_output(Order)) == system_instructions("Be brief.", None) == "Be brief."
    told = fenced_json(Order).instructions
    assert '"required":["id"]' in told
    assert told.startswith(fenced_json().instructions)


# -- by name ------------------------------------------------------------------------------------------------------------

REGISTRY = Registry(codecs={"words": WORDS, "order": (ORDER := fenced_json(Order))})


@pytest.mark.parametrize(
    ("codec", "name"),
    [(WORDS, "words"), (ORDER, "order"), (fenced_json(), "fenced_json"), (json_lines(), "json_lines")],
)
def test_a_codec_is_kept_by_name(codec: Any, name: str) -> None:
    one = step.llm("ask", model="m", output=codec)

    data = dump_step(one, REGISTRY)

    assert data["output"] == {"$ref": f"codec:{name}"}
    assert load_step(json.dumps(data), REGISTRY) == one


def test_a_codec_without_a_name_says_so() -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        dump_step(step.llm("ask", model="m", output=WORDS))
    assert (caught.value.code, caught.value.where) == ("UNREGISTERED_CODEC", "ask.output")

    with pytest.raises(nn.NoeticConfigError) as caught:
        load_step({"kind": "llm", "id": "ask", "model": "m", "output": {"$ref": "codec:x"}}, REGISTRY)
    assert caught.value.code == "UNKNOWN_CODEC_REFERENCE"
    assert caught.value.known == ("fenced_json", "json_lines", "order", "words")

    with pytest.raises(nn.NoeticConfigError, match="DUPLICATE_REFERENCE"):
        Registry(codecs={"fenced_json": WORDS})
    with pytest.raises(nn.NoeticConfigError, match="INVALID_REFERENCE"):
        Registry(codecs={"x": Order})  # type: ignore[dict-item]


@pytest.mark.parametrize("given", [{"$ref": "codec:words"}, "codec:words", "words"])
def test_a_workflow_document_names_a_codec(given: Any) -> None:
    node = {"kind": "llm", "id": "ask", "instructions": "Go.", "output": given}

    made: Any = load_workflow({"version": 1, "root": node}, REGISTRY)

    assert made.output == CodecOutput(WORDS)
    with pytest.raises(nn.NoeticConfigError, match="UNKNOWN_CODEC_REFERENCE"):
        load_workflow({"version": 1, "root": {**node, "output": "x"}}, REGISTRY)
