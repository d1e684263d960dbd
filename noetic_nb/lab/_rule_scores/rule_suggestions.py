"""Rules suggested by recorded runs: chosen on one half of the tasks, scored on the other, never applied.

A rule found among hundreds may fit its runs by luck. So every figure is about tasks that it was not chosen on, and the
test counts tasks, because runs of one task resemble each other.

References
----------
.. [1] Cox, D. R. (1975). A note on data-splitting for the evaluation of significance levels. Biometrika 62, 441-444.
.. [2] Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6, 65-70.
.. [3] Phipson, B., and Smyth, G. K. (2010). Permutation p-values should never be zero. Statistical Applications in Genetics and
   Molecular Biology 9, 39.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.arguments import check_seed
from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb._core.long_work import Progress, Work
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_share
from noetic_nb.lab._rule_scores.evaluation import Evaluation, Evaluator, kind_of
from noetic_nb.lab._rule_scores.rule_candidates import Candidate, TriedCall, describe_rule, rule_candidates, tried_calls
from noetic_nb.lab._statistics.intervals import Cluster, Count, counted
from noetic_nb.lab._statistics.labels import By, Outcome, clusters_of, groups_of, labels_of, runs_in
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import plain_line
from noetic_nb.steering._rules.rule import SteeringRule

if TYPE_CHECKING:
    import pandas


ALPHA: Final = 0.05
PERMUTATIONS: Final = 9_999
# Limits a table of drawn labels to 16 MB.
MAX_CELLS: Final = 2_000_000
# A rule that catches a single run, or runs of a single task, is a coincidence.
MIN_GAIN: Final = 2
MAX_SCORED: Final = 8


@with_card(shown="as HTML")
@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule and its effect on runs of tasks that it was not chosen on.

    Attributes
    ----------
    rule : SteeringRule
        For a person to review and add to a rule book.
    caught : Count
        Stopped runs among those with a successful attack; without attacked runs, among the failed runs.
    blocked : Count
        Stopped runs among those that were solved and not attacked.
    false_rejections : Count
        Denied calls among those that had succeeded in these runs.
    attacker_tasks : Count
        Stopped runs among those in which a user asked for the attacker's task, and it was solved.
    own_calls : int
        Successful calls of the rule's own tool in solved runs: only these can be denied wrongly.
    own_upper : float
        The upper end of the interval for the share of these that the rule denies; NaN if there are none.
    ban : Count
        Runs that a ban of the whole tool stops, among those that `caught` counts.
    like_ban : bool
        Whether the ban also stays within the allowed false rejections: these runs cannot tell the rule from a ban.
    p : float
        The p-value of the difference between the two, corrected for the number of scored rules.
    runs : tuple of str
        Ids of all runs that it would have stopped.
    text : str
        The rule and its figures in one sentence.
    """

    rule: SteeringRule
    caught: Count
    blocked: Count
    false_rejections: Count
    attacker_tasks: Count
    own_calls: int
    own_upper: float
    ban: Count
    like_ban: bool
    p: float
    runs: tuple[str, ...]
    text: str

    def __repr__(self) -> str:
        return plain_line(self.text, 300)

    def _card(self) -> Card:
        names = [each.name for each in fields(self) if each.name not in ("rule", "runs", "text")]
        return Card("Suggestion", self.rule.id, [("", self.text), *[(name, getattr(self, name)) for name in names]])


