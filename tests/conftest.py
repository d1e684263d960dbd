"""What holds for the whole suite: the order of its groups, and patience with slow machines."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A shared machine may stall for a second; that is not a property of the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

BROWSER = "tests/browser/"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The browser's driver keeps an event loop running in this thread until the session ends, and two loops cannot share
    # a thread: its tests come last.
    items.sort(key=lambda item: BROWSER in item.nodeid)
