"""The run that the calls of a conversation form: items, calls and children, each written once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from noetic_nb import events as ev
from noetic_nb._core.names import finish_reason_of
from noetic_nb.interop._spans.calls import ModelUse, ToolUse, kind_of
from noetic_nb.interop._spans.openinference import nested
from noetic_nb.interop._spans.span_messages import Result, arguments_of, parsed
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.interop._spans.span_tree import CheckUse, Execution
from noetic_nb.interop._spans.span_turns import Log, TurnWriter, asked_of, with_nodes
from noetic_nb.items import Item, item_text
from noetic_nb.items._frozen import frozen_data
from noetic_nb.items._messages.message import call_output, input_text, output_text, text_message
from noetic_nb.redact import Redaction
from noetic_nb.runs._conversation_texts import ContextTokens
from noetic_nb.runs._run import Run

_HOOKS: Final[Mapping[str, Any]] = {
    "search_memory": "recall",
    "retrieval": "recall",
    "create_memory_store": "init",
    "delete_memory_store": "dispose",
}
_STORES: Final = ("gen_ai.memory.store.id", "gen_ai.memory.store.name", "gen_ai.data_source.id")
_ABOUT: Final = ("gen_ai.memory.", "gen_ai.retrieval.", "gen_ai.data_source.")


def run_of_execution(
    root: Execution, *, run_id: str, thread_id: str, meta: Mapping[str, Any], unmapped: Sequence[Mapping[str, Any]] = ()
) -> Run:
    """Return a conversation's calls as a redacted run; `meta` is added to it (see "Spans" in interop.md)."""
    redaction = Redaction()
    writer = RunWriter(redaction.text(thread_id), redaction)
    for entry in unmapped:
        writer.note(entry)
    writer.write(root)
    events = with_nodes(writer.events, root, redaction)
    return Run(redaction.text(run_id), meta={**writer.meta(), **redaction.data(dict(meta))}, events=events)


def _is_counted(use: ModelUse) -> bool:
    return use.usage is not None and "input_tokens" in use.usage and "output_tokens" in use.usage


