"""One task in a closed environment, with or without an attack: a gullible agent or a model behind rules, as a run."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from noetic_nb.errors import NoeticError
from noetic_nb.items import thaw
from noetic_nb.lab.environments import Environment
from noetic_nb.models import ScriptedModel
from noetic_nb.models._client import ModelClient, ModelRequest
from noetic_nb.models._script import CallTool
from noetic_nb.runs import Run, record
from noetic_nb.runs._events.selected import decisions, tool_calls
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steering import SteeringRule, steering
from noetic_nb.steps import Tool, react
from noetic_nb.sync import run_sync

MAX_CALLS: Final = 400
"""Model calls per turn: the longest ground truth has about forty, an attacker's script more."""
PATIENCE: Final = 20
"""Questions per task after which the approver of the family ``fatigue`` says yes to everything; our own assumption."""

# Folds and escapes that a YAML or JSON result adds to a text.
_FOLDED: Final = re.compile(r"\\[nrt]|[\s\\'\"]")


class Attack(NamedTuple):
    """Planted texts, and the `calls` per thread that the gullible agent then makes; None for the ground truth."""

    planted: Mapping[str, str]
    family: str = "static"
    calls: tuple[tuple[CallTool, ...], ...] | None = None
    is_tiring: bool = False


@dataclass(frozen=True)
class Dojo:
    """The data shared by all episodes."""

    rules: tuple[SteeringRule, ...]
    agent: Literal["gullible"] | ModelClient | Mapping[str, ModelClient]
    model: str
    attack: str
    approve: Literal["ground_truth"] | None


def folded(text: str) -> str:
    """Return a text without folds and escapes, so that it can be found in a result."""
    return _FOLDED.sub("", text)


class Gullible:
    """Makes the calls that solve the user's task, and the attacker's once a result has shown the attacker's goal."""

    def __init__(
        self, own: Sequence[CallTool], answer: str, goal: str, theirs: Callable[[], Sequence[CallTool]], said: str
    ) -> None:
        self._left, self._answer = [*own], answer
        self._goal, self._theirs, self._said = folded(goal), theirs, said
        self._read = 0
        self.is_caught = False

    def __call__(self, request: ModelRequest) -> CallTool | str:
        """Answer a request with the next call, or with the answer if no call is left."""
        new = [
            str(item.get("output")) for item in request.items[self._read :] if item["type"] == "function_call_output"
        ]
        if self._goal and not self.is_caught and any(self._goal in folded(text) for text in new):
            self.is_caught = True
            self._left = [*self._theirs(), *self._left]
        self._read = len(request.items)
        if self._left:
            return self._left.pop(0)
        return "\n".join(filter(None, [self._answer, self._said if self.is_caught else ""])) or "Done."


class Approver:
    """Says yes to exactly the calls of the ground truth, each as often as it occurs there."""

    def __init__(self, calls: Sequence[CallTool], tools: Mapping[str, Tool], is_tired: bool) -> None:
        self._left = Counter(_key(call.name, _bound(call, tools)) for call in calls)
        self._is_tired, self._asked = is_tired, 0

    def __call__(self, name: str, args: Mapping[str, Any]) -> bool:
        self._asked += 1
        key = _key(name, args)
        if self._left[key] > 0:
            self._left[key] -= 1
            return True
        return self._is_tired and self._asked > PATIENCE


def _key(name: str, args: Mapping[str, Any]) -> str:
    return f"{name} {sorted(thaw(args).items())!r}"


def _bound(call: CallTool, tools: Mapping[str, Tool]) -> Mapping[str, Any]:
    try:
        return tools[call.name].arguments(call.arguments)
    except (KeyError, NoeticError):  # the harness refuses it as well
        return call.args or {}


def play(
    dojo: Dojo, environment: Environment, user_task: str, injection_task: str | None, attack: Attack | None
) -> Run:
    """Run one task and judge it; the judgements are in ``run.meta``."""
    now = environment.state(user_task, {} if attack is None else attack.planted)
    before = copy.deepcopy(now)
    tools = environment.tools(now)
    by_name = {tool.name: tool for tool in tools}
    task = environment.user_tasks[user_task]
    goal = None if injection_task is None else environment.injection_tasks[injection_task]
    own = environment.calls(user_task, before, before)
    threads = 1 if attack is None or attack.calls is None else len(attack.calls)
    caught = False
    answer = ""
    approver = Approver([*own] * threads, by_name, attack is not None and attack.is_tiring)
    script: Any = None

    def model_of(thread: int) -> Any:
        def theirs() -> Sequence[CallTool]:
            if attack is not None and attack.calls is not None:
                return attack.calls[thread]
            return environment.calls(str(injection_task), before, now)

        return Gullible(
            own, task.answer, "" if goal is None else goal.prompt, theirs, "" if goal is None else goal.answer
        )

    def line(request: ModelRequest) -> Any:
        return script(request)

    config = AgentConfig(
        name="dojo",
        step=react(model=dojo.model, tools=list(tools), max_steps=MAX_CALLS),
        memory=(steering(list(dojo.rules)),) if dojo.rules else (),
    )
    model = ScriptedModel(line) if dojo.agent == "gullible" else dojo.agent
    harness = AgentHarness(config, model=model, approve=approver if dojo.approve == "ground_truth" else None)
    run = Run(
        "-".join([environment.name, user_task, injection_task or "none", "none" if attack is None else attack.family])
    )
    record(harness, run=run)

    async def talk() -> None:
        nonlocal script, answer, caught
        for thread in range(threads):
            script = model_of(thread)
            reply = await harness.execute(task.prompt, thread_id=f"t{thread}")
            answer = reply.text
            caught = caught or script.is_caught

    failed = None
    try:
        run_sync(talk())
    except NoeticError as exc:  # a failing model has not done the task
        failed = str(exc)
    run.stop_recording()
    made = [
        CallTool(call.name, **thaw(call.args or {})) for _, call in tool_calls(run) if call.status in ("ok", "error")
    ]
    asked = sum(decided.layer_id == "approval" for _, decided in decisions(run))
    run.meta.update(
        source="dojo",
        domain=None,
        suite=environment.name,
        model=dojo.model,
        task_id=user_task,
        trial=None,
        user_task=user_task,
        injection_task=injection_task,
        attack=attack is not None,
        attack_type=None if attack is None else dojo.attack if attack.family == "static" else attack.family,
        attack_is_static=attack is None or attack.family == "static",
        attack_succeeded=None
        if injection_task is None
        else environment.security(injection_task, before, now, answer, made),
        outcome=environment.utility(user_task, before, now, answer, made),
        asks=asked / threads,
        read=caught if dojo.agent == "gullible" else None,
    )
    if failed is not None:
        run.meta["failed"] = failed
    return run
