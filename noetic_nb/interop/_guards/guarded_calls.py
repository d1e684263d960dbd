"""Foreign tools under our rules: the same layers, history and records as in one of our turns.

Nothing is enforced here. A `Guard` is the engine that `steer_call` expects, a `GuardedTree` the execution; decisions
follow the same rules as for our own agents.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import to_jsonable_python

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import EventSink, SteeringDecided, Where
from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.interop._guards.guard_arguments import Binder, Bound
from noetic_nb.interop._guards.guard_sessions import GuardSession, current_session
from noetic_nb.items._frozen import frozen_or_none, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._origin_index import OriginIndex, Provenance
from noetic_nb.layers import regulation
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer, PastCall, SteeringAction, SteeringDecision, Stop
from noetic_nb.memory._enforcement import PENDING, CallHistory, CallsSoFar, Place
from noetic_nb.memory._execution_context import HookModelRequest
from noetic_nb.memory._steering_decision import denied
from noetic_nb.models import ModelClient, ModelRequest, ModelResponse
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Recorder, Run
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.step_errors import TurnStopped, error_text
from noetic_nb.runtime._execution.tool_call import CallEnd, denial_text, record_call, steer_call
from noetic_nb.steering import RuleBook, SteeringRule, steering
from noetic_nb.sync import drive

OnDeny: TypeAlias = Literal["raise", "return"] | None
Rules: TypeAlias = RuleBook | SteeringRule | Iterable[SteeringRule | Mapping[str, Any]] | None

STOPPED: Final = "stopped"  # outcome of a call refused because the regulator had already stopped the session


class SharedHistory(CallHistory):
    """The calls of one session, which several threads may write to at the same time."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def reserve(self, call: PastCall) -> Place:
        with self._lock:
            return super().reserve(call)

    def settle(self, place: Place, status: str, output: str | None) -> None:
        with self._lock:
            super().settle(place, status, output)

    def give_back(self, place: Place) -> None:
        with self._lock:
            super().give_back(place)

    def so_far(self, own: Place | None = None) -> CallsSoFar:
        with self._lock:
            return super().so_far(own)


class GuardedTree:
    """The state of a session in a guard: its calls, and the execution that hooks see."""

    __slots__ = ("calls", "hook_ctx", "limits", "stop")

    def __init__(self, hook_ctx: Callable[[CallHistory], ExecutionContext]) -> None:
        self.calls: CallHistory = SharedHistory()
        self.hook_ctx = hook_ctx(self.calls)
        self.limits: Limits | None = None
        self.stop: Stop | None = None
        """The reason why no further call may be made."""

    @property
    def tree(self) -> GuardedTree:
        """Itself: it is the root and has no children."""
        return self

    @property
    def where(self) -> Where:
        """The place in the run."""
        return self.hook_ctx.where

    def report_problem(self, code: str, source: str, hook: str, error: BaseException) -> None:
        """Log an error that affects no decision; there is no reply that could carry it."""
        self.hook_ctx.diagnostic(source, hook, error)


