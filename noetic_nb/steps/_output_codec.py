"""Codecs of structured outputs: the format rules for the model, and the parser of its answer.

A codec is stateless. Each answer is parsed by its own run, so nothing leaks from one turn or attempt to the next; a run
must return the same value however the text is split into pieces.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models._client import ModelDelta
from noetic_nb.steps._schema import OutputSchema, as_schema


@runtime_checkable
class CodecRun(Protocol):
    """Parses one answer."""

    def feed(self, piece: str) -> None:
        """Parse the next piece of the text. An exception ends the parsing."""

    def finish(self) -> Any:
        """Return the value of the complete text. An exception becomes an ``llm_parse_error``."""


@runtime_checkable
class OutputCodec(Protocol):
    """The format of an answer, and its parser.

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
        """The format rules for the model, added to the step's own instructions after a blank line; may be empty."""

    def start(self) -> CodecRun:
        """Start parsing an answer."""


class OutputReader:
    """Parses an answer as it arrives. An error is kept until the end, because the answer may turn out not to be the last."""

    def __init__(self, codec: OutputCodec) -> None:
        self._pieces: list[str] = []
        self._error: Exception | None = None
        self._run: CodecRun | None = None
        try:
            # Caught, like all errors here: if the answer is not the last, its codec does not matter.
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
        """Parse the text of a streamed answer."""
        if delta.kind == "text":
            self.feed(delta.text)

    def has_read(self, text: str) -> bool:
        """Tell whether it was fed exactly this text."""
        # After an interrupted and repeated answer, the pieces do not match the text.
        return "".join(self._pieces) == text

    def finish(self) -> Any:
        """Return the value, or raise the first error."""
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run.finish()


class CodecOutput:
    """A codec in place of an `OutputSchema`; raises `NoeticConfigError` ``INVALID_CODEC`` if its instructions are not text."""

    # Providers enforce schemas, but the input of a codec need not be JSON.
    json_schema: Final = None

    def __init__(self, codec: OutputCodec) -> None:
        instructions: object = codec.instructions
        if not isinstance(instructions, str):
            what = "The instructions of a codec are text."
            raise NoeticConfigError("INVALID_CODEC", what, given=instructions, hint="Use '' for none.")
        self.codec = codec

    def parse(self, text: str, *, step_id: str, reading: OutputReader | None = None) -> Any:
        """Return the value of a finished text, reusing a reading that was fed exactly this text."""
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
        # Equal codecs must have equal hashes, and a user's codec need not be hashable.
        return hash(CodecOutput)

    def __repr__(self) -> str:
        return f"CodecOutput({self.codec!r})"


def as_output(value: Any) -> Any:
    """Return the parser of an output: a codec as `CodecOutput`, any other value as in `as_schema`."""
    if isinstance(value, CodecOutput):
        return value
    # A class has the same attributes as its instances, and may be meant as the type of a structured output.
    if isinstance(value, OutputCodec) and not isinstance(value, type):
        return CodecOutput(value)
    return as_schema(value)


def parse_output(output: OutputSchema | CodecOutput, text: str, step_id: str, reading: OutputReader | None) -> Any:
    if isinstance(output, CodecOutput):
        return output.parse(text, step_id=step_id, reading=reading)
    return output.parse(text, step_id=step_id)


def system_instructions(instructions: str, output: OutputSchema | CodecOutput | None) -> str:
    """Return a step's instructions followed by a blank line and those of its codec."""
    if not isinstance(output, CodecOutput):
        return instructions
    return "\n\n".join([part for part in (instructions, output.codec.instructions) if part])
