"""Events and rows that nobody has read: their number and places, whatever is added, taken, counted and dropped in between."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from noetic_nb.events import QualityGiven, Where
from noetic_nb.runs.events.unread_events import UnreadEvents


def row(number: int) -> tuple[Any, ...]:
    return ("step_started", ("t1", "e1", 1, 0), float(number), "ask", "llm", "/ask#1")


def event(number: int) -> QualityGiven:
    return QualityGiven(Where("t1", "e1", 1), float(number), 0.5, "user")


STEPS = st.one_of(
    st.tuples(st.sampled_from(["row", "event", "count", "note"]), st.none()),
    st.tuples(st.sampled_from(["take", "place"]), st.integers(0, 12)),
    st.tuples(st.just("keep"), st.lists(st.booleans(), max_size=20)),
)


@given(st.lists(STEPS, max_size=60))
def test_every_event_has_the_place_and_the_number_that_it_has_in_a_plain_list(steps: list[tuple[str, Any]]) -> None:
    unread, plain = UnreadEvents(), list[int]()
    for number, (step, given_) in enumerate(steps):
        if step == "row":
            unread.parts.extend(row(number))
            plain.append(number)
        elif step == "event":
            assert unread.add(event(number)) == len(plain)
            plain.append(number)
        elif step == "count":
            assert unread.count() == len(plain)
        elif step == "note":
            unread.note(unread.place_of(len(plain)), len(plain))
        elif step == "take":
            made = unread.take(given_)
            assert [int(each.t_ms) for each in made] == plain[:given_]
            del plain[:given_]
        elif step == "keep":
            # As many as a keeper may have taken: what has come since is kept.
            stays = given_[: len(plain)]
            unread.keep(stays)
            plain = [each for at, each in enumerate(plain) if at >= len(stays) or stays[at]]
        elif given_ < len(plain):
            found = unread.parts[unread.place_of(given_)]
            t_ms = unread.parts[unread.place_of(given_) + 2] if isinstance(found, str) else found.t_ms
            assert int(t_ms) == plain[given_]
        place, before = unread.counted
        assert before <= len(plain)
        assert unread.place_of(before) == place

    assert unread.count() == len(plain)
    assert [int(each.t_ms) for each in unread.take()] == plain
