"""What a learner reads: why, and one more hint with each try; and what `check` leaves behind, which is nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noetic_nb._core.arguments import ArgumentError
from noetic_nb.lessons import EXERCISES, check
from noetic_nb.lessons import _grading as verdicts

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_tries", type(verdicts._tries)())


def test_each_wrong_try_tells_one_more_hint() -> None:
    hints = EXERCISES["1.1"].hints
    told = [check("1.1", lambda sizes, room: []).hints for _ in range(len(hints) + 2)]

    assert told == [hints[:number] for number in (0, 1, 2, 3, 3)]


def test_tries_of_one_exercise_do_not_count_for_another() -> None:
    check("1.1", None)
    check("1.1", None)

    assert check("4.1", None).hints == ()


def test_a_right_answer_is_true_and_tells_no_hint() -> None:
    check("4.3", None)
    verdict = check(
        "4.3",
        lambda runs, threshold: (
            sum(sum(t[threshold:]) for g, t in runs if not g),
            sum(g and len(t) >= threshold for g, t in runs),
        ),
    )

    assert verdict
    assert repr(verdict) == "4.3: right."


def test_what_an_answer_raises_is_said_without_its_secrets() -> None:
    def answer(marks: list[float]) -> bool:
        raise ValueError("api_key=sk-abcdefghijklmnopqrstuvwxyz012345")

    verdict = check("4.1", answer)

    assert not verdict
    assert "raised ValueError" in repr(verdict)
    assert "abcdefghijkl" not in repr(verdict)


async def test_it_can_be_asked_inside_a_running_loop() -> None:
    assert not check("1.2", list)


def test_an_exercise_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ArgumentError, match=r"1\.1, 1\.2, 2\.1"):
        check("9.9", None)


def test_checks_open_no_connection_and_write_no_file(tmp_path: Path) -> None:
    code = """
import asyncio, socket, sys, noetic_nb.lessons as lessons
asyncio.new_event_loop().run_until_complete(asyncio.sleep(0))
forbidden = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        forbidden.append(event)
    if event == "open" and any(flag in str(args[1] or "") for flag in "wax+") and not str(args[0]).endswith(".pyc"):
        forbidden.append((event, str(args[0])))
sys.dont_write_bytecode = True
sys.addaudithook(hook)
for each in lessons.EXERCISES:
    lessons.check(each, lambda *given: None)
    lessons.check(each, None)
print(forbidden)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": ""},
        timeout=100,
    )

    assert done.stdout.strip() == "[]"
    assert not list(tmp_path.iterdir())


def test_an_exercise_without_its_quotes_is_understood() -> None:
    with pytest.raises(ArgumentError, match=r"Write check\('1.1', ...\), in quotes"):
        check(1.1, len)  # type: ignore[arg-type]


@pytest.mark.parametrize("exercise", ["1.1", "1.2", "3.1"])
def test_an_answer_that_was_called_already_is_told_to_be_passed_itself(exercise: str) -> None:
    name = EXERCISES[exercise].answer
    assert f"Pass the function itself: check('{exercise}', {name})." in check(exercise, 5).why
