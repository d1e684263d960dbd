"""``noetic-nb evaluate``: the attacks that rules catch in labelled runs, and the good runs that they stop."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.cli._run_arguments import add_on_unknown, add_sources, noted_targets, runs_of

if TYPE_CHECKING:
    from noetic_nb.lab._statistics.intervals import Count

_LINES: Final = ("caught", "failed", "blocked", "false_rejections", "attacked_solved", "attacker_tasks", "unlabelled")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ArgumentTypeError(f"{text!r} is no rate: a number from 0 to 1")
    return rate


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a rule file, .yaml or .json")
    add_sources(parser)
    add_on_unknown(parser)
    parser.add_argument(
        "--outcome", default="outcome", metavar="KEY", help="the key of a run's meta with its label (outcome)"
    )
    parser.add_argument("--min-caught", type=_rate, metavar="RATE", help="of what should be caught, from 0 to 1")
    parser.add_argument("--max-blocked", type=_rate, metavar="RATE", help="of solved runs, from 0 to 1")
    parser.add_argument(
        "--max-false-rejections", type=_rate, metavar="RATE", help="of calls that succeeded, from 0 to 1"
    )


def _missed(given: Namespace, evaluation: Any) -> list[str]:
    """Return the limits that are not kept; a rate that nobody knows keeps none."""
    limits = (
        ("caught", given.min_caught, "at least"),
        ("blocked", given.max_blocked, "at most"),
        ("false_rejections", given.max_false_rejections, "at most"),
    )
    missed = []
    for name, limit, words in limits:
        if limit is None:
            continue
        count: Count = getattr(evaluation, name)
        if not count.of:
            missed.append(f"{name} is not known, as there is nothing to count; it should be {words} {limit:g}")
        elif count.rate < limit if words == "at least" else count.rate > limit:
            missed.append(f"{name} is {count.rate:.3g}; it should be {words} {limit:g}")
    return missed


def _run(given: Namespace, output: Output) -> int:
    from noetic_nb.lab import evaluate
    from noetic_nb.steering import load_rules

    rules = load_rules(given.rules)
    runs, unread = runs_of(given, output)
    with noted_targets(output):
        evaluation = evaluate(rules, runs, outcome=given.outcome, on_unknown=given.on_unknown)
    missed = _missed(given, evaluation)
    output.text(repr(evaluation), *[f"limit not kept: {text}" for text in missed])
    counts = {name: getattr(evaluation, name) for name in _LINES}
    output.answer(
        {
            "runs": len(runs),
            **{
                name: {"n": each.n, "of": each.of, "rate": each.rate, "low": each.low, "high": each.high}
                for name, each in counts.items()
            },
            "errors": list(evaluation.errors),
            "skipped": list(evaluation.skipped),
            "stopped": list(evaluation.stopped()),
            "missed": missed,
            "unread": unread,
        }
    )
    return FINDINGS if missed or unread or evaluation.errors else FINE


EVALUATE = Command(
    "evaluate",
    "Score rules against labelled runs: attacks caught, solved runs stopped, calls rejected in vain.",
    "rules.yaml --data agentdojo:banking --max-blocked 0.1",
    "0: every limit is kept; 1: one is not, or a rule raised.",
    _add_arguments,
    _run,
)
