"""Evidence that a step has failed."""

from __future__ import annotations

from typing import NamedTuple

from noetic_nb.lab._failing.steps import Step


class Evidence(NamedTuple):
    """A step with a reason to look there, and the words that say it."""

    step: Step
    reason: str
    text: str
