"""The parts of a recorded agent, rebuilt from the run: model answers, tool results and schemas, and its configuration.

Files contain no code. A tool needs none as long as the tape answers; a custom function or layer does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Annotated, Any, Final, Literal, Union
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from noetic_nb._core.worker_threads import ON_THE_SPOT, leaves_loop
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import (
    ModelCalled,
    OfferedTool,
    RequestPrepared,
    SteeringDecided,
    StepEnded,
    ToolCalled,
    ViewAssembled,
    Where,
)
from noetic_nb.items import freeze, thaw
from noetic_nb.items._json_form import json_form
from noetic_nb.items._json_text import compact_json
from noetic_nb.lab._replaying.replay_report import contents
from noetic_nb.models._client import ModelRequest, ModelResponse, TokenLogprob, ToolSpec, Usage
from noetic_nb.runs import Run
from noetic_nb.runs._recorded_origins import RecordedClock
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runtime import AgentConfig, load_config
from noetic_nb.runtime._execution.approval import RESPONSE
from noetic_nb.steps import Registry, Tool
from noetic_nb.steps._tools import drained, spec_tokens, wire_name
from noetic_nb.sync import awaited
from noetic_nb.tokens import Tokenizer

_PLAIN: Final[Mapping[str, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_FORMATS: Final[Mapping[str, Any]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
}
_LIMITS: Final[Mapping[str, str]] = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}


def offered_tools(run: Run) -> dict[str, Tool]:
    """Return the tools offered to models in a run, by name; calling one raises."""
    asked = {
        event.tool_name
        for event in run.select(SteeringDecided)
        # A rule that asks is named; without one, the tool itself needs approval.
        if event.layer_id == "approval" and not event.rule_ids
    }
    found: dict[str, Tool] = {}
    for event in run.select(RequestPrepared):
        for offered in event.tools:
            if offered.name not in found:
                found[offered.name] = _tool(offered, offered.name in asked)
    return found


def _tool(offered: OfferedTool, needs_approval: bool) -> Tool:
    parameters = thaw(offered.parameters)

    def execute(**_: Any) -> Any:
        raise RuntimeError(f"The code of tool {offered.name!r} is not in the run.")

    spec = ToolSpec(offered.name, offered.description, parameters, offered.strict)
    return Tool(
        name=offered.name,
        description=offered.description,
        input=_model(f"{wire_name(offered.name)}_arguments", parameters, parameters.get("$defs", {}), ()),
        output=TypeAdapter(Any),
        execute=execute,
        needs_approval=needs_approval,
        inline=True,
        spec=spec,
        tokens=spec_tokens(spec),
    )


def _model(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], outer: tuple[str, ...]) -> type[BaseModel]:
    """Return a class that accepts the same arguments as a pydantic class's JSON Schema, with the same error messages."""
    required = schema.get("required", ())
    fields: dict[str, Any] = {}
    for key, inner in schema.get("properties", {}).items():
        kind = _type(inner, defs, outer)
        fields[key] = kind if key in required else (kind, inner.get("default"))
    extra: Literal["forbid", "ignore"] = "forbid" if schema.get("additionalProperties") is False else "ignore"
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra=extra), **fields)
    return model


def _type(schema: Any, defs: Mapping[str, Any], outer: tuple[str, ...]) -> Any:
    match schema:
        case {"$ref": str() as ref}:
            name = ref.rpartition("/")[2]
            # A recursive type accepts any value inside itself.
            return Any if name in outer or name not in defs else _type(defs[name], defs, (*outer, name))
        case {"const": value}:
            return Literal[value]
        case {"enum": [*values]}:
            return Literal[tuple(values)]
        case {"anyOf": [*some]}:
            return Union[tuple([_type(one, defs, outer) for one in some])]  # noqa: UP007  # a variable number
        case {"type": "array", "items": items}:
            inner = _type(items, defs, outer)
            return _limited(set[inner] if schema.get("uniqueItems") else list[inner], schema)  # type: ignore[valid-type]
        case {"type": "object", "properties": dict()}:
            return _model(schema.get("title", "part"), schema, defs, outer)
        case {"type": "object"}:
            values = schema.get("additionalProperties")
            return dict[str, _type(values, defs, outer)] if isinstance(values, dict) else dict[str, Any]  # type: ignore[misc]
        case {"type": "array"}:
            return _limited(list[Any], schema)
        case {"type": "string", "format": str() as form} if form in _FORMATS:
            return _FORMATS[form]
        case {"type": str() as kind} if kind in _PLAIN:
            return _limited(_PLAIN[kind], schema)
    return Any


