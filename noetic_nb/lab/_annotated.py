"""Data sets that may not be redistributed, read from a download: conversations with human annotations."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

from noetic_nb._core.atomic_write import as_path
from noetic_nb.interop._formats.graded import AS_PUBLISHED, Calls, assistant, refuser, task_meta, user
from noetic_nb.interop._formats.sources import Document, read_bytes, read_document, refused
from noetic_nb.items import Item
from noetic_nb.items._messages.message import Message
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._labels import FILE as CODEBOOK
from noetic_nb.runs._load import MAX_BYTES
from noetic_nb.runs._run import run_of_settled

_MARKS: Final = ("trajectory_success", "trajectory_side_effect", "trajectory_optimality", "trajectory_looping")
_ACTION: Final = re.compile(r"\s*([A-Za-z_]\w{0,63})\(")
# Participants that are not agents: the user and the environment (Who&When, logs of AutoGen and Magentic-One).
_PEOPLE: Final = frozenset({"human", "user"})
_ENVIRONMENT: Final = "Computer_terminal"


def _run(
    name: str, messages: list[Message], meta: Mapping[str, Any], unmapped: Iterable[Mapping[str, Any]] = ()
) -> Run:
    about, events = conversation_events(
        messages, thread_id=name, meta=meta, unmapped=unmapped, timed=False, redaction=AS_PUBLISHED
    )
    return run_of_settled(name, about, events)


def documents_in(path: str | PathLike[str], max_bytes: int, *suffixes: str) -> Iterator[Document]:
    """Yield the document of a file, or those of a folder's files with these suffixes."""
    source = as_path(path)
    if not source.is_dir():
        yield read_document(source, max_bytes)
        return
    found = sorted([file for file in source.rglob("*.json*") if file.name.endswith(suffixes) and file.name != CODEBOOK])
    if not found:
        raise refused(Document(None, source), f"there is no {' or '.join(suffixes)} file in it")
    for file in found:
        yield read_document(file, max_bytes)


def load_agentrewardbench(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES) -> list[Run]:
    """Read the annotations of AgentRewardBench as runs, with the trajectories beside them, if present.

    Parameters
    ----------
    path : path-like
        The CSV file, or the downloaded folder that holds it. Trajectories are JSON files beside or below it, named
        ``<exp_name>/<task_id>.json`` or ``<model_name>/…/<task_id>.json``.
    max_bytes : int, bytes
        Size limit of a file.

    Returns
    -------
    list of Run
        One per row. ``meta["outcome"]`` is whether the row marks the agent as successful, ``meta["marks"]`` has the
        annotations. A run without a trajectory has no events and says so in ``meta["unmapped"]``.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the row.

    References
    ----------
    .. [1] Lù et al., "AgentRewardBench: Evaluating Automatic Evaluations of Web Agent Trajectories", 2025.
    """
    source = as_path(path)
    table = source
    if source.is_dir():
        tables = sorted(source.rglob("*.csv"))
        if len(tables) != 1:
            raise refused(Document(None, source), f"it must contain one .csv file, but has {len(tables)}")
        table = tables[0]
    document = Document(None, table)
    trajectories: dict[str, list[Path]] = {}
    for file in table.parent.rglob("*.json"):
        trajectories.setdefault(file.stem, []).append(file)
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(table, max_bytes).decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise refused(document, f"it is no CSV ({error})") from error
    if not rows:
        raise refused(document, "there is no row in it")
    return [_annotated(document, place, row, trajectories, max_bytes) for place, row in enumerate(rows)]


def _annotated(
    document: Document, index: int, row: Mapping[str, Any], trajectories: Mapping[str, list[Path]], max_bytes: int
) -> Run:
    names = [row.get(key) for key in ("benchmark", "model_name", "task_id")]
    if not all(names) or not row.get(_MARKS[0]):
        raise refused(document, "a row needs benchmark, model_name, task_id and trajectory_success", index=index)
    benchmark, model, task_id = map(str, names)
    success = str(row[_MARKS[0]]).strip().lower()
    meta = {
        **task_meta("agentrewardbench", benchmark, model, task_id, None),
        "outcome": {"successful": True, "yes": True, "unsuccessful": False, "no": False}.get(success),
        "exp_name": row.get("exp_name"),
        "marks": {key: row.get(key) for key in _MARKS},
    }
    # A task occurs once per model and experiment.
    about = (row.get("exp_name"), model)
    found = [file for part in about for file in trajectories.get(task_id, ()) if part in file.parts]
    name = "-".join(["agentrewardbench", *map(str, about), task_id])
    if not found:
        unmapped = [{"place": "row", "what": "there is no trajectory beside the annotations", "value": index}]
        return _run(name, [], meta, unmapped)
    return _run(name, _steps(read_document(found[0], max_bytes), model), meta)


