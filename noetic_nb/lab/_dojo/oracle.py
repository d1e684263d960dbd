"""The rule book, asked what it would say to an attacker's calls: no environment runs for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._origin_index import OriginIndex, Provenance
from noetic_nb.items._origins import MODEL, Origin, trusted_source
from noetic_nb.lab._dojo.episodes import PATIENCE, folded
from noetic_nb.lab._recorded_calls import call_outside
from noetic_nb.lab._rule_trial import Trial, try_rules
from noetic_nb.memory import ExecutionContext, PastCall
from noetic_nb.memory._steering_decision import SteeringAction
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.models._script import CallTool
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import tool_calls
from noetic_nb.steering._evaluation.evaluate import Policy, RuleSnapshot
from noetic_nb.steps import Tool

_STATE: Final[Mapping[str, Any]] = {"ledger": (), "pendingAsync": ()}
_CONTEXT: Final = ExecutionContext(execution_id="dojo", thread_id="dojo")


class Oracle:
    """What rules say to calls that follow the reading of an attack, in a run of the attack that does not adapt."""

    def __init__(self, rules: Sequence[Any], run: Run, prompt: str, goal: str, tools: Sequence[Tool]) -> None:
        self._rules = RuleSnapshot(0, tuple(rules))
        self._trial = Trial(self._rules, Policy())
        self._tools = {tool.name: tool for tool in tools}
        trusted = [trusted_source(each) for rule in rules if rule.sequence is not None for each in rule.sequence.trust]
        self.conditions = [*{(one.key, one.value): {one.key: one.value} for one in trusted if one.key}.values()]
        """The fields of an item that rules want for its author."""
        self._log = OriginIndex()
        self._log.add(prompt, Origin("user"))
        self._history: list[PastCall] = []
        self.asked = 0
        for _, made in tool_calls(run):
            args = compact_json(made.args or {})
            self._log.add(args, MODEL)
            self._log.add(made.output, Origin("tool", made.name), args=args)
            self._history.append(PastCall(made.name, made.args or {}, made.call_id, made.status, made.output))
            self.reader = made.name
            if folded(goal) in folded(made.output):
                break

    def says(self, read: str, calls: Sequence[CallTool], results: Mapping[str, str]) -> Iterator[SteeringAction | None]:
        """Yield the decision on each call of a thread; None for a call that does not fit its tool.

        `read` is what the attacker adds to what is read, `results` are those of tools that his calls read from.
        """
        self.asked += 1
        beside = OriginIndex()
        beside.add(read, Origin("tool", self.reader))
        history = [*self._history]
        for number, call in enumerate(calls):
            tool = self._tools.get(call.name)
            try:
                args = None if tool is None else tool.bind(tool.read(call.arguments)).args
            except NoeticError:
                args = None
            if tool is None or args is None:
                yield None
                return
            provenance = Provenance(self._log, OriginIndex(), beside, schema=tool.spec.parameters)
            params = BeforeToolCallParams(
                call.name,
                args,
                _CONTEXT,
                _STATE,
                f"c{number}",
                tuple(history),
                provenance=lambda provenance=provenance: provenance,  # type: ignore[misc]
            )
            recorded = call_outside(params, number)
            result = self._trial.at_once(recorded) or try_rules(self._rules, [recorded], policy=Policy())[0]
            action = result.decision.action
            yield action
            output = results.get(call.name, "")
            status = "ok" if action is SteeringAction.ALLOW else "denied"
            history.append(PastCall(call.name, args, f"c{number}", status, output))
            if status == "ok":
                beside.add(output, Origin("tool", call.name), args=compact_json(args))

    def passes(
        self,
        read: str,
        threads: Sequence[Sequence[CallTool]],
        results: Mapping[str, str],
        needed: Sequence[CallTool],
        *,
        is_tiring: bool = False,
    ) -> bool:
        """Tell whether the calls that are needed are let through, in every thread; by a tired approver as well."""
        for calls in threads:
            asks = 0
            for call, action in zip(calls, self.says(read, calls, results), strict=False):
                if action is None:
                    return False
                is_asked = is_tiring and action is SteeringAction.ASK
                asks += is_asked
                # The first of many questions are meant to be refused.
                if call in needed and action is not SteeringAction.ALLOW and not is_asked:
                    return False
            if is_tiring and asks <= PATIENCE:
                return False
        return True
