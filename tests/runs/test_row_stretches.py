"""Stretches of rows that are found again, so that turns which are alike are measured in one go."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import TurnStarted, Where
from noetic_nb.late_events import ROW_LENGTHS
from noetic_nb.runs.events.event_sizes import EventSizes
from noetic_nb.runs.events.row_stretches import RowStretch, stretches_between

KINDS = sorted(ROW_LENGTHS)
EVENT = TurnStarted(Where("t1", "e1", 1), 0.0, "turn_1", 0, 1, "Where is it?", None, None)
SPAN, STEP = "hook_called", "step_started"


def row(kind: str, text: str = "x") -> list[Any]:
    """Return a row of which every field is a text, be it one that is the kind of a row."""
    if kind == "items_appended":
        return [kind, ("t1", "e1", 1, 0), 0.0, 0, (text,), "user"]
    return [kind, ("t1", "e1", 1, 0), *[text] * (ROW_LENGTHS[kind] - 2)]


@given(
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=12),
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), max_size=14),
)
def test_a_stretch_stands_where_the_rows_have_its_kinds_and_nowhere_else(
    kinds: list[str], rows: list[tuple[str, str]]
) -> None:
    stretch = RowStretch(kinds, {})
    parts = [EVENT, *[part for kind, text in rows for part in row(kind, text)]]

    assert stretch.stands_at(parts, 1) is ([kind for kind, _ in rows[: len(kinds)]] == kinds)


def test_a_stretch_is_not_found_where_it_is_cut_off() -> None:
    parts = [*row(SPAN), *row(STEP)]
    assert RowStretch([SPAN, STEP], {}).stands_at(parts, 0)
    assert not RowStretch([SPAN, STEP], {}).stands_at(parts[:-1], 0)


def test_an_event_that_is_no_row_ends_a_stretch() -> None:
    parts = [EVENT, *row(SPAN) * 3, *row(STEP), EVENT, *row(STEP) * 2, EVENT]
    marks = [place for place, part in enumerate(parts) if part is EVENT]
    (stretch,) = stretches_between(parts, marks, {SPAN: 10})
    assert (stretch.count, stretch.size, len(stretch.unknown)) == (4, 30, 1)


@given(
    st.lists(st.lists(st.sampled_from([SPAN, STEP, "items_appended"]), max_size=8), min_size=1, max_size=4), st.data()
)
def test_what_is_found_in_one_go_is_as_many_and_as_large_as_one_by_one(patterns: list[list[str]], data: Any) -> None:
    turns = data.draw(st.lists(st.sampled_from(patterns), min_size=30, max_size=60))
    parts: list[Any] = []
    for number, kinds in enumerate(turns):
        parts.append(EVENT)
        for kind in kinds:
            parts += row(kind, "x" * number)

    count, size, end = EventSizes().of_all(parts * 12, 0)

    heads, at = [], 0
    while at < len(parts):
        heads.append(at)
        at += ROW_LENGTHS[parts[at]] if type(parts[at]) is str else 1
    sizes, after = EventSizes(), [*heads[1:], len(parts)]
    one_by_one = [
        sizes.of(tuple(parts[a:b]) if type(parts[a]) is str else parts[a]) for a, b in zip(heads, after, strict=True)
    ]
    assert (count, size, end) == (12 * len(heads), 12 * sum(one_by_one), 12 * len(parts))
