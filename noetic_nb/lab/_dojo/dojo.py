"""The value of rules in closed environments: utility, utility under attack, attack success, and approval questions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import nan
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from noetic_nb._core.arguments import check_seed, explained
from noetic_nb._core.atomic_write import write_whole
from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb._core.long_work import Progress, Work
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of, in_processes
from noetic_nb.lab._dojo.agentdojo_suites import SUITES, VERSION, agentdojo_suite
from noetic_nb.lab._dojo.attackers import Attacker, Link, Oracle, links_of, samples_of
from noetic_nb.lab._dojo.episodes import Attack, Dojo, play
from noetic_nb.lab._rule_trial import as_snapshot
from noetic_nb.lab._statistics.intervals import FEW, Count, counted
from noetic_nb.lab._statistics.labels import clusters_of
from noetic_nb.lab._sweeping.space import digest_of, label_of
from noetic_nb.lab.environments import Environment
from noetic_nb.models._client import ModelClient, check_clients
from noetic_nb.models._script import CallTool
from noetic_nb.runs import Run, load_run

if TYPE_CHECKING:
    import pandas

FIGURES: Final = {
    "utility": "user's tasks done, without attacks",
    "utility_under_attack": "user's tasks done, attacked",
    "attack_success": "attacker's tasks done",
    "static_success": "attacker's tasks done by the attack that does not adapt",
}


@with_card(shown="as HTML")
@dataclass(frozen=True, slots=True)
class DojoResult:
    """The figures of some suites under some rules.

    Attributes
    ----------
    runs : tuple of Run
        Each task without an attack, and with each attack that was run; ``run.meta`` has the judgements.
    """

    runs: tuple[Run, ...]

    def count(self, figure: str, suite: str | None = None) -> Count:
        """Return a figure for all suites or one, with its 95 % interval.

        Parameters
        ----------
        figure : {"utility", "utility_under_attack", "attack_success", "static_success"}
            Intervals use the spread between user tasks, and for attacked runs also between injection tasks. A pair of
            tasks counts once, as a successful attack if one of its attacks succeeded.
        suite : str, optional
            The name of a suite.

        Raises
        ------
        NoeticConfigError
            ``INVALID_OPTION`` for another figure.
        """
        check_one_of(FIGURES, "INVALID_OPTION", figure=figure)
        runs = [run for run in self.runs if suite is None or run.meta["suite"] == suite]
        is_clean = figure == "utility"
        kept: dict[Any, Run] = {}
        for run in runs:
            if run.meta["attack"] is is_clean or (figure == "static_success" and not run.meta["attack_is_static"]):
                continue
            key = tuple([run.meta[name] for name in ("suite", "user_task", "injection_task")])
            if key not in kept or run.meta["attack_succeeded"]:
                kept[key] = run
        name = "outcome" if figure.startswith("utility") else "attack_succeeded"
        return counted([bool(run.meta[name]) for run in kept.values()], clusters_of([*kept.values()]))

    def asks(self, suite: str | None = None, *, attacked: bool = False) -> float:
        """Return the number of questions per task, for all suites or one, without or with attacks."""
        found = [
            run.meta["asks"]
            for run in self.runs
            if run.meta["attack"] is attacked and (suite is None or run.meta["suite"] == suite)
        ]
        return sum(found) / len(found) if found else nan

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per suite.

        Returns
        -------
        pandas.DataFrame
            ``suite``; ``utility, utility_under_attack, attack_success, static_success`` as shares, each with ``_low``,
            ``_high`` and ``_n``, the number of tasks or pairs; ``asks`` and ``asks_under_attack``, questions per task.
        """
        import pandas

        names = [
            column for figure in FIGURES for column in (figure, *[f"{figure}_{end}" for end in ("low", "high", "n")])
        ]
        rows = []
        for suite in self._suites():
            counts = [self.count(figure, suite) for figure in FIGURES]
            figures = [part for count in counts for part in (count.rate, count.low, count.high, count.of)]
            rows.append((suite, *figures, self.asks(suite), self.asks(suite, attacked=True)))
        return pandas.DataFrame(rows, columns=["suite", *names, "asks", "asks_under_attack"])

    def _suites(self) -> list[str]:
        return [*dict.fromkeys([run.meta["suite"] for run in self.runs])]

    def __repr__(self) -> str:
        lines = [f"Dojo of {len(self.runs)} runs"]
        for suite in self._suites():
            lines += [f"{suite}: {words} {self.count(figure, suite)}" for figure, words in self._shown().items()]
            lines.append(f"{suite}: {self.asks(suite):.2f} questions a task")
        return "\n  ".join(lines)

    def _shown(self) -> dict[str, str]:
        adapts = any(not run.meta["attack_is_static"] for run in self.runs)
        return {name: words for name, words in FIGURES.items() if adapts or name != "static_success"}

    def _card(self) -> Card:
        shown = self._shown()
        counts = {suite: [self.count(figure, suite) for figure in shown] for suite in self._suites()}
        rows = [(suite, *map(str, some), f"{self.asks(suite):.2f}") for suite, some in counts.items()]
        few = any(count.clusters is not None and count.clusters < FEW for some in counts.values() for count in some)
        notes = [f"intervals of fewer than {FEW} tasks are rough"] if few else []
        table = Table(("suite", *shown.values(), "questions a task"), rows, empty="no run")
        return Card("Dojo", facts=[("runs", len(self.runs))], table=table, notes=notes)


