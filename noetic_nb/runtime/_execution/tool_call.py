"""One tool call, from any caller: find, check, steer, run, check, record.

The model reads the outcome of its call: the result, an error in plain words, or the decision of the rules.
"""

from __future__ import annotations

import asyncio
import os
import re
import traceback
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import noetic_nb
from noetic_nb._core.worker_threads import ON_THE_SPOT, OnTheSpot, leaves_loop
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.events import ToolCalled, ToolProgress
from noetic_nb.items._bound_values import may_change
from noetic_nb.items._frozen import frozen_data, frozen_or_none
from noetic_nb.items._json_form import json_form
from noetic_nb.items._json_text import compact_json
from noetic_nb.memory import ExecutionContext, PastCall, SteeringAction, SteeringDecision
from noetic_nb.memory._enforcement import PENDING, Place
from noetic_nb.memory._state.state_copy import StateNotCopied
from noetic_nb.redact import redact_text, safe_logger
from noetic_nb.runtime._context.context import Context
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import BegunCall, Enforcing, SteeredExecution
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import TurnStopped, error_text, typed_text
from noetic_nb.runtime._execution.approval import NO_APPROVAL, approval
from noetic_nb.steps import Tool
from noetic_nb.steps._tools import drained

if TYPE_CHECKING:
    from noetic_nb.items._origin_index import Provenance

_LOG: Final = safe_logger("noetic_nb.tools")
_NOT_THE_AUTHORS: Final = (os.path.dirname(noetic_nb.__file__), "site-packages", os.path.dirname(os.__file__))

DEFAULT_GUIDANCE: Final = {
    SteeringAction.DENY: "This call is not allowed.",
    SteeringAction.GUIDE: "Adjust the call before trying again.",
    SteeringAction.ASK: NO_APPROVAL,
}
CHANGED: Final = SteeringDecision(
    SteeringAction.DENY, "The arguments were changed while the call was decided on, so it was not made."
)

Status = Literal["ok", "error", "denied", "guided", "invalid_args", "invalid_result", "unknown", "cancelled"]

_ONE_THREAD: Final = re.compile(
    r"event loop|(?:in|a|main|same|different|other|another|current) thread|thread[- ](?:local|safe|bound)|_thread\._local",
    re.I,
)
"""Error texts about objects that are bound to one thread."""
MAY_HAVE_RUN: Final = "Error: cancelled; may have run"
INLINE_HINT: Final = (
    "This tool ran in a worker thread. Make it with nn.tool(..., inline=True) to run it on the event loop's thread."
)


class CallEnd(NamedTuple):
    """The end of a call: the text for the model, and the value for code."""

    status: Status
    output: str
    value: Any = None  # the tool's return value, of any type
    error: BaseException | None = None
    decision: SteeringDecision | None = None


class ToolCallContext:
    """The execution as a tool sees it: all attributes of the `Context`, to read and to set, plus the id of this call.

    `call_id` is the model's. `idempotency_key` is the same when the call is repeated after a crash: pass it on with any
    effect that must not happen twice.
    """

    __slots__ = ("_ctx", "call_id", "idempotency_key")

    def __init__(self, ctx: RunningExecution, call_id: str, number: int | None) -> None:
        self._ctx = ctx
        self.call_id = call_id
        # A restarted child has another id, but its place is the same.
        self.idempotency_key = f"{ctx.id}:{call_id}" if number is None else f"{ctx.root.id}:{ctx.place}:{number}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ToolCallContext.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._ctx, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._ctx), "call_id", "idempotency_key"})


def own_context(ctx: Context | ToolCallContext) -> RunningExecution:
    """Return the execution itself, in which steps run and by which they are identified."""
    # The harness creates no other context.
    return ctx._ctx if isinstance(ctx, ToolCallContext) else cast(RunningExecution, ctx)


def _numbered(ctx: RunningExecution, again: BegunCall | None) -> int | None:
    """Return the number of this call in its step, the same for a repeated call; None while steps are not observed."""
    if ctx.record is None:
        return None
    if again is not None:
        return again.number
    path, counts = ctx.place, ctx.tree.occurrences
    taken, number = ctx.record.numbers_taken(path), counts.get(f"{path}/", 0) + 1
    while number in taken:
        number += 1
    counts[f"{path}/"] = number
    return number


def denial_text(decision: SteeringDecision) -> str:
    """Return the text that tells the model about a decision against its call: a structured error."""
    error: dict[str, Any] = {
        "kind": "steering_denied",
        "action": str(decision.action),
        "guidance": decision.guidance or DEFAULT_GUIDANCE[decision.action],
    }
    if decision.rule_ids:
        error["ruleId"] = decision.rule_ids[0]
    return compact_json({"error": error})


