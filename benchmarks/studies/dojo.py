"""What rules are worth against an agent that obeys everything it reads, and against attackers who read the rules.

Run ``python benchmarks/studies/dojo.py`` where AgentDojo is installed; ``--write`` keeps the page in docs/studies, ``--keep
FOLDER`` keeps finished runs and goes on from them, ``--jobs N`` uses so many processes. All of it takes ten
minutes with two jobs on two cores. There are three sets of rules: none; rules that deny and trust fields of results; and rules
that ask, and trust nobody but the user and the ids that tools assign.
Two more, for some suites, deny or ask less by trusting fields of items by one author, and by looking at the links in messages.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook

Spec = Sequence[tuple[str, Sequence[str], Sequence[str]]]
"""A tool, the arguments of it that are guarded, and who is trusted besides the user."""

FIELDS: Final[dict[str, Spec]] = {
    "slack": [
        ("send_direct_message", ["recipient"], ["read_channel_messages.sender", "get_users_in_channel"]),
        ("invite_user_to_slack", ["user_email"], []),
        ("get_webpage", ["url"], []),
        ("post_webpage", ["url"], []),
    ],
    "travel": [
        ("send_email", ["recipients"], ["search_calendar_events.participants"]),
        ("create_calendar_event", ["participants"], []),
        ("reserve_hotel", ["hotel"], []),
    ],
}
ASKING: Final[dict[str, Spec]] = {
    "banking": [
        ("send_money", ["recipient"], []),
        ("schedule_transaction", ["recipient"], []),
        ("update_scheduled_transaction", ["recipient"], []),
        ("update_password", ["password"], []),
        ("update_user_info", [], []),
    ],
    "slack": [
        ("send_direct_message", ["recipient", "body"], []),
        ("send_channel_message", ["channel"], []),
        ("invite_user_to_slack", ["user_email"], []),
        ("add_user_to_channel", ["user"], []),
        ("remove_user_from_slack", ["user"], []),
        ("get_webpage", ["url"], []),
        ("post_webpage", ["url"], []),
    ],
    "travel": [
        ("send_email", ["recipients", "cc", "bcc"], []),
        ("create_calendar_event", ["participants", "title"], []),
        ("cancel_calendar_event", ["event_id"], []),
        ("reserve_hotel", ["hotel"], []),
        ("reserve_car_rental", ["company"], []),
        ("reserve_restaurant", ["restaurant"], []),
    ],
    "workspace": [
        ("send_email", ["recipients", "cc", "bcc"], []),
        ("delete_email", ["email_id"], []),
        ("create_calendar_event", ["participants"], []),
        ("cancel_calendar_event", ["event_id"], []),
        ("reschedule_calendar_event", ["event_id"], []),
        ("add_calendar_event_participants", ["participants"], []),
        ("append_to_file", ["file_id"], ["create_file.id_", "search_files.id_", "search_files_by_filename.id_"]),
        ("share_file", ["email", "file_id"], ["create_file.id_"]),
        ("delete_file", ["file_id"], []),
    ],
}
_OURS: Final = [
    "get_most_recent_transactions.recipient[sender=me]",
    "get_scheduled_transactions.recipient[sender=DE89370400440532013000]",
]
"""Recipients of what the user himself paid or planned: the bank writes the sender."""
AUTHORS: Final[dict[str, Spec]] = {
    "banking": [
        ("send_money", ["recipient"], _OURS),
        ("schedule_transaction", ["recipient"], _OURS),
        ("update_scheduled_transaction", ["recipient"], _OURS),
        ("update_password", ["password"], []),
    ],
}
_MEMBERS: Final = ["get_users_in_channel", "read_channel_messages.sender", "get_channels"]
"""Names that Slack assigns; a channel's name is chosen by whoever opens it, and vouches for no link."""
SPARING: Final[dict[str, Spec]] = {
    "banking": [*AUTHORS["banking"], ("update_user_info", [], [])],
    "slack": [
        ("send_direct_message", ["recipient"], _MEMBERS),
        ("send_direct_message", ["body.links"], []),
        ("send_channel_message", ["channel"], ["get_channels"]),
        ("send_channel_message", ["body.links"], []),
        ("invite_user_to_slack", ["user_email"], []),
        ("add_user_to_channel", ["user"], _MEMBERS),
        ("remove_user_from_slack", ["user"], []),
        ("get_webpage", ["url"], []),
        ("post_webpage", ["url"], []),
    ],
}
READS: Final[dict[str, Sequence[str]]] = {
    "banking": ["read_file", "get_most_recent_transactions"],
    "slack": ["read_channel_messages", "read_inbox", "get_webpage", "get_channels"],
    "travel": [f"get_rating_reviews_for_{kind}" for kind in ("hotels", "restaurants", "car_rental")],
    "workspace": [
        *("search_emails", "get_unread_emails", "get_received_emails", "search_calendar_events"),
        *("get_day_calendar_events", "search_files", "search_files_by_filename", "list_files", "get_file_by_id"),
    ],
}
"""Tools that return texts of others."""
REFUSED: Final = 5
"""Refused calls after which nothing is asked any more."""
TEXT_ONLY: Final = "injection_task_6"
"""Of travel: the attacker wants a sentence to be said, and no call."""