def _steps(document: Document, model: str) -> list[Message]:
    refuse = refuser(document, None, "")
    data = document.data
    steps = data.get("steps") if isinstance(data, Mapping) else None
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        refuse("`steps` must be a list of steps")
    made = [user(str(data.get("goal") or ""))]
    calls = Calls(refuse)
    for place, step in enumerate(steps):
        action, thought = step.get("action"), str(step.get("reasoning") or "")
        if not action:
            made.append(assistant(thought, (), model=model))
            continue
        name = _ACTION.match(str(action))
        call = calls.make(name[1] if name else "act", {"action": str(action)}, f"step-{place}")
        # The outcome of an action is recorded in the next step.
        after = steps[place + 1].get("last_action_error") if place + 1 < len(steps) else None
        made += [assistant(thought, (call,), model=model), calls.result(f"step-{place}", str(after or ""), bool(after))]
    return made


def load_who_and_when(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES) -> list[Run]:
    """Read the logs of Who&When: agent teams, with the agent and step that caused each failure.

    Parameters
    ----------
    path : path-like
        A JSON log, a list of them in one file, or a folder.
    max_bytes : int, bytes
        Size limit of a file.

    Returns
    -------
    list of Run
        One per log. Every entry of its history is one item of the thread, in order; ``meta`` has ``mistake_agent``,
        ``mistake_step`` (an index into the history), ``mistake_item`` (the index of that entry in the thread's log),
        ``mistake_reason`` and ``ground_truth``.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path``.

    References
    ----------
    .. [1] Zhang et al., "Which Agent Causes Task Failures and When?", ICML 2025.
    """
    runs: list[Run] = []
    for document in documents_in(path, max_bytes, ".json"):
        if isinstance(document.data, list):
            runs += [_log(Document(data, document.path), place) for place, data in enumerate(document.data)]
        else:
            runs.append(_log(document))
    return runs


def _log(document: Document, index: int | None = None) -> Run:
    refuse = refuser(
        document, index, "A log is {question, history: [{content, role, name}], mistake_agent, mistake_step}."
    )
    data = document.data
    history = data.get("history") if isinstance(data, Mapping) else None
    if not isinstance(history, list) or not all(isinstance(entry, Mapping) for entry in history):
        refuse("`history` must be a list of entries")
    question, solved = data.get("question"), data.get("is_correct")
    if not isinstance(question, str) or not isinstance(solved, bool | None):
        refuse("`question` must be text, and `is_correct` true, false or null")
    entries = [_entry(entry, place, refuse) for place, entry in enumerate(history)]
    asked = bool(entries) and entries[0].role == "user"
    step = _step(data.get("mistake_step"))
    meta = {
        **task_meta("who_and_when", None, None, data.get("question_ID"), None),
        "outcome": solved,
        "question": question,
        "ground_truth": data.get("ground_truth"),
        "mistake_agent": data.get("mistake_agent"),
        "mistake_step": step,
        "mistake_item": None if step is None else step + (not asked),
        "mistake_reason": data.get("mistake_reason"),
    }
    name = f"who_and_when-{document.path.stem if document.path else 0}{'' if index is None else f'-{index}'}"
    return _run(name, entries if asked else [user(question), *entries], meta)


def _step(value: object) -> int | None:
    """Return the number of a step, which some logs write as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) else None


def _entry(entry: Mapping[str, Any], place: int, refuse: Callable[[str], NoReturn]) -> Message:
    content, role, name = entry.get("content"), entry.get("role"), entry.get("name")
    if not isinstance(content, str) or not isinstance(role, str):
        refuse(f"entry {place} of the history has no content and role: {entry!r:.80}")
    if name is None and role in _PEOPLE:
        return user(content)
    author = name if isinstance(name, str) else role
    message = assistant(content, ())
    item = Item({**message.items[0], "name": author})
    return Message("system" if author == _ENVIRONMENT else "assistant", (item,))
