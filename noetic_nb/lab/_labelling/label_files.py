"""Labels of runs in external formats: CSV, OpenInference annotations as used by Phoenix, and Inspect scores."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from noetic_nb._core.atomic_write import as_path, regular_file, write_whole
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of
from noetic_nb.lab._statistics.labels import runs_in
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import labels_in
from noetic_nb.runs._labels import CONSENSUS, Label
from noetic_nb.runs._load import MAX_BYTES

_COLUMNS: Final = ("run_id", "name", "value", "type", "thread_id", "turn", "call", "item", "by", "t_ms", "place")
_TRUTHS: Final[Mapping[str, bool]] = {"True": True, "False": False}
_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": _TRUTHS.__getitem__,
}
_PARTS: Final = ("thread_id", "turn", "call", "item")


class _Found(NamedTuple):
    """A label in a file, with facts that identify its run as pairs of name and value, the most reliable first."""

    label: Label
    facts: tuple[tuple[str, Any], ...]


def save_labels(runs: Run | Iterable[Run], path: str | PathLike[str], *, format: str | None = None) -> Path:
    """Write the labels of runs to one file for another tool.

    Parameters
    ----------
    runs : Run or iterable of Run
        The labelled runs.
    path : path-like
        The file; replaced if it exists.
    format : {"csv", "openinference", "inspect"}, optional
        By default ``csv`` for that suffix, else ``openinference``.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_FORMAT``, ``NO_RUNS``, ``INVALID_RUN``, ``CANNOT_WRITE``.

    Notes
    -----
    ``openinference`` is a JSON body ``{"data": [...]}`` of annotations by session, that is by thread. The exact value
    and the target are in ``metadata``. ``inspect`` is ``{"samples": [{"id", "epoch", "scores"}]}``: one score per name
    and target, with all raters in its history.

    Examples
    --------
    >>> import tempfile
    >>> import noetic_nb as nn
    >>> run = nn.lab.datasets.airline_run(26)
    >>> run.label("verdict", "wrong", call=0, by="ann")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = save_labels(run, f"{folder}/labels.csv")
    ...     load_labels(nn.lab.datasets.airline_run(26), file)
    1
    """
    target, found = as_path(path), runs_in(runs)
    write, _ = _format(target, format)
    write_whole(target, write(found))
    return target


def load_labels(runs: Run | Iterable[Run], path: str | PathLike[str], *, format: str | None = None) -> int:
    """Add the labels of a file to their runs, all or none.

    Parameters
    ----------
    runs : Run or iterable of Run
        The runs that the labels are about.
    path : path-like
        A file from `save_labels`, or annotations and scores of other tools: by session, or by sample id and epoch.
    format : {"csv", "openinference", "inspect"}, optional
        As for `save_labels`.

    Returns
    -------
    int
        The number of new labels; labels that a run already has are not added again.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LABEL_FILE`` if the file cannot be read; ``UNKNOWN_RUN`` if a label matches none or several of the
        runs; and the errors of `Run.label`.
    """
    source, found = as_path(path), runs_in(runs)
    _, read = _format(source, format)
    try:
        with regular_file(source, MAX_BYTES) as file:
            rows = list(read(file.read().decode("utf-8-sig")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"The labels cannot be read: {type(error).__name__}: {error}"
        raise NoeticConfigError("INVALID_LABEL_FILE", what, given=str(source), hint="Name its format.") from error
    # All are checked before any is added, so that a file is taken completely or not at all.
    placed = [(run, run._checked_label(*row.label)) for row in rows for run in [_run_of(row, found)]]
    fresh = [(run, label) for run, label in placed if label not in labels_in(run)]
    for run, label in fresh:
        run._label_store.add(label)
    return len(fresh)


def _run_of(row: _Found, runs: tuple[Run, ...]) -> Run:
    for name, value in row.facts:
        known = [run for run in runs if value is not None and _fact(run, name, value)]
        if len(known) == 1:
            return known[0]
    what = "A label matches none of the runs, or several."
    hint = "Pass its runs; they are identified by run_id, thread, or task_id and trial."
    raise NoeticConfigError("UNKNOWN_RUN", what, given=dict(row.facts), hint=hint)


def _fact(run: Run, name: str, value: Any) -> bool:
    if name == "run_id":
        return bool(run.run_id == value)
    if name == "place":
        return bool(value == _place(run))
    if name == "thread_id":
        return value in run.threads
    return [str(run.meta.get("task_id")), run.meta.get("trial")] == [str(value[0]), value[1]]


def _place(run: Run) -> str | None:
    """Return the file of a run and its index there, which stay the same although each import gives a new name."""
    store = run._label_store
    return None if store.path is None else f"{Path(store.path).name}#{store.key}"


def _write_csv(runs: tuple[Run, ...]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for run in runs:
        for label in labels_in(run):
            value = (label.value, type(label.value).__name__)
            table.writerow([run.run_id, label.name, *value, *label.target, label.by, label.t_ms, _place(run)])
    return text.getvalue()


def _read_csv(text: str) -> Iterator[_Found]:
    for row in csv.DictReader(io.StringIO(text, newline="")):
        places = [int(row[part]) if row.get(part) else None for part in _PARTS[1:]]
        value = _TYPES[row.get("type") or "str"](row["value"])
        thread = row.get("thread_id") or None
        label = Label(row["name"], value, row["by"], float(row.get("t_ms") or 0), thread, *places)
        yield _Found(label, (("run_id", row["run_id"]), ("place", row.get("place")), ("thread_id", thread)))


def _write_annotations(runs: tuple[Run, ...]) -> str:
    data = []
    for run in runs:
        for label in labels_in(run):
            is_text = isinstance(label.value, str)
            result = (
                {"label": label.value} if is_text else {"label": str(label.value), "score": float(label.value or 0)}
            )
            data.append(
                {
                    "session_id": label.thread_id or (run.threads[0] if run.threads else run.run_id),
                    "name": label.name,
                    "annotator_kind": "HUMAN",
                    "result": result,
                    "identifier": label.by,
                    "metadata": _about(run, label),
                }
            )
    return json.dumps({"data": data}, indent=1) + "\n"


def _read_annotations(text: str) -> Iterator[_Found]:
    for each in json.loads(text)["data"]:
        about, result = each.get("metadata") or {}, each.get("result") or {}
        session = each.get("session_id")
        if "value" in about:
            label = _own(about)
        else:
            value = result["label"] if result.get("label") is not None else result["score"]
            rater = each.get("identifier") or each["annotator_kind"].lower()
            label = Label(each["name"], value, rater, _ms(each.get("created_at")))
        yield _Found(label, (*_known(about), ("thread_id", session)))


def _write_scores(runs: tuple[Run, ...]) -> str:
    samples = []
    for run in runs:
        scores: dict[str, Any] = {}
        for label in labels_in(run):
            score = scores.setdefault(_score_name(run, label), {"value": label.value, "history": []})
            stamp = datetime.fromtimestamp(label.t_ms / 1_000, UTC).isoformat()
            provenance = {"author": label.by, "timestamp": stamp, "metadata": _about(run, label)}
            # The newest label is the score, unless there is a consensus.
            if CONSENSUS not in [edit["provenance"]["author"] for edit in score["history"]]:
                score["value"] = label.value
            score["history"].append({"value": label.value, "provenance": provenance})
        sample = {"id": run.meta.get("task_id") or run.run_id, "epoch": run.meta.get("trial") or 1}
        samples.append({**sample, "scores": scores})
    return json.dumps({"samples": samples}, indent=1) + "\n"


def _score_name(run: Run, label: Label) -> str:
    parts = [f"{part}-{place}" for part, place in zip(_PARTS[1:], label.target[1:], strict=True) if place is not None]
    thread = [label.thread_id] if label.thread_id and len(run.threads) > 1 else []
    return "@".join([label.name, *parts[-1:], *thread])


def _about(run: Run, label: Label) -> dict[str, Any]:
    return {"run_id": run.run_id, "place": _place(run), **label._asdict()}


def _read_scores(text: str) -> Iterator[_Found]:
    for sample in json.loads(text)["samples"]:
        facts = (("sample", (sample["id"], sample.get("epoch"))), ("run_id", sample["id"]))
        for name, score in (sample.get("scores") or {}).items():
            edits = [edit for edit in score.get("history") or () if edit.get("provenance")]
            for edit in edits:
                author = edit["provenance"]
                about = author.get("metadata") or {}
                own = _own(about) if "value" in about else None
                label = own or Label(name, edit["value"], author["author"], _ms(author.get("timestamp")))
                yield _Found(label, (*_known(about), *facts))
            if not edits:
                yield _Found(Label(name, score["value"], "inspect", 0.0), facts)


def _own(about: Mapping[str, Any]) -> Label:
    return Label._make([about.get(name) for name in Label._fields])


def _known(about: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return (("run_id", about.get("run_id")), ("place", about.get("place")))


def _ms(stamp: str | None) -> float:
    return 0.0 if stamp is None else datetime.fromisoformat(stamp).timestamp() * 1_000


_Format = tuple[Callable[[tuple[Run, ...]], str], Callable[[str], Iterator[_Found]]]  # writes runs, reads a text
_FORMATS: Final[Mapping[str, _Format]] = {
    "csv": (_write_csv, _read_csv),
    "openinference": (_write_annotations, _read_annotations),
    "inspect": (_write_scores, _read_scores),
}


def _format(path: Path, format: str | None) -> _Format:
    name = format if format is not None else "csv" if path.suffix == ".csv" else "openinference"
    check_one_of(_FORMATS, "UNKNOWN_FORMAT", format=name)
    return _FORMATS[name]
