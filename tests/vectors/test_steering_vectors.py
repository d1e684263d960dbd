"""Golden vectors of the steering layer: rules, ledger, verdicts that come late."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore
from noetic_nb.steering import SteeringRule, steering
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import drive_loop
from tests.vectors.cases import camel, load, snake
from tests.vectors.test_lifecycle_vectors import entries_of, raised, settle

LEDGER_KEYS = ("kind", "toolName", "toolArgs", "tokenUsage", "custom", "action", "guidance")
RECALL_BUDGET = 500


def holds(when: dict[str, Any], params: Any) -> bool:
    call = hasattr(params, "tool_name")
    if "hook" in when and when["hook"] != ("beforeToolCall" if call else "afterModelCall"):
        return False
    if "toolName" in when and not (call and params.tool_name == when["toolName"]):
        return False
    if "arg" in when:
        if not call:
            return False
        value = params.tool_args.get(when["arg"])
        if "equals" in when and value != when["equals"]:
            return False
        for key, wanted in (("startsWith", True), ("notStartsWith", False)):
            if key in when and not (isinstance(value, str) and value.startswith(when[key]) is wanted):
                return False
    return "textIncludes" not in when or (not call and when["textIncludes"] in params.text)


def predicate_of(spec: dict[str, Any]) -> Any:
    def predicate(params: Any) -> Any:
        for branch in spec["branches"]:
            if holds(branch["when"], params):
                then = branch["then"]
                if then is not None and "throw" in then:
                    raise RuntimeError(then["throw"])
                return then
        otherwise = spec["otherwise"]  # a canned fault in this place was recorded as no opinion
        return None if otherwise is None or "action" not in otherwise else otherwise

    return predicate


class Bench:
    """One case: the layer, a stub model with gates, and what was seen."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.counts: dict[str, int] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.diagnostics: list[dict[str, str]] = []
        self.storage = InMemoryStorage(given.get("storage", {}))
        self.state = LayerStateStore(diagnostic=self.note)
        config = dict(given["config"])
        rules = [self.rule(spec) for spec in config.pop("rules")]
        self.stack = LayerStack(
            [steering(rules=rules, **{snake(key): value for key, value in config.items()})],
            storage=self.storage,
            state=self.state,
        )
        self.contexts = {
            ids["executionId"]: ExecutionContext(
                execution_id=ids["executionId"],
                thread_id=ids["threadId"],
                resource_id=ids.get("resourceId"),
                depth=ids.get("depth", 0),
                call_model=self.call_model if given["callModel"] else None,
                diagnostic=self.note,
            )
            for ids in given["contexts"]
        }

    @staticmethod
    def rule(spec: dict[str, Any]) -> SteeringRule:
        spec = dict(spec)
        if "predicate" in spec:
            spec["predicate"] = predicate_of(spec["predicate"])
        return SteeringRule(**spec)

    def note(self, layer_id: str, hook: str, error: BaseException) -> None:
        self.diagnostics.append({"layerId": layer_id, "hook": camel(hook)})

    async def call_model(self, request: Any) -> dict[str, Any]:
        count = self.counts.get(request.model, 0)
        self.counts[request.model] = count + 1
        reply = self.given["replies"][request.model][count]
        if "gate" in reply:
            await self.gates.setdefault(reply["gate"], asyncio.Event()).wait()
        if "throw" in reply:
            raise RuntimeError(reply["throw"])
        part = {"type": "output_text", "text": reply["text"]}
        return {"items": [{"id": "v", "type": "message", "role": "assistant", "content": [part]}], "usage": {}}

    def seen_state(self, execution_id: str) -> Any:
        state = self.state.get(execution_id, "steering")
        if state is None:
            return None
        ledger = [{key: entry[key] for key in LEDGER_KEYS if key in entry} for entry in state["ledger"]]
        return copy.deepcopy({"ledger": ledger, "pendingAsync": state["pendingAsync"]})

    async def operate(self, op: dict[str, Any]) -> Any:
        ctx = self.contexts.get(op.get("exec", ""))
        stack = self.stack
        match op["op"]:
            case "init":
                await stack.init(ctx)
            case "recall":
                return entries_of(await stack.recall(ctx, budgets={"steering": RECALL_BUDGET}))
            case "beforeToolCall":
                decision = await stack.before_tool_call(ctx, tool_name=op["toolName"], tool_args=op["toolArgs"])
                return {"decision": decision.to_dict()}
            case "repeatBeforeToolCall":
                for turn in range(op["times"]):
                    name = f"{op['toolNamePrefix']}{turn}"
                    await stack.before_tool_call(ctx, tool_name=name, tool_args=op["toolArgs"])
            case "afterModelCall":
                return {"decision": (await stack.after_model_call(ctx, response=op["response"])).to_dict()}
            case "release":
                self.gates.setdefault(op["gate"], asyncio.Event()).set()
            case "state":
                return {"state": self.seen_state(op["exec"])}
            case "stored":
                return {
                    "stored": {key: seen_stored(await self.storage.get(key)) for key in await self.storage.list("")}
                }
            case "complete":
                await stack.complete(ctx, log=(), outcome=op["outcome"])
            case "dispose":
                await stack.dispose(ctx)
            case "spawn":
                children = await stack.spawn(ctx, self.contexts[op["child"]])
                assert [layer_id for layer_id, _, _ in children] == ["steering"]
                return {"childState": self.seen_state(op["child"])}
            case other:
                pytest.fail(f"no adapter for {other!r}")
        return {"ok": True}


def seen_stored(value: dict[str, Any]) -> dict[str, Any]:
    ledger = [{key: entry[key] for key in LEDGER_KEYS if key in entry} for entry in value["ledger"]]
    return {"ledger": ledger, "pendingAsync": value["pendingAsync"]}


@pytest.mark.parametrize("case", load("steering"))
def test_rules_steer_as_recorded(case: dict[str, Any]) -> None:
    async def run() -> tuple[Bench, list[Any], dict[str, Any]]:
        bench = Bench(case["given"])
        results = []
        for op in case["given"]["ops"]:
            try:
                results.append(await bench.operate(op))
            except NoeticConfigError as exc:
                results.append({"error": raised(exc)})
            await settle()
        return bench, results, {name: bench.seen_state(name) for name in bench.contexts}

    bench, results, final = drive_loop(run())

    expect = case["expect"]
    if "ledgerEntries" in expect:
        names = [entry["toolName"] for entry in final["e1"]["ledger"]]
        ends = expect["firstToolName"], expect["lastToolName"]
        assert (len(names), names[0], names[-1]) == (expect["ledgerEntries"], *ends)
        return
    for op, got, want in zip(case["given"]["ops"], results, expect["results"], strict=True):
        assert got == want, op
    assert bench.counts == expect["modelCallCounts"]
    assert {name: final[name] for name in expect["final"]} == expect["final"]
    if "diagnostics" in expect:
        assert bench.diagnostics == expect["diagnostics"]
