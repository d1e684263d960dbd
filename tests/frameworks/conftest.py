"""Tests with the frameworks themselves: only in their own environment, which `make frameworks` sets up."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

FRAMEWORKS = ("langgraph", "langchain", "pydantic_ai", "agents", "strands", "opentelemetry.instrumentation.langchain")


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:
        return True


MISSING = [name for name in FRAMEWORKS if _is_missing(name)]


def pytest_itemcollected(item: pytest.Item) -> None:  # called for the items of this folder only
    if MISSING:
        reason = f"needs an environment of its own: make frameworks (missing: {', '.join(MISSING)})"
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection: the models are in this process."""
    import socket

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a framework tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    # These would send what they trace.
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "0")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
