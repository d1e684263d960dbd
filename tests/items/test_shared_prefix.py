"""The common prefix of two items as sent to a provider."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items import function_call, input_message
from noetic_nb.items._build import leading_tokens, same_when_sent, sent_text
from noetic_nb.tokens import estimate_tokens


@given(st.text(max_size=12), st.text(max_size=12))
def test_items_are_the_same_exactly_where_their_sent_text_is(one: str, other: str) -> None:
    a, b = input_message(one, item_id="a"), input_message(other, item_id="b")

    assert same_when_sent(a, b) == (sent_text(a) == sent_text(b)) == (one == other)


def test_what_is_of_another_kind_or_has_another_field_is_another_item() -> None:
    call = function_call("look", "{}", "c1")

    assert not same_when_sent(call, function_call("look", "{}", "c2"))
    assert not same_when_sent(call, {**call, "namespace": "desk"})
    assert same_when_sent(call, {**call, "id": "other", "status": "incomplete"})


@given(st.text(max_size=60), st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_leading_tokens_are_those_that_both_texts_are_cut_into(start: str, one: str, other: str) -> None:
    def cut(text: str) -> list[bytes]:
        units = text.encode("utf-16-le", "surrogatepass")
        return [units[at : at + 8] for at in range(0, len(units), 8)]

    first, second = start + one, start + other
    tokens = list(zip(cut(first), cut(second), strict=False))
    alike = next((at for at, (a, b) in enumerate(tokens) if a != b), len(tokens))
    most = estimate_tokens(second)

    if first != second:
        assert leading_tokens(first, second, most) == min(alike, most - 1)


def test_another_tokenizer_counts_one_less_as_its_last_token_may_reach_further() -> None:
    def words(text: str) -> int:
        return len(text.split())

    assert leading_tokens("one two three", "one two fours", 9, words) == words("one two") - 1
