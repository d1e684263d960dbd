"""An agent is killed while it pays: a limit holds over all its processes. ``NOETIC_NB_KILLS=100`` runs it whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.paying_agent import LIMIT
from tests.matrix import matrix

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("NOETIC_NB_KILLS", "3"))
# Lines that a whole turn says, and some.
MOST_LINES = 40


class Process:
    """One process of the agent, which goes on when it is told to."""

    def __init__(self, path: Path, name: str, key: str) -> None:
        self.agent = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.paying_agent", str(path), name, *([key] if key else [])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=0,
        )

    def line(self) -> list[str]:
        assert self.agent.stdout is not None
        return self.agent.stdout.readline().split()

    def go_on(self) -> None:
        assert self.agent.stdin is not None
        self.agent.stdin.write(".")

    def kill(self) -> None:
        self.agent.kill()
        self.agent.wait()
        for stream in (self.agent.stdin, self.agent.stdout):
            assert stream is not None
            stream.close()


@pytest.mark.kill
@matrix("key", {"key": "key", "no key": ""}, keep=1)
def test_a_limit_holds_over_kills_while_the_model_words_its_calls_anew(tmp_path: Path, key: str) -> None:
    path, dice, kills, paid, warned = tmp_path / "agent.db", random.Random(), 0, [], []
    for turn in range(max(1, KILLS // 4)):
        paid.clear()
        is_over = False
        for number in range(4):
            process = Process(path, f"{turn}x{number}", key)
            # The last process of a turn is not killed; the others are, at a question or a payment, or at some moment after it.
            left = dice.randrange(1, 5) if number < 3 else MOST_LINES
            while left and not is_over:
                line, left = process.line(), left - 1
                if line[0] == "pay":
                    paid.append(line[1])
                if line[0] == "done":
                    warned += line[1:]
                    is_over = True
                if left or is_over or dice.random() < 0.3:
                    process.go_on()
            if is_over:
                process.agent.wait(60)
                process.kill()
                break
            kills += 1
            process.kill()
        assert is_over
        # What was paid under the key of a payment is that payment.
        assert 0 < len(set(paid)) <= LIMIT, paid
    print(f"\n{kills} kills, no limit passed, {len(warned)} warnings")


@pytest.mark.kill
def test_three_kills_pay_once_and_the_turn_says_so(tmp_path: Path) -> None:
    path, paid = tmp_path / "agent.db", []
    for number in range(3):
        process = Process(path, f"n{number}", "key")
        while (line := process.line())[0] != "pay" and number == 0:
            process.go_on()
        if line[0] == "pay":
            paid.append(line[2])
        process.kill()

    process = Process(path, "last", "key")
    while (line := process.line())[0] != "done":
        if line[0] == "pay":
            paid.append(line[2])
        process.go_on()
    process.go_on()
    process.kill()

    assert paid == ["n00", "last0"]
    assert line[1:] == ["call_unfinished"]
