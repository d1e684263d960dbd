"""The contract of a layer, tested in separate conversations: without a model, your storage, or real time."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

from noetic_nb._core.shell import Shell
from noetic_nb.items import ItemLog, assistant_message, function_call, function_call_output, input_message, item_text
from noetic_nb.items._build import sent_text
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore, MemoryLayer, resolve_scope_key
from noetic_nb.memory._declared import check_layers
from noetic_nb.memory._hook_timeout import HookTimeout
from noetic_nb.memory._hooks.recall import BudgetOverrun, MiscountedTokens, RecallEntry
from noetic_nb.memory._layer import DEFAULT_TIMEOUTS_MS
from noetic_nb.memory._layer_functions import LayerData
from noetic_nb.memory._state.state_copy import can_be_copied
from noetic_nb.models._client import ModelResponse, Usage
from noetic_nb.storage import InMemoryStorage
from noetic_nb.storage._adapter import layer_prefix
from noetic_nb.testing._clock import FakeClock, SeededIds
from noetic_nb.testing._findings import ContractCheck, Finding, Notes, Stopwatch, first_line, not_blocking

TURNS: Final = 3
# A hook that waits for ever must not delay the test for the default half minute.
LIMIT_MS: Final = 2_000.0
# The smallest allocation to test if a layer asks for less; a sentence fits.
SMALL_BUDGET: Final = 32.0
LARGE_BUDGET: Final = 4_000.0
# The time after which a prefix layer is called again: most provider caches are still warm then.
LATER_MS: Final = 60_000.0
# Long enough that a layer that keeps what it reads exceeds a small budget.
_WORDS: Final = "The order was packed in Lyon, sent by train and came with a note about the broken blue cup. " * 6
_MARK: Final = "zebra-7741"
_STATE_FIELDS: Final = ("state", "parent_state", "child_state")
_IN_PLACE: Final = re.compile(
    r"Items never change|does not support item (assignment|deletion)|cannot assign to field|can't set attribute|"
    r"has no attribute '(append|extend|insert|pop|remove|clear|sort|reverse|update|setdefault)'"
)
# Called directly, with their own arguments, outside a turn.
_PLAIN_HOOKS: Final = frozenset({"delivered", "on_edit", "on_record"})


def check_layer(layer: Any, *, fs: Any = None, shell: Shell | None = None) -> ContractCheck:
    """Test a layer against the expectations of a harness.

    See docs/behaviour/memory.md, "Contract tests".

    Parameters
    ----------
    layer : MemoryLayer
        Or an object that makes a layer of itself, such as a rule book. Its hooks are called in a few short
        conversations on an in-memory storage; a model that a hook calls answers "Noted.".
    fs : str, path or fsspec filesystem, optional
        The value of ``ctx.fs`` for its hooks.
    shell : Shell, optional
        The value of ``ctx.shell`` for its hooks, such as a `ScriptedShell`.

    Returns
    -------
    ContractCheck
        Findings ``(code, text)``; none means success. Await it, or read it without ``await``.

        ``state_lost``, ``state_not_json``, ``not_copyable``, ``child_shares_state``, ``scope_leak``, ``params_mutated``,
        ``budget_ignored``, ``tokens_miscounted``, ``blocks_loop``, ``hook_failed``, ``hook_timeout``, ``never_runs``,
        ``data_failed``, ``prefix_unstable``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYER`` for a value that is not a layer.

    Examples
    --------
    >>> from noetic_nb.memory import MemoryHooks, MemoryLayer
    >>> def recall(p):
    ...     return "word " * 1_000
    >>> check_layer(MemoryLayer(id="notes", slot=100, scope="thread", hooks=MemoryHooks(recall=recall))).codes
    ('budget_ignored',)
    """
    (found,) = check_layers([layer])

    async def run() -> tuple[Finding, ...]:
        notes = Notes()
        await _Trial(found, notes, fs, shell).run()

        async def measure() -> Stopwatch:
            again = _Trial(found, Notes(), fs, shell)
            await again.conversation()
            return again.watch

        await not_blocking(notes, measure, lambda hook: f"The hook {hook!r}")
        return notes.found

    return ContractCheck(run, f"layer {found.id!r}")


def _json(state: Any) -> str | None:
    try:
        return json.dumps(state, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


async def _call_model(request: Any) -> ModelResponse:
    return ModelResponse((assistant_message("Noted."),), Usage(10, 2))


class _Trial:
    """A layer under test, with its own storage."""

    def __init__(self, layer: MemoryLayer, notes: Notes, fs: Any = None, shell: Shell | None = None) -> None:
        self.fs = fs
        self.shell = shell
        self.notes = notes
        self.watch = Stopwatch()
        self.original = layer
        limits = {hook: _limit(layer.timeout_ms(hook)) for hook in DEFAULT_TIMEOUTS_MS}
        hooks = {
            name: self._probe(name, getattr(layer.hooks, name))
            for name in layer.hooks.names()
            if name not in _PLAIN_HOOKS
        }
        # Named like the layer, so that diagnostics and storage keys are those of a real harness.
        self.layer = replace(layer, timeouts=limits).with_hooks(**hooks)
        self.storage = InMemoryStorage()
        self.clock = FakeClock()
        self.ids = SeededIds()
        self.executions = 0
        self.stack = self._stack()
        self.initial: str | None = None

    def _stack(self) -> LayerStack:
        state = LayerStateStore(self._reported)
        return LayerStack([self.layer], storage=self.storage, state=state, clock=self.clock, ids=self.ids)

    def _context(self, thread: str, *, depth: int = 0) -> ExecutionContext:
        self.executions += 1
        return ExecutionContext(
            execution_id=f"check-{self.executions}",
            thread_id=thread,
            resource_id=f"person-of-{thread}",
            depth=depth,
            turn=self.executions,
            call_model=_call_model,
            fs=self.fs,
            shell=self.shell,
            clock=self.clock,
            ids=self.ids,
            # Problems that a layer reports itself, such as an unusable answer of the model, are not its faults.
            diagnostic=lambda layer_id, hook, error: None,
        )

    def _reported(self, layer_id: str, hook: str, error: BaseException) -> None:
        if isinstance(error, BudgetOverrun):
            self.notes.add("budget_ignored", f"{error} Look at `p.budget` in `recall`.")
        elif isinstance(error, MiscountedTokens):
            self.notes.add("tokens_miscounted", f"{error} Count with `p.ctx.tokenize`, or leave `token_count` out.")
        elif isinstance(error, HookTimeout):
            self.notes.add("hook_timeout", str(error))
        elif hook == "persist":
            is_data = getattr(error, "kind", None) == "storage_failed"
            code = "state_not_json" if is_data else "not_copyable"
            self.notes.add(code, f"The state cannot be kept: {first_line(error)}")
        elif _IN_PLACE.search(str(error)) and isinstance(error, TypeError | AttributeError):
            self.notes.add("params_mutated", f"The hook {hook!r} changes what it was given: {first_line(error)}")
        elif hook == "store" and _json(self._state_now) is None and not can_be_copied(self._state_now):
            self.notes.add(
                "not_copyable", f"The state cannot be copied for `store`, or for a child: {first_line(error)}"
            )
        else:
            self.notes.add("hook_failed", f"The hook {hook!r} failed: {first_line(error)}")

    def _probe(self, name: str, hook: Any) -> Any:
        """Return a hook that is measured, and checked for changes of its arguments."""

        async def probed(params: Any) -> Any:
            before = {field: _json(getattr(params, field, None)) for field in _STATE_FIELDS}
            result = await self.watch.call(name, hook, params)
            for field, text in before.items():
                if text is not None and _json(getattr(params, field, None)) != text:
                    self._changed(name, field, getattr(params, field), result)
            return result

        return probed

    def _changed(self, hook: str, field: str, state: Any, result: Any) -> None:
        """Note a state that a hook changed in place, unless it is a copy that the hook returns."""
        returned = _field(result, "state")
        if hook == "store":
            if returned is None:
                text = "The hook 'store' changes its copy of the state and does not return it: the change is lost."
                self.notes.add("params_mutated", text)
                self.notes.add("state_lost", text)
            return
        kept = returned if field == "state" else _field(result, field)
        if kept is None:
            how = "and does not return it: the change is not saved"
        else:
            how = "in place: where the hook fails, half a change stays"
        self.notes.add("params_mutated", f"The hook {hook!r} changes `p.{field}` {how}. Return a new one.")

    _state_now: Any = None

    async def run(self) -> None:
        """Run all tests except time measurements."""
        before = await self._shown_to_a_stranger()
        if not await self.conversation():
            return
        await self._comes_back()
        await self._another_thread()
        await self._variables_around_hooks(before)

    async def conversation(self) -> bool:
        """Run a conversation; False if the layer cannot be initialised."""
        log = ItemLog()
        for number in range(TURNS):
            if not await self._turn(self.stack, "a", log, number, is_last=number == TURNS - 1):
                return False
        return True

    async def _turn(self, stack: LayerStack, thread: str, log: ItemLog, number: int, *, is_last: bool) -> bool:
        ctx = self._context(thread)
        if not await self._guarded("init", stack.init(ctx)):
            return False
        if not stack.runs(self.layer, ctx.execution_id):
            self.notes.add(
                "never_runs", "`init` returns no state, so no other hook is ever called: return {'state': ...}."
            )
            return False
        if number == 0 and thread == "a":
            self.initial = _json(stack.state.get(ctx.execution_id, self.layer.id))
        self._state_now = stack.state.get(ctx.execution_id, self.layer.id)
        await self._guarded("the turn", self._hooks_of_a_turn(stack, ctx, log, number, is_last))
        self._state_now = stack.state.get(ctx.execution_id, self.layer.id)
        await self._guarded("on_complete", stack.complete(ctx, log=log, outcome="success"))
        live = copied(stack.state.get(ctx.execution_id, self.layer.id))
        await self._guarded("dispose", stack.dispose(ctx))
        await self._kept(ctx, live)
        self.clock.advance(60_000)
        return True

    async def _hooks_of_a_turn(
        self, stack: LayerStack, ctx: ExecutionContext, log: ItemLog, number: int, is_last: bool
    ) -> None:
        text = f"Turn {number + 1} is about {_MARK}. {_WORDS}" if ctx.thread_id == "a" else "Anything new?"
        asked = await stack.append(ctx, [input_message(text, ids=self.ids)], log=log)
        log.extend(asked.items)
        for budget in self._budgets():
            shown = await stack.recall(ctx, query=text, log=log, budgets={self.layer.id: budget})
        if self.layer.placement == "prefix":
            self.clock.advance(LATER_MS)
            again = await stack.recall(ctx, query=text, log=log, budgets={self.layer.id: budget})
            self._compare_prefix(shown, again)
        await stack.project_history(ctx, tuple(log.items))
        call = function_call("lookup", '{"order_id": "A17"}', f"call-{ctx.execution_id}", ids=self.ids)
        first = ModelResponse((call,), Usage(100, 10), finish_reason="tool_calls")
        await stack.model_outcome(ctx, model="m", usage=first.usage, cost=0.001, duration_ms=5.0)
        await stack.after_model_call(ctx, response=first)
        log.extend(first.items)
        args = {"order_id": "A17"}
        await stack.before_tool_call(ctx, tool_name="lookup", tool_args=args, call_id=call["callId"], raw_args=args)
        await stack.tool_outcome(
            ctx, name="lookup", call_id=call["callId"], success=True, duration_ms=3.0, error=None, output="packed"
        )
        output = await stack.append(ctx, [function_call_output(call["callId"], "packed", ids=self.ids)], log=log)
        log.extend(output.items)
        answer = ModelResponse((assistant_message(f"Noted: {_MARK}. {_WORDS}", ids=self.ids),), Usage(200, 80))
        await stack.model_outcome(ctx, model="m", usage=answer.usage, cost=None, duration_ms=5.0)
        await stack.after_model_call(ctx, response=answer)
        log.extend(answer.items)
        stack.delivered(ctx, [item["id"] for item in log.items if "id" in item])
        await stack.store(ctx, response=answer, log=log)
        await stack.settle()
        if is_last and ctx.thread_id == "a":
            self._read_data(stack, ctx)
            await self._child(stack, ctx, log)
            await stack.feedback(ctx, kind="quality", value=0.5, source="user")

    def _compare_prefix(self, shown: Sequence[RecallEntry], again: Sequence[RecallEntry]) -> None:
        """Note a layer in the cached prefix of a request whose text changes although nothing has happened."""
        texts = [[sent_text(item) for entry in entries for item in entry.items] for entries in (shown, again)]
        if texts[0] != texts[1]:
            changed = next((pair for pair in zip_longest(*texts, fillvalue="") if pair[0] != pair[1]), ("", ""))
            self.notes.add(
                "prefix_unstable",
                f"It stands in the prefix, and shows something else a minute later, with the same state, log and query: "
                f"{changed[0]:.80} and {changed[1]:.80}. Everything behind it is paid in full then: say placement='suffix'.",
            )

    def _budgets(self) -> list[float]:
        low, high = self.layer.limits
        tried = {max(low, SMALL_BUDGET) if high > SMALL_BUDGET else high, min(high, 4 * max(low, SMALL_BUDGET))}
        return sorted(tried)

    async def _guarded(self, what: str, call: Any) -> bool:
        """Await one step of the turn; an exception is noted."""
        try:
            await call
        except Exception as exc:
            for error in exc.exceptions if isinstance(exc, BaseExceptionGroup) else (exc,):
                # A stack reports most failures before it raises them.
                if not self.notes.found:
                    self.notes.add("hook_failed", f"{what} failed: {first_line(error)}")
            return False
        return True

    def _read_data(self, stack: LayerStack, ctx: ExecutionContext) -> None:
        state = stack.state.get(ctx.execution_id, self.layer.id)
        for name, declared in (self.layer.provides or {}).items():
            if isinstance(declared, LayerData):
                start = time.perf_counter()
                try:
                    declared.read(state)
                except Exception as exc:
                    self.notes.add("data_failed", f"The data {name!r} cannot be read: {first_line(exc)}")
                self.watch.note(name, start)

    async def _child(self, stack: LayerStack, ctx: ExecutionContext, log: ItemLog) -> None:
        """Hand the state to a child execution and take it back."""
        state = stack.state.get(ctx.execution_id, self.layer.id)
        if not can_be_copied(state):
            self.notes.add(
                "not_copyable", "The state cannot be copied: a child, and `store`, get a copy. Keep JSON data."
            )
            return
        child, own_log, before = self._context(ctx.thread_id, depth=1), log.fork(), _json(state)
        # Like the path of a fork, which writes nothing: in storage it would be mistaken for the parent's state.
        spawned = await stack.spawn(ctx, child, durable=False)
        if spawned:
            asked = await stack.append(child, [input_message(f"A task. {_WORDS}", ids=self.ids)], log=own_log)
            own_log.extend(asked.items)
            await stack.recall(child, query="A task.", log=own_log, budgets={self.layer.id: self._budgets()[-1]})
            answer = ModelResponse((assistant_message(f"Done. {_WORDS}", ids=self.ids),), Usage(50, 20))
            own_log.extend(answer.items)
            await stack.store(child, response=answer, log=own_log)
            if before is not None and _json(state) != before:
                self.notes.add(
                    "child_shares_state",
                    "A child changes the state of its parent: `on_spawn` gives it the same object. Return a copy.",
                )
        await stack.return_(ctx, child, child_log=own_log, result="done")
        stack.state.cleanup(child.execution_id)

    async def _kept(self, ctx: ExecutionContext, live: Any) -> None:
        """Compare the stored state after a turn with the layer's state at its end."""
        if self.layer.scope == "execution":
            return
        wanted, text = await self.storage.get(self._key(ctx)), _json(live)
        if text is not None and text != self.initial and _json(wanted) != text:
            self.notes.add(
                "state_lost",
                f"At the end of a turn the state was {text:.80}, and {_json(wanted):.80} was saved: state changes by what a "
                "hook returns as `state`.",
            )

    def _key(self, ctx: ExecutionContext) -> str:
        return layer_prefix(self.layer.id, resolve_scope_key(self.layer.scope, ctx)) + "state"

    async def _comes_back(self) -> None:
        """Start again from the saved state, as another process does."""
        if self.layer.scope == "execution":
            return
        ctx, stack = self._context("a"), self._stack()
        saved = await self.storage.get(self._key(ctx))
        if saved is None or not await self._guarded("init", stack.init(ctx)):
            return
        back = _json(stack.state.get(ctx.execution_id, self.layer.id))
        # An `init` may convert an old state; one that returns the initial state despite a saved one has lost data.
        if back == self.initial and _json(saved) != self.initial:
            self.notes.add(
                "state_lost",
                f"What was saved, {_json(saved):.80}, does not come back: `init` gives {back:.80}. Read "
                "`await p.storage.get('state')`, or leave `init` out.",
            )
        await self._guarded("dispose", stack.dispose(ctx))

    async def _another_thread(self) -> None:
        """Start a thread of another person, who must not see the first person's texts."""
        if self.layer.scope == "global" or self.layer.hooks.recall is None:
            return
        ctx, log = self._context("b"), ItemLog()
        if not await self._guarded("init", self.stack.init(ctx)):
            return
        log.extend([input_message(f"What about {_MARK[:5]}?", ids=self.ids)])
        # Always with a limit: a harness always gives one, and hooks may use `int(p.budget)`.
        budgets = {self.layer.id: max(LARGE_BUDGET, self.layer.limits[0])}
        entries = await self.stack.recall(ctx, query="Anything new?", log=log, budgets=budgets)
        shown = "\n".join(item_text(item) for entry in entries for item in entry.items)
        if _MARK in shown:
            self.notes.add(
                "scope_leak",
                f"Another thread of another person reads what was written here: {shown:.80}. Keep what the layer knows in its "
                "state, not in a variable around its hooks.",
            )
        await self._guarded("dispose", self.stack.dispose(ctx))

    async def _shown_to_a_stranger(self) -> str:
        """Return the items of a layer on an empty storage, at a fixed time: everything it knows is in variables."""
        stack = LayerStack([self.layer], storage=InMemoryStorage(), state=LayerStateStore(lambda *error: None))
        ctx = ExecutionContext(
            execution_id="stranger", thread_id="s", resource_id="s", turn=1, call_model=_call_model, clock=FakeClock(),
            ids=SeededIds(), fs=self.fs, shell=self.shell, diagnostic=lambda layer_id, hook, error: None,
        )  # fmt: skip
        budgets = {self.layer.id: max(LARGE_BUDGET, self.layer.limits[0])}
        log = ItemLog([input_message("Anything new?", ids=SeededIds())])
        try:
            await stack.init(ctx)
            entries = await stack.recall(ctx, query="Anything new?", log=log, budgets=budgets)
            return "\n".join(item_text(item) for entry in entries for item in entry.items)
        except Exception:
            return ""  # the conversation notes the same error
        finally:
            await stack.dispose(ctx)

    async def _variables_around_hooks(self, before: str) -> None:
        """Note a layer that shows a stranger other text after each conversation, but the same text without one."""
        for _ in range(2):  # twice, because the time may change for a layer that shows it
            shown = await self._shown_to_a_stranger()
            if shown == before or await self._shown_to_a_stranger() != shown:
                return
            before = shown
            await _Trial(self.original, Notes(), self.fs, self.shell).conversation()
        self.notes.add(
            "scope_leak",
            f"On an empty storage it shows something else after each conversation: {before:.80}. Keep what the layer knows in "
            "its state, not in a variable around its hooks.",
        )


def _limit(ms: float) -> float:
    return LIMIT_MS if ms <= 0 else min(ms, LIMIT_MS)


def copied(state: Any) -> Any:
    return copy.deepcopy(state) if can_be_copied(state) else state


def _field(result: Any, name: str) -> Any:
    if isinstance(result, Mapping):
        head, *rest = name.split("_")
        return result.get(name, result.get(head + "".join(map(str.capitalize, rest))))
    return getattr(result, name, None)
