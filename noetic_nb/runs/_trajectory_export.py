"""Exports a thread of a run as a trajectory in Harbor's ATIF 1.8; facts without a field of their own go to ``extra``."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from noetic_nb import events as ev
from noetic_nb.items import Item, thaw
from noetic_nb.runs._events.run_log import named_items

VERSION: Final = "ATIF-v1.8"
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


@dataclass(slots=True)
class _Trajectory:
    """The trajectory of one agent (the root or a child) while it is written."""

    name: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    children: list[dict[str, Any]] = field(default_factory=list)
    # By call id, the agent steps whose calls wait for their results.
    open: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Ended children that belong to the next settled call.
    ended: list[dict[str, Any]] = field(default_factory=list)
    answered: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    model: str | None = None
    instructions: str = ""
    other_calls: list[dict[str, Any]] = field(default_factory=list)


class _Writer:
    def __init__(self, run: Any, thread_id: str) -> None:
        self.run = run
        self.estimated = set(run.meta.get("estimated") or ())
        self.levels: dict[str, _Trajectory] = {}
        self.root = _Trajectory(str(run.meta.get("agent") or "noetic_nb"))
        self.thread_id = thread_id
        self.qualities: list[float] = []
        # The turn's last called tool, and the tools that ended a turn.
        self.settled: str | None = None
        self.closing: dict[str, None] = {}

    def write(self, events: Iterable[ev.RunEvent]) -> dict[str, Any]:
        policy = self.run.meta.get("policy")
        for event in events:
            where = event.where
            level = self.levels.get(where.execution_id, self.root)
            if isinstance(event, ev.RequestPrepared):
                self._prepared(level, event)
            elif isinstance(event, ev.ItemsAppended):
                self._items(level, event)
            elif isinstance(event, ev.ModelCalled):
                self._called(level, event)
            elif isinstance(event, ev.ToolCalled):
                self.settled = event.name if where.depth == 0 else self.settled
                self._settled(level, event)
            elif isinstance(event, ev.ContextCompacted):
                self._compacted(level, event)
            elif isinstance(event, ev.ChildStarted):
                inner = _Trajectory(event.step_id or event.step_kind)
                self.levels[where.execution_id] = inner
                for item in event.items:
                    self._message(inner, item, event.t_ms, "user")
            elif isinstance(event, ev.ChildEnded) and where.execution_id in self.levels:
                parent = self.levels.get(event.parent_id, self.root)
                inner = self.levels.pop(where.execution_id)
                parent.children.append(self._finished(inner, where.execution_id))
                parent.ended.append({"trajectory_id": where.execution_id})
                self._attach(parent)
            elif isinstance(event, ev.QualityGiven):
                self.qualities.append(event.quality)
            elif isinstance(event, ev.TurnStarted) and where.depth == 0:
                level.answered, self.settled = None, None
            elif isinstance(event, ev.TurnCompleted) and event.outcome == "success" and not event.text and self.settled:
                self.closing[self.settled] = None
        known = [step for step in self.root.steps if step["source"] == "system"]
        if policy and not any(step["message"] == policy for step in known):
            self.root.steps.insert(0, {"source": "system", "message": policy, "extra": {"policy": True}})
        found = self._finished(self.root, None)
        about = {
            "meta": _plain(
                {key: value for key, value in self.run.meta.items() if key not in _ELSEWHERE and value is not None}
            ),
            "estimated": sorted(self.estimated),
            "closing_tools": list(self.closing),
            "quality": self.qualities[-1] if self.qualities else None,
            "outcome": self.run.meta.get("outcome"),
            "other_calls": self.root.other_calls,
        }
        found["extra"] = {key: value for key, value in about.items() if value not in (None, [], {})}
        return found

    def _prepared(self, level: _Trajectory, event: ev.RequestPrepared) -> None:
        level.tools = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": thaw(tool.parameters)},
            }
            for tool in event.tools
        ] or None
        if event.instructions and event.instructions != level.instructions:
            self._add(level, event.t_ms, "system", event.instructions)
            if not level.instructions:  # the first system prompt goes to the front
                level.steps.insert(0, level.steps.pop())
            level.instructions = event.instructions

    def _add(self, level: _Trajectory, t_ms: float, source: str, message: Any, **more: Any) -> dict[str, Any]:
        step: dict[str, Any] = {
            "source": source,
            "message": message,
            **{k: v for k, v in more.items() if v is not None},
        }
        if "t_ms" not in self.estimated:
            step["timestamp"] = (
                datetime.fromtimestamp(t_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            )
        level.steps.append(step)
        return step

    def _message(self, level: _Trajectory, item: Item, t_ms: float, origin: str) -> None:
        role = item.get("role")
        if item["type"] != "message":
            if origin == "seed" and item["type"] == "function_call":
                self._add(level, t_ms, "agent", "", tool_calls=[_call(item)], is_copied_context=True)
            elif item["type"] not in ("function_call", "function_call_output", "reasoning"):
                self._add(level, t_ms, "system", "", extra={"item": _plain(thaw(item))})
            return
        source = {"user": "user", "assistant": "agent"}.get(str(role), "system")
        copied = True if origin in ("seed",) and source != "system" else None
        if source == "agent" and origin not in ("seed",):
            return
        named = {"origin": item["origin"]} if "origin" in item else None
        self._add(level, t_ms, source, _content(item), is_copied_context=copied, extra=named)

    def _items(self, level: _Trajectory, event: ev.ItemsAppended) -> None:
        if event.origin in ("model", "tool"):  # written with the call
            for item in event.items:
                if event.origin == "model" and item["type"] == "function_call" and item.get("callId") not in level.open:
                    step = self._add(level, event.t_ms, "agent", "", tool_calls=[_call(item)], llm_call_count=0)
                    level.open[str(item["callId"])] = step
            return
        for item in named_items(event):
            self._message(level, item, event.t_ms, event.origin)

    def _called(self, level: _Trajectory, event: ev.ModelCalled) -> None:
        metrics = self._metrics(event)
        if event.purpose not in ("agent", "summary"):
            level.other_calls.append({"purpose": event.purpose, "model": event.model, **metrics})
            return
        level.model = level.model or event.model
        texts, thoughts, calls = [], [], []
        for item in event.items:
            if item["type"] == "message":
                texts.append(_content(item))
            elif item["type"] == "reasoning":
                thoughts += [
                    str(part.get("text", "")) for part in (*(item.get("summary") or ()), *(item.get("content") or ()))
                ]
            elif item["type"] == "function_call":
                calls.append(item)
        whole = texts[0] if len(texts) == 1 else "".join([text for text in texts if isinstance(text, str)])
        extra = {
            "finish_reason": event.finish_reason,
            "model_error": event.error,
            "duration_ms": event.duration_ms,
            "purpose": None if event.purpose == "agent" else event.purpose,
        }
        step = self._add(
            level,
            event.t_ms,
            "agent",
            whole,
            model_name=event.model,
            reasoning_content="\n\n".join(thoughts) or None,
            tool_calls=[_call(item) for item in calls] or None,
            metrics=metrics,
            llm_call_count=1,
            extra={key: value for key, value in extra.items() if value is not None} or None,
        )
        level.open |= {str(item["callId"]): step for item in calls}
        level.answered = step

    def _metrics(self, event: ev.ModelCalled) -> dict[str, Any]:
        special = {"cache_write_tokens": event.cache_write_tokens, "reasoning_tokens": event.reasoning_tokens}
        found: dict[str, Any] = {
            "prompt_tokens": event.input_tokens,
            "completion_tokens": event.output_tokens,
            "cached_tokens": event.cached_tokens,
            "cost_usd": event.cost,
            "extra": {name: value for name, value in special.items() if value is not None} or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _settled(self, level: _Trajectory, event: ev.ToolCalled) -> None:
        step = level.open.pop(event.call_id, None)
        if step is None:
            step = level.answered
        if step is None:
            return
        extra: dict[str, Any] = {}
        if "status" not in self.estimated:
            extra = {"is_error": event.status != "ok", "status": event.status}
            if event.error is not None and event.error != event.output:
                extra["error"] = event.error
        if event.duration_ms is not None:
            extra["duration_ms"] = event.duration_ms
        result: dict[str, Any] = {"source_call_id": event.call_id, "content": event.output}
        if level.ended:
            result["subagent_trajectory_ref"] = level.ended
            level.ended = []
        if extra:
            result["extra"] = extra
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _attach(self, level: _Trajectory) -> None:
        """Refer to a child that was not started by a tool call."""
        if level.open or not level.ended:
            return
        step = level.steps[-1] if level.steps else self._add(level, 0.0, "system", "")
        results = step.setdefault("observation", {"results": []})["results"]
        results.append({"subagent_trajectory_ref": level.ended})
        level.ended = []

    def _compacted(self, level: _Trajectory, event: ev.ContextCompacted) -> None:
        about = {
            "by": event.by,
            "items_removed": event.items_removed,
            "tokens_before": event.tokens_before,
            "tokens_after": event.tokens_after,
            "opaque": event.opaque,
            "trigger": event.trigger,
            "model": event.model,
            "usage": None if event.usage is None else dict(event.usage),
            "summary_call": (level.answered or {}).get("extra", {}).get("purpose") == "summary",
        }
        text = "\n".join([said for item in event.items if isinstance(said := _content(item), str)])
        known = {key: value for key, value in about.items() if value is not None}
        self._add(level, event.t_ms, "system", text, extra={"context_compacted": known})

    def _finished(self, level: _Trajectory, trajectory_id: str | None) -> dict[str, Any]:
        steps = [{"step_id": number, **step} for number, step in enumerate(level.steps, 1)]
        sums: dict[str, Any] = {}
        for step in steps:
            for name, value in step.get("metrics", {}).items():
                if name != "extra":
                    sums[f"total_{name}"] = sums.get(f"total_{name}", 0) + value
        agent = {
            "name": level.name,
            "version": str(self.run.meta.get("agent_version") or "unknown"),
            "model_name": level.model,
            "tool_definitions": level.tools or (thaw(self.run.meta.get("tools")) if level is self.root else None),
        }
        return {
            "schema_version": VERSION,
            "session_id": self.run.run_id,
            "trajectory_id": trajectory_id or self.thread_id,
            "agent": {key: value for key, value in agent.items() if value is not None},
            "steps": steps,
            "final_metrics": {**sums, "total_steps": len(steps)},
            **({"subagent_trajectories": level.children} if level.children else {}),
        }


# Meta keys that have fields of their own in a trajectory.
_ELSEWHERE: Final = frozenset(
    {"policy", "estimated", "outcome", "tools", "agent", "agent_version", "unmapped", "dropped"}
)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(thaw(value), default=str))


def _call(item: Item) -> dict[str, Any]:
    """Return a call; arguments that are not a JSON object are stored separately."""
    text = str(item.get("arguments") or "")
    found: dict[str, Any] = {
        "tool_call_id": str(item.get("callId")),
        "function_name": str(item.get("name")),
        "arguments": {},
    }
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, dict):
        found["arguments"] = read
        # Keep the model's own text if it differs from ours.
        if json.dumps(read, ensure_ascii=False, separators=(",", ":")) == text:
            return found
    return {**found, "extra": {"arguments_text": text}}


def _content(item: Item) -> str | list[dict[str, Any]]:
    """Return the content of a message: text, or parts if it has more than text."""
    parts: list[dict[str, Any]] = []
    for part in item.get("content") or ():
        if isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif part.get("type") == "refusal":
            parts.append({"type": "text", "text": str(part.get("refusal") or "")})
        elif part.get("type") == "input_image" and isinstance(part.get("imageUrl"), str):
            parts.append(
                {"type": "image", "source": {"media_type": _media(part["imageUrl"]), "path": part["imageUrl"]}}
            )
        else:
            parts.append({"type": "text", "text": f"[{part.get('type')}]"})
    if all(part["type"] == "text" for part in parts):
        return "".join([part["text"] for part in parts])
    return parts


def _media(url: str) -> str:
    kind = url[5:].partition(";")[0] if url.startswith("data:") else mimetypes.guess_type(url.partition("?")[0])[0]
    return kind if kind in _IMAGES else "image/png"


def trajectory(run: Any, thread_id: str, events: Sequence[ev.RunEvent]) -> dict[str, Any]:
    return _Writer(run, thread_id).write([event for event in events if event.where.thread_id == thread_id])
