"""Stretches of rows that are found again, so that turns which are alike are measured in one go."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import TurnCompleted, TurnStarted, Where
from noetic_nb.late_events import ROW_LENGTHS
from noetic_nb.runs.events.row_stretches import RowStretch, RowStretches
from noetic_nb.runs.recording.kept_turns import KeptTurns

KINDS = sorted(ROW_LENGTHS)
PLACES = [("t1", "e1", 1, 0), ("t1", "e2", 2, 0), ("t2", "e3", 1, 0)]
EVENT = TurnStarted(Where(*PLACES[0]), 0.0, "turn_1", 0, 1, "Where is it?", None, None)
SPAN, STEP, STATE = "hook_called", "step_started", "layer_state_changed"


def row(kind: str, text: str = "x", place: Any = PLACES[0]) -> list[Any]:
    """Return a row of which every field is a text, be it one that is the kind of a row."""
    if kind == "items_appended":
        return [kind, place, 0.0, 0, (text,), "user"]
    return [kind, place, *[text] * (ROW_LENGTHS[kind] - 2)]


def turn(place: Any, kinds: list[str], text: str) -> list[list[Any]]:
    """Return the parts of each event of a turn; all its rows but the last two stand between its events."""
    started = TurnStarted(Where(*place), 0.0, f"turn {place}", 0, 1, text, None, None)
    ended = TurnCompleted(Where(*place), 0.0, f"turn {place}", "success", 0.0, "", 0, 0, None, 0, 0, None)
    rows = [row(kind, text, place) for kind in kinds]
    return [[started], *rows[:-2], [ended], *rows[-2:]]


@given(
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=12),
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from([0, 0, 0, 0, 1])), max_size=14),
)
def test_a_stretch_stands_where_the_rows_of_a_turn_have_its_kinds_and_nowhere_else(
    kinds: list[str], rows: list[tuple[str, str, int]]
) -> None:
    stretch = RowStretch(kinds, {}, set())
    parts = [EVENT, *[part for kind, text, place in rows for part in row(kind, text, PLACES[place])]]

    first = rows[: len(kinds)]
    assert stretch.stands_at(parts, 1, PLACES[0]) is (
        [kind for kind, _, _ in first] == kinds and all(place == 0 for _, _, place in first)
    )


def test_a_stretch_is_not_found_where_it_is_cut_off() -> None:
    stretch, parts = RowStretch([SPAN, STEP], {}, set()), [*row(SPAN), *row(STEP)]
    assert stretch.stands_at(parts, 0, PLACES[0])
    assert not stretch.stands_at(parts[:-1], 0, PLACES[0])


def test_a_stretch_is_known_when_it_has_come_twice_of_late() -> None:
    stretches = RowStretches({SPAN: 10}, {STATE})
    many = [[SPAN] * count + [STEP, STATE] for count in range(2, 11)]

    def known() -> list[int]:
        parts = [[part for kind in kinds for part in row(kind)] for kinds in many]
        return [number for number, each in enumerate(parts) if stretches.find(each, 0, PLACES[0])]

    stretches.learn(many[0])
    assert known() == []
    for kinds in many:  # the first one for the second time
        stretches.learn(kinds)
    found = stretches.find([part for kind in many[0] for part in row(kind)], 0, PLACES[0])
    assert found is not None
    assert (found.count, found.size, found.alike, len(found.others)) == (4, 20, [(24, 30)], 1)
    assert known() == [0]
    for kinds in many[1:]:
        stretches.learn(kinds)
    assert known() == [*range(1, 9)]  # as many as are kept


@given(
    st.lists(
        st.lists(st.sampled_from([SPAN, STEP, STATE, "items_appended"]), min_size=2, max_size=9),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_what_is_taken_in_one_go_belongs_to_the_turn_and_is_as_large_as_one_by_one(
    patterns: list[list[str]], data: Any
) -> None:
    draw = st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from(patterns), st.integers(0, 3))
    events: list[list[Any]] = []
    for number, (thread, kinds, beside) in enumerate(data.draw(st.lists(draw, min_size=6, max_size=30)), 1):
        made = turn((thread, f"e{number}", number, 0), kinds, "x" * number)
        # Some of the turns before go on in the middle of this one.
        events += made[:2]
        events += [each for each in events[-12:-2] if type(each[0]) is str][:beside]
        events += made[2:]
    parts = [part for event in events for part in event]
    one_by_one, at_once = KeptTurns(), KeptTurns()

    for event in events:
        one_by_one.take(tuple(event) if type(event[0]) is str else event[0])
    place = 0
    while place < len(parts):
        after = place + (ROW_LENGTHS[parts[place]] if type(parts[place]) is str else 1)
        at_once.take(tuple(parts[place:after]) if type(parts[place]) is str else parts[place])
        place = at_once.take_rest(parts, after, len(parts))

    def facts(turns: KeptTurns) -> list[Any]:
        return [(turn.thread_id, turn.turn, turn.serial, turn.size, turn.is_over) for turn in turns.all]

    assert facts(at_once) == facts(one_by_one)
    assert [turn.serial for turn in at_once.owners] == [turn.serial for turn in one_by_one.owners]
    assert at_once.size == one_by_one.size