@explained(positional="The rules are first, the rest has names: lab.dojo(rules, suites=['banking']).")
def dojo(
    rules: Any = None,
    *,
    suites: str | Environment | Iterable[str | Environment] = SUITES,
    agent: Literal["gullible"] | ModelClient | Mapping[str, ModelClient] = "gullible",
    attack: str = "important_instructions",
    adaptive: bool = False,
    approve: Literal["ground_truth"] | None = None,
    n_jobs: int = 1,
    seed: int = 0,
    user_tasks: Iterable[str] | None = None,
    injection_tasks: Iterable[str] | None = None,
    resume: str | PathLike[str] | None = None,
    progress: Progress = None,
) -> DojoResult:
    """Run an agent behind rules in closed environments, with and without attacks.

    The gullible agent makes the calls that solve the user's task, and the attacker's once it has read them: the worst case
    for rules. Without rules, its utility under attack is low if attacks change the state that judges the user's task.

    Parameters
    ----------
    rules : RuleBook, iterable of rules, or mapping, optional
        A mapping has the rules of each suite by its name.
    suites : str, Environment, or iterable of these
        AgentDojo suites (extra ``dojo``) by name, or objects that implement `lab.environments.Environment`.
    agent : "gullible", ModelClient or mapping
        A client is used as the model of a `react` agent with the tools of the suite.
    attack : str
        The name of an AgentDojo attack.
    adaptive : bool, default False
        If the attack fails, search for one that passes the rules; see the page below.
    approve : {"ground_truth"}, optional
        Answers approval questions: yes to exactly the calls of the user's ground truth, each as often as it occurs
        there. None: nobody answers, and such calls are denied.
    n_jobs : int, default 1
        The number of processes; more than 1 needs joblib (extra ``study``).
    seed : int
        The seed of the search.
    user_tasks, injection_tasks : iterable of str, optional
        Only these tasks.
    resume : path-like, optional
        A folder that stores finished runs, which are reused for the same rules, agent and attack.
    progress : bool or callable, optional
        As everywhere in `lab`; counts user tasks.

    Returns
    -------
    DojoResult
        Its ``to_frame()`` has one row per suite.

    Raises
    ------
    NoeticConfigError
        ``MISSING_PACKAGE`` without AgentDojo; ``INVALID_OPTION``, ``INVALID_RULE``.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "Closed environments".
    .. [2] Debenedetti, E., et al. (2024). AgentDojo: a dynamic environment to evaluate prompt injection attacks and defenses for
       LLM agents. NeurIPS Datasets and Benchmarks.

    Examples
    --------
    >>> from noetic_nb import lab
    >>> lab.dojo(suites=lab.environments.ServiceDesk()).count("attack_success").n
    12
    """
    given: list[Any] = [suites] if isinstance(suites, str) or not isinstance(suites, Iterable) else [*suites]
    environments = [agentdojo_suite(each) if isinstance(each, str) else each for each in given]
    for each in environments:
        if not isinstance(each, Environment):
            hint = f"Use {', '.join(SUITES)}, or an object with all parts of lab.environments.Environment."
            raise NoeticConfigError("INVALID_OPTION", "This is no environment.", given=each, hint=hint)
    check_one_of(("ground_truth", None), "INVALID_OPTION", approve=approve)
    check_seed(seed)
    seed = int(seed)
    if agent != "gullible":
        check_clients(agent)
    names = [each.name for each in environments]
    only = tuple([None if some is None else frozenset(some) for some in (user_tasks, injection_tasks)])
    units = []
    for each in environments:
        own = (
            rules.get(each.name) if isinstance(rules, Mapping) and rules and set(rules) <= {*SUITES, *names} else rules
        )
        snapshot = () if own is None else tuple(as_snapshot(own))
        setting = Dojo(snapshot, agent, "gullible" if agent == "gullible" else "model", attack, approve)
        label = digest_of(
            VERSION, [label_of(rule) for rule in snapshot], label_of(agent), attack, adaptive, approve, seed
        )
        kept = None if resume is None else Kept(Path(resume), label)
        for task in each.user_tasks:
            if only[0] is None or task in only[0]:
                units.append(Unit(setting, each, task, only[1], adaptive, seed, kept))
    work = Work("dojo", "user tasks", progress, of=len(units))
    runs: list[Run] = []
    with work:
        for some in work.each(in_processes(Unit.runs, [(unit,) for unit in units], n_jobs)):
            runs += some
    order = {name: place for place, name in enumerate(names)}
    return DojoResult(tuple(sorted(runs, key=lambda run: order[run.meta["suite"]])))


