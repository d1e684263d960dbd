"""Configurations measured on runs: the work of a worker, the file of finished rows, and the cost limit of live models."""

from __future__ import annotations

import copy
import json
import math
import os
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from os import PathLike
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab._replaying.regulator_readings import RegulatorReadings
from noetic_nb.lab._replaying.regulator_replay import RegulatorTemplate
from noetic_nb.lab._replaying.replay_report import known_part
from noetic_nb.lab._replaying.replays import replay
from noetic_nb.lab._sweeping.space import Space, thresholds_in
from noetic_nb.models import CassetteModel, ModelRequest, ModelResponse, ScriptedModel
from noetic_nb.models._client import ModelClient
from noetic_nb.regulator import Regulator
from noetic_nb.regulator._settings import Settings
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_decisions import with_thresholds


def is_live(model: Any) -> bool:
    """Tell whether a model, or one of several, may incur costs: all do except scripts and tapes."""
    if isinstance(model, Mapping):
        return any(is_live(one) for one in model.values())
    if model is None or isinstance(model, ScriptedModel):
        return False
    return not (isinstance(model, CassetteModel) and not model.asks)


class Ceiling:
    """A limit in US dollars, tokens, or both, as in ``{"usd": dollars, "tokens": tokens}``."""

    def __init__(self, max_cost: Any) -> None:
        hint = 'Give max_cost=5.0 (US dollars) or max_cost={"usd": 5.0, "tokens": 2_000_000}.'
        if max_cost is None:
            raise NoeticConfigError("COST_CEILING", "A live model needs a limit on its cost.", hint=hint)
        given = max_cost if isinstance(max_cost, Mapping) else {"usd": max_cost}
        good = all(map(_is_limit, given.values()))
        if not given or not set(given) <= {"usd", "tokens"} or not good:
            raise NoeticConfigError("COST_CEILING", "That is no ceiling.", given=max_cost, hint=hint)
        self.usd: float | None = given.get("usd")
        self.tokens: float | None = given.get("tokens")
        self.spent_usd = 0.0
        self.spent_tokens = 0
        self.reached = False
        self.error: NoeticConfigError | None = None
        self._lock = threading.Lock()

    def metered(self, model: Any) -> Any:
        """Return a model, or several, with every answer counted."""
        if isinstance(model, Mapping):
            return {name: self.metered(one) for name, one in model.items()}
        return _Metered(model, self) if is_live(model) else model

    def ask(self) -> None:
        """Refuse a request if the ceiling is reached."""
        with self._lock:
            over_usd = self.usd is not None and self.spent_usd >= self.usd
            over_tokens = self.tokens is not None and self.spent_tokens >= self.tokens
            self.reached = self.reached or over_usd or over_tokens
            if self.reached:
                raise NoeticError(
                    "budget_exceeded",
                    "The sweep has reached its cost limit",
                    given={"usd": round(self.spent_usd, 6), "tokens": self.spent_tokens},
                    hint="Give a higher max_cost; with resume=<a path> finished rows are kept.",
                )

    def count(self, response: ModelResponse) -> None:
        with self._lock:
            self.spent_tokens += response.usage.total_tokens
            if response.cost is not None:
                self.spent_usd += response.cost
            elif self.usd is not None:
                self.reached = True
                self.error = NoeticConfigError(
                    "COST_CEILING",
                    "The price of this model is unknown, so its cost in dollars cannot be counted.",
                    given=response.model,
                    hint='Give the client a price, or a limit in tokens: max_cost={"tokens": 2_000_000}.',
                )


