"""Argument checks shared by several experiments, and work in several processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import starmap
from os import PathLike
from typing import Any, TypeVar

from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs import Run

T = TypeVar("T")


def check_run(run: object, what: str, *, code: str = "INVALID_RUN") -> Run:
    """Return a run; raises `NoeticConfigError` ``INVALID_RUN`` for any other object."""
    if not isinstance(run, Run):
        hint = "nn.record(harness), nn.load_run(path), nn.import_run(path) and nn.lab.datasets give runs."
        if isinstance(run, str | PathLike):
            hint = "Open it: nn.load_run(path), nn.import_run(path) for a trace, nn.open_runs(folder) for a folder."
        elif type(run).__name__ == "Failed":
            hint = "This recording could not be read: see its `error`, and leave it out."
        raise NoeticConfigError(code, what, given=run, hint=hint)
    return run


def each_run(runs: Any, what: str, *, code: str = "INVALID_RUN") -> Iterator[Run]:
    """Yield a run, or each of several; raises what `check_run` raises."""
    for run in runs if isinstance(runs, Iterable) and not isinstance(runs, Run | str) else (runs,):
        yield check_run(run, what, code=code)


def check_one_of(known: Collection[Any], code: str, **given: Any) -> None:
    """Refuse option values that are not among the known ones; raises `NoeticConfigError` with the code."""
    for name, value in given.items():
        if value not in list(known):  # unlike a look in a mapping, this takes lists, too
            hint = f"Use one of {', '.join(map(str, known))}."
            raise NoeticConfigError(code, f"`{name}` does not take this value.", given=value, hint=hint)


def check_share(code: str = "INVALID_SHARE", **given: Any) -> None:
    """Refuse options that are not numbers from 0 to 1; raises `NoeticConfigError` with the code."""
    for name, value in given.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise NoeticConfigError(code, f"{name} must be from 0 to 1.", given=value, hint=f"For example: {name}=0.5.")


def is_number(value: object) -> bool:
    """Tell whether a value is a number; a bool or NaN is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def in_processes(work: Callable[..., T], calls: Iterable[tuple[Any, ...]], n_jobs: int) -> Iterator[T]:
    """Yield the result of each call in order, computed in `n_jobs` processes."""
    if n_jobs == 1:
        yield from starmap(work, calls)
        return
    hint = "pip install 'noetic_nb[study]', or n_jobs=1."
    with optional_package("Several processes need joblib.", hint, given=n_jobs):
        import joblib
    yield from joblib.Parallel(n_jobs=n_jobs, return_as="generator")(joblib.delayed(work)(*args) for args in calls)
