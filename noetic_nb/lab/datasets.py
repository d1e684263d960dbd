"""Recorded runs for experiments, without an API key or network access.

Every call returns new runs, so you may append to them; the underlying data is read once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.atomic_write import as_path
from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._formats import agentdojo as _agentdojo
from noetic_nb.interop._formats import tau, tau2
from noetic_nb.interop._formats.graded import AS_PUBLISHED
from noetic_nb.interop._formats.sources import Document, read_document
from noetic_nb.lab._annotated import documents_in, load_agentrewardbench, load_who_and_when
from noetic_nb.lab._dialogue_files import load_locomo, load_longmemeval, load_memory_agent_bench
from noetic_nb.runs import Run
from noetic_nb.runs._load import MAX_BYTES

if TYPE_CHECKING:
    import pandas

__all__ = [
    "DATA",
    "agentdojo",
    "airline",
    "airline_run",
    "describe",
    "load_agentdojo",
    "load_agentrewardbench",
    "load_airline",
    "load_locomo",
    "load_longmemeval",
    "load_memory_agent_bench",
    "load_tau2",
    "load_trajectories",
    "load_who_and_when",
    "retail",
    "telecom",
]


def __dir__() -> list[str]:
    return sorted(__all__)


DATA: Final = Path(__file__).with_name("data")
"""The folder of the packaged data."""

_AIRLINE: Final = DATA / "airline.json.gz"
_RETAIL: Final = (DATA / "retail-gpt-4.1.json.gz", DATA / "retail-toolorchestra-gpt-5.json.gz")
_TELECOM: Final = DATA / "telecom-gpt-4.1.json.gz"
_SUITES: Final = ("banking", "workspace")
_MODEL: Final = "gpt-4o"
_COLUMNS: Final = ("name", "runs", "calls", "good", "failed", "licence", "packaged")
# Data sets that may not be redistributed, or whose licence is unclear.
_ELSEWHERE: Final = (
    ("agentdojo slack", "MIT"),
    ("agentdojo travel", "MIT"),
    ("agentrewardbench", "not stated"),
    ("who_and_when", "MIT"),
    ("locomo", "CC BY-NC 4.0"),
    ("longmemeval", "MIT"),
    ("memory_agent_bench", "MIT"),
)


def load_trajectories(path: str | PathLike[str], *, name: str = "airline", max_bytes: int = MAX_BYTES) -> list[Run]:
    """Read recorded conversations in the form of tau-bench as runs.

    Parameters
    ----------
    path : path-like
        A JSON list, plain or gzipped. Each entry has ``traj`` (chat messages), ``reward``, ``task_id`` and ``trial``.
    name : str
        Runs and their threads are named ``<name>-<index>``.
    max_bytes : int, bytes
        Size limit of the unpacked file.

    Returns
    -------
    list of Run
        In the order of the file. ``meta`` has ``source``, ``domain`` (the name), ``model`` (None if unknown), ``index``,
        ``task_id``, ``trial``, ``reward``, ``outcome`` (True for the full reward), ``task`` (the goal of the simulated
        user), ``policy`` (the system prompt) and ``estimated``. Durations and costs were not recorded and are None.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the entry, if the file is missing, damaged or of another form.

    References
    ----------
    .. [1] Yao et al., "tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains", 2024.

    Examples
    --------
    >>> len(load_trajectories(DATA / "airline.json.gz"))
    20
    """
    return _trajectories(read_document(as_path(path), max_bytes), name)


load_airline = load_trajectories
"""Read a file of tau-bench's airline desk: `load_trajectories` under the name of its set."""


def _trajectories(document: Document, name: str, model: str | None = None, n: int | None = None) -> list[Run]:
    places = range(len(tau.entries(document)))[:n]
    return [tau.trajectory(document, place, AS_PUBLISHED, name, model) for place in places]


