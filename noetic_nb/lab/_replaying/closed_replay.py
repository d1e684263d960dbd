"""A recorded run, really run again: on the tape as long as it is the recorded one, then with a model, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from noetic_nb.events import RuleChanged
from noetic_nb.lab._replaying.plan_replay import plan_changes
from noetic_nb.lab._replaying.recorded_agent import RecordedAgent, agent_of, tools_by_name
from noetic_nb.lab._replaying.recorded_answers import Tape
from noetic_nb.lab._replaying.replay_report import Kept, horizon_of_tape, note_counts, note_known, summary
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runtime import AgentConfig
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer

__all__ = ["closed_replay"]


def closed_replay(
    run: Run,
    *,
    rules: Any = None,
    budgets: Mapping[str, Any] | None = None,
    projection: Any = None,
    layers: Sequence[Any] | None = None,
    regulator: Regulator | None = None,
    model: Any = None,
    tools: Iterable[Any] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Run:
    """Run a recorded run again; see `replay`."""
    given_tools = tools_by_name(tools)
    config = agent_of(run, given_tools, rules=rules, layers=layers)
    tape = Tape(run, model, given_tools, tokenizer=tokenizer)
    agent = RecordedAgent(run, config, tape)
    agent.lay(layers, rules, regulator)
    changes = plan_changes(run, budgets, projection, None)
    agent.plan(changes.budgets, changes.policy)
    again = run_sync(agent.live(tuple(run.events)))
    given = {"rules": rules, "budgets": budgets, "projection": projection, "layers": layers, "regulator": regulator}
    again.meta["replay"] = {
        "of": run.run_id,
        "mode": "closed",
        "changed": [name for name, value in given.items() if value is not None],
        "kept": _kept(run, again, rules),
        "diverged": tape.diverged,
        "stopped": tape.stopped,
        **summary(run, again, views_changed=False),
    }
    note_known(again, horizon_of_tape(run, again, stopped=tape.stopped, approvals=tape.approvals))
    return again


def _kept(run: Run, again: Run, rules: Any) -> list[dict[str, Any]]:
    kept = Kept()
    note_counts(run, again, kept)
    for seq, event in enumerate(run.events):
        if isinstance(event, RuleChanged) and rules is None:
            known = isinstance(run._config, AgentConfig)  # a file has the rules of its end only
            why = (
                "edits made while the run went on are left out"
                if known
                else "the rules are those of the end of the run"
            )
            kept.add("rules", why, seq)
    return kept.rows()
