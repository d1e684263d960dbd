"""The requests of an imported run, put together from its log and the tokens that each call was billed for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.events import ContextCompacted, RunEvent
from noetic_nb.items._build import content_tokens
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._requests.shared_requests import HEAD, RequestPart
from noetic_nb.tokens import estimate_tokens

UNNAMED: Final = "recorded"
"""The model of a call whose source names none."""
_HEAD_ROLES: Final = ("system", "developer")


class ImportedRequests:
    """Puts the requests of an imported run together, in the order of its calls.

    A request is all of the log before it. Its sizes are the differences between the input tokens of the calls, so that a
    prefix has as many tokens as its call was billed for. Text is counted in the first request alone, to tell the
    instructions and the tools, which a source often leaves out, from the conversation.
    """

    def __init__(self, meta: Mapping[str, Any]) -> None:
        policy = meta.get("policy")
        self._policy = policy if isinstance(policy, str) else ""
        self._sent: dict[tuple[str, str], tuple[list[RequestPart], int]] = {}
        self._compacted = 0

    def compacted(self, event: RunEvent) -> None:
        """Read an event: after a compaction only the head of a request is as it was."""
        sent = self._sent.get(_key(event)) if isinstance(event, ContextCompacted) else None
        if sent is None:
            return
        self._compacted += 1
        head = [part for part in sent[0] if part.origin in HEAD]
        body = f"the context after compaction {self._compacted}"
        self._sent[_key(event)] = [*head, RequestPart("history", body, 0)], sent[1]

    def parts(self, request: RecordedRequest) -> tuple[RequestPart, ...]:
        """Return the parts of a request; empty where its model or its size is not known."""
        event, log = request.called, request.known
        if request.view is not None or event is None or log is None or not event.input_tokens or event.model == UNNAMED:
            return ()
        known, length = self._sent.get(_key(event), ([], 0))
        if not known:
            known = self._first(log, event.input_tokens)
        else:
            known = _grown(known, log[length:], event.input_tokens, request.place)
        self._sent[_key(event)] = known, len(log)
        return tuple(known)

    def _first(self, log: Any, tokens: int) -> list[RequestPart]:
        front = next((at for at, item in enumerate(log) if item.get("role") not in _HEAD_ROLES), len(log))
        system = [RequestPart("system", (item,), content_tokens(item)) for item in log[:front]]
        if not front and self._policy:
            system = [RequestPart("system", self._policy, estimate_tokens(self._policy))]
        talk = min(tokens, sum(map(content_tokens, log[front:])))
        told = sum([part.tokens for part in system])
        if told > tokens - talk:  # counted differently: none of it is left for tools
            shares = [part.tokens * (tokens - talk) // told for part in system]
            system = [part._replace(tokens=share) for part, share in zip(system, shares, strict=True)]
        rest = tokens - talk - sum([part.tokens for part in system])
        tools = [RequestPart("tools", "not recorded", rest)] if rest else []
        return [*tools, *system, *_stretch(log[front:], talk, 0)]


def _stretch(items: Any, tokens: int, place: int | None) -> list[RequestPart]:
    if len(items):
        return [RequestPart("history", items, tokens)]
    return [RequestPart("history", f"sent with call {place}", tokens)] if tokens else []


def _grown(parts: list[RequestPart], items: Any, tokens: int, place: int | None) -> list[RequestPart]:
    """Return a request that goes on from an earlier one; a shorter one was cut, nobody knows where: at its end at the latest."""
    kept, left = [], tokens
    for part in parts:
        if part.tokens > left:
            break
        kept.append(part)
        left -= part.tokens
    return [*kept, *_stretch(items if len(kept) == len(parts) else (), left, place)]


def _key(event: Any) -> tuple[str, str]:
    where = event.where
    return where.thread_id, "" if where.depth == 0 else where.execution_id