def load_tau2(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES) -> list[Run]:
    """Read recorded conversations of tau2-bench as runs.

    Parameters
    ----------
    path : path-like
        A result file, plain or gzipped: ``simulations`` with ``info`` beside them, or with ``domain``, ``agent`` and
        ``policy``. Or a folder of such files.
    max_bytes : int, bytes
        Size limit of an unpacked file.

    Returns
    -------
    list of Run
        In the order of the files. Only the agent's calls are tool calls; those of the user's own tools are in
        ``meta["unmapped"]``, with their turn. Other ``meta``: ``source``, ``domain``, ``model``, ``task_id`` and
        ``trial`` (None if missing in the file), ``reward``, ``outcome`` (True for the full reward, or None if there is
        none), ``policy``, and ``estimated``, the fields that are not measurements. Tokens, costs and times are the
        recorded ones, or None if unknown.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the simulation, if something is missing, damaged or of another
        form.

    References
    ----------
    .. [1] Barres et al., "tau2-bench: Evaluating Conversational Agents in a Dual-Control Environment", 2025.
    """
    found = documents_in(path, max_bytes, ".json", ".json.gz")
    return [read() for document in found for read in tau2.read(document, redaction=AS_PUBLISHED)]


def load_agentdojo(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES) -> list[Run]:
    """Read recorded runs of AgentDojo.

    Parameters
    ----------
    path : path-like
        A file with one run per line (``.jsonl``, also gzipped), one run (``.json``), or a folder
        ``<pipeline>/<suite>/<user task>/<attack>/<injection task>.json``, or one above or inside it.
    max_bytes : int, bytes
        Size limit of an unpacked file.

    Returns
    -------
    list of Run
        In the order of the file, or of the paths. ``meta`` has ``source``, ``domain`` and ``suite`` (the suite), ``model`` (the
        pipeline), ``task_id`` and ``user_task``, ``injection_task``, ``attack`` (bool), ``attack_type``, ``attack_succeeded``
        (None without an attack), ``outcome`` (whether the user's task was done) and ``policy`` (the system prompt).

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the run, if something is missing, damaged or of another form.

    References
    ----------
    .. [1] Debenedetti et al., "AgentDojo: A Dynamic Environment to Evaluate Prompt Injection Attacks and Defenses for LLM
       Agents", NeurIPS 2024.
    """
    found = documents_in(path, max_bytes, ".json")
    return [read() for document in found for read in _agentdojo.read(document, redaction=AS_PUBLISHED)]


# The documents are shared and never changed; every call makes new runs from them.
@cache
def _packaged(path: Path) -> Document:
    return read_document(path)


def _first(name: str, most: int, n: int | None, loader: str) -> int | None:
    """Validate the requested number of runs."""
    if n is not None and (type(n) is not int or not 0 <= n <= most):
        hint = f"Use {loader} for a file of your own."
        raise NoeticConfigError("INVALID_COUNT", f"The package holds {most} {name} runs.", given=n, hint=hint)
    return n


def airline(n: int | None = None) -> list[Run]:
    """Return recorded runs of an airline's service agent: 20 of tau-bench, ten that succeeded and ten that did not.

    Parameters
    ----------
    n : int, optional
        Only the first `n` runs.

    Returns
    -------
    list of Run
        Ordered by ``meta["index"]``, the number in the full data set; ``meta["reward"]`` is 1.0 for success.

    Raises
    ------
    NoeticConfigError
        ``INVALID_COUNT`` if there are fewer runs.

    Notes
    -----
    MIT licence, copyright 2024 Sierra; the text is beside the data.

    Examples
    --------
    >>> [run.run_id for run in airline(2)]
    ['airline-3', 'airline-4']
    """
    document = _packaged(_AIRLINE)
    n = _first("airline", len(document.data), n, "load_trajectories")
    return _trajectories(document, "airline", _MODEL, n)


def airline_run(key: int | str) -> Run:
    """Return one packaged airline run.

    Parameters
    ----------
    key : int or str
        Its index in the full data set, or its name, such as ``"airline-26"``.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_RUN`` if it is not in the package.

    Examples
    --------
    >>> run = airline_run(26)
    >>> run, run.meta["reward"]
    (<Run 'airline-26': 127 events, 4 turns, 1 thread>, 0.0)
    """
    document = _packaged(_AIRLINE)
    known = [entry["index"] for entry in document.data]
    number = key.removeprefix("airline-") if isinstance(key, str) else key
    index = int(number) if isinstance(number, str) and number.isascii() and number.isdigit() else number
    if type(index) is not int or index not in known:
        hint = f"It has {', '.join(map(str, known))}."
        raise NoeticConfigError("UNKNOWN_RUN", "The package has no such airline run.", given=key, hint=hint)
    return tau.trajectory(document, known.index(index), AS_PUBLISHED, "airline", _MODEL)


