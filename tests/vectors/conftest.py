"""Say at the end how many golden vectors there are and how many of them do not bind."""

from __future__ import annotations

import pytest

from tests.vectors.cases import HERE, tally


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran: dict[str, int] = {}
    for report in terminalreporter.getreports("passed"):
        if report.when == "call" and "tests/vectors/" in report.nodeid and "[" in report.nodeid:
            family = report.nodeid.split("[", 1)[1].split("-", 1)[0]
            ran[family] = ran.get(family, 0) + 1
    for path in sorted((HERE / "runtime").glob("*.json")):
        total, divergent = tally(path.stem)
        if path.stem in ran:
            terminalreporter.write_line(
                f"vectors {path.stem}: {ran[path.stem]} of {total} passed, {divergent} divergent left out"
            )
