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


def pytest_itemcollected(item: pytest.Item) -> None:
    if BROWSER in item.nodeid:
        item.add_marker(pytest.mark.timeout(LONG_S))
    if item.get_closest_marker("kill"):
        item.add_marker(pytest.mark.timeout(LONG_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the browser's tests on one worker, which begins with them; everything else goes to whichever is free.

    One server and one browser are enough: two would only wait for each other.
    """
    from xdist.scheduler import LoadScopeScheduling

    class BrowserTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return BROWSER if BROWSER in nodeid else nodeid

    return BrowserTogether(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The browser's driver keeps an event loop running in this thread until the session ends, and two loops cannot share
    # a thread: its tests come last.
    items.sort(key=lambda item: BROWSER in item.nodeid)
