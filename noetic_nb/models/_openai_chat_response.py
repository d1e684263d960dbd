"""Convert an answer of the chat completions API, whole or in chunks, to items.

Servers that imitate the API differ in small ways: lists of parts for text, arguments as data, calls without an index.
Clear variants are read; a body that is not an answer at all is ``llm_failed`` with reason ``"garbage"``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb._core.names import finish_reason_of
from noetic_nb.ids import Ids
from noetic_nb.models._client import CUT_OFF, ModelDelta, TokenLogprob
from noetic_nb.models._model_errors import cut_off
from noetic_nb.models._openai_wire import WireNames, garbage
from noetic_nb.models._response_items import Answer, answer_items, token_logprobs, usage_of_provider


def read_chat(body: Any, names: WireNames, ids: Ids) -> Answer:
    """Read a whole answer; raises `NoeticError` ``llm_failed`` with reason ``"garbage"`` if `body` is not a chat completion."""
    if not isinstance(body, Mapping):
        raise garbage("it is no JSON object", body)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise garbage("it has no `choices`", body)
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise garbage("its first choice has no `message`", body)
    calls = [_Call(ids) for _ in message.get("tool_calls") or ()]
    for call, piece in zip(calls, message.get("tool_calls") or (), strict=True):
        call.add(piece)
    return _answer(
        text=_content_text(message.get("content"), body),
        reasoning=_reasoning(message),
        refusal=_text(message.get("refusal")),
        calls=calls,
        finish_reason=choices[0].get("finish_reason"),
        logprobs=_logprobs(choices[0]),
        usage=body.get("usage"),
        model=body.get("model"),
        names=names,
        ids=ids,
    )


class ChatStream:
    """Assembles a streamed answer: `feed` every chunk, then `finish`."""

    def __init__(self, names: WireNames, ids: Ids) -> None:
        self._names, self._ids = names, ids
        self._texts: dict[str, list[str]] = {"text": [], "reasoning": [], "refusal": []}
        self._calls: dict[int, _Call] = {}
        self._places: dict[int, int] = {}
        self._logprobs: list[TokenLogprob] = []
        self._usage: Any = None
        self._model: Any = None
        self._finish_reason: Any = None
        self._silent = True

    def feed(self, chunk: Any) -> list[ModelDelta]:
        """Return the additions of a chunk; raises `NoeticError` ``llm_failed`` with reason ``"garbage"`` for an invalid one."""
        if not isinstance(chunk, Mapping) or not isinstance(chunk.get("choices", []), list):
            raise garbage("a piece of the stream is not a chunk", chunk)
        self._silent = False
        # Most servers send the usage once and null before, some with every chunk: the last one counts.
        self._usage = chunk.get("usage") or self._usage
        self._model = chunk.get("model") or self._model
        deltas: list[ModelDelta] = []
        # Only one answer is requested; the last chunk, with the usage, has no choice at all.
        for choice in (chunk.get("choices") or ())[:1]:
            if not isinstance(choice, Mapping):
                raise garbage("a choice of the stream is not an object", chunk)
            # Once truncated, always truncated: some servers send a second, normal reason with the usage.
            if finish_reason_of(self._finish_reason) not in CUT_OFF:
                self._finish_reason = choice.get("finish_reason") or self._finish_reason
            self._logprobs += _logprobs(choice)
            delta = choice.get("delta") or {}
            if not isinstance(delta, Mapping):
                raise garbage("a delta of the stream is not an object", chunk)
            thought, text = _reasoning(delta), _content_text(delta.get("content"), chunk)
            self._texts["refusal"].append(_text(delta.get("refusal")))
            if thought:
                self._texts["reasoning"].append(thought)
                deltas.append(ModelDelta("reasoning", thought))
            if text:
                self._texts["text"].append(text)
                deltas.append(ModelDelta("text", text))
            for place, piece in enumerate(delta.get("tool_calls") or ()):
                deltas.append(self._add_call(place, piece))
        return deltas

    def _add_call(self, place: int, piece: Any) -> ModelDelta:
        if not isinstance(piece, Mapping):
            raise garbage("a call of a tool is not an object", piece)
        given = piece.get("index")
        given = given if isinstance(given, int) else place
        # Some servers give every call the index 0: a piece without an id then belongs to the last call.
        index = self._places.get(given, given)
        call = self._calls.get(index)
        if call is not None and call.is_followed_by(piece):
            index = self._places[given] = max(self._calls) + 1
            call = None
        if call is None:
            call = self._calls[index] = _Call(self._ids)
        return ModelDelta(
            "tool_call", call.add(piece), index, {"call_id": call.id, "name": self._names.from_wire(call.name)}
        )

    def finish(self) -> Answer:
        """Return the whole answer; a stream that ended early is an error with reason ``"disconnect"``."""
        if self._silent:
            raise garbage("the stream held no event", "")
        # A connection that a proxy closed cleanly looks like an end, but has no reason.
        if self._finish_reason is None:
            raise cut_off()
        return _answer(
            text="".join(self._texts["text"]),
            reasoning="".join(self._texts["reasoning"]),
            refusal="".join(self._texts["refusal"]),
            # By index, because pieces of several calls may arrive in any order.
            calls=[self._calls[index] for index in sorted(self._calls)],
            finish_reason=self._finish_reason,
            logprobs=tuple(self._logprobs),
            usage=self._usage,
            model=self._model,
            names=self._names,
            ids=self._ids,
        )


class _Call:
    """A tool call that is arriving in pieces."""

    def __init__(self, ids: Ids) -> None:
        self.id = ids.new("call")
        self.given_id = ""
        self.name = ""
        self._arguments: list[str] = []

    def is_followed_by(self, piece: Mapping[str, Any]) -> bool:
        """Tell whether a piece at this call's index begins another call: it has another id, or this call is complete."""
        if self.given_id and piece.get("id") and piece["id"] != self.given_id:
            return True
        function = piece.get("function")
        if not isinstance(function, Mapping) or not function.get("name") or not function.get("arguments"):
            return False
        # Servers that repeat the name with each piece are in the middle of the arguments then.
        if not self._arguments or not self._arguments[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads("".join(self._arguments)), dict)
        except ValueError:
            return False

    def add(self, piece: Any) -> str:
        """Read a piece of the call; return its addition to the arguments."""
        if not isinstance(piece, Mapping):
            raise garbage("a call of a tool is not an object", piece)
        if isinstance(piece.get("id"), str) and piece["id"]:
            self.id = self.given_id = piece["id"]
        function = piece.get("function") or {}
        if not isinstance(function, Mapping):
            raise garbage("the function of a call is not an object", piece)
        # Taken from the first piece: some servers repeat it with each.
        self.name = self.name or _text(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping | list):  # some servers send the arguments as data
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._arguments.append(_text(arguments))
        return self._arguments[-1]

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them; some models write nothing for a tool without parameters."""
        return "".join(self._arguments) or "{}"


def _answer(
    *,
    text: str,
    reasoning: str,
    refusal: str,
    calls: Iterable[_Call],
    finish_reason: Any,
    logprobs: tuple[TokenLogprob, ...],
    usage: Any,
    model: Any,
    names: WireNames,
    ids: Ids,
) -> Answer:
    cost = usage.get("cost") if isinstance(usage, Mapping) else None  # OpenRouter reports its charge
    reason = finish_reason_of(finish_reason)
    return Answer(
        items=answer_items(
            text=text,
            reasoning=reasoning,
            refusal=refusal,
            calls=[(call.id, names.from_wire(call.name), call.arguments) for call in calls],
            finish_reason=reason,
            ids=ids,
        ),
        usage=usage_of_provider(usage, "prompt_tokens", "completion_tokens"),
        cost=float(cost) if isinstance(cost, int | float) and cost >= 0 else None,
        logprobs=logprobs,
        model=model if isinstance(model, str) else None,
        finish_reason=reason,
        refusal=refusal,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _content_text(content: Any, body: Any) -> str:
    """Return the text of a message; some servers send a list of parts instead of a string."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        return "".join(_text(part.get("text")) for part in content)
    raise garbage("the content of its message is not text", body)


def _reasoning(message: Mapping[str, Any]) -> str:
    # Two names are in use: the first by vLLM and DeepSeek, the second by OpenRouter and Ollama.
    return _text(message.get("reasoning_content")) or _text(message.get("reasoning"))


def _logprobs(choice: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
    given = choice.get("logprobs")
    return token_logprobs(given.get("content")) if isinstance(given, Mapping) else ()
