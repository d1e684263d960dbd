"""Views read immediately, as without thread support, to test their content; test_reading_thread.py tests the timing."""

from __future__ import annotations

import gc
from typing import Any

import ipywidgets
import pytest

from noetic_nb.widgets.base._reading_thread import READINGS


@pytest.fixture(autouse=True)
def reading_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("reads_later") is None:
        monkeypatch.setattr(READINGS, "has_threads", False)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collect the messages from widgets to the page."""
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(ipywidgets.Widget, "send", lambda self, content, buffers=None: messages.append(content))
    return messages


@pytest.fixture(scope="module")
def little_to_collect() -> None:
    """Exclude existing objects from garbage collection: late in the suite, each collection takes a third of a second."""
    gc.collect()
    gc.freeze()
