"""Codex rollouts: a JSONL file with responses API items, the usage of each call, and program events."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.names import keys
from noetic_nb.interop._formats import agent_logs as logs
from noetic_nb.interop._formats import sources
from noetic_nb.items import Item
from noetic_nb.items._messages import message as msg
from noetic_nb.runs import Run

FORMATS: Final = ("codex",)
READS: Final = sources.EVERYTHING - {"costs", "labels", "tool definitions"}
_TYPES: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_READ: Final = frozenset(
    {"session_meta", "turn_context", "response_item", "compacted", "token_usage_record", "event_msg"}
)
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "mcp_call"}
)
_NOT_SAID: Final = (
    "<environment_context", "<user_instructions", "<subagent_notification", "<turn_aborted", "<INSTRUCTIONS",
    "<permissions", "<skills", "# AGENTS.md instructions",
)  # fmt: skip
_KEYS: Final = sources.Keys(
    keys(
        "type timestamp payload id role content text summary call_id name namespace metadata source data media_type url",
        "base_instructions instructions originator cli_version parent_thread_id agent_nickname agent_role model effort",
        "usage input_tokens output_tokens cached_input_tokens cache_write_input_tokens reasoning_output_tokens",
        "info total_token_usage last_token_usage message replacement_history provenance content_item_metadata",
        "internal_chat_message_metadata_passthrough",
    ),
    keys("arguments input action output status image_url encrypted_content"),
    {
        **dict.fromkeys(
            keys(
                "ordinal session_id turn_id root_turn_id thread_id response_id window_id first_window_id previous_window_id",
                "started_at_ms completed_at_ms started_at completed_at compaction_response_id history_sequence create_time",
                "sampled_through_sequence user_input_order",
                "content_item_kinds retained_source",
            ),
            "the id, the number or the time of a line, a turn or a window",
        ),
        "item": "an item that another line has, too; of it exit codes and the ids of sub-agents are read",
        "last_agent_message": "a text that another line has, too",
        "total_tokens": "the sum of two others",
        "turn_token_usage": "the sum of calls",
        "thread_token_usage": "the sum of calls",
        "latest_token_usage_record": "a usage once more",
        "replacement_history_metadata": "facts of the items that are kept, which stand at them",
        "retained_context": "messages that are kept, once more",
    },
)
# Events that repeat items and counts of other lines.
_AGAIN: Final = frozenset(
    {"item_started", "item_completed", "token_count", "task_started", "task_complete", "turn_started", "turn_complete",
     "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "exec_command_begin",
     "exec_command_end", "exec_command_output_delta", "patch_apply_begin", "patch_apply_end", "mcp_tool_call_begin",
     "mcp_tool_call_end", "web_search_begin", "web_search_end", "context_compacted"}
)  # fmt: skip
_EXIT: Final = re.compile(r"(?:Process exited with code|Exit code:?) (-?\d+)")
_LOOKED_AT: Final = 10
_MOST_SIBLINGS: Final = 500
_DEEPEST: Final = 10


def looks_like(document: sources.Document) -> bool:
    """Tell whether a document is a rollout: lines with a type and a payload."""
    lines = sources.first_lines(document, _LOOKED_AT)
    return any(logs.text_of(line.get("type")) in _TYPES and isinstance(line.get("payload"), Mapping) for line in lines)


def is_part(document: sources.Document) -> bool:
    """Tell whether a file in a folder is a sub-agent's rollout whose parent's rollout is in the same folder."""
    about = msg.mapping(next(sources.first_lines(document, 1), {}).get("payload"))
    parent = logs.text_of(about.get("parent_thread_id"))
    return parent is not None and document.path is not None and _rollout_of(parent, document.path) is not None


def read(document: sources.Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each rollout of a document."""
    notes = logs.Notes()
    parts: list[list[Mapping[str, Any]]] = [[]]
    known: set[str] = set()
    for line in sources.lines_of(document, notes.add):
        about = msg.mapping(line.get("payload")) if line.get("type") == "session_meta" else {}
        # A forked session begins with its own head, followed by the head of its parent.
        if parts[-1] and about and str(about.get("id")) not in known:
            parts.append([])
            known = set()
        known |= {value for value in about.values() if isinstance(value, str)}
        parts[-1].append(line)
    for number, lines in enumerate(parts):
        yield partial(_run, document, lines, notes if number == 0 else logs.Notes())


