"""A worker reports a test once, not six times: what says nothing costs two processes half a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pytest_plugin_registered(plugin: object) -> None:
    """Leave out that a test began, and set-up or teardown that passed without a word, where nobody asked how long they took."""
    if type(plugin).__name__ != "WorkerInteractor":
        return
    worker: Any = plugin
    option, send = worker.config.option, worker.sendevent
    if option.xmlpath or option.durations is not None or option.verbose > 0:
        return

    def sendevent(name: str, **given: Any) -> None:
        if says_something(name, given.get("data", {})):
            send(name, **given)

    worker.sendevent = sendevent


def says_something(name: str, data: Mapping[str, Any]) -> bool:
    if name == "testreport":
        return bool(data["when"] == "call" or data["outcome"] != "passed" or data["sections"])
    return name != "logstart"
