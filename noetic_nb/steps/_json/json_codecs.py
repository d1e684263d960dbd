"""Codecs to use: JSON in a fenced block among prose, and one JSON value per line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from noetic_nb.items._json_text import compact_json
from noetic_nb.steps._output_codec import OutputCodec
from noetic_nb.steps._schema import OutputSchema, as_schema

_FENCE: Final = "```"
# A block of JSON says so, or says nothing and does not begin with a word; its first line may follow at once.
_OPENING: Final = re.compile(r"`{3,}\s*(?:json\b\s*(?P<json>.*)|(?P<bare>[^\w].*)?)", re.IGNORECASE)


def fenced_json(schema: Any = None) -> FencedJSON:
    """Read the JSON out of an answer: the last fenced block of it, with any text around it.

    An answer without a block is read as JSON itself. Models that think before they answer write better JSON so than when
    the whole answer must be JSON.

    Parameters
    ----------
    schema : type or mapping, optional
        What the value must look like: a type, or a JSON Schema.

    Examples
    --------
    >>> from noetic_nb.steps import step
    >>> ask = step.llm("ask", model="m", output=fenced_json(dict[str, int]))
    >>> ask.output.parse('''Two and two:
    ... ```json
    ... {"sum": 4}
    ... ```''', step_id="ask")
    {'sum': 4}
    """
    return FencedJSON(as_schema(schema))


def json_lines(schema: Any = None) -> JSONLines:
    r"""Read a list, one JSON value per line; each line is checked as soon as it is complete.

    Parameters
    ----------
    schema : type or mapping, optional
        What each value must look like: a type, or a JSON Schema.

    Examples
    --------
    >>> run = json_lines(int).start()
    >>> for piece in ("1\n", "2", "3\n"):
    ...     run.feed(piece)
    >>> run.finish()
    [1, 23]
    """
    return JSONLines(as_schema(schema))


def _with_schema(text: str, schema: OutputSchema | None) -> str:
    return text if schema is None else f"{text} {compact_json(schema.json_schema)}"


@dataclass(frozen=True, slots=True)
class FencedJSON:
    """The codec that `fenced_json` makes."""

    schema: OutputSchema | None = None

    @property
    def instructions(self) -> str:
        """The rules of its form, for the model."""
        text = "End your answer with its result as JSON, in one block that begins with ```json and ends with ```."
        return text if self.schema is None else _with_schema(f"{text} It must fit this JSON Schema:", self.schema)

    def start(self) -> _FencedRun:
        """Begin to read an answer."""
        return _FencedRun(self.schema)


@dataclass(frozen=True, slots=True)
class JSONLines:
    """The codec that `json_lines` makes."""

    schema: OutputSchema | None = None

    @property
    def instructions(self) -> str:
        """The rules of its form, for the model."""
        text = "Answer with one JSON value per line and nothing else."
        return text if self.schema is None else _with_schema(f"{text} Each must fit this JSON Schema:", self.schema)

    def start(self) -> _LinesRun:
        """Begin to read an answer."""
        return _LinesRun(self.schema)


@dataclass(slots=True)
class _Lines:
    """Text that comes in pieces, given back in whole lines."""

    parts: list[str] = field(default_factory=list)

    def add(self, piece: str) -> list[str]:
        """Return the lines that are complete now."""
        first, *others = piece.split("\n")
        self.parts.append(first)
        if not others:
            return []
        whole = "".join(self.parts)
        self.parts = [others.pop()]
        return [whole, *others]

    def rest(self) -> str:
        """Return the last line, which nothing ended."""
        return "".join(self.parts)


def _value(text: str, schema: OutputSchema | None) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"it is not JSON: {exc}") from exc
    return value if schema is None else schema.check(value)


@dataclass(slots=True)
class _FencedRun:
    """Keeps the last block, line by line."""

    schema: OutputSchema | None
    lines: _Lines = field(default_factory=_Lines)
    prose: list[str] = field(default_factory=list)
    block: list[str] | None = None
    """The lines of the block that is open, or of the last one that was JSON."""
    state: str = "outside"

    def feed(self, piece: str) -> None:
        for line in self.lines.add(piece):
            self._line(line)

    def _line(self, line: str) -> None:
        text = line.strip()
        if self.state == "outside":
            if not text.startswith(_FENCE):
                if self.block is None:
                    self.prose.append(line)
                return
            # A fence that opens and closes on one line leaves nothing open; any other is code in another language,
            # skipped to its end.
            opening = _OPENING.fullmatch(text)
            if opening is None:
                self.state = "outside" if text.endswith(_FENCE) else "other"
                return
            # Begun anew: the last block counts, as models try things out before their result.
            self.state, self.block = "json", []
            line = text = opening["json"] or opening["bare"] or ""
        if text.endswith(_FENCE):  # no line of JSON ends so: its texts end with a quotation mark
            if self.state == "json" and self.block is not None:
                self.block.append(text.rstrip("`"))
            self.state = "outside"
        elif self.state == "json" and self.block is not None:
            self.block.append(line)

    def finish(self) -> Any:
        self._line(self.lines.rest())
        return _value("\n".join(self.prose if self.block is None else self.block), self.schema)


@dataclass(slots=True)
class _LinesRun:
    """Checks each line when it is complete."""

    schema: OutputSchema | None
    lines: _Lines = field(default_factory=_Lines)
    values: list[Any] = field(default_factory=list)
    count: int = 0

    def feed(self, piece: str) -> None:
        for line in self.lines.add(piece):
            self._line(line)

    def _line(self, line: str) -> None:
        self.count += 1
        text = line.strip()
        if not text or text.startswith(_FENCE):  # many models put a fence around it, asked or not
            return
        try:
            self.values.append(_value(text, self.schema))
        except ValueError as exc:
            # Without the number nobody knows which of many lines to look at.
            raise ValueError(f"line {self.count}: {exc}") from exc

    def finish(self) -> Any:
        self._line(self.lines.rest())
        return self.values


READY: Final = MappingProxyType[str, OutputCodec]({"fenced_json": fenced_json(), "json_lines": json_lines()})
"""Codecs that every `Registry` knows."""
