"""Chunks of a streamed chat completion that were kept, put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def joined(messages: Sequence[Any]) -> list[Any]:
    """Return messages in which the chunks of a streamed response are that response."""
    made: list[Any] = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("object") != "chat.completion.chunk":
            made.append(message)
            continue
        last = made[-1] if made and isinstance(made[-1], _Streamed) and made[-1]["id"] == message.get("id") else None
        if last is None:
            last = _Streamed(id=message.get("id"), choices=[])
            made.append(last)
        last.add(message)
    return made


class _Streamed(dict[str, Any]):
    """A response that is put together from its chunks."""

    def add(self, chunk: Mapping[str, Any]) -> None:
        for key in ("model", "created", "usage"):
            if chunk.get(key) is not None:
                self[key] = chunk[key]
        for choice in chunk.get("choices") or ():
            place = choice.get("index") or 0
            # One place more at most: a hostile index makes no list of its size.
            if place >= len(self["choices"]):
                place = len(self["choices"])
                self["choices"].append({"message": {"role": "assistant", "content": None}, "finish_reason": None})
            whole = self["choices"][place]
            whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]
            for key, piece in (choice.get("delta") or {}).items():
                if key == "tool_calls":
                    self._add_calls(whole["message"].setdefault(key, []), piece or ())
                elif isinstance(piece, str) and key != "role":
                    whole["message"][key] = (whole["message"].get(key) or "") + piece
                elif piece is not None:
                    whole["message"][key] = piece

    @staticmethod
    def _add_calls(calls: list[dict[str, Any]], pieces: Sequence[Any]) -> None:
        for piece in pieces:
            place = piece.get("index")
            if not isinstance(place, int) or not 0 <= place < len(calls):
                place = len(calls)
                calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
            calls[place]["id"] = piece.get("id") or calls[place]["id"]
            function = piece.get("function") or {}
            for key in ("name", "arguments"):
                calls[place]["function"][key] += function.get(key) or ""