@with_card(shown="as HTML")
class Suggestions(tuple[Suggestion, ...]):
    """The suggestions, best first; empty if none was found.

    Attributes
    ----------
    tried : int
        The number of rules tried on the first half of the tasks.
    fitted : int
        The number of these that caught more than chance there, within the bound.
    refuted : tuple of Suggestion
        Rules chosen on the first half that failed on the other.
    reason : str
        Why no rule was found; empty if there is one.
    """

    tried: int
    fitted: int
    refuted: tuple[Suggestion, ...]
    reason: str

    def __new__(
        cls,
        found: Iterable[Suggestion] = (),
        *,
        tried: int = 0,
        fitted: int = 0,
        refuted: tuple[Suggestion, ...] = (),
        reason: str = "",
    ) -> Suggestions:
        self = super().__new__(cls, found)
        self.tried, self.fitted, self.refuted, self.reason = tried, fitted, refuted, reason
        return self

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per scored rule, including those that failed.

        Returns
        -------
        pandas.DataFrame
            ``rule, found, p``, and for ``caught``, ``blocked``, ``false_rejections``, ``attacker_tasks`` and ``ban`` the count,
            ``_of``, ``_rate``, ``_low``, ``_high`` and ``_clusters``; ``own_calls``, ``own_upper``, ``like_ban``, ``text``.
        """
        import pandas

        names = ("caught", "blocked", "false_rejections", "attacker_tasks", "ban")
        last = ("own_calls", "own_upper", "like_ban", "text")
        nothing = counted([], [])
        columns = ["rule", "found", "p", *[column for name in names for column in nothing.columns(name)], *last]
        rows = []
        for each, found in [*((one, True) for one in self), *((one, False) for one in self.refuted)]:
            row: dict[str, Any] = {"rule": each.rule.id, "found": found, "p": each.p}
            row |= {name: getattr(each, name) for name in last}
            for name in names:
                row |= getattr(each, name).columns(name)
            rows.append(row)
        return pandas.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        return "\n".join([self._title(), *[f"  {each!r}" for each in self]])

    def _title(self) -> str:
        scored = len(self) + len(self.refuted)
        search = f"{self.tried} rules tried on half of the tasks, {scored} scored on the other half"
        return f"{len(self)} found: {search}." if self else f"None found: {search}. {self.reason}"

    def _card(self) -> Card:
        rows = [
            (each.rule.id, repr(each.caught), repr(each.blocked), repr(each.false_rejections), each.p, each.text)
            for each in self
        ]
        columns = ("rule", "caught", "solved runs stopped", "calls denied that had succeeded", "p", "text")
        return Card("Suggestions", facts=[("", self._title())], table=Table(columns, rows, empty=""))


@dataclass(frozen=True, slots=True)
class _Half:
    """Runs to be separated, by task: one row per task and class, with its proportion of the other runs."""

    bad: frozenset[int]
    good: frozenset[int]
    groups: Sequence[Hashable]
    strata: Sequence[Hashable]
    units: list[tuple[Hashable, bool]] = field(default_factory=list)
    members: dict[tuple[Hashable, bool], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in sorted(self.bad | self.good):
            self.members.setdefault((self.groups[place], place in self.bad), []).append(place)
        self.units.extend(self.members)

    def shares(self, stopped: frozenset[int]) -> list[float]:
        """Return the proportion of stopped runs for each task and class."""
        return [sum(place in stopped for place in runs) / len(runs) for runs in self.members.values()]

    def chances(self, stopped: Sequence[frozenset[int]], seed: int) -> list[float]:
        """Return for each rule how often labels drawn within strata separate its stopped runs as well as the true ones [3]_."""
        import numpy as np

        if not stopped:
            return []
        rng = np.random.default_rng(seed)
        is_bad = np.asarray([bad for _, bad in self.units], dtype=float)
        by_stratum: defaultdict[Hashable, list[int]] = defaultdict(list)
        for at, runs in enumerate(self.members.values()):
            by_stratum[self.strata[runs[0]]].append(at)
        shares = np.asarray([self.shares(each) for each in stopped]).T
        # Summing the same values in another order gives rounding differences.
        observed = is_bad @ shares - 1e-9
        as_good = np.ones(len(stopped))
        most = max(1, MAX_CELLS // len(self.units))
        for begin in range(0, PERMUTATIONS, most):
            labels = np.tile(is_bad, (min(most, PERMUTATIONS - begin), 1))
            for places in by_stratum.values():
                labels[:, places] = rng.permuted(labels[:, places], axis=1)
            as_good += (labels @ shares >= observed).sum(axis=0)
        return [float(count) / (PERMUTATIONS + 1) for count in as_good]


def suggest(
    runs: Run | Iterable[Run],
    *,
    outcome: Outcome = "outcome",
    max_false_rejections: float = 0.01,
    by: By = "task",
    seed: int = 0,
    progress: Progress = True,
) -> Suggestions:
    """Return simple rules that would have stopped attacks, or failed runs, while sparing successful runs.

    For each tool, the rules concern the number and order of its calls, the author of an argument, and its value or
    range. See docs/behaviour/lab.md, "Suggested rules".

    Parameters
    ----------
    runs : Run or iterable of Run
        Recorded runs. Successful attacks (``meta["attack_succeeded"]``) are to be caught; without any, failed runs.
    outcome : str or callable
        A key of ``run.meta`` or a function of a run: True good, False failed, None unknown.
    max_false_rejections : float, share
        The largest share of successful calls in solved runs without an attack that a single rule may deny.
    by : str or callable
        ``"task"``, ``"run"``, or a function of a run that returns its group: halves consist of whole groups.
    seed : int
        The seed of the split and of the test.
    progress : bool or callable
        Called with the numbers of tried and of all rules (None: unknown), then with the number of scored rules; by
        default a line of text in a terminal or notebook if it takes long. False shows nothing.

    Returns
    -------
    Suggestions
        A tuple of `Suggestion`; if none was found it is empty, with a `reason`. No rule is applied.

    Raises
    ------
    NoeticConfigError
        ``INVALID_BOUND``, ``INVALID_RUN``, ``NO_RUNS``, ``NO_LABELS``, ``ONE_CLASS``, ``INVALID_OUTCOME``, ``NO_TASK``,
        ``INVALID_GROUP``, ``TOO_FEW_TASKS`` or ``NO_CALLS``; ``MISSING_PACKAGE`` without the extra ``rules``.

    Warns
    -----
    Interrupted
        If scoring of the chosen rules is interrupted: the unscored ones are left out.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> found = suggest(datasets.agentdojo("banking"))
    >>> found[1].text[:65], found[1].caught.n, found[1].blocked.n
    ('update_password may be called only with the password that the use', 10, 0)
    """
    check_share("INVALID_BOUND", max_false_rejections=max_false_rejections)
    check_seed(seed)
    found = runs_in(runs)
    labels = labels_of(found, outcome)
    bad, good = _classes(found, labels)
    groups = groups_of(found, by)
    calls = tried_calls(found)
    if not calls:
        hint = "Rules are about tool calls; lab.calibrate looks for thresholds of other things."
        raise NoeticConfigError("NO_CALLS", "None of the runs has a tool call.", given=len(found), hint=hint)
    strata = [tuple(run.meta.get(name) for name in ("source", "domain", "suite")) for run in found]
    first = _first_half(groups, strata, bad, good, seed)
    fit = _Half(bad & first, good & first, groups, strata)
    other = frozenset(range(len(found))) - first
    rest = _Half(bad & other, good & other, groups, strata)
    with Work("suggest", "rules tried", progress, keeps=False) as work:
        candidates = list(work.each(rule_candidates(calls, groups, first, fit.good)))
    if not (fit.bad and fit.good and rest.bad and rest.good):
        return Suggestions(tried=len(candidates), reason="One half of the tasks has no good or no failed run.")
    useful = _useful(candidates, calls, fit, max_false_rejections, seed)
    chosen = _chosen(useful, calls, fit)
    if not chosen:
        return Suggestions(tried=len(candidates), reason="No rule of the first half caught more than chance would.")
    judging = _Judging(chosen, calls, found, labels, other, rest, by, max_false_rejections)
    scored = judging.scored(seed, progress)
    kept = [
        one
        for one in scored
        if one.p <= ALPHA and one.false_rejections.n <= max_false_rejections * one.false_rejections.of
    ]
    refuted = tuple([one for one in scored if one not in kept])
    reason = "" if kept else "The rules chosen on the first half did not hold on the other."
    kept.sort(key=lambda one: -one.caught.n)
    return Suggestions(kept, tried=len(candidates), fitted=len(useful), refuted=refuted, reason=reason)


def _classes(runs: Sequence[Run], labels: Sequence[bool | None]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the indices of the runs to catch and of those to spare."""
    kinds = [kind_of(run, label) for run, label in zip(runs, labels, strict=True)]
    caught = "caught" if "caught" in kinds else "failed"
    bad = frozenset([place for place, kind in enumerate(kinds) if kind == caught])
    good = frozenset([place for place, kind in enumerate(kinds) if kind == "blocked"])
    if not bad or not good:
        raise NoeticConfigError(
            "ONE_CLASS",
            f"{len(bad)} runs failed or were attacked with success, {len(good)} were solved without an attack.",
            given={"runs": len(runs), "to catch": len(bad), "to spare": len(good)},
            hint="A rule tells the two apart: add runs of the other kind.",
        )
    return bad, good


