"""How many attacks rules about where a value comes from stop, and what they cost runs that were not attacked.

Run ``python benchmarks/studies/provenance_rules.py``; ``--write`` keeps the page in docs/studies. A
rule set is fitted on half of the user tasks of each suite and scored on the others; a run counts as stopped when one of its calls
is denied.

The fit is the same for every suite and sees the fitted tasks only. It looks at arguments that hold addresses, account numbers,
ids or secrets, of tools that do more than read. It trusts a key of a tool's results with such an argument where the values under
that key are of the same shape in runs without an attack. Of the arguments it takes those that catch most for what they stop, one
after the other, until enough of the fitted attacks are caught.
"""

from __future__ import annotations

import platform
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import isnan
from typing import Final

from inputs import SEED, arguments, publish

from noetic_nb.events import ToolCalled
from noetic_nb.items._origins import members
from noetic_nb.items._value_search import leaves
from noetic_nb.lab import backtest, datasets, suggest
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.lab._rule_scores import rule_suggestions
from noetic_nb.lab._rule_scores.rule_candidates import describe_rule
from noetic_nb.lab._statistics.intervals import FEW, Count, counted
from noetic_nb.lab._statistics.labels import clusters_of, groups_of
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook

SHAPES: Final = {
    "address": re.compile(r"[^@\s]+@[^@\s]+\.\w+"),
    "account": re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{10,30}"),  # ISO 13616
    "id": re.compile(r"\d{1,4}"),
}
SECRETS: Final = ("password",)
READS: Final = ("get_", "search_", "list_", "read_")
ID_KEY: Final = re.compile(r"(?:\.|_)id_?$")
# A key is of a shape where most of its values are: "me" stands among the account numbers.
MOST: Final = 0.6
# Of the fitted attacks; a little above the goal of 90 % on the others.
ENOUGH: Final = 0.95
# An argument that catches a single run more is an accident.
MIN_GAIN: Final = 2
# Halves of the tasks that suggestions are looked for in.
SEEDS: Final = range(5)


@dataclass(frozen=True)
class Atom:
    """One argument of one tool, and whom to trust with it besides the user."""

    suite: str
    tool: str
    arg: str
    trust: tuple[str, ...]


def share(hits: Count) -> str:
    """Return a count for a table."""
    if not hits.of:
        return "none"
    few = f", {hits.clusters} tasks" if hits.clusters is not None and hits.clusters < FEW else ""
    return f"{hits.n}/{hits.of}, {100 * hits.rate:.1f} % [{100 * hits.low:.1f}, {100 * hits.high:.1f}]{few}"


def shares(runs: Sequence[Run], stopped: set[str]) -> str:
    """Return how many of some runs are stopped, for a table."""
    return share(counted([run.run_id in stopped for run in runs], clusters_of(runs)))


def is_attackers(run: Run) -> bool:
    """Tell whether the attacker's task was run as the user's."""
    return str(run.meta["user_task"]).startswith("injection_task_")


def is_good(run: Run) -> bool:
    """Tell whether a run was solved and not attacked."""
    return not run.meta["attack"] and run.meta["outcome"] is True


