"""`check`: one answer against the cases of its exercise.

Nothing leaves the process and nothing is written: how often an exercise was tried is known until the kernel ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from noetic_nb._core.arguments import ArgumentError
from noetic_nb.lessons._attack_exercises import ATTACKS
from noetic_nb.lessons._exercise import Exercise, Verdict
from noetic_nb.lessons._extending_exercises import EXTENDING
from noetic_nb.lessons._measuring_exercises import MEASURING
from noetic_nb.lessons._memory_exercises import MEMORY
from noetic_nb.lessons._regulator_exercises import REGULATOR
from noetic_nb.lessons._steering_exercises import STEERING
from noetic_nb.lessons._step_exercises import STEPS
from noetic_nb.lessons._token_exercises import TOKENS
from noetic_nb.lessons._watching_exercises import WATCHING
from noetic_nb.lessons._what_if_exercises import WHAT_IF
from noetic_nb.redact import redact_text
from noetic_nb.sync import awaited, run_sync

EXERCISES: Final[dict[str, Exercise]] = {
    each.id: each
    for each in (*MEMORY, *TOKENS, *STEERING, *REGULATOR, *STEPS, *WHAT_IF, *WATCHING, *EXTENDING, *MEASURING, *ATTACKS)
}
"""Every exercise, by its id."""

_tries: Final[Counter[str]] = Counter()


async def _examined(exercise: Exercise, answer: Any) -> str | None:
    try:
        why: str | None = await awaited(exercise.examine(answer))
    except Exception as error:  # an answer may do anything: what it raises is what is wrong with it
        if isinstance(error, TypeError) and not callable(answer):
            how = f"Pass the function itself: check({exercise.id!r}, {exercise.answer})."
            return f"Your answer is a {type(answer).__name__}, which cannot be called. {how}"
        return f"Your answer raised {type(error).__name__}: {redact_text(str(error))[:300]}"
    return why


def examined(exercise: Exercise, answer: Any) -> str | None:
    """Return the fault of an answer, None where it is right; counts no try."""
    return run_sync(_examined(exercise, answer))


def check(exercise: str, answer: Any) -> Verdict:
    """Tell whether an answer is right, and if it is not, its fault; each further try gives one more hint.

    Parameters
    ----------
    exercise : str
        The id of an exercise, as it stands in the lesson.
    answer : object
        What the exercise asks for, most often a function.

    Returns
    -------
    Verdict
        True where the answer is right. An error of the answer is said there and not raised.

    Raises
    ------
    ArgumentError
        For an exercise that does not exist.

    Examples
    --------
    >>> check("1.1", lambda sizes, room: [])
    1.1: not yet. Items of 40, 10, 30, 20 tokens and room for 60: [1, 2, 3] are sent, your
        answer is [].
    """
    found = EXERCISES.get(exercise)
    if found is None:
        if str(exercise) in EXERCISES:
            raise ArgumentError(
                "An exercise is named by text", given=exercise, hint=f"Write check({str(exercise)!r}, ...), in quotes."
            )
        raise ArgumentError("There is no such exercise", given=exercise, hint=f"There are {', '.join(EXERCISES)}.")
    why = examined(found, answer)
    if why is None:
        return Verdict(exercise, True)
    _tries[exercise] += 1
    return Verdict(exercise, False, why, found.hints[: _tries[exercise] - 1])
