"""Claude Code sessions: a JSONL file with one line per block, and a file beside it for each sub-agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of, keys
from noetic_nb.interop._formats import agent_logs as logs
from noetic_nb.interop._formats.sources import EVERYTHING, Document, Keys, first_lines, lines_of, read_document
from noetic_nb.items import Item
from noetic_nb.items._messages import message as msg
from noetic_nb.items._messages.usage_fields import USAGE, known_usage
from noetic_nb.runs import Run

FORMATS: Final = ("claude-code",)
READS: Final = EVERYTHING - {"labels", "system prompt", "tool definitions"}
_LINES: Final = frozenset({"user", "assistant", "system"})
# User-role lines that the program wrote: terminal commands, notes added to a prompt, and interruptions by the user.
_NOT_SAID: Final = ("<command-", "<local-command-", "<bash-", "<system-reminder>", "[Request interrupted by user")
_KEYS: Final = Keys(
    keys(
        "type message timestamp isSidechain isMeta sessionId agentId version subtype isApiErrorMessage isCompactSummary",
        "compactMetadata microcompactMetadata preTokens postTokens trigger id role model content stop_reason usage",
        "text thinking name tool_use_id is_error source url data uuid error title",
        [path.partition(".")[0] for paths in USAGE["anthropic"].read.values() for path in paths],
        "thinking_tokens cache_creation server_tool_use ephemeral_5m_input_tokens ephemeral_1h_input_tokens",
    ),
    keys("input"),
    {
        **dict.fromkeys(
            keys(
                "parentUuid logicalParentUuid sourceToolAssistantUUID promptId requestId requestRef leafUuid headUuid",
                "anchorUuid tailUuid uuids allUuids messageId",
            ),
            "the id of a line or of a request",
        ),
        "toolUseResult": "the result again, as the program shows it; of it the id, type and status of a sub-agent are read",
        "signature": "the signature of a thought, which only its provider reads",
        "media_type": "of a picture, which its address says",
        "iterations": "the parts of a usage, or the calls of it once more",
        "apiBlockIndex": "the place of a block",
        "turnPosition": "the place of a turn",
        "originalLine": "a line again",
    },
)
_LOOKED_AT: Final = 50
_DEEPEST: Final = 10


def looks_like(document: Document) -> bool:
    """Tell whether a document is a session: lines with a session id, of types that the program writes."""
    lines = first_lines(document, _LOOKED_AT)
    return any(logs.text_of(line.get("type")) in _LINES and "sessionId" in line and "uuid" in line for line in lines)


def is_part(document: Document) -> bool:
    """Tell whether a file in a folder is a sub-agent's log, which is read with its parent session."""
    path = document.path
    names = () if path is None or path.parent.name != "subagents" else (".jsonl", ".jsonl.gz")
    return path is not None and any(path.parent.parent.with_suffix(name).is_file() for name in names)


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each session of a document."""
    notes = logs.Notes()
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    last = None
    waiting = []
    for line in lines_of(document, notes.add):
        last = logs.text_of(line.get("sessionId")) or last
        if last is None:
            waiting.append(line)
        else:  # lines without a session id belong to the session around them
            sessions.setdefault(last, waiting).append(line)
            waiting = []
    for number, lines in enumerate(sessions.values() if sessions else [waiting]):
        yield partial(_run, document, lines, notes if number == 0 else logs.Notes())


def _run(document: Document, lines: list[Mapping[str, Any]], notes: logs.Notes) -> Run:
    reader = _Reader(document.path, notes)
    sides = {id(line) for line in lines if line.get("isSidechain")}
    main = [line for line in lines if id(line) not in sides] if len(sides) < len(lines) else lines
    reader.sides = [line for line in lines if id(line) in sides] if main is not lines else []
    talk = reader.talk(main)
    reader.forgotten()
    said = next((line for line in lines if line.get("sessionId")), {})
    costs = [line for line in lines if line.get("type") == "cost-state"]
    models = [message.model for message in talk if isinstance(message, msg.Message) and message.model]
    meta = {
        "source": "claude-code",
        "model": models[0] if models else None,
        "agent": "claude-code",
        "agent_version": logs.text_of(next((line["version"] for line in lines if line.get("version")), None)),
        "title": logs.text_of(next((line.get("summary") for line in lines if line.get("type") == "summary"), None)),
        "cost": msg.money(costs[-1].get("totalCostUSD")) if costs else None,
    }
    if costs:
        notes.add(
            "cost-state.modelUsage", costs[-1].get("modelUsage"), "totals of the program, with calls that have no line"
        )
    for kind, number in reader.skipped.items():
        notes.add(kind, number, "lines of a type that a run cannot represent")
    return logs.agent_run(
        logs.text_of(said.get("sessionId")), talk, {key: value for key, value in meta.items() if value}, notes
    )


class _Reader:
    """Reads the lines of one agent and of its sub-agents."""

    def __init__(self, path: Path | None, notes: logs.Notes) -> None:
        self.path = path
        self.notes = notes
        self.skipped: Counter[str] = Counter()
        self.sides: list[Mapping[str, Any]] = []
        self.depth = 0
        self.by_id: dict[str | None, Mapping[str, Any]] = {}
        self.boundary: Mapping[str, Any] | None = None
        self.referenced: set[str] = set()
        """The ids of sub-agents that calls have named."""

    def talk(self, lines: Sequence[Mapping[str, Any]]) -> logs.Talk:
        self.by_id = {logs.text_of(line.get("uuid")): line for line in lines}
        # An answer has one line per block, and results of early calls may lie between them.
        answers: dict[str, list[Mapping[str, Any]]] = {}
        for line in lines:
            if line.get("type") == "assistant":
                answers.setdefault(_message_id(line), []).append(line)
        talk: logs.Talk = []
        self.boundary = None
        for number, line in enumerate(lines):
            with self.notes.line(number, line):
                talk += self._line(line, f"line {number + 1}", answers)
        talk += self._end()
        return talk

    def _end(self) -> Iterator[msg.Compaction]:
        if self.boundary is not None:
            yield self._compaction(self.boundary, None, "")

    def _line(
        self, line: Mapping[str, Any], place: str, answers: dict[str, list[Mapping[str, Any]]]
    ) -> Iterator[msg.Message | msg.Compaction | msg.Child]:
        kind, boundary = str(line.get("type")), self.boundary
        if kind in _LINES:
            self.notes.rest(place, line, _KEYS, kind)
        if kind == "assistant":
            if (blocks := answers.pop(_message_id(line), None)) is not None:
                yield self._answer(blocks)
        elif kind == "user" and line.get("isCompactSummary"):
            self.boundary = None
            yield self._compaction(boundary, line, place)
        elif kind == "user":
            yield from self._user(line, place)
        elif kind == "system" and str(line.get("subtype")).endswith("compact_boundary"):
            self.boundary = line
            if boundary is not None:
                yield self._compaction(boundary, None, "")
        elif kind == "system" and line.get("subtype") == "api_error":
            self.notes.add(place, line.get("error") or line.get("content"), "an error of the model's API")
        else:
            self.skipped[kind] += 1

    def _answer(self, lines: Sequence[Mapping[str, Any]]) -> msg.Message:
        texts, thoughts, calls = [], [], []
        for line in lines:
            for block in _blocks(line):
                kind = block.get("type")
                if kind == "text":
                    texts.append(str(block.get("text", "")))
                elif kind in ("thinking", "redacted_thinking"):
                    thoughts.append(str(block.get("thinking", "")))
                elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
                    calls.append(msg.call(str(block.get("name")), block.get("input"), str(block.get("id"))))
                else:
                    self.notes.add(f"message {_message_id(line)}", block, "a message block that a run cannot represent")
        last = lines[-1]
        message = msg.mapping(last.get("message"))
        model = logs.text_of(message.get("model"))
        is_error = bool(last.get("isApiErrorMessage"))
        return logs.answer(
            "".join(texts),
            calls,
            thoughts="".join(thoughts) or None,
            model=model,
            usage=_usage(lines),
            finish_reason=finish_reason_of(message.get("stop_reason")),
            t_ms=msg.time_ms(last.get("timestamp")),
            # The program writes some answers itself and gives "<synthetic>" as their model.
            is_called=is_error or model != "<synthetic>",
            error="".join(texts) if is_error else None,
        )

    def _user(self, line: Mapping[str, Any], place: str) -> Iterator[msg.Message]:
        content, t_ms = msg.mapping(line.get("message")).get("content"), msg.time_ms(line.get("timestamp"))
        about = line.get("toolUseResult")
        rest = []
        for block in msg.records(content):
            if block.get("type") != "tool_result":
                rest.append(block)
                continue
            call_id = str(block.get("tool_use_id"))
            text, _ = msg.result_text(block.get("content"))
            child = self._child(msg.mapping(about), call_id)
            yield logs.result(
                call_id,
                block.get("content"),
                ("anthropic", block),
                error=(text or "failed") if block.get("is_error") else None,
                children={} if child is None else {call_id: child},
                t_ms=t_ms,
            )
        given = content if isinstance(content, str) else rest
        if not given:
            return
        said = given if isinstance(given, str) else "".join([str(part.get("text", "")) for part in rest])
        if line.get("isMeta") or said.lstrip().startswith(_NOT_SAID):
            parts = logs.input_parts(given, self.notes, place)
            yield logs.by_program(parts, t_ms=t_ms)
        else:
            yield logs.user(given, self.notes, place, t_ms=t_ms)

    def _compaction(
        self, boundary: Mapping[str, Any] | None, line: Mapping[str, Any] | None, place: str
    ) -> msg.Compaction:
        first = boundary or line or {}
        about = msg.mapping(first.get("compactMetadata", first.get("microcompactMetadata")))
        parts = (
            () if line is None else logs.input_parts(msg.mapping(line.get("message")).get("content"), self.notes, place)
        )
        kept = msg.mapping(about.get("preservedMessages")).get("uuids")
        lines = [self.by_id[name] for name in kept if name in self.by_id] if isinstance(kept, list) else []
        return msg.Compaction(
            "claude-code",
            (*((msg.text_message("user", parts),) if parts else ()), *[self._kept(line) for line in lines]),
            msg.count(about.get("preTokens")),
            msg.count(about.get("postTokens")),
            trigger=logs.text_of(about.get("trigger")),
            t_ms=msg.time_ms(first.get("timestamp")),
        )

    def _kept(self, line: Mapping[str, Any]) -> Item:
        """Return a message that is kept after the summary; it is also in the log."""
        content = msg.mapping(line.get("message")).get("content")
        if line.get("type") != "assistant":
            return msg.text_message("user", logs.input_parts(content, self.notes, "preservedMessages"))
        texts = [str(block.get("text", "")) for block in _blocks(line) if block.get("type") == "text"]
        return msg.text_message("assistant", (msg.output_text("\n".join(texts)),))

    def forgotten(self) -> None:
        """Note the sub-agents that no call names, such as those running when the session was killed."""
        names = {str(line.get("agentId")) for line in self.sides}
        if self.path is not None:
            names |= {file.stem[6:] for file in (_folder(self.path) / "subagents").glob("agent-*.jsonl")}
        for name in sorted(names - self.referenced):
            self.notes.add("subagents", name, "the log of a sub-agent without a call")

    def _child(self, about: Mapping[str, Any], call_id: str) -> msg.Child | None:
        agent_id = logs.text_of(about.get("agentId"))
        if agent_id is None or self.depth >= _DEEPEST or not agent_id.isalnum():
            return None
        self.referenced.add(agent_id)
        lines = [line for line in self.sides if line.get("agentId") == agent_id]
        if not lines and self.path is not None:
            places = (_folder(self.path) / "subagents", self.path.parent)
            found = (place / f"agent-{agent_id}.jsonl" for place in places)
            file = next((file for file in found if file.is_file() and file != self.path), None)
            lines = [] if file is None else list(lines_of(read_document(file), self.notes.add))
        if not lines:
            self.notes.add(f"tool {call_id}", agent_id, "the missing log of a sub-agent")
            self.notes.add(f"tool {call_id}.usage", about.get("usage"), "tokens of a sub-agent whose log is missing")
            return None
        self.depth += 1
        try:
            talk = self.talk(lines)
        finally:
            self.depth -= 1
        failed = about.get("status") in ("failed", "error", "killed")
        return msg.Child(str(about.get("agentType") or "agent"), talk, failed=failed)


def _folder(path: Path) -> Path:
    """Return the folder of a session file, which may be plain or gzipped."""
    return path.with_name(path.name.removesuffix(".gz")).with_suffix("")


def _message_id(line: Mapping[str, Any]) -> str:
    return str(msg.mapping(line.get("message")).get("id") or line.get("uuid"))


def _blocks(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = msg.mapping(line.get("message")).get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else msg.records(content)


def _usage(lines: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """Return the usage of an answer; every line has it, and the last line has the final counts."""
    found = [msg.mapping(msg.mapping(line.get("message")).get("usage")) for line in lines]
    usage = max(found, key=lambda each: msg.count(each.get("output_tokens")) or 0)
    return known_usage(usage, "anthropic")
