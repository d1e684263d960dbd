"""Inspect logs: one run per sample, whose outcome is its first score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from noetic_nb._core.optional_packages import optional_package
from noetic_nb.interop._formats.agent_logs import Talk, text_of
from noetic_nb.interop._formats.inspect_messages import measure, messages_of, params_of, resolved
from noetic_nb.interop._formats.sources import Document, refused
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._item import Item
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._messages import message as msg
from noetic_nb.items._origins import MODEL, with_origin
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._run import run_of_settled

_TOLD: Final = frozenset({"model", "tool", "compaction"})
_SCORING: Final = "scorers"
_BRANCH: Final = "branch"
_EVENTS: Final = _TOLD | {_BRANCH, "span_begin", "span_end", "step", "sample_init"}  # the last one repeats the sample
_DEEPEST: Final = 100


class Story:
    """The facts of a sample, merged from its messages and its events."""

    def __init__(self, sample: Mapping[str, Any], texts: Mapping[str, Any], unmapped: list[dict[str, Any]]) -> None:
        self.messages: Sequence[Any] = sample["messages"]
        self.texts, self.unmapped = texts, unmapped
        self.params: dict[str, Any] = {}
        self._waiting: list[str] = []
        pool = msg.mapping(sample.get("events_data")).get("messages")
        self._pool: Sequence[Any] = pool if isinstance(pool, list) else ()
        told = enumerate(_flat(msg.records(sample.get("events"))))
        # A log may repeat an event; its last state is in force.
        events = list({text_of(event.get("uuid")) or number: event for number, event in told}.values())
        self._places = self._matched(events)
        self._spans = {str(event.get("id")): event for event in events if event.get("event") == "span_begin"}
        self._starts = {str(event["agent_span_id"]) for event in events if text_of(event.get("agent_span_id"))}
        self._starts |= {str(event.get("span_id")) for event in events if event.get("event") == _BRANCH}
        # An agent that took over the conversation wrote its messages in the sample.
        self._starts -= {self._owner(event) for event in events if self._place(event) is not None}
        self._groups: dict[str, list[Mapping[str, Any]]] = {}
        scoring = False
        for kind, number in Counter(str(event.get("event")) for event in events).items():
            if kind not in _EVENTS:
                self.unmapped.append(
                    {"place": f"events.{kind}", "what": "events of a kind that has no place in a run", "value": number}
                )
        for event in events:
            kind, owner = str(event.get("event")), self._owner(event)
            scoring = scoring or (kind == "step" and event.get("type") == "scorer")  # in logs that predate spans
            if kind == _BRANCH and owner == event.get("span_id"):
                self._groups[owner] = []  # up to here the branch only replays the original
                outer = self._owner({"span_id": msg.mapping(self._spans.get(owner)).get("parent_id")})
                self._groups.setdefault(outer, []).append(event)
            elif kind in _TOLD:
                self._groups.setdefault(_SCORING if scoring else owner, []).append(event)

    def talk(self) -> Talk:
        """Return the conversation of the sample."""
        entries: list[Talk] = []
        is_agent = self._is_agent()
        for place, message in enumerate(self.messages):
            entries.append([*messages_of(message, self.texts, f"messages[{place}]", self.unmapped, self._waiting)])
            if _is_summary(message):
                entries[-1] = [_compacted({}, entries[-1])]
            elif msg.mapping(message).get("source") == "input":
                for one in entries[-1]:
                    if isinstance(one, msg.Message):
                        one.is_called = False  # part of the given question
            elif is_agent and msg.mapping(message).get("role") == "user" and msg.mapping(message).get("source") is None:
                for one in entries[-1]:
                    if isinstance(one, msg.Message) and one.role == "user":
                        one.role = "system"  # written by an agent's program, to continue or to hand over
                        one.items = tuple([with_origin(item, MODEL) for item in one.items])
        for event in self._groups.get(_SCORING, ()):
            if event.get("event") == "model":
                value = {"model": event.get("model"), "usage": msg.mapping(event.get("output")).get("usage")}
                self.unmapped.append({"place": "events", "what": "a model call of a scorer", "value": msg.shown(value)})
        return self._with_events(entries)

    def _is_agent(self) -> bool:
        """Tell whether the calls were made by an agent package, and the log says which messages it received."""
        spans = {str(event.get("span_id")) for event in self._groups.get("", ()) if event.get("event") == "model"}
        given = any(msg.mapping(message).get("source") == "input" for message in self.messages)
        return given and any(msg.mapping(self._spans.get(span)).get("type") == "agent" for span in spans)

    def _with_events(self, entries: list[Talk]) -> Talk:
        """Return messages with the measurements of their events, and the facts that only events hold."""
        is_answer = [any(isinstance(one, msg.Message) and one.role == "assistant" for one in each) for each in entries]
        results = {str(msg.mapping(message).get("tool_call_id")): place for place, message in enumerate(self.messages)}
        at = next((place for place, found in enumerate(is_answer) if found), len(entries)) - 1
        begin: Talk = []
        after: list[Talk] = [[] for _ in entries]
        closing: dict[int, list[msg.Message]] = {}
        beside: list[msg.Message] = []
        events = self._groups.get("", [])
        for number, event in enumerate(events):
            kind, there = str(event.get("event")), begin if at < 0 else after[at]
            if kind == "model":
                self.params |= params_of(event.get("config"))
                place = self._place(event)
                if place is None:
                    beside.append(self._answer(event, is_kept=False))
                    continue
                there += beside
                at, beside = place, []
                entries[at], closing[at] = self._answered(entries[at], event)
            elif kind == "tool":
                place = results.get(str(event.get("id")))
                if place is None:
                    there += self._result(event)
                    continue
                at = max(at, place)
                for message in entries[place]:
                    if isinstance(message, msg.Message):
                        self._measure_result(message, event)
            elif kind == "compaction":
                answer = beside.pop() if beside and event.get("type") == "summary" else None
                there += beside
                beside = []
                stop = next((place for place in range(at + 1, len(entries)) if is_answer[place]), len(entries))
                place = next((place for place in range(at + 1, stop) if _is_summary(self.messages[place])), None)
                if place is None:
                    there.append(self._compaction(event, events[number + 1 :], answer))
                else:
                    at = place
                    entries[at] = [_compacted(event, entries[at], answer)]
            else:
                there += self._branch(event)
        talk = begin
        for place, each in enumerate(entries):
            talk += [*each, *after[place]]
            for one in closing.get(place, []):
                last = talk[-1]
                one.t_ms = None if isinstance(last, msg.Child) else last.t_ms
                talk.append(one)
        return [*talk, *beside]

    def _answered(self, entry: Talk, event: Mapping[str, Any]) -> tuple[Talk, list[msg.Message]]:
        """Return a measured message, and the text that replaces a call by which an agent submits its answer."""
        kept = next((one for one in entry if isinstance(one, msg.Message) and one.role == "assistant"), None)
        if kept is None:
            return entry, []
        given = _message(event)
        calls = [call.get("id") for call in msg.records(given.get("tool_calls"))]
        own = {item.get("callId") for item in kept.items}
        if all(call_id in own for call_id in calls):
            measure(kept, event)
            return entry, []
        answer = self._answer(event)
        said, whole = _text(answer.items), _text(kept.items)
        # Any other text was derived from the answer, by a program, for the next agent.
        rest = whole.removeprefix(said).strip() if whole.startswith(said) else ""
        return [answer], [_said(rest)] if rest else []

    def _answer(self, event: Mapping[str, Any], *, is_kept: bool = True) -> msg.Message:
        """Return the answer of a model call as recorded in its event."""
        made = _message(event)
        found = [
            one
            for one in (messages_of(made, self.texts, "events", self.unmapped, []) if made else ())
            if isinstance(one, msg.Message) and one.role == "assistant"
        ]
        message = found[0] if found else msg.Message("assistant", ())
        message.is_kept, message.error = is_kept, text_of(event.get("error"))
        message.model = text_of(event.get("model"))
        if isinstance(event.get("output"), Mapping):
            measure(message, event)
        return message

    def _result(self, event: Mapping[str, Any]) -> Talk:
        given = event.get("result")
        content = given if isinstance(given, str | list) else compact_json(given)
        wire = {"role": "tool", "tool_call_id": event.get("id"), "content": content, "error": event.get("error")}
        found = messages_of(wire, self.texts, "events", self.unmapped, [])
        for message in found:
            if isinstance(message, msg.Message):
                self._measure_result(message, event)
        return [*found]

    def _measure_result(self, message: msg.Message, event: Mapping[str, Any]) -> None:
        message.t_ms, began = msg.time_ms(event.get("completed")), msg.time_ms(event.get("timestamp"))
        if message.t_ms is not None and began is not None and message.t_ms >= began:
            message.duration_ms = message.t_ms - began
        span_id = str(event.get("agent_span_id"))
        events = self._groups.pop(span_id, None) if span_id in self._starts else None
        if events and message.items:
            name = msg.mapping(self._spans.get(span_id)).get("name") or event.get("agent") or event.get("function")
            talk = self._own_talk(events)
            last, output = (talk[-1] if talk else None), _text(message.items)
            if isinstance(last, msg.Message) and last.role == "tool" and (said := _text(last.items)):
                talk += [_said(said, last.t_ms)] if output.endswith(said) else []
            message.children = {str(message.items[0].get("callId")): msg.Child(str(name), talk)}

    def _branch(self, event: Mapping[str, Any]) -> Talk:
        """Return a branch of the conversation as a forked child."""
        span_id = str(event.get("span_id"))
        talk = self._own_talk(self._groups.pop(span_id, []))
        name = text_of(msg.mapping(self._spans.get(span_id)).get("name")) or _BRANCH
        return [msg.Child(name, talk, kind="fork")] if talk else []

    def _own_talk(self, events: Sequence[Mapping[str, Any]]) -> Talk:
        """Return the conversation of an agent that only left events."""
        talk: Talk = []
        seen: set[str] = set()
        sent = [{str(message.get("id")) for message in self._input(event)} for event in events]
        answer: msg.Message | None = None
        for number, event in enumerate(events):
            kind = str(event.get("event"))
            if kind == "model":
                for message in self._input(event):
                    if str(message.get("id")) not in seen:
                        seen |= {str(message.get("id")), f"result {message.get('tool_call_id')}"}
                        talk += self._earlier(message, talk)
                made = _message(event)
                seen.add(str(made.get("id")))
                later = number + 1 < len(events) and events[number + 1].get("event") == "compaction"
                if later and not any(str(made.get("id")) in ids for ids in sent[number + 1 :]):
                    answer = self._answer(event)
                else:
                    talk.append(self._answer(event))
            elif kind == "tool" and f"result {event.get('id')}" not in seen:
                seen |= {str(event.get("message_id")), f"result {event.get('id')}"}
                talk += self._result(event)
            elif kind == "compaction":
                talk.append(self._compaction(event, events[number + 1 :], answer))
                answer = None
            elif kind == _BRANCH:
                talk += self._branch(event)
        return talk

    def _earlier(self, message: Mapping[str, Any], talk: Talk) -> Talk:
        found = messages_of(message, self.texts, "events", self.unmapped, [])
        if _is_summary(message):
            items = tuple(item for one in found for item in one.items)
            last = next((one for one in reversed(talk) if isinstance(one, msg.Compaction)), None)
            return [] if last is not None and last.items == items else [_compacted({}, [*found])]
        for one in found:
            if isinstance(one, msg.Message) and one.role == "assistant":
                one.is_called = False  # written before this agent began
        return [*found]

    def _compaction(
        self, event: Mapping[str, Any], later: Sequence[Mapping[str, Any]], answer: msg.Message | None
    ) -> msg.Compaction:
        """Return a compaction; the request of the next call holds the text that replaced the context."""
        call = next((each for each in later if each.get("event") == "model"), {})
        sent = self._input(call)
        summary = next((message for message in reversed(sent) if _is_summary(message)), None)
        if summary is not None and event.get("type") == "summary":
            return _compacted(event, [*messages_of(summary, self.texts, "events", self.unmapped, [])], answer)
        made = _compacted(event, [], answer)
        for part in (part for message in sent for part in msg.records(message.get("content"))):
            about = msg.mapping(part.get("data")).get("compaction_metadata")
            if part.get("type") == "data" and isinstance(about, Mapping):
                told = text_of(about.get("content"))
                made.items = () if told is None else (msg.text_message("user", (msg.input_text(told),)),)
                made.opaque = told is None
        return made

    def _input(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        given = msg.records(event.get("input"))
        refs = event.get("input_refs")
        for ref in refs if not given and isinstance(refs, list) else ():
            if isinstance(ref, list | tuple) and len(ref) == 2 and all(type(place) is int for place in ref):
                given += msg.records(self._pool[ref[0] : ref[1]])
        return given

    def _place(self, event: Mapping[str, Any]) -> int | None:
        """Return the index of the sample's message that a model call wrote."""
        return self._places.get(id(event))

    def _matched(self, events: Sequence[Mapping[str, Any]]) -> dict[int, int]:
        """Return the messages that model calls wrote, matched by id, or by text in logs without ids."""
        places: dict[str, int] = {}
        alike: dict[str, list[int]] = {}
        for place, message in enumerate(self.messages):
            if isinstance(message, Mapping) and message.get("role") == "assistant":
                if isinstance(message.get("id"), str):
                    places[message["id"]] = place
                alike.setdefault(self._words(message), []).append(place)
        calls = [event for event in events if event.get("event") == "model" and _message(event)]
        found = {id(event): places[name] for event in calls if (name := str(_message(event).get("id"))) in places}
        taken = set(found.values())
        for event in calls:
            free = [place for place in alike.get(self._words(_message(event)), ()) if place not in taken]
            if id(event) not in found and free:
                found[id(event)] = free[0]
                taken.add(free[0])
        return found

    def _words(self, message: Mapping[str, Any]) -> str:
        calls = [call.get("id") for call in msg.records(message.get("tool_calls"))]
        try:
            return compact_json([resolved(message.get("content"), self.texts), calls])
        except (ValueError, TypeError, RecursionError):
            return ""

    def _owner(self, event: Mapping[str, Any]) -> str:
        """Return the span of the agent that an event belongs to, an empty text for the sample's own agent."""
        span_id = str(event.get("span_id"))
        for _ in range(_DEEPEST):
            span = msg.mapping(self._spans.get(span_id))
            if span.get("type") in ("scorer", "scorers"):
                return _SCORING
            if span_id in self._starts:
                return span_id
            span_id = str(span.get("parent_id"))
        return ""