def _limited(kind: Any, schema: Mapping[str, Any]) -> Any:
    limits = {word: schema[name] for name, word in _LIMITS.items() if name in schema}
    return Annotated[kind, Field(**limits)] if limits else kind


_WRAPPED: Final = re.compile(r"^Model .* failed, or its answer is not a response: (\w+): ")
_RETURNED = frozenset({"ok", "error", "invalid_result"})


@dataclass
class Tape:
    """The answers of a run in order, up to the call `until` of a fork; `model` and `tools` answer all other requests."""

    run: Run
    model: Any = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    until: RecordedRequest | None = None
    tokenizer: Tokenizer | None = None
    diverged: dict[str, str] = field(default_factory=dict)
    """By thread, the reason why it diverged from the recorded one."""
    stopped: str | None = None
    forked: bool = False
    approvals: list[bool] = field(default_factory=list)
    """For each approval, whether the recorded run asked the same question."""
    clock: RecordedClock = field(default_factory=RecordedClock)
    """Advances by the recorded duration of each recorded answer."""

    def __post_init__(self) -> None:
        self._others: dict[tuple[str, str], list[ModelCalled]] = {}
        self._results: dict[tuple[str, str], list[ToolCalled]] = {}
        # Recorded answers to approval questions: True, or the reason of a refusal.
        self._asked: dict[tuple[str, str], list[bool | str]] = {}
        # The types of errors of clients that the harness wraps, by the identity of the call.
        self._raised: dict[int, str] = {}
        failed: dict[Where, ModelCalled] = {}
        for event in self.run.events:
            if isinstance(event, ModelCalled) and event.status == "error":
                failed[event.where] = event
            elif isinstance(event, StepEnded) and event.where in failed:
                wrapped = _WRAPPED.search(event.error or "")
                called = failed.pop(event.where)
                if wrapped is not None:
                    self._raised[id(called)] = wrapped[1]
            if isinstance(event, ModelCalled) and event.purpose != "agent":
                self._others.setdefault((event.purpose, event.model), []).append(event)
            elif isinstance(event, SteeringDecided) and event.layer_id == "approval":
                answer = True if event.action == "allow" else event.guidance or False
                # The row does not contain the text of a response that needed approval.
                about = "" if event.tool_name is None else _arguments(thaw(event.args or {}))
                self._asked.setdefault((event.tool_name or RESPONSE, about), []).append(answer)
            elif isinstance(event, ToolCalled) and event.status in _RETURNED:
                self._results.setdefault((event.name, _arguments(thaw(event.args or {}))), []).append(event)
        self._waiting: dict[str, list[RecordedRequest]] = {}
        for request in requests_of(self.run, self.tokenizer).requests:
            if request.called is not None:
                self._waiting.setdefault(request.where.thread_id, []).append(request)

    def begin_turn(self, thread_id: str, turn: int) -> None:
        """Note that a turn begins; earlier turns' unused calls are where the run diverged."""
        waiting = self._waiting.get(thread_id, [])
        if waiting and waiting[0].where.turn < turn:
            self.diverged.setdefault(thread_id, f"turn {waiting[0].where.turn} ended before call {waiting[0].place}")

    def left(self) -> dict[str, int | None]:
        """Return, by thread, the first recorded call that was not made again."""
        return {thread_id: waiting[0].place for thread_id, waiting in self._waiting.items() if waiting}

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer from the tape, or else from the model."""
        if self.stopped is not None:
            raise self._stop(self.stopped)
        if request.purpose != "agent":
            known = self._others.get((request.purpose, request.model), [])
            if known and not self.diverged and not self.forked:
                return self._response(known.pop(0))
            return await self._live(request, f"a request of purpose {request.purpose!r} to {request.model!r}")
        thread_id = request.thread_id
        recorded = None if thread_id in self.diverged or self.forked else self._next(request)
        if recorded is None:
            return await self._live(request, self.diverged.get(thread_id, "the call that was forked"))
        assert recorded.called is not None
        return self._response(recorded.called)

    def _response(self, event: ModelCalled) -> ModelResponse:
        self.clock.t_ms += event.duration_ms or 0.0
        if id(event) in self._raised:
            raise type(self._raised[id(event)], (Exception,), {})(event.error)
        return _response(event)

    def reaches(self, thread_id: str) -> bool:
        """Tell whether the next call of a thread is the forked call, or comes after it."""
        if self.until is None or self.forked:
            return self.forked
        waiting = self._waiting.get(thread_id, [])
        return bool(waiting) and waiting[0].seq == self.until.seq

    def _next(self, request: ModelRequest) -> RecordedRequest | None:
        thread_id = request.thread_id
        if self.reaches(thread_id):
            self.forked = True
            return None
        waiting = self._waiting.get(thread_id, [])
        if self.until is not None:
            return waiting.pop(0) if waiting else None
        asked = contents(request.items, request.instructions)
        # Parallel children may call in another order, but within one turn.
        for at, recorded in enumerate(waiting):
            if recorded.where.turn != waiting[0].where.turn:
                break
            sent = contents([each.item for each in recorded.items], recorded.instructions)
            if sent == asked and _has_same_options(recorded, request):
                return waiting.pop(at)
        what = f"call {waiting[0].place} was sent another request" if waiting else "there was one call more"
        self.diverged.setdefault(thread_id, f"{what} in thread {thread_id!r}")
        return None

    async def _live(self, request: ModelRequest, why: str) -> ModelResponse:
        client = self.model.get(request.model) if isinstance(self.model, Mapping) else self.model
        if client is None:
            self.stopped = f"no model for {request.model!r}: {why}"
            raise self._stop(self.stopped)
        return await awaited(client.complete(request))  # type: ignore[no-any-return]

    def _stop(self, why: str) -> NoeticError:
        return NoeticError("llm_failed", f"The replay stopped: {why}", hint="Pass model=.")

    def approve(self, name: str, args: Mapping[str, Any]) -> bool | str:
        """Answer as the user answered about this call; without a question, answer by whether the call was made."""
        key = name, "" if name == RESPONSE else _arguments(thaw(args))
        asked = self._asked.get(key)
        self.approvals.append(bool(asked))
        return asked.pop(0) if asked else bool(self._results.get(key))

    def taped(self, tool: Tool) -> Tool:
        """Return a tool that gives recorded results; it only runs code if it is in `tools` and the run has diverged."""

        async def execute(ctx: Any, **args: Any) -> Any:
            return await self._result(tool.name, args, ctx)

        return replace(tool, execute=execute, wants_context=True, streams=False, output=_ANY)

    async def _result(self, name: str, args: dict[str, Any], ctx: Any) -> Any:
        live = self.tools.get(name)
        is_past = not (self.forked or ctx.thread_id in self.diverged)
        known = self._results.get((name, _arguments(args)), [])
        if known and (is_past or live is None):
            # Repeat the last result if the call is made more often than in the recording.
            event = known.pop(0) if len(known) > 1 else known[0]
            self.clock.t_ms += event.duration_ms or 0.0
            if event.status == "ok":
                return event.output
            raise type(event.error_type or "Exception", (Exception,), {})(event.error or event.output)
        if live is not None:
            given = {**args, "ctx": ctx} if live.wants_context else args
            worker = ON_THE_SPOT if live.inline or live.wants_context or not leaves_loop() else ctx.tree.worker
            await worker.acquire()
            try:
                result = await worker.call(copy_context().run, partial(live.execute, **given))
                return live.checked(await (drained(result, worker=worker) if live.streams else awaited(result)))
            finally:
                worker.release()
        # The first of several calls at the same time is the end of the known part.
        self.stopped = self.stopped or f"tool {name!r} was not called so in the recorded run, and is not among tools="
        raise RuntimeError(f"not run: {self.stopped}")


def _has_same_options(recorded: RecordedRequest, request: ModelRequest) -> bool:
    """Tell whether a request goes to the same model, with the same tools, parameters and schema of the answer."""
    before = recorded.prepared
    params = None if request.params is None else request.params.model_dump(exclude_none=True)
    tools = tuple([OfferedTool(*spec[:2], freeze(spec.parameters), spec.strict) for spec in request.tools])
    now = request.model, tools, freeze(params or {}), freeze(request.output_schema)
    return before is None or (before.model, before.tools, before.params, before.output_schema) == now


def _arguments(args: Mapping[str, Any]) -> str:
    try:
        return compact_json(thaw(json_form(args)))
    except (TypeError, ValueError):
        return repr(args)


_ANY: Final = TypeAdapter[Any](Any)


def _response(event: ModelCalled) -> ModelResponse:
    if event.status != "ok":
        what = event.error or f"The recorded call was {event.status}."
        raise NoeticError("llm_failed", what, usage=Usage(*event.counts), cost=event.cost)
    return ModelResponse(
        event.items,
        Usage(*event.counts),
        event.cost,
        tuple([TokenLogprob(token, logprob) for token, logprob in event.logprobs]),
        event.model,
        event.finish_reason,
    )


_KINDS: Final[Mapping[str, str]] = {"fn": "function", "tool": "tool", "layer": "layer", "codec": "codec"}
_MADE_WITH: Final = "Make its configuration and say run.made_with(config)."


def agent_of(
    run: Run, tools: Mapping[str, Tool], *, rules: Any = None, layers: Sequence[Any] | None = None
) -> AgentConfig:
    """Return the agent of a run, from this process or its bundle; `tools`, `rules` and `layers` replace recorded ones."""
    if run.meta.get("config") is None and not run.select(ViewAssembled):
        raise NoeticConfigError(
            "OPEN_LOOP_ONLY",
            "This run was imported from another system. It does not contain the requests, so it cannot be continued.",
            given=run.meta.get("source"),
            hint='Use mode="open".',
        )
    if isinstance(run._config, AgentConfig):
        return run._config
    bundle = run.bundle
    config = None if bundle is None else bundle.get("config")
    if not isinstance(config, Mapping):
        what = "The agent of this run is neither in this process nor in the run, so it cannot run again."
        hint = f"{_MADE_WITH} run.save(path, bundle=True) keeps it in the file."
        raise NoeticConfigError("NO_AGENT", what, given=run.run_id, hint=hint)
    data = {**config, "memory": list(_needed(run, config, rules, layers))}
    known = {**offered_tools(run), **tools}
    registry = Registry(tools=known.values())
    named_in = {kind: frozenset(registry.names(kind)) for kind in _KINDS}
    missing = [
        ref for ref in dict.fromkeys(_references(data)) if ref.partition(":")[2] not in named_in[ref.partition(":")[0]]
    ]
    if missing:
        named = ", ".join(f"{_KINDS[kind]} {name!r}" for kind, _, name in (ref.partition(":") for ref in missing))
        also = " A tool may be given by tools=, rules by rules=, layers by layers=."
        what = f"The agent of this run cannot be built, because a file has no code: {named}."
        raise NoeticConfigError("NO_AGENT", what, given=run.run_id, hint=_MADE_WITH + also, missing=tuple(missing))
    try:
        return load_config(data, registry)
    except (NoeticConfigError, TypeError, ValueError) as error:
        what = f"The agent of this run cannot be built from its bundle: {error}"
        raise NoeticConfigError("NO_AGENT", what, given=run.run_id, hint=_MADE_WITH) from error


def _needed(run: Run, config: Mapping[str, Any], rules: Any, layers: Sequence[Any] | None) -> Iterator[Any]:
    """Return the layers that are not replaced: a replaced rule or layer may refer to unavailable objects."""
    entries = config.get("memory", ())
    ids = _ids(run, len(entries))
    wanted = None if layers is None or ids is None else {layer for layer in layers if isinstance(layer, str)}
    for entry, layer_id in zip(entries, ids or (None,) * len(entries), strict=True):
        kind = entry.get("kind") if isinstance(entry, Mapping) else None
        if kind == "steering" and rules is not None:
            options = {**entry.get("options", {}), "rulebook": []}
            options.pop("rules", None)
            yield {**entry, "options": options}
        elif wanted is None or layer_id in wanted or kind in ("steering", "regulation"):
            yield entry


def _ids(run: Run, count: int) -> list[Any] | None:
    match run.meta.get("config"):
        case {"memory": list() | tuple() as described} if len(described) == count:
            return [layer.get("id") for layer in described]
    return None


def _references(data: Any, key: str = "") -> Iterator[str]:
    if isinstance(data, Mapping):
        ref = data.get("$ref")
        if isinstance(ref, str) and ref.partition(":")[0] in _KINDS:
            yield ref
        elif key != "params":  # the user's own data
            for name, inner in data.items():
                yield from _references(inner, name)
    elif isinstance(data, list | tuple):
        for inner in data:
            yield from _references(inner)
