"""Studies: a page shows the figures that its script computes today. The suite runs one script, `make studies` all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.matrix import matrix

ROOT = Path(__file__).parents[2]
PAGES = {
    "prompt_caching": "prompt_caching",
    "token_counts": "token_counts",
    "first_failure": "first_failure",
    "stopping_value": "stopping_value",
    "provenance_rules": "provenance",
    "failure_detectors": "failure_detectors",
}
"""The studies that read only data of this repository, and their pages."""


@matrix(("script", "page"), [*PAGES.items()], keep=1)
def test_a_page_shows_the_figures_of_its_script(script: str, page: str) -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "studies" / f"{script}.py"], capture_output=True, text=True, check=True
    ).stdout
    kept = (ROOT / "docs" / "studies" / f"{page}.md").read_text(encoding="utf-8")

    assert figures(made) == figures(kept)


def figures(page: str) -> list[str]:
    """Return the lines of a page, without the versions that it was written with."""
    return [line for line in page.splitlines() if "noetic_nb 0." not in line]
