"""The log: append-only, immutable, counted once, shared between forks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from noetic_nb.errors import ItemValidationError
from noetic_nb.items import ItemLog, dump_item, item_tokens, parse_item, strip_unresolved
from noetic_nb.items._build import unresolved_positions
from tests.items.strategies import CONVERSATIONS, ITEMS, message


def plain(items: Any) -> list[dict[str, Any]]:
    return [dump_item(item) for item in items]


def test_items_is_the_same_object_until_the_next_append() -> None:
    log = ItemLog([message("user", "one")])
    before = log.items

    assert log.items is before
    log.append(message("user", "two"))
    assert log.items is not before
    assert (len(before), len(log.items)) == (1, 2)


def test_a_log_has_no_way_to_remove_or_replace() -> None:
    log = ItemLog([message("user", "one")])

    for name in ("remove", "pop", "clear", "insert", "truncate", "__setitem__", "__delitem__"):
        assert not hasattr(log, name), name
        assert not hasattr(log.items, name), name


def test_an_append_that_is_refused_leaves_the_log_as_it_was() -> None:
    log = ItemLog([message("user", "one")])

    with pytest.raises(ItemValidationError):
        log.append({"role": "user"})

    assert (len(log), log.tokens) == (1, log.items.token_count(0))


@given(CONVERSATIONS, st.data())
def test_running_sums_agree_with_a_recount(items: list[dict[str, Any]], data: st.DataObject) -> None:
    log = ItemLog(items)
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.integers(start, len(items)))

    view = log.items[start:stop]

    assert log.tokens == sum(item_tokens(item) for item in items)
    assert view.tokens == sum(item_tokens(item) for item in items[start:stop])
    assert [view.token_count(p) for p in range(len(view))] == [item_tokens(item) for item in items[start:stop]]


@given(CONVERSATIONS, st.integers(0, 400))
def test_the_tail_that_fits_is_the_longest_one(items: list[dict[str, Any]], budget: int) -> None:
    log = ItemLog(items)

    start = log.items.tail_start(budget)

    assert sum(item_tokens(item) for item in items[start:]) <= budget
    assert start == 0 or sum(item_tokens(item) for item in items[start - 1 :]) > budget


@given(CONVERSATIONS, st.data())
def test_stretches_that_another_counter_counts_are_those_of_a_log_of_their_own(
    items: list[dict[str, Any]], data: st.DataObject
) -> None:
    log = ItemLog(items)
    stops = data.draw(st.lists(st.integers(0, len(items)), max_size=3))

    for stop in stops:
        view, own = log.items[:stop].counted_by(len), ItemLog(items[:stop], tokenizer=len).items
        assert (view.tokenizer, view.tokens, view.unresolved()) == (len, own.tokens, own.unresolved())
        assert [view.token_count(at) for at in range(stop)] == [own.token_count(at) for at in range(stop)]
    assert log.items[: len(items)].counted_by(log.tokenizer) == log.items


@given(CONVERSATIONS, st.data())
def test_unresolved_calls_of_any_stretch_are_found_as_the_plain_search_finds_them(
    items: list[dict[str, Any]], data: st.DataObject
) -> None:
    log = ItemLog(items)
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.sampled_from([len(items), data.draw(st.integers(start, len(items)))]))

    view = log.items[start:stop]

    assert view.unresolved() == unresolved_positions(items[start:stop])


@given(CONVERSATIONS)
def test_stripping_unresolved_calls_leaves_none_and_keeps_the_order(items: list[dict[str, Any]]) -> None:
    kept = strip_unresolved(items)

    assert unresolved_positions(kept) == set()
    rest = iter(items)
    assert all(any(item == other for other in rest) for item in kept)


@given(CONVERSATIONS, st.data())
def test_slices_of_views_agree_with_slices_of_lists(items: list[dict[str, Any]], data: st.DataObject) -> None:
    view = ItemLog(items).items
    bound = st.none() | st.integers(-len(items) - 2, len(items) + 2)
    cut = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1])))

    assert plain(view[cut]) == items[cut]
    assert plain(view[1:][cut]) == items[1:][cut]


def test_a_position_outside_a_view_is_an_index_error() -> None:
    view = ItemLog([message("user", "one")]).items[1:]

    with pytest.raises(IndexError, match="0 items"):
        view[0]
    with pytest.raises(IndexError):
        view[-1]


def test_a_view_equals_a_list_of_the_same_items() -> None:
    items = [parse_item(message("user", "one")), parse_item(message("assistant", "two"))]

    assert ItemLog(items).items == items
    assert ItemLog(items).items != items[:1]
    assert ItemLog(items).items != "one"


def test_a_log_is_counted_with_its_own_tokenizer_once_per_item() -> None:
    asked: list[str] = []

    def tokenizer(text: str) -> int:
        asked.append(text)
        return 7

    log = ItemLog([message("user", "one"), message("user", "two")], tokenizer=tokenizer)
    fork = log.fork()
    fork.append(message("user", "three"))
    assert (log.tokens, fork.tokens, log.items[1:].tokens) == (14, 21, 7)

    assert len(asked) == 3


def test_forks_share_what_they_have_in_common() -> None:
    log = ItemLog([message("user", str(n)) for n in range(50)])
    fork = log.fork()

    assert fork.items[0] is log.items[0]
    assert fork._store is log._store


class Forks(RuleBasedStateMachine):
    """Logs that are forked, cut and extended in any order, each compared with a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[tuple[ItemLog, list[dict[str, Any]]]] = []
        self.views: list[tuple[Any, list[dict[str, Any]]]] = []

    @initialize(items=CONVERSATIONS)
    def begin(self, items: list[dict[str, Any]]) -> None:
        self.logs.append((ItemLog(items), list(items)))

    def pick(self, n: int) -> tuple[ItemLog, list[dict[str, Any]]]:
        return self.logs[n % len(self.logs)]

    @rule(n=st.integers(0, 9), item=ITEMS)
    def append(self, n: int, item: dict[str, Any]) -> None:
        log, model = self.pick(n)
        self.views.append((log.items, list(model)))
        log.append(item)
        model.append(item)

    @rule(n=st.integers(0, 9))
    def fork(self, n: int) -> None:
        log, model = self.pick(n)
        self.logs.append((log.fork(), list(model)))

    @rule(n=st.integers(0, 9), length=st.integers(-2, 30))
    def cut(self, n: int, length: int) -> None:
        log, model = self.pick(n)
        self.logs.append((log.until(length), model[: max(0, length)]))

    @invariant()
    def every_log_holds_what_it_should(self) -> None:
        for log, model in self.logs:
            assert plain(log) == model
            assert log.tokens == sum(item_tokens(item) for item in model)
            assert log.items.unresolved() == unresolved_positions(model)

    @invariant()
    def no_snapshot_ever_changes(self) -> None:
        for view, model in self.views:
            assert plain(view) == model


TestForks = Forks.TestCase
TestForks.settings = settings(stateful_step_count=30)
