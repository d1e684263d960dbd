"""A run as OpenTelemetry spans: turns, steps, model calls, tools and hooks, nested as they ran.

Needs the extra ``otel``; the OpenTelemetry API is imported when an exporter is made. Texts are omitted by default,
because traces are shared more widely than conversations should be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import structs

from noetic_nb import events as ev
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.items import Item, item_text, thaw
from noetic_nb.items._origins import MODEL, with_origin
from noetic_nb.redact import Redaction
from noetic_nb.runs._events.event_json import dump_event
from noetic_nb.runs._events.run_log import named_items

__all__ = ["OTelExporter"]

# Milliseconds of the run's clock to nanoseconds since the epoch.
NS_PER_MS: Final = 1_000_000
# More concurrent executions than a harness runs.
_MOST_OPEN: Final = 1_024
_OPERATIONS: Final = {"recall": "search_memory", "store": "update_memory"}
# The values that a trace may include without texts: sizes, times, names and outcomes.
_WITHOUT_TEXTS: Final[Mapping[type[Any], Mapping[str, Any]]] = {
    ev.TurnStarted: {"query": "", "memory": ()},
    ev.TurnCompleted: {"text": "", "stopped": None},
    ev.StepStarted: {},
    ev.StepEnded: {},
    ev.ChildStarted: {"items": (), "handed": {}, "memory": ()},
    ev.ChildEnded: {"text": ""},
    ev.ModelCalled: {"items": (), "logprobs": ()},
    ev.ContextCompacted: {"items": ()},
    ev.ToolCalled: {"args": None, "raw_args": None, "output": ""},
    ev.MemoryTraceSpan: {"attributes": None, "notes": ()},
    ev.BudgetsAllocated: {},
    ev.ViewAssembled: {"layer_items": (), "unsent": (), "projection": None, "appended": ()},
    ev.LayersDropped: {},
}


class OTelExporter:
    """An event sink that turns events into spans; `runs_from_spans` reads them back.

    Parameters
    ----------
    agent_name : str
        For ``gen_ai.agent.name``.
    tracer_provider : opentelemetry.trace.TracerProvider, optional
        The global one by default.
    provider_name : str, default "noetic_nb"
        For ``gen_ai.provider.name``: the provider of the model.
    capture_content : bool, default False
        Put the texts of queries, answers, arguments and results into the spans. Without it, a run that is read back has
        the same turns, calls, usage and layers, but no text.

    Raises
    ------
    NoeticConfigError
        ``MISSING_EXTRA`` if OpenTelemetry is not installed.

    References
    ----------
    .. [1] OpenTelemetry, Semantic conventions for generative AI: agent, client, tool and memory spans.
    .. [2] docs/behaviour/interop.md, "Spans of our own".

    Examples
    --------
    ``harness.subscribe(OTelExporter("desk"))`` sends every later turn to the configured exporters.
    """

    def __init__(
        self,
        agent_name: str,
        *,
        tracer_provider: Any = None,
        provider_name: str = "noetic_nb",
        capture_content: bool = False,
    ) -> None:
        hint = "pip install 'noetic_nb[otel]'"
        with optional_package("OpenTelemetry is not installed.", hint, code="MISSING_EXTRA"):
            from opentelemetry import trace
        self._trace = trace
        self._tracer = trace.get_tracer("noetic_nb", tracer_provider=tracer_provider)
        self._agent = agent_name
        self._provider = provider_name
        self._content = capture_content
        self._redaction = Redaction()
        self._count = 0
        # Open spans by execution, outermost first. A child's list begins with the span it was started in.
        self._open: dict[str, list[Any]] = {}
        # Spans of steps by execution and path, because parallel steps end in any order.
        self._steps: dict[tuple[str, str], Any] = {}
        # Events without a span of their own by execution, kept for the next span that ends.
        self._before: dict[str, list[Any]] = {}
        # By execution: the messages of the turn so far, its query, and recall spans that wait for the recalled text.
        self._messages: dict[str, list[dict[str, Any]]] = {}
        self._queries: dict[str, str] = {}
        self._recalls: dict[str, list[tuple[Any, ev.MemoryTraceSpan]]] = {}

    def emit(self, event: ev.RunEvent) -> None:
        """Export one event."""
        match event:
            case ev.TurnStarted():
                self._turn_started(event)
            case ev.TurnCompleted():
                self._ended(event, "turn", {"noetic.outcome": event.outcome})
            case ev.StepStarted():
                self._step_started(event)
            case ev.StepEnded():
                self._step_ended(event)
            case ev.ChildStarted():
                self._child_started(event)
            case ev.ChildEnded():
                self._ended(event, "child", {"noetic.layers_out": list(event.returned)})
            case ev.ModelCalled():
                self._model_called(event)
            case ev.ToolCalled():
                self._tool_called(event)
            # A skipped hook has no duration.
            case ev.MemoryTraceSpan() if event.status != "skipped":
                self._hook_called(event)
            case _:
                self._without_span(event)

    def _without_span(self, event: ev.RunEvent) -> None:
        match event:
            case ev.LayersDropped():
                self._note(event.where, "layers_dropped", event.t_ms, {"layers": list(event.layer_ids)})
            case ev.ErrorRaised():
                self._note(event.where, "error", event.t_ms, {"error.type": event.error_kind, "message": event.message})
            case ev.WarningRaised():
                facts = {"code": event.code, "message": event.text, "layer": event.layer_id or ""}
                self._note(event.where, "warning", event.t_ms, facts)
            case ev.SteeringDecided():
                about = {"action": event.action, "rules": list(event.rule_ids), "tool": event.tool_name or ""}
                self._note(event.where, f"steering.{event.hook}", event.t_ms, about)
            case ev.ItemsAppended() if self._content:
                self._items_appended(event)
            case ev.ViewAssembled() if self._content:
                self._end_recalls(event.where.execution_id, event)
            case ev.LayerStateChanged():
                return  # as large as the whole memory, and repeated at every change
            case _:
                pass
        wire = self._wire(event)
        if wire is not None:
            _of(self._before, event.where.execution_id).append(wire)

    def _wire(self, event: ev.RunEvent) -> list[Any] | None:
        """Return an event as data, with its number; None if it has only texts and these are omitted."""
        self._count += 1
        blank = _WITHOUT_TEXTS.get(type(event))
        if not self._content:
            if blank is None:
                return None
            event = structs.replace(event, **blank)
        return [self._count, dump_event(event)]

    def _start(self, where: ev.Where, name: str, t_ms: float, parent: Any = None, kind: Any = None) -> Any:
        stack = self._open.get(where.execution_id)
        parent = stack[-1] if parent is None and stack else parent
        context = None if parent is None else self._trace.set_span_in_context(parent)
        span = self._tracer.start_span(
            self._redaction.text(name),
            context=context,
            start_time=round(t_ms * NS_PER_MS),
            kind=kind or self._trace.SpanKind.INTERNAL,
        )
        self._put(span, {"gen_ai.conversation.id": where.thread_id, "noetic.execution.id": where.execution_id})
        return span

    def _put(self, span: Any, about: dict[str, Any]) -> None:
        # Spans travel further than runs, so only this method and the next write to them.
        span.set_attributes(self._redaction.data(about))

    def _put_json(self, span: Any, name: str, value: Any) -> None:
        clean = self._redaction.data(value)
        span.set_attribute(name, json.dumps(clean, ensure_ascii=False, separators=(",", ":"), default=str))

    def _end(self, span: Any, event: Any, problem: str | None = None, error_type: str | None = None) -> None:
        """End the span of an event and store the event on it for `runs_from_spans`."""
        before = self._before.pop(event.where.execution_id, None)
        if before:
            self._put_json(span, "noetic.before", before)
        self._put_json(span, "noetic.event", self._wire(event))
        if problem is not None:
            self._put(span, {"error.type": error_type or "error"})
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, self._redaction.text(problem)))
        span.end(end_time=round(event.t_ms * NS_PER_MS))

    def _whole(self, event: Any, name: str, kind: Any = None) -> Any:
        """Return a span for an event that was reported after it ended."""
        return self._start(event.where, name, event.t_ms - (event.duration_ms or 0.0), kind=kind)

    def _note(self, where: ev.Where, name: str, t_ms: float, about: dict[str, Any]) -> None:
        stack = self._open.get(where.execution_id)
        if stack:
            clean = self._redaction.data(about)
            stack[-1].add_event(self._redaction.text(name), clean, timestamp=round(t_ms * NS_PER_MS))

    def _turn_started(self, event: ev.TurnStarted) -> None:
        span = self._start(event.where, f"invoke_agent {self._agent}", event.t_ms)
        self._put(
            span,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self._agent,
                "gen_ai.provider.name": self._provider,
                "noetic.turn.id": event.turn_id,
            },
        )
        if self._content:
            self._put_json(span, "gen_ai.input.messages", _text_message("user", event.query))
            self._queries[event.where.execution_id] = event.query
        self._put_json(span, "noetic.started", self._wire(event))
        self._open[event.where.execution_id] = [span]

    def _items_appended(self, event: ev.ItemsAppended) -> None:
        sent = _of(self._messages, event.where.execution_id)
        # Items whose author differs from the author that their role implies.
        of_parent = event.where.depth and event.origin == "user"
        sent.extend(written(_of_parent(event.items) if of_parent else named_items(event)))
        stack = self._open.get(event.where.execution_id)
        # A layer changed the query before the first answer, so the turn's query is not entirely the user's.
        if event.origin == "layer" and stack and not any(message["role"] == "assistant" for message in sent):
            self._put_json(stack[0], "gen_ai.input.messages", sent)

    def _ended(self, event: ev.TurnCompleted | ev.ChildEnded, what: str, about: dict[str, Any]) -> None:
        stack = self._closed(event)
        if stack:
            self._put(stack[0], {**_spent(event), **about})
            if self._content:
                self._put_json(stack[0], "gen_ai.output.messages", _text_message("assistant", event.text))
            self._end(stack[0], event, f"the {what} failed" if event.outcome == "failure" else None, event.outcome)

    def _closed(self, event: ev.TurnCompleted | ev.ChildEnded) -> list[Any]:
        """Return the spans of an execution that has ended, its own first; steps without a reported end end with it."""
        execution_id = event.where.execution_id
        self._end_recalls(execution_id)
        stack = self._open.pop(execution_id, [])
        for span in reversed(stack[1:]):
            span.end(end_time=round(event.t_ms * NS_PER_MS))
        for key in [key for key in self._steps if key[0] == execution_id]:
            del self._steps[key]
        self._messages.pop(execution_id, None)
        self._queries.pop(execution_id, None)
        return stack

    def _step_started(self, event: ev.StepStarted) -> None:
        execution_id = event.where.execution_id
        around = self._steps.get((execution_id, event.path.rpartition("/")[0]))
        stack = self._open.setdefault(execution_id, [])
        # If the surrounding step is unknown, the parent is the first open span: the turn or the child.
        span = self._start(event.where, f"step {event.step_id}", event.t_ms, around or (stack[0] if stack else None))
        self._put(span, {"noetic.step.kind": event.step_kind, "noetic.step.path": event.path})
        self._put_json(span, "noetic.started", self._wire(event))
        stack.append(span)
        self._steps[execution_id, event.path] = span

    def _step_ended(self, event: ev.StepEnded) -> None:
        execution_id = event.where.execution_id
        # By path, not from the top of the stack, because parallel steps end in any order.
        span = self._steps.pop((execution_id, event.path), None)
        stack = self._open.get(execution_id)
        if span is None or stack is None:
            return
        stack.remove(span)
        if not stack:  # in an execution that is held open: its steps are not within a turn
            del self._open[execution_id]
        self._put(span, {"noetic.status": event.status})
        self._end(span, event, event.error if event.status == "error" else None, event.status)

    def _child_started(self, event: ev.ChildStarted) -> None:
        parent = self._open.get(event.parent_id) or [None]
        span = self._start(event.where, f"{event.step_kind} {event.step_id}", event.t_ms, parent[-1])
        about = {"noetic.items_in": len(event.items), "noetic.layers_in": list(event.handed)}
        self._put(
            span, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event.step_id or "child", **about}
        )
        if self._content:
            given = written(_of_parent(event.items))
            self._messages[event.where.execution_id] = given
            self._put_json(span, "gen_ai.input.messages", given)
        self._put_json(span, "noetic.started", self._wire(event))
        self._open[event.where.execution_id] = [span]

    def _model_called(self, event: ev.ModelCalled) -> None:
        execution_id = event.where.execution_id
        self._end_recalls(execution_id)
        span = self._whole(event, f"chat {event.model}", self._trace.SpanKind.CLIENT)
        self._put(
            span,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": self._provider,
                "gen_ai.request.model": event.model,
                "gen_ai.usage.cache_read.input_tokens": event.cached_tokens,
                "gen_ai.usage.cache_creation.input_tokens": event.cache_write_tokens,
                "gen_ai.usage.reasoning.output_tokens": event.reasoning_tokens,
                "noetic.purpose": event.purpose,
                **_spent(event),
            },
        )
        if event.finish_reason is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [event.finish_reason])
        if self._content:
            answer = written(event.items)
            for message in answer[-1:]:
                message["finish_reason"] = event.finish_reason or "stop"
            self._put_json(span, "gen_ai.output.messages", answer)
            if event.purpose == "agent":
                self._put_json(span, "gen_ai.input.messages", self._messages.get(execution_id, []))
        self._end(span, event, event.error if event.status == "error" else None, event.status)

    def _tool_called(self, event: ev.ToolCalled) -> None:
        span = self._whole(event, f"execute_tool {event.name}")
        self._put(
            span,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.name,
                "gen_ai.tool.call.id": event.call_id,
                "gen_ai.tool.type": "function",
                "noetic.status": event.status,
            },
        )
        if self._content:
            if event.args is not None:
                self._put_json(span, "gen_ai.tool.call.arguments", thaw(event.args))
            self._put(span, {"gen_ai.tool.call.result": event.output})
        problem = None if event.status == "ok" else event.error or event.status
        self._end(span, event, problem, event.error_type or event.status)

    def _hook_called(self, event: ev.MemoryTraceSpan) -> None:
        operation = _OPERATIONS.get(event.hook)
        name = f"{operation} {event.layer_id}" if operation else f"memory {event.layer_id}.{event.hook}"
        span = self._whole(event, name)
        about: dict[str, Any] = {"gen_ai.memory.store.id": event.layer_id}
        if operation:
            about["gen_ai.operation.name"] = operation
        if event.item_count is not None:
            about["gen_ai.memory.record.count"] = event.item_count
        if event.budget is not None:
            about |= {"noetic.budget.allocated": event.budget.allocated, "noetic.budget.used": event.budget.used}
        self._put(span, about)
        if event.error_stack is not None:
            # In the form in which OpenTelemetry's own instrumentation records an exception.
            raised = {"type": event.error_type, "message": event.error, "stacktrace": event.error_stack}
            noted = {f"exception.{key}": self._redaction.text(value or "") for key, value in raised.items()}
            span.add_event("exception", noted, timestamp=round(event.t_ms * NS_PER_MS))
        execution_id = event.where.execution_id
        if self._content and event.hook == "recall":
            self._put(span, {"gen_ai.memory.query.text": self._queries.get(execution_id, "")})
            # The recalled text is known when the view is assembled; the end time stays that of the hook.
            self._recalls.setdefault(execution_id, []).append((span, event))
        else:
            self._end(span, event, event.error, event.status)

    def _end_recalls(self, execution_id: str, view: ev.ViewAssembled | None = None) -> None:
        for span, event in self._recalls.pop(execution_id, ()):
            recalled = [item for layer_id, item in view.layer_items if layer_id == event.layer_id] if view else []
            if recalled:
                records = [{"id": item.get("id"), "content": item_text(item)} for item in recalled]
                self._put_json(span, "gen_ai.memory.records", records)
            self._end(span, event, event.error, event.status)


def _of(kept: dict[str, list[Any]], execution_id: str) -> list[Any]:
    """Return the kept entries of an execution; entries outside turns never end, so only the last is kept."""
    if execution_id not in kept and len(kept) >= _MOST_OPEN:
        del kept[next(iter(kept))]
    return kept.setdefault(execution_id, [])


def _text_message(role: str, text: str) -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def _spent(event: ev.TurnCompleted | ev.ChildEnded | ev.ModelCalled) -> dict[str, Any]:
    spent = {
        "gen_ai.usage.input_tokens": event.input_tokens,
        "gen_ai.usage.output_tokens": event.output_tokens,
        "noetic.cost_usd": event.cost,
    }
    return {name: value for name, value in spent.items() if value is not None}


def _of_parent(items: Iterable[Item]) -> list[Item]:
    """Return the messages given to a child, which code or a model wrote, not a user."""
    return [with_origin(item, MODEL) if item.get("role") == "user" else item for item in items]


def written(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Return items as messages of the OpenTelemetry conventions: a role, parts with a type, and an author's name."""
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
        # The reasoning, text and calls of an answer form one message; so do the results of parallel calls.
        if made and made[-1]["role"] == role and role in ("assistant", "tool"):
            made[-1]["parts"] += parts
        else:
            name = {"name": item["origin"]} if kind == "message" and "origin" in item else {}
            made.append({"role": role, "parts": parts, **name})
    return made


def _written(part: Mapping[str, Any]) -> dict[str, Any]:
    for key, kind in (("imageUrl", "uri"), ("fileUrl", "uri"), ("fileData", "blob"), ("fileId", "file")):
        if isinstance(part.get(key), str):
            name = {"uri": "uri", "blob": "content", "file": "file_id"}[kind]
            return {"type": kind, "modality": "image" if key == "imageUrl" else "document", name: part[key]}
    return {"type": "text", "content": part.get("text") or part.get("refusal") or ""}
