"""The variables of a condition: plain data about the call or response, limited to the named parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from noetic_nb.items import thaw
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams, PastCall
from noetic_nb.steering._predicates.cel_names import ORIGIN

# The latest calls, and the start of each result: enough for conditions, at a constant cost in long runs.
MAX_HISTORY: Final = 200
MAX_OUTPUT: Final = 2_000
# The limit of work done directly on the loop, about 50 ms, in characters; other values count as equivalent characters.
MAX_AT_ONCE: Final = 50_000
VALUE_WEIGHT: Final = 50
# Without a loop, an expression reads each value once.
MAX_ONCE_THROUGH: Final = 20 * MAX_AT_ONCE
# Values beyond this are not judged at all, so that a thread or a process ends.
MAX_JUDGED: Final = 100 * MAX_AT_ONCE

Params = BeforeToolCallParams | AfterModelCallParams

_CALL: Final[Mapping[str, Callable[[PastCall], Any]]] = {
    "name": lambda call: call.name,
    "args": lambda call: call[1],  # a condition cannot write, so it needs no copy
    "status": lambda call: call.status or "pending",
    "output": lambda call: (call.output or "")[:MAX_OUTPUT],
    "ok": lambda call: call.status == "ok",
    "call_id": lambda call: call.call_id,
    "execution_id": lambda call: call.execution_id,
}

_CTX: Final[Mapping[str, Callable[[Any], Any]]] = {
    "execution_id": lambda ctx: ctx.execution_id,
    "thread_id": lambda ctx: ctx.thread_id,
    "resource_id": lambda ctx: ctx.resource_id,
    "depth": lambda ctx: ctx.depth,
    "step": lambda ctx: ctx.step_number,
    "turn": lambda ctx: ctx.turn,
    "cost": lambda ctx: ctx.cost,
    "input_tokens": lambda ctx: ctx.token_usage.input_tokens,
    "output_tokens": lambda ctx: ctx.token_usage.output_tokens,
}


def _response(name: str, params: AfterModelCallParams) -> Any:
    if name == "text":
        return params.text
    if name == "answer":
        return params.answer
    if name == "items":
        return thaw(params.response.items)
    return params.response.usage._asdict()


def weight(value: Any) -> int:
    """Return the work for a value, in characters; raises `ValueError` if it is too much."""
    found, waiting = 0, [value]
    while waiting:
        part = waiting.pop()
        found += VALUE_WEIGHT
        if isinstance(part, str | bytes):
            found += len(part)
        elif isinstance(part, Mapping):
            found += sum(map(len, part))
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
        if found > MAX_JUDGED:
            raise ValueError("The values are too large to be checked. Make the tool take fewer of them in one call.")
    return found


def work_of(params: Params) -> int:
    """Return the work of tracing the origins of a call's arguments, in characters."""
    unread = 0
    if isinstance(params, BeforeToolCallParams) and params.provenance is not None:
        unread = params.provenance().unread
    return weight(params[1]) + unread


def values_of(params: Params, needs: Collection[str]) -> dict[str, Any]:
    """Return the values of the variables that a condition `needs`; of the history the last 200 calls."""
    found: dict[str, Any] = {}
    fields: list[tuple[str, Callable[[PastCall], Any]]] = []
    for need in needs:
        root, _, name = need.partition(".")
        # Only named values are computed: thawing a long response would cost more than the condition.
        if need == ORIGIN:
            continue  # a function, not a value
        if root == "tool":
            part = params[0] if name == "name" else params[1]  # no copy: a condition cannot write
            found.setdefault("tool", {})[name] = part
        elif root == "response":
            found.setdefault("response", {})[name] = _response(name, params)  # type: ignore[arg-type]
        elif root == "ctx":
            found.setdefault("ctx", {})[name] = _CTX[name](params.ctx)
        elif name:
            fields.append((name, _CALL[name]))
    # Plain `history` needs no fields: only its length matters, so empty records are enough.
    if "history" in needs or fields:
        calls = params.history[-MAX_HISTORY:]
        found["history"] = [{name: read(call) for name, read in fields} for call in calls]
    return found


def origins_of(params: Params) -> list[tuple[Any, list[str]]]:
    """Return every part of a call's arguments with its members' origins, for a process that cannot look them up."""
    assert isinstance(params, BeforeToolCallParams)
    waiting: list[Any] = [params.tool_args]
    found: list[tuple[Any, list[str]]] = []
    while waiting:
        value = waiting.pop()
        found.append((thaw(value), [params.origin(value).text, *[origin.text for origin in params.origins(value)]]))
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return found


class Bindings:
    """The values of one evaluation, and the CEL library's form of them; made when the first condition is reached."""

    __slots__ = ("_context", "_needs", "_params", "_values", "_weight")

    def __init__(self, params: Params, needs: Collection[str]) -> None:
        self._params = params
        self._needs = needs
        self._values: dict[str, Any] | None = None
        self._weight: int | None = None
        self._context: Any = None

    @property
    def weight(self) -> int:
        """The work of its conditions, in characters; of the history, which is short, the arguments count."""
        if self._weight is None:
            values = self._values = values_of(self._params, self._needs)
            calls = [call["args"] for call in values.get("history", ()) if "args" in call]
            parts = (values.get("tool", {}).get("args"), values.get("response"), calls)
            self._weight = weight(parts) + (work_of(self._params) if ORIGIN in self._needs else 0)
        return self._weight

    def context(self, make: Callable[[dict[str, Any]], Any]) -> Any:
        """Return the context, made once."""
        if self._context is None:
            self._context = make(values_of(self._params, self._needs) if self._values is None else self._values)
            if ORIGIN in self._needs:
                params: BeforeToolCallParams = self._params  # type: ignore[assignment]
                self._context.add_function("origin", lambda value: params.origin(value).text)
                self._context.add_function("origins", lambda value: [origin.text for origin in params.origins(value)])
        return self._context
