"""Packages that only some parts of this one need, and what to do where one is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from noetic_nb.errors import NoeticConfigError


@contextmanager
def optional_package(what: str, hint: str, *, code: str = "MISSING_PACKAGE", **facts: Any) -> Iterator[None]:
    """Raise `NoeticConfigError` in place of the `ImportError` of an import within."""
    try:
        yield
    except ImportError as error:
        raise NoeticConfigError(code, what, hint=hint, **facts) from error
