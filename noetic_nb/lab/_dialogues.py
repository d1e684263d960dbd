"""Dialogues with questions whose evidence is known: made from a seed, or read from a downloaded file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._formats.sources import Document, read_document, refused
from noetic_nb.items import Item, assistant_message, input_message
from noetic_nb.runs import Run
from noetic_nb.runs._load import MAX_BYTES


class Evidence(NamedTuple):
    """The text that must have been sent for a question to be answered."""

    item: str
    """The id of the item that says it."""
    value: str | None = None
    """The words that count; None is all of its text."""


class Question(NamedTuple):
    """A question that is asked once everything has been said."""

    text: str
    evidence: tuple[Evidence, ...]
    kind: str = ""
    outdated: tuple[Evidence, ...] = ()
    """What held before, and would be a wrong answer now."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A dialogue: its sessions, a thread each, belong to one resource and hold messages, calls and outputs of tools, with ids.

    Questions are asked in the last session, each for itself: none is logged. Dialogues are told apart by `name`.
    """

    name: str
    sessions: tuple[tuple[Item, ...], ...]
    questions: tuple[Question, ...]


def as_dialogues(given: Iterable[Any]) -> tuple[Dialogue, ...]:
    """Return dialogues: as they are, or of runs with ``meta["qa"]`` as `load_locomo` reads them.

    Raises `NoeticConfigError` ``NO_DIALOGUES`` for none, ``INVALID_DIALOGUE`` for something else, one without a message, or
    evidence that is nowhere, and ``NO_QUESTIONS`` where there is none in all of them.
    """
    if isinstance(given, Dialogue | Run | str | Mapping) or not isinstance(given, Iterable):
        raise _invalid("Dialogues are a list.", given)
    found = tuple([_of_run(one) if isinstance(one, Run) else one for one in given])
    if not found:
        raise NoeticConfigError(
            "NO_DIALOGUES", "There is no dialogue.", given=given, hint="Leave `dialogues` out to have some made."
        )
    for one in found:
        if not isinstance(one, Dialogue):
            raise _invalid("That is no dialogue.", one)
        if not any(one.sessions):
            raise _invalid("Nothing is said in a dialogue.", one.name)
        known = {item.get("id") for session in one.sessions for item in session}
        for question in one.questions:
            named = (*question.evidence, *question.outdated)
            gone = [evidence.item for evidence in named if evidence.item not in known]
            if gone or not question.evidence:
                raise _invalid(
                    f"The evidence of a question is not in its dialogue {one.name!r}.", gone or question.text
                )
    if not any(one.questions for one in found):
        raise NoeticConfigError(
            "NO_QUESTIONS",
            "Nothing is asked in these dialogues.",
            given=len(found),
            hint="Give them questions with evidence.",
        )
    return found


def _invalid(what: str, given: object) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_DIALOGUE",
        what,
        given=given,
        hint="Pass Dialogue(name, sessions, questions), or what datasets.load_locomo and load_longmemeval read.",
    )


def _of_run(run: Run) -> Dialogue:
    """Return a run of LoCoMo as a dialogue of one session; questions without evidence in it are left out."""
    asked = run.meta.get("qa")
    if not isinstance(asked, list):
        raise _invalid("A run has no questions in meta['qa'].", run.run_id)
    items = tuple([item for thread in run.threads for item in run.log(thread)])
    known = {item.get("id") for item in items}
    questions = []
    for one in asked:
        evidence = one.get("evidence") if isinstance(one, Mapping) else None
        ids = [dia for dia in evidence if dia in known] if isinstance(evidence, list) else []
        if ids and len(ids) == len(evidence or ()):
            questions.append(
                Question(str(one.get("question")), tuple(map(Evidence, ids)), f"category {one.get('category')}")
            )
    return Dialogue(run.run_id, (items,), tuple(questions))


def load_longmemeval(path: str | PathLike[str], *, max_bytes: int = 4 * MAX_BYTES) -> list[Dialogue]:
    """Read the questions of LongMemEval, each with the sessions of its own.

    Parameters
    ----------
    path : path-like
        ``longmemeval_oracle.json``, ``longmemeval_s.json`` or another list of their form.
    max_bytes : int, bytes
        Most the file may hold.

    Returns
    -------
    list of Dialogue
        One an entry. Evidence are the messages with ``has_answer``. Entries without one (questions that cannot be answered) have
        no question.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the entry.

    References
    ----------
    .. [1] Wu et al., "LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory", ICLR 2025.
    """
    document = read_document(Path(path), max_bytes)
    if not isinstance(document.data, list) or document.by_line:
        raise refused(document, "it holds no list of questions")
    return [_entry(document, index, entry) for index, entry in enumerate(document.data)]


def _entry(document: Document, index: int, entry: Any) -> Dialogue:
    sessions = entry.get("haystack_sessions") if isinstance(entry, Mapping) else None
    question = entry.get("question") if isinstance(entry, Mapping) else None
    if not isinstance(sessions, list) or not isinstance(question, str):
        raise refused(
            document, "An entry is {question_id, question, haystack_sessions: [[{role, content}]]}", index=index
        )
    made: list[tuple[Item, ...]] = []
    evidence: list[Evidence] = []
    for number, session in enumerate(sessions):
        items: list[Item] = []
        if not isinstance(session, list):
            raise refused(document, f"session {number} is no list of messages", index=index)
        for place, message in enumerate(session):
            if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
                raise refused(document, f"message {place} of session {number} has no content", index=index)
            item_id = f"{number}:{place}"
            make: Any = assistant_message if message.get("role") == "assistant" else input_message
            items.append(make(message["content"], item_id=item_id))
            if message.get("has_answer") is True:
                evidence.append(Evidence(item_id))
        made.append(tuple(items))
    kind = str(entry.get("question_type") or "")
    questions = (Question(question, tuple(evidence), kind),) if evidence else ()
    return Dialogue(f"longmemeval-{entry.get('question_id') or index}", tuple(made), questions)
