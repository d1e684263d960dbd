"""The file format of a cassette: one JSON line that names the format, then one line per answer.

Requests are compared by content: item ids are ignored, and call ids count only by their order of appearance. Each
secret is replaced by its own placeholder before any comparison or writing; a salted digest identifies it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import operator
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from noetic_nb._core.atomic_write import regular_file, whole_file
from noetic_nb._core.names import finish_reason_of
from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.items import dump_item, thaw
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.models._client import ModelRequest, ModelResponse, TokenLogprob, Usage
from noetic_nb.models._model_errors import refused
from noetic_nb.redact import REDACTED, Redaction

FORMAT: Final = "noetic_nb.cassette"
VERSION: Final = 2
# Shorter secrets can be guessed, so their digest is slow to compute; longer ones cannot, and may be many.
_GUESSABLE: Final = 20
_ROUNDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer on a tape: the request, as plain data without secrets, and the response."""

    request: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Digest of the request: equal requests have equal keys."""
        text = json.dumps(self.request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of(cls, request: Mapping[str, Any], outcome: ModelResponse | NoeticError, secrets: TapeSecrets) -> Entry:
        """Make the entry for a response or a refusal, which is also an answer. Secrets are already removed from the request."""
        answer: dict[str, Any] = {}
        if isinstance(outcome, NoeticError):
            answer["refusal"] = outcome.refusal
        else:
            answer["items"] = [dump_item(item) for item in outcome.items]
            answer["logprobs"] = [
                [t.token, t.logprob, *([t.alternatives] if t.alternatives else ())] for t in outcome.logprobs
            ]
            answer["model"], answer["finish_reason"] = outcome.model, outcome.finish_reason
        answer["usage"] = list(outcome.usage)
        answer["cost"] = outcome.cost
        return cls(request, secrets.hide(answer))

    def replay(self) -> ModelResponse:
        """Return the recorded response; raises `NoeticError` ``llm_refused`` if the model refused."""
        answer = self.answer
        usage = _usage(*answer["usage"])
        if "refusal" in answer:
            raise refused(answer["refusal"], usage=usage, cost=answer["cost"])
        return ModelResponse(
            items=tuple([ANY_ITEMS.parse(item) for item in answer["items"]]),
            usage=usage,
            cost=answer["cost"],
            logprobs=tuple([_logprob(*entry) for entry in answer["logprobs"]]),
            model=answer["model"],
            finish_reason=finish_reason_of(answer.get("finish_reason")),
        )


def _usage(sent: int, written: int, *parts: int | None) -> Usage:
    known = [None if part is None else operator.index(part) for part in parts]
    return Usage(operator.index(sent), operator.index(written), *known)


class TapeSecrets:
    """The placeholders of the secrets of one tape; a version-1 tape has one for all."""

    def __init__(self, salt: bytes | None = None, digests: Iterable[str] = (), *, version: int = VERSION) -> None:
        self.version = version
        self.salt = secrets.token_bytes(16) if salt is None else salt
        self.digests = {digest: number for number, digest in enumerate(digests, start=1)}
        self._known: dict[str, str] = {}

    def hide(self, value: Any) -> Any:
        return Redaction(self._placeholder if self.version > 1 else None).data(value)

    def _placeholder(self, secret: str) -> str:
        known = self._known.get(secret)
        if known is None:
            number = self.digests.setdefault(self._digest(secret), len(self.digests) + 1)
            known = self._known[secret] = REDACTED if number == 1 else f"{REDACTED[:-1]} {number}]"
        return known

    def _digest(self, secret: str) -> str:
        text = secret.encode("utf-8", "surrogatepass")
        if len(text) < _GUESSABLE:
            return hashlib.pbkdf2_hmac("sha256", text, self.salt, _ROUNDS).hex()
        return hmac.new(self.salt, text, "sha256").hexdigest()

    def head(self) -> dict[str, Any]:
        head: dict[str, Any] = {"format": FORMAT, "version": self.version}
        if self.version > 1:
            head |= {"salt": self.salt.hex(), "secrets": list(self.digests)}
        return head

    @classmethod
    def of(cls, head: Mapping[str, Any]) -> TapeSecrets:
        """Read the first line of a tape."""
        if head["version"] == 1:
            return cls(b"", version=1)
        if not all(isinstance(digest, str) for digest in head["secrets"]):
            raise TypeError("a digest is not text")
        return cls(bytes.fromhex(head["salt"]), head["secrets"], version=head["version"])

    def same(self, recorded: Any, asked: Any) -> bool:
        """Tell whether a request matches one on a version-1 tape, on which a placeholder stands for any text."""
        if isinstance(recorded, dict) and isinstance(asked, dict):
            return recorded.keys() == asked.keys() and all(self.same(recorded[key], asked[key]) for key in asked)
        if isinstance(recorded, list) and isinstance(asked, list):
            return len(recorded) == len(asked) and all(map(self.same, recorded, asked))
        if isinstance(recorded, str) and REDACTED in recorded:
            return recorded == REDACTED or (isinstance(asked, str) and _fits(recorded.split(REDACTED), asked))
        return type(recorded) is type(asked) and bool(recorded == asked)


def _fits(pieces: list[str], text: str) -> bool:
    """Tell whether a text consists of these pieces in order, with any text between them, from its start to its end."""
    first, *inner, last = pieces
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    place, stop = len(first), len(text) - len(last)
    for piece in inner:
        place = text.find(piece, place, stop)
        if place < 0:
            return False
        place += len(piece)
    return True


class Tape(NamedTuple):
    """The contents of a file."""

    secrets: TapeSecrets
    entries: list[Entry]


def _logprob(token: str, number: float, alternatives: Any = ()) -> TokenLogprob:
    return TokenLogprob(token, number, tuple((other, nats) for other, nats in alternatives))


def content_of(request: ModelRequest) -> dict[str, Any]:
    """Return a request as plain data, without purpose and thread, which do not affect the answer; secrets are not removed."""
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
    # Through JSON once, so that the comparison uses exactly the data that a tape can hold.
    plain_content: dict[str, Any] = json.loads(json.dumps(content))
    return plain_content


def differences(recorded: Any, asked: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, on the tape, requested) for each difference between two requests; a missing field is None."""
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
    hint = "Record the tape again, or restore it from version control."
    return NoeticError(
        "invalid_run_file", f"Line {line} of the tape {path.name!r} {what}", hint=hint, path=str(path), line=line
    )


