"""Golden vectors of loop predicates, and of the snapshots loops show them."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models import Usage
from noetic_nb.runtime._execution.loop_step import run_loop
from noetic_nb.steps import LoopSnapshot, loop, step, until
from tests.vectors.cases import load, snake


def embed_with(vectors: dict[str, list[float]]) -> Any:
    return lambda text: vectors[text]


class Canned:
    """A custom or verifying function that says the listed things in turn; the last repeats."""

    def __init__(self, verdicts: list[dict[str, Any]]) -> None:
        self.verdicts = verdicts
        self.asked = 0

    def __call__(self, _: Any) -> dict[str, Any]:
        verdict = self.verdicts[min(self.asked, len(self.verdicts) - 1)]
        self.asked += 1
        if "throw" in verdict:
            raise RuntimeError(verdict["throw"])
        return verdict


def built(spec: dict[str, Any], canned: dict[str, Canned]) -> Any:
    """Return the predicate a case describes."""
    kind = spec["kind"]
    if kind in ("any", "all"):
        return getattr(until, kind)(*[built(inner, canned) for inner in spec["predicates"]])
    if kind in ("custom", "verified"):
        canned[spec["id"]] = function = Canned(spec["verdicts"])
        return getattr(until, kind)(function)
    if kind == "converged":
        embed = embed_with(spec["vectors"]) if "vectors" in spec else None
        return until.converged(spec.get("threshold", 1.0), embed)
    return getattr(until, snake(kind))(*[value for key, value in spec.items() if key != "kind"])


def shown(snapshot: dict[str, Any]) -> LoopSnapshot:
    tokens = snapshot["tokens"]
    return LoopSnapshot(
        step_count=snapshot["stepCount"],
        tokens=Usage(tokens["input"], tokens["output"]),
        cost=snapshot["cost"],
        elapsed_ms=snapshot["elapsed"],
        last_output=snapshot.get("lastOutput"),
        last_text=snapshot["lastText"],
        history=snapshot["history"],
        depth=snapshot["depth"],
        last_step_meta=snapshot.get("lastStepMeta"),
    )


CASES = load("until")
PREDICATES = [case for case in CASES if case.values[0]["given"]["op"] == "predicate"]
LOOPS = [case for case in CASES if case.values[0]["given"]["op"] == "loop"]


@pytest.mark.parametrize("case", PREDICATES)
def test_predicates_judge_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    canned: dict[str, Canned] = {}
    check = built(given["predicate"], canned).start()

    for snapshot, wanted in zip(given["snapshots"], expect["verdicts"], strict=True):
        if wanted.get("raised"):
            with pytest.raises(RuntimeError):
                check(shown(snapshot))
            continue
        verdict = check(shown(snapshot))
        assert verdict.stop is wanted["stop"]
        assert verdict.feedback == wanted.get("feedback")
        if "reason" in wanted:
            assert verdict.reason == wanted["reason"]
        else:
            assert (verdict.reason is not None) is wanted["hasReason"]
    assert {name: one.asked for name, one in canned.items()} == expect.get("evaluations", {})


RAISED = {
    "plain": lambda: ValueError("plain"),
    "channel_closed": lambda: NoeticError("channel_closed", "closed", channel_name="q"),
    "step_failed": lambda: NoeticError("step_failed", "failed", step_id="b", retries_exhausted=False),
    "cancelled": lambda: NoeticError("cancelled", "stop", reason="stop"),
}


def failure(kind: str, expect: dict[str, Any]) -> BaseException:
    """Return what a body raises; the data name the code of a wrong set-up only where they expect it."""
    if kind == "config":
        return NoeticConfigError(expect.get("error", {}).get("code", "CANNED"), "wrong set-up")
    return RAISED[kind]()


def error_data(error: BaseException) -> dict[str, Any]:
    """Return an error as the data describes errors."""
    if isinstance(error, NoeticConfigError):
        return {"type": "config", "code": error.code}
    if isinstance(error, NoeticError):
        return {"type": "noetic", "kind": error.kind, **error.facts}
    return {"type": "error", "message": str(error)}


@pytest.mark.parametrize("case", LOOPS)
async def test_loops_run_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    inputs: list[Any] = []
    snapshots: list[LoopSnapshot] = []

    async def raw(engine: Any, body: Any, value: Any, ctx: Any) -> Any:
        entry = given["body"][min(len(inputs), len(given["body"]) - 1)]
        inputs.append(value)
        if "raise" in entry:
            raise failure(entry["raise"], expect)
        return entry["value"]

    stop = built(given["until"], {}).start()

    def seen(snapshot: LoopSnapshot) -> Any:
        snapshots.append(snapshot)
        return stop(snapshot)

    options = {snake(key): given[key] for key in ("maxHistorySize", "onError") if key in given}
    looped = loop(
        "L",
        step.run("body", lambda value, ctx: value),
        until=until.custom(seen),
        max_iterations=given["maxIterations"],
        **options,
    )
    harness = nn.AgentHarness(nn.AgentConfig(name="vectors"))
    async with harness.execution() as ctx:
        try:
            outcome: dict[str, Any] = {"output": await run_loop(ctx.engine, looped, given["input"], ctx, raw)}
        except (ValueError, NoeticError, NoeticConfigError) as exc:
            outcome = {"error": error_data(exc)}

    assert inputs == expect["bodyInputs"]
    got = [
        {"stepCount": s.step_count, "lastText": s.last_text, "lastOutput": s.last_output, "history": list(s.history)}
        for s in snapshots
    ]
    assert got == [{key: value for key, value in s.items() if key in got[0]} for s in expect["snapshots"]]
    if "output" in expect:
        assert outcome == {"output": expect["output"]}
    else:
        wanted = {snake(key): value for key, value in expect["error"].items()}
        assert outcome == {"error": wanted}
