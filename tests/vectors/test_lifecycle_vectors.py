"""Golden vectors of the layer lifecycle: programs of hooks with canned behaviours, run in virtual time."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore, MemoryHooks, MemoryLayer
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import drive_loop
from tests.vectors.cases import camel, load, snake

TEXT_PARTS = ("input_text", "output_text")


def texts(item: Any) -> str:
    return "".join(part.get("text", "") for part in item.get("content", ()))


def edited(edits: list[dict[str, Any]], incoming: Any) -> list[Any]:
    items = [copy.deepcopy({**item}) for item in incoming]
    for edit in edits:
        ((name, value),) = edit.items()
        match name:
            case "keepLast":
                items = items[-value:] if value else []
            case "dropFirst":
                items = items[value:]
            case "dropAll":
                items = []
            case "append":
                items = [*items, value]
            case "prepend":
                items = [value, *items]
            case "reverse":
                items = items[::-1]
            case "mapText":
                items = [
                    {**item, "content": [{**part, "text": part["text"] + value} for part in item["content"]]}
                    if "content" in item
                    else item
                    for item in items
                ]
            case _:
                raise AssertionError(name)
    return items


class Bench:
    """One case: storage with faults, layers with canned hooks, and what they saw."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.calls: list[dict[str, Any]] = []
        self.diagnostics: list[dict[str, str]] = []
        self.writes: list[dict[str, Any]] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.arrived: dict[str, int] = {}
        self.gates: dict[str, asyncio.Event] = {}
        faults = given.get("storageFaults", {})
        bench = self

        class Storage(InMemoryStorage):
            async def get(self, key: str) -> Any:
                if key in faults.get("failGetKeys", ()):
                    raise OSError("storage get failed")
                return await super().get(key)

            async def set(self, key: str, value: Any) -> None:
                if key in faults.get("failSetKeys", ()):
                    raise OSError("storage set failed")
                await super().set(key, value)
                bench.writes.append({"op": "set", "key": key, "value": copy.deepcopy(value)})

            async def delete(self, key: str) -> None:
                await super().delete(key)
                bench.writes.append({"op": "delete", "key": key})

        self.storage = Storage(given.get("storage", {}))
        self.store = LayerStateStore(diagnostic=self.note)
        layers = [self.layer(spec) for spec in given["layers"]]
        self.stack = LayerStack(layers, storage=self.storage, state=self.store)
        self.forced = LayerStack(layers, storage=self.storage, state=self.store, force_atomic_recall=True)
        self.contexts = {
            ids["executionId"]: ExecutionContext(
                execution_id=ids["executionId"],
                thread_id=ids["threadId"],
                resource_id=ids.get("resourceId"),
                depth=ids.get("depth", 0),
            )
            for ids in given["contexts"]
        }

    def note(self, layer_id: str, hook: str, error: BaseException) -> None:
        self.diagnostics.append({"layerId": layer_id, "hook": camel(hook)})

    def layer(self, spec: dict[str, Any]) -> MemoryLayer:
        hooks = {snake(name): self.hook(spec["id"], name, behaviour) for name, behaviour in spec["hooks"].items()}
        options = {snake(k): v for k, v in spec.items() if k not in ("id", "slot", "scope", "hooks")}
        return MemoryLayer(id=spec["id"], slot=spec["slot"], scope=spec["scope"], hooks=MemoryHooks(**hooks), **options)

    def hook(self, layer_id: str, name: str, behaviour: Any) -> Any:
        async def run(params: Any) -> Any:
            count = self.counts.get((layer_id, name), 0)
            self.counts[(layer_id, name)] = count + 1
            acts = behaviour if isinstance(behaviour, list) else [behaviour]
            self.calls.append({"layer": layer_id, "hook": name, **copy.deepcopy(seen(name, params))})
            return await self.act(acts[min(count, len(acts) - 1)], name, params)

        return run

    async def act(self, act: dict[str, Any], name: str, params: Any) -> Any:
        match act["do"]:
            case "nothing" | "null":
                return None
            case "return":
                return substituted(act["value"], name, params)
            case "throw":
                raise RuntimeError(act["message"])
            case "throwConfig":
                raise NoeticConfigError(act["code"], "canned")
            case "hang":
                return await asyncio.Event().wait()
            case "delay":
                await asyncio.sleep(act["ms"] / 1000)
                return await self.act(act["then"], name, params)
            case "barrier":
                gate = self.gates.setdefault(act["name"], asyncio.Event())
                self.arrived[act["name"]] = self.arrived.get(act["name"], 0) + 1
                if self.arrived[act["name"]] >= act["parties"]:
                    gate.set()
                await gate.wait()
                return await self.act(act["then"], name, params)
            case "load":
                stored = await params.storage.get("state")
                return {"state": act["default"] if stored is None else stored}
            case "text":
                state = params.state or {}
                text = act["text"]
                for key in ("n", *state):
                    text = text.replace("{" + key + "}", str(state.get(key, "-")))
                return text
        raise AssertionError(act)


