"""The first author of a value: normal forms, whole tokens, fields, and an index compared with a plain search."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items import ItemLog, assistant_message, function_call, function_call_output, input_message
from noetic_nb.items._origin_index import OriginIndex, Provenance, Source, vouches
from noetic_nb.items._origins import MODEL, Origin, least_trusted, members
from noetic_nb.items._value_search import hidden_character, leaves

USER, TOOL = Origin("user"), Origin("tool", "search")


def found(text: str, value: Any) -> bool:
    index = OriginIndex()
    index.add(text, USER)
    return index.first(value) == USER


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Pay DE89 3704 0044 0532 0130 00 today", "DE89370400440532013000"),
        ("Pay DE89370400440532013000.", "de89 3704 0044 0532 0130 00"),
        ("card 4111-1111-1111-1111", 4111111111111111),
        ("send it to Ann@Example.COM!", "ann@example.com"),
        ("ＤＥ８９３７０４ please", "DE893704"),
        ("付给DE893704吧", "DE893704"),
        ("pay 50", 50.0),
        ("pay $50.00", 50),
        ("pay 50 now", "50.00"),
        ("pay 1,234.50 EUR", Decimal("1234.5")),
        ("pay 12,50 EUR", 12.5),
        ("a change of -7 degrees", -7),
        ("on 2022-03-01", datetime.date(2022, 3, 1)),
        ("on March 1st, 2022", "2022-03-01"),
        ("on the 1st of March 2022", "2022-03-01"),
        ("on 01/03/2022", "2022-03-01"),
        ("at 2022-03-01 10:30", "2022-03-01T10:30:00Z"),
        ("at 2022-03-01T10:30", "2022-03-01"),
        ('{"to": "Gr\\u00fcn\\nAllee"}', "grün allee"),
        ("say it's true", True),
    ],
)
def test_values_are_found_in_another_form(text: str, value: Any) -> None:
    assert found(text, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("write to nana@gmail.com", "a@gmail.com"),
        ("the number 150", 50),
        ("the number 50.5", 50),
        ("the day 2022-03-04", 4),
        ("at 10:50", 50),
        ("order A50B", "50"),
        ("a b", "ab"),
        ("12 345", "2345"),
        ("on 2022-03-02", "2022-03-01"),
        ("at 2022-03-01 10:31", "2022-03-01T10:30"),
        ("DE8937040044", "DE89370400440532"),
        ("see DE89370400440532 there", "DE8937040044"),
        ("meet on 2022-03-01", "rent due 2022-03-01"),
        ("zero 007", 7.5),
        ("anything at all", "🙂"),
    ],
)
def test_other_values_are_not(text: str, value: Any) -> None:
    assert not found(text, value)


def test_the_first_text_decides_whichever_form_it_has() -> None:
    index = OriginIndex()
    index.add("the bill says US13 3000 0001 2121", TOOL)
    assert index.first("US13300000012121") == TOOL
    assert index.first("GB29NWBK60161331926819") is None

    index.add("pay US13300000012121 and GB29NWBK60161331926819", USER)

    assert index.first("US13300000012121") == TOOL
    assert index.first("GB29NWBK60161331926819") == USER


WORDS = st.sampled_from(["ab", "AB", "cd1", "1", "23", "ef", "de", "99", "abcd1", "x"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=6).flatmap(
    lambda words: st.sampled_from([" ", "-", ", "]).map(lambda mark: mark.join(words))), max_size=6)  # fmt: skip


def plainly(texts: list[str], value: str) -> int | None:
    """Answer the same question by searching one text after the other."""
    for place, text in enumerate(texts):
        if Source(text, USER, 0, None).text.tokens and found(text, value):
            return place
    return None


@given(TEXTS, WORDS.flatmap(lambda a: WORDS.map(lambda b: f"{a} {b}")) | WORDS, st.integers(0, 6))
def test_the_index_finds_what_a_plain_search_finds_at_any_time(texts: list[str], value: str, asked: int) -> None:
    index = OriginIndex()
    for place, text in enumerate(texts):
        if place == asked:
            index.first(value)  # a missing value must be found when a later text contains it
        index.add(text, Origin("tool", str(place)))
    first = index.first(value)
    assert (None if first is None else int(first.name or "")) == plainly(texts, value)
    assert [source.origin.name for source in index.sources(value)] == [
        str(place) for place, text in enumerate(texts) if found(text, value)
    ]


@given(st.text(min_size=1), st.text(), st.text())
def test_a_text_holds_itself_between_spaces(value: str, before: str, after: str) -> None:
    # Groups of digits separated by spaces may be one long number, of which a group is only a part.
    is_group = any(map(str.isnumeric, value[:1] + value[-1:])) and any(map(str.isnumeric, before[-1:] + after[:1]))
    if hidden_character(value) is None and any(map(str.isalnum, value)) and not is_group:
        assert found(f"{before} {value} {after}", value)


@pytest.mark.parametrize(
    ("text", "value", "field"),
    [
        ('{"contacts": [{"name": "Ann", "email": "ann@x.org"}]}', "ann@x.org", "email"),
        ("- name: Ann\n  email: ann@x.org\n- name: Bob\n", "ann@x.org", "email"),
        ("emails:\n- ann@x.org\n- bob@x.org\n", "bob@x.org", "emails"),
        ("{'email': 'ann@x.org'}", "ann@x.org", "email"),
        ("note: write to ann@x.org\nemail: ann@x.org\n", "ann@x.org", "email"),
        ("note: |\n  hello\n  email: eve@x.org\n", "eve@x.org", "note"),
        ('note: "hello\\nemail: eve@x.org"\n', "eve@x.org", "note"),
        ("Dear Ann\nemail: eve@x.org", "eve@x.org", None),
        ("ann@x.org", "ann@x.org", None),
        ("a: &a [x, x]\nb: [*a, *a]\nc: ann@x.org", "ann@x.org", None),
        ("- amount: 98.70\n", 98.7, "amount"),
    ],
)
def test_the_key_beside_a_value(text: str, value: Any, field: str | None) -> None:
    index = OriginIndex()
    index.add(text, TOOL)
    first = index.first(value)
    assert first is not None
    assert first.field == field


def test_deep_and_long_results_have_no_fields() -> None:
    assert leaves("[" * 100_000) == []
    assert leaves("a: " + "x" * 300_000) == []


def test_only_the_whole_value_of_a_trusted_field_counts_and_no_echo() -> None:
    source = Source("email: ann@x.org\nnote: pay eve@x.org\n", TOOL, 0, '{"query": "ann"}')
    assert vouches(source, "ann@x.org", ["search.email"])
    assert vouches(source, "eve@x.org", ["search"])
    assert not vouches(source, "eve@x.org", ["search.note"])
    assert not vouches(source, "ann@x.org", ["sear", "search.mail", "search.note", "user"])
    echo = Source("email: ann@x.org\n", TOOL, 0, '{"email": "Ann@x.org"}')
    assert not vouches(echo, "ann@x.org", ["search", "search.email"])


def test_a_list_is_trusted_as_little_as_its_least_trusted_member() -> None:
    kinds = [Origin("user"), Origin("system"), Origin("layer", "notes"), TOOL, MODEL]
    for place, origin in enumerate(kinds):
        assert least_trusted(kinds[: place + 1]) == origin
    assert least_trusted([]) == Origin("user")
    assert list(members([1, {"a": ["b", None, ""], "c": {"d": 2.0}}, ()])) == [1, "b", 2.0]
    assert list(members({"a": {"x@y.z": "b"}, "c": 1}, {"a"})) == ["x@y.z", "b", "c", 1]


def test_the_roles_of_a_log_and_what_is_noted_beside_them() -> None:
    log = ItemLog(
        [
            input_message("from user u1", item_id="i1"),
            function_call("search", '{"q":"m1"}', "c1", item_id="i2"),
            function_call_output("c1", "from tool t1", item_id="i3"),
            assistant_message("from model m2", item_id="i4"),
            input_message("from rules g1", "developer", item_id="i5"),
            input_message("made from s1", item_id="i6"),
        ]
    )
    log.mark({5: Origin("layer", "notes")})
    place = Provenance(log.origin_index(), OriginIndex(), OriginIndex())
    found = {value: place.origin(value) for value in ("u1", "m1", "t1", "m2", "g1", "s1", "new")}
    assert [str(origin) for origin in found.values()] == [
        "user",
        "model",
        "tool:search",
        "model",
        "system",
        "layer:notes",
        "model",
    ]
    assert found["t1"].item == "i3"
    assert str(place.origin(["u1", "t1"])) == "tool:search"
    assert [str(origin) for origin in place.origins(["u1", "t1"])] == ["user", "tool:search"]
    assert place.origin(None) == place.origin([]) == Origin("user")


def test_forks_share_what_was_noted_before_they_parted() -> None:
    log = ItemLog([input_message("one"), input_message("two")])
    log.mark({0: MODEL})
    twin = log.fork()
    twin.append(input_message("three"))
    log.append(input_message("other"))
    log.mark({2: MODEL})
    assert sorted(log.marked()) == [0, 2]
    assert sorted(twin.marked()) == [0]
    assert sorted(log.marked(1)) == [2]
