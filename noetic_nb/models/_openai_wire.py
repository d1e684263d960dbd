"""Code shared by OpenAI's APIs: call options, SDK objects as plain data, schema rules, names, keys.

The SDK builds its objects without validating them, so anything a server sends arrives here, and no shape is trusted.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, item_text
from noetic_nb.models._client import ModelRequest
from noetic_nb.models._model_errors import failed
from noetic_nb.redact import REDACTED, redact_text

MAX_WIRE_NAME: Final = 64
"""Longest function name accepted by the OpenAI API, in characters (API reference, ``tools[].function.name``)."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")


def _plain(name: str) -> str:
    return _ILLEGAL.sub("_", name)[:MAX_WIRE_NAME]


class WireNames:
    """A two-way map between canonical and wire names; names that would share a wire name get a suffix."""

    def __init__(self, names: Iterable[str]) -> None:
        # Sorted, so that the map does not depend on the order of the tools.
        distinct = sorted(set(names))
        shared = Counter(map(_plain, distinct))
        # Legal names stay unchanged, even if another name becomes the same on the wire.
        self._forth: dict[str, str] = {name: name for name in distinct if _plain(name) == name}
        self._back: dict[str, str] = dict(self._forth)
        for name in distinct:
            if name in self._forth:
                continue
            wire = _plain(name)
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            length = 6
            # Longer in each round: the suffixed name may itself be the name of a tool.
            while shared[wire] > 1 or wire in self._back:
                suffix = f"_{digest[:length]}"
                wire = _plain(name)[: MAX_WIRE_NAME - len(suffix)] + suffix
                length += 1
            self._forth[name] = wire
            self._back[wire] = name

    def to_wire(self, name: str) -> str:
        """Return the wire name of a name in this map; raises `KeyError` for others."""
        return self._forth[name]

    def from_wire(self, name: str) -> str:
        """Return the canonical name; a name that the model made up stays unchanged, for the runtime to handle."""
        return self._back.get(name, name)


# Shorter keys, as used for private servers, would mask ordinary words.
_SHORTEST_KEY: Final = 6


class Secret:
    """A key that never appears in a repr, and is not pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str | None) -> None:
        self._value = value

    def reveal(self) -> str | None:
        """Return the key itself, or None if there is none."""
        return self._value

    def __repr__(self) -> str:
        return "<hidden>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles end up in caches and on other machines.
        raise TypeError("API keys are never saved. Create the OpenAIModel in the process that uses it.")


class Headers(dict[str, str]):
    """Headers whose values stay out of every repr: any of them may be a credential."""

    def __repr__(self) -> str:
        return f"<headers {', '.join(sorted(self))}>"


def shown_address(url: str) -> str:
    """Return an address without any user name, password and query."""
    parts = urlsplit(url)
    return redact_text(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))


def mask(error: NoeticError, key: str | None) -> None:
    """Remove a key from an error, wherever a server has repeated it."""
    if key is None or len(key) < _SHORTEST_KEY:
        return

    def clean(value: Any) -> Any:
        return value.replace(key, REDACTED) if isinstance(value, str) else value

    # `args` as well, because a traceback prints them.
    error.args = tuple(map(clean, error.args))
    error.what, error.hint, error.given = clean(error.what), clean(error.hint), clean(error.given)
    error.facts = {name: clean(fact) for name, fact in error.facts.items()}


_NAME_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_EXCERPT: Final = 160


@dataclass(frozen=True, slots=True)
class WireOptions:
    """Call options: the model's name, whether the endpoint is OpenAI's own, and the `logprobs` per token, or None."""

    model: str
    official: bool
    logprobs: int | None = None


def is_official(base_url: str | None) -> bool:
    """Tell whether an endpoint is OpenAI's own, which knows newer parameters than servers that imitate it."""
    if base_url is None:
        return True
    host = urlsplit(base_url).hostname or ""
    # With the dot: "notopenai.com" belongs to someone else.
    return host == "openai.com" or host.endswith(".openai.com")


def plain(value: Any) -> Any:
    """Return an SDK object as plain data, with only the fields that the server sent."""
    dump = getattr(value, "model_dump", None)
    # Only sent fields: a package default would look like part of the answer. No warnings: deviating servers are common.
    return value if dump is None else dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)


def garbage(what: str, body: object) -> NoeticError:
    """Make the error for a body that is not an answer; only an excerpt of it is kept."""
    text = body if isinstance(body, str) else repr(body)
    excerpt = text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"
    return failed(
        f"The endpoint answered something that is not a response: {what}. It sent {excerpt}",
        reason="garbage",
        hint="Check `base_url` and `api`: a proxy, a login page or another API may be answering.",
    )


def names_of(request: ModelRequest) -> WireNames:
    """Return the map of every tool name in a request, including those in its history."""
    # A tool that is no longer offered may still have calls in the history, which need a legal name as well.
    called = (item.get("name") for item in request.items if item["type"] == "function_call")
    return WireNames([*(tool.name for tool in request.tools), *(name for name in called if isinstance(name, str))])


def system_text(request: ModelRequest) -> tuple[str, list[Item]]:
    """Return the instructions and all system messages, joined by blank lines, and the other items."""
    texts = [request.instructions] if request.instructions else []
    others = []
    for item in request.items:
        if item["type"] == "message" and item.get("role") == "system":
            texts.append(item_text(item))
        else:
            others.append(item)
    return "\n\n".join(text for text in texts if text), others


def schema_name(schema: Mapping[str, Any]) -> str:
    title = schema.get("title")
    return _NAME_CHARACTERS.sub("_", title)[:64] if isinstance(title, str) and title else "output"


def enforceable(schema: object) -> bool:
    """Tell whether a provider can enforce a schema ("Structured model outputs"): closed objects that require all properties."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object" or "properties" in schema:
            properties = schema.get("properties")
            if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
                return False
            if set(schema.get("required") or ()) != set(properties):
                return False
        return all(enforceable(inner) for inner in schema.values())
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return all(enforceable(inner) for inner in schema)
    return True