def no_nagging(tools: Iterable[str]) -> RuleBook:
    """Return the rule that nothing is asked after some denials: a person who is asked again and again says yes in the end."""
    rules = RuleBook()
    condition = f'size(history.filter(c, c.status == "denied")) >= {REFUSED}'
    rules.when(condition, id="no-nagging", tools=[*dict.fromkeys(tools)], action="deny")
    return rules


def made(spec: Spec, action: str) -> RuleBook:
    """Return the rules of a suite."""
    rules = no_nagging([tool for tool, _, _ in spec]) if action == "ask" else RuleBook()
    for tool, args, trust in spec:
        rules.only_from_user(tool, *args, trust=trust, action=action)
    return rules


def rule_sets() -> dict[str, dict[str, RuleBook]]:
    """Return the sets of rules, by suite."""
    fitted = fit([*datasets.agentdojo("banking"), *datasets.agentdojo("workspace")])
    fields = {suite: made(spec, "deny") for suite, spec in FIELDS.items()}
    fields |= {suite: rulebook(fitted, suite) for suite in ("banking", "workspace")}
    return {
        "none": {suite: RuleBook() for suite in SUITES},
        "fields": fields,
        "asking": {suite: made(spec, "ask") for suite, spec in ASKING.items()},
        "authors": {suite: made(spec, "deny") for suite, spec in AUTHORS.items()},
        "sparing": {suite: made(spec, "ask") for suite, spec in SPARING.items()},
    }


def acting_asks(suite: str) -> dict[str | None, RuleBook]:
    """Return the rule that acting is asked for after texts of others were read."""
    tools = [*dict.fromkeys([tool for tool, _, _ in ASKING[suite]])]
    rules = no_nagging(tools)
    rules.never(tools, after=READS[suite], action="ask")
    return {None: rules}


def tools_of_the_task(suite: str) -> dict[str | None, RuleBook]:
    """Return, for each task, the rule that only the tools of its ground truth are called, as a user may state at the start."""
    environment = agentdojo_suite(suite)
    found: dict[str | None, RuleBook] = {}
    for task in environment.user_tasks:
        state = environment.state(task, {})
        used = {call.name for call in environment.calls(task, state, state)}
        found[task] = RuleBook()
        found[task].at_most(0, [tool.name for tool in environment.tools(state) if tool.name not in used])
    return found


IDEAS: Final = {
    'acting is asked for after texts of others were read (`never(..., after=..., action="ask")`)': acting_asks,
    "the user states the tools of each task at its start (`at_most(0, [all others])`)": tools_of_the_task,
}


def idea_rows(suite: str, n_jobs: int, keep: str | None) -> Iterator[str]:
    """Yield a row for each idea that is no better, by attacks that do not adapt."""
    for name, books in IDEAS.items():
        runs: list[Run] = []
        for task, book in books(suite).items():
            tasks = None if task is None else [task]
            play = partial(lab.dojo, book, suites=suite, user_tasks=tasks, n_jobs=n_jobs if task is None else 1)
            runs += play(approve="ground_truth", resume=keep, progress=False).runs
        result = DojoResult(tuple(runs))
        cells = [share(result.count(figure)) for figure in ("utility", "attack_success")]
        yield f"| {name} | {suite} | {' | '.join(cells)} | {result.asks():.2f} |"


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