def _first_half(
    groups: Sequence[Hashable], strata: Sequence[Hashable], bad: frozenset[int], good: frozenset[int], seed: int
) -> frozenset[int]:
    """Return the indices of the runs of half of the tasks."""
    if len(set(groups)) < 2:
        what = "Rules are chosen on some tasks and scored on others; these runs belong to one task."
        hint = "Add runs of other tasks, or define a task: by=lambda run: ..."
        raise NoeticConfigError("TOO_FEW_TASKS", what, given=groups[0], hint=hint)
    from noetic_nb.lab._detection.fitting import folds_of  # imports numpy

    solved = {groups[place] for place in good}
    kinds = [(stratum, group in solved) for stratum, group in zip(strata, groups, strict=True)]
    folds = folds_of(groups, kinds, [place in bad for place in range(len(groups))], 2, seed)
    return frozenset([place for place, fold in enumerate(folds) if fold == 0])


def _useful(
    candidates: Sequence[Candidate], calls: Sequence[TriedCall], half: _Half, bound: float, seed: int
) -> list[Candidate]:
    """Return the candidates that catch more than chance on a half, within the bound; of equal ones the first."""
    succeeded = frozenset([place for place, call in enumerate(calls) if call.is_ok and call.run in half.good])
    seen: set[frozenset[int]] = set()
    within: list[tuple[Candidate, frozenset[int]]] = []
    for each in candidates:
        stopped = _stopped(each, calls)
        hits = stopped & half.bad
        if len({half.groups[place] for place in hits}) < MIN_GAIN or len(each.denied & succeeded) > bound * len(
            succeeded
        ):
            continue
        if each.denied not in seen:
            seen.add(each.denied)
            within.append((each, stopped))
    chances = half.chances([stopped for _, stopped in within], seed)
    return [each for (each, _), chance in zip(within, chances, strict=True) if chance <= ALPHA]


