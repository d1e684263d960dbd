"""Codecs of structured outputs: the rules of form for the model, and how its answer is read.

A codec holds no state. Each answer is read by a run of its own, so nothing leaks from one turn, or one attempt, to the
next; a run must come to the same value however the text is cut into pieces.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models._client import ModelDelta
from noetic_nb.steps._schema import OutputSchema, as_schema


@runtime_checkable
class CodecRun(Protocol):
    """Reads one answer."""

    def feed(self, piece: str) -> None:
        """Read the next piece of the text. An exception ends the reading."""

    def finish(self) -> Any:
        """Return the value, when the text is complete. An exception becomes an ``llm_parse_error``."""


@runtime_checkable
class OutputCodec(Protocol):
    """How an answer is to be written, and how it is read.

    Examples
    --------
    >>> class Shout:
    ...     instructions = "Answer in capital letters."
    ...     def start(self):
    ...         return ShoutRun()
    >>> class ShoutRun:
    ...     def __init__(self):
    ...         self.text = ""
    ...     def feed(self, piece):
    ...         self.text += piece.upper()
    ...     def finish(self):
    ...         return self.text
    >>> CodecOutput(Shout()).parse("ok", step_id="ask")
    'OK'
    """

    @property
    def instructions(self) -> str:
        """The rules of form for the model, after the step's own instructions and a blank line; may be empty."""

    def start(self) -> CodecRun:
        """Begin to read an answer."""


class OutputReader:
    """One answer while it is read. An error is kept for the end: until then the answer may turn out not to be the last."""

    def __init__(self, codec: OutputCodec) -> None:
        self._pieces: list[str] = []
        self._error: Exception | None = None
        self._run: CodecRun | None = None
        try:
            # Caught, as everything here: the answer may not be the last, and then its codec does not matter.
            self._run = codec.start()
        except Exception as exc:
            self._error = exc

    def feed(self, piece: str) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        if self._run is not None and self._error is None:
            try:
                self._run.feed(piece)
            except Exception as exc:
                self._error = exc

    def take(self, delta: ModelDelta) -> None:
        """Read the text of a streamed answer."""
        if delta.kind == "text":
            self.feed(delta.text)

    def has_read(self, text: str) -> bool:
        """Tell whether it was fed this text, neither more nor less."""
        # A stream that broke off and was answered again is not the text that came in pieces.
        return "".join(self._pieces) == text

    def finish(self) -> Any:
        """Return the value, or raise the first error."""
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run.finish()


class CodecOutput:
    """A codec where an `OutputSchema` may stand; raises `NoeticConfigError` ``INVALID_CODEC`` for instructions of no text."""

    # Providers enforce schemas; what a codec reads need not be JSON.
    json_schema: Final = None

    def __init__(self, codec: OutputCodec) -> None:
        instructions: object = codec.instructions
        if not isinstance(instructions, str):
            what = "The instructions of a codec are text."
            raise NoeticConfigError("INVALID_CODEC", what, given=instructions, hint="Use '' for none.")
        self.codec = codec

    def parse(self, text: str, *, step_id: str, reading: OutputReader | None = None) -> Any:
        """Return the value of a finished text; a reading that was fed just this text is not begun again."""
        if reading is None or not reading.has_read(text):
            reading = OutputReader(self.codec)
            reading.feed(text)
        try:
            return reading.finish()
        except Exception as exc:
            problem = str(exc) or type(exc).__name__
            raise NoeticError(
                "llm_parse_error",
                f"The output of step {step_id!r} cannot be read by its codec: {problem}",
                given=text,
                hint="Tell the model the required form, or use a codec that accepts more.",
                step_id=step_id,
                raw=text,
                schema=None,
                validation_error=problem,
            ) from exc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodecOutput) and (self.codec is other.codec or bool(self.codec == other.codec))

    def __hash__(self) -> int:
        # Equal codecs must have equal hashes, and a codec of one's own need not be hashable.
        return hash(CodecOutput)

    def __repr__(self) -> str:
        return f"CodecOutput({self.codec!r})"


def as_output(value: Any) -> Any:
    """Return the reader of an output: a codec as `CodecOutput`, anything else as `as_schema` does."""
    if isinstance(value, CodecOutput):
        return value
    # A class has the same attributes as its instances, and may be meant as the type of a structured output.
    if isinstance(value, OutputCodec) and not isinstance(value, type):
        return CodecOutput(value)
    return as_schema(value)


def parse_output(output: OutputSchema | CodecOutput, text: str, step_id: str, reading: OutputReader | None) -> Any:
    """Return the value of a finished answer."""
    if isinstance(output, CodecOutput):
        return output.parse(text, step_id=step_id, reading=reading)
    return output.parse(text, step_id=step_id)


def system_instructions(instructions: str, output: OutputSchema | CodecOutput | None) -> str:
    """Return a step's instructions with those of its codec, after a blank line."""
    if not isinstance(output, CodecOutput):
        return instructions
    return "\n\n".join([part for part in (instructions, output.codec.instructions) if part])
