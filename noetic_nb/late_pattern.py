"""Regular expressions that are compiled when they are first used: an import makes dozens, and a short session needs few."""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["late_pattern"]


class _LatePattern:
    """Stands for a pattern. What was asked of it once is found on it from then on, as quickly as on the pattern itself."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._given), name)
        self.__dict__[name] = found
        return found


def late_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return what is used like ``re.compile(pattern, flags)``; a mistake in the pattern is found at its first use.

    Examples
    --------
    >>> word = late_pattern("[a-z]+")
    >>> word.findall("one, two")
    ['one', 'two']
    """
    return cast(re.Pattern[str], _LatePattern(pattern, flags))
