"""Every kind of step and every pattern has an example that runs, where a reader looks first."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from noetic_nb import steps

README = Path(__file__).parents[2] / "README.md"
KINDS = ["step.run", "step.llm", "step.tool", "branch", "fork", "spawn", "loop"]
PATTERNS = ["react", "ralph_wiggum", "recursive_llm", "task_tree", "dual_agent", "adaptive_plan"]


def ran_in(text: str) -> str:
    """Return the code of the examples in a text."""
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_step_is_run_in_the_readme(name: str) -> None:
    code = ran_in(README.read_text(encoding="utf-8"))

    assert re.search(rf"\bnn\.{re.escape(name)}\(", code)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_is_run_in_its_own_docstring(name: str) -> None:
    code = ran_in(getattr(steps, name).__doc__)

    assert f"{name}(" in code
    assert "asyncio.run(" in code
