"""Logs of Inspect: a run for each sample, its outcome from the first score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._formats.sources import Document, refused
from noetic_nb.items._messages import Message, decode_messages
from noetic_nb.items._messages.message import count, money, shown, time_ms
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._run import run_of_settled

FORMATS: Final = ("inspect",)
_PREFIX: Final = "attachment://"
# What is read of a sample; the rest of it is listed.
_READ: Final = frozenset(
    ["id", "epoch", "messages", "output", "scores", "events", "attachments", "started_at", "completed_at", "uuid"]
)
_PARAMS: Final = ("temperature", "top_p", "max_tokens")


def looks_like(document: Document) -> bool:
    """Tell whether a document is a log: JSON with a plan and samples, an archive, or an ``EvalLog``."""
    data = document.data
    if data is None:
        return document.path is not None and document.path.suffix == ".eval"
    if isinstance(data, Mapping):
        return isinstance(data.get("eval"), Mapping) and "task" in data["eval"] and "version" in data
    return type(data).__name__ in ("EvalLog", "EvalSample")


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each sample; raises `NoeticError` ``invalid_run_file`` if it is no log.

    An archive where Inspect is not installed raises `NoeticConfigError` ``MISSING_PACKAGE``.
    """
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
        what = "it is a log without samples" if isinstance(about, Mapping) else "it is no log of Inspect"
        raise refused(document, what)
    for place, sample in enumerate(samples):
        yield partial(_run, document, sample, about, place)