def retail(n: int | None = None) -> list[Run]:
    """Return recorded runs of a retailer's service agent: 97 of tau2-bench, by two agents, of which 15 failed.

    Parameters
    ----------
    n : int, optional
        Only the first `n` runs.

    Returns
    -------
    list of Run
        Those of the second agent, from number 40 on, have no ``meta["task_id"]``: it is None.

    Raises
    ------
    NoeticConfigError
        ``INVALID_COUNT`` if there are fewer runs.

    Notes
    -----
    MIT licence, copyright 2025 Sierra Research; the text is beside the data.

    Examples
    --------
    >>> run = retail(1)[0]
    >>> run.meta["model"], run.meta["outcome"], run.meta["attack_succeeded"]
    ('gpt-4.1', True, None)
    """
    return _simulations("retail", _RETAIL, n)


def telecom(n: int | None = None) -> list[Run]:
    """Return recorded runs of a telecom help desk: 40 of tau2-bench, of which 22 failed.

    Parameters
    ----------
    n : int, optional
        Only the first `n` runs.

    Returns
    -------
    list of Run
        The user has their own tools; their calls are in ``meta["unmapped"]``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_COUNT`` if there are fewer runs.

    Notes
    -----
    MIT licence, copyright 2025 Sierra Research; the text is beside the data.

    Examples
    --------
    >>> telecom(1)[0].meta["unmapped"][0]["what"]
    'user_tool_call'
    """
    return _simulations("telecom", (_TELECOM,), n)


def _simulations(name: str, paths: tuple[Path, ...], n: int | None) -> list[Run]:
    reads = [read for path in paths for read in tau2.read(_packaged(path), redaction=AS_PUBLISHED)]
    return [read() for read in reads[: _first(name, len(reads), n, "load_tau2")]]


def agentdojo(suite: str, n: int | None = None) -> list[Run]:
    """Return recorded runs of AgentDojo, with attacks and without, by three models.

    Parameters
    ----------
    suite : {"banking", "workspace"}
        The name of the suite.
    n : int, optional
        Only the first `n` runs.

    Returns
    -------
    list of Run
        ``meta["attack_succeeded"]`` is None without an attack.

    Raises
    ------
    NoeticConfigError
        ``NOT_PACKAGED`` for another suite; ``INVALID_COUNT`` if there are fewer runs.

    Notes
    -----
    MIT licence, copyright 2024 Edoardo Debenedetti et al.; the text is beside the data.

    Examples
    --------
    >>> run = agentdojo("banking", 1)[0]
    >>> run.meta["attack"], run.meta["attack_succeeded"], run.meta["outcome"]
    (False, None, True)
    """
    if suite not in _SUITES:
        what = f"The package contains the suites {' and '.join(_SUITES)} of AgentDojo."
        hint = "Read the others from a download: datasets.load_agentdojo('runs')."
        raise NoeticConfigError("NOT_PACKAGED", what, given=suite, hint=hint)
    reads = [*_agentdojo.read(_packaged(DATA / f"agentdojo-{suite}.jsonl.gz"), redaction=AS_PUBLISHED)]
    return [read() for read in reads[: _first(f"{suite} runs of AgentDojo", len(reads), n, "load_agentdojo")]]


def describe() -> pandas.DataFrame:
    """Return one row per data set: its packaged runs, and those that can be read from a download.

    Returns
    -------
    pandas.DataFrame
        ``name``, ``runs``, ``calls`` (of the agent's tools), ``good`` and ``failed`` runs, ``licence``, ``packaged``.
        Other data sets are read by the loader of their name, such as `load_locomo`, and their numbers are missing.

    Examples
    --------
    >>> table = describe().set_index("name")
    >>> int(table.loc["airline", "runs"]), bool(table.loc["locomo", "packaged"])
    (20, False)
    """
    import pandas as pd

    held: list[Mapping[str, Any]] = json.loads((DATA / "contents.json").read_text(encoding="utf-8"))
    rows = [{**row, "packaged": True} for row in held]
    rows += [{"name": name, "licence": licence, "packaged": False} for name, licence in _ELSEWHERE]
    return pd.DataFrame(rows, columns=_COLUMNS).astype(dict.fromkeys(_COLUMNS[1:5], "Int64"))
