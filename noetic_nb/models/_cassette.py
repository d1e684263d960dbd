"""Record the answers of a real endpoint once, then replay them without a network or a key.

Answers are found by request, not by order: reordering unrelated requests does no harm, and a request made twice replays
its two answers in order. A request that was not recorded raises an error that shows the differences.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from os import PathLike
from typing import Any, Final, Literal, cast

from noetic_nb._core.atomic_write import as_path
from noetic_nb._core.worker_threads import beside_loop
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models._cassette_file import (
    Entry,
    Tape,
    TapeSecrets,
    content_of,
    differences,
    read_cassette,
    write_cassette,
)
from noetic_nb.models._client import ModelClient, ModelRequest, ModelResponse, StreamingModelClient, StreamPart
from noetic_nb.models._model_errors import failed
from noetic_nb.models._response_items import deltas_of

_SHOWN_DIFFERENCES: Final = 3
_SHOWN_LENGTH: Final = 60


class CassetteModel:
    """Record a model to a file, and replay the file.

    Parameters
    ----------
    path : str or path
        The tape: JSON lines, to be kept under version control. Each secret is replaced by its own placeholder; missing
        folders are created.
    model : ModelClient, optional
        The model to call while recording.
    mode : {"auto", "record", "replay"}
        ``"record"`` overwrites the tape, ``"replay"`` never calls the model, ``"auto"`` replays an existing tape and
        otherwise records one.
    on_missing : {"error", "record"}
        How to handle a request that is not on the replayed tape: raise an error, or call `model` and add its answer.

    Raises
    ------
    NoeticConfigError
        ``INVALID_CASSETTE`` for other options, or for a mode that needs a model if none is given.
    NoeticError
        ``tape_missing`` if there is nothing to replay, ``invalid_run_file`` if the tape is damaged.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from noetic_nb.items import assistant_text, input_message
    >>> from noetic_nb.models import ScriptedModel
    >>> request = ModelRequest(model="m", items=(input_message("hi"),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recorded = asyncio.run(CassetteModel(f"{folder}/a.jsonl", ScriptedModel(["Hello."])).complete(request))
    ...     replayed = asyncio.run(CassetteModel(f"{folder}/a.jsonl").complete(request))
    >>> recorded == replayed, assistant_text(replayed.items)
    (True, 'Hello.')
    """

    def __init__(
        self,
        path: str | PathLike[str],
        model: ModelClient | None = None,
        *,
        mode: Literal["auto", "record", "replay"] = "auto",
        on_missing: Literal["error", "record"] = "error",
    ) -> None:
        self.path = as_path(path)
        if mode not in ("auto", "record", "replay"):
            raise _wrong("There is no such mode", mode, "Use 'auto', 'record' or 'replay'.")
        if on_missing not in ("error", "record") or (on_missing == "record" and mode == "replay"):
            raise _wrong("`on_missing` does not fit", on_missing, "Use 'error', or 'record' with mode='auto'.")
        exists = self.path.exists()
        self._recording = mode == "record" or (mode == "auto" and not exists)
        self._adds = self._recording or on_missing == "record"
        if mode != "replay" and self._adds and model is None and (mode == "record" or exists):
            raise _wrong("Recording needs a model", None, "Pass the client to record: CassetteModel(path, client).")
        if not exists and (mode == "replay" or model is None):
            hint = "Check the path, or pass the client to record one: CassetteModel(path, client)."
            raise NoeticError("tape_missing", f"There is no tape at {str(self.path)!r}", hint=hint, path=str(self.path))
        self._model = model
        self._secrets, self._entries = Tape(TapeSecrets(), []) if self._recording else read_cassette(self.path)
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, entry in enumerate(self._entries):
            self._places[entry.key].append(place)
        self._played: defaultdict[str, int] = defaultdict(int)
        self._writing = threading.Lock()

    @property
    def recording(self) -> bool:
        """Whether every request is sent and recorded, rather than looked up."""
        return self._recording

    @property
    def asks(self) -> bool:
        """Whether a request may reach the recorded model, and so cost money."""
        return self._adds and self._model is not None

    def __reduce__(self) -> Any:
        if self.asks or self._recording:
            raise TypeError("A recording cassette writes one file, so it cannot be copied or sent to another process.")
        # From its start: the replay position belongs to this process.
        return CassetteModel, (self.path, None)

    def rewind(self) -> None:
        """Replay from the start: every request can be made again as often as it was recorded."""
        self._played.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        state = "recording" if self._recording else "replaying"
        return f"<CassetteModel {self.path.name!r}: {state}, {len(self)} answers>"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Replay the answer to this request, or record it.

        Raises
        ------
        NoeticError
            ``tape_missing`` with the `differences` to the closest request on the tape; ``storage_failed`` if an answer
            cannot be written; errors of the recorded model. Refusals are recorded, temporary failures are not.
        """
        content, entry = self._find(request)
        if entry is not None:
            return entry.replay()
        try:
            answer = await cast(ModelClient, self._model).complete(request)
        except NoeticError as error:
            await self._keep_refusal(content, error)
            raise
        return await self._keep(content, answer)

    @property
    def watches_silence(self) -> bool:
        """Whether the recorded model has its own idle limit for streams."""
        return bool(getattr(self._model, "watches_silence", False))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """As `complete`, piece by piece; a replayed answer is streamed word by word."""
        content, entry = self._find(request)
        if entry is None and isinstance(self._model, StreamingModelClient):
            try:
                async with aclosing(cast(Any, self._model.stream(request))) as parts:
                    async for part in parts:
                        yield await self._keep(content, part) if isinstance(part, ModelResponse) else part
            except NoeticError as error:
                await self._keep_refusal(content, error)
                raise
            return
        response = await self.complete(request) if entry is None else entry.replay()
        for delta in deltas_of(response.items):
            yield delta
        yield response

    def _find(self, request: ModelRequest) -> tuple[dict[str, Any], Entry | None]:
        """Return a request without secrets, and its next answer, or None if the model must be called."""
        asked = content_of(request)
        content = self._secrets.hide(asked)
        if self._recording:
            return content, None
        key = Entry(content, {}).key
        places, played = self._places[key], self._played[key]
        if self._secrets.version == 1 and played >= len(places):
            places = [at for at, entry in enumerate(self._entries) if self._secrets.same(entry.request, asked)]
        if played < len(places):
            self._played[key] += 1
            return content, self._entries[places[played]]
        if self._adds:
            return content, None
        raise self._missing(content, played)

    def _missing(self, content: dict[str, Any], played: int) -> NoeticError:
        hint = "Record the tape again with mode='record', or add to it with on_missing='record'."
        where = f"the tape {self.path.name!r}"
        if played:
            return NoeticError(
                "tape_missing",
                f"A request was asked once more than {where} holds answers to it: it has {played}",
                hint=f"{hint} To replay it from the start, call rewind().",
                path=str(self.path),
                differences=(),
            )
        if not self._entries:
            return NoeticError("tape_missing", f"There is no answer on {where}", hint=hint, path=str(self.path))
        found = [list(differences(entry.request, content)) for entry in self._entries]
        closest = min(range(len(found)), key=lambda place: len(found[place]))
        shown = [f"{path}: {_short(recorded)} there, {_short(asked)} asked" for path, recorded, asked in found[closest]]
        more = f"; and {len(shown) - _SHOWN_DIFFERENCES} more" if len(shown) > _SHOWN_DIFFERENCES else ""
        return NoeticError(
            "tape_missing",
            f"This request is not on {where}. The closest of its {len(found)}, on line {closest + 2}, differs in "
            f"{'; '.join(shown[:_SHOWN_DIFFERENCES])}{more}",
            hint=hint,
            path=str(self.path),
            line=closest + 2,
            differences=tuple(found[closest]),
        )

    async def _keep(self, content: dict[str, Any], answer: ModelResponse) -> ModelResponse:
        if not isinstance(answer, ModelResponse):
            raise failed(
                f"The recorded model answered a {type(answer).__name__}, which is not a response; nothing was recorded",
                reason="garbage",
                hint="Return a ModelResponse from `complete`.",
            )
        await self._add(Entry.of(content, answer, self._secrets))
        return answer

    async def _keep_refusal(self, content: dict[str, Any], error: NoeticError) -> None:
        if error.kind == "llm_refused":
            await self._add(Entry.of(content, error, self._secrets))

    async def _add(self, entry: Entry) -> None:
        # Counted as played at once: the new answer must not be replayed for the next identical request.
        self._places[entry.key].append(len(self._entries))
        self._entries.append(entry)
        self._played[entry.key] += 1
        await beside_loop(self._write)

    def _write(self) -> None:
        # Inside the lock: of two concurrent writers, the later one always writes the longer tape.
        with self._writing:
            write_cassette(self.path, Tape(self._secrets, list(self._entries)))


def _wrong(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_CASSETTE", what, given=given, hint=hint)


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"