def read_cassette(path: Path) -> Tape:
    try:
        with regular_file(path) as file:
            lines = file.read().splitlines()
    except OSError as exc:
        what = f"The tape {path.name!r} cannot be read: {exc.strerror}"
        raise NoeticError("storage_failed", what, path=str(path)) from exc
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
        raise _corrupt(path, 1, f"has no valid header of a tape (format {FORMAT!r})")
    if head["version"] > VERSION:
        raise _corrupt(path, 1, f"says version {head['version']}, newer than {VERSION}, the newest known here")
    try:
        kept = TapeSecrets.of(head)
    except (LookupError, TypeError, ValueError) as exc:
        raise _corrupt(path, 1, "does not list its secrets") from exc
    entries = []
    for number, record in enumerate(records[1:], start=2):
        entry = Entry(record.get("request", {}), record.get("answer", {}))
        try:
            if not isinstance(entry.request, dict):
                raise TypeError("the request is not an object")
            entry.replay()
        except (ItemValidationError, LookupError, TypeError, ValueError, AttributeError) as exc:
            raise _corrupt(path, number, f"holds no answer ({type(exc).__name__}: {exc})") from exc
        except NoeticError:
            pass  # a refusal, which is an answer too
        entries.append(entry)
    return Tape(kept, entries)


def write_cassette(path: Path, tape: Tape) -> None:
    """Write a whole tape at once: after a crash, the file is either the old one or the new one."""
    lines: list[Any] = [tape.secrets.head()]
    lines += [{"request": entry.request, "answer": entry.answer} for entry in tape.entries]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.writelines(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    except OSError as exc:
        what = f"The tape {path.name!r} cannot be written: {exc.strerror}"
        hint = "Check the folder, its permissions and the free space; the answer itself was received."
        raise NoeticError("storage_failed", what, hint=hint, path=str(path)) from exc