def own_state(name: str, params: Any) -> Any:
    return params.parent_state if name in ("onSpawn", "onReturn") else getattr(params, "state", None)


def substituted(value: dict[str, Any], name: str, params: Any) -> dict[str, Any]:
    own = own_state(name, params)
    out = dict(value)
    for key in ("state", "childState", "parentState"):
        spec = out.get(key)
        if not isinstance(spec, dict):
            continue
        if "$inc" in spec:
            out[key] = {**(own or {}), spec["$inc"]: (own or {}).get(spec["$inc"], 0) + spec.get("by", 1)}
        elif "$copy" in spec:
            out[key] = copy.deepcopy(own)
        elif "$child" in spec:
            out[key] = params.child_state
        elif "$sum" in spec:
            k = spec["$sum"]
            parent = params.parent_state or {}
            out[key] = {**parent, k: parent.get(k, 0) + params.child_state.get(k, 0)}
    if isinstance(out.get("result"), dict) and "$append" in out["result"]:
        out["result"] = str(params.result) + out["result"]["$append"]
    if name in ("onItemAppend", "projectHistory") and "items" in out:
        out["items"] = edited(out["items"], params.items)
    return out


def seen(name: str, params: Any) -> dict[str, Any]:
    """Return what a hook saw, under the names the vectors use."""
    exec_id = params.ctx.execution_id if hasattr(params, "ctx") else None
    match name:
        case "init":
            return {"exec": exec_id, "scopeKey": params.scope_key}
        case "recall":
            return {"exec": exec_id, "state": params.state, "query": params.query, "budget": params.budget}
        case "store":
            return {"exec": exec_id, "state": params.state, "newItemIds": [item["id"] for item in params.new_items]}
        case "onSpawn":
            return {"child": params.child_ctx.execution_id, "parentState": params.parent_state}
        case "onReturn":
            return {
                "child": params.child_ctx.execution_id,
                "childState": params.child_state,
                "parentState": params.parent_state,
                "result": params.result,
                "childLogIds": [item["id"] for item in params.child_log],
            }
        case "onComplete":
            return {"exec": exec_id, "state": params.state, "outcome": params.outcome}
        case "dispose":
            return {"state": params.state}
        case "beforeToolCall":
            return {
                "exec": exec_id,
                "state": params.state,
                "toolName": params.tool_name,
                "toolArgs": params.tool_args,
            }
        case "afterModelCall":
            return {
                "exec": exec_id,
                "state": params.state,
                "responseItemIds": [item["id"] for item in params.response.items],
            }
        case _:
            return {"exec": exec_id, "state": params.state, "itemIds": [item["id"] for item in params.items]}


def entries_of(entries: Any) -> dict[str, Any]:
    return {
        "entries": [
            {
                "layerId": entry[0],
                "tokenCount": entry[2],
                "items": [{"role": item["role"], "text": texts(item)} for item in entry[1]],
            }
            for entry in entries
        ]
    }


async def settle() -> None:
    """Let everything that is not waiting for a gate or a timer finish."""
    for _ in range(60):
        await asyncio.sleep(0)


