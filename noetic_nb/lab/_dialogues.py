"""Dialogues with questions whose evidence is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item


class Evidence(NamedTuple):
    """A part of the evidence that a question needs.

    Attributes
    ----------
    item : str or None
        The id of the message that contains it; None if no message is marked.
    value : str or None
        The decisive words; None if they are not marked.
    owner : tuple of str
        The names of the owner, such as a name and "my sister"; empty if they are not marked.
    attribute : tuple of str
        A statement about the attribute contains at least one of these words; empty if they are not marked.
    """

    item: str | None
    value: str | None = None
    owner: tuple[str, ...] = ()
    attribute: tuple[str, ...] = ()


class Question(NamedTuple):
    """A question that is asked after the whole dialogue.

    Attributes
    ----------
    text, kind : str
        The question, and its kind in the counts.
    evidence : tuple of Evidence
        All facts that must have been sent; empty if no current fact was stated, as for deleted or never mentioned ones.
    outdated : tuple of Evidence
        Facts that held before, or were deleted: now a wrong answer.
    needs : tuple of Evidence
        Facts that must be known besides the evidence, such as who "my sister" is.
    answer : str or None
        The answer given by the data set.
    when_ms : float or None
        The time at which it is asked, in milliseconds since 1970 UTC.
    """

    text: str
    evidence: tuple[Evidence, ...]
    kind: str = ""
    outdated: tuple[Evidence, ...] = ()
    needs: tuple[Evidence, ...] = ()
    answer: str | None = None
    when_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A dialogue. Its sessions, one thread each, belong to one resource and hold messages, calls and tool outputs, with ids.

    Questions are asked in the last session, each independently, and not logged. Dialogues are identified by `name`.
    `dates_ms` has the start time of each session, or None if unknown; it is empty if all are unknown.
    """

    name: str
    sessions: tuple[tuple[Item, ...], ...]
    questions: tuple[Question, ...]
    dates_ms: tuple[float | None, ...] = ()


def as_dialogues(given: Iterable[Any]) -> tuple[Dialogue, ...]:
    """Return validated dialogues: some with messages and questions, whose evidence is in them."""
    if isinstance(given, Dialogue | str | Mapping) or not isinstance(given, Iterable):
        raise _invalid("Dialogues are a list.", given)
    found = tuple(given)
    if not found:
        hint = "Omit `dialogues` to use generated ones."
        raise NoeticConfigError("NO_DIALOGUES", "There is no dialogue.", given=given, hint=hint)
    for one in found:
        if not isinstance(one, Dialogue):
            raise _invalid("That is not a dialogue.", one)
        if not any(one.sessions):
            raise _invalid("A dialogue has no messages.", one.name)
        known = {item.get("id") for session in one.sessions for item in session} | {None}
        for question in one.questions:
            named = (*question.evidence, *question.outdated, *question.needs)
            gone = [part.item for part in named if part.item not in known]
            if gone:
                raise _invalid(f"The evidence of a question is not in its dialogue {one.name!r}.", gone)
            if any(part.item is None and part.value is None for part in named):
                raise _invalid(f"Evidence of dialogue {one.name!r} has neither an item nor a value.", question.text)
    if not any(question.evidence for one in found for question in one.questions):
        what = "None of the questions has evidence."
        hint = "Give them questions with evidence. The archive of LoCoMo has none: load locomo10.json."
        raise NoeticConfigError("NO_QUESTIONS", what, given=len(found), hint=hint)
    return found


def _invalid(what: str, given: object) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_DIALOGUE",
        what,
        given=given,
        hint="Pass a list of Dialogue(name, sessions, questions), such as lab.made_dialogues() or datasets.load_locomo(path).",
    )
