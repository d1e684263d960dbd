"""Views read at once, as where there are no threads: what they read is tested here. When they read: test_reading_thread.py."""

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
    """What widgets send to the page."""
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(ipywidgets.Widget, "send", lambda self, content, buffers=None: messages.append(content))
    return messages


@pytest.fixture(scope="module")
def little_to_collect() -> None:
    """Keep what is there out of looks for garbage: late in the suite each takes a third of a second."""
    gc.collect()
    gc.freeze()
