"""The author of a value: the user, the system, a layer, a tool, or the model itself; and the members of a value."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from noetic_nb.items._item import Item

OriginKind = Literal["user", "system", "layer", "tool", "model"]

# The most trusted first. A layer's text was chosen by the author of the agent, a tool's by whoever can reach the tool.
_RANK: Final = {"user": 0, "system": 1, "layer": 2, "tool": 3, "model": 4}


ORIGIN_KINDS: Final = frozenset(_RANK)


class Origin(NamedTuple):
    """The first author of a value: ``user``, ``tool:get_contacts``."""

    kind: OriginKind
    name: str | None = None
    """The tool's or the layer's."""
    item: str | None = None
    """The id of the item in which it first stands."""
    field: str | None = None
    """The key beside the value, where a tool's result is JSON or YAML."""
    links: tuple[Origin, ...] = ()
    """Of a value that a memory kept: its authors, first to last."""

    @property
    def chain(self) -> tuple[Origin, ...]:
        """The authors of the value, first to last; the value is trusted as the least trusted of them."""
        return self.links or (self,)

    @property
    def text(self) -> str:
        """The kind, with the name where there is one: ``tool:search``."""
        return self.kind if self.name is None else f"{self.kind}:{self.name}"

    def __str__(self) -> str:
        return self.text


MODEL: Final = Origin("model")  # what is known of a value that nobody wrote before

_NOTHING: Final = Origin("user")  # what holds nothing cannot have come from anywhere else


def least_trusted(origins: Iterable[Origin]) -> Origin:
    """Return the origin that is trusted least: user, system, layer, tool, model, in this order."""
    return max(origins, key=lambda origin: _RANK[origin.kind], default=_NOTHING)


def chained(origins: Iterable[Origin]) -> Origin:
    """Return the origin of a value made by one author after another, first to last: the least trusted, with all as its chain."""
    links = tuple([link for origin in origins for link in origin.chain])
    return least_trusted(links)._replace(links=links if len(links) > 1 else ())


_CONDITION: Final = re.compile(r"(?P<field>[^\[\]]+\.[^\[\].]+)\[(?P<key>[^\[\]=]+)=(?P<value>[^\[\]]+)\]")


class Trusted(NamedTuple):
    """A source that is trusted: ``user``, a tool, ``tool.field``, or ``tool.field[key=value]``."""

    name: str
    key: str = ""
    """A field of the same item, written by the system that keeps the item, as the sender of a transfer is; empty for none."""
    value: str = ""  # the text of that field


@lru_cache(maxsize=1_024)
def trusted_source(entry: str) -> Trusted:
    """Read an entry; raises `ValueError` for one with a condition that cannot be read."""
    entry = entry.removeprefix("tool:")
    if "[" not in entry:
        return Trusted(entry)
    found = _CONDITION.fullmatch(entry)
    if found is None or any(part != part.strip() for part in found.groups()):
        raise ValueError(f"write a trusted source as 'tool.field[key=value]', not {entry!r}")
    return Trusted(found["field"], found["key"], found["value"])


def origin_named(text: object) -> Origin:
    """Return the origin that an item names, such as ``layer:notes``; the model's, trusted least, for all that is no origin."""
    kind, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    return Origin(kind, name or None) if kind in _RANK else MODEL  # type: ignore[arg-type]


def with_origin(item: Item, origin: Origin) -> Item:
    """Return an item that names its author, for where neither its role nor the log beside it will say so."""
    return Item({**item, "origin": origin.text})


class Participants:
    """Tells the user of a conversation, its first author, from others in the same role, such as agents."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: tuple[str | None] | None = None

    def is_user(self, name: str | None) -> bool:
        """Tell whether a message in the role of the user is his own, by the name on it; one without a name is."""
        self._first = self._first or (name,)
        return name is None or name == self._first[0]


def members(value: Any, names: Collection[str] | None = None) -> Iterator[Any]:
    """Yield all members of a value but None and ''; with `names`, the properties of a schema, also keys that are none of them."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            for key, inner in reversed(list(found.items())):
                waiting.append(inner)
                if names is not None and key not in names:
                    waiting.append(key)
        elif isinstance(found, Sequence | set | frozenset) and not isinstance(found, str | bytes):
            waiting += reversed(list(found))
        elif found is not None and found != "":
            yield found