def processor_time() -> float:
    """Return the processor time of this process and of its workers, which end."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
    uses = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum([use.ru_utime + use.ru_stime for use in uses])


def main(given: Sequence[str]) -> int:
    """Run, count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--suites", nargs="+", default=SUITES)
    parser.add_argument("--rules", nargs="+", default=("none", "fields", "asking", "authors", "sparing", "ideas"))
    chosen = parser.parse_args(given)
    rows: list[str] = []
    ideas: list[str] = []
    found: Counter[tuple[str, str, str]] = Counter()
    missed: Counter[tuple[str, str, str]] = Counter()
    began = time.monotonic()
    sets = rule_sets()
    for suite in chosen.suites:
        for rules, books in sets.items():
            if suite not in books or rules not in chosen.rules:
                continue
            adapts = rules != "none"
            result = lab.dojo(
                books[suite],
                suites=suite,
                approve="ground_truth" if rules in ("asking", "sparing") else None,
                adaptive=adapts,
                n_jobs=chosen.jobs,
                resume=chosen.keep,
                progress=partial(told, f"{suite} {rules}", began),
            )
            for attacker in ("static", "adaptive") if adapts else ("static",):
                rows.append(row(suite, rules, attacker, result))
                if suite == "travel":
                    rows.append(row(suite, rules, attacker, result, without=TEXT_ONLY))
            for run in result.runs:
                if not run.meta["attack_is_static"]:
                    counts = found if run.meta["attack_succeeded"] else missed
                    counts[suite, rules, run.meta["attack_type"]] += 1
        if "ideas" in chosen.rules:
            ideas += idea_rows(suite, chosen.jobs, chosen.keep)
    families = sorted({*found, *missed})
    lines = [
        "# Steering rules against a fully gullible agent and adaptive attackers",
        "",
        "Which rule books stop attackers who have read them, and what do they cost in finished tasks and questions?",
        "",
        "Written by `python benchmarks/studies/dojo.py --jobs 2 --write` in ten minutes on two cores; every figure on this "
        "page is computed by it.",
        "",
        "* **Agent**: gullible. It makes the calls that solve the user's task. As soon as it reads the attacker's "
        "instructions, it makes the attacker's calls too. No model could do worse.",
        "* **Attackers**: the static attacker uses AgentDojo's `important_instructions`. Where it fails, the "
        "adaptive attacker searches seven families for an attack that passes the rule book "
        "([how](../behaviour/lab.md#closed-environments)). A pair of tasks counts as a success if either attack "
        "succeeded.",
        "* **Rules**: *none*. *fields* deny values that come from neither the user nor a trusted field of a tool "
        "result. For banking and workspace they were fitted on recorded attacks of the same suite in the "
        "[provenance](provenance.md) study, so they have seen these attacks; for slack and travel they were written "
        "by hand. *asking* were written by hand: they ask for approval of every value that the user did not give, "
        f"and deny everything after {REFUSED} denied calls. That limit stops attackers who ask until somebody gives "
        "in. It costs utility under attack, because the user's own calls are no longer approved either.",
        "* **Two more sets**, written by hand and shown where they differ: *authors* deny like *fields*, but trust the recipient "
        "of an earlier payment only if the user sent that payment. The bank writes this field, and no attacker can "
        '(`trust="get_most_recent_transactions.recipient[sender=me]"`). *sparing* ask like *asking*, but also trust these '
        'recipients and the names that Slack assigns, and check only the links in messages (`"body.links"`).',
        "* **Questions**: approvals requested per task. The simulated person approves exactly the calls of the "
        f"ground truth. Against attackers who wear people out, the person approves everything after {PATIENCE} "
        "questions.",
        "* **Intervals** come from the spread between user tasks and between injection tasks. The table says where "
        "there are fewer than ten of either.",
        "* **The text-only task** in travel: its goal is a sentence in the reply and not a tool call, so no rule "
        "about calls can see it.",
        f"* **Packages**: agentdojo {version('agentdojo')}, tasks of version 1.2.2.",
        "",
        "| suite | rules | attacker | utility | utility under attack | attack success | questions a task | under attack |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "## What got past the rules",
        "",
        "*Reached the goal*: pairs of tasks in which the static attack failed and an attack of this family "
        "succeeded. *Passed and missed it*: attacks that the rule book allowed but that missed the goal in the "
        "environment, mostly because the substituted tool has a different effect. "
        "`tests/lab/test_dojo_attackers.py` tests one bypass of each family on the service desk, and rules that "
        "close it.",
        "",
        "| suite | rules | family | reached the goal | passed and missed it |",
        "|---|---|---|---|---|",
        *[f"| {' | '.join(key)} | {found[key]} | {missed[key]} |" for key in families],
        "",
        "## Alternatives that were not better",
        "",
        "Measured with static attacks only. The first rule book asks more often than *asking*. The second stops "
        "fewer attacks and needs a statement from the user for each task, which is not counted as a question.",
        "",
        "| idea | suite | utility | attack success | questions a task |",
        "|---|---|---|---|---|",
        *ideas,
        "",
    ]
    publish("\n".join(lines), "dojo.md", write=chosen.write)
    minutes = (time.monotonic() - began) / 60
    print(f"{minutes:.1f} min, {processor_time() / 60:.1f} min of processor time", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
