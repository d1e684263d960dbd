"""Trajectories in ATIF, Harbor's Agent Trajectory Interchange Format, versions 1.0 to 1.8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of, keys
from noetic_nb.interop._formats import agent_logs as logs
from noetic_nb.interop._formats.sources import EVERYTHING, Document, Keys, first_value, read_document, record, refused
from noetic_nb.items import Item
from noetic_nb.items._messages import message as msg
from noetic_nb.items._messages.usage_fields import USAGE
from noetic_nb.items._origins import origin_named, with_origin
from noetic_nb.runs import Run

FORMATS: Final = ("atif",)
READS: Final = EVERYTHING
# The format has no field for these counts, so producers use different names; the first key present is used.
_STORED: Final = (
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "cache_write_input_tokens",
    "cache_creation_tokens",
)
_REASONING: Final = ("reasoning_tokens", "reasoning_output_tokens", "thinking_tokens")
_FAILED: Final = ("is_error", "isError", "tool_result_is_error", "error", "failed")
_COMPACTED: Final = ("context_compacted", "compaction", "context_compaction", "is_compact_summary")
_KEYS: Final = Keys(
    keys(
        "schema_version session_id trajectory_id agent steps subagent_trajectories extra name version model_name",
        "timestamp source message reasoning_content tool_calls observation metrics is_copied_context reasoning_effort",
        "function_name tool_call_id prompt_tokens completion_tokens cached_tokens cost_usd finish_reason model_error",
        "results source_call_id content subagent_trajectory_ref trajectory_path status type text policy duration_ms",
        "output_tokens_details completion_tokens_details tool_result_metadata cache_read_input_tokens",
        _STORED,
        _REASONING,
        _FAILED,
    ),
    keys(
        _COMPACTED,
        "tool_definitions arguments arguments_text final_metrics notes outcome meta estimated quality closing_tools",
    ),
    {
        "step_id": "the number of a step, which its place says",
        "llm_call_count": "how many model calls a step was, which is noted where it is not one",
        "media_type": "of a picture or a file, which its note shows",
        "path": "of a picture or a file, which its note shows",
        "raw_arguments": "a copy of the arguments",
        "raw_tool_result": "a copy of the result",
        "tool_use_result": "a copy of the result",
        "tool_use_name": "a copy of the name",
    },
)
_DEEPEST: Final = 20


def looks_like(document: Document) -> bool:
    """Tell whether a document is a trajectory, or a list of them."""
    first = first_value(document)
    return isinstance(first, Mapping) and "steps" in first and str(first.get("schema_version")).startswith("ATIF")


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each trajectory of a document."""
    data = document.data
    for place in range(len(data) if document.by_line or isinstance(data, list | tuple) else 1):
        yield partial(_run, document, place)


def _run(document: Document, place: int) -> Run:
    data = document.data
    entry = record(document, place) if document.by_line else data[place] if isinstance(data, list | tuple) else data
    if not isinstance(entry, Mapping) or not isinstance(entry.get("steps"), list):
        raise refused(document, "a trajectory needs a list of `steps`", index=place)
    notes, agent = logs.Notes(), msg.mapping(entry.get("agent"))
    reader = _Reader(document, entry, notes)
    talk = reader.talk(entry)
    for name, inner in reader.embedded.items():
        notes.add(f"{name}.final_metrics", inner.get("final_metrics"), "the sums of a sub-agent")
        if name not in reader.referenced:
            notes.add(name, inner, "a trajectory that no call refers to")
    extra = dict(msg.mapping(entry.get("extra")))
    own = {name: extra.pop(name) for name in ("meta", "estimated", "quality", "closing_tools") if name in extra}
    meta = {
        "source": "atif",
        "model": logs.text_of(agent.get("model_name")),
        "agent": logs.text_of(agent.get("name")),
        "agent_version": logs.text_of(agent.get("version")),
        "tools": agent.get("tool_definitions") or None,
        "outcome": extra.pop("outcome", None) if isinstance(extra.get("outcome"), bool) else None,
        "final_metrics": entry.get("final_metrics"),
        "notes": entry.get("notes"),
        "extra": extra or None,
    }
    meta = {**msg.mapping(own.get("meta")), **{key: value for key, value in meta.items() if value is not None}}
    notes.rest("", {**entry, "extra": None}, _KEYS)
    run_id = logs.text_of(entry.get("session_id")) or logs.text_of(entry.get("trajectory_id"))
    quality = msg.money(own.get("quality"))
    estimated = [name for name in own.get("estimated") or () if isinstance(name, str)]
    closing = [name for name in own.get("closing_tools") or () if isinstance(name, str)]
    return logs.agent_run(run_id, talk, meta, notes, quality=quality, estimated=estimated, closing_tools=closing)