class Guard:
    """The rules, regulator and run shared by tools that were guarded together."""

    def __init__(
        self,
        rules: Rules,
        *,
        run: Run | None,
        regulator: Regulator | None,
        on_deny: OnDeny,
        on_error: Literal["deny", "allow", "raise"],
        timeouts: Mapping[str, float] | None,
        approve: Callable[..., Any] | None,
        model: ModelClient | Mapping[str, ModelClient] | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if on_deny not in ("raise", "return", None):
            raise NoeticConfigError("INVALID_OPTION", "on_deny must be 'raise', 'return' or None.", given=on_deny)
        if rules is None and regulator is None:
            hint = "Pass a rule book, or regulator=...; an empty list allows everything."
            raise NoeticConfigError("INVALID_STEERING", "A guard needs rules or a regulator.", given=rules, hint=hint)
        if run is not None and not isinstance(run, Run):
            raise NoeticConfigError(
                "INVALID_RUN", "The calls must be written to a Run.", given=run, hint="Use nn.Run()."
            )
        if not isinstance(rules, RuleBook):
            rules = RuleBook([rules] if isinstance(rules, SteeringRule) else () if rules is None else rules)
        self.book = rules
        self.names: set[str] = set()
        """The names of the guarded tools, as rules see them."""
        self.schemas: dict[str, Mapping[str, Any] | None] = {}
        """The JSON Schemas of their arguments; None if a tool has none."""
        # The run holds the ledger and nothing is recalled, so the layer needs no rows of its own and no late verdicts.
        layer = steering(rules, max_ledger_entries=0, on_error=on_error, timeouts=timeouts, late_verdicts=False)
        layers: list[MemoryLayer] = [layer]
        if regulator is not None:
            layers.append(regulation(regulator))
        self.rules = rules
        self.run = Run(meta={"source": "guard"}) if run is None else run
        self.sink: EventSink | None = Recorder(self.run)
        self.stack = LayerStack(layers, sink=self.sink, clock=clock)
        self.clock = clock
        self.approve = approve
        self.on_deny = on_deny
        self._models = model
        self._lock = threading.Lock()
        self._ended: deque[tuple[str, str]] = deque()
        self._trees: weakref.WeakKeyDictionary[GuardSession, GuardedTree] = weakref.WeakKeyDictionary()
        if layer.hooks.on_record is not None:
            # Edits of the rules also belong in the ledger, unless the run already follows the book.
            self.run._attach(rules, lambda: layer.hooks.on_record(self.sink, clock))  # type: ignore[misc]

    def tree(self) -> GuardedTree:
        """Return the tree of the caller's session."""
        session = current_session()
        found = self._trees.get(session)
        if found is None:
            with self._lock:
                found = self._trees.get(session)
                if found is None:
                    found = self._begun(session)
                    self._trees[session] = found
        return found

    def _begun(self, session: GuardSession) -> GuardedTree:
        while self._ended:
            execution_id, thread_id = self._ended.popleft()
            over = ExecutionContext(execution_id=execution_id, thread_id=thread_id, sink=self.sink)
            drive(self.stack.dispose(over))
        execution_id = SYSTEM_IDS.new("exec")
        tree = GuardedTree(
            lambda calls: ExecutionContext(
                execution_id=execution_id,
                thread_id=session.thread_id,
                call_model=None if self._models is None else self._call_model,
                clock=self.clock,
                diagnostic=self.stack.state.diagnostic,
                sink=self.sink,
                past_calls=calls.so_far,
                turn=1,
            )
        )
        drive(self.stack.init(tree.hook_ctx))
        # The finalizer may run in any thread, so it only queues two names; the context would keep this guard alive.
        ended = weakref.finalize(session, self._ended.append, (execution_id, session.thread_id))
        ended.atexit = False
        return tree

    async def _call_model(self, request: HookModelRequest) -> ModelResponse:
        """Call a judge's model."""
        client = self._models.get(request.model) if isinstance(self._models, Mapping) else self._models
        if client is None:
            what = f"A {request.purpose} asks a model that no client answers."
            hint = "Pass guard(..., model={name: client}) with this name."
            raise NoeticConfigError("MISSING_CALL_MODEL", what, given=request.model, hint=hint)
        full = ModelRequest(request.model, request.items, request.instructions, purpose=request.purpose)
        return await client.complete(full)

    def without_name(self, name: str, bind: Binder) -> Binder:
        """Bind calls of a tool without a name; raises ``INVALID_TOOL`` if a rule selects tools by name."""

        def checked(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
            self._refuse_nameless(name)
            return bind(positional, named)

        self._refuse_nameless(name)
        return checked

    def _refuse_nameless(self, name: str) -> None:
        for rule in self.rules.snapshot:
            if rule.enabled and rule.tools is not None and name not in rule.tools:
                what = f"Rule {rule.id!r} is about tools by name, and {name!r} has no name of its own."
                hint = "Guard a function made with def, or give the runnable a name."
                raise NoeticConfigError("INVALID_TOOL", what, given=name, hint=hint)

    def call(self, bound: Bound, *, needs_approval: bool = False) -> GuardedCall:
        """Add a call to the calls of its session."""
        return GuardedCall(self, self.tree(), bound, needs_approval)

    def unfit(self, name: str, error: NoeticError, on_deny: OnDeny) -> str:
        """Record a call whose arguments do not fit; raises, or returns the text for the model."""
        tree = self.tree()
        end = CallEnd("invalid_args", f"Error: {error.what}", error=error)
        place = tree.calls.reserve(PastCall(name, {}, SYSTEM_IDS.new("call"), PENDING, None, tree.where.execution_id))
        record_call(self, tree, place, None, frozen_or_none(error.given), end, 0.0)
        if (self.on_deny or on_deny) == "return":
            return end.output
        raise error


def _nothing_sent(schema: Mapping[str, Any] | None) -> Provenance:
    """Return the provenance of a call when no text is known, only the tool's schema."""
    return Provenance(OriginIndex(), OriginIndex(), OriginIndex(), schema=schema)


class GuardedCall:
    """One call: first `refused`; if that is False, run the tool within ``with`` and set its result as `value`."""

    __slots__ = ("_bound", "_guard", "_is_postponed", "_needs_approval", "_place", "_start", "_tree", "end", "value")

    def __init__(self, guard: Guard, tree: GuardedTree, bound: Bound, needs_approval: bool) -> None:
        self._guard = guard
        self._tree = tree
        self._bound = bound
        self._needs_approval = needs_approval
        self._start = 0.0
        self._is_postponed = False
        self.value: Any = None
        self.end: CallEnd | None = None
        call_id = bound.call_id or SYSTEM_IDS.new("call")
        # Reserved before any rule is evaluated, so that of concurrent decisions the later ones see the earlier calls.
        self._place = tree.calls.reserve(
            PastCall(bound.name, bound.args, call_id, PENDING, None, tree.hook_ctx.execution_id)
        )

    async def refused(self) -> bool:
        """Decide. True means that the call must not be made; nor may it if this raises (``MISSING_CALL_MODEL``)."""
        guard, tree, bound = self._guard, self._tree, self._bound
        try:
            if tree.stop is not None:
                self.end = self._stopped(tree.stop, recorded=False)
            else:
                self.end = await steer_call(
                    *(guard, tree, tree.hook_ctx, self._place, bound.args, bound.raw, bound.values, bound.now),
                    needs_approval=self._needs_approval,
                    provenance=partial(_nothing_sent, guard.schemas.get(bound.name)),
                )
        except TurnStopped as exc:
            tree.stop = exc.stop
            self.end = self._stopped(exc.stop, recorded=True)
        except BaseException:
            tree.calls.give_back(self._place)
            raise
        if self.end is None:
            return False
        record_call(guard, tree, self._place, bound.args, bound.raw, self.end, 0.0)
        return True

    def refusal(self, on_deny: OnDeny) -> str:
        """Return the refusal for the model, or raise it; `on_deny` applies if the guard leaves it to the tool kind."""
        assert self.end is not None
        if (self._guard.on_deny or on_deny) == "return":
            return self.end.output
        decision = self.end.decision
        assert decision is not None
        stop = {} if decision.stop is None else {"stop": decision.stop.decision}
        raise denied(decision, f"The call of {self._bound.name!r} was not allowed.", tool_name=self._bound.name, **stop)

    def _stopped(self, stop: Stop, *, recorded: bool) -> CallEnd:
        decision = SteeringDecision(SteeringAction.DENY, stop.suggestion, (), stop)
        guard, bound = self._guard, self._bound
        if not recorded and guard.sink is not None:
            where, now = self._tree.where, guard.clock.now_ms()
            guard.sink.emit(
                SteeringDecided(
                    where,
                    now,
                    "regulation",
                    "before_tool_call",
                    bound.name,
                    bound.args,
                    "deny",
                    stop.suggestion,
                    (),
                    0.0,
                    STOPPED,
                )
            )
        return CallEnd("denied", denial_text(decision), decision=decision)

    def postpone(self) -> None:
        """End the call with the next ``with`` block instead of this one."""
        self._is_postponed = True

    def __enter__(self) -> GuardedCall:
        self._tree.calls.start(self._place)
        # Started here, so that the time of an approval does not count as the tool's.
        self._start = self._guard.clock.monotonic_ms()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_postponed:
            self._is_postponed = False
            return
        if error is not None and not isinstance(error, Exception):
            # The call may have had its effect, so it keeps its place.
            cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
            self._tree.calls.settle(self._place, "cancelled" if cancelled else "error", None)
            return
        guard, bound, tree = self._guard, self._bound, self._tree
        duration = guard.clock.monotonic_ms() - self._start
        if error is None:
            text, failed = rendered(self.value)
            end = CallEnd("error" if failed else "ok", text, self.value)
        else:
            end = CallEnd("error", f"Error: {error_text(error)}", error=error)
        record_call(guard, tree, self._place, bound.args, bound.raw, end, duration)
        if "on_tool_outcome" in guard.stack.hooks:
            drive(
                guard.stack.tool_outcome(
                    tree.hook_ctx,
                    name=bound.name,
                    call_id=self._place.call.call_id,
                    success=end.status == "ok",
                    duration_ms=duration,
                    error=None if error is None else error_text(error),
                    output=end.output,
                    error_type=None if error is None else type(error).__name__,
                )
            )
            tree.stop = guard.stack.take_stop(tree.hook_ctx) or tree.stop


def rendered(value: Any) -> tuple[str, bool]:
    """Return a tool's value as text for a record, and whether the value marks itself as an error."""
    if isinstance(value, str):
        return value, False
    content = getattr(value, "content", None)
    # A LangChain message, or an MCP result in either spelling.
    failed = getattr(value, "status", None) == "error" or True in (
        getattr(value, "isError", None),
        getattr(value, "is_error", None),
    )
    if isinstance(content, str):
        return content, failed
    if isinstance(content, list) and all(isinstance(getattr(part, "text", None), str) for part in content):
        return "\n".join(part.text for part in content), failed
    if value is None or isinstance(value, int | float | dict | list | tuple):
        try:
            return compact_json(to_jsonable_python(thaw(value))), failed
        except Exception:  # any text will do for a record
            pass
    try:
        return str(value), failed
    except Exception as exc:
        return f"its text cannot be read: {type(exc).__name__}", failed


def is_async(function: Any) -> bool:
    """Tell whether a callable is an async function, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
