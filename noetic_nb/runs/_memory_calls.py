"""Calls of the memory tool that Anthropic's API defines, which others copied: reads and writes of files of memory."""

from __future__ import annotations

from typing import Final

from noetic_nb.events import MemoryTraceSpan, ToolCalled
from noetic_nb.items._frozen import FrozenDict

_WRITES: Final = frozenset({"create", "str_replace", "insert", "delete", "rename"})
_FOLDER: Final = "/memories"


def memory_span(call: ToolCalled) -> MemoryTraceSpan | None:
    """Return a call of the memory tool as an operation of a layer, None for any other call."""
    args = call.args
    if call.name != "memory" or args is None:
        return None
    command, path = args.get("command"), args.get("path", args.get("old_path"))
    if command not in ("view", *_WRITES) or not isinstance(path, str) or not path.startswith(_FOLDER):
        return None
    about = {"command": command, "path": path, "new_path": args.get("new_path")}
    return MemoryTraceSpan(
        call.where,
        call.t_ms,
        "memory",
        "store" if command in _WRITES else "recall",
        call.duration_ms or 0.0,
        "ok" if call.status == "ok" else "error",
        error=call.error,
        attributes=FrozenDict({key: value for key, value in about.items() if value is not None}),
    )
