"""How a turn ends early without being an error: someone asked for it to stop."""

from __future__ import annotations

from noetic_nb.memory import Stop

__all__ = ["StoppedError"]


class StoppedError(Exception):
    """A hook asked for the turn to stop. Caught by the turn; never reaches a caller."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.suggestion)
        self.stop = stop
