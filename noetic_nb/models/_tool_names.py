"""Names of tools as a provider accepts them, and back.

Canonical names may hold anything (``plan/update``); on the wire only ``[A-Za-z0-9_-]`` and 64 characters are legal. Two
names that become one on the wire get a suffix made from their full name, so the map can always be read backwards.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

MAX_WIRE_NAME: Final = 64
"""Longest name of a function the OpenAI API accepts, in characters (API reference, ``tools[].function.name``)."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")


def _plain(name: str) -> str:
    return _ILLEGAL.sub("_", name)[:MAX_WIRE_NAME]


class WireNames:
    """A two-way map between canonical names and wire names; it does not depend on the order of the names."""

    __slots__ = ("_back", "_forth")

    def __init__(self, names: Iterable[str]) -> None:
        # Sorted, so that the map does not depend on the order of the tools.
        distinct = sorted(set(names))
        shared = Counter(map(_plain, distinct))
        # Names that are legal keep their form, even where another one becomes the same on the wire.
        self._forth: dict[str, str] = {name: name for name in distinct if _plain(name) == name}
        self._back: dict[str, str] = dict(self._forth)
        for name in distinct:
            if name in self._forth:
                continue
            wire = _plain(name)
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            length = 6
            # Longer each time round: the suffixed name may itself be the name of a tool.
            while shared[wire] > 1 or wire in self._back:
                suffix = f"_{digest[:length]}"
                wire = _plain(name)[: MAX_WIRE_NAME - len(suffix)] + suffix
                length += 1
            self._forth[name] = wire
            self._back[wire] = name

    def to_wire(self, name: str) -> str:
        """Return the wire name of a name this map was made with.

        Raises `KeyError` if it was not: a map is made once per request, from every name in it.
        """
        return self._forth[name]

    def from_wire(self, name: str) -> str:
        """Return the canonical name; a name the model made up stays as it is, for the runtime to answer."""
        return self._back.get(name, name)