async def operate(bench: Bench, op: dict[str, Any]) -> Any:
    stack = bench.stack
    ctx = bench.contexts.get(op.get("exec", ""))
    match op["op"]:
        case "init":
            await stack.init(ctx)
        case "recall":
            mode = {} if "mode" not in op else {"mode": op["mode"]}
            stack = bench.forced if op.get("forceAtomic") else stack
            return entries_of(await stack.recall(ctx, query=op.get("query", ""), budgets=op["budgets"], **mode))
        case "store":
            await stack.store(ctx, response=op["response"], log=())
        case "beforeToolCall":
            decision = await stack.before_tool_call(ctx, tool_name=op["toolName"], tool_args=op["toolArgs"])
            return {"decision": decision.to_dict()}
        case "afterModelCall":
            return {"decision": (await stack.after_model_call(ctx, response=op["response"])).to_dict()}
        case "spawn":
            children = await stack.spawn(ctx, bench.contexts[op["child"]])
            return {
                "children": [
                    {
                        "layerId": layer_id,
                        "childState": copy.deepcopy(state),
                        "items": [{"role": item["role"], "text": texts(item)} for item in items],
                    }
                    for layer_id, state, items in children
                ]
            }
        case "return":
            result = await stack.return_(
                ctx, bench.contexts[op["child"]], child_log=op.get("childLog", ()), result=op.get("result")
            )
            return {"result": result}
        case "complete":
            await stack.complete(ctx, log=(), outcome=op["outcome"])
        case "dispose":
            await stack.dispose(ctx)
        case "appendPipeline":
            done = await stack.append(ctx, op["items"], log=())
            return {
                "itemIds": [item["id"] for item in done.items],
                "texts": [texts(item) for item in done.items],
                "rerenderRequests": [
                    {"layerId": r.layer_id, "slot": r.slot, "timing": r.timing, "scope": r.scope}
                    for r in done.rerender_requests
                ],
            }
        case "rerender":
            depth = {} if "depth" not in op else {"depth": op["depth"]}
            return entries_of(
                await stack.rerender(
                    ctx,
                    op["requests"],
                    current=op.get("current", ()),
                    query=op.get("query", ""),
                    log=(),
                    budgets=op["budgets"],
                    **depth,
                )
            )
        case "projectHistory":
            items = await stack.project_history(ctx, op["items"])
            return {"itemIds": [item["id"] for item in items], "texts": [texts(item) for item in items]}
        case "setStates":
            for state in op["states"]:
                bench.store.set(op["exec"], op["layer"], state)
        case "getState":
            return {
                "has": bench.store.has(op["exec"], op["layer"]),
                "state": bench.store.get(op["exec"], op["layer"]),
                "disabled": bench.store.is_disabled(op["exec"], op["layer"]),
            }
        case "flush":
            await bench.store.flush(op["exec"])
        case other:
            pytest.fail(f"no adapter for {other!r}")
    return {"ok": True}


def raised(error: BaseException) -> dict[str, Any]:
    if isinstance(error, NoeticConfigError):
        return {"type": "config", "code": error.code}
    if isinstance(error, TimeoutError):
        return {"type": "timeout"}
    if isinstance(error, NoeticError):
        return {"type": "noetic", "kind": error.kind}
    return {"type": "error", "message": str(error)}


async def run_case(bench: Bench) -> list[dict[str, Any]]:
    steps = []
    for op in bench.given["ops"]:
        bench.calls, bench.diagnostics = [], []
        step: dict[str, Any] = {}
        try:
            step["result"] = await operate(bench, op)
        except Exception as exc:
            step["result"] = {"raised": raised(exc)}
        await settle()
        if bench.calls:
            step["calls"] = bench.calls
        if bench.diagnostics:
            step["diagnostics"] = (
                sorted(bench.diagnostics, key=lambda d: d["layerId"]) if op["op"] == "store" else bench.diagnostics
            )
        steps.append(step)
    return steps


def is_coalesced(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    """Tell whether our writes are a subsequence of theirs that ends alike for every key."""
    rest = iter(theirs)
    if not all(any(write == other for other in rest) for write in ours):
        return False
    return {w["key"]: w for w in ours} == {w["key"]: w for w in theirs}


@pytest.mark.parametrize("case", load("lifecycle"))
def test_hooks_run_as_recorded(case: dict[str, Any]) -> None:
    async def run() -> tuple[Bench, list[dict[str, Any]], dict[str, Any]]:
        bench = Bench(case["given"])
        steps = await run_case(bench)
        stored = {key: await InMemoryStorage.get(bench.storage, key) for key in await bench.storage.list("")}
        return bench, steps, stored

    bench, steps, stored = drive_loop(run())

    expect = case["expect"]
    for op, got, want in zip(case["given"]["ops"], steps, expect["steps"], strict=True):
        assert got == want, op
    assert stored == expect["stored"]
    assert is_coalesced(bench.writes, expect.get("writes", [])), (bench.writes, expect.get("writes"))
