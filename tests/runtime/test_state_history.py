"""The history of layer states stays within its byte limit, whichever layers write, wherever and how often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import Where
from noetic_nb.items import freeze
from noetic_nb.runtime._threads import state_history
from noetic_nb.runtime._threads.state_history import StateHistory, size_of
from noetic_nb.steering._ledger import Entry, Ledger, State
from noetic_nb.testing import FakeClock

MOST = 100_000
SIZES = {"small": 50, "middle": 2_000, "large": 9_000}


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_history, "MAX_BYTES", MOST)
    monkeypatch.setattr(state_history, "MAX_SCOPES", 40)
    monkeypatch.setattr(state_history, "MAX_CHANGES", 12)


def write(history: StateHistory, layer_id: str, scope_key: str, state: Any, hook: str = "store") -> None:
    history.note(layer_id, scope_key, Where("t1", "e1", 1), hook, state)


def bytes_of(history: StateHistory, *, older: bool = False) -> int:
    """Measure all recorded states, or all but the newest of each layer and scope."""
    states = [[row.state for row in written.rows] for written in history._written.values()]
    return sum([size_of(state) for found in states for state in (found[:-1] if older else found)])


@given(st.lists(st.tuples(st.sampled_from([*SIZES]), st.integers(0, 4)), min_size=80, max_size=160))
def test_states_of_many_scopes_stay_within_their_bytes(writes: list[tuple[str, int]]) -> None:
    history = StateHistory(FakeClock())
    for count, (layer_id, scope) in enumerate(writes):
        write(history, layer_id, f"s{scope}", ["x" * (SIZES[layer_id] + count)])
        assert bytes_of(history, older=True) <= MOST


@given(st.lists(st.tuples(st.sampled_from([*SIZES]), st.integers(0, 9), st.booleans()), max_size=80))
def test_what_is_counted_is_what_is_there(writes: list[tuple[str, int, bool]]) -> None:
    history = StateHistory(FakeClock())
    for layer_id, scope, forgets in writes:
        write(history, layer_id, f"s{scope}", ["x" * SIZES[layer_id]])
        if forgets:
            history.forget_changes(layer_id, f"s{scope}")

    assert history._bytes == bytes_of(history)


def test_a_state_that_grows_at_once_is_found_with_its_write() -> None:
    history = StateHistory(FakeClock())
    for number in range(5):
        write(history, "notes", "s", [number])
    write(history, "notes", "s", [5, "x" * MOST])

    assert [change.state[0] for change in history.changes("notes", "s")] == [5]
    assert history.is_forgotten("notes", "s")


def test_whoever_looks_at_a_write_sees_its_size() -> None:
    history = StateHistory(FakeClock())
    for number in range(20):
        write(history, "notes", "s", {"text": "x" * 10 * number})

    sizes = [change.size for change in history.changes("notes", "s")]
    newest = size_of({"text": "x" * 190})
    assert len(sizes) == 12
    assert 0 < sizes[0] <= sizes[-1] == newest


def test_the_arguments_that_a_ledger_is_about_count() -> None:
    history, args = StateHistory(FakeClock()), freeze({"text": "x" * MOST})
    for number in range(8):
        denied = Entry({"kind": "tool_call", "toolArgs": {"text": "y" * MOST + str(number)}})
        for entry in (Entry({"kind": "tool_call", "toolArgs": args}), denied):
            write(history, "steering", f"e{number}", State({"ledger": Ledger([entry]), "pendingAsync": []}))

    sizes = [change.size for number in range(8) for change in history.changes("steering", f"e{number}")]
    assert min(sizes) > MOST
    assert len(sizes) == 8  # the newest of each execution, whatever its size
