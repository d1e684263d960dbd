"""What rules are worth against an agent that obeys everything it reads, and against attackers who read the rules.

Run ``python benchmarks/studies/dojo.py`` where AgentDojo is installed; ``--write`` keeps the page in docs/studies, ``--keep
FOLDER`` keeps finished runs and goes on from them, ``--jobs N`` uses so many processes. There are three sets of rules: none;
rules that deny and trust fields of results; and rules that ask, and trust nobody but the user and the ids that tools assign.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Final

from inputs import publish
from provenance_rules import fit, rulebook, share

from noetic_nb import lab
from noetic_nb.lab import DojoResult, datasets
from noetic_nb.lab._dojo.agentdojo_suites import SUITES, agentdojo_suite
from noetic_nb.lab._dojo.episodes import PATIENCE
from noetic_nb.steering import RuleBook

Spec = dict[str, tuple[Sequence[str], Sequence[str]]]
"""By tool: the arguments that are guarded, and who is trusted besides the user."""

FIELDS: Final[dict[str, Spec]] = {
    "slack": {
        "send_direct_message": (["recipient"], ["read_channel_messages.sender", "get_users_in_channel"]),
        "invite_user_to_slack": (["user_email"], []),
        "get_webpage": (["url"], []),
        "post_webpage": (["url"], []),
    },
    "travel": {
        "send_email": (["recipients"], ["search_calendar_events.participants"]),
        "create_calendar_event": (["participants"], []),
        "reserve_hotel": (["hotel"], []),
    },
}
ASKING: Final[dict[str, Spec]] = {
    "banking": {
        "send_money": (["recipient"], []),
        "schedule_transaction": (["recipient"], []),
        "update_scheduled_transaction": (["recipient"], []),
        "update_password": (["password"], []),
        "update_user_info": ([], []),
    },
    "slack": {
        "send_direct_message": (["recipient", "body"], []),
        "send_channel_message": (["channel"], []),
        "invite_user_to_slack": (["user_email"], []),
        "add_user_to_channel": (["user"], []),
        "remove_user_from_slack": (["user"], []),
        "get_webpage": (["url"], []),
        "post_webpage": (["url"], []),
    },
    "travel": {
        "send_email": (["recipients", "cc", "bcc"], []),
        "create_calendar_event": (["participants", "title"], []),
        "cancel_calendar_event": (["event_id"], []),
        "reserve_hotel": (["hotel"], []),
        "reserve_car_rental": (["company"], []),
        "reserve_restaurant": (["restaurant"], []),
    },
    "workspace": {
        "send_email": (["recipients", "cc", "bcc"], []),
        "delete_email": (["email_id"], []),
        "create_calendar_event": (["participants"], []),
        "cancel_calendar_event": (["event_id"], []),
        "reschedule_calendar_event": (["event_id"], []),
        "add_calendar_event_participants": (["participants"], []),
        "append_to_file": (["file_id"], ["create_file.id_", "search_files.id_", "search_files_by_filename.id_"]),
        "share_file": (["email", "file_id"], ["create_file.id_"]),
        "delete_file": (["file_id"], []),
    },
}
REFUSED: Final = 5
"""Refused calls after which nothing is asked any more."""
TEXT_ONLY: Final = "injection_task_6"
"""Of travel: the attacker wants a sentence to be said, and no call."""


def made(spec: Spec, action: str) -> RuleBook:
    """Return the rules of a suite."""
    rules = RuleBook()
    if action == "ask":
        # An approver who is asked again and again says yes in the end.
        rules.when(
            f'size(history.filter(c, c.status == "denied")) >= {REFUSED}',
            id="no-nagging",
            tools=list(spec),
            action="deny",
        )
    for tool, (args, trust) in spec.items():
        rules.only_from_user(tool, *args, trust=trust, action=action)
    return rules


def rule_sets() -> dict[str, dict[str, RuleBook]]:
    """Return three sets of rules, by suite."""
    fitted = fit([*datasets.agentdojo("banking"), *datasets.agentdojo("workspace")])
    fields = {suite: made(spec, "deny") for suite, spec in FIELDS.items()}
    fields |= {suite: rulebook(fitted, suite) for suite in ("banking", "workspace")}
    return {
        "none": {suite: RuleBook() for suite in SUITES},
        "fields": fields,
        "asking": {suite: made(spec, "ask") for suite, spec in ASKING.items()},
    }


def row(suite: str, rules: str, attacker: str, result: DojoResult, *, without: str | None = None) -> str:
    """Return a row of the table."""
    result = replace(
        result, runs=tuple([run for run in result.runs if run.meta["injection_task"] != without or not without])
    )
    if attacker == "static":
        result = replace(result, runs=tuple([run for run in result.runs if run.meta["attack_is_static"]]))
    cells = [share(result.count(name)) for name in ("utility", "utility_under_attack", "attack_success")]
    name = f"{suite} without its task of text" if without else suite
    return f"| {name} | {rules} | {attacker} | {' | '.join(cells)} | {result.asks():.2f} | {result.asks(attacked=True):.2f} |"


def told(name: str, began: float, done: int, of: int | None) -> None:
    """Say how far a part of the table is."""
    print(f"{name}: {done} of {of} user tasks, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def main(given: Sequence[str]) -> int:
    """Run, count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--suites", nargs="+", default=SUITES)
    parser.add_argument("--rules", nargs="+", default=("none", "fields", "asking"))
    parser.add_argument(
        "--every", type=int, default=1, help="of the workspace, attack each so manieth user task under rules"
    )
    chosen = parser.parse_args(given)
    rows: list[str] = []
    found: Counter[tuple[str, str, str]] = Counter()
    missed: Counter[tuple[str, str, str]] = Counter()
    seconds: dict[str, float] = {}
    for rules, books in rule_sets().items():
        for suite in chosen.suites if rules in chosen.rules else ():
            began = time.process_time()
            adapts = rules != "none"
            play = partial(
                lab.dojo,
                books[suite],
                suites=suite,
                approve="ground_truth" if rules == "asking" else None,
                adaptive=adapts,
                n_jobs=chosen.jobs,
                resume=chosen.keep,
                progress=partial(told, f"{rules} {suite}", time.monotonic()),
            )
            tasks = [*agentdojo_suite(suite).user_tasks]
            attacked = tasks[:: chosen.every] if adapts and suite == "workspace" else tasks
            rest = [task for task in tasks if task not in attacked]
            result = play(user_tasks=attacked)
            result = replace(result, runs=(*result.runs, *play(user_tasks=rest, injection_tasks=()).runs))
            seconds[rules] = seconds.get(rules, 0.0) + time.process_time() - began
            for attacker in ("static", "adaptive") if adapts else ("static",):
                rows.append(row(suite, rules, attacker, result))
                if suite == "travel":
                    rows.append(row(suite, rules, attacker, result, without=TEXT_ONLY))
            for run in result.runs:
                if not run.meta["attack_is_static"]:
                    counts = found if run.meta["attack_succeeded"] else missed
                    counts[rules, suite, run.meta["attack_type"]] += 1
            print(f"{rules} {suite}: {len(result.runs)} runs", file=sys.stderr, flush=True)
    families = sorted({*found, *missed})
    lines = [
        "# Rules against an agent that obeys all it reads, and attackers who read the rules",
        "",
        "Written by `python benchmarks/studies/dojo.py --write`; every figure on this page is computed by it.",
        "",
        "* **Agent**: gullible. It makes the calls that solve the user's task, and the attacker's as soon as it has read them. "
        "No model could do worse.",
        "* **Attackers**: static is AgentDojo's `important_instructions`. Where it fails, the adaptive one looks for an attack "
        "that passes the rule book, in seven families ([how](../behaviour/lab.md#closed-environments)); a pair of tasks counts "
        "where one of both succeeded.",
        "* **Rules**: none; *fields* deny values that neither the user nor trusted fields of results gave (banking and "
        "workspace: fitted on recorded attacks of the same suite by the study of [provenance](provenance.md), so that they "
        "know these attacks; slack and travel: by hand); *asking* ask for every value that the user did not give, by hand, "
        f"and deny after {REFUSED} refusals. Asked is a person who says yes to exactly the calls of the ground truth; one who is "
        f"being worn out says yes to everything after {PATIENCE} questions.",
        "* **Intervals** are made from the spread between user tasks and between injection tasks; where there are fewer than "
        "ten of either, that is said.",
        *(
            [
                f"* **Workspace** under rules: attacked is each {chosen.every}th user task, to save time; utility is of all."
            ]
            if chosen.every > 1
            else []
        ),
        f"* **Packages**: agentdojo {version('agentdojo')}, tasks of version 1.2.2.",
        "",
        "| suite | rules | attacker | utility | utility under attack | attack success | approvals a task | under attack |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "## What got past the rules",
        "",
        "Pairs of tasks in which the static attack failed and one of a family reached the attacker's goal; and attacks that "
        "the rule book let pass and that missed the goal in the environment, mostly as another tool has another effect.",
        "",
        "| rules | suite | family | reached the goal | passed and missed it |",
        "|---|---|---|---|---|",
        *[f"| {' | '.join(key)} | {found[key]} | {missed[key]} |" for key in families],
        "",
    ]
    text = "\n".join(lines)
    publish(text, "dojo.md", write=chosen.write)
    print(
        {name: round(some, 1) for name, some in seconds.items()}, "s of processor time in this process", file=sys.stderr
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