async def call_tool(
    engine: Engine,
    ctx: RunningExecution,
    hook_ctx: ExecutionContext | None,
    tool: Tool | None,
    *,
    name: str,
    arguments: str | Mapping[str, Any],
    call_id: str,
) -> CallEnd:
    """Carry out one call, or return why not; `hook_ctx` is created here if it is needed and not given."""
    ctx.tool_calls += 1
    if tool is None:
        end = CallEnd("unknown", f"Error: unknown tool '{name}'")
        record_call(engine, ctx, _place(ctx, name, {}, call_id), None, None, end, 0.0)
        return end
    raw = None
    try:
        given = tool.read(arguments)
        raw = frozen_or_none(given)
        # Bound once: rules, the record and the tool all use these values.
        values, args = tool.bind(given)
    except NoeticError as exc:
        end = CallEnd("invalid_args", f"Error: {exc.what}", error=exc)
        record_call(engine, ctx, _place(ctx, tool.name, {}, call_id), None, raw, end, 0.0)
        return end
    # Before any rule is evaluated: of calls decided at the same time, the later ones see the earlier.
    place = _place(ctx, tool.name, args, call_id)
    if hook_ctx is None and engine.stack.hooks:
        hook_ctx = engine.hook_context(ctx)
    again = None
    if ctx.record is not None and tool.wants_context:  # such a tool gets an idempotency key
        again = ctx.record.begun_before(ctx.place, tool.name, args)
        place.resumes = None if again is None else again.place
    worker = ON_THE_SPOT if tool.inline or tool.wants_context or not leaves_loop() else ctx.tree.worker
    refused = None
    try:
        if tool.needs_approval or "before_tool_call" in engine.stack.hooks:
            now = partial(tool.shown, values) if may_change(values) else None
            refused = await steer_call(
                engine,
                ctx,
                hook_ctx,
                place,
                args,
                raw,
                values,
                now,
                needs_approval=tool.needs_approval,
                provenance=partial(ctx.provenance, tool.spec.parameters),
            )
            ctx.check_abort()  # a person may have taken long to approve
        if refused is None:
            await ctx.until_aborted(worker.acquire())
    except BaseException:
        ctx.tree.calls.give_back(place)
        raise
    if refused is not None:
        record_call(engine, ctx, place, args, raw, refused, 0.0)
        return refused
    ctx.tree.calls.start(place)
    # Only now: the time a person takes to approve is not the tool's.
    start = engine.clock.monotonic_ms()
    try:
        number = _numbered(ctx, again) if tool.wants_context else None
        if ctx.record is not None and "before_tool_call" in engine.stack.hooks:
            # Written first: if the process is killed now, the call counts when the turn is resumed.
            await ctx.record.call_begins(ctx.place, number, place, again)
            ctx.check_abort()
        end = await _run(engine, tool, values, ctx, call_id, number, worker)
    except BaseException as exc:  # it may have taken effect, so it keeps its place
        record_call(engine, ctx, place, args, raw, _broken_off(ctx, exc), engine.clock.monotonic_ms() - start)
        raise
    finally:
        worker.release()
    duration = engine.clock.monotonic_ms() - start
    record_call(engine, ctx, place, args, raw, end, duration)
    if end.error is not None:
        _warn_of_failure(ctx, tool.name, end.error)
    if hook_ctx is not None and "on_tool_outcome" in engine.stack.hooks:
        await engine.stack.tool_outcome(
            hook_ctx,
            name=tool.name,
            call_id=call_id,
            success=end.status == "ok",
            duration_ms=duration,
            error=None if end.error is None else error_text(end.error),
            output=end.output,
            error_type=_error_type(end.error),
        )
        _raise_stop(engine, hook_ctx)
    return end


def _broken_off(ctx: RunningExecution, error: BaseException) -> CallEnd:
    if ctx.aborted or not isinstance(error, Exception) or isinstance(error, TurnStopped):
        return CallEnd("cancelled", f"{MAY_HAVE_RUN}{': ' if (why := error_text(error)) else ''}{why}", error=error)
    return CallEnd("error", f"Error: {typed_text(error)}", error=error)


def _place(ctx: RunningExecution, name: str, args: Mapping[str, Any], call_id: str) -> Place:
    place = ctx.tree.calls.reserve(PastCall(name, args, call_id, PENDING, None, ctx.id))
    ctx.calls.append(place)
    return place


async def steer_call(
    engine: Enforcing,
    ctx: SteeredExecution,
    hook_ctx: ExecutionContext | None,
    place: Place,
    args: Mapping[str, Any],
    raw: Any,
    values: Mapping[str, Any],
    now: Callable[[], Any] | None,
    *,
    needs_approval: bool,
    provenance: Callable[[], Provenance] | None = None,
) -> CallEnd | None:
    """Return the end of a call that must not be made, else None; `now()` returns the current JSON form of `values`."""
    decision, name = None, place.call.name
    if hook_ctx is not None and "before_tool_call" in engine.stack.hooks:
        decision = await engine.stack.before_tool_call(
            hook_ctx,
            tool_name=name,
            tool_args=args,
            call_id=place.call.call_id,
            history=ctx.tree.calls.so_far(place),
            raw_args=raw,
            provenance=provenance,
            tool_values=values,
        )
        # Before the decision itself: a turn that ends needs no answer for the model.
        stop = engine.stack.take_stop(hook_ctx) or decision.stop
        if stop is not None:
            raise TurnStopped(stop)
        if decision.action in (SteeringAction.DENY, SteeringAction.GUIDE):
            status: Status = "denied" if decision.action is SteeringAction.DENY else "guided"
            return CallEnd(status, denial_text(decision), decision=decision)
    if needs_approval or (decision is not None and decision.action is SteeringAction.ASK):
        refused = await approval(engine, ctx, name, args, decision, provenance)
        if refused is not None:
            return CallEnd("denied", denial_text(refused), decision=refused)
    if now is not None and not _is_same(now, args):
        return CallEnd("denied", denial_text(CHANGED), decision=CHANGED)
    return None


