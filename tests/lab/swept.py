"""Metrics, rules and tools that sweeps send to workers, in a separate file because each worker imports it."""

from __future__ import annotations

import os
import signal
from typing import Any

import noetic_nb as nn
from noetic_nb.lab import first_stop
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook


def stopped(run: Run) -> float:
    return float(first_stop(run) is not None)


def decided(run: Run) -> float:
    return run.meta["replay"]["regulator"]["after"]["stops"]


def no_lookups_book() -> RuleBook:
    rules = RuleBook()

    @rules.rule("no_lookups", on="before_tool_call", tools="get_reservation_details")
    def no_lookups(call: Any) -> Any:
        return False, "Not now."

    return rules


def denied(run: Run) -> float:
    return run.meta["replay"]["decisions"]["after"].get("deny", 0)


class Fatal:
    """A metric that kills every process but one."""

    def __init__(self, spared: int) -> None:
        self.spared = spared

    def __call__(self, run: Run) -> float:
        if os.getpid() != self.spared:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0


@nn.tool
def find(place: int) -> str:
    """Find something."""
    return f"found {place}"


@nn.tool
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount:g}"


def at_most(count: int) -> RuleBook:
    rules = RuleBook()
    rules.at_most(count, "pay", id="most")
    return rules


def ran(run: Run) -> float:
    return run.meta["replay"]["calls"]["after"]["tool"]


def kept(run: Run) -> float:
    return len(run.meta["replay"]["kept"])


def apologised(run: Run) -> float:
    return sum([turn.text == "Sorry." for turn in run.turns])
