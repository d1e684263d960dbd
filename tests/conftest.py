"""What holds for the whole suite: the order of its groups, time that passes at once, and patience with slow machines."""

from __future__ import annotations

import asyncio
import doctest
import gc
import linecache
import os
import random
import re
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbmake.pytest_items
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from hypothesis.internal import entropy

from noetic_nb.testing._clock import VirtualTimeLoop
from tests.kernels import forked
from tests.matrix import several
from tests.notebooks.shown import SharedRun
from tests.worker_reports import pytest_plugin_registered

__all__ = ["pytest_plugin_registered"]  # a hook

# Workers keep every processor busy: threads of BLAS and OpenMP, here and in kernels, would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Providers are endpoints on this machine, without encryption. Where a file of authorities is named, each client of one would read
# it: a twentieth of a second.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

# A shared machine may stall for a second; that is not a property of the code.
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=several(20, 500)
)
settings.load_profile("suite")

# Nothing here draws from the random numbers that all of numpy shares (ruff's NPY002): hypothesis would read and set all 624 words
# of their state for every example, which takes longer than many an example.
entropy.NP_RANDOM = random

BROWSER = "tests/browser/"
NOTEBOOKS = "notebooks/"  # and tests/notebooks/
NOTEBOOK = re.compile(r"tests/notebooks/test_same_twice\.py::\w+\[(\w+)\]|notebooks/(\w+)\.ipynb::.*")
"""A test of what one notebook shows, or of nbmake: it is run once for all of them."""
TOUR = "tests/notebooks/test_tour_file.py"
WORKER_BYTES = 3 * 2**30
"""What a worker takes with its browser, server and kernels, at most."""
LONG_S = 900
"""Limit of a test that starts other processes, seconds: a hundred kills take minutes."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Any]:
    return {"loop": VirtualTimeLoop if item.get_closest_marker("virtual_time") else asyncio.new_event_loop}


class QuickFinder(doctest.DocTestFinder):
    """Finds examples as its parent does, which would look up the line of each of eight thousand names that have none."""

    def _get_test(self, obj: object, *others: Any) -> doctest.DocTest | None:
        return super()._get_test(obj, *others) if ">>>" in (getattr(obj, "__doc__", None) or "") else None


def pytest_configure(config: pytest.Config) -> None:
    nbmake.pytest_items.NotebookRun = SharedRun  # its runs are those of our tests
    doctest.DocTestFinder = QuickFinder
    if not hasattr(config, "workerinput"):  # workers inherit what is offered
        if config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.import_plugin("tests.forked_workers")
        context = forked.offered()
        context.__enter__()
        config.add_cleanup(lambda: context.__exit__(None, None, None))


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Have one worker more than processors, where memory suffices: tests wait for pages, processes and timers."""
    workers = yield
    is_given = "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ
    return workers if is_given or memory_left() < (workers + 1) * WORKER_BYTES else workers + 1


def memory_left() -> int:
    """Return how many bytes may be taken, of the machine and of a container with a limit."""
    import psutil  # not in every environment that runs some of the tests

    left: int = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        folder = Path("/sys/fs/cgroup")
        left = min(left, int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    return left


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep what collecting has made out of every later look for garbage: it is a million objects, and it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        linecache.clearcache()  # every example would look whether the files of all of them have changed
        # What tests make is gone when they end, mostly without the collector: it comes less often than in a program.
        gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only in files of the suite that have one: pytest would go through every name of every file."""
    collectors = yield
    if file_path.suffix != ".py" or ">>> " in file_path.read_text(encoding="utf-8"):
        return collectors
    return [collector for collector in collectors if type(collector) is not DoctestModule]


def pytest_itemcollected(item: pytest.Item) -> None:
    if BROWSER in item.nodeid:
        item.add_marker(pytest.mark.timeout(LONG_S))
    if item.get_closest_marker("kill"):
        item.add_marker(pytest.mark.timeout(LONG_S))
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.matrix)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send a file at a time to whichever worker is free, in the order below.

    The browser's tests of a worker share a browser, a server and a page: to start them takes eight seconds of the processors, so
    two of three workers do without. The runs of a notebook are slow, and notebooks go one by one.
    A file at a time, since the scheduler looks through everything it sent whenever a test ends.
    """
    from xdist.scheduler import LoadScopeScheduling

    class FileByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(TOUR):
                return "00_tour"
            notebook = NOTEBOOK.fullmatch(nodeid)
            return notebook[1] or notebook[2] if notebook else nodeid.split("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            others = {each for each in self.nodes if each is not node and self._has_browser(each)}
            if not self._has_browser(node) and 3 * len(others) >= len(self.nodes):
                rest = next((scope for scope in self.workqueue if BROWSER not in scope), None)
                if rest is not None:
                    self.workqueue.move_to_end(rest, last=False)
            super()._assign_work_unit(node)

        def _has_browser(self, node: Any) -> bool:
            return any(BROWSER in scope for scope in self.assigned_work[node])

    config.option.loadscopereorder = False
    return FileByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        # What takes longest begins: nothing waits for it in the end.
        items.sort(key=lambda item: (BROWSER not in item.nodeid, NOTEBOOKS not in item.nodeid))
    else:
        # The browser's driver keeps an event loop running in this thread until the session ends, and two loops cannot
        # share a thread: its tests come last.
        items.sort(key=lambda item: BROWSER in item.nodeid)
