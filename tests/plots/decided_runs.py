"""Runs with many steering decisions."""

from __future__ import annotations

import random
from typing import Any

from noetic_nb.events import SteeringDecided, Where
from noetic_nb.runs import Run

WEIGHTS = {"allow": 8, "guide": 2, "ask": 1, "deny": 2}


def decided_run(turns: int, *, seed: int = 0) -> Run:
    """Return a run with up to nine decisions in most of its turns."""
    rng = random.Random(seed)
    run = Run(f"decided-{turns}")
    for turn in range(1, turns + 1):
        for _ in range(rng.choice([0, 3, 6, 9])):
            (action,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            faults = (("limit", "KeyError"),) if rng.random() < 0.02 else ()
            where = Where("desk", f"e{turn}", turn)
            call: Any = ("steering", "before_tool_call", "pay", {}, action, None, ("limit",), 0.2)
            run.append(SteeringDecided(where, 10.0 * turn, *call, faults=faults))
    return run
