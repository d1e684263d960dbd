"""The garbage collector of Python, at rest while much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting_collector() -> Iterator[None]:
    """Let the collector rest while a long run is read: it would look at the whole heap again with each quarter that is added.

    What one thread leaves behind meanwhile is collected afterwards; where the collector is off already, it stays so.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