def _run(document: sources.Document, lines: list[Mapping[str, Any]], notes: logs.Notes) -> Run:
    reader = _Reader(document.path, notes)
    talk = reader.talk(lines)
    about = reader.about
    prompt = about.get("base_instructions", about.get("instructions"))
    policy = logs.text_of(msg.mapping(prompt).get("text")) if isinstance(prompt, Mapping) else logs.text_of(prompt)
    meta = {
        "source": "codex",
        "model": reader.model,
        "agent": logs.text_of(about.get("originator")) or "codex",
        "agent_version": logs.text_of(about.get("cli_version")),
    }
    for kind, number in reader.skipped.items():
        reader.notes.add(kind, number, "lines of a type that a run cannot represent")
    known = {key: value for key, value in meta.items() if value}
    return logs.agent_run(logs.text_of(about.get("id")), talk, known, reader.notes, policy=policy or "")


class _Reader:
    """Reads the lines of one agent and of its sub-agents."""

    def __init__(self, path: Path | None, notes: logs.Notes, depth: int = 0) -> None:
        self.path = path
        self.notes = notes
        self.depth = depth
        self.about: Mapping[str, Any] = {}
        self.model: str | None = None
        self.effort: str | None = None
        self.skipped: Counter[str] = Counter()
        self._talk: logs.Talk = []
        # The items of the answer being read: its texts, reasoning and calls.
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Item] = []
        self._ended_ms: float | None = None
        self._unpaid: list[msg.Message] = []
        self._total: Any = None
        self._failed: dict[str, str] = {}
        self._spawned: dict[str, str] = {}

    def talk(self, lines: Sequence[Mapping[str, Any]]) -> logs.Talk:
        """Return a rollout as messages."""
        has_records = any(line.get("type") == "token_usage_record" for line in lines)
        for line in lines:
            # The event that reports a program's exit code may come before or after its output.
            item = msg.mapping(msg.mapping(line.get("payload")).get("item"))
            if item.get("type") == "CommandExecution" and type(item.get("exit_code")) is int and item["exit_code"]:
                self._failed[str(item.get("id"))] = f"exit code {item['exit_code']}"
            if item.get("tool") == "spawn_agent" and isinstance(item.get("receiver_thread_ids"), list):
                self._spawned |= {str(item.get("id")): str(name) for name in item["receiver_thread_ids"][:1]}
        for number, line in enumerate(lines):
            with self.notes.line(number, line):
                self._line(line, f"line {number + 1}", has_records)
        self._flush()
        return self._talk

    def _line(self, line: Mapping[str, Any], place: str, has_records: bool) -> None:
        payload = msg.mapping(line.get("payload", line))
        t_ms = msg.time_ms(line.get("timestamp")) if isinstance(line.get("timestamp"), str) else None
        kind, about = str(line.get("type")), str(payload.get("type"))
        if kind == "session_meta":
            self.about = self.about or payload
        elif kind == "turn_context":
            self.model = logs.text_of(payload.get("model")) or self.model
            self.effort = logs.text_of(payload.get("effort")) or self.effort
        elif kind == "response_item":
            self._item(payload, t_ms, place)
        elif kind == "compacted":
            self._compacted(payload, t_ms)
        elif kind == "token_usage_record":
            self._flush(empty=True)
            self._pay(msg.mapping(payload.get("usage")))
        elif kind == "event_msg" and about == "token_count" and not has_records:
            self._counted(msg.mapping(payload.get("info")))
        elif kind == "event_msg" and about in ("error", "stream_error", "turn_aborted"):
            self.notes.add(place, payload, "an event of the program")
        elif kind != "event_msg":
            self.skipped[kind] += 1
        elif about not in _AGAIN:
            self.skipped[f"event_msg.{about}"] += 1
        if kind in _READ:
            self.notes.rest(place, line, _KEYS, kind)

    def _item(self, item: Mapping[str, Any], t_ms: float | None, place: str) -> None:
        kind, role = str(item.get("type")), item.get("role")
        if kind == "message" and role == "assistant":
            self._ended_ms = t_ms
            self._texts += [str(part.get("text", "")) for part in msg.records(item.get("content"))]
        elif kind == "message":
            self._flush()
            self._talk.append(self._said(item, t_ms, place))
        elif kind == "reasoning":
            self._ended_ms = t_ms
            parts = [*msg.records(item.get("summary")), *msg.records(item.get("content"))]
            self._thoughts += [str(part["text"]) for part in parts if isinstance(part.get("text"), str)]
        elif kind in _CALLS:
            self._ended_ms = t_ms
            given = next((item[key] for key in ("arguments", "input", "action") if item.get(key) is not None), None)
            name = item.get("name") or str(kind).removesuffix("_call")
            self._calls.append(msg.call(str(name), given, str(item.get("call_id") or item.get("id"))))
        elif kind in _OUTPUTS:
            self._flush()
            self._talk.append(self._output(item, t_ms))
        elif kind in ("compaction", "compaction_summary", "context_compaction"):
            self._flush()
            self._talk.append(msg.Compaction("codex", opaque=item.get("encrypted_content") is not None, t_ms=t_ms))
        else:
            self.notes.add(place, item, "an item that a run cannot represent")

    def _said(self, item: Mapping[str, Any], t_ms: float | None, place: str) -> msg.Message:
        content = item.get("content")
        text = "".join([str(part.get("text", "")) for part in msg.records(content)])
        if item.get("role") != "user":
            return logs.system(text, t_ms=t_ms)
        about = msg.mapping(item.get("internal_chat_message_metadata_passthrough"))
        origins = [
            msg.mapping(each.get("provenance")).get("type") for each in msg.records(about.get("content_item_metadata"))
        ]
        is_user = "user" in origins if origins else not text.lstrip().startswith(_NOT_SAID)
        if is_user and not text.lstrip().startswith(_NOT_SAID):
            return logs.user(content, self.notes, place, t_ms=t_ms)
        return logs.by_program(logs.input_parts(content, self.notes, place), t_ms=t_ms)

    def _flush(self, *, empty: bool = False) -> None:
        """Write the pending answer, if any; with `empty`, write one for a call that produced no output."""
        if not (self._texts or self._calls or self._thoughts or (empty and not self._unpaid)):
            return
        message = logs.answer(
            "".join(self._texts),
            self._calls,
            thoughts="\n\n".join(self._thoughts) or None,
            model=self.model,
            params=None if self.effort is None else {"reasoning_effort": self.effort},
            finish_reason="tool_calls" if self._calls else "stop",
            t_ms=self._ended_ms,
        )
        self._texts, self._thoughts, self._calls, self._ended_ms = [], [], [], None
        self._talk.append(message)
        self._unpaid.append(message)

    def _pay(self, usage: Mapping[str, Any]) -> None:
        if self._unpaid:
            self._unpaid.pop(0).usage = msg.usage_of(
                usage,
                read="input_tokens",
                written="output_tokens",
                cached=usage.get("cached_input_tokens"),
                stored=usage.get("cache_write_input_tokens"),
                reasoning=usage.get("reasoning_output_tokens"),
            )

    def _counted(self, info: Mapping[str, Any]) -> None:
        """Read a token count; unchanged totals repeat after a compaction and between turns, and are ignored."""
        total = info.get("total_token_usage")
        if total is None or total == self._total:
            return
        self._total = total
        self._flush()
        self._pay(msg.mapping(info.get("last_token_usage")))

    def _output(self, item: Mapping[str, Any], t_ms: float | None) -> msg.Message:
        call_id, output = str(item.get("call_id") or item.get("id")), item.get("output")
        success = None
        if isinstance(output, Mapping):
            success, output = output.get("success"), output.get("content", output.get("output"))
        text, _ = msg.result_text(output)
        error = self._failed.get(call_id)
        known = error is not None or isinstance(success, bool)
        if success is False:
            error = error or text or "failed"
        exited = _EXIT.search(text[:500])
        if error is None and exited is not None:
            known, error = True, None if exited[1] == "0" else f"exit code {exited[1]}"
        if error is None and not known and text.startswith("{"):
            code = msg.mapping(msg.mapping(_parsed(text)).get("metadata")).get("exit_code")
            if type(code) is int:
                known, error = True, f"exit code {code}" if code else None
        if error is None and text.startswith(("unsupported ", "failed ", "error:")):
            known, error = True, text
        child = self._child(call_id, text)
        children = {} if child is None else {call_id: child}
        native = "openai-responses", item
        return logs.result(call_id, output, native, error=error, known=known, children=children, t_ms=t_ms)

    def _compacted(self, payload: Mapping[str, Any], t_ms: float | None) -> None:
        self._flush()
        summary = logs.text_of(payload.get("message"))
        last = self._talk[-1] if self._talk else None
        wrote = None
        if isinstance(last, msg.Message) and last.role == "assistant" and summary is not None:
            said = "".join([str(part.get("text", "")) for item in last.items for part in item.get("content") or ()])
            if said and said.strip() in summary:
                wrote = last
                self._talk.pop()
        history = msg.records(payload.get("replacement_history"))
        if isinstance(last, msg.Compaction):  # the item of a compaction comes just before its line
            self._talk.pop()
        opaque = any(each.get("encrypted_content") for each in history if "compaction" in str(each.get("type")))
        # User messages that are kept unchanged; the last of them is the summary.
        kept = [
            msg.text_message("user", logs.input_parts(each.get("content"), self.notes, "compacted"))
            for each in history
            if each.get("type") == "message" and each.get("role") == "user"
        ]
        if summary is not None:
            told = msg.text_message("user", logs.input_parts(summary, self.notes, "compacted"))
            kept = [*[item for item in kept if item["content"] != told["content"]], told]
        self._talk.append(
            msg.Compaction(
                "codex",
                tuple(kept),
                (wrote.usage or {}).get("input_tokens") if wrote is not None else None,
                opaque=opaque or (summary is None and isinstance(last, msg.Compaction) and last.opaque),
                trigger="auto",
                answer=wrote,
                t_ms=t_ms,
            )
        )

    def _child(self, call_id: str, output: str) -> msg.Child | None:
        agent_id = self._spawned.get(call_id) or logs.text_of(msg.mapping(_parsed(output)).get("agent_id"))
        if agent_id is None or self.path is None or self.depth >= _DEEPEST:
            return None
        file = _rollout_of(agent_id, self.path)
        if file is None:
            self.notes.add(f"tool {call_id}", agent_id, "the missing log of a sub-agent")
            return None
        inner = _Reader(file, self.notes, self.depth + 1)
        talk = inner.talk(list(sources.lines_of(sources.read_document(file), self.notes.add)))
        self.skipped += inner.skipped
        name = inner.about.get("agent_nickname") or inner.about.get("agent_role") or "agent"
        return msg.Child(str(name), talk)


def _parsed(text: str) -> Any:
    if not text.startswith("{"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _rollout_of(thread_id: str, path: Path) -> Path | None:
    """Return the rollout file of a thread in the same folder; real file names contain the thread's id."""
    files = [file for file in islice(path.parent.glob("*.jsonl"), _MOST_SIBLINGS) if file != path]
    for file in sorted(files, key=lambda each: thread_id not in each.name):
        first = sources.first_record(file)
        if first.get("type") == "session_meta" and msg.mapping(first.get("payload")).get("id") == thread_id:
            return file
    return None
