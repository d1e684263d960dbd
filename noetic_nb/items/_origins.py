"""The author of a value (user, system, layer, tool, or the model itself), and the members of a value."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from noetic_nb.items._item import Item

OriginKind = Literal["user", "system", "layer", "tool", "model"]

# Most trusted first. The agent's author chooses the text of layers; anyone who can reach a tool may write its text.
_RANK: Final = {"user": 0, "system": 1, "layer": 2, "tool": 3, "model": 4}


ORIGIN_KINDS: Final = frozenset(_RANK)


class Origin(NamedTuple):
    """The first author of a value: ``user``, ``tool:get_contacts``."""

    kind: OriginKind
    name: str | None = None
    """The name of the tool or layer."""
    item: str | None = None
    """The id of the first item that contains it."""
    field: str | None = None
    """The key beside the value, if a tool's result is JSON or YAML."""
    links: tuple[Origin, ...] = ()
    """For a value from a memory: its authors, first to last."""

    @property
    def chain(self) -> tuple[Origin, ...]:
        """The authors of the value, first to last; its trust is that of the least trusted author."""
        return self.links or (self,)

    @property
    def text(self) -> str:
        """The kind, with the name if there is one: ``tool:search``."""
        return self.kind if self.name is None else f"{self.kind}:{self.name}"

    def __str__(self) -> str:
        return self.text


MODEL: Final = Origin("model")  # the origin of a value that nobody wrote before

_NOTHING: Final = Origin("user")  # an empty value needs no source


def least_trusted(origins: Iterable[Origin]) -> Origin:
    """Return the least trusted origin; from most to least trusted: user, system, layer, tool, model."""
    return max(origins, key=lambda origin: _RANK[origin.kind], default=_NOTHING)


def chained(origins: Iterable[Origin]) -> Origin:
    """Return the origin of a value that passed through several authors: the least trusted one, with all as its chain."""
    links = tuple([link for origin in origins for link in origin.chain])
    return least_trusted(links)._replace(links=links if len(links) > 1 else ())


_CONDITION: Final = re.compile(r"(?P<field>[^\[\]]+\.[^\[\].]+)\[(?P<key>[^\[\]=]+)=(?P<value>[^\[\]]+)\]")


class Trusted(NamedTuple):
    """A trusted source: ``user``, a tool, ``tool.field``, or ``tool.field[key=value]``."""

    name: str
    key: str = ""
    """A field of the same item that the system itself writes, such as the sender of a transfer; empty for none."""
    value: str = ""  # the required text of that field


@lru_cache(maxsize=1_024)
def trusted_source(entry: str) -> Trusted:
    """Parse an entry; raises `ValueError` for an invalid condition."""
    entry = entry.removeprefix("tool:")
    if "[" not in entry:
        return Trusted(entry)
    found = _CONDITION.fullmatch(entry)
    if found is None or any(part != part.strip() for part in found.groups()):
        raise ValueError(f"write a trusted source as 'tool.field[key=value]', not {entry!r}")
    return Trusted(found["field"], found["key"], found["value"])


def origin_named(text: object) -> Origin:
    """Parse an origin named by an item, such as ``layer:notes``; invalid names give the model, which is trusted least."""
    kind, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    return Origin(kind, name or None) if kind in _RANK else MODEL  # type: ignore[arg-type]


def with_origin(item: Item, origin: Origin) -> Item:
    """Return an item that names its author, if neither its role nor the log can."""
    return Item({**item, "origin": origin.text})


class Participants:
    """Distinguishes the user, the first author of a conversation, from others in the same role, such as agents."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: tuple[str | None] | None = None

    def is_user(self, name: str | None) -> bool:
        """Tell whether a message in the user's role is from the user, by its name; a message without a name is."""
        self._first = self._first or (name,)
        return name is None or name == self._first[0]


def members(value: Any, names: Collection[str] | None = None) -> Iterator[Any]:
    """Yield all members of a value except None and ''; with `names`, the properties of a schema, also all other keys."""
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