def _is_same(now: Callable[[], Any], args: Mapping[str, Any]) -> bool:
    try:
        return bool(now() == args)
    except Exception:  # such as a value that no longer has a JSON form
        return False


def _error_type(error: BaseException | None) -> str | None:
    if isinstance(error, NoeticError | NoeticConfigError):
        return error.kind if isinstance(error, NoeticError) else error.code
    return None if error is None else type(error).__name__


async def _run(
    engine: Engine,
    tool: Tool,
    values: Mapping[str, Any],
    ctx: RunningExecution,
    call_id: str,
    number: int | None,
    worker: OnTheSpot,
) -> CallEnd:
    seen = ToolCallContext(ctx, call_id, number) if tool.wants_context else None

    def report(piece: Any) -> None:
        if engine.sink is not None:
            engine.sink.emit(ToolProgress(ctx.where, engine.clock.now_ms(), tool.name, call_id, _shown(piece)))

    try:
        if worker is ON_THE_SPOT:
            result = tool.begin(values, seen)
        else:
            result = await ctx.until_aborted(worker.call(copy_context().run, tool.begin, values))
        if tool.streams:
            result = drained(result, report, ctx.until_aborted, worker)
        value = tool.checked(await ctx.until_aborted(result) if hasattr(result, "__await__") else result)
        return CallEnd("ok", tool.render(value), value)
    except asyncio.CancelledError:
        raise
    except (NoeticConfigError, TurnStopped):
        raise
    except NoeticError as exc:
        if ctx.aborted and (exc.kind == "cancelled" or exc is ctx.abort_error):
            raise
        status: Status = "invalid_result" if exc.facts.get("reason") == "invalid_result" else "error"
        return CallEnd(status, f"Error: {exc.what}", error=exc)
    except Exception as exc:
        text = typed_text(exc)
        if worker is ON_THE_SPOT or not _ONE_THREAD.search(text):
            return CallEnd("error", f"Error: {text}", error=exc)
        error = NoeticError("tool_failed", text, hint=INLINE_HINT, reason="thread", tool_name=tool.name)
        error.__cause__ = exc
        return CallEnd("error", f"Error: {error}", error=error)


def _warn_of_failure(ctx: RunningExecution, name: str, error: BaseException) -> None:
    """Tell the tool's author of an error that the model was told of: in the reply, and in the log with the traceback."""
    # A denied call inside the tool is intended, and a layer's state error was reported as the layer's.
    if isinstance(error, StateNotCopied) or (isinstance(error, NoeticError) and error.kind == "steering_denied"):
        return
    place = _place_of(error)
    text = str(error) if isinstance(error, NoeticError) else typed_text(error)
    ctx.warn("tool_failed", redact_text(f"Tool {name!r} failed{place}: {text.rstrip('.')}."))
    if place:  # without a place it is this library's own message, which needs no traceback
        _LOG.warning(
            "Tool %r failed; the error was returned to the model, and the turn continued.", name, exc_info=error
        )


def _place_of(error: BaseException) -> str:
    """Return where the tool's own code raised: the innermost line outside installed packages and this library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not any(part in frame.filename for part in _NOT_THE_AUTHORS):
            return f" in {frame.name}, line {frame.lineno} of {os.path.basename(frame.filename)}"
    return ""


def _shown(piece: Any) -> Any:
    try:
        return json_form(piece)
    except ItemValidationError:
        return str(piece)


def record_call(
    engine: Enforcing,
    ctx: SteeredExecution,
    place: Place,
    args: Mapping[str, Any] | None,
    raw: Any,
    end: CallEnd,
    duration_ms: float,
) -> None:
    """Record how a call ended, in the history of the tree and in the run."""
    ctx.tree.calls.settle(place, end.status, end.output)
    if engine.sink is None:
        return
    called = ToolCalled(
        ctx.where,
        engine.clock.now_ms(),
        place.call.name,
        place.call.call_id,
        frozen_data(args),  # frozen now, as a tool may modify its arguments later
        end.output,
        duration_ms,
        end.status,
        None if end.error is None else error_text(end.error),
        frozen_data(raw),
        place.number,
        place.behind,
        _error_type(end.error),
    )
    engine.sink.emit(called)


def _raise_stop(engine: Engine, hook_ctx: ExecutionContext) -> None:
    stop = engine.stack.take_stop(hook_ctx)
    if stop is not None:
        raise TurnStopped(stop)
