"""A run saved as it grows: the file after a kill, in the next process, and beyond the size limit."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, QualityGiven, RunEvent, TurnStarted, Where
from noetic_nb.runs import Run, load_run, record
from noetic_nb.runs._recording import autosave as autosaving
from noetic_nb.runs._recording.retained_turns import KeptTurn, with_dropped
from noetic_nb.runs._save import THE_END, member_ends
from tests.runs.factories import Desk, conversation
from tests.runs.seeded_run import harness


def turn_of(number: int, *, thread: str = "t1") -> list[RunEvent]:
    """Return the events of one turn."""
    return [event for event in conversation(number, thread=thread) if event.where.turn == number]


def numbers(run: Run) -> list[int]:
    return [turn.where.turn for turn in run.turns]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl.gz"


KILLED = """
import asyncio, os, signal, sys
import noetic_nb as nn
from tests.runs.seeded_run import harness

async def main():
    agent = harness(first=int(sys.argv[2]))
    run = nn.record(agent, autosave=sys.argv[1])
    await agent.execute("Where is order A17?", thread_id="ann")
    await agent.execute("Thanks!", thread_id="ann")
    print(len(run.events), len(run.turns), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_killed_process_leaves_every_finished_turn_and_the_next_one_goes_on(path: Path) -> None:
    for session in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(session)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        events, turns = map(int, done.stdout.split())
        assert turns == 2 * session
        found = load_run(path)
        assert len(found.events) == events
        assert [turn.outcome for turn in found.turns] == ["success"] * turns
        assert found.turns[-1].text == "You are welcome."
    assert found.run_id == "run_1_1"
    assert found.meta["created_ms"] == 5_000


def test_each_finished_turn_is_in_the_file_when_its_last_event_was_taken(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)

    for number in range(1, 6):
        desk.emit(*turn_of(number))
        assert load_run(path) == run
    desk.emit(*turn_of(6)[:4])
    assert numbers(load_run(path)) == [1, 2, 3, 4, 5]
    run.stop_recording()
    assert load_run(path) == run


def test_an_execution_that_is_held_open_is_saved_with_each_of_its_steps(path: Path) -> None:
    async def main() -> Run:
        agent = nn.AgentHarness(nn.AgentConfig(name="desk"))
        run = nn.record(agent, autosave=path)
        async with agent.execution() as ctx:
            await agent.run(nn.step.run("double", lambda n, ctx: 2 * n), 21, ctx)
            assert load_run(path).events == run.events
        return run

    nn.testing.drive_loop(main())


def test_turns_that_run_at_the_same_time_come_back_in_the_order_of_their_events(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    ann, ben = turn_of(1, thread="ann"), turn_of(1, thread="ben")

    for pair in zip(ann, ben, strict=True):
        desk.emit(*pair)

    assert load_run(path) == run


def test_what_happens_between_turns_is_saved_at_once(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    desk.emit(*turn_of(1))

    desk.emit(
        QualityGiven(Where("t1", "e1", 1), 9.0, 0.25, "person"), QualityGiven(Where("t1", "", 0), 9.0, 0.5, "late")
    )

    assert load_run(path) == run
    run.meta["notes"] = "Odd."
    desk.emit(*turn_of(2))
    assert load_run(path).meta["notes"] == "Odd."


def test_a_turn_costs_the_same_however_long_the_run_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = os.write
    monkeypatch.setattr(autosaving.os, "write", lambda fd, data: written.append(len(data)) or write(fd, data))
    desk = Desk()
    run = record(desk, autosave=path)

    for number in range(1, 101):
        desk.emit(*turn_of(number))

    early, late = sum(written[:20]), sum(written[-20:])
    assert len(written) < 250
    assert late < 1.2 * early
    assert load_run(path) == run


def test_running_the_cell_again_goes_on_with_the_same_run(path: Path) -> None:
    first, second = Desk(), Desk()
    run = record(first, autosave=path)
    first.emit(*turn_of(1))

    assert record(second, autosave=str(path)) is run
    assert record(first, run=run, autosave=path) is run
    second.emit(*turn_of(2))

    assert load_run(path) == run
    assert numbers(run) == [1, 2]


def test_a_run_that_was_stopped_or_saved_goes_on_from_its_file(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    desk.emit(*turn_of(1))
    run.stop_recording()
    desk = Desk()
    again = record(desk, autosave=path)
    desk.emit(*turn_of(2))
    again.stop_recording()
    assert again is not run
    assert numbers(load_run(path)) == [1, 2]

    again.save(path)  # one part, like any saved run
    desk = Desk()
    third = record(desk, autosave=path)
    desk.emit(*turn_of(3))

    assert load_run(path) == third
    assert numbers(third) == [1, 2, 3]


def test_a_thread_that_begins_anew_has_turns_of_its_own(path: Path) -> None:
    for _ in range(3):
        desk = Desk()
        run = record(desk, autosave=path, max_turns=4)
        desk.emit(*turn_of(1), *turn_of(2))
        run.stop_recording()

    assert numbers(run) == [1, 2, 1, 2]
    assert load_run(path) == run
    assert len(run.events) == 4 * len(turn_of(1))
    assert run.meta["dropped"] == [{"thread_id": "t1", "first": 1, "last": 2}]


def test_what_the_agent_was_before_it_changed_is_kept(path: Path) -> None:
    for name in ("desk", "desk", "shop"):
        desk = Desk(name)
        run = record(desk, autosave=path)
        desk.emit(*turn_of(1))
        run.stop_recording()

    meta = load_run(path).meta
    assert meta["config"] == {"name": "shop"}
    assert meta["earlier"] == [{"config": {"name": "desk"}, "models": ["scripted"], "events": 30}]


def test_no_secret_is_in_the_file(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    key = "sk-abcdefghijklmnopqrstuvwx"
    run.meta["config"] = {"api_key": key}
    desk.emit(TurnStarted(Where("t1", "e1", 1), 0.0, "turn1", 0, 0, f"use {key}"))
    run.stop_recording()

    assert key not in gzip.decompress(path.read_bytes()).decode()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("options", [{"max_turns": 8}, {"max_bytes": 40_000}], ids=str)
def test_beyond_its_bound_the_oldest_turns_go_whole_from_memory_and_file(options: dict[str, int], path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path, **options)
    sizes = []

    for number in range(1, 61):
        desk.emit(*turn_of(number))
        sizes.append(path.stat().st_size)
        assert load_run(path) == run

    kept = numbers(run)
    assert kept == list(range(kept[0], 61))
    assert all(len(turn.model_calls) == 2 for turn in run.turns)
    assert len([event for event in run.events if event.where.turn == kept[0]]) == len(turn_of(1))
    assert run.meta["dropped"] == [{"thread_id": "t1", "first": 1, "last": kept[0] - 1}]
    assert max(sizes[30:]) <= 1.1 * max(sizes[:30])
    assert len(kept) <= 20
    with pytest.raises(NoeticError, match="dropped"):
        run.log("t1")
    assert list(run.to_frame("turns")["turn"]) == kept


def test_a_run_without_a_file_is_bounded_too() -> None:
    desk = Desk()
    run = record(desk, max_turns=4)
    events, seen = run.events, list[RunEvent]()
    run.subscribe(seen.append)

    for number in range(1, 11):
        desk.emit(*turn_of(number))

    assert numbers(run) == [7, 8, 9, 10]
    assert events == run.events
    assert len(seen) == 10 * len(turn_of(1))


def test_a_turn_under_way_and_the_newest_turn_stay(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path, max_turns=2)
    slow = turn_of(1, thread="slow")
    desk.emit(*slow[:5])

    for number in range(1, 6):
        desk.emit(*turn_of(number))
    desk.emit(*slow[5:])

    assert {turn.where.thread_id for turn in run.turns} == {"slow", "t1"}
    assert numbers(run)[-1] == 5
    assert len([event for event in run.events if event.where.thread_id == "slow"]) == len(slow)
    run.stop_recording()
    assert load_run(path) == run


def test_what_came_before_the_oldest_turn_goes_with_it(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path, max_turns=2)
    seeded = ItemsAppended(Where("t1", "", 0), 0.0, 0, (), "seed")
    desk.emit(seeded)
    for number in range(1, 5):
        desk.emit(*turn_of(number))

    assert seeded not in run.events
    assert load_run(path) == run


@settings(max_examples=15)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=40),
    bound=st.integers(1, 6),
    restart=st.integers(0, 40),
)
def test_memory_and_file_agree_whatever_ran_side_by_side(
    steps: list[tuple[str, int]], bound: int, restart: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("runs") / "run.jsonl.gz"
    desk = Desk()
    run = record(desk, autosave=path, max_turns=bound)
    queues: dict[str, list[RunEvent]] = {name: conversation(6, thread=name) for name in "abc"}

    for place, (name, count) in enumerate(steps):
        if place == restart:
            run.stop_recording()
            desk = Desk()
            run = record(desk, autosave=path, max_turns=bound)
        for _ in range(5 * count):
            if queues[name]:
                desk.emit(queues[name].pop(0))
    run.stop_recording()

    assert load_run(path) == run
    kept = [(turn.where.thread_id, turn.where.turn) for turn in run.turns]
    dropped = [
        (entry["thread_id"], number)
        for entry in run.meta.get("dropped", [])
        for number in range(entry["first"], entry["last"] + 1)
    ]
    assert len(set(dropped)) == len(dropped)
    begun = {name for name, _ in [*kept, *dropped]}
    assert begun == {name for place, (name, _) in enumerate(steps)}


def test_a_part_that_was_not_finished_is_left_out_and_the_rest_stays(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    for number in (1, 2, 3):
        desk.emit(*turn_of(number))
    run.stop_recording()
    whole = path.read_bytes()
    ends, _ = member_ends(path)
    assert ends[-1] == len(whole) - len(THE_END)

    near = {place + step for place in ends for step in (-9, -8, -1, 0, 1, 2, 11)}
    for cut in sorted(place for place in {*near, *range(ends[0] + 1, len(whole), 97)} if ends[0] < place < len(whole)):
        path.write_bytes(whole[:cut])
        found = load_run(path)
        assert found.events == run.events[: len(found.events)]
        assert len(found.turns) == len([end for end in ends[1:] if end <= cut][::2])  # a turn, and its grade
        if cut in (ends[0] + 1, ends[1], ends[2] - 1, len(whole) - 1):
            desk = Desk()
            again = record(desk, autosave=path)
            desk.emit(*turn_of(9))
            again.stop_recording()
            assert load_run(path) == again


def test_damage_before_the_last_part_is_refused(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    for number in (1, 2, 3):
        desk.emit(*turn_of(number))
    run.stop_recording()
    whole = bytearray(path.read_bytes())
    ends, _ = member_ends(path)
    whole[ends[1] - 6] ^= 0xFF

    path.write_bytes(whole)

    with pytest.raises(NoeticError, match="damaged"):
        load_run(path)
    path.write_bytes(whole[: ends[0] - 3])
    with pytest.raises(NoeticError, match="ends too early"):
        load_run(path)


def test_a_full_disk_is_said_and_made_good(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    desk.emit(*turn_of(1))
    write = os.write

    def full(fd: int, data: Any) -> int:
        write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(autosaving.os, "write", full)
        desk.emit(*turn_of(2), *turn_of(3))
    assert "NOT SAVED: No space left on device" in repr(run)
    assert "NOT SAVED: No space left on device" in run._repr_html_()
    assert caplog.text.count("No space left") == 1
    assert numbers(load_run(path)) == [1]

    desk.emit(*turn_of(4))

    assert "NOT SAVED" not in repr(run)
    assert load_run(path) == run


def test_a_file_that_something_else_took_is_left_alone(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    desk.emit(*turn_of(1))
    other = Run("other").save(path)
    before = path.read_bytes()

    desk.emit(*turn_of(2))

    assert "NOT SAVED: the file was moved, replaced" in repr(run)
    assert other.read_bytes() == before
    assert record(Desk(), autosave=path).run_id == "other"


def test_another_process_is_refused_while_one_saves(path: Path) -> None:
    run = record(Desk(), autosave=path)
    program = (
        f"import noetic_nb as nn\nfrom tests.runs.factories import Desk\nnn.record(Desk(), autosave={str(path)!r})"
    )

    refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    run.stop_recording()
    taken = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert "Another process saves a run to this file" in refused.stderr
    assert taken.returncode == 0, taken.stderr


@pytest.mark.parametrize("options", [{"max_bytes": 0}, {"max_turns": True}, {"max_turns": 1.5}], ids=str)
def test_a_bound_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_BOUND"):
        record(Desk(), **options)


def test_a_file_with_another_run_and_a_folder_that_is_not_there_are_refused(path: Path) -> None:
    Run("other", events=conversation(1)).save(path)

    with pytest.raises(NoeticConfigError, match="AUTOSAVE_EXISTS"):
        record(Desk(), run=Run("mine"), autosave=path)
    with pytest.raises(NoeticError, match="cannot be saved"):
        record(Desk(), autosave=path.parent / "none" / "run.jsonl.gz")
    path.write_text("no run")
    with pytest.raises(NoeticError, match="not a gzip file"):
        record(Desk(), autosave=path)


def test_a_bound_may_be_changed_and_a_given_run_keeps_its_own(path: Path) -> None:
    desk = Desk()
    run = record(desk, run=Run("mine", events=conversation(6)))
    record(desk, run=run)
    assert numbers(run) == [1, 2, 3, 4, 5, 6]

    record(desk, run=run, max_turns=4)
    assert numbers(run) == [4, 5, 6]
    record(desk, run=run, max_turns=2)
    record(Desk(), run=run)
    desk.emit(*turn_of(7))

    assert numbers(run) == [7]
    saved = record(desk, autosave=path, max_turns=3)
    record(Desk(), autosave=path, max_turns=1)
    desk.emit(*turn_of(1), *turn_of(2))
    assert numbers(saved) == numbers(load_run(path)) == [2]


def test_a_run_with_a_secret_goes_on_in_its_file(path: Path) -> None:
    desk = Desk()
    run = record(desk, autosave=path)
    desk.emit(TurnStarted(Where("t1", "e1", 1), 0.0, "turn1", 0, 0, "use sk-abcdefghijklmnopqrstuvwx"))
    run.stop_recording()

    assert record(desk, run=run, autosave=path) is run
    desk.emit(*turn_of(2))

    assert len(load_run(path).events) == len(run.events)


def test_a_given_run_is_saved_with_what_it_has(path: Path) -> None:
    desk = Desk()
    run = record(desk, run=Run("mine", events=conversation(3)), autosave=path)
    desk.emit(*turn_of(4))

    assert load_run(path) == run
    assert numbers(run) == [1, 2, 3, 4]


def test_what_was_dropped_of_very_many_threads_stays_small() -> None:
    dropped = with_dropped([], [KeptTurn(f"t{n}", 1) for n in range(3_000)])
    dropped = with_dropped(dropped, [KeptTurn("last", 1)])

    assert len(dropped) == 1_000
    assert dropped[0] == {"thread_id": None, "turns": 2_002}
    assert dropped[-1] == {"thread_id": "last", "first": 1, "last": 1}


def test_a_seeded_run_is_saved_as_it_grows_to_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):

        async def main(path: Path) -> None:
            agent = harness()
            run = nn.record(agent, autosave=path)
            await agent.execute("Where is order A17?", thread_id="ann")
            run.stop_recording()

        nn.testing.drive_loop(main(tmp_path / name))
        files.append((tmp_path / name).read_bytes())

    assert files[0] == files[1]
