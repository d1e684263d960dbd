"""Items as the messages that OpenTelemetry's conventions put on spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.items._frozen import thaw
from noetic_nb.items._item import Item


def written(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Return items as the conventions of OpenTelemetry write messages: a role, and parts with a type."""
    made: list[dict[str, Any]] = []
    for item in items:
        kind = item["type"]
        if kind == "function_call_output":
            role = "tool"
            parts: list[Any] = [
                {"type": "tool_call_response", "id": item.get("callId"), "response": item.get("output") or ""}
            ]
        elif kind == "function_call":
            role = "assistant"
            arguments = parsed(item.get("arguments"))
            parts = [{"type": "tool_call", "id": item.get("callId"), "name": item.get("name"), "arguments": arguments}]
        elif kind == "reasoning":
            role = "assistant"
            words = item.get("content") or item.get("summary") or ()
            parts = [{"type": "reasoning", "content": "".join([part.get("text") or "" for part in words])}]
        elif kind == "message":
            role = str(item.get("role"))
            content = item.get("content") or ()
            parts = [{"type": "text", "content": content}] if isinstance(content, str) else [*map(_written, content)]
        else:
            role, parts = "assistant", [{"type": kind, "content": thaw(item)}]
        # An answer's thoughts, words and calls are one message; so are the results of calls side by side.
        if made and made[-1]["role"] == role and role in ("assistant", "tool"):
            made[-1]["parts"] += parts
        else:
            made.append({"role": role, "parts": parts})
    return made


def _written(part: Mapping[str, Any]) -> dict[str, Any]:
    for key, kind in (("imageUrl", "uri"), ("fileUrl", "uri"), ("fileData", "blob"), ("fileId", "file")):
        if isinstance(part.get(key), str):
            name = {"uri": "uri", "blob": "content", "file": "file_id"}[kind]
            return {"type": kind, "modality": "image" if key == "imageUrl" else "document", name: part[key]}
    return {"type": "text", "content": part.get("text") or part.get("refusal") or ""}