def _is_limit(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(float(value)) and float(value) > 0


class _Metered:
    def __init__(self, model: ModelClient, ceiling: Ceiling) -> None:
        self._model, self._ceiling = model, ceiling

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self._ceiling.ask()
        response = await self._model.complete(request)
        self._ceiling.count(response)
        return response


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a worker needs, sent once."""

    digest: str
    space: Space
    runs: tuple[Run, ...]
    metrics: Mapping[str, Callable[[Run], Any]]
    fixed: Mapping[str, Any]
    """Arguments of `replay`, or of `apply`, that are the same in every configuration."""
    apply: Callable[..., Run] | None = None
    ceiling: Ceiling | None = None
    """The limit for live models; None without one."""


@dataclass(slots=True)
class Measured:
    """The result of one configuration: its value of each metric on each run, None if unavailable or failed."""

    place: int
    values: dict[str, list[float | None]]
    failures: list[tuple[int, str | None, str]] = field(default_factory=list)
    """Index of the run, metric (None if the run could not be made) and the error."""
    known: dict[str, list[float | None]] = field(default_factory=dict)
    """By metric, the values of the known parts of runs; empty if all are known to their ends."""
    partly: int = 0
    """The number of runs that are only known up to some point."""
    is_cut: bool = False
    """Whether the ceiling or the time was reached before it finished, so that it does not count."""


class Measurements:
    """The runs of a job, each read once for all configurations that differ only in their regulator; `until` some time."""

    def __init__(self, job: Job, until: float = math.inf) -> None:
        self._job = job
        self._until = until
        # By index of the run, its last reading; other rules, budgets and so on need another one.
        self._readings: dict[int, tuple[tuple[int, ...], RegulatorReadings | Exception]] = {}
        self._templates = _Templates()

    def at(self, place: int) -> Measured:
        """Measure one configuration on every run; an exception on a run is recorded as its failure."""
        job = self._job
        found = Measured(place, {name: [] for name in job.metrics})
        # By metric and index of the run, the value of its known part.
        known: dict[str, dict[int, float | None]] = {name: {} for name in job.metrics}
        for at in range(len(job.runs)):
            if self._is_cut():
                break
            try:
                run = self._made(place, at)
            except Exception as exc:
                found.failures.append((at, None, _words(exc)))
                for values in found.values.values():
                    values.append(None)
                continue
            part = known_part(run)
            found.partly += part is not run
            for name, metric in job.metrics.items():
                try:
                    value = _number(metric(run))
                except Exception as exc:
                    found.failures.append((at, name, _words(exc)))
                    value = None
                found.values[name].append(value)
                if part is not run:
                    known[name][at] = None if value is None else _known(metric, part)
        if found.partly:
            for name, values in found.values.items():
                found.known[name] = [known[name].get(at, value) for at, value in enumerate(values)]
        found.is_cut = self._is_cut()
        return found

    def _is_cut(self) -> bool:
        return (self._job.ceiling is not None and self._job.ceiling.reached) or monotonic() >= self._until

    def _made(self, place: int, at: int) -> Run:
        job, run = self._job, self._job.runs[at]
        configuration = job.space.at(place)
        if job.apply is not None:
            made = job.apply(run, **self._fixed(), **configuration)
            if not isinstance(made, Run):
                raise TypeError(f"apply= returned {type(made).__name__}, not a Run")
            return made
        thresholds, rest = thresholds_in(configuration)
        regulator = rest.pop("regulator", job.fixed.get("regulator"))
        if job.fixed.get("mode") == "closed":
            if thresholds:
                base = self._read(at, {}).recorded if regulator is None else regulator
                regulator = self._templates.under(base, thresholds, place).regulator()
            return replay(run, **{**self._fixed(), **rest, "regulator": regulator})
        readings = self._read(at, rest)
        if not thresholds:
            return readings.replay(None if regulator is None else self._templates.under(regulator, {}, place))
        base = readings.recorded if regulator is None else regulator
        return readings.replay(self._templates.under(base, thresholds, place))

    def _fixed(self) -> dict[str, Any]:
        given = dict(self._job.fixed)
        if given.get("model") is not None and self._job.ceiling is None:
            # Reading a script uses it up, so each run gets a copy.
            given["model"] = copy.deepcopy(given["model"])
        return given

    def _read(self, at: int, rest: Mapping[str, Any]) -> RegulatorReadings:
        key = tuple([id(value) for value in rest.values()])
        known = self._readings.get(at)
        if known is None or known[0] != key:
            # One reading per run: thresholds vary fastest if memory matters.
            given = {name: value for name, value in self._fixed().items() if name == "model"}
            try:
                known = key, RegulatorReadings(self._job.runs[at], **given, **rest)
            except Exception as exc:
                known = key, exc
            self._readings[at] = known
        if isinstance(known[1], Exception):
            raise known[1]
        return known[1]


class _Templates:
    """Regulators of one configuration; most runs share the same one."""

    def __init__(self) -> None:
        self._place = -1
        self._known: dict[int, tuple[Regulator, RegulatorTemplate]] = {}
        self._made: list[tuple[Settings, RegulatorTemplate]] = []

    def under(self, base: Regulator, thresholds: Mapping[str, Any], place: int) -> RegulatorTemplate:
        """Return a regulator with the thresholds of the configuration for the run at an index."""
        if place != self._place:
            self._place, self._made = place, []
        template = self._of(base)
        if not thresholds:
            return template
        for settings, made in self._made:
            if settings is template.settings or settings == template.settings:
                return template.with_numbers_of(made)
        made = template.with_settings(with_thresholds(template.settings, thresholds))
        self._made.append((template.settings, made))
        return made

    def _of(self, base: Regulator) -> RegulatorTemplate:
        known = self._known.get(id(base))
        if known is None:  # kept beside its template, so that its id is not reused
            known = self._known[id(base)] = base, RegulatorTemplate.of(base)
        return known[1]


def _known(metric: Callable[[Run], Any], part: Run) -> float | None:
    try:
        return _number(metric(part))
    except Exception:  # it needs the unknown end of a run
        return None


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if hasattr(value, "item") and not isinstance(value, Real):
        value = value.item()
    if not isinstance(value, Real):
        raise TypeError(f"a metric returns a number or None, and not {type(value).__name__}")
    number = float(value)
    return number if math.isfinite(number) else None


def _words(exc: Exception) -> str:
    text = str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


FORM: Final = "noetic_nb sweep 1"


def _content(path: Path) -> bytes:
    try:
        with regular_file(path) as file:
            return file.read()
    except FileNotFoundError:
        return b""


class ResumeFile:
    """A file of finished rows of the sweep with this `digest`; an incomplete line is ignored and overwritten."""

    def __init__(self, path: str | PathLike[str], digest: str) -> None:
        self.path = Path(path)
        header = {"form": FORM, "digest": digest}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            data = _content(self.path)
            self.rows, whole = self._read(data, header)
            self._file = open(self.path, "r+b" if data else "wb")  # noqa: SIM115
            self._file.seek(whole)
            self._file.truncate()
            if not whole:
                self._write(header)
        except OSError as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: OSError) -> NoeticError:
        hint = "Give a path that can be written: resume='sweep.jsonl'."
        return NoeticError("storage_failed", f"The file of the sweep: {exc}", given=str(self.path), hint=hint)

    def _read(self, data: bytes, header: dict[str, Any]) -> tuple[dict[int, Measured], int]:
        rows: dict[int, Measured] = {}
        lines = data.splitlines(keepends=True)
        if not lines or (len(lines) == 1 and not data.endswith(b"\n") and _line(header).startswith(data)):
            return rows, 0
        found = _parsed(lines[0])
        if found is None or found.get("form") != FORM or found != header:
            raise NoeticConfigError(
                "OTHER_SWEEP",
                "The file belongs to another sweep: its runs, values, metrics, seed or version differ."
                if found is not None and found.get("form") == FORM
                else "This is not the file of a sweep.",
                given=str(self.path),
                hint="Give another path, or remove the file.",
            )
        whole = len(lines[0])
        for line in lines[1:]:
            row = _parsed(line)
            if row is None:
                break
            failures = [tuple(one) for one in row["failures"]]
            known = row.get("known", {}), row.get("partly", 0)
            rows[row["place"]] = Measured(row["place"], row["values"], failures, *known)
            whole += len(line)
        return rows, whole

    def add(self, row: Measured) -> None:
        try:
            known = {"known": row.known, "partly": row.partly} if row.partly else {}
            self._write({"place": row.place, "values": row.values, "failures": row.failures, **known})
        except OSError as exc:
            raise self._failed(exc) from exc

    def _write(self, data: dict[str, Any]) -> None:
        self._file.write(_line(data))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.fsync(self._file.fileno())
        self._file.close()


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None for an incomplete one."""
    sum_, _, text = line.rstrip(b"\n").partition(b" ")
    try:
        if not line.endswith(b"\n") or int(sum_, 16) != zlib.crc32(text):
            return None
        data: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return data
