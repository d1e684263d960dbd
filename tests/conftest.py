"""What holds for the whole suite: the order of its groups, time that passes at once, and patience with slow machines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from noetic_nb.testing.event_loop import VirtualTimeLoop

# A shared machine may stall for a second; that is not a property of the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

BROWSER = "tests/browser/"
LONG_S = 900
"""Limit of a test that starts other processes, seconds: a hundred kills take minutes."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Any]:
    return {"loop": VirtualTimeLoop if item.get_closest_marker("virtual_time") else asyncio.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if BROWSER in item.nodeid:
            # One server and one browser, on one worker: two would only wait for each other.
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.timeout(LONG_S))
        if item.get_closest_marker("kill"):
            item.add_marker(pytest.mark.timeout(LONG_S))
    # The browser's driver keeps an event loop running in this thread until the session ends, and two loops cannot share
    # a thread: its tests come last.
    items.sort(key=lambda item: BROWSER in item.nodeid)
