"""The file behind a cassette: one JSON line that names the format, then one line per answer.

A request is compared by content: ids of items do not count, ids of calls count only by their order of appearance, and
secrets are gone before anything is compared or written.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.items import ItemRegistry, dump_item, thaw
from noetic_nb.models.client import ModelRequest, ModelResponse, TokenLogprob, Usage, finish_reason_of
from noetic_nb.models.model_errors import refused
from noetic_nb.redact import redact

__all__ = ["Entry", "content_of", "differences", "read_cassette", "write_cassette"]

FORMAT: Final = "noetic_nb.cassette"
VERSION: Final = 1
_LOOSE: Final = ItemRegistry(strict=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer on a tape: what was asked, as plain data without secrets, and what came back."""

    request: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Digest of the request: equal requests have equal keys."""
        text = json.dumps(self.request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of(cls, request: Mapping[str, Any], outcome: ModelResponse | NoeticError) -> Entry:
        """Make the entry of a response, or of a refusal: that is an answer too."""
        answer: dict[str, Any] = {}
        if isinstance(outcome, NoeticError):
            answer["refusal"] = outcome.refusal
        else:
            answer["items"] = [dump_item(item) for item in outcome.items]
            answer["logprobs"] = [
                [t.token, t.logprob, *([t.alternatives] if t.alternatives else ())] for t in outcome.logprobs
            ]
            answer["model"], answer["finish_reason"] = outcome.model, outcome.finish_reason
        usage = outcome.usage
        answer["usage"] = [usage.input_tokens, usage.output_tokens, usage.cached_tokens]
        answer["cost"] = outcome.cost
        return cls(request, redact(answer))

    def replay(self) -> ModelResponse:
        """Return the response again.

        Raises
        ------
        NoeticError
            ``llm_refused`` where the model refused.
        """
        answer = self.answer
        usage = Usage(*map(operator.index, answer["usage"]))
        if "refusal" in answer:
            raise refused(answer["refusal"], usage=usage, cost=answer["cost"])
        return ModelResponse(
            items=tuple([_LOOSE.parse(item) for item in answer["items"]]),
            usage=usage,
            cost=answer["cost"],
            logprobs=tuple([_logprob(*entry) for entry in answer["logprobs"]]),
            model=answer["model"],
            finish_reason=finish_reason_of(answer.get("finish_reason")),
        )


def _logprob(token: str, number: float, alternatives: Any = ()) -> TokenLogprob:
    return TokenLogprob(token, number, tuple((other, nats) for other, nats in alternatives))


def content_of(request: ModelRequest) -> dict[str, Any]:
    """Return what a request asks as plain data: model, instructions, items, tools, parameters, output schema.

    Purpose and thread are left out: they change nothing about the answer.

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> one, two = (content_of(ModelRequest(model="m", items=[input_message("hi")])) for _ in range(2))
    >>> one == two
    True
    """
    calls: dict[Any, str] = {}
    items = []
    for item in request.items:
        plain = {key: value for key, value in dump_item(item).items() if key != "id"}
        if "callId" in plain:
            plain["callId"] = calls.setdefault(plain["callId"], f"call {len(calls) + 1}")
        items.append(plain)
    content: dict[str, Any] = {"model": request.model, "instructions": request.instructions, "items": items}
    content["tools"] = [
        {"name": t.name, "description": t.description, "parameters": thaw(t.parameters), "strict": t.strict}
        for t in request.tools
    ]
    content["params"] = request.params.model_dump(mode="json", exclude_none=True) if request.params else {}
    content["output_schema"] = thaw(request.output_schema)
    # Through JSON once, so that what is compared is exactly what a tape can hold.
    plain_content: dict[str, Any] = json.loads(json.dumps(redact(content)))
    return plain_content


def differences(recorded: Any, asked: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, on the tape, asked) wherever two requests differ; what only one has is None in the other.

    Examples
    --------
    >>> list(differences({"items": [{"text": "a"}]}, {"items": [{"text": "b"}, {}]}))
    [('items[0].text', 'a', 'b'), ('items[1]', None, {})]
    """
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for key in dict.fromkeys([*recorded, *asked]):
            place = f"{path}.{key}" if path else key
            if key in recorded and key in asked:
                yield from differences(recorded[key], asked[key], place)
            else:
                yield place, recorded.get(key), asked.get(key)
    elif isinstance(recorded, list) and isinstance(asked, list):
        for index, (one, other) in enumerate(zip(recorded, asked, strict=False)):
            yield from differences(one, other, f"{path}[{index}]")
        for index in range(min(len(recorded), len(asked)), max(len(recorded), len(asked))):
            left, right = (side[index] if index < len(side) else None for side in (recorded, asked))
            yield f"{path}[{index}]", left, right
    elif type(recorded) is not type(asked) or recorded != asked:  # 1, 1.0 and True are equal in Python, not in JSON
        yield path, recorded, asked


def _corrupt(path: Path, line: int, what: str) -> NoeticError:
    return NoeticError(
        "invalid_run_file",
        f"Line {line} of the tape {path.name!r} {what}",
        hint="Record the tape again, or restore it from version control.",
        path=str(path),
        line=line,
    )


def read_cassette(path: Path) -> list[Entry]:
    """Read every answer of a tape.

    Raises
    ------
    NoeticError
        ``invalid_run_file`` with `path` and `line` if it is no tape, damaged, or of a newer version;
        ``storage_failed`` if it cannot be read at all.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        raise NoeticError(
            "storage_failed", f"The tape {path.name!r} cannot be read: {exc.strerror}", path=str(path)
        ) from exc
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise _corrupt(path, number, "is not JSON") from exc
        if not isinstance(record, dict):
            raise _corrupt(path, number, "is no JSON object")
        records.append(record)
    head = records[0] if records else {}
    if head.get("format") != FORMAT or type(head.get("version")) is not int:
        raise _corrupt(path, 1, f"does not say that it is a tape (format {FORMAT!r})")
    if head["version"] > VERSION:
        raise _corrupt(path, 1, f"says version {head['version']}, newer than {VERSION}, the newest known here")
    entries = []
    for number, record in enumerate(records[1:], start=2):
        entry = Entry(record.get("request", {}), record.get("answer", {}))
        try:
            if not isinstance(entry.request, dict):
                raise TypeError("the request is no object")
            entry.replay()
        except (ItemValidationError, LookupError, TypeError, ValueError, AttributeError) as exc:
            raise _corrupt(path, number, f"holds no answer ({type(exc).__name__}: {exc})") from exc
        except NoeticError:
            pass  # a refusal, which is an answer too
        entries.append(entry)
    return entries


def write_cassette(path: Path, entries: list[Entry]) -> None:
    """Write a whole tape at once: a crash leaves the old file or the new one, never half of one.

    Raises
    ------
    NoeticError
        ``storage_failed``; the old file is untouched then.
    """
    lines: list[Any] = [{"format": FORMAT, "version": VERSION}]
    lines += [{"request": entry.request, "answer": entry.answer} for entry in entries]
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as exc:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise NoeticError(
            "storage_failed",
            f"The tape {path.name!r} cannot be written: {exc.strerror}",
            hint="Check the folder, its permissions and the free space; the answer itself was received.",
            path=str(path),
        ) from exc
