"""A regulator for LangChain and LangGraph agents: a callback handler that feeds it and stops the run on its signal.

LangChain is imported only when a handler is made. The handler has no logic of its own: it calls the hooks of the
regulation layer at the same moments as one of our own turns.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from noetic_nb._core.optional_packages import optional_package
from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.interop._guards.guard_arguments import shown
from noetic_nb.interop._guards.guarded_calls import rendered
from noetic_nb.items import assistant_message, function_call
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.layers import regulation
from noetic_nb.memory import ExecutionContext, LayerStack, SteeringDecision, Stop
from noetic_nb.models import ModelResponse, Usage
from noetic_nb.models._client import TokenLogprob
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Recorder, Run
from noetic_nb.runtime._context.step_errors import TurnStopped, error_text
from noetic_nb.sync import drive


def regulator_callback(regulator: Regulator, *, run: Run | None = None, thread_id: str | None = None) -> Any:
    """Make a LangChain callback handler that feeds a regulator and stops the run when it breaks the circuit.

    Parameters
    ----------
    regulator : Regulator
        A template, forked for this handler: one handler is one task. Each run that it observes is a turn.
    run : Run, optional
        The run that receives the events; a new run by default, ``handler.noetic_run``.
    thread_id : str, optional
        The name of the conversation in that run.

    Returns
    -------
    BaseCallbackHandler
        For ``agent.invoke(..., config={"callbacks": [handler]})``. A stopped call raises `NoeticError` ``cancelled``
        with the suggestion as its ``reason``, as does every later model or tool call of the task.

    Raises
    ------
    NoeticConfigError
        ``MISSING_PACKAGE`` without langchain-core, ``INVALID_REGULATION``.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Guarding the tools of other agents".
    """
    with optional_package("A callback handler of LangChain needs langchain-core.", "Install langchain-core."):
        from langchain_core.callbacks import BaseCallbackHandler
    feed = _Feed(regulator, Run(meta={"source": "langchain"}) if run is None else run, thread_id)

    class RegulatorCallback(BaseCallbackHandler):  # type: ignore[misc, unused-ignore]
        # Without these, LangChain only logs a handler's exceptions, or calls it in another thread.
        raise_error = True
        run_inline = True
        noetic_run = feed.run

        def on_chain_start(
            self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: Any = None, **_: Any
        ) -> None:
            if parent_run_id is None:
                feed.end_turn()

        def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
            if more.get("parent_run_id") is None:  # a model called directly, outside a chain
                feed.end_turn()
            found = [one.content for one in (messages[0] if messages else ()) if getattr(one, "type", "") == "human"]
            feed.model_start(run_id, _text_of(found[-1]) if found else "", more)

        def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
            if more.get("parent_run_id") is None:
                feed.end_turn()
            feed.model_start(run_id, str(prompts[0]) if prompts else "", more)

        def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
            feed.model_end(run_id, response)

        def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
            feed.model_failed(run_id, error)

        def on_tool_start(
            self, serialized: Any, input_str: str, *, run_id: UUID, inputs: Any = None, **more: Any
        ) -> None:
            name = (serialized or {}).get("name") or more.get("name") or "tool"
            feed.tool_start(run_id, str(name), inputs if isinstance(inputs, Mapping) else {"input": input_str})

        def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
            text, failed = rendered(output)
            feed.tool_end(run_id, text, text if failed else None)

        def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
            feed.tool_end(run_id, None, error_text(error), type(error).__name__)

    return RegulatorCallback()


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in parts)


@dataclass
class _Begun:
    """A model or tool call that has not ended."""

    name: str
    start: float


class _Feed:
    """Calls the hooks of a regulation layer, with one execution per turn."""

    def __init__(self, regulator: Regulator, run: Run, thread_id: str | None) -> None:
        self.run = run
        self._sink = Recorder(run)
        self._stack = LayerStack([regulation(regulator)], sink=self._sink)
        self._thread_id = SYSTEM_IDS.new("regulated") if thread_id is None else thread_id
        self._turn = 0
        self._ctx: ExecutionContext | None = None
        self._stop: Stop | None = None
        self._begun: dict[UUID, _Begun] = {}
        # Tools of one message run in several threads; a regulator must receive one event at a time.
        self._lock = threading.RLock()

    def end_turn(self) -> None:
        """End the current turn; the next model call begins a new one."""
        with self._lock:
            if self._ctx is not None:
                drive(self._stack.dispose(self._ctx))
            self._ctx = None

    def _context(self, query: str) -> ExecutionContext:
        """Return the execution of this turn, beginning one if needed."""
        if self._ctx is None:
            self._turn += 1
            self._ctx = ExecutionContext(
                execution_id=SYSTEM_IDS.new("exec"), thread_id=self._thread_id, sink=self._sink, turn=self._turn
            )
            drive(self._stack.init(self._ctx))
            drive(self._stack.recall(self._ctx, query=query, budgets={}))
        return self._ctx

    def _check(self, ctx: ExecutionContext, stop: Stop | None = None) -> None:
        """Raise if the task was stopped, now or earlier: the framework may have swallowed the first error."""
        self._stop = self._stop or stop or self._stack.take_stop(ctx)
        if self._stop is not None:
            raise TurnStopped(self._stop).as_error()

    def model_start(self, run_id: UUID, query: str, more: Mapping[str, Any]) -> None:
        params = more.get("invocation_params") or {}
        metadata = more.get("metadata") or {}
        model = params.get("model") or params.get("model_name") or metadata.get("ls_model_name") or "langchain"
        with self._lock:
            ctx = self._context(query)
            self._check(ctx)
            self._begun[run_id] = _Begun(str(model), time.perf_counter())

    def _ended(self, run_id: UUID) -> tuple[_Begun, float]:
        begun = self._begun.pop(run_id, None)
        if begun is None:
            return _Begun("langchain", 0.0), 0.0
        return begun, (time.perf_counter() - begun.start) * 1_000

    def model_end(self, run_id: UUID, response: Any) -> None:
        generations = getattr(response, "generations", None) or ((),)
        first = generations[0][0] if generations and generations[0] else None
        message = getattr(first, "message", first)
        usage = getattr(message, "usage_metadata", None) or {}
        sent, made = usage.get("input_token_details") or {}, usage.get("output_token_details") or {}
        parts = sent.get("cache_read"), sent.get("cache_creation"), made.get("reasoning")
        spent = Usage(usage.get("input_tokens") or 0, usage.get("output_tokens") or 0, *parts)
        with self._lock:
            begun, duration = self._ended(run_id)
            ctx = self._context("")
            drive(
                self._stack.model_outcome(
                    ctx, model=begun.name, usage=spent, cost=None, duration_ms=duration, logprobs=_logprobs(message)
                )
            )
            calls = getattr(message, "tool_calls", None) or ()
            items: list[Any] = [assistant_message(_text_of(getattr(message, "content", "")))]
            items += [function_call(str(one.get("name")), "{}", call_id=str(one.get("id"))) for one in calls]
            # A response without calls ends the turn; the layer makes this distinction.
            drive(self._stack.store(ctx, response=ModelResponse(tuple(items), spent), log=()))
            self._check(ctx)

    def model_failed(self, run_id: UUID, error: BaseException) -> None:
        with self._lock:
            begun, duration = self._ended(run_id)
            ctx = self._context("")
            drive(
                self._stack.model_outcome(
                    ctx, model=begun.name, usage=Usage(), cost=None, duration_ms=duration, error=error_text(error)
                )
            )

    def tool_start(self, run_id: UUID, name: str, inputs: Mapping[str, Any]) -> None:
        args = FrozenDict({str(key): shown(value) for key, value in inputs.items()})
        with self._lock:
            ctx = self._context("")
            if self._stop is not None:
                self._check(ctx)
            decision: SteeringDecision = drive(
                self._stack.before_tool_call(ctx, tool_name=name, tool_args=args, call_id=str(run_id))
            )
            self._check(ctx, decision.stop)
            self._begun[run_id] = _Begun(name, time.perf_counter())

    def tool_end(self, run_id: UUID, output: str | None, error: str | None, error_type: str | None = None) -> None:
        with self._lock:
            if run_id not in self._begun:  # refused before it began
                return
            begun, duration = self._ended(run_id)
            ctx = self._context("")
            drive(
                self._stack.tool_outcome(
                    ctx,
                    name=begun.name,
                    call_id=str(run_id),
                    success=error is None,
                    duration_ms=duration,
                    error=error,
                    output=output,
                    error_type=error_type,
                )
            )


def _logprobs(message: Any) -> Sequence[TokenLogprob]:
    content = ((getattr(message, "response_metadata", None) or {}).get("logprobs") or {}).get("content") or ()
    return [
        TokenLogprob(one["token"], one["logprob"])
        for one in content
        if isinstance(one.get("logprob"), int | float) and math.isfinite(one["logprob"])
    ]
