"""Where errors go that do not fail the run: never nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Diagnostic", "log_diagnostic"]

Diagnostic: TypeAlias = Callable[[str, str, BaseException], None]
"""Told of an error: ``diagnostic(layer_id, hook, error)``."""

_log: Final = logging.getLogger("noetic_nb")


def log_diagnostic(layer_id: str, hook: str, error: BaseException) -> None:
    """Write a warning: the default diagnostic."""
    _log.warning("Layer %r, hook %r: %s: %s", layer_id, hook, type(error).__name__, error)
