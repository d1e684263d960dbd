"""Chunks of configurations in parallel, through joblib: processes, threads, Dask or Ray."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from math import ceil
from time import monotonic
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab._sweeping.measured_runs import Job, Measured, Measurements

# Chunks per worker: enough for an even load, and so that an interrupt loses little work.
CHUNKS: Final = 4
# Finished work is stored chunk by chunk, so chunks are limited.
LONGEST: Final = 32
# Processes take about as long to start, in seconds: a sweep that is done by then needs none.
START_S: Final = 5.0
# Exceptions of joblib for a dead worker: of processes, of Dask (also if it held the runs), of Ray.
_DIED: Final = frozenset({"BrokenExecutor", "KilledWorker", "FutureCancelledError", "RayActorError"})

# The runs read by a thread's worker, so that the next chunk need not read them again; for one sweep at a time.
_own: Final = threading.local()


def _work(payload: Any, digest: str, places: Sequence[int]) -> list[Measured]:
    known: tuple[str, Measurements] | None = getattr(_own, "known", None)
    if known is None or known[0] != digest:
        job = payload if isinstance(payload, Job) else _unpacked(payload)
        known = _own.known = digest, Measurements(job)
    return [known[1].at(place) for place in places]


def _packed(job: Job) -> Any:
    import cloudpickle
    import numpy

    try:
        # Pickling a run drops its agent and bundle, which are needed to evaluate its rules and run its agent again.
        made = [(run._config, run.bundle if run._config is None else None) for run in job.runs]
        data = cloudpickle.dumps((job, made))
    except Exception as exc:
        what = f"The sweep cannot be sent to other processes: {type(exc).__name__}: {exc}"
        hint = 'Use n_jobs=1, or joblib.parallel_config("threading").'
        raise NoeticConfigError("NOT_PICKLABLE", what, given=sorted(job.metrics), hint=hint) from exc
    # joblib shares an array as a file between processes, and Dask sends it to each worker once.
    return numpy.frombuffer(data, dtype="uint8")


def _unpacked(payload: Any) -> Job:
    import cloudpickle

    if not hasattr(payload, "tobytes"):  # a Ray reference
        import ray

        payload = ray.get(payload)
    job: Job
    job, made = cloudpickle.loads(payload.tobytes())
    for run, (config, bundle) in zip(job.runs, made, strict=True):
        run.made_with(config)
        run.bundle = bundle
    return job


class Workers:
    """The active joblib backend; `in_threads` always works in this process, so that a model's cost is counted once."""

    def __init__(self, n_jobs: int, *, in_threads: bool = False) -> None:
        import joblib
        from joblib.parallel import get_active_backend

        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
            hint = "Use -1 for all processors."
            raise NoeticConfigError("INVALID_N_JOBS", "n_jobs must be a number of workers.", given=n_jobs, hint=hint)
        active, configured = get_active_backend()
        self.n_jobs = configured if n_jobs == -1 and configured is not None else n_jobs
        self._backend = "threading" if in_threads else None
        if in_threads:
            with joblib.parallel_config("threading"):
                self.count = joblib.effective_n_jobs(self.n_jobs)
        else:
            self.count = joblib.effective_n_jobs(self.n_jobs)
        self._shares = in_threads or self.count == 1 or bool(getattr(active, "supports_sharedmem", False))
        self._hands_over = in_threads or bool(getattr(active, "supports_return_generator", False))
        kind = "threading" if in_threads else type(active).__name__.removesuffix("Backend").lower()
        self.name = "sequential" if self.count == 1 and not kind.startswith("dask") else kind
        self._begins_here = n_jobs == -1 and self.name == "loky"

    def measured(self, job: Job, places: Sequence[int]) -> Generator[list[Measured], None, None]:
        """Yield the configurations at some indices, chunk by chunk as they are finished."""
        left = list(places)
        if not left:
            return
        if self.count == 1 and self._shares:
            own = Measurements(job)
            for place in left:
                yield [own.at(place)]
            return
        payload = job if self._shares else self._sent(_packed(job))
        if self._begins_here:
            own = Measurements(job, until=monotonic() + START_S)
            while left and not (row := own.at(left[0])).is_cut:
                del left[0]
                yield [row]
            if not left:
                self.name = "sequential"
        while left:
            before = len(left)
            try:
                for chunk in self._chunks(payload, job.digest, left):
                    done = {each.place for each in chunk}
                    left = [place for place in left if place not in done]
                    yield chunk
            except Exception as exc:
                if _DIED.isdisjoint([cls.__name__ for cls in type(exc).__mro__]):
                    raise
                # A worker that dies later may lack memory or its machine; one that dies at once fails because of the work.
                if len(left) == before:
                    raise NoeticError(
                        "worker_died",
                        f"Workers died with {len(left)} configurations left",
                        given=self.name,
                        hint="Check for too little memory or a crash in a metric; with resume=<a path> finished rows are kept. "
                        "n_jobs=1 shows where it crashes.",
                    ) from exc

    def _sent(self, packed: Any) -> Any:
        if self.name != "ray":
            return packed
        import ray  # without `put`, Ray would send it with every chunk

        return ray.put(packed)

    def _chunks(self, payload: Any, digest: str, places: Sequence[int]) -> Iterator[list[Measured]]:
        from joblib import Parallel, delayed

        # Answers of a live model cost money, so they are stored at once.
        longest = 1 if self._backend is not None else LONGEST
        size = min(longest, max(1, ceil(len(places) / (CHUNKS * self.count))))
        work = [delayed(_work)(payload, digest, places[at : at + size]) for at in range(0, len(places), size)]
        options = {"n_jobs": self.n_jobs, "backend": self._backend, "batch_size": 1, "max_nbytes": "100K"}
        if self._hands_over:
            done = Parallel(return_as="generator_unordered", **options)(work)
            try:
                # `yield from` would close the generator outside this `try`.
                while (chunk := next(done, None)) is not None:
                    yield chunk
            finally:
                # A caller that ends a sweep early expects unfinished work.
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=r"\d+ tasks (which were still|have been successfully)")
                    done.close()
            return
        # Some backends return nothing before all is done, so the work is given in rounds to the same workers.
        with Parallel(**options) as parallel:
            for at in range(0, len(work), self.count):
                yield from parallel(work[at : at + self.count])