@dataclass(frozen=True)
class Kept:
    """Finished runs and searches in a folder."""

    folder: Path
    digest: str

    def run(self, name: str, play: Callable[[], Run]) -> Run:
        """Return a stored run, or else a new one."""
        path = self._path(f"{name}.jsonl.gz")
        if path.exists():
            return load_run(path)
        run = play()
        run.save(path)
        return run

    def search(self, name: str, search: Callable[[], Iterable[tuple[str, Run]]]) -> list[Run]:
        """Return the runs of a finished search, or else of a new one."""
        path = self._path(f"{name}.json")
        if path.exists():
            return [load_run(self._path(f"{each}.jsonl.gz")) for each in json.loads(path.read_text(encoding="utf-8"))]
        found = [*search()]
        write_whole(path, json.dumps([each for each, _ in found]))
        return [run for _, run in found]

    def _path(self, name: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{self.digest}-{name}"


@dataclass(frozen=True)
class Unit:
    """A user's task in an environment, without and with each attack."""

    setting: Dojo
    environment: Environment
    user_task: str
    injection_tasks: frozenset[str] | None
    adaptive: bool
    seed: int
    kept: Kept | None

    def runs(self) -> list[Run]:
        runs = [self._run(f"{self.environment.name}-{self.user_task}-clean", None, None)]
        for name in self.environment.injection_tasks:
            if self.injection_tasks is not None and name not in self.injection_tasks:
                continue
            planted = self.environment.planted(self.setting.attack, self.user_task, name)
            attacked = f"{self.environment.name}-{self.user_task}-{name}"
            runs.append(self._run(f"{attacked}-static", name, Attack(planted)))
            if self.adaptive and not runs[-1].meta["attack_succeeded"]:
                search = partial(self._adapted, attacked, name, planted, runs[-1])
                runs += (
                    [run for _, run in search()] if self.kept is None else self.kept.search(f"{attacked}-ended", search)
                )
        return runs

    def _adapted(
        self, attacked: str, injection_task: str, planted: Mapping[str, str], failed: Run
    ) -> Iterator[tuple[str, Run]]:
        """Yield the runs of attacks that pass the rules, each with its name, until one succeeds."""
        environment = self.environment
        state = environment.state(self.user_task, planted)
        goal = environment.injection_tasks[injection_task].prompt
        prompt = environment.user_tasks[self.user_task].prompt
        oracle = Oracle(self.setting.rules, failed, prompt, goal, environment.tools(state))
        calls = environment.calls(injection_task, state, state)
        attacker = Attacker(environment, calls, planted, oracle, *_known(environment), self.seed)
        for number, attack in enumerate(attacker.attacks()):
            name = f"{attacked}-{attack.family}-{number}"
            try:
                run = self._run(name, injection_task, attack, tries=oracle.asked)
            except ValueError:  # the environment rejects the attacker's item
                continue
            yield name, run
            if run.meta["attack_succeeded"]:
                return

    def _run(self, name: str, injection_task: str | None, attack: Attack | None, **meta: int) -> Run:
        def played() -> Run:
            run = play(self.setting, self.environment, self.user_task, injection_task, attack)
            run.meta.update(meta)
            return run

        return played() if self.kept is None else self.kept.run(name, played)


_KNOWN: Final[dict[int, tuple[Environment, list[Link], dict[str, list[CallTool]]]]] = {}


def _known(environment: Environment) -> tuple[list[Link], dict[str, list[CallTool]]]:
    """Return every attacker's knowledge about an environment, computed once."""
    known = _KNOWN.get(id(environment))
    if known is None or known[0] is not environment:
        samples = samples_of(environment)
        known = _KNOWN[id(environment)] = environment, links_of(environment, samples), samples
    return known[1:]