def _stopped(candidate: Candidate, calls: Sequence[TriedCall]) -> frozenset[int]:
    return frozenset([calls[place].run for place in candidate.denied])


def _chosen(useful: Sequence[Candidate], calls: Sequence[TriedCall], half: _Half) -> list[Candidate]:
    """Return the candidates with the best ratio of caught to stopped runs, in order, as long as they catch more runs."""
    stopped = {id(each): _stopped(each, calls) for each in useful}
    chosen: list[Candidate] = []
    caught: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    def worth(each: Candidate) -> float:
        return len((stopped[id(each)] & half.bad) - caught) / (1 + len((stopped[id(each)] & half.good) - lost))

    while len(chosen) < MAX_SCORED:
        left = [each for each in useful if len((stopped[id(each)] & half.bad) - caught) >= MIN_GAIN]
        if not left:
            break
        best = max(left, key=worth)
        chosen.append(best)
        caught |= stopped[id(best)] & half.bad
        lost |= stopped[id(best)] & half.good
    return chosen


@dataclass(frozen=True, slots=True)
class _Judging:
    """Rules chosen on one half, and the runs of the other half on which they are scored."""

    chosen: Sequence[Candidate]
    calls: Sequence[TriedCall]
    runs: Sequence[Run]
    labels: Sequence[bool | None]
    places: frozenset[int]
    half: _Half
    by: By
    bound: float

    def scored(self, seed: int, progress: Progress) -> list[Suggestion]:
        kept = sorted(self.places)
        by_run = {id(self.runs[place]): self.labels[place] for place in kept}
        some = [self.runs[place] for place in kept]
        evaluator = Evaluator(some, outcome=lambda run: by_run[id(run)], by=self.by)
        evaluations: list[Evaluation] = []
        with Work("suggest", "rules scored", progress, of=len(self.chosen)) as work:
            for each in work.each(self.chosen):
                evaluations.append(evaluator.evaluate([each.rule]))
        stopped = [
            frozenset([place for place, hit in zip(kept, each.stops(), strict=True) if hit]) for each in evaluations
        ]
        chances = _holm(self.half.chances(stopped, seed + 1), len(self.chosen))
        clusters = clusters_of(self.runs, self.by)
        return [
            self._suggestion(each, evaluation, p, clusters)
            for each, evaluation, p in zip(self.chosen, evaluations, chances, strict=False)
        ]

    def _suggestion(
        self, candidate: Candidate, evaluation: Evaluation, p: float, clusters: Sequence[Cluster | None]
    ) -> Suggestion:
        tool, rejected = candidate.tool, evaluation.false_rejections
        of_tool = [(at, call) for at, call in enumerate(self.calls) if call.params.tool_name == tool]
        own = [(at, call.run) for at, call in of_tool if call.is_ok and call.run in self.half.good]
        upper = counted([int(at in candidate.denied) for at, _ in own], [clusters[run] for _, run in own]).high
        bad, reached = sorted(self.half.bad), {call.run for _, call in of_tool}
        ban = counted([int(place in reached) for place in bad], [clusters[place] for place in bad])
        like_ban = len(own) <= self.bound * rejected.of
        text = self._text(candidate.rule, evaluation, p, like_ban, len(own), upper)
        return Suggestion(
            candidate.rule,
            evaluation.caught,
            evaluation.blocked,
            rejected,
            evaluation.attacker_tasks,
            len(own),
            upper,
            ban,
            like_ban,
            p,
            evaluation.stopped(),
            text,
        )

    def _text(
        self, rule: SteeringRule, evaluation: Evaluation, p: float, like_ban: bool, own: int, upper: float
    ) -> str:
        attacked = any(self.runs[place].meta.get("attack_succeeded") for place in self.half.bad)
        denied = f"{evaluation.false_rejections.n} of {own} calls of its tool that had succeeded in these"
        most = "" if isnan(upper) else f" (at most {100 * upper:.0f} %)"
        ban = ". These runs cannot tell it from a ban of the tool" if like_ban else ""
        return (
            f"{describe_rule(rule).removesuffix('.')}: of tasks that it was not chosen on this stops {evaluation.caught} "
            f"{'successful attacks' if attacked else 'failed runs'} and {evaluation.blocked} solved runs, and denies "
            f"{denied}{most} (corrected p = {p:.2g}){ban}."
        )


def _holm(chances: Sequence[float], of: int) -> list[float]:
    """Correct p-values for the number of chosen rules [2]_, even if only some of them were scored."""
    corrected, highest = [nan] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        highest = max(highest, min(1.0, (of - rank) * chances[place]))
        corrected[place] = highest
    return corrected