class _Reader:
    """Reads the steps of a trajectory and of the trajectories that its calls refer to."""

    def __init__(self, document: Document, root: Mapping[str, Any], notes: logs.Notes) -> None:
        self.document = document
        self.notes = notes
        self.embedded: dict[str, Mapping[str, Any]] = {}
        self._collect(root, 0)
        self.open: set[str] = set()
        self.referenced: set[str] = set()

    def _collect(self, entry: Mapping[str, Any], depth: int) -> None:
        for inner in msg.records(entry.get("subagent_trajectories")) if depth < _DEEPEST else ():
            if (name := logs.text_of(inner.get("trajectory_id"))) is not None:
                self.embedded.setdefault(name, inner)
            self._collect(inner, depth + 1)

    def talk(self, entry: Mapping[str, Any]) -> logs.Talk:
        """Return the steps of a trajectory as messages."""
        model = logs.text_of(msg.mapping(entry.get("agent")).get("model_name"))
        talk: logs.Talk = []
        for number, step in enumerate(msg.records(entry.get("steps"))):
            place = f"steps[{number}]"
            about = msg.mapping(step.get("extra"))
            compaction = next((about[name] for name in _COMPACTED if about.get(name)), None)
            if compaction is not None:
                talk.append(self._compaction(step, msg.mapping(compaction), place, talk))
            elif step.get("source") == "agent":
                talk += self._answer(step, model, place)
            elif step.get("source") == "user" and not step.get("is_copied_context"):
                message = logs.user(step.get("message"), self.notes, f"{place}.message", t_ms=_at(step))
                message.items = tuple([_authored(item, about) for item in message.items])
                talk.append(message)
            else:
                talk += self._seeded(step, place)
        return talk

    def _seeded(self, step: Mapping[str, Any], place: str) -> Iterator[msg.Message]:
        """Yield a system step or one copied from an earlier conversation; neither is an act of this one."""
        role = "user" if step.get("source") == "user" else "system"
        parts = logs.input_parts(step.get("message"), self.notes, f"{place}.message")
        yield msg.Message(
            "system", (_authored(msg.text_message(role, parts), msg.mapping(step.get("extra"))),), t_ms=_at(step)
        )
        for text in self._observed(step, set()):
            yield logs.feedback(text, t_ms=_at(step))

    def _compaction(
        self, step: Mapping[str, Any], about: Mapping[str, Any], place: str, talk: logs.Talk
    ) -> msg.Compaction:
        parts = logs.input_parts(step.get("message"), self.notes, f"{place}.message")
        last = talk[-1] if talk else None
        wrote = None
        if about.get("summary_call") and isinstance(last, msg.Message) and last.role == "assistant":
            wrote = last
            talk.pop()
        usage = msg.mapping(about.get("usage"))
        return msg.Compaction(
            str(about.get("by") or "atif"),
            (msg.text_message("user", parts),) if parts else (),
            _count(about, "tokens_before"),
            _count(about, "tokens_after"),
            opaque=bool(about.get("opaque")),
            trigger=logs.text_of(about.get("trigger")),
            items_removed=_count(about, "items_removed"),
            answer=wrote,
            model=logs.text_of(about.get("model")),
            usage={name: number for name in USAGE["anthropic"].read if (number := _count(usage, name)) is not None}
            or None,
            t_ms=_at(step),
        )

    def _answer(self, step: Mapping[str, Any], model: str | None, place: str) -> Iterator[msg.Message]:
        calls = []
        for each in msg.records(step.get("tool_calls")):
            given = msg.mapping(each.get("extra")).get("arguments_text", each.get("arguments"))
            calls.append(msg.call(str(each.get("function_name")), given, str(each.get("tool_call_id"))))
        metrics = msg.mapping(step.get("metrics"))
        about = msg.mapping(step.get("extra"))
        reason = msg.mapping(metrics.get("extra")).get("finish_reason", about.get("finish_reason"))
        effort = step.get("reasoning_effort")
        text = self._text(step.get("message"), f"{place}.message")
        if step.get("is_copied_context"):
            made = logs.answer(text, calls)
            yield msg.Message("system", made.items, t_ms=_at(step))
            return
        count = step.get("llm_call_count")
        if type(count) is int and count > 1:
            self.notes.add(f"{place}.llm_call_count", count, "several model calls are reported as one")
        yield logs.answer(
            text,
            calls,
            thoughts=logs.text_of(step.get("reasoning_content")),
            model=logs.text_of(step.get("model_name")) or model,
            usage=_usage(metrics),
            cost=msg.money(metrics.get("cost_usd")),
            finish_reason=finish_reason_of(reason),
            params=None if effort is None else {"reasoning_effort": effort},
            t_ms=_at(step),
            is_called=count != 0,
            error=logs.text_of(about.get("model_error")),
            duration_ms=msg.money(about.get("duration_ms")),
        )
        yield from self._results(step, {str(each["callId"]) for each in calls}, place)

    def _results(self, step: Mapping[str, Any], calls: set[str], place: str) -> Iterator[msg.Message]:
        said = msg.records(msg.mapping(step.get("observation")).get("results"))
        orphans = [each for each in said if logs.text_of(each.get("source_call_id")) not in calls]
        for number, each in enumerate(said):
            call_id = logs.text_of(each.get("source_call_id"))
            if call_id not in calls:
                # A single result of a single call needs no id.
                if len(calls) == len(said) == 1 and each is orphans[0]:
                    call_id = next(iter(calls))
                else:
                    continue
            assert call_id is not None
            about = msg.mapping(each.get("extra"))
            failed = next((about[name] for name in _FAILED if name in about), None)
            if failed is None and isinstance(about.get("status"), str):
                failed = about["status"] not in ("ok", "success", "completed")
            text = self._text(each.get("content"), f"{place}.observation.results[{number}].content")
            error = (failed if isinstance(failed, str) else text or "failed") if failed else None
            children = {}
            for reference in msg.records(each.get("subagent_trajectory_ref")):
                if (child := self._child(reference, place)) is not None:
                    children[call_id] = child
            facts: dict[str, Any] = {
                "known": failed is not None,
                "t_ms": _at(step),
                "duration_ms": msg.money(about.get("duration_ms")),
            }
            yield logs.result(call_id, text, ("atif", None), error=error, children=children, **facts)
        for text in () if len(calls) == len(said) == 1 else self._observed(step, calls):
            yield logs.feedback(text, t_ms=_at(step))

    def _observed(self, step: Mapping[str, Any], calls: set[str]) -> Iterator[str]:
        """Yield the texts of results that match no call: feedback from the environment."""
        for each in msg.records(msg.mapping(step.get("observation")).get("results")):
            if logs.text_of(each.get("source_call_id")) not in calls and (
                text := self._text(each.get("content"), "observation")
            ):
                yield text

    def _text(self, content: Any, place: str) -> str:
        """Return content as text that names its images; images are noted."""
        parts = logs.input_parts(content, self.notes, place)
        for part in parts:
            self.notes.add(place, part.get("imageUrl"), "a picture outside of the user's messages")
        return "".join([str(part.get("text", f"[{part['type']}]")) for part in parts])

    def _child(self, reference: Mapping[str, Any], place: str) -> msg.Child | None:
        name = logs.text_of(reference.get("trajectory_id")) or logs.text_of(reference.get("session_id")) or ""
        entry: Any = self.embedded.get(name)
        path = logs.text_of(reference.get("trajectory_path"))
        if entry is None and path is not None:
            entry = self._beside(path)
            self.notes.rest(path, entry, _KEYS)
        if entry is None or name in self.open or len(self.open) >= _DEEPEST:
            self.notes.add(f"{place}.subagent_trajectory_ref", reference, "a missing trajectory")
            return None
        self.open.add(name)
        self.referenced.add(name)
        try:
            talk = self.talk(entry)
        finally:
            self.open.discard(name)
        return msg.Child(str(msg.mapping(entry.get("agent")).get("name") or name or "agent"), talk)

    def _beside(self, path: str) -> Any:
        """Return the trajectory in a file beside the document; a file outside its folder is never opened."""
        if self.document.path is None or Path(path).is_absolute() or ".." in Path(path).parts:
            return None
        file = self.document.path.parent / path
        return read_document(file).data if file.is_file() else None


def _authored(item: Item, about: Mapping[str, Any]) -> Item:
    """Return an item with the origin that `Run.to_atif` stored with it."""
    return with_origin(item, origin_named(about["origin"])) if "origin" in about else item


def _at(step: Mapping[str, Any]) -> float | None:
    return msg.time_ms(step.get("timestamp")) if isinstance(step.get("timestamp"), str) else None


def _count(about: Mapping[str, Any], name: str) -> int | None:
    value = about.get(name)
    return value if type(value) is int and value >= 0 else None


def _usage(metrics: Mapping[str, Any]) -> dict[str, int] | None:
    about = msg.mapping(metrics.get("extra"))
    inner = [about, *[msg.mapping(about.get(name)) for name in ("output_tokens_details", "completion_tokens_details")]]
    return msg.usage_of(
        metrics,
        read="prompt_tokens",
        written="completion_tokens",
        cached=metrics.get("cached_tokens"),
        stored=next((about[name] for name in _STORED if about.get(name) is not None), None),
        reasoning=next((one[name] for one in inner for name in _REASONING if one.get(name) is not None), None),
    )
