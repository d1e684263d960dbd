"""Recorded runs for experiments, without a key and without a network.

The runs are new at each call, so one may append to them; the data behind them is read once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab.agentdojo import load_agentdojo
from noetic_nb.lab.trajectories import run_of
from noetic_nb.runs import Run
from noetic_nb.runs.load import MAX_BYTES, read_gzip

__all__ = ["DATA", "airline", "airline_run", "load_agentdojo", "load_trajectories"]

DATA: Final = Path(__file__).with_name("data")
"""The folder of the packaged data."""

_AIRLINE: Final = DATA / "airline.json.gz"
_SOURCE: Final = "tau-bench airline"
_GZIP: Final = b"\x1f\x8b"


def _fail(path: object, what: str, index: int | None = None, cause: BaseException | None = None) -> NoReturn:
    place = "" if index is None else f" at entry {index}"
    raise NoeticError(
        "invalid_run_file",
        f"{str(path)!r} cannot be read{place}: {what}",
        hint="Pass a list of trajectories in the form of tau-bench, as .json or .json.gz.",
        path=str(path),
        line=None,
        index=index,
    ) from cause


def _entries(path: str | PathLike[str], max_bytes: int) -> list[Mapping[str, Any]]:
    try:
        with open(path, "rb") as file:
            start = file.read(2)
            content = b"" if start == _GZIP else start + file.read(max_bytes)
    except OSError as error:
        _fail(path, error.strerror or str(error), cause=error)
    # By content, not by name: files are often renamed on their way.
    if start == _GZIP:
        content = read_gzip(path, max_bytes=max_bytes)
    if len(content) > max_bytes:
        _fail(path, f"it holds more than {max_bytes:,} bytes; pass a larger max_bytes if you trust it")
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        _fail(path, f"it is not JSON ({error})", cause=error)
    if not isinstance(entries, list):
        _fail(path, "it holds no list")
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict):
            _fail(path, "it is no trajectory", place)
    return entries


def load_trajectories(path: str | PathLike[str], *, name: str = "airline", max_bytes: int = MAX_BYTES) -> list[Run]:
    """Read recorded conversations in the form of tau-bench as runs.

    Parameters
    ----------
    path : path-like
        A JSON list, plain or gzipped. Each entry has ``traj`` (chat messages), ``reward``, ``task_id`` and ``trial``.
    name : str
        Runs and their threads are called ``<name>-<index>``.
    max_bytes : int, bytes
        Most the file may unpack to.

    Returns
    -------
    list of Run
        In the order of the file. ``meta`` has ``index``, ``task_id``, ``trial``, ``reward``, ``task`` (what the simulated user
        wanted) and ``policy`` (the system prompt).

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
    return [_built(path, place, entry, name) for place, entry in enumerate(_entries(path, max_bytes))]


def _built(path: str | PathLike[str], place: int, entry: Mapping[str, Any], name: str) -> Run:
    index = entry.get("index", place)
    if type(index) is not int:
        _fail(path, f"its `index` must be a whole number, but is {index!r:.80}", place)
    source = _SOURCE if name == "airline" else name
    return run_of(entry, index, name=name, source=source, complain=lambda what: _fail(path, what, place))


# The parsed data is shared and never changed; runs are made of it anew at each call.
@cache
def _packaged() -> dict[int, Mapping[str, Any]]:
    return {entry["index"]: entry for entry in _entries(_AIRLINE, MAX_BYTES)}


def airline(n: int | None = None) -> list[Run]:
    """Return recorded runs of an airline's service agent: 20 of tau-bench, ten that succeeded and ten that did not.

    Parameters
    ----------
    n : int, optional
        Only the first so many.

    Returns
    -------
    list of Run
        Ordered by ``meta["index"]``, the number in the full data set; ``meta["reward"]`` is 1.0 for success.

    Raises
    ------
    NoeticConfigError
        ``INVALID_COUNT`` if there are not so many.

    Notes
    -----
    MIT licence, copyright 2024 Sierra; the text is beside the data.

    Examples
    --------
    >>> [run.run_id for run in airline(2)]
    ['airline-3', 'airline-4']
    """
    packaged = _packaged()
    most = len(packaged)
    if n is not None and (type(n) is not int or not 0 <= n <= most):
        raise NoeticConfigError(
            "INVALID_COUNT",
            f"The package holds {most} airline runs.",
            given=n,
            hint="Use load_trajectories for a file of your own.",
        )
    return [_built(_AIRLINE, index, entry, "airline") for index, entry in list(packaged.items())[:n]]


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
    packaged = _packaged()
    number = key.removeprefix("airline-") if isinstance(key, str) else key
    index = int(number) if isinstance(number, str) and number.isascii() and number.isdigit() else number
    if type(index) is not int or index not in packaged:
        raise NoeticConfigError(
            "UNKNOWN_RUN",
            "The package has no such airline run.",
            given=key,
            hint=f"It has {', '.join(map(str, packaged))}.",
        )
    return _built(_AIRLINE, index, packaged[index], "airline")
