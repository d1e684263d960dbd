"""Events that nobody has read yet, held flat: the same as a list of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import QualityGiven, RunEvent, Where
from noetic_nb.late_events import ROW_LENGTHS, Row, event_of
from noetic_nb.runs.events.unread_events import UnreadEvents
from tests.runs.held_rows import whole

PLACE = ("t1", "e1", 1, 0)
FULL: dict[str, tuple[Any, ...]] = {
    # Texts that are kinds of rows stand where they can be taken for one.
    "step_started": ("hook_called", "run", "model_called"),
    "hook_called": ("notes", "recall", 0.5, 1, 20.0, 5),
    "layer_state_changed": ("step_started", "store", "hook_called"),
}


def row_of(kind: str, number: int) -> Row:
    return (kind, PLACE, float(number), *FULL[kind])


DO = st.one_of(
    st.tuples(st.just("row"), st.sampled_from(sorted(FULL))),
    st.tuples(st.just("event"), st.none()),
    st.tuples(st.just("count"), st.none()),
    st.tuples(st.just("note"), st.integers(0, 12)),
    st.tuples(st.just("take"), st.integers(0, 4) | st.none()),
    st.tuples(st.just("held"), st.integers(0, 12)),
    st.tuples(st.just("keep"), st.lists(st.booleans(), max_size=6)),
)


@given(st.lists(DO, max_size=40))
def test_it_is_a_list_of_events_and_rows(steps: list[tuple[str, Any]]) -> None:
    unread, plain = UnreadEvents(), list[RunEvent | Row]()
    for number, (what, with_) in enumerate(steps):
        if what == "row":
            plain.append(row_of(with_, number))
            unread.parts.extend(plain[-1])  # type: ignore[arg-type]  # a row
        elif what == "event":
            event = QualityGiven(Where(*PLACE), float(number), 0.5, "user")
            assert unread.add(event) == len(plain)
            plain.append(event)
        elif what == "count":
            assert unread.count() == len(plain)
        elif what == "note":
            place = unread.place_of(known := min(with_, len(plain)))
            unread.note(place, known)
        elif what == "take":
            taken, plain[:with_] = plain[:with_], []
            assert unread.take(with_) == [event_of(each) if isinstance(each, tuple) else each for each in taken]
        elif what == "held":
            start = min(with_, len(plain))
            assert whole(unread.parts, unread.place_of(start)) == plain[start:]
        else:
            stays = with_[: len(plain)]
            plain[: len(stays)] = [each for each, stay in zip(plain, stays, strict=False) if stay]
            unread.keep(stays)
    assert whole(unread.parts, unread.place_of(0)) == plain
    assert bool(unread) == bool(plain)


@pytest.mark.parametrize("kind", sorted(FULL))
def test_a_row_has_as_many_parts_as_its_kind_says(kind: str) -> None:
    assert len(row_of(kind, 1)) == ROW_LENGTHS[kind]