def _flat(events: Iterable[Mapping[str, Any]], inside: str = "", depth: int = 0) -> list[Mapping[str, Any]]:
    """Return events in one list: older logs nest them inside a tool's event, which is treated as a span."""
    found: list[Mapping[str, Any]] = []
    for event in events:
        event = {**event, "span_id": inside} if inside else event
        inner = msg.records(event.get("events")) if event.get("event") in ("tool", "subtask") else []
        if inner and depth < _DEEPEST:
            span_id = f"{inside}/{event.get('id') or len(found)}" if event.get("event") == "tool" else inside
            found.append({**event, "agent_span_id": span_id} if event.get("event") == "tool" else event)
            found += _flat(inner, span_id, depth + 1)
        else:
            found.append(event)
    return found


def _message(event: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = msg.records(msg.mapping(event.get("output")).get("choices"))
    return msg.mapping(choices[0].get("message")) if choices else {}


def _is_summary(message: Any) -> bool:
    return (
        isinstance(message, Mapping)
        and message.get("role") == "user"
        and "summary" in msg.mapping(message.get("metadata"))
    )


def _compacted(event: Mapping[str, Any], summary: Talk, answer: msg.Message | None = None) -> msg.Compaction:
    about = msg.mapping(event.get("metadata"))
    trigger = text_of(about.get("trigger"))
    return msg.Compaction(
        text_of(event.get("source")) or "inspect",
        tuple(item for one in summary if not isinstance(one, msg.Child) for item in one.items),
        msg.count(event.get("tokens_before")),
        msg.count(event.get("tokens_after")),
        opaque="Native" in str(about.get("strategy_applied", about.get("strategy"))),
        trigger="auto" if trigger == "threshold" else trigger,
        answer=answer,
        t_ms=msg.time_ms(event.get("timestamp")),
    )


def _text(items: Sequence[Item]) -> str:
    parts: list[FrozenDict] = [part for item in items for part in item.get("content") or ()]
    return "".join([str(part.get("text", "")) for part in parts]) + "".join(
        [str(item.get("output", "")) for item in items]
    )


def _said(text: str, t_ms: float | None = None) -> msg.Message:
    return msg.Message(
        "assistant", (msg.text_message("assistant", (msg.output_text(text),)),), t_ms=t_ms, is_called=False
    )


FORMATS: Final = ("inspect",)
# The parts of a log and of a sample that are read. The rest is listed, that of the log with its first sample.
_ABOUT: Final = frozenset(["task", "model", "model_generate_config"])
_READ: Final = frozenset(
    [
        *("id", "epoch", "uuid", "messages", "output", "scores", "events", "events_data", "attachments"),
        *("started_at", "completed_at"),
    ]
)


def looks_like(document: Document) -> bool:
    """Tell whether a document is a log: JSON with a plan and samples, an archive, or an ``EvalLog``."""
    data = document.data
    if data is None:
        return document.path is not None and document.path.suffix == ".eval"
    if isinstance(data, Mapping):
        return isinstance(data.get("eval"), Mapping) and "task" in data["eval"] and "version" in data
    return type(data).__name__ in ("EvalLog", "EvalSample")


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each sample; raises ``invalid_run_file``, or ``MISSING_PACKAGE`` for an archive without Inspect."""
    data = document.data
    if data is None:
        yield from _archive(document)
        return
    if not isinstance(data, Mapping) and hasattr(data, "model_dump"):
        is_sample = type(data).__name__ == "EvalSample"
        data = data.model_dump(mode="json", exclude_none=True)
        data = {"eval": {}, "samples": [data]} if is_sample else data
    about, samples = (data.get(key) for key in ("eval", "samples")) if isinstance(data, Mapping) else (None, None)
    if not isinstance(about, Mapping) or not isinstance(samples, list | tuple):
        what = "it is a log without samples" if isinstance(about, Mapping) else "it is not a log of Inspect"
        raise refused(document, what)
    for place, sample in enumerate(samples):
        yield partial(_run, document, sample, data, place)


def _archive(document: Document) -> Iterator[Callable[[], Run]]:
    path = str(document.path)
    hint = "pip install inspect-ai, or write the log as JSON: inspect log convert --to json."
    with optional_package("Archives of Inspect need the package inspect-ai.", hint, given=path):
        from inspect_ai.log import read_eval_log, read_eval_log_samples
    try:
        log = read_eval_log(path, header_only=True).model_dump(mode="json", exclude_none=True)
        # Read one by one: a log with thousands of samples is never in memory as a whole.
        samples = read_eval_log_samples(path, all_samples_required=False, resolve_attachments=True)
        place = 0
        for place, sample in enumerate(samples):
            yield partial(_run, document, sample.model_dump(mode="json", exclude_none=True), log, place)
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
        what = f"it is not a whole log of Inspect ({type(error).__name__}: {str(error)[:200]})"
        raise refused(document, what) from error
    except Exception as error:  # a damaged archive may raise any exception
        if type(error).__name__ not in ("BadZipFile", "error", "IncompleteReadError", "ValidationError"):
            raise
        raise refused(document, f"it is a damaged archive ({str(error)[:200]})") from error


def _run(document: Document, sample: Any, log: Mapping[str, Any], place: int) -> Run:
    about = msg.mapping(log.get("eval"))
    if not isinstance(sample, Mapping) or not isinstance(sample.get("messages"), list):
        raise refused(document, "a sample contains no messages", index=place)
    kept = sample.get("attachments")
    texts: Mapping[str, Any] = kept if isinstance(kept, Mapping) else {}
    unmapped: list[dict[str, Any]] = []
    story = Story(sample, texts, unmapped)
    talk = story.talk()
    if talk and not isinstance(talk[0], msg.Child):
        talk[0].t_ms = msg.time_ms(sample.get("started_at"))
    scores = sample.get("scores")
    scores = scores if isinstance(scores, Mapping) else {}
    values = [score.get("value") if isinstance(score, Mapping) else score for score in scores.values()]
    beside = {
        f"scores.{name}": {key: value for key, value in msg.mapping(score).items() if key != "value"}
        for name, score in scores.items()
    }
    meta = {
        "source": "inspect",
        "suite": about.get("task"),
        "model": about.get("model"),
        "task_id": sample.get("id"),
        "trial": sample.get("epoch"),
        "outcome": _outcome(values[0]) if values else None,
        "scores": dict(zip(scores, values, strict=True)),
        "params": {**params_of(about.get("model_generate_config")), **story.params} or None,
    }
    header = {key: value for key, value in log.items() if key not in ("version", "eval", "samples")}
    header |= {f"eval.{key}": value for key, value in about.items() if key not in _ABOUT}
    left = {key: value for key, value in sample.items() if key not in _READ} | beside | ({} if place else header)
    rest = [
        {"place": str(key), "what": "no place in a run", "value": msg.shown(value)}
        for key, value in left.items()
        if value not in (None, [], {}, "")
    ]
    return run_of_settled(None, *conversation_events(talk, meta=meta, unmapped=[*unmapped, *rest]))


def _outcome(value: Any) -> bool | None:
    """Return a score as an outcome: Inspect's letters, a bool, or 0 and 1; None for anything else."""
    if isinstance(value, str):
        return {"C": True, "I": False, "N": False}.get(value)
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None
