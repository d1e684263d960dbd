"""One of everything that people end a cell with; a text stands wherever there is room for one."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import noetic_nb as nn
from noetic_nb.events import ItemsAppended, ModelCalled, ToolCalled, TurnStarted, Where
from noetic_nb.items import assistant_message, input_message
from noetic_nb.items._log import ItemLog
from noetic_nb.lab import datasets
from noetic_nb.lab._detection.calibration import Failure
from noetic_nb.lab._detection.detectors import Detecting
from noetic_nb.lab._rule_scores.rule_suggestions import Suggestion, Suggestions
from noetic_nb.lab._statistics.intervals import Cluster, counted
from noetic_nb.layers import HashingEmbedder
from noetic_nb.runs import Recorder

QUESTION = "Where is order A17? It was $5 and $6."


def calibration(word: str) -> nn.lab.Calibration:
    """Return what `calibrate` makes of runs, without the seconds that it takes."""
    numbers = ("stopped_failed", "stopped_good", "precision", "recall", "base_rate", "auc", "auc_within")
    shares = {f"{name}{end}": 0.5 for name in numbers for end in ("", "_low", "_high")}
    rows = [{"detector": word, "baseline": False, "domain": word, "split": "held out", "threshold": 2.0, **shares}]
    return nn.lab.Calibration(
        detector=word,
        threshold=2.0,
        verdict="on",
        detectable=0.7,
        stability=0.9,
        reasons={word: word},
        curves={},
        failures=(Failure(word, word, word),),
        unlabelled=1,
        made_of={"tasks": 9},
        _rows=tuple(rows * 30),
        _tried=(Detecting(word, len),),
    )


@cache
def recorded() -> list[nn.Run]:
    """Return runs that no text of a gallery is in."""
    return list(datasets.airline()[:4])


def evaluation(rules: nn.RuleBook) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its rule is about no tool that was recorded
        return nn.lab.evaluate(rules, recorded(), on_unknown="warn")


def gallery(text: str = QUESTION) -> dict[str, Any]:
    """Return one object of each kind by a name for it."""
    raw = text or "-"
    # Configurations and rules take no blank names, and no half of a surrogate pair.
    word = raw.encode("utf-8", "ignore").decode().strip() or "-"
    where = Where(raw, "e1", 1)

    def lookup(order_id: str) -> dict[str, str]:
        return {"order": order_id}

    tool = nn.tool(lookup, name="lookup", description=word)
    rules = nn.RuleBook(
        [nn.SteeringRule(id=word, applies_to=("before_tool_call",), predicate=lambda call: None, tools=(word,))]
    )
    rules.when("tool.name == 'pay'", id="no-pay", action="ask", guidance=word)
    notes = nn.working_memory(initial={"note": word})
    config = nn.AgentConfig(
        name=word,
        step=nn.react(model="scripted", instructions=word, tools=[tool], max_steps=3),
        memory=[notes, nn.steering(rules), nn.regulation(nn.Regulator.for_user("ann").with_cost_cap(2_000))],
        projection=nn.ProjectionPolicy(token_budget=8_000, overflow_model=word),
        params={word: word, "n": 3},
    )
    model = nn.ScriptedModel([nn.CallTool("lookup", order_id=word), nn.Reply(f"Packed: {word}")])
    harness = nn.AgentHarness(config, model=model)
    run = nn.record(harness)
    reply = nn.run_sync(harness.execute(word, thread_id="t1"))
    other = nn.Run(raw, events=[TurnStarted(where, 0.0, raw, 0, 1, text, raw)])
    count = counted([1, 1, 1, 0], [Cluster(at) for at in range(4)])
    rule = nn.SteeringRule(id=word, applies_to=("before_tool_call",), when="true", guidance=word)
    found = Suggestion(rule, count, count, count, count, 3, 0.5, count, False, 0.01, (word,), word)
    log = ItemLog([input_message(raw), assistant_message(raw)])
    return {
        "harness": harness,
        "config": config,
        "memory": nn.memory([notes]),
        "loop": config.step,
        "fork": nn.fork(word, mode="all", paths=[nn.step.llm(word, model=word)], merge="concat"),
        "spawn": nn.spawn(word, child=nn.step.llm("ask", model=word), timeout_ms=5),
        "until": nn.until.any(nn.until.output_contains(word), nn.until.max_steps(3)),
        "layer": notes,
        "regulation": config.memory[2],
        "hooks": notes.hooks,
        "projection": config.projection,
        "limits": nn.Limits(max_steps=3),
        "params": nn.ModelParams(temperature=0, stop_sequences=(word,)),
        "tool": tool,
        "rule": rules[word],
        "book": rules,
        "decision": nn.deny(raw),
        "plan": harness.preview("t1"),
        "reply": reply,
        "log": log,
        "items": log.items,
        "item": log[0],
        "run": other,
        "recording": run,
        "turn": other.turns[0],
        "events": other.events,
        "started": other.events[0],
        "appended": ItemsAppended(where, 0.0, 0, (log[0],), "user"),
        "model call": ModelCalled(where, 1.0, 0, raw, "agent", 12.0, "ok", (log[1],), 20, 18, error=raw),
        "tool call": ToolCalled(where, 1.0, raw, raw, {raw: [text]}, text, 0.1, "error", raw, raw),
        "recorder": Recorder(other),
        "view": harness.memory("t1"),
        "request": model.requests[0],
        "response": nn.ModelResponse((log[1],), model=word),
        "spec": tool.spec,
        "model": model,
        "regulator": nn.Regulator.for_user("ann"),
        "storage": nn.InMemoryStorage(),
        "embedder": HashingEmbedder(),
        "registry": nn.Registry(),
        "shell result": nn.ShellResult(stdout=text, stderr=text, exit_code=1),
        "comparison": nn.compare(run, other),
        "paired": nn.compare([run], [run]),
        "evaluation": evaluation(rules),
        "calibration": calibration(raw),
        "suggestion": found,
        "suggestions": Suggestions([found], tried=2, fitted=1, reason=text),
    }
