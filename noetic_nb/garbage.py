"""Looking for garbage is put off while many objects are made at once that all stay: it would find none, again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["nothing_collected"]


# A round through so many takes a millisecond or two; to learn whether a program has frozen something takes a look at all of it.
FEW: Final = 10_000


@contextmanager
def nothing_collected(*, is_old: bool = False) -> Iterator[None]:
    """Let the collector rest while the body runs, which waits for nobody; where it was off before, it stays off.

    With `is_old`, what was made counts as old from then on, unless it is little: else the next object would wait for a round
    through all of it.

    Examples
    --------
    >>> with nothing_collected():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    was_on = gc.isenabled()
    gc.disable()
    before = gc.get_count()[0]
    try:
        yield
    finally:
        if was_on:
            # Frozen and thawed at once is moved to the oldest generation; what a program has frozen itself stays so.
            if is_old and gc.get_count()[0] - before > FEW and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