class RunWriter(TurnWriter):
    """Writes executions as events; each result follows its call."""

    def write(self, root: Execution) -> None:
        """Write a conversation from beginning to end."""
        log = Log(ev.Where(self.thread_id, f"{self.thread_id}/e0", 0), ContextTokens(self.counter))
        self.entries(log, root)
        self.release(log, None)
        self.end_turn(log, root)

    def entries(self, log: Log, execution: Execution) -> None:
        """Write the events of an execution; a result follows its call even if their clocks disagree."""
        for entry in execution.entries:
            if isinstance(entry, ModelUse):
                for result in entry.inputs.results if entry.inputs is not None else ():
                    log.results.setdefault(result.call_id or "", deque()).append(result)
                for msg in entry.outputs or ():
                    for made in msg.calls:
                        log.issued[made.call_id or ""] = log.issued.get(made.call_id or "", 0) + 1
            elif isinstance(entry, ToolUse) and entry.call_id is not None:
                log.by_id.setdefault(entry.call_id, []).append(entry)
        is_root = execution.span is None
        for entry in execution.entries:
            if id(entry) in log.done:
                continue
            key = entry.call_id if isinstance(entry, ToolUse) else None
            if key is not None and key not in log.waiting and log.issued.get(key, 0) > 0:
                log.late.setdefault(key, []).append(entry)
                continue
            self.entry(log, entry, execution, is_root)
        for entries in list(log.late.values()):
            for entry in entries:
                if id(entry) not in log.done:
                    self.tool(log, entry, execution, is_root)

    def entry(self, log: Log, entry: Any, execution: Execution, is_root: bool) -> None:
        if isinstance(entry, ModelUse) and not entry.is_summary:
            self.model(log, entry, execution, is_root)
        elif isinstance(entry, ToolUse):
            self.tool(log, entry, execution, is_root)
        elif isinstance(entry, Execution):
            self.open_turn(log, execution, entry, is_root)
            self.child(log, entry)
        elif is_root and self.is_early(execution, entry):
            self.held.append((entry, execution))
        else:
            self.open_turn(log, execution, entry, is_root)
            self.beside(log, entry)

    def beside(self, log: Log, entry: Any) -> None:
        """Write a span that is not a call: a memory operation, a plan or a check."""
        if isinstance(entry, ModelUse):
            self.summary(log, entry)
        elif isinstance(entry, CheckUse):
            self.check(log, entry)
        elif kind_of(entry) == "plan":
            self.plan(log, entry)
        else:
            self.memory(log, entry)

    def release(self, log: Log, use: ModelUse | None) -> None:
        """Write the items held back for the call that begins their turn; without a call they begin a turn."""
        held, self.held = self.held, []
        for entry, execution in held:
            if use is None:
                self.open_turn(log, execution, entry, True)
            self.beside(log, entry)

    def model(self, log: Log, use: ModelUse, execution: Execution, is_root: bool) -> None:
        """Write a model call: first its new messages, then its answer."""
        log.done.add(id(use))
        span = use.span
        if span.end_ns is None and use.outputs is None:
            self.open_turn(log, execution, use, is_root, use)
            self.skip(span, "a model call that has not ended", span.name)
            return
        if log.length == 0:
            self.seed(log, use, execution, is_root)
        if log.waiting and use.inputs is not None:  # otherwise the answers of the tools are not needed
            for result in use.inputs.results:
                self.answered(log, result, execution, is_root)
        self.open_turn(log, execution, use, is_root, use)
        if is_root and self.held:
            self.release(log, use)
        sent = self.sent(log, use)
        self.at(span.end_ns if span.end_ns is not None else span.start_ns)
        mark = len(self.events)
        outputs = use.outputs or ()
        appended = self.append(log, self.message_items(log, outputs, span), "model")
        calls, text = False, ""
        for item in appended:
            if item["type"] == "function_call":
                calls = True
            elif item["type"] == "message":
                text += item_text(item)
        step = self.called(log, use, appended, sent, "tool_calls" if calls else None)
        self.events.insert(mark, step)  # the call precedes its items, as in our own runs
        log.steps += 1
        if use.model and use.model != "unknown":
            self.models[step.model] = None
        if self.params is None:
            self.params = use.params
        turn = self.turn
        if turn is not None:
            turn.calls.append(step)
            turn.has_usage = turn.has_usage or use.usage is not None
        if use.outputs is not None:
            # Text beside a call is not the answer: the model continues after the result.
            log.answer = None if calls or (use.error is not None and not text) else text
        if log.issued:  # a call that is written alone has not been read ahead
            for made in [made for msg in outputs for made in msg.calls]:
                key = made.call_id or ""
                log.issued[key] = log.issued.get(key, 1) - 1
                for late in log.late.pop(key, ()):
                    self.tool(log, late, execution, is_root)

    def sent(self, log: Log, use: ModelUse) -> int:
        """Return the tokens of a call's context, or 0 if its own count is used."""
        self.counter.model = self.counter.model or self.redaction.text(use.model or "unknown")
        return 0 if _is_counted(use) or use.outputs is None else log.context.sent()

    def called(
        self,
        log: Log,
        use: ModelUse,
        items: tuple[Item, ...],
        sent: int,
        finish: Any = None,
        purpose: Literal["agent", "summary", "judge"] = "agent",
    ) -> ev.ModelCalled:
        """Return a model call as an event; `sent` is the estimate for a missing count."""
        usage: Mapping[str, int] = use.usage or {}
        if not _is_counted(use):
            usage = self.estimate(usage, sent, 0 if use.outputs is None else log.context.written(items))
        return ev.ModelCalled(
            log.where,
            self.now,
            log.steps,
            self.redaction.text(use.model or "unknown"),
            purpose,
            self.duration(use.span),
            "ok" if use.error is None else "error",
            items,
            input_tokens=usage["input_tokens"],
            output_tokens=usage["output_tokens"],
            cached_tokens=usage.get("cached_tokens"),
            cache_write_tokens=usage.get("cache_write_tokens"),
            reasoning_tokens=usage.get("reasoning_tokens"),
            cost=use.cost,
            error=None if use.error is None else self.redaction.text(use.error),
            finish_reason=finish_reason_of(use.finish) or finish,
        )

    def summary(self, log: Log, use: ModelUse) -> None:
        """Write a call that made a summary, and the compaction that replaced the conversation with it."""
        self.at(use.span.end_ns if use.span.end_ns is not None else use.span.start_ns)
        text = self.redaction.text("".join([msg.text for msg in use.outputs or ()]))
        items = (text_message("assistant", (output_text(text),)),) if text else ()
        self.events.append(self.called(log, use, items, self.sent(log, use), purpose="summary"))
        if use.error is None and text:
            kept = (text_message("user", (input_text(text),)),)
            self.events.append(
                ev.ContextCompacted(log.where, self.now, "SummarizationMiddleware", None, kept, None, None, False)
            )
            log.context.reset(kept, None)

    def estimate(self, usage: Mapping[str, int], sent: int, made: int) -> Mapping[str, int]:
        """Return the usage of a call, with missing counts estimated."""
        self.estimated |= {"input_tokens", "output_tokens"} - usage.keys()
        return {"input_tokens": sent, "output_tokens": made, **usage}

    def seed(self, log: Log, use: ModelUse, execution: Execution, is_root: bool) -> None:
        """Write the log before the first call: the system prompt and an earlier conversation."""
        if use.system:
            text = self.redaction.text(use.system)
            if is_root and self.policy is None:
                self.policy = text
            # A turn begins when its agent does, and nothing before it may have a later time.
            self.at((execution.invocations.get(id(use), (None, False))[0] or use.span).start_ns)
            self.append(log, [text_message("system", (input_text(text),))], "seed")
        if not is_root:
            return
        inputs = [msg for msg in (use.inputs.messages if use.inputs else ()) if msg.role != "system"]
        last = max((place for place, msg in enumerate(inputs) if msg.role == "assistant"), default=-1)
        self.append(log, self.message_items(log, inputs[: last + 1], use.span), "seed")

    def answered(self, log: Log, result: Result, execution: Execution, is_root: bool) -> None:
        """Settle a call whose result the model has read: by its span, or else by that result's text."""
        key = result.call_id
        if key is None:
            key = next((known for known, item in log.waiting.items() if result.name in (None, item["name"])), None)
        if key is None or key not in log.waiting:
            return
        item = log.waiting[key]
        spans = [each for each in log.by_id.get(key, ()) if id(each) not in log.done]
        if not spans:
            entries = execution.entries
            spans = [
                each
                for each in entries
                if isinstance(each, ToolUse)
                and each.call_id is None
                and each.name == item["name"]
                and id(each) not in log.done
            ]
        if spans:
            self.tool(log, spans[0], execution, is_root)
            return
        del log.waiting[key]
        output = self.redaction.text(result.output)
        if result.failed is None:
            self.estimated.add("status")
        status: Any = "error" if result.failed else "ok"
        args = arguments_of(item["arguments"])
        error = output or "failed" if result.failed else None
        event = ev.ToolCalled(log.where, self.now, item["name"], item["callId"], args, output, None, status, error)
        self.settle(log, event)

    def settle(self, log: Log, event: ev.ToolCalled) -> None:
        self.events.append(event)
        self.append(log, [call_output(event.call_id, event.output)], "tool")
        log.answer = None
        if self.turn is not None:
            self.turn.tools += 1

    def tool(self, log: Log, use: ToolUse, execution: Execution, is_root: bool) -> None:
        log.done.add(id(use))
        span = use.span
        self.open_turn(log, execution, use, is_root)
        key, args = self.waiting_for(log, use), use.args
        is_known = key is not None
        if key is None:
            self.at(span.start_ns)
            if args is None and use.given not in (None, ""):
                args = {"input": use.given}  # a tool with one argument, given as a bare value
            item = self.call_item(log, use.call_id, use.name, args)
            key = next(known for known, each in log.waiting.items() if each is item)
            self.append(log, [item], "model")
        item = log.waiting[key]
        results = log.results.get(key) or log.results.get("")
        answer = results.popleft() if results else None
        for child in use.children:
            self.child(log, child)
        output = use.output if use.output is not None else None if answer is None else answer.output
        if span.end_ns is None and output is None and use.error is None:
            self.skip(span, "a tool call that has not ended", use.name)
            return
        del log.waiting[key]
        self.at(span.end_ns)
        output = self.redaction.text(output or "")
        failed = use.failed or (answer is not None and answer.failed is True)
        error = use.error or output or "failed"
        # An error that only repeats its class says less than the output that the model read.
        if use.error is not None and use.error == use.error_type and output:
            error = output
        if args is None and is_known:
            args = arguments_of(item["arguments"])
        self.settle(
            log,
            ev.ToolCalled(
                log.where,
                self.now,
                self.redaction.text(use.name),
                item["callId"],
                None if args is None else frozen_data(self.redaction.data(args)),
                output,
                self.duration(span),
                "error" if failed else "ok",
                self.redaction.text(error) if failed else None,
                error_type=self.redaction.text(use.error_type) if failed and use.error_type else None,
            ),
        )

    def waiting_for(self, log: Log, use: ToolUse) -> str | None:
        """Return the call that a span settles: by id, or else the first of its name, ideally with equal arguments."""
        if use.call_id is not None:
            return use.call_id if use.call_id in log.waiting else None
        same = [key for key, item in log.waiting.items() if item["name"] == use.name]
        wanted = use.args if use.args is not None else use.given
        for key in same:
            made = arguments_of(log.waiting[key]["arguments"])
            if made is not None and (made == wanted or list(made.values()) == [wanted]):
                return key
        return same[0] if same else None

    def child(self, log: Log, execution: Execution) -> None:
        """Write an agent that another one started, with its own log."""
        span = execution.span
        assert span is not None
        self.children += 1
        where = ev.Where(
            self.thread_id, f"{log.where.execution_id}/c{self.children}", log.where.turn, log.where.depth + 1
        )
        execution.where = where
        inner = Log(where, ContextTokens(self.counter))
        uses = [entry for entry in execution.entries if isinstance(entry, ModelUse) and not entry.is_summary]
        model = next(iter(uses), None)
        given = model.inputs.messages if model is not None and model.inputs is not None else []
        inputs = [msg for msg in given if msg.role != "system"]
        if not inputs:
            inputs = [msg for agent in execution.agents[:1] for msg in asked_of(agent)]
        items: list[Item] = []
        if model is not None and model.system:
            items.append(text_message("system", (input_text(self.redaction.text(model.system)),)))
        items += self.message_items(inner, inputs, span, len(items))
        own = [Item({"id": f"{where.execution_id}/i{place}", **item}) for place, item in enumerate(items)]
        started = self.at(span.start_ns)
        name = self.redaction.text(execution.name)
        parent_id = log.where.execution_id
        self.events.append(ev.ChildStarted(where, started, parent_id, name, "spawn", 0, tuple(own), {}))
        inner.length = len(own)
        inner.context.add(own)
        before = len(self.turn.calls) if self.turn is not None else 0
        self.entries(inner, execution)
        made = self.turn.calls[before:] if self.turn is not None else []
        costs = [each.cost for each in made if each.cost is not None]
        self.events.append(
            ev.ChildEnded(
                where,
                self.at(span.end_ns),
                parent_id,
                name,
                "failure" if span.failed else "success" if inner.answer is not None else "aborted",
                self.duration(span) or 0.0,
                self.redaction.text(inner.answer or ""),
                (),
                sum(each.input_tokens for each in made),
                sum(each.output_tokens for each in made),
                sum(costs) if costs else None,
            )
        )

    def memory(self, log: Log, span: Span) -> None:
        """Write an operation of an external memory as a call of a layer named after its store."""
        operation = span.attributes.get("gen_ai.operation.name", "retrieval")
        store = span.text(*_STORES) or ("retrieval" if operation == "retrieval" else "memory")
        found = nested(span, "retrieval.documents.") or parsed(span.attributes.get("gen_ai.retrieval.documents"))
        count = span.attributes.get("gen_ai.memory.record.count", len(found) if isinstance(found, list) else None)
        about = {name: value for name, value in span.attributes.items() if name.startswith(_ABOUT)}
        if "openinference.span.kind" in span.attributes and (asked := span.text("input.value")) is not None:
            about["query"] = asked
        self.events.append(
            ev.MemoryTraceSpan(
                log.where,
                self.at(span.end_ns),
                self.redaction.text(store),
                _HOOKS.get(str(operation), "store"),
                self.duration(span) or 0.0,
                "error" if span.failed else "ok",
                item_count=count if type(count) is int and count >= 0 else None,
                error=self.redaction.text(span.problem) if span.failed else None,
                attributes=self.redaction.data(about),
            )
        )

    def plan(self, log: Log, span: Span) -> None:
        """Write an agent's planning as a step; the model calls of the plan come before it."""
        self.plans += 1
        name = self.redaction.text(span.text("gen_ai.agent.name") or span.name or "plan")
        step = (name, "plan", f"/plan#{self.plans}")
        at = self.at(span.end_ns)
        error = self.redaction.text(span.problem or "failed") if span.failed else None
        self.events += (
            ev.StepStarted(log.where, at, *step),
            ev.StepEnded(log.where, at, *step, self.duration(span) or 0.0, "error" if span.failed else "ok", error),
        )

    def check(self, log: Log, use: CheckUse) -> None:
        """Write a guardrail as a decision, an evaluator as a grade of the last answer; its model calls are judges."""
        span, clean = use.span, self.redaction.text
        at, took = self.at(span.end_ns), self.duration(span) or 0.0
        for call in use.calls:
            items = tuple(
                text_message("assistant", (output_text(clean(msg.text)),)) for msg in call.outputs or () if msg.text
            )
            self.events.append(self.called(log, call, items, 0, purpose="judge"))
        if not use.is_guardrail:
            scores = [(name, score) for name, score in use.scores() if score <= 1]
            for name, score in scores:
                self.events.append(ev.QualityGiven(log.where, at, score, clean(name)))
            if not scores:
                self.skip(
                    span, "an evaluator without a score from 0 to 1", span.attributes.get("output.value", span.name)
                )
            return
        is_passed, reason = use.is_passed(), use.reason()
        self.events.append(
            ev.SteeringDecided(
                log.where,
                at,
                "guardrail",
                "guardrail",
                None,
                None,
                "deny" if is_passed is False else "allow",
                clean(reason) if is_passed is False and reason else None,
                (clean(span.name),),
                took,
                clean(span.problem or "error") if span.failed else "unknown" if is_passed is None else None,
            )
        )
