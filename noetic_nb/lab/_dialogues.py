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
        The id of the message that says it; None if nobody has marked one.
    value : str or None
        The words that count; None if they are not marked.
    owner : tuple of str
        The names of whom it is true, such as a name and "my sister"; empty if they are not marked.
    attribute : tuple of str
        Words of which a statement has at least one where it is about this; empty if they are not marked.
    """

    item: str | None
    value: str | None = None
    owner: tuple[str, ...] = ()
    attribute: tuple[str, ...] = ()


class Question(NamedTuple):
    """A question that is asked once everything has been said.

    Attributes
    ----------
    text, kind : str
        What is asked, and the kind under which it is counted.
    evidence : tuple of Evidence
        All that must have been sent; empty if nothing that holds was said, as for what was deleted or never told.
    outdated : tuple of Evidence
        What held before, or was deleted: a wrong answer now.
    needs : tuple of Evidence
        What must be known beside the evidence, such as who "my sister" is.
    answer : str or None
        The answer that a data set names.
    when_ms : float or None
        When it is asked, milliseconds since 1970 UTC.
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
    """A dialogue: its sessions, a thread each, belong to one resource and hold messages, calls and outputs of tools, with ids.

    Questions are asked in the last session, each for itself: none is logged. Dialogues are told apart by `name`. `dates_ms` has
    the time at which each session begins, or None if it is not known; empty if none is.
    """

    name: str
    sessions: tuple[tuple[Item, ...], ...]
    questions: tuple[Question, ...]
    dates_ms: tuple[float | None, ...] = ()


def as_dialogues(given: Iterable[Any]) -> tuple[Dialogue, ...]:
    """Return dialogues, checked: some with messages and questions, whose evidence is in them."""
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