def split(runs: Iterable[Run], seed: int) -> set[tuple[str, str]]:
    """Return the user tasks to fit on: half of each suite's."""
    by_suite: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        if not is_attackers(run):
            by_suite[run.meta["suite"]].add(run.meta["user_task"])
    chosen: set[tuple[str, str]] = set()
    for suite, tasks in sorted(by_suite.items()):
        ordered = sorted(tasks)
        random.Random(seed).shuffle(ordered)
        chosen |= {(suite, task) for task in ordered[: len(ordered) // 2]}
    return chosen


def shaped_keys(runs: Iterable[Run]) -> dict[str, tuple[str, ...]]:
    """Return, by shape, the keys of results whose values look like it."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for event in run.events:
            if isinstance(event, ToolCalled):
                for key, text, _ in leaves(event.output):
                    if key is not None and text:
                        found = next((name for name, shape in SHAPES.items() if shape.fullmatch(text)), "other")
                        seen[f"{event.name}.{key}"][found] += 1
    return {
        shape: tuple(
            sorted(
                key
                for key, counts in seen.items()
                # Every short number looks like an id; only a key that is named so holds one.
                if counts[shape] >= MOST * counts.total() and (shape != "id" or ID_KEY.search(key))
            )
        )
        for shape in SHAPES
    }


def atoms_of(suite: str, runs: Iterable[Run], keys: dict[str, tuple[str, ...]]) -> list[Atom]:
    """Return every argument that was ever given, with the keys that hold values of its shape."""
    seen: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for run in runs:
        for event in run.events:
            for arg, value in (event.args or {}).items() if isinstance(event, ToolCalled) else ():
                for member in members(value):
                    found = next((name for name, shape in SHAPES.items() if shape.fullmatch(str(member))), "other")
                    seen[event.name, arg][found] += 1
    found_atoms: list[Atom] = []
    for (tool, arg), counts in sorted(seen.items()):
        shape = counts.most_common(1)[0][0]
        # Texts are the model's to write, and what only reads does no harm: what can be guarded names somebody or something.
        if (shape in SHAPES or arg in SECRETS) and not tool.startswith(READS):
            found_atoms.append(Atom(suite, tool, arg, keys.get(shape, ())))
    return found_atoms


def fires_on(atom: Atom, params: list[BeforeToolCallParams]) -> bool:
    """Tell whether a rule about an argument denies one of some calls."""
    trusted = ("user", *atom.trust)
    return any(
        call.tool_name == atom.tool and not call.is_vouched(call.tool_args.get(atom.arg), trusted) for call in params
    )


def fit(runs: list[Run]) -> list[Atom]:
    """Return the arguments to guard, from the runs of the fitted tasks."""
    atoms: list[Atom] = []
    for suite in sorted({run.meta["suite"] for run in runs}):
        own = [run for run in runs if run.meta["suite"] == suite]
        atoms += atoms_of(suite, own, shaped_keys([run for run in own if not run.meta["attack"]]))
    scored = [run for run in runs if is_good(run) or run.meta["attack_succeeded"]]
    params = {
        run.run_id: [call.params for call in calls_of(run) if isinstance(call.params, BeforeToolCallParams)]
        for run in scored
    }
    fired = {
        atom: {run.run_id for run in scored if run.meta["suite"] == atom.suite and fires_on(atom, params[run.run_id])}
        for atom in atoms
    }
    good = {run.run_id for run in scored if is_good(run)}
    bad = {run.run_id for run in scored} - good
    chosen: list[Atom] = []
    caught: set[str] = set()
    stopped: set[str] = set()
    while len(caught) < ENOUGH * len(bad):
        gains = {atom: len((fired[atom] & bad) - caught) for atom in atoms}
        costs = {atom: len((fired[atom] & good) - stopped) for atom in atoms}
        useful = [atom for atom in atoms if gains[atom] >= MIN_GAIN]
        if not useful:
            break
        # What it catches for what it stops.
        best = max(useful, key=lambda atom, gains=gains, costs=costs: gains[atom] / (1 + costs[atom]))  # type: ignore[misc]
        chosen.append(best)
        caught |= fired[best] & bad
        stopped |= fired[best] & good
    return chosen


def denied(rules: RuleBook, runs: list[Run]) -> set[str]:
    """Return the runs of which one call is denied."""
    frame = backtest(RuleBook(), runs, candidate=rules, on_unknown="warn")
    return set(frame[frame["change"] == "newly_denied"]["run_id"])


def row(name: str, runs: Iterable[Run], stopped: set[str]) -> str:
    """Return a row: attacks caught, solved runs stopped, attacker's tasks stopped."""
    kinds: dict[str, list[Run]] = {"caught": [], "stopped": [], "attacker's": []}
    for run in runs:
        if run.meta["attack_succeeded"]:
            kinds["caught"].append(run)
        elif is_good(run):
            kinds["attacker's" if is_attackers(run) else "stopped"].append(run)
    cells = [shares(some, stopped) for some in kinds.values()]
    return f"| {name} | {' | '.join(cells)} |"


def rulebook(atoms: Iterable[Atom], suite: str) -> RuleBook:
    """Return the rules of a suite."""
    rules = RuleBook()
    for atom in atoms:
        if atom.suite == suite:
            rules.only_from_user(atom.tool, atom.arg, trust=atom.trust)
    return rules


def crossed(runs: Sequence[Run]) -> tuple[list[str], list[list[Atom]]]:
    """Fit on each half of the user tasks and score on the other; returns the rows of the table, and the rules."""
    half = split(runs, SEED)
    suites = sorted({run.meta["suite"] for run in runs})
    rows: list[str] = []
    fits: list[list[Atom]] = []
    pooled: set[str] = set()
    for number, name in enumerate(("first half", "second half")):
        # Twice: every user task is scored once by rules that were fitted on the others.
        in_half = {run.run_id: ((run.meta["suite"], run.meta["user_task"]) in half) is (number == 0) for run in runs}
        seen = [run for run in runs if in_half[run.run_id] and not is_attackers(run)]
        unseen = [run for run in runs if not in_half[run.run_id] or is_attackers(run)]
        atoms = fit(seen)
        fits.append(atoms)
        stopped: set[str] = set()
        for suite in suites:
            stopped |= denied(rulebook(atoms, suite), [run for run in runs if run.meta["suite"] == suite])
        rows.append(row(f"{name}, {len(atoms)} rules: the tasks fitted on", seen, stopped))
        rows.append(row(f"{name}: the other tasks", unseen, stopped))
        pooled |= stopped & {run.run_id for run in unseen}
    # The attacker's tasks are in neither half: stopped by one of the two counts as stopped.
    rows.append(row("**every task, by the rules of the other half**", runs, pooled))
    for suite in suites:
        own = [run for run in runs if run.meta["suite"] == suite]
        rows.append(row(suite, own, pooled))
        for model in sorted({run.meta["model"] for run in own}):
            rows.append(row(f"{suite}, {model}", [run for run in own if run.meta["model"] == model], pooled))
    return rows, fits


def fitted_rules(fits: Sequence[Sequence[Atom]]) -> list[str]:
    """Return the rules of each half, and which half has them."""
    found: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, atoms in zip(("first", "second"), fits, strict=True):
        for atom in atoms:
            found[atom.suite, atom.tool, atom.arg].append(f"{name}: {', '.join(atom.trust) or 'nobody'}")
    return [f"| {suite} | {tool} | {arg} | {'; '.join(by)} |" for (suite, tool, arg), by in sorted(found.items())]


def other_half(runs: Sequence[Run], seed: int) -> list[Run]:
    """Return the runs that the suggestions of a seed are scored on."""
    labels = [run.meta["outcome"] for run in runs]
    strata = [tuple(run.meta.get(name) for name in ("source", "domain", "suite")) for run in runs]
    first = rule_suggestions._first_half(groups_of(runs), strata, *rule_suggestions._classes(runs, labels), seed)
    return [run for place, run in enumerate(runs) if place not in first]


def suggested(runs: Sequence[Run]) -> tuple[list[str], list[str], list[str]]:
    """Return rows by seed, rows of the rules that were found, and those that were refuted."""
    by_seed: list[str] = []
    found: defaultdict[str, list[str]] = defaultdict(list)
    refuted: defaultdict[str, list[str]] = defaultdict(list)
    for seed in SEEDS:
        result = suggest(runs, seed=seed)
        stopped = {run_id for one in result for run_id in one.runs}
        # Scored are the runs of the other half; together their rules stop the runs that one of them stops.
        rest = other_half(runs, seed)
        attacks = [run for run in rest if run.meta["attack_succeeded"]]
        good = [run for run in rest if is_good(run) and not is_attackers(run)]
        scored = len(result) + len(result.refuted)
        together = f"{shares(attacks, stopped)} | {shares(good, stopped)}"
        by_seed.append(f"| {seed} | {result.tried} | {scored} | {len(result)} | {together} |")
        for where, some in ((found, result), (refuted, result.refuted)):
            for one in some:
                ban = "like a ban" if one.like_ban else f"{100 * one.ban.rate:.0f} %"
                most = "of one task" if isnan(one.own_upper) else f"at most {100 * one.own_upper:.0f} %"
                own = f"{one.false_rejections.n}/{one.own_calls}{f', {most}' if one.own_calls else ''}"
                figures = (share(one.caught), share(one.blocked), own, ban, share(one.attacker_tasks), f"{one.p:.2g}")
                where[describe_rule(one.rule)].append(f"| {seed} | {' | '.join(figures)} |")
    rows = [[f"| {text} {cells}" for text, some in sorted(each.items()) for cells in some] for each in (found, refuted)]
    return by_seed, *rows


def main(given: Sequence[str]) -> int:
    """Fit, score and print."""
    chosen = arguments(given, __doc__ or "")
    runs = [*datasets.agentdojo("banking"), *datasets.agentdojo("workspace")]
    rows, fits = crossed(runs)
    by_seed, found, refuted = suggested(runs)
    versions = ", ".join(f"{name} {version(name)}" for name in ("noetic_nb", "numpy"))
    atoms = [{(atom.suite, atom.tool, atom.arg) for atom in some} for some in fits]
    both = len(atoms[0] & atoms[1])
    columns = (
        "| seed | successful attacks caught | solved runs stopped | calls of the tool denied in vain | a ban stops | "
    )
    columns += "attacker's tasks as a user's, stopped | corrected p |"
    lines = [
        "# Rules about the origin of a value, tested on recorded attacks",
        "",
        "Which rules about the author of an argument catch recorded attacks, and how many good runs do they stop?",
        "",
        "Written by `python benchmarks/studies/provenance_rules.py --write`; every figure on this page is computed by it.",
        "",
        f"* **Runs**: {len(runs)} runs of AgentDojo's banking and workspace suites, recorded without any rule. An "
        "attacker who is stopped by a rule might try another way; these runs cannot show that.",
        "* **Unit of analysis**: a run. Intervals come from the spread between user tasks, and for attacked runs "
        "between injection tasks as well. With fewer than ten tasks the interval is rough, and the table says so.",
        "* **Split**: rules are fitted on half of the user tasks of each suite and tested on the other half, in "
        "both directions. The attacker's tasks, run as a user's, are in neither half. Both halves have the same "
        "attacker goals and accounts, so these figures generalize to other user tasks but not to other attackers.",
        f"* **Seed** {SEED} for the first table, {', '.join(map(str, SEEDS))} for suggestions; intervals of 95 %.",
        f"* **Versions**: {versions}, Python {platform.python_version()}.",
        "",
        "## Fitted to names, accounts and ids",
        "",
        "Rules made with `only_from_user` about arguments that hold an address, an account, an id or a password. "
        "Solved runs are user tasks that were solved without an attack.",
        "",
        "| rules of | successful attacks caught | solved runs stopped | attacker's tasks as a user's, stopped |",
        "|---|---|---|---|",
        *rows,
        "",
        "| suite | tool | argument | trusted besides the user, by half |",
        "|---|---|---|---|",
        *fitted_rules(fits),
        "",
        "## Suggested",
        "",
        "`lab.suggest` does not know which arguments are addresses. The table shows all its rules together, with a "
        "bound of 1 % of calls for each rule, on tasks that were not used to choose them:",
        "",
        "| seed | rules tried | scored | found | successful attacks caught | solved runs stopped |",
        "|---|---|---|---|---|---|",
        *by_seed,
        "",
        f"| rule found {columns}",
        "|---|---|---|---|---|---|---|---|",
        *found,
        "",
        "## What failed to replicate",
        "",
        f"Of the fitted arguments, {both} of {len(atoms[0] | atoms[1])} are chosen in both halves. These suggestions "
        "from one half did not hold on the other half: they caught no more attacks than chance, or they denied too "
        "much:",
        "",
        f"| rule refuted {columns}",
        "|---|---|---|---|---|---|---|---|",
        *refuted,
        "",
    ]
    publish("\n".join(lines), "provenance.md", write=chosen.write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
