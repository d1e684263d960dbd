"""`so_far` matches the recorded places, whatever their outcome and order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.memory import PastCall
from noetic_nb.memory._enforcement import PENDING, CallHistory, Place

ACTS = st.lists(
    st.tuples(st.sampled_from(["reserve", "start", "settle", "give back", "restore"]), st.integers(0, 20)), max_size=40
)


@given(ACTS)
def test_the_calls_so_far_are_those_of_the_places(acts: list[tuple[str, int]]) -> None:
    calls, places, gone = CallHistory(), list[Place](), list[Place]()
    for number, (act, which) in enumerate(acts):
        place = places[which % len(places)] if places else None
        if act == "reserve" or place is None:
            places.append(calls.reserve(PastCall("pay", {}, f"c{number}", PENDING)))
        elif act == "start":
            calls.start(place)
        elif act == "settle":
            calls.settle(place, "ok", f"paid {number}")
        elif act == "give back":
            calls.give_back(place)
            places.remove(place)
            gone.append(place)
        else:
            places += calls.restore([(None, PastCall("pay", {}, f"r{number}", "ok"))])

    assert list(calls) == places
    assert calls.so_far() == tuple(place.call for place in places)
    for own in places:
        earlier = tuple(one.call for one in places if one.number < own.number or (one.started and one is not own))
        assert calls.so_far(own) == earlier


def test_a_call_that_was_given_back_changes_none_that_took_its_number() -> None:
    calls = CallHistory()
    first = calls.reserve(PastCall("pay", {}, "c1", PENDING))
    calls.give_back(first)
    second = calls.reserve(PastCall("pay", {}, "c2", PENDING))
    calls.settle(first, "ok", "late")

    assert (first.number, first.call.status) == (second.number, "ok")
    assert calls.so_far() == (second.call,)
    assert second.call.status == PENDING
