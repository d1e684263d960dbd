"""Messages that repeat those of the previous call are read as if they were alone."""

from __future__ import annotations

import gc
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from noetic_nb.interop._spans.dialect import History, read_history
from tests.interop.test_watch import Agent

MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "tool", "system"]),
            "parts": st.lists(
                st.fixed_dictionaries({"type": st.just("text"), "content": st.text(max_size=5)}), max_size=2
            ),
        }
    ),
    max_size=4,
)
PIECES = ["]", "[", ",", " ", "{}", "3", '{"role": "user", "content": "hi"}', '{"role": 3}', '"]"', "\n", "\\"]


WRAPPED = {"role": "tool", "lc": 1, "type": "constructor", "kwargs": {"type": "human", "content": "hi"}}


@given(MESSAGES, st.booleans())
def test_what_the_user_wrote_is_found_without_reading_what_tools_answered(
    messages: list[Any], is_wrapped: bool
) -> None:
    text = json.dumps([*messages, WRAPPED] if is_wrapped else messages)
    first, second = read_history(text), read_history(text)

    if first is not None and second is not None:
        assert first.asked == [msg for msg in second.tail if msg.role == "user" and msg.text]
        assert bool(first.asked) or not is_wrapped


def said(history: History | None) -> Any:
    return None if history is None else (history.messages, history.tail, history.asked, history.results)


def assert_read_alike(before: str, text: str) -> None:
    known = read_history(before)
    assert said(read_history(text, known)) == said(read_history(text))
    assert said(known) == said(read_history(before))


@given(MESSAGES, MESSAGES, st.sampled_from([(", ", ": "), (",", ":")]))
def test_a_conversation_that_goes_on_is_read_as_if_it_were_new(
    before: list[Any], new: list[Any], separators: tuple[str, str]
) -> None:
    texts = [json.dumps(each, separators=separators) for each in (before, [*before, *new])]

    assert_read_alike(texts[0], texts[1])
    assert_read_alike(texts[1], texts[0])


@given(MESSAGES, MESSAGES, st.integers(0, 3))
def test_a_conversation_that_was_changed_is_read_again(before: list[Any], new: list[Any], place: int) -> None:
    changed = [*before[:place], {"role": "user", "content": "other"}, *before[place + 1 :], *new]

    assert_read_alike(json.dumps(before), json.dumps(changed))


@given(MESSAGES, st.lists(st.sampled_from(PIECES), max_size=5))
@example([{"role": "user", "parts": []}], [",", "]"])
@example([{"role": "user", "parts": []}], ["]", "]"])
@example([{"role": "user", "parts": []}], [",", "3", "]"])
@example([{"role": "user", "parts": []}], [" ", '{"role": "user", "content": "hi"}', "]"])
def test_what_follows_may_be_anything(before: list[Any], pieces: list[str]) -> None:
    text = json.dumps(before)

    assert_read_alike(text, text[:-1] + "".join(pieces))
    assert_read_alike(text, text + "".join(pieces))


def test_only_what_is_new_is_parsed() -> None:
    first = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
    known = read_history(first)
    assert known is not None

    grown = known.grown(first[:-1] + ', {"role": "user", "content": "and now?"}]')

    assert grown is not None
    assert grown.messages[:2] == known.messages
    assert [msg.text for msg in grown.tail] == ["and now?"]
    assert all(one is other for one, other in zip(parsed_messages(known), parsed_messages(grown), strict=False))


def parsed_messages(history: History) -> list[Any]:
    """Return the messages as they were parsed."""
    assert history._raw is not None
    return history._raw


def test_watching_keeps_nothing_of_a_conversation_whose_trace_is_over() -> None:
    agent = Agent()
    gc.collect()
    gc.disable()  # unreferenced objects are freed immediately
    try:
        before = kept()
        with agent.agent() as desk:
            agent.model(desk, calls=["c1"])
            agent.tool("c1", desk)
            agent.model(desk, "packed", results=[("c1", "packed")])
            meanwhile = kept()
        after = kept()
    finally:
        gc.enable()

    assert meanwhile > before
    assert after == before


def kept() -> int:
    """Return the numbers of histories and open spans."""
    return sum(type(each).__name__ in ("History", "Node", "Around", "Trace") for each in gc.get_objects())
