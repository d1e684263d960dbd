"""A model without a network: it answers from a script, always in the same way. For tests, lessons and demos.

Only the agent consumes a list of replies. A judge, a layer or a summary that calls the same model would silently use up
the agent's lines, so it gets an error that explains how to give it its own lines.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from noetic_nb._core.names import finish_reason_of
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.ids import Ids
from noetic_nb.items import Item, function_call, item_tokens, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.models._client import (
    NO_USAGE,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    StreamPart,
    TokenLogprob,
    ToolSpec,
    Usage,
)
from noetic_nb.models._model_errors import failed, rate_limited, refused
from noetic_nb.models._response_items import PIECE, answer_items, deltas_of, text_item
from noetic_nb.models._script import CallTool, Fault, Reply
from noetic_nb.redact import redact_text
from noetic_nb.sync import awaited
from noetic_nb.tokens import Tokenizer, estimate_tokens, system_tokens

Line: TypeAlias = str | CallTool | Sequence[CallTool] | Reply | Fault | BaseException
"""One answer: a text, a call, several calls at once, a whole reply, a fault, or an exception to raise."""

Script: TypeAlias = Sequence[Line] | Callable[[ModelRequest], Line | Awaitable[Line]]
"""Lines consumed in order, or a function of the request."""

_BROKEN_OFF: Final = "This answer breaks off before it is "
_GARBAGE: Final[Mapping[str, Any]] = {"choices": "?", "items": [{"text": "not an item"}]}


class _Counter:
    """Consecutive ids; the seed keeps the ids of two models in one conversation distinct."""

    def __init__(self, seed: int) -> None:
        self._prefix = f"s{seed}_" if seed else ""
        self._count = itertools.count(1)

    def new(self, kind: str) -> str:
        return f"{kind}_{self._prefix}{next(self._count)}"


def _checked(line: Any) -> Line:
    """Return the line in the form in which it is performed, or raise an error."""
    if isinstance(line, str | CallTool | Reply | Fault | BaseException):
        return line
    if isinstance(line, list | tuple) and line and all(isinstance(call, CallTool) for call in line):
        return tuple(line)
    what = f"A scripted model cannot answer with a {type(line).__name__}"
    hint = "Use a text, CallTool(…), a list of CallTool, Reply(…), Fault(…) or an exception instance."
    raise NoeticConfigError("INVALID_SCRIPT", what, given=line, hint=hint)


def _counter_of(usage: Any) -> Tokenizer:
    if usage == "estimate":
        return estimate_tokens
    from noetic_nb.tokenizers._named import get  # most scripts are counted by the estimate

    try:
        return get(usage)
    except NoeticConfigError as exc:
        hint = f"Use 'estimate', 'none' or the name of a counter. {exc.hint}"
        raise NoeticConfigError("INVALID_SCRIPT", "`usage` of a scripted model", given=usage, hint=hint) from exc


class _Part:
    """One list or function of a script, and its position."""

    def __init__(self, script: Any, place: str) -> None:
        self.place = place
        self.position = 0
        self.function: Callable[[ModelRequest], Any] | None = None
        self.lines: tuple[Line, ...] = ()
        if callable(script):
            self.function = script
        elif isinstance(script, list | tuple):
            self.lines = tuple([_checked(line) for line in script])
        else:
            what = f"The script{place} is a {type(script).__name__}"
            hint = "Pass a list of replies, a function of the request, or a mapping from model names to these."
            raise NoeticConfigError("INVALID_SCRIPT", what, given=script, hint=hint)


class ScriptedModel:
    """Answer from a script; deterministic, offline, instant.

    Parameters
    ----------
    replies : sequence, callable or mapping
        - a list or tuple of lines, consumed in order by requests of purpose ``"agent"``: a text, `CallTool`, a list of
          `CallTool` (calls in one response), `Reply`, `Fault`, or an exception to raise;
        - a function of the `ModelRequest`, sync or async, that returns such a line;
        - a mapping from model name to a list or function; these serve requests of any purpose.
    ids : Ids, optional
        Source of item and call ids; its own counter by default.
    usage : str
        Tokenizer for requests and answers whose reply states no usage: a name for `noetic_nb.tokenizers.get`, by
        default ``"estimate"``, or ``"none"`` for zeros.
    seed : int, default 0
        Keeps the ids of this model distinct from those of another one in the same conversation.

    Raises
    ------
    NoeticConfigError
        ``INVALID_SCRIPT`` if the script has any other form. The script is copied, never changed.

    Examples
    --------
    >>> import asyncio
    >>> from noetic_nb.items import assistant_text, input_message
    >>> model = ScriptedModel([CallTool("lookup", order_id="A17"), "Order A17 is packed."])
    >>> request = ModelRequest(model="scripted", items=(input_message("Where is order A17?"),))
    >>> asyncio.run(model.complete(request)).items[0].arguments
    '{"order_id":"A17"}'
    >>> assistant_text(asyncio.run(model.complete(request)).items)
    'Order A17 is packed.'
    >>> model.remaining, len(model.requests)
    (0, 2)
    """

    def __init__(
        self, replies: Script | Mapping[str, Script], *, ids: Ids | None = None, usage: str = "estimate", seed: int = 0
    ) -> None:
        counter = None if usage == "none" else _counter_of(usage)
        self._only: _Part | None = None
        self._parts: dict[str, _Part] = {}
        if isinstance(replies, Mapping):
            self._parts = {name: _Part(script, f" of model {name!r}") for name, script in replies.items()}
        else:
            self._only = _Part(replies, "")
        self._given_ids = ids
        self._seed = seed
        # Counted, not random: two runs of one script have equal logs.
        self._ids: Ids = _Counter(seed) if ids is None else ids
        self._counter: Tokenizer = counter or estimate_tokens
        self._estimates = counter is not None
        self._requests: list[ModelRequest] = []
        # Tools seldom change between requests, and counting them requires writing them as JSON.
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """Every request seen, oldest first, including those answered by a fault."""
        return tuple(self._requests)

    @property
    def remaining(self) -> int | None:
        """Lines not yet performed, over all lists; None if only functions answer, which never run out."""
        parts = [*self._parts.values()] if self._only is None else [self._only]
        lists = [part for part in parts if part.function is None]
        return sum(len(part.lines) - part.position for part in lists) if lists else None

    def reset(self) -> None:
        """Restart the script, clear the requests, and count ids from one (an `ids` passed in continues)."""
        for part in (*self._parts.values(), *([self._only] if self._only else [])):
            part.position = 0
        if self._given_ids is None:
            self._ids = _Counter(self._seed)
        self._requests.clear()

    def answers(self, model: str, purpose: str) -> bool:
        """Tell whether the script has lines for a model name: a plain list has them for the agent only.

        Examples
        --------
        >>> ScriptedModel(["Hello."]).answers("m", "judge"), ScriptedModel({"m": []}).answers("m", "judge")
        (False, True)
        """
        if self._only is None:
            return model in self._parts
        return purpose == "agent" or self._only.function is not None

    def __repr__(self) -> str:
        names = f" for {', '.join(map(repr, map(redact_text, self._parts)))}" if self._parts else ""
        left = "function" if self.remaining is None else f"{self.remaining} left"
        return f"<ScriptedModel{names}: {left}, {len(self._requests)} requests seen>"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Perform the next line.

        Raises
        ------
        NoeticError
            ``llm_failed`` if the script has no line for this request; the error of a `Fault`.
        NoeticConfigError
            ``INVALID_SCRIPT`` if a function returns an invalid line.
        """
        line = self._take(request)
        if type(line) is str and line:  # by far the most common lines are a text and a call
            item = text_item(line, self._ids.new("item"))
            return ModelResponse((item,), self._usage(request, item), None, (), request.model, "stop")
        if type(line) is CallTool:
            item = function_call(line.name, line.arguments, self._ids.new("call"), ids=self._ids)
            return ModelResponse((item,), self._usage(request, item), None, (), request.model, "tool_calls")
        line = await self._settled(line)
        if isinstance(line, Fault):
            return await self._fail(line, request)
        return self._respond(line, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Perform the next line piece by piece: a delta per word, then the response."""
        line = await self._settled(self._take(request))
        if isinstance(line, Fault):
            for piece in itertools.islice(itertools.cycle(PIECE.findall(_BROKEN_OFF)), line.after):
                yield ModelDelta("text", piece)
            # Some faults are answers (empty, garbage); the others raise here, after the deltas.
            yield await self._fail(line, request)
            return
        response = self._respond(line, request)
        for delta in deltas_of(response.items):
            yield delta
        yield response

    def _take(self, request: ModelRequest) -> Any:
        """Return the next line for a request, from the script or its function."""
        # Recorded before anything can fail: tests inspect requests even if the script had no answer.
        self._requests.append(request)
        part = self._only
        if part is None:
            part = self._parts.get(request.model)
            if part is None:
                known = ", ".join(map(repr, map(redact_text, self._parts))) or "none"
                raise failed(
                    f"The scripted model has no lines for model {request.model!r}",
                    reason="script",
                    hint=f"It has lines for {known}; add this name to its mapping.",
                    unknown_model=True,
                )
        if part.function is not None:
            return part.function(request)
        if part is self._only and request.purpose != "agent":
            raise failed(
                f"A scripted model with a bare list of replies serves the agent only; a {request.purpose} asked it",
                reason="script",
                hint="Give each its own lines: ScriptedModel({'agent-model': [...], "
                f"{request.model!r}: [...]}}), keyed by the model name each one asks for.",
                unknown_model=True,
            )
        if part.position >= len(part.lines):
            had = "1 reply" if len(part.lines) == 1 else f"{len(part.lines)} replies"
            raise failed(
                f"The script{part.place} is used up: it had {had}, and this is one request more",
                reason="script",
                hint="Add replies, call reset(), or pass a function of the request, which never runs out.",
            )
        line = part.lines[part.position]
        part.position += 1
        return line

    async def _settled(self, line: Any) -> Line:
        checked = _checked(await awaited(line))
        if isinstance(checked, BaseException):
            # The instance may be raised again after reset(): without this, its traceback would grow each time.
            raise checked.with_traceback(None)
        return checked

    def _respond(self, line: Line, request: ModelRequest) -> ModelResponse:
        if isinstance(line, str):
            line = Reply(line)
        elif isinstance(line, CallTool):
            line = Reply(tool_calls=(line,))
        elif isinstance(line, tuple):
            line = Reply(tool_calls=line)
        reply = cast(Reply, line)
        given = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
        finish_reason = finish_reason_of(given)
        items = answer_items(
            text=reply.text,
            calls=[(self._ids.new("call"), call.name, call.arguments) for call in reply.tool_calls],
            reasoning=reply.reasoning or "",
            refusal=reply.refusal or "",
            finish_reason=finish_reason,
            ids=self._ids,
        )
        usage = cast("Usage | None", reply.usage)
        if usage is None:
            usage = self._usage(request, *items)
        return ModelResponse(
            items=items,
            usage=usage,
            cost=reply.cost,
            logprobs=cast("tuple[TokenLogprob, ...]", reply.logprobs),
            model=request.model,
            finish_reason=finish_reason,
        )

    async def _fail(self, fault: Fault, request: ModelRequest) -> ModelResponse:
        match fault.kind:
            case "empty":
                usage = Usage(self._input_tokens(request) if self._estimates else 0)
                return ModelResponse(items=(), usage=usage, model=request.model, finish_reason="stop")
            case "garbage":
                return cast(ModelResponse, _GARBAGE if fault.value is None else fault.value)
            case "hang":
                await asyncio.Event().wait()  # never set: only cancellation ends this
        raise self._error(fault, request)

    def _error(self, fault: Fault, request: ModelRequest) -> NoeticError:
        detail = f": {fault.message}" if fault.message else ""
        match fault.kind:
            case "rate_limit":
                return rate_limited(fault.retry_after_ms, message=fault.message or "")
            case "refusal":
                usage = Usage(self._input_tokens(request) if self._estimates else 0)
                return refused(fault.message or "I cannot help with that.", usage=usage)
            case "timeout":
                return failed(f"The provider did not answer in time{detail}", reason="timeout")
            case "disconnect":
                return failed(f"The connection broke off{detail}", reason="disconnect")
        status = fault.status or 500
        return failed(f"The provider failed with status {status}{detail}", reason="status", status=status)

    def _usage(self, request: ModelRequest, *items: Item) -> Usage:
        """Return the estimated usage of a request and its answer; zeros if estimates are off."""
        if not self._estimates:
            return NO_USAGE
        output_tokens = sum([item_tokens(item, self._counter) for item in items])
        return Usage(self._input_tokens(request), output_tokens)

    def _input_tokens(self, request: ModelRequest) -> int:
        items = request.items
        # A view of a log knows its tokens from running sums; counting again would make every turn O(history).
        counter = self._counter
        known = getattr(items, "tokens", None) if counter is estimate_tokens else None
        total: int = known if isinstance(known, int) else sum([item_tokens(item, counter) for item in items])
        total += system_tokens(counter, request.instructions or "")
        if request.tools:
            if self._tools[0] is not request.tools:
                text = (compact_json([t.name, t.description, thaw(t.parameters)]) for t in request.tools)
                count = getattr(counter, "count_tools", None)
                self._tools = (request.tools, sum(map(counter, text)) if count is None else count(request.tools))
            total += self._tools[1]
        return total