def _archive(document: Document) -> Iterator[Callable[[], Run]]:
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_samples
    except ImportError:
        what = "Archives of Inspect need the package inspect-ai."
        hint = "pip install inspect-ai, or write the log as JSON: inspect log convert --to json."
        raise NoeticConfigError("MISSING_PACKAGE", what, given=str(document.path), hint=hint) from None
    path = str(document.path)
    try:
        about = read_eval_log(path, header_only=True).eval.model_dump(mode="json", exclude_none=True)
        # One after the other: a log of thousands of samples is never in memory as a whole.
        samples = read_eval_log_samples(path, all_samples_required=False, resolve_attachments=True)
        place = 0
        for place, sample in enumerate(samples):
            yield partial(_run, document, sample.model_dump(mode="json", exclude_none=True), about, place)
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
        raise refused(
            document, f"it is no whole log of Inspect ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    except Exception as error:  # a damaged archive raises what the unpacking package likes to
        if type(error).__name__ not in ("BadZipFile", "error", "IncompleteReadError", "ValidationError"):
            raise
        raise refused(document, f"it is a damaged archive ({str(error)[:200]})") from error


def _run(document: Document, sample: Any, about: Mapping[str, Any], place: int) -> Run:
    if not isinstance(sample, Mapping) or not isinstance(sample.get("messages"), list):
        raise refused(document, "a sample holds no messages", index=place)
    kept = sample.get("attachments")
    texts: Mapping[str, Any] = kept if isinstance(kept, Mapping) else {}
    unmapped: list[dict[str, Any]] = []
    wire = []
    for number, message in enumerate(sample["messages"]):
        wire.append(_wire(message, texts, number, unmapped) if isinstance(message, Mapping) else message)
    found, more, _ = decode_messages(wire, format="openai")
    params = _measure(found, wire, sample.get("events"))
    if found:
        found[0].t_ms = time_ms(sample.get("started_at"))
    scores = sample.get("scores")
    scores = scores if isinstance(scores, Mapping) else {}
    values = [score.get("value") if isinstance(score, Mapping) else score for score in scores.values()]
    meta = {
        "source": "inspect",
        "suite": about.get("task"),
        "model": about.get("model"),
        "task_id": sample.get("id"),
        "trial": sample.get("epoch"),
        "outcome": _outcome(values[0]) if values else None,
        "scores": dict(zip(scores, values, strict=True)),
        "params": {**_params(about.get("model_generate_config")), **params} or None,
    }
    rest = [
        {"place": str(key), "what": "no place in a run", "value": shown(value)}
        for key, value in sample.items()
        if key not in _READ and value not in (None, [], {}, "")
    ]
    return run_of_settled(None, *conversation_events(found, meta=meta, unmapped=[*unmapped, *more, *rest]))


def _outcome(value: Any) -> bool | None:
    """Return the meaning of a score: Inspect's letters, a truth, or 0 and 1; anything else is left to the caller."""
    if isinstance(value, str):
        return {"C": True, "I": False, "N": False}.get(value)
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _wire(
    message: Mapping[str, Any], texts: Mapping[str, Any], number: int, unmapped: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a message as one of OpenAI's chat, which it nearly is."""
    content = _resolved(message.get("content"), texts)
    wire = {key: value for key, value in message.items() if key in ("id", "role", "tool_call_id", "model")}
    wire["tool_calls"] = [
        {**call, "arguments": _resolved(call.get("arguments"), texts)} if isinstance(call, Mapping) else call
        for call in (message["tool_calls"] if isinstance(message.get("tool_calls"), list) else ())
    ]
    for place, call in enumerate(wire["tool_calls"]):
        if isinstance(call, Mapping) and call.get("parse_error"):
            where = f"messages[{number}].tool_calls[{place}].parse_error"
            unmapped.append({"place": where, "what": "the arguments could not be read", "value": call["parse_error"]})
    if not wire["tool_calls"]:
        del wire["tool_calls"]
    if message.get("role") == "tool":
        error = message.get("error")
        # A log says of every call whether it failed.
        wire["error"] = error.get("message") or error.get("type") if isinstance(error, Mapping) else error
    if not isinstance(content, list):
        return {**wire, "content": content}
    parts: list[Any] = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "reasoning" and isinstance(part.get("reasoning"), str):
            wire["reasoning_content"] = wire.get("reasoning_content", "") + part["reasoning"]
        elif kind == "text" and part.get("refusal"):
            wire["refusal"] = part.get("text")
        elif kind == "image":
            image = {"url": part.get("image"), "detail": part.get("detail") or "auto"}
            parts.append({"type": "image_url", "image_url": image})
        elif kind == "audio" and isinstance(part.get("audio"), str):
            data = part["audio"].partition(";base64,")[2] or part["audio"]
            parts.append({"type": "input_audio", "input_audio": {"data": data, "format": part.get("format")}})
        elif kind == "document" and isinstance(part.get("document"), str):
            file = {"file_data": part["document"], "filename": part.get("filename")}
            parts.append({"type": "file", "file": file})
        elif kind == "tool_use":  # a tool that the provider ran: only its traces are in the log
            where = f"messages[{number}].content[{place}]"
            unmapped.append({"place": where, "what": "a tool that the provider ran", "value": shown(part)})
        else:
            parts.append(part)
    return {**wire, "content": parts}


def _resolved(value: Any, texts: Mapping[str, Any], depth: int = 0) -> Any:
    """Return data with the long texts that a log keeps apart put back."""
    if isinstance(value, str):
        return texts.get(value.removeprefix(_PREFIX), value) if value.startswith(_PREFIX) else value
    if depth > 100 or not texts:
        return value
    if isinstance(value, Mapping):
        return {key: _resolved(inner, texts, depth + 1) for key, inner in value.items()}
    return [_resolved(inner, texts, depth + 1) for inner in value] if isinstance(value, list) else value


def _measure(found: list[Message], wire: list[Any], events: Any) -> dict[str, Any]:
    """Add the measurements in the events of a sample to its messages, and return the parameters of its model."""
    answers: dict[str, Mapping[str, Any]] = {}
    results: dict[str, Mapping[str, Any]] = {}
    params: dict[str, Any] = {}
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, Mapping):
            continue
        if event.get("event") == "tool" and isinstance(event.get("id"), str):
            results[event["id"]] = event
        output = event.get("output")
        if event.get("event") != "model" or not isinstance(output, Mapping):
            continue
        for choice in output["choices"] if isinstance(output.get("choices"), list) else ():
            message = choice.get("message") if isinstance(choice, Mapping) else None
            if isinstance(message, Mapping) and isinstance(message.get("id"), str):
                answers[message["id"]] = event
        params |= _params(event.get("config"))
    ids = [given.get("id") for given in wire if isinstance(given, Mapping) and given.get("role") == "assistant"]
    asked = [message for message in found if message.role == "assistant"]
    if len(ids) == len(asked):
        for message, message_id in zip(asked, ids, strict=True):
            if message_id in answers:
                _measure_answer(message, answers[message_id])
    for message in found:
        if message.role == "tool" and (event := results.get(str(message.items[0].get("callId")))) is not None:
            message.t_ms = time_ms(event.get("completed"))
            began = time_ms(event.get("timestamp"))
            if message.t_ms is not None and began is not None and message.t_ms >= began:
                message.duration_ms = message.t_ms - began
    return params


def _params(config: Any) -> dict[str, Any]:
    return {key: config[key] for key in _PARAMS if config.get(key) is not None} if isinstance(config, Mapping) else {}


def _measure_answer(message: Message, event: Mapping[str, Any]) -> None:
    output = event["output"]
    used = output.get("usage")
    used = used if isinstance(used, Mapping) else {}
    cached = count(used.get("input_tokens_cache_read"))
    stored = count(used.get("input_tokens_cache_write"))
    read, written = count(used.get("input_tokens")), count(used.get("output_tokens"))
    # Inspect counts what was read from a cache or written to it beside the other tokens.
    tokens = {"input_tokens": None if read is None else read + (cached or 0) + (stored or 0), "output_tokens": written}
    known = {key: value for key, value in {**tokens, "cached_tokens": cached}.items() if value is not None}
    message.usage = known or None
    message.cost = money(used.get("total_cost"))
    message.model = output["model"] if isinstance(output.get("model"), str) else message.model
    seconds = money(output.get("time"))
    message.duration_ms = None if seconds is None else seconds * 1_000
    message.t_ms = time_ms(event.get("completed"))
    choices: Any = output.get("choices") or ({},)
    reasons = {"stop": "stop", "tool_calls": "tool_calls", "max_tokens": "length", "model_length": "length"}
    message.finish_reason = reasons.get(str(choices[0].get("stop_reason")), message.finish_reason)  # type: ignore[assignment]
